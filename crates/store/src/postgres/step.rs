//! The statements that write changes, one for each sort of them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{Change, JobId, JournalEntry, Outcome, StepWrites, Time};

use super::{
    SPAN,
    branch::{self, Child},
    change_params::{Again, Base, Ends, Param, Steps, Waits},
    journal::{Entries, lone_entry},
    micros,
    pool::Guard,
    sql,
};
use crate::{Error, Now};

/// A change that was written.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) id: JobId,
    /// Of an end: whether something is kept of a pause, an order or branches. Of a step: whether the job was set aside.
    pub(super) held: bool,
    /// Whether it was set aside and has a slot to give up.
    pub(super) leaves: bool,
    /// What its row said of the branch that it counts for; `None` too if the statement has counted it.
    pub(super) child: Option<Child>,
}

impl Written {
    /// Out of id, whether it is held, whether it leaves (steps only), and the three columns of a child (unless the statement
    /// counts).
    fn new(row: &Row) -> Written {
        let (leaves, child) = match row.len() {
            2 => (false, None),
            5 => (false, Child::wrote(row, 2)),
            _ => (row.get(2), Child::wrote(row, 3)),
        };
        Written { id: JobId(row.get(0)), held: row.get(1), leaves, child }
    }
}

/// A sort of changes: those that one statement writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// Plain tasks that end well.
    Done,
    /// Workflows that end well, with entries of their journals and nothing else.
    Closed,
    /// Plain tasks that end badly, or by their own wish.
    Ended,
    /// Machines and workflows that end otherwise.
    Finished,
    /// Whatever is tried again.
    Again,
    /// Machines and workflows that go on under their claim.
    Next,
    /// Machines and workflows that wait, or let others pass.
    Waits,
}

/// How much of a step an end has to write.
enum Size {
    Nothing,
    Entries,
    More,
}

impl Size {
    fn of(step: &StepWrites) -> Size {
        let more =
            step.from_stage.is_some() || step.stage.is_some() || !step.consumed.is_empty() || step.has_undo;
        match (more, step.entries.is_empty()) {
            (true, _) => Size::More,
            (false, false) => Size::Entries,
            (false, true) => Size::Nothing,
        }
    }
}

impl ChangeKind {
    const ALL: [ChangeKind; 7] = [
        ChangeKind::Done,
        ChangeKind::Closed,
        ChangeKind::Ended,
        ChangeKind::Finished,
        ChangeKind::Again,
        ChangeKind::Next,
        ChangeKind::Waits,
    ];

    fn of(change: &Change) -> ChangeKind {
        let size = || change.step.as_deref().map_or(Size::Nothing, Size::of);
        match &change.outcome {
            Outcome::Done(_) => match size() {
                Size::Nothing => ChangeKind::Done,
                Size::Entries => ChangeKind::Closed,
                Size::More => ChangeKind::Finished,
            },
            Outcome::Failed { .. } | Outcome::Cancelled(_) => match size() {
                Size::Nothing => ChangeKind::Ended,
                _ => ChangeKind::Finished,
            },
            Outcome::Retry { .. } => ChangeKind::Again,
            Outcome::Next => ChangeKind::Next,
            Outcome::Wait(_) => ChangeKind::Waits,
        }
    }

    fn sql(self, changes: &[&Change], tallies: bool) -> &'static str {
        match self {
            ChangeKind::Done if tallies => sql::commit::DONE_COUNTED,
            ChangeKind::Closed if tallies => sql::commit::DONE_JOURNAL_COUNTED,
            ChangeKind::Next => match Lone::of(changes) {
                Some(Lone::Step(_)) => sql::commit::NEXT_SINGLE,
                Some(Lone::Entry(..)) => sql::commit::NEXT_ENTRY,
                None => sql::commit::NEXT,
            },
            ChangeKind::Done => sql::commit::DONE,
            ChangeKind::Closed => sql::commit::DONE_JOURNAL,
            ChangeKind::Ended => sql::commit::FAILED,
            ChangeKind::Finished => sql::commit::END_WITH_STEP,
            ChangeKind::Again => sql::commit::RETRY,
            ChangeKind::Waits => sql::waits::PARK,
        }
    }

    /// Writes changes of this sort.
    async fn write(
        self,
        conn: &Guard<'_>,
        now: Now,
        changes: &[&Change],
        tallies: bool,
    ) -> Result<Vec<Row>, Error> {
        let sql = self.sql(changes, tallies);
        if let (ChangeKind::Next, Some(lone)) = (self, Lone::of(changes)) {
            let claim = (changes[0].job, changes[0].worker, changes[0].claim);
            // Within a transaction it is not known yet what will have been written.
            let further = !conn.is_open() && conn.wrote_last(claim);
            let rows = lone.write(conn, now, if further { lone.further() } else { sql }).await?;
            conn.set_wrote((!conn.is_open() && !rows.is_empty()).then_some(claim));
            return Ok(rows);
        }
        let (now, base, lane) = (micros(now), Base::new(changes), conn.lane());
        let placing: [Param<'_>; 3] = [&LAST, &SPAN, &conn.gate_writer];
        let mut params: Vec<Param<'_>> = vec![&now];
        params.extend(base.params());
        let (steps, ends, again, waits, entries);
        if !matches!(self, ChangeKind::Done | ChangeKind::Ended) {
            entries = Entries::new(changes);
            params.extend(entries.params());
        }
        if matches!(self, ChangeKind::Finished | ChangeKind::Again | ChangeKind::Next | ChangeKind::Waits) {
            steps = Steps::new(changes);
            params.extend(steps.params());
        } else {
            steps = Steps::default();
        }
        match self {
            ChangeKind::Done | ChangeKind::Closed => {
                ends = Ends::new(changes);
                params.extend(ends.output());
            }
            ChangeKind::Ended => {
                ends = Ends::new(changes);
                params.extend(ends.params());
            }
            ChangeKind::Finished => {
                ends = Ends::new(changes);
                params.push(&steps.how);
                params.extend(ends.params());
                params.extend(ends.output());
            }
            ChangeKind::Again => {
                again = Again::new(changes);
                params.extend(again.params());
                params.extend(placing);
            }
            ChangeKind::Next => params.push(&steps.unchanged),
            ChangeKind::Waits => {
                waits = Waits::new(changes);
                params.extend::<[Param<'_>; 2]>([&steps.unchanged, &steps.how]);
                params.extend(waits.params());
                params.extend(placing);
            }
        }
        if tallies {
            params.push(&lane);
        }
        conn.query(sql, &params).await
    }
}

/// A change that goes on under its claim and is written by itself.
enum Lone<'a> {
    /// A step that consumes nothing and adds nothing to a journal.
    Step(&'a Change),
    /// A step that adds an entry and writes nothing else.
    Entry(&'a Change, &'a JournalEntry),
}

impl<'a> Lone<'a> {
    fn of(changes: &[&'a Change]) -> Option<Lone<'a>> {
        let [change] = changes else { return None };
        if let Some(entry) = lone_entry(change) {
            return Some(Lone::Entry(change, entry));
        }
        let plain = |step: &StepWrites| {
            step.consumed.is_empty() && step.entries.is_empty() && !step.has_undo && !step.partial
        };
        change.step.as_deref().is_none_or(plain).then_some(Lone::Step(change))
    }

    /// The statement for a step after one of the same claim, which this connection has written.
    fn further(&self) -> &'static str {
        match self {
            Lone::Step(_) => sql::commit::NEXT_SINGLE_FURTHER,
            Lone::Entry(..) => sql::commit::NEXT_ENTRY_FURTHER,
        }
    }

    async fn write(&self, conn: &Guard<'_>, now: Now, sql: &'static str) -> Result<Vec<Row>, Error> {
        match self {
            Lone::Step(change) => Lone::write_step(conn, now, sql, change).await,
            Lone::Entry(change, entry) => Lone::write_entry(conn, now, sql, change, entry).await,
        }
    }

    async fn write_step(
        conn: &Guard<'_>,
        now: Now,
        sql: &'static str,
        change: &Change,
    ) -> Result<Vec<Row>, Error> {
        let step = change.step.as_deref();
        let stage = step.and_then(|step| step.stage.as_ref());
        let params: [Param<'_>; 12] = [
            &micros(now),
            &change.job.0,
            &change.epoch.0,
            &change.rev.0,
            &change.worker.0,
            &change.started_at.micros(),
            &change.claim.0,
            &step.is_some_and(|step| step.unchanged),
            &step.and_then(|step| step.from_stage.as_deref()),
            &stage.map(|(name, _)| name.as_str()),
            &stage.map(|(_, data)| i16::from(data.codec)),
            &stage.map(|(_, data)| data.bytes.as_slice()),
        ];
        conn.query_autocommit(sql, &params).await
    }

    async fn write_entry(
        conn: &Guard<'_>,
        now: Now,
        sql: &'static str,
        change: &Change,
        entry: &JournalEntry,
    ) -> Result<Vec<Row>, Error> {
        let step = change.step.as_deref();
        let params: [Param<'_>; 18] = [
            &micros(now),
            &change.job.0,
            &change.epoch.0,
            &change.rev.0,
            &change.worker.0,
            &change.started_at.micros(),
            &change.claim.0,
            &step.is_some_and(|step| step.unchanged),
            &step.is_some_and(|step| step.has_undo),
            &entry.seq,
            &entry.op.number(),
            &entry.mark.number(),
            &entry.name,
            &entry.key,
            &entry.line,
            &entry.at.micros(),
            &i16::from(entry.payload.codec),
            &entry.payload.bytes,
        ];
        conn.query_autocommit(sql, &params).await
    }
}

/// The latest moment that anything is due at.
const LAST: i64 = Time::MAX.micros();

/// A batch, sorted by what is sent for it.
pub(super) struct ChangeBatches<'a> {
    sorts: Vec<(ChangeKind, Vec<&'a Change>)>,
    /// Whether the statement that writes them counts the ends of children of branches too.
    tallies: bool,
}

impl<'a> ChangeBatches<'a> {
    pub(super) fn of(batch: impl Iterator<Item = &'a Change> + Clone) -> ChangeBatches<'a> {
        let sort = |sort: ChangeKind| {
            (sort, batch.clone().filter(|change| ChangeKind::of(change) == sort).collect())
        };
        let sorts = ChangeKind::ALL.into_iter().map(sort);
        let sorts = sorts.filter(|(_, changes): &(ChangeKind, Vec<&Change>)| !changes.is_empty()).collect();
        ChangeBatches { sorts, tallies: false }
    }

    /// Has the statement count the ends of children of branches, if there is one that can; whether there is.
    pub(super) fn tally(&mut self) -> bool {
        self.tallies = match self.sorts.as_slice() {
            [(ChangeKind::Done | ChangeKind::Closed, changes)] => {
                changes.iter().all(|change| branch::is_whole(change))
            }
            _ => false,
        };
        self.tallies
    }

    /// All jobs, by id.
    pub(super) fn ids(&self) -> Vec<Uuid> {
        let ids: BTreeSet<Uuid> =
            self.sorts.iter().flat_map(|(_, changes)| changes.iter().map(|change| change.job.0)).collect();
        ids.into_iter().collect()
    }

    /// How many sorts there are: each is one statement.
    pub(super) fn count(&self) -> usize {
        self.sorts.len()
    }

    pub(super) fn has(&self, sort: ChangeKind) -> bool {
        self.sorts.iter().any(|(there, _)| *there == sort)
    }

    /// Prepares what [`Sorts::write`] sends.
    pub(super) async fn prepare(&self, conn: &Guard<'_>) -> Result<(), Error> {
        for (sort, changes) in &self.sorts {
            conn.prepare(sort.sql(changes, self.tallies)).await?;
        }
        Ok(())
    }

    /// Writes all of them; none waits for the answer of another. All answers are awaited, and the first error is the cause:
    /// what was sent after it says only that the transaction is over.
    pub(super) async fn write(&self, conn: &Guard<'_>, now: Now) -> Result<Vec<Written>, Error> {
        let sorts = self.sorts.iter();
        let answers =
            join_all(sorts.map(|(sort, changes)| sort.write(conn, now, changes, self.tallies))).await;
        let mut wrote = Vec::new();
        for rows in answers {
            wrote.extend(rows?.iter().map(Written::new));
        }
        Ok(wrote)
    }
}
