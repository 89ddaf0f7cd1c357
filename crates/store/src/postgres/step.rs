//! The statements that write changes, one for each kind of change.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{Change, JobId, JournalEntry, Outcome, StepWrites, Time};

use super::{
    SPAN,
    branch::Member,
    change_params::{Base, Ends, Param, Retries, Steps, Waits},
    errors::PgError,
    journal::{Entries, only_entry},
    micros, sql,
    tx::Executor,
};
use crate::Now;

/// A change that was written.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) id: JobId,
    /// Of an end: whether the job has a pause, a cancel request or branches. Of a step: whether the job is held.
    pub(super) held: bool,
    /// Whether the job is held and has a serial slot to give up.
    pub(super) frees_slot: bool,
    /// What the job's row says about its branch; `None` also if the statement has counted the change.
    pub(super) member: Option<Member>,
}

impl Written {
    /// Reads id, `held`, `frees_slot` (steps only), and the three columns of a member (unless the statement counts).
    fn read(row: &Row) -> Written {
        let (frees_slot, member) = match row.len() {
            2 => (false, None),
            5 => (false, Member::read_started(row, 2)),
            _ => (row.get(2), Member::read_started(row, 3)),
        };
        Written { id: JobId(row.get(0)), held: row.get(1), frees_slot, member }
    }
}

/// The kinds of changes; one statement writes all changes of a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// Tasks that succeed.
    Done,
    /// Workflows that succeed, and write nothing but entries of their journals.
    DoneJournal,
    /// Tasks that fail or are cancelled.
    Failed,
    /// All other ends of machines and workflows.
    EndWithStep,
    Retry,
    /// Steps of machines and workflows that keep their claim.
    Next,
    /// Machines and workflows that wait, or return to the ready set.
    Park,
}

/// How much of a step an end has to write.
enum StepSize {
    Nothing,
    Entries,
    More,
}

impl StepSize {
    fn of(step: &StepWrites) -> StepSize {
        let more =
            step.from_stage.is_some() || step.stage.is_some() || !step.consumed.is_empty() || step.has_undo;
        match (more, step.entries.is_empty()) {
            (true, _) => StepSize::More,
            (false, false) => StepSize::Entries,
            (false, true) => StepSize::Nothing,
        }
    }
}

impl ChangeKind {
    const ALL: [ChangeKind; 7] = [
        ChangeKind::Done,
        ChangeKind::DoneJournal,
        ChangeKind::Failed,
        ChangeKind::EndWithStep,
        ChangeKind::Retry,
        ChangeKind::Next,
        ChangeKind::Park,
    ];

    fn of(change: &Change) -> ChangeKind {
        let size = || change.writes.as_deref().map_or(StepSize::Nothing, StepSize::of);
        match &change.outcome {
            Outcome::Done(_) => match size() {
                StepSize::Nothing => ChangeKind::Done,
                StepSize::Entries => ChangeKind::DoneJournal,
                StepSize::More => ChangeKind::EndWithStep,
            },
            Outcome::Failed { .. } | Outcome::Cancelled(_) => match size() {
                StepSize::Nothing => ChangeKind::Failed,
                _ => ChangeKind::EndWithStep,
            },
            Outcome::Retry { .. } => ChangeKind::Retry,
            Outcome::Next => ChangeKind::Next,
            Outcome::Wait(_) => ChangeKind::Park,
        }
    }

    fn sql(self, changes: &[&Change], counts: bool) -> &'static str {
        match self {
            ChangeKind::Done if counts => sql::commit::DONE_COUNTED,
            ChangeKind::DoneJournal if counts => sql::commit::DONE_JOURNAL_COUNTED,
            ChangeKind::Next => match SingleStep::of(changes) {
                Some(SingleStep::Stage(_)) => sql::commit::NEXT_SINGLE,
                Some(SingleStep::Entry(..)) => sql::commit::NEXT_ENTRY,
                None => sql::commit::NEXT,
            },
            ChangeKind::Done if changes.len() == 1 => sql::commit::DONE_ONE,
            ChangeKind::Done => sql::commit::DONE,
            ChangeKind::DoneJournal => sql::commit::DONE_JOURNAL,
            ChangeKind::Failed => sql::commit::FAILED,
            ChangeKind::EndWithStep => sql::commit::END_WITH_STEP,
            ChangeKind::Retry => sql::commit::RETRY,
            ChangeKind::Park => sql::waits::PARK,
        }
    }

    /// Writes changes of this kind.
    async fn write(
        self,
        executor: Executor<'_>,
        now: Now,
        changes: &[&Change],
        counts: bool,
    ) -> Result<Vec<Row>, PgError> {
        let sql = self.sql(changes, counts);
        if let (ChangeKind::Next, Some(single)) = (self, SingleStep::of(changes)) {
            return single.write(executor, now, sql).await;
        }
        let (now, base) = (micros(now), Base::new(changes));
        let (writer, count_writer) = (executor.gate_writer(), executor.count_writer());
        let placing: [Param<'_>; 3] = [&LAST, &SPAN, &writer];
        let mut params: Vec<Param<'_>> = vec![&now];
        params.extend(base.params());
        let (steps, ends, retries, waits, entries);
        if !matches!(self, ChangeKind::Done | ChangeKind::Failed) {
            entries = Entries::new(changes);
            params.extend(entries.params());
        }
        if matches!(self, ChangeKind::EndWithStep | ChangeKind::Retry | ChangeKind::Next | ChangeKind::Park) {
            steps = Steps::new(changes);
            params.extend(steps.params());
        } else {
            steps = Steps::default();
        }
        match self {
            ChangeKind::Done | ChangeKind::DoneJournal => {
                ends = Ends::new(changes);
                params.extend(ends.output());
            }
            ChangeKind::Failed => {
                ends = Ends::new(changes);
                params.extend(ends.params());
            }
            ChangeKind::EndWithStep => {
                ends = Ends::new(changes);
                params.push(&steps.how);
                params.extend(ends.params());
                params.extend(ends.output());
            }
            ChangeKind::Retry => {
                retries = Retries::new(changes);
                params.extend(retries.params());
                params.extend(placing);
            }
            ChangeKind::Next => params.push(&steps.unchanged),
            ChangeKind::Park => {
                waits = Waits::new(changes);
                params.extend::<[Param<'_>; 2]>([&steps.unchanged, &steps.how]);
                params.extend(waits.params());
                params.extend(placing);
            }
        }
        if self != ChangeKind::Next {
            params.push(&count_writer);
        }
        executor.query(sql, &params).await
    }
}

/// The only step of a batch that keeps its claim: it is written by a cheaper statement, which takes no arrays.
enum SingleStep<'a> {
    /// It consumes nothing and adds nothing to a journal.
    Stage(&'a Change),
    /// It adds an entry to its journal and writes nothing else.
    Entry(&'a Change, &'a JournalEntry),
}

impl<'a> SingleStep<'a> {
    fn of(changes: &[&'a Change]) -> Option<SingleStep<'a>> {
        let [change] = changes else { return None };
        if let Some(entry) = only_entry(change) {
            return Some(SingleStep::Entry(change, entry));
        }
        let plain = |step: &StepWrites| {
            step.consumed.is_empty() && step.entries.is_empty() && !step.has_undo && !step.partial
        };
        change.writes.as_deref().is_none_or(plain).then_some(SingleStep::Stage(change))
    }

    fn change(&self) -> &'a Change {
        match self {
            SingleStep::Stage(change) | SingleStep::Entry(change, _) => change,
        }
    }

    /// The statement for a step after one of the same claim that this connection has committed.
    fn further_sql(&self) -> &'static str {
        match self {
            SingleStep::Stage(_) => sql::commit::NEXT_SINGLE_FURTHER,
            SingleStep::Entry(..) => sql::commit::NEXT_ENTRY_FURTHER,
        }
    }

    async fn write(&self, executor: Executor<'_>, now: Now, sql: &'static str) -> Result<Vec<Row>, PgError> {
        let Change { job, worker, claim, .. } = *self.change();
        let claim = (job, worker, claim);
        // In a transaction it is not yet known what will have been committed.
        let (is_alone, conn) = (matches!(executor, Executor::Conn(_)), executor.conn());
        let sql = if is_alone && conn.wrote_last(claim) { self.further_sql() } else { sql };
        let rows = match self {
            SingleStep::Stage(change) => write_stage(executor, now, sql, change).await?,
            SingleStep::Entry(change, entry) => write_entry(executor, now, sql, change, entry).await?,
        };
        conn.set_last_step((is_alone && !rows.is_empty()).then_some(claim));
        Ok(rows)
    }
}

async fn write_stage(
    executor: Executor<'_>,
    now: Now,
    sql: &'static str,
    change: &Change,
) -> Result<Vec<Row>, PgError> {
    let step = change.writes.as_deref();
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
    executor.query_autocommit(sql, &params).await
}

async fn write_entry(
    executor: Executor<'_>,
    now: Now,
    sql: &'static str,
    change: &Change,
    entry: &JournalEntry,
) -> Result<Vec<Row>, PgError> {
    let step = change.writes.as_deref();
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
        &entry.call_kind.number(),
        &entry.event.number(),
        &entry.name,
        &entry.key,
        &entry.line,
        &entry.at.micros(),
        &i16::from(entry.payload.codec),
        &entry.payload.bytes,
    ];
    executor.query_autocommit(sql, &params).await
}

/// The latest time that a job can be due at.
const LAST: i64 = Time::MAX.micros();

/// A batch of changes, by kind.
pub(super) struct ChangeBatches<'a> {
    batches: Vec<(ChangeKind, Vec<&'a Change>)>,
    /// Whether the statement that writes them also counts the ends of children of branches.
    counts: bool,
}

impl<'a> ChangeBatches<'a> {
    pub(super) fn of(changes: impl Iterator<Item = &'a Change> + Clone) -> ChangeBatches<'a> {
        let batch = |kind: ChangeKind| {
            (kind, changes.clone().filter(|change| ChangeKind::of(change) == kind).collect())
        };
        let batches = ChangeKind::ALL.into_iter().map(batch);
        let batches =
            batches.filter(|(_, changes): &(ChangeKind, Vec<&Change>)| !changes.is_empty()).collect();
        ChangeBatches { batches, counts: false }
    }

    /// Lets the statement count the ends of children of branches, if it is the only one and can. Returns whether it does.
    pub(super) fn count_ends(&mut self) -> bool {
        self.counts = match self.batches.as_slice() {
            [(ChangeKind::Done | ChangeKind::DoneJournal, changes)] => !changes
                .iter()
                .any(|change| change.writes.as_ref().is_some_and(|step| step.accounts_for_items())),
            _ => false,
        };
        self.counts
    }

    /// All jobs, by id.
    pub(super) fn ids(&self) -> Vec<Uuid> {
        let ids: BTreeSet<Uuid> =
            self.batches.iter().flat_map(|(_, changes)| changes.iter().map(|change| change.job.0)).collect();
        ids.into_iter().collect()
    }

    /// The number of kinds, which is the number of statements.
    pub(super) fn kinds(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn has(&self, kind: ChangeKind) -> bool {
        self.batches.iter().any(|(present, _)| *present == kind)
    }

    /// Prepares what [`ChangeBatches::write`] sends.
    pub(super) async fn prepare(&self, executor: Executor<'_>) -> Result<(), PgError> {
        for (kind, changes) in &self.batches {
            executor.prepare(kind.sql(changes, self.counts)).await?;
        }
        Ok(())
    }

    /// Writes all changes, in one round trip. All answers are awaited, and the first error is the cause: the statements after
    /// it only report that the transaction has failed.
    pub(super) async fn write(&self, executor: Executor<'_>, now: Now) -> Result<Vec<Written>, PgError> {
        let batches = self.batches.iter();
        let answers =
            join_all(batches.map(|(kind, changes)| kind.write(executor, now, changes, self.counts))).await;
        let mut written = Vec::new();
        for rows in answers {
            written.extend(rows?.iter().map(Written::read));
        }
        Ok(written)
    }
}
