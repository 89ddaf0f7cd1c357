//! Writing what attempts ask for.
//!
//! A batch of one sort is one statement, which needs no brackets. Otherwise all statements are sent together, brackets
//! included, unless what is sent later hangs on what was written: see [`super::follow`].

use std::{collections::HashMap, pin::Pin};

use futures_util::future::{join, join5};
use uuid::Uuid;
use windlass_model::{Change, CommitOutcome, JobId, Outcome};

use super::{
    Postgres, branch,
    change_params::{Base, Param},
    conn::retry_deadlock,
    consequences::{Group, follows, parks, readies, step_by_step},
    journal::JournalWrites,
    names::Names,
    pool::Guard,
    serial, sql,
    step::{ChangeBatches, ChangeKind, Written},
    wait::{self, LOCK, WAKE},
};
use crate::{Error, Now, columns::DEADLINE};

/// Commits a batch. If the database refuses it for its data, it is halved until the bad change stands alone; the
/// others commit.
pub(super) async fn commit(
    store: &Postgres,
    now: Now,
    changes: &[Change],
) -> Result<Vec<CommitOutcome>, Error> {
    let mut verdicts = vec![CommitOutcome::Fenced; changes.len()];
    let mut names = Names::default();
    let mut batch: Vec<Placed> = Vec::with_capacity(changes.len());
    for (place, change) in changes.iter().enumerate() {
        match refusal(store, change, &mut names).await? {
            Some(why) => verdicts[place] = CommitOutcome::Refused(why),
            None => batch.push((place, change)),
        }
    }
    if !batch.is_empty() {
        bisect(store, now, &batch, &names, &mut verdicts).await?;
    }
    Ok(verdicts)
}

/// Why a change is never taken, if it is not; otherwise the names of its children are known.
pub(super) async fn refusal(
    store: &Postgres,
    change: &Change,
    names: &mut Names,
) -> Result<Option<String>, Error> {
    if let Err(invalid) = store.shared.options.limits.check_change(change) {
        return Ok(Some(invalid.to_string()));
    }
    let Some(step) = &change.step else { return Ok(None) };
    for jobs in [&step.children, &step.promoted].into_iter().filter(|jobs| !jobs.is_empty()) {
        match Names::of(store, jobs).await {
            Ok(known) => names.extend(known),
            Err(Error::Invalid(invalid)) => return Ok(Some(invalid.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A change and its place among those asked for.
pub(super) type Placed<'a> = (usize, &'a Change);

fn bisect<'a>(
    store: &'a Postgres,
    now: Now,
    batch: &'a [Placed<'a>],
    names: &'a Names,
    verdicts: &'a mut [CommitOutcome],
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
    Box::pin(async move {
        match (retry_deadlock!(whole(store, now, batch, names)), batch) {
            (Ok(told), _) => {
                for (place, change) in batch {
                    if let Some(verdict) = told.get(&change.job) {
                        verdicts[*place] = verdict.clone();
                    }
                }
                Ok(())
            }
            (Err(Error::Refused(why)), [(place, _)]) => {
                verdicts[*place] = CommitOutcome::Refused(why);
                Ok(())
            }
            (Err(Error::Refused(_)), _) => {
                let (left, right) = batch.split_at(batch.len() / 2);
                bisect(store, now, left, names, &mut *verdicts).await?;
                bisect(store, now, right, names, &mut *verdicts).await
            }
            (Err(error), _) => Err(error),
        }
    })
}

/// Commits all of a batch or nothing of it; answers what is to be said of the changes that are now, or were before,
/// committed.
async fn whole(
    store: &Postgres,
    now: Now,
    batch: &[Placed<'_>],
    names: &Names,
) -> Result<HashMap<JobId, CommitOutcome>, Error> {
    let changes = || batch.iter().map(|(_, change)| *change);
    let mut parts = Group::parts(batch);
    let Group { batches: sorts, journal_writes: beside, .. } = parts.first_mut().expect("there are changes");
    let parks: Vec<Uuid> = changes().filter(|change| parks(change)).map(|change| change.job.0).collect();
    let counts = changes().any(branch::counts);
    // Ends of children of branches are counted by the statement that writes them, if it is the only one.
    let follows = changes().any(follows) || (counts && !(beside.is_empty() && sorts.tally()));

    let conn = store.conn().await?;
    let wrote = if follows {
        step_by_step(store, &conn, now, &parts, names).await?
    } else if counts {
        counted(store, &conn, now, sorts, &branch::touched(changes())).await?
    } else {
        let wrote = match sorts.count() > 1 || !parks.is_empty() || !beside.is_empty() {
            true => together(&conn, now, sorts, beside, &parks).await?,
            false => sorts.write(&conn, now).await?,
        };
        // Few steps find their job paused: its slot is handed over afterwards, and a sweep finds what a crash leaves.
        let leaving: Vec<Uuid> = wrote.iter().filter(|wrote| wrote.leaves).map(|wrote| wrote.id.0).collect();
        serial::settle_alone(&conn, &leaving).await?;
        wrote
    };
    let again = |part: &Group<'_>| part.batches.has(ChangeKind::Again) || part.batches.has(ChangeKind::Waits);
    if parts.iter().any(again) || changes().any(readies) {
        store.shared.floors.lowered(i64::MIN);
    }
    let wrote: HashMap<JobId, Written> = wrote.into_iter().map(|wrote| (wrote.id, wrote)).collect();
    tidy(&conn, now, &wrote, batch, !follows).await?;
    let mut told: HashMap<JobId, CommitOutcome> = HashMap::with_capacity(batch.len());
    for (_, change) in batch {
        if let Some(wrote) = wrote.get(&change.job) {
            told.insert(change.job, verdict(change, wrote));
        }
    }
    if told.len() < batch.len() {
        seen(&conn, batch, &mut told).await?;
    }
    Ok(told)
}

/// Writes ends of children of branches by one statement, which counts them too, and looks at the branches once it is
/// committed: one round trip.
async fn counted(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    sorts: &ChangeBatches<'_>,
    branches: &[branch::Key],
) -> Result<Vec<Written>, Error> {
    // One that is still being prepared would be overtaken by the next.
    sorts.prepare(conn).await?;
    conn.prepare(branch::WATCHED_SUMS).await?;
    let (wrote, met) = join(sorts.write(conn, now), branch::read_watched(conn, branches)).await;
    let wrote = wrote?;
    branch::notified(store, conn, now, met).await;
    Ok(wrote)
}

/// Sends everything at once: nobody waits for the answer of another.
async fn together(
    conn: &Guard<'_>,
    now: Now,
    sorts: &ChangeBatches<'_>,
    beside: &JournalWrites<'_>,
    parks: &[Uuid],
) -> Result<Vec<Written>, Error> {
    // One that is still being prepared would be overtaken by the next.
    sorts.prepare(conn).await?;
    beside.prepare(conn).await?;
    for sql in [LOCK, WAKE] {
        conn.prepare(sql).await?;
    }
    // Each statement locks by id, but one comes after the other: with several, all jobs are locked before.
    let ids = if sorts.count() > 1 || !beside.is_empty() { sorts.ids() } else { Vec::new() };
    // Polled, and so sent, in this order. After one that fails, the others do nothing, and the last one rolls back.
    let (begun, locked, wrote, woken, committed) = join5(
        conn.begin(),
        wait::lock(conn, &ids),
        join(beside.write(conn), sorts.write(conn, now)),
        wait::wake(conn, now, parks),
        conn.commit(),
    )
    .await;
    begun?;
    locked?;
    wrote.0?;
    let wrote = wrote.1?;
    woken?;
    committed?;
    Ok(wrote)
}

/// Writes one change within the transaction that is open, with all that follows from it. `None` if its claim is outdated,
/// or if it was written before.
pub(super) async fn within(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    change: &Change,
    names: &Names,
) -> Result<Option<CommitOutcome>, Error> {
    let part = Group::of(vec![(0, change)]);
    part.prepare(conn).await?;
    let wrote = part.write(store, conn, now, names).await?;
    let Some(one) = wrote.first() else { return Ok(None) };
    tidy(conn, now, &HashMap::from([(one.id, *one)]), &part.batch, false).await?;
    Ok(Some(verdict(change, one)))
}

/// What is to be said of a change that was written.
fn verdict(change: &Change, wrote: &Written) -> CommitOutcome {
    let halted = wrote.held && change.outcome == Outcome::Next;
    if halted { CommitOutcome::Halted } else { CommitOutcome::Committed }
}

/// Forgets what is kept beside jobs that have ended. It need not be done with the commit: what a crash leaves of it says
/// nothing of a job that has ended. With `orphan` that includes who waits for its branches.
async fn tidy(
    conn: &Guard<'_>,
    now: Now,
    wrote: &HashMap<JobId, Written>,
    batch: &[Placed<'_>],
    orphan: bool,
) -> Result<(), Error> {
    let ends = batch.iter().map(|(_, change)| *change).filter(|change| change.outcome.ends());
    let ends: Vec<(&Change, &Written)> =
        ends.filter_map(|change| Some((change, wrote.get(&change.job)?))).collect();
    let held: Vec<Uuid> =
        ends.iter().filter(|(_, wrote)| wrote.held).map(|(change, _)| change.job.0).collect();
    if !held.is_empty() {
        conn.execute(sql::control::CLEAR_HOLDS, &[&held]).await?;
        if orphan {
            branch::orphan(conn, now, &held).await?;
        }
    }
    let deadline = |(change, _): &(&Change, &Written)| Some((change.deadline_at?.micros(), change.job.0));
    let (at, ids): (Vec<i64>, Vec<Uuid>) = ends.iter().filter_map(deadline).unzip();
    if !at.is_empty() {
        conn.execute(sql::timers::REMOVE, &[&at, &ids, &DEADLINE]).await?;
    }
    Ok(())
}

/// What is to be said of changes that were not written now, but before their answer was lost.
async fn seen(
    conn: &Guard<'_>,
    batch: &[Placed<'_>],
    told: &mut HashMap<JobId, CommitOutcome>,
) -> Result<(), Error> {
    let missing: HashMap<JobId, &Change> = batch
        .iter()
        .map(|(_, change)| (change.job, *change))
        .filter(|(job, _)| !told.contains_key(job))
        .collect();
    let base = Base::new(&missing.values().copied().collect::<Vec<_>>());
    let params: [Param<'_>; 5] = [&base.id, &base.epoch, &base.rev, &base.worker, &base.claim];
    let rows = conn.query(sql::commit::EXPLAIN_UNAPPLIED, &params).await?;
    for row in rows {
        let (id, claimed) = (JobId(row.get(0)), row.get::<_, bool>(1));
        match (missing[&id].outcome == Outcome::Next, claimed) {
            (true, false) => told.insert(id, CommitOutcome::Halted),
            // What its claim wrote was another change: this one would have ended the claim.
            (false, true) => None,
            _ => told.insert(id, CommitOutcome::Committed),
        };
    }
    Ok(())
}
