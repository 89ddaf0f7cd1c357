//! Records of operations.

use tokio_postgres::Row;
use windlass_model::{JobId, Time};

use super::{
    Postgres,
    change_params::Param,
    control::{log, transaction},
    micros, sql,
};
use crate::{
    Actor, ControlOutcome, Fut, NewOperation, Now, Operation, OperationEnd, OperationId, OperationProgress,
    OperationState, Operations,
    control::check_actor,
    operations::{Columns, STOP_REQUESTED, error_of, outcome, progress_text},
};

impl Operations for Postgres {
    fn add_operation<'a>(&'a self, now: Now, new: &'a NewOperation, actor: &'a Actor) -> Fut<'a, bool> {
        Box::pin(async move {
            new.check(actor)?;
            let (filter, parameters) = (new.filter.to_string(), new.parameters.to_string());
            let (state, progress) = (OperationState::Running.number(), progress_text(&new.progress));
            let params: [Param<'_>; 9] = [
                &micros(now),
                &new.id.0.0,
                &new.action,
                &filter,
                &parameters,
                &actor.author,
                &actor.note,
                &state,
                &progress,
            ];
            Ok(self.conn().await?.execute(sql::operations::ADD, &params).await? == 1)
        })
    }

    fn update_operation<'a>(
        &'a self,
        now: Now,
        id: OperationId,
        progress: &'a OperationProgress,
        ended: Option<&'a OperationEnd>,
    ) -> Fut<'a, bool> {
        Box::pin(async move {
            let state = ended.map_or(OperationState::Running, OperationState::of_end).number();
            let (progress, error) = (progress_text(progress), ended.and_then(error_of));
            let conn = self.conn().await?;
            let params: [Param<'_>; 5] = [&micros(now), &id.0.0, &progress, &state, &error];
            conn.execute(sql::operations::UPDATE, &params).await?;
            let rows = conn.query(sql::operations::STOP_REQUESTED, &[&id.0.0]).await?;
            Ok(rows.first().is_none_or(|row| row.get(0)))
        })
    }

    fn request_stop<'a>(&'a self, now: Now, id: OperationId, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(async move {
            check_actor(actor)?;
            let requested = transaction(self, now, async |tx, now| {
                let rows = tx.query(sql::operations::STOP_REQUESTED, &[&id.0.0]).await?;
                let Some(row) = rows.first() else { return Ok(ControlOutcome::Unknown) };
                if row.get(2) {
                    return Ok(outcome::ended(OperationState::from_number(row.get(1))));
                }
                if row.get(0) {
                    return Ok(outcome::requested_before());
                }
                tx.execute(sql::operations::REQUEST_STOP, &[&id.0.0]).await?;
                log(tx, now, STOP_REQUESTED, &[id.to_string()], actor).await?;
                Ok(ControlOutcome::Done)
            });
            Ok(requested.await?)
        })
    }

    fn operation(&self, now: Now, id: OperationId) -> Fut<'_, Option<Operation>> {
        Box::pin(async move {
            let rows = self.conn().await?.read(sql::operations::READ, &[&micros(now), &id.0.0]).await?;
            Ok(rows.first().map(read))
        })
    }

    fn operations(&self, now: Now, before: Option<OperationId>, limit: usize) -> Fut<'_, Vec<Operation>> {
        Box::pin(async move {
            let (before, limit) = (before.map(|id| id.0.0), i64::try_from(limit).unwrap_or(i64::MAX));
            let params: [Param<'_>; 3] = [&micros(now), &before, &limit];
            let rows = self.conn().await?.read(sql::operations::LIST, &params).await?;
            Ok(rows.iter().map(read).collect())
        })
    }

    fn prune_operations(&self, before: Time) -> Fut<'_, usize> {
        Box::pin(async move {
            let deleted = self.conn().await?.execute(sql::operations::PRUNE, &[&before.micros()]).await?;
            Ok(usize::try_from(deleted).unwrap_or(usize::MAX))
        })
    }
}

fn read(row: &Row) -> Operation {
    let columns = Columns {
        id: JobId(row.get(0)),
        action: row.get(1),
        filter: row.get(2),
        parameters: row.get(3),
        author: row.get(4),
        note: row.get(5),
        started_at: row.get(6),
        updated_at: row.get(7),
        ended_at: row.get(8),
        state: row.get(9),
        progress: row.get(10),
        stop_requested: row.get(11),
        error: row.get(12),
    };
    columns.decode(Time(row.get(13)))
}
