//! The statements that write changes, one for each sort of them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{Change, JobId, Outcome, Time};

use super::{
    SPAN,
    columns::{Again, Base, Ends, Param, Steps, Waits},
    conn::Guard,
    micros,
};
use crate::{Error, Now};

/// A change that was written.
#[derive(Clone, Copy)]
pub(super) struct Wrote {
    pub(super) id: JobId,
    /// Of an end: whether something is kept of a pause or an order. Of a step: whether the job was set aside.
    pub(super) held: bool,
    /// Whether it was set aside and has a slot to give up.
    pub(super) leaves: bool,
}

impl Wrote {
    fn new(row: &Row) -> Wrote {
        Wrote { id: JobId(row.get(0)), held: row.get(1), leaves: row.len() > 2 && row.get(2) }
    }
}

/// A sort of changes: those that one statement writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Plain tasks that end well.
    Done,
    /// Plain tasks that end badly, or by their own wish.
    Ended,
    /// Machines that end.
    Finished,
    /// Whatever is tried again.
    Again,
    /// Machines that go on under their claim.
    Next,
    /// Machines that wait, or let others pass.
    Waits,
}

impl Sort {
    const ALL: [Sort; 6] = [Sort::Done, Sort::Ended, Sort::Finished, Sort::Again, Sort::Next, Sort::Waits];

    fn of(change: &Change) -> Sort {
        match (&change.outcome, &change.step) {
            (Outcome::Done(_), None) => Sort::Done,
            (Outcome::Failed { .. } | Outcome::Cancelled(_), None) => Sort::Ended,
            (Outcome::Done(_) | Outcome::Failed { .. } | Outcome::Cancelled(_), Some(_)) => Sort::Finished,
            (Outcome::Retry { .. }, _) => Sort::Again,
            (Outcome::Next, _) => Sort::Next,
            (Outcome::Wait(_), _) => Sort::Waits,
        }
    }

    fn sql(self, changes: &[&Change]) -> &'static str {
        match self {
            Sort::Next if is_lone(changes) => include_str!("sql/commit_next_one.sql"),
            Sort::Done => include_str!("sql/commit_done.sql"),
            Sort::Ended => include_str!("sql/commit_failed.sql"),
            Sort::Finished => include_str!("sql/commit_end.sql"),
            Sort::Again => include_str!("sql/commit_retry.sql"),
            Sort::Next => include_str!("sql/commit_next.sql"),
            Sort::Waits => include_str!("sql/commit_wait.sql"),
        }
    }

    /// Writes changes of this sort.
    async fn write(self, conn: &Guard<'_>, now: Now, changes: &[&Change]) -> Result<Vec<Row>, Error> {
        if self == Sort::Next && is_lone(changes) {
            return self.write_one(conn, now, changes[0]).await;
        }
        let (now, base) = (micros(now), Base::new(changes));
        let placing: [Param<'_>; 3] = [&LAST, &SPAN, &conn.gate_writer];
        let mut params: Vec<Param<'_>> =
            vec![&now, &base.id, &base.epoch, &base.rev, &base.worker, &base.started_at];
        let (steps, ends, again, waits);
        match self {
            Sort::Done => {
                ends = Ends::new(changes);
                params.extend(ends.output());
            }
            Sort::Ended => {
                ends = Ends::new(changes);
                params.extend(ends.params());
            }
            Sort::Finished => {
                (steps, ends) = (Steps::new(changes), Ends::new(changes));
                params.extend(steps.params());
                params.push(&steps.how);
                params.extend(ends.params());
                params.extend(ends.output());
                params.extend(steps.consumed());
            }
            Sort::Again => {
                (steps, again) = (Steps::new(changes), Again::new(changes));
                params.extend(again.params());
                params.extend(placing);
                params.extend(steps.params());
                params.extend(steps.consumed());
            }
            Sort::Next => {
                steps = Steps::new(changes);
                params.extend(steps.params());
                params.push(&steps.unchanged);
                params.extend(steps.consumed());
            }
            Sort::Waits => {
                (steps, waits) = (Steps::new(changes), Waits::new(changes));
                params.extend(steps.params());
                params.push(&steps.unchanged);
                params.push(&steps.how);
                params.extend(waits.params());
                params.extend(steps.consumed());
                params.extend(placing);
            }
        }
        conn.query(self.sql(changes), &params).await
    }

    /// Writes a lone step.
    async fn write_one(self, conn: &Guard<'_>, now: Now, change: &Change) -> Result<Vec<Row>, Error> {
        let step = change.step.as_deref();
        let stage = step.and_then(|step| step.stage.as_ref());
        let params: [Param<'_>; 11] = [
            &micros(now),
            &change.job.0,
            &change.epoch.0,
            &change.rev.0,
            &change.worker.0,
            &change.started_at.micros(),
            &step.and_then(|step| step.ran.as_deref()),
            &stage.map(|(name, _)| name.as_str()),
            &stage.map(|(_, data)| i16::from(data.codec)),
            &stage.map(|(_, data)| data.bytes.as_slice()),
            &step.is_some_and(|step| step.unchanged),
        ];
        conn.query(self.sql(&[change]), &params).await
    }
}

/// Whether it is one step that consumes nothing.
fn is_lone(changes: &[&Change]) -> bool {
    matches!(changes, [change] if change.step.as_ref().is_none_or(|step| step.consumed.is_empty()))
}

/// The latest moment that anything is due at.
const LAST: i64 = Time::MAX.micros();

/// A batch, sorted by what is sent for it.
pub(super) struct Sorts<'a>(Vec<(Sort, Vec<&'a Change>)>);

impl<'a> Sorts<'a> {
    pub(super) fn of(batch: impl Iterator<Item = &'a Change> + Clone) -> Sorts<'a> {
        let sort = |sort: Sort| (sort, batch.clone().filter(|change| Sort::of(change) == sort).collect());
        let sorts = Sort::ALL.into_iter().map(sort);
        Sorts(sorts.filter(|(_, changes): &(Sort, Vec<&Change>)| !changes.is_empty()).collect())
    }

    /// All jobs, by id.
    pub(super) fn ids(&self) -> Vec<Uuid> {
        let ids: BTreeSet<Uuid> =
            self.0.iter().flat_map(|(_, changes)| changes.iter().map(|change| change.job.0)).collect();
        ids.into_iter().collect()
    }

    /// How many sorts there are: each is one statement.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has(&self, sort: Sort) -> bool {
        self.0.iter().any(|(there, _)| *there == sort)
    }

    /// Prepares what [`Sorts::write`] sends.
    pub(super) async fn prepare(&self, conn: &Guard<'_>) -> Result<(), Error> {
        for (sort, changes) in &self.0 {
            conn.prepare(sort.sql(changes)).await?;
        }
        Ok(())
    }

    /// Writes all of them; none waits for the answer of another. All answers are awaited, and the first error is the cause:
    /// what was sent after it says only that the transaction is over.
    pub(super) async fn write(&self, conn: &Guard<'_>, now: Now) -> Result<Vec<Wrote>, Error> {
        let answers = join_all(self.0.iter().map(|(sort, changes)| sort.write(conn, now, changes))).await;
        let mut wrote = Vec::new();
        for rows in answers {
            wrote.extend(rows?.iter().map(Wrote::new));
        }
        Ok(wrote)
    }
}
