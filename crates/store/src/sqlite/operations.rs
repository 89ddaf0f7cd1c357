//! Records of operations.

use rusqlite::{Row, params};
use windlass_model::Time;

use super::{
    Sqlite,
    admin::log,
    sql,
    tx::{Tx, read_id},
    views::row_limit,
};
use crate::{
    Actor, ControlOutcome, Error, Fut, NewOperation, Now, Operation, OperationEnd, OperationId,
    OperationProgress, OperationState, Operations,
    control::check_actor,
    operations::{Columns, STOP_REQUESTED, error_of, outcome, progress_text},
};

/// Whether an operation was requested to stop, its state, and whether it has ended.
type StopState = (bool, OperationState, bool);

impl Operations for Sqlite {
    fn add_operation<'a>(&'a self, now: Now, new: &'a NewOperation, actor: &'a Actor) -> Fut<'a, bool> {
        Box::pin(async move {
            new.check(actor)?;
            let running = OperationState::Running.number();
            self.write_one(|tx| {
                let params = params![
                    new.id.0.as_bytes(),
                    new.action,
                    new.filter.to_string(),
                    new.parameters.to_string(),
                    actor.author,
                    actor.note,
                    tx.now(now).micros(),
                    running,
                    progress_text(&new.progress)
                ];
                Ok(tx.execute(sql::operations::ADD, params)? == 1)
            })
            .await
        })
    }

    fn update_operation<'a>(
        &'a self,
        now: Now,
        id: OperationId,
        progress: &'a OperationProgress,
        ended: Option<&'a OperationEnd>,
    ) -> Fut<'a, bool> {
        Box::pin(self.write(1, move |tx| {
            let state = ended.map_or(OperationState::Running, OperationState::of_end).number();
            let error = ended.and_then(error_of);
            let params =
                params![id.0.as_bytes(), tx.now(now).micros(), progress_text(progress), state, error];
            tx.execute(sql::operations::UPDATE, params)?;
            Ok(stop_state(tx, id)?.is_none_or(|(stop_requested, ..)| stop_requested))
        }))
    }

    fn request_stop<'a>(&'a self, now: Now, id: OperationId, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            self.write(1, |tx| {
                match stop_state(tx, id)? {
                    None => return Ok(ControlOutcome::Unknown),
                    Some((_, state, true)) => return Ok(outcome::ended(state)),
                    Some((true, ..)) => return Ok(outcome::requested_before()),
                    Some(_) => {}
                }
                tx.execute(sql::operations::REQUEST_STOP, [id.0.as_bytes()])?;
                log(tx, tx.now(now), STOP_REQUESTED, &id.to_string(), actor)?;
                Ok(ControlOutcome::Done)
            })
            .await
        })
    }

    fn operation(&self, now: Now, id: OperationId) -> Fut<'_, Option<Operation>> {
        let read = self.read(|tx| {
            let row = tx.query_one(sql::operations::READ, [id.0.as_bytes()], columns)?;
            Ok(row.map(|row| row.decode(tx.now(now))))
        });
        Box::pin(std::future::ready(read))
    }

    fn operations(&self, now: Now, before: Option<OperationId>, limit: usize) -> Fut<'_, Vec<Operation>> {
        let before = before.map(|id| *id.0.as_bytes());
        let read = self.read(|tx| {
            let rows = tx.query_all(sql::operations::LIST, params![before, row_limit(limit)], columns)?;
            Ok(rows.into_iter().map(|row| row.decode(tx.now(now))).collect())
        });
        Box::pin(std::future::ready(read))
    }

    fn prune_operations(&self, before: Time) -> Fut<'_, usize> {
        Box::pin(self.write_one(move |tx| tx.execute(sql::operations::PRUNE, [before.micros()])))
    }
}

fn stop_state(tx: &Tx<'_>, id: OperationId) -> Result<Option<StopState>, Error> {
    tx.query_one(sql::operations::STOP_REQUESTED, [id.0.as_bytes()], |row| {
        Ok((row.get(0)?, OperationState::from_number(row.get(1)?), row.get(2)?))
    })
}

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        id: read_id(row, 0)?,
        action: row.get(1)?,
        filter: row.get(2)?,
        parameters: row.get(3)?,
        author: row.get(4)?,
        note: row.get(5)?,
        started_at: row.get(6)?,
        updated_at: row.get(7)?,
        ended_at: row.get(8)?,
        state: row.get(9)?,
        progress: row.get(10)?,
        stop_requested: row.get(11)?,
        error: row.get(12)?,
    })
}
