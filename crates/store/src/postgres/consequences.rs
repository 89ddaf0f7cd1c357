//! Changes with consequences that hang on whether they were written: slots of serial keys, children, branches, and the ends
//! of children, which count for their parents or are told to them.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures_util::future::{join, join4};
use uuid::Uuid;
use windlass_model::{Change, Event, JobId, NewJob, Outcome, Reason, Rev, SubmitOutcome};

use super::{
    Postgres, branch, branch_update,
    commit::Placed,
    journal::JournalWrites,
    names::Names,
    pool::Guard,
    serial,
    step::{ChangeBatches, Written},
    submit::Batch,
    unique,
    wait::{self, COUNT, LOCK, WAKE},
};
use crate::{Error, Now};

/// The jobs that a change submits.
pub(super) fn children_of(change: &Change) -> impl Iterator<Item = &NewJob> {
    change.step.iter().flat_map(|step| step.children.iter().chain(&step.promoted))
}

/// Whether a change parks its job.
pub(super) fn parks(change: &Change) -> bool {
    change.outcome.event() == Event::Park
}

/// Whether a change leaves its job live and not running.
fn gives_up_its_claim(change: &Change) -> bool {
    !change.outcome.ends() && change.outcome != Outcome::Next
}

/// Whether a change may free a slot of a serial key.
fn is_tied(change: &Change) -> bool {
    change.is_serial && change.outcome != Outcome::Next
}

/// Whether a change ends a child that its parent's wait counts, or that its parent is told of.
fn is_counted(change: &Change) -> bool {
    change.parent.is_some() && change.outcome.ends()
}

/// Whether a change may cut branches of its job: it is one that is made to end, and may have opened some before.
fn may_cut(change: &Change) -> bool {
    let made_to =
        matches!(change.outcome, Outcome::Cancelled(_) | Outcome::Failed { reason: Reason::Expired, .. });
    made_to && change.rev > Rev(0)
}

/// Whether something hangs on a change, beside the count of a branch.
pub(super) fn follows(change: &Change) -> bool {
    is_tied(change)
        || is_counted(change)
        || may_cut(change)
        || branch_update::grows(change)
        || children_of(change).next().is_some()
}

/// Whether jobs may have come before others in the ready set, once a change is written with all that follows from it. What is
/// spawned in branches comes behind them.
pub(super) fn readies(change: &Change) -> bool {
    is_tied(change)
        || is_counted(change)
        || children_of(change).any(|job| job.branch_position.is_none() || job.needs_slow_path())
}

/// Changes that are written together, by job, before the jobs they submit are put in.
pub(super) struct Group<'a> {
    pub(super) batch: Vec<Placed<'a>>,
    pub(super) batches: ChangeBatches<'a>,
    pub(super) journal_writes: JournalWrites<'a>,
}

impl<'a> Group<'a> {
    pub(super) fn of(mut batch: Vec<Placed<'a>>) -> Group<'a> {
        batch.sort_by_key(|(_, change)| change.job);
        let changes: Vec<&Change> = batch.iter().map(|(_, change)| *change).collect();
        let (sorts, beside) =
            (ChangeBatches::of(changes.iter().copied()), JournalWrites::of(changes.iter().copied()));
        Group { batch, batches: sorts, journal_writes: beside }
    }

    /// Parts a batch, which is in the order given. What becomes of a child with a unique name hangs on where the job is that
    /// has it, which may be one that changes in the same call: so all changes before its parent's are written before it is put
    /// in, and all after it later.
    pub(super) fn parts(batch: &[Placed<'a>]) -> Vec<Group<'a>> {
        let named = |change: &Change| children_of(change).any(|child| child.settings.unique.is_some());
        let mut parts: Vec<Vec<Placed<'a>>> = vec![Vec::new()];
        for placed in batch {
            match named(placed.1) {
                true => parts.extend([vec![*placed], Vec::new()]),
                false => parts.last_mut().expect("there is one").push(*placed),
            }
        }
        parts.into_iter().filter(|part| !part.is_empty()).map(Group::of).collect()
    }

    /// The jobs that it writes to, and the parents that count those which end.
    fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.batch.iter().map(|(_, change)| change.job).chain(self.counting())
    }

    /// The parents that count the ends of jobs of this part.
    fn counting(&self) -> impl Iterator<Item = JobId> {
        self.batch.iter().filter(|(_, change)| is_counted(change)).filter_map(|(_, change)| change.parent)
    }

    /// Prepares what [`Part::write`] sends.
    pub(super) async fn prepare(&self, conn: &Guard<'_>) -> Result<(), Error> {
        self.batches.prepare(conn).await?;
        self.journal_writes.prepare(conn).await?;
        for sql in [LOCK, COUNT, WAKE] {
            conn.prepare(sql).await?;
        }
        if self.batch.iter().any(|(_, change)| branch_update::grows(change)) {
            branch_update::prepare(conn).await?;
        }
        Ok(())
    }
}

/// Writes a batch of which some changes have consequences that hang on whether they were written: part by part, in one
/// transaction.
pub(super) async fn step_by_step(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    parts: &[Group<'_>],
    names: &Names,
) -> Result<Vec<Written>, Error> {
    for part in parts {
        part.prepare(conn).await?;
    }
    let work = async {
        let (begun, wrote) = join(conn.begin(), in_turn(store, conn, now, parts, names)).await;
        begun?;
        let wrote = wrote?;
        branch::commit(store, conn, now).await?;
        Ok(wrote)
    };
    let wrote = work.await;
    if wrote.is_err() {
        conn.rollback().await;
    }
    wrote
}

/// Writes parts one after the other.
async fn in_turn(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    parts: &[Group<'_>],
    names: &Names,
) -> Result<Vec<Written>, Error> {
    if let [part] = parts {
        return part.write(store, conn, now, names).await;
    }
    // Each part locks by id, but one comes after the other.
    let ids: BTreeSet<JobId> = parts.iter().flat_map(Group::jobs).collect();
    wait::lock(conn, &ids.into_iter().map(|id| id.0).collect::<Vec<Uuid>>()).await?;
    let mut wrote = Vec::new();
    for part in parts {
        wrote.extend(Box::pin(part.write(store, conn, now, names)).await?);
    }
    Ok(wrote)
}

impl Group<'_> {
    /// Writes the changes within a transaction, and what follows from them.
    pub(super) async fn write(
        &self,
        store: &Postgres,
        conn: &Guard<'_>,
        now: Now,
        names: &Names,
    ) -> Result<Vec<Written>, Error> {
        let Group { batch, batches: sorts, journal_writes: beside } = self;
        for (_, change) in batch.iter().filter(|(_, change)| gives_up_its_claim(change)) {
            if children_of(change).any(|child| child.settings.unique.is_some()) {
                Box::pin(unique::signal_parent(store, conn, now, change, names)).await?;
            }
        }
        // Parents are mostly older than their children: all are locked by id before any is written. Children of branches touch
        // no row of their parents.
        let mut ids: BTreeSet<JobId> = self.counting().collect();
        if !ids.is_empty() || sorts.count() > 1 || !beside.is_empty() {
            ids.extend(self.jobs());
        }
        let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
        let changes = batch.iter().map(|(_, change)| *change);
        let (locked, kept, wrote, there) = join4(
            wait::lock(conn, &ids),
            beside.write(conn),
            sorts.write(conn, now),
            branch_update::read(conn, changes),
        )
        .await;
        locked?;
        kept?;
        let wrote = wrote?;
        let written: HashMap<JobId, &Written> = wrote.iter().map(|wrote| (wrote.id, wrote)).collect();
        let mut placed: Vec<Placed> =
            batch.iter().copied().filter(|(_, change)| written.contains_key(&change.job)).collect();
        placed.sort_by_key(|(place, _)| *place);
        let changes: Vec<&Change> = placed.into_iter().map(|(_, change)| change).collect();
        for change in &changes {
            if let Some(child) = &written[&change.job].child {
                conn.count_change(change, child);
            }
        }
        let straight = are_distinct(&changes);
        Box::pin(branch_update::put(store, conn, now, &changes, &there?, straight)).await?;
        write_first_attempts(store, conn, now, &changes).await?;
        let has_branches = |change: &&&Change| written[&change.job].held || branch_update::grows(change);
        let ended = changes.iter().filter(|change| change.outcome.ends()).filter(has_branches);
        let ended: Vec<Uuid> = ended.map(|change| change.job.0).collect();
        branch::orphan(conn, now, &ended).await?;
        Box::pin(put_children(store, conn, now, &changes, names, straight)).await?;
        apply_consequences(conn, now, &changes, &wrote).await?;
        Ok(wrote)
    }
}

/// Writes how first attempts at items of blocks ended, which have just become jobs: nothing hangs on them but their branch.
async fn write_first_attempts(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    changes: &[&Change],
) -> Result<(), Error> {
    let attempts: Vec<Change> = changes.iter().flat_map(|change| change.first_attempts()).collect();
    if attempts.is_empty() {
        return Ok(());
    }
    let sorts = ChangeBatches::of(attempts.iter());
    sorts.prepare(conn).await?;
    let wrote = sorts.write(conn, now).await?;
    if wrote.len() < attempts.len() {
        return Err(Error::Refused("a job was there before its first attempt".into()));
    }
    let written: HashMap<JobId, &Written> = wrote.iter().map(|wrote| (wrote.id, wrote)).collect();
    for attempt in &attempts {
        if let Some(child) = &written[&attempt.job].child {
            conn.count_change(attempt, child);
        }
    }
    store.shared.floors.lowered(i64::MIN);
    Ok(())
}

/// Whether no two jobs that changes submit have the same id: then it does not matter in which order they are put in.
fn are_distinct(changes: &[&Change]) -> bool {
    let ids = || changes.iter().flat_map(|change| children_of(change)).map(|job| job.id);
    // Mostly they come by id.
    ids().is_sorted_by(|one, next| one < next) || {
        let mut seen = HashSet::new();
        ids().all(|id| seen.insert(id))
    }
}

/// What follows from changes that were written, in their transaction: ends of children count, those that have what they wait
/// for are woken, and slots are handed over.
async fn apply_consequences(
    conn: &Guard<'_>,
    now: Now,
    changes: &[&Change],
    wrote: &[Written],
) -> Result<(), Error> {
    let of = |wanted: fn(&Change) -> bool| -> Vec<Uuid> {
        let wanted = changes.iter().filter(|change| wanted(change));
        wanted.map(|change| change.job.0).collect()
    };
    let ends = of(is_counted);
    let first = before_their_parents(changes);
    let mut waiting: BTreeSet<Uuid> = of(parks).into_iter().collect();
    let parents = changes.iter().filter(|change| is_counted(change));
    waiting.extend(parents.filter_map(|change| Some(change.parent?.0)));
    let waiting: Vec<Uuid> = waiting.into_iter().collect();
    let (counted, woken) =
        join(wait::count_ends(conn, now, &ends, &first), wait::wake(conn, now, &waiting)).await;
    counted?;
    let woken = woken?;
    let mut settling = of(is_tied);
    settling.extend(wrote.iter().filter(|wrote| wrote.leaves).map(|wrote| wrote.id.0));
    settling.extend(woken.unsettled);
    serial::settle(conn, &settling).await
}

/// The children that end in a batch before their parents do.
fn before_their_parents(changes: &[&Change]) -> Vec<Uuid> {
    let ending = || changes.iter().enumerate().filter(|(_, change)| change.outcome.ends());
    if ending().count() < 2 {
        return Vec::new();
    }
    let places: HashMap<JobId, usize> = ending().map(|(place, change)| (change.job, place)).collect();
    let is_first = |(place, change): &(usize, &&Change)| {
        change.parent.and_then(|parent| places.get(&parent)).is_some_and(|ended| ended > place)
    };
    ending().filter(is_first).map(|(_, change)| change.job.0).collect()
}

/// Puts in the jobs that changes submit which were written, but for those that went straight in, by [`grow::put`].
async fn put_children(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    changes: &[&Change],
    names: &Names,
    straight: bool,
) -> Result<(), Error> {
    let mut jobs: Vec<NewJob> = Vec::new();
    // Those that take the place of items of a block were spawned before.
    let mut spawned: Vec<bool> = Vec::new();
    for change in changes {
        let Some(step) = &change.step else { continue };
        let attempted = step.attempted_jobs();
        let is_in = |job: &NewJob| attempted.contains(&job.id) || (straight && branch_update::is_plain(job));
        let mine = |job: &&NewJob| !is_in(job);
        let parent = change.branch_member.map(|counted| counted.parent);
        let promoted = step.promoted.iter().filter(mine);
        jobs.extend(promoted.map(|job| NewJob { parent, parent_rev: None, ..job.clone() }));
        spawned.resize(jobs.len(), false);
        let round = if step.signal_child_ends { Rev::SIGNALLED } else { Rev(change.rev.0 + 1) };
        let children = step.children.iter().filter(mine);
        jobs.extend(children.map(|child| NewJob {
            parent: Some(change.job),
            parent_rev: Some(round).filter(|_| child.branch_position.is_none()),
            ..child.clone()
        }));
        spawned.resize(jobs.len(), true);
    }
    if jobs.is_empty() {
        return Ok(());
    }
    // A job submits before it does what its change says, unless that ends it.
    let runs = changes.iter().filter(|change| !change.outcome.ends());
    let runs: Vec<JobId> = runs.map(|change| change.job).collect();
    let batch = Batch { store, conn, now, jobs: &jobs, names, claim_on_submit: None, runs: &runs };
    let answers = batch.put_within().await?;
    if answers.iter().any(Option::is_none) {
        return Err(Error::Unavailable("jobs with these keys are being pruned".into()));
    }
    let is_in = |answer: &Option<SubmitOutcome>| {
        matches!(answer, Some(SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. }))
    };
    let put = jobs.iter().zip(&spawned).zip(&answers);
    let put = put.filter(|((_, spawned), answer)| **spawned && is_in(answer));
    branch_update::spawned(conn, put.map(|((job, _), _)| job)).await
}
