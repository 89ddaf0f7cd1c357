//! Changes with consequences that depend on whether they were written: slots of serial keys, children, branches, and the ends of
//! children, which their parents count or are notified of.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures_util::future::{join, join4};
use uuid::Uuid;
use windlass_model::{Change, Event, JobId, NewJob, Outcome, Rev, SubmitOutcome};

use super::{
    Postgres, branch, branch_update,
    commit::Indexed,
    conn::Conn,
    errors::PgError,
    journal::JournalWrites,
    names::Names,
    serial,
    step::{ChangeBatches, Written},
    submit::Batch,
    tx::{Executor, Tx},
    unique,
    wait::{self, COUNT_CHILD_ENDS, LOCK_JOBS, WAKE},
};
use crate::{Error, Now};

/// Whether a change parks its job.
pub(super) fn parks(change: &Change) -> bool {
    change.outcome.event() == Event::Park
}

/// Whether a change leaves its job live and not running.
fn ends_claim_of_live(change: &Change) -> bool {
    !change.outcome.ends() && change.outcome != Outcome::Next
}

/// Whether a change may free a slot of a serial key.
fn may_free_slot(change: &Change) -> bool {
    change.is_serial && change.outcome != Outcome::Next
}

/// Whether a change ends a child that its parent's wait counts, or whose end its parent is notified of.
fn ends_child(change: &Change) -> bool {
    change.parent.is_some() && change.outcome.ends()
}

/// Whether a change may cancel children in branches of its job: the job is cancelled or has expired, and may have opened branches
/// before.
fn may_cancel_children(change: &Change) -> bool {
    change.outcome.cancels_children() && change.rev > Rev(0)
}

/// Whether a change has consequences, other than the counts of a branch.
pub(super) fn has_consequences(change: &Change) -> bool {
    may_free_slot(change)
        || ends_child(change)
        || may_cancel_children(change)
        || branch_update::updates_branches(change)
        || change.submitted_jobs().next().is_some()
}

/// Whether a change and its consequences may add jobs to the ready set that rank before others. Jobs that are spawned in branches
/// rank after them.
pub(super) fn makes_ready(change: &Change) -> bool {
    may_free_slot(change)
        || ends_child(change)
        || change.submitted_jobs().any(|job| job.branch_position.is_none() || job.needs_slow_path())
}

/// Changes that are written together, by job, before the jobs that they submit are inserted.
pub(super) struct Group<'a> {
    pub(super) changes: Vec<Indexed<'a>>,
    pub(super) batches: ChangeBatches<'a>,
    pub(super) journal_writes: JournalWrites<'a>,
}

impl<'a> Group<'a> {
    pub(super) fn of(mut changes: Vec<Indexed<'a>>) -> Group<'a> {
        changes.sort_by_key(|(_, change)| change.job);
        let all: Vec<&Change> = changes.iter().map(|(_, change)| *change).collect();
        let (batches, journal_writes) =
            (ChangeBatches::of(all.iter().copied()), JournalWrites::of(all.iter().copied()));
        Group { changes, batches, journal_writes }
    }

    /// Splits a batch, which is in the order of the call. What happens to a child with a unique name depends on the state of the job
    /// that holds the name, and that may change in the same call. So all changes before that of the child's parent are written
    /// before the child is inserted, and all others after that.
    pub(super) fn split(batch: &[Indexed<'a>]) -> Vec<Group<'a>> {
        let takes_name =
            |change: &Change| change.submitted_jobs().any(|child| child.settings.unique.is_some());
        let mut groups: Vec<Vec<Indexed<'a>>> = vec![Vec::new()];
        for indexed in batch {
            match takes_name(indexed.1) {
                true => groups.extend([vec![*indexed], Vec::new()]),
                false => groups.last_mut().expect("never empty").push(*indexed),
            }
        }
        groups.into_iter().filter(|group| !group.is_empty()).map(Group::of).collect()
    }

    /// The jobs that it writes, and the parents of those that it ends.
    fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.changes.iter().map(|(_, change)| change.job).chain(self.parents())
    }

    /// The parents that count the ends of jobs of this group.
    fn parents(&self) -> impl Iterator<Item = JobId> {
        self.changes.iter().filter(|(_, change)| ends_child(change)).filter_map(|(_, change)| change.parent)
    }

    /// Prepares what [`Group::write`] sends.
    pub(super) async fn prepare(&self, executor: Executor<'_>) -> Result<(), PgError> {
        self.batches.prepare(executor).await?;
        self.journal_writes.prepare(executor).await?;
        for sql in [LOCK_JOBS, COUNT_CHILD_ENDS, WAKE] {
            executor.prepare(sql).await?;
        }
        if self.changes.iter().any(|(_, change)| branch_update::updates_branches(change)) {
            branch_update::prepare(executor).await?;
        }
        Ok(())
    }
}

/// Writes a batch of which some changes have consequences: group by group, in one transaction.
pub(super) async fn write_groups(
    store: &Postgres,
    conn: &mut Conn,
    now: Now,
    groups: &[Group<'_>],
    names: &Names,
) -> Result<Vec<Written>, PgError> {
    for group in groups {
        group.prepare(Executor::Conn(conn)).await?;
    }
    let tx = Tx::pipelined(conn);
    let (begun, written) = join(tx.begin(), write_in_order(store, &tx, now, groups, names)).await;
    let written = begun.and(written);
    branch::finish(store, tx, now, written).await
}

/// Writes groups one after the other.
async fn write_in_order(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Now,
    groups: &[Group<'_>],
    names: &Names,
) -> Result<Vec<Written>, PgError> {
    if let [group] = groups {
        return group.write(store, tx, now, names).await;
    }
    // Each group locks jobs by id. With several groups, all jobs are locked first.
    let ids: BTreeSet<JobId> = groups.iter().flat_map(Group::jobs).collect();
    wait::lock_jobs(tx, &ids.into_iter().map(|id| id.0).collect::<Vec<Uuid>>()).await?;
    let mut written = Vec::new();
    for group in groups {
        written.extend(Box::pin(group.write(store, tx, now, names)).await?);
    }
    Ok(written)
}

impl Group<'_> {
    /// Writes the changes and their consequences.
    pub(super) async fn write(
        &self,
        store: &Postgres,
        tx: &Tx<'_>,
        now: Now,
        names: &Names,
    ) -> Result<Vec<Written>, PgError> {
        let Group { changes, batches, journal_writes } = self;
        for (_, change) in changes.iter().filter(|(_, change)| ends_claim_of_live(change)) {
            if change.submitted_jobs().any(|child| child.settings.unique.is_some()) {
                Box::pin(unique::cancel_replaced_parent(store, tx, now, change, names)).await?;
            }
        }
        // Parents are mostly older than their children: all are locked by id before any is written. Children of branches
        // write no row of their parents.
        let mut ids: BTreeSet<JobId> = self.parents().collect();
        if !ids.is_empty() || batches.kinds() > 1 || !journal_writes.is_empty() {
            ids.extend(self.jobs());
        }
        let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
        let (locked, kept, written, sealed) = join4(
            wait::lock_jobs(tx, &ids),
            journal_writes.write(tx),
            batches.write(Executor::Tx(tx), now),
            branch_update::read_sealed(tx, changes.iter().map(|(_, change)| *change)),
        )
        .await;
        locked?;
        kept?;
        let written = written?;
        let by_job: HashMap<JobId, &Written> = written.iter().map(|one| (one.id, one)).collect();
        let mut applied: Vec<Indexed> =
            changes.iter().copied().filter(|(_, change)| by_job.contains_key(&change.job)).collect();
        applied.sort_by_key(|(index, _)| *index);
        let changes: Vec<&Change> = applied.into_iter().map(|(_, change)| change).collect();
        for change in &changes {
            if let Some(member) = &by_job[&change.job].member {
                tx.count_change(change, member);
            }
        }
        let unordered = have_distinct_ids(&changes);
        Box::pin(branch_update::apply(store, tx, now, &changes, &sealed?, unordered)).await?;
        write_first_attempts(store, tx, now, &changes).await?;
        let has_branches =
            |change: &&&Change| by_job[&change.job].held || branch_update::updates_branches(change);
        let ended = changes.iter().filter(|change| change.outcome.ends()).filter(has_branches);
        let ended: Vec<Uuid> = ended.map(|change| change.job.0).collect();
        branch::parents_ended(Executor::Tx(tx), now, &ended).await?;
        Box::pin(spawn_children(store, tx, now, &changes, names, unordered)).await?;
        apply_consequences(tx, now, &changes, &written).await?;
        Ok(written)
    }
}

/// Writes the outcomes of first attempts at items of blocks, which have just become jobs: nothing but their branch depends on
/// them.
async fn write_first_attempts(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Now,
    changes: &[&Change],
) -> Result<(), PgError> {
    let attempts: Vec<Change> = changes.iter().flat_map(|change| change.first_attempts()).collect();
    if attempts.is_empty() {
        return Ok(());
    }
    let batches = ChangeBatches::of(attempts.iter());
    batches.prepare(Executor::Tx(tx)).await?;
    let written = batches.write(Executor::Tx(tx), now).await?;
    if written.len() < attempts.len() {
        return Err(Error::Refused("a job existed before its first attempt".into()).into());
    }
    let by_job: HashMap<JobId, &Written> = written.iter().map(|one| (one.id, one)).collect();
    for attempt in &attempts {
        if let Some(member) = &by_job[&attempt.job].member {
            tx.count_change(attempt, member);
        }
    }
    store.shared.floors.lowered(i64::MIN);
    Ok(())
}

/// Whether all jobs that changes submit have different ids: then they may be inserted in any order.
fn have_distinct_ids(changes: &[&Change]) -> bool {
    let ids = || changes.iter().flat_map(|change| change.submitted_jobs()).map(|job| job.id);
    // They mostly come sorted by id.
    ids().is_sorted_by(|one, next| one < next) || {
        let mut seen = HashSet::new();
        ids().all(|id| seen.insert(id))
    }
}

/// Counts the ends of children, wakes jobs whose waits are met, and gives up serial slots, for changes that were written.
async fn apply_consequences(
    tx: &Tx<'_>,
    now: Now,
    changes: &[&Change],
    written: &[Written],
) -> Result<(), PgError> {
    let of = |wanted: fn(&Change) -> bool| -> Vec<Uuid> {
        let wanted = changes.iter().filter(|change| wanted(change));
        wanted.map(|change| change.job.0).collect()
    };
    let ended = of(ends_child);
    let before_parents = ended_before_parents(changes);
    let mut waiting: BTreeSet<Uuid> = of(parks).into_iter().collect();
    let parents = changes.iter().filter(|change| ends_child(change));
    waiting.extend(parents.filter_map(|change| Some(change.parent?.0)));
    let waiting: Vec<Uuid> = waiting.into_iter().collect();
    let (counted, woken) =
        join(wait::count_child_ends(tx, now, &ended, &before_parents), wait::wake(tx, now, &waiting)).await;
    counted?;
    let woken = woken?;
    let mut unsettled = of(may_free_slot);
    unsettled.extend(written.iter().filter(|one| one.frees_slot).map(|one| one.id.0));
    unsettled.extend(woken.unsettled);
    serial::settle(tx, &unsettled).await
}

/// The children that end in a batch before their parents do.
fn ended_before_parents(changes: &[&Change]) -> Vec<Uuid> {
    let ending = || changes.iter().enumerate().filter(|(_, change)| change.outcome.ends());
    if ending().count() < 2 {
        return Vec::new();
    }
    let indexes: HashMap<JobId, usize> = ending().map(|(index, change)| (change.job, index)).collect();
    let is_before = |(index, change): &(usize, &&Change)| {
        change.parent.and_then(|parent| indexes.get(&parent)).is_some_and(|ended| ended > index)
    };
    ending().filter(is_before).map(|(_, change)| change.job.0).collect()
}

/// Inserts the jobs that written changes submit, except those that [`branch_update::apply`] has inserted.
async fn spawn_children(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Now,
    changes: &[&Change],
    names: &Names,
    unordered: bool,
) -> Result<(), PgError> {
    let mut jobs: Vec<NewJob> = Vec::new();
    // Jobs that replace items of a block were counted as spawned before.
    let mut spawned: Vec<bool> = Vec::new();
    for change in changes {
        let Some(step) = &change.writes else { continue };
        let attempted = step.attempted_jobs();
        let is_inserted =
            |job: &NewJob| attempted.contains(&job.id) || (unordered && branch_update::is_plain_child(job));
        let is_missing = |job: &&NewJob| !is_inserted(job);
        let parent = change.branch_member.map(|member| member.parent);
        let promoted = step.promoted.iter().filter(is_missing);
        jobs.extend(promoted.map(|job| NewJob { parent, parent_rev: None, ..job.clone() }));
        spawned.resize(jobs.len(), false);
        jobs.extend(step.children.iter().filter(is_missing).map(|job| change.child(job)));
        spawned.resize(jobs.len(), true);
    }
    if jobs.is_empty() {
        return Ok(());
    }
    // A job submits children before the rest of its change takes effect, unless the change ends it.
    let running = changes.iter().filter(|change| !change.outcome.ends());
    let running: Vec<JobId> = running.map(|change| change.job).collect();
    let batch = Batch { store, now, jobs: &jobs, names, claim_on_submit: None, running: &running };
    let outcomes = batch.insert_in(tx).await?;
    if outcomes.iter().any(Option::is_none) {
        return Err(Error::Unavailable("jobs with these keys are being pruned".into()).into());
    }
    let is_inserted =
        |outcome: &Option<SubmitOutcome>| outcome.as_ref().is_some_and(SubmitOutcome::is_inserted);
    let inserted = jobs.iter().zip(&spawned).zip(&outcomes);
    let inserted = inserted.filter(|((_, spawned), outcome)| **spawned && is_inserted(outcome));
    branch_update::count_spawned(tx, inserted.map(|((job, _), _)| job)).await
}
