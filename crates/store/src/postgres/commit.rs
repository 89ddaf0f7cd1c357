//! Writing what attempts ask for.
//!
//! A batch of one sort is one statement, which needs no brackets. Otherwise all statements are sent together, brackets
//! included, unless what is sent later hangs on what was written: slots of serial keys, children, and the ends of
//! children, which count for their parents or are told to them.

use std::{
    collections::{BTreeSet, HashMap},
    pin::Pin,
};

use futures_util::future::{join, join3, join5};
use uuid::Uuid;
use windlass_model::{Change, Event, JobId, NewJob, Outcome, Rev, Verdict};

use super::{
    Postgres,
    columns::Base,
    conn::{Guard, giving_way},
    journal::Beside,
    serial,
    submit::{Batch, Names},
    wake::{self, COUNT, LOCK, WAKE},
    write::{Sort, Sorts, Wrote},
};
use crate::{Error, Now, pick::DEADLINE};

/// Commits a batch. If the database refuses it for its data, it is halved until the bad change stands alone; the
/// others commit.
pub(super) async fn commit(store: &Postgres, now: Now, changes: &[Change]) -> Result<Vec<Verdict>, Error> {
    let mut verdicts = vec![Verdict::Fenced; changes.len()];
    let mut names = Names::default();
    let mut runs: Vec<Vec<Placed>> = vec![Vec::with_capacity(changes.len())];
    for placed in changes.iter().enumerate() {
        let (place, change) = placed;
        if let Some(why) = refusal(store, change, &mut names).await? {
            verdicts[place] = Verdict::Refused(why);
            continue;
        }
        // A child's unique name may be that of a job which changes in this call: who comes first matters.
        if children(change).iter().any(|child| child.settings.unique.is_some()) {
            runs.extend([vec![placed], Vec::new()]);
        } else {
            runs.last_mut().expect("there is one").push(placed);
        }
    }
    for mut run in runs.into_iter().filter(|run| !run.is_empty()) {
        run.sort_by_key(|(_, change)| change.job);
        bisect(store, now, &run, &names, &mut verdicts).await?;
    }
    Ok(verdicts)
}

fn children(change: &Change) -> &[NewJob] {
    change.step.as_ref().map_or(&[], |step| &step.children)
}

/// Whether a change parks its job.
fn parks(change: &Change) -> bool {
    change.outcome.event() == Event::Park
}

/// Whether a change may free a slot of a serial key.
fn is_tied(change: &Change) -> bool {
    change.tied && change.outcome != Outcome::Next
}

/// Whether a change ends a child that its parent's wait counts, or that its parent is told of.
fn is_counted(change: &Change) -> bool {
    change.parent.is_some() && change.outcome.ends()
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
    if children(change).is_empty() {
        return Ok(None);
    }
    match Names::of(store, children(change)).await {
        Ok(known) => names.extend(known),
        Err(Error::Invalid(invalid)) => return Ok(Some(invalid.to_string())),
        Err(error) => return Err(error),
    }
    Ok(None)
}

/// A change and its place among those asked for.
type Placed<'a> = (usize, &'a Change);

fn bisect<'a>(
    store: &'a Postgres,
    now: Now,
    batch: &'a [Placed<'a>],
    names: &'a Names,
    verdicts: &'a mut [Verdict],
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
    Box::pin(async move {
        match (giving_way!(whole(store, now, batch, names)), batch) {
            (Ok(told), _) => {
                for (place, change) in batch {
                    if let Some(verdict) = told.get(&change.job) {
                        verdicts[*place] = verdict.clone();
                    }
                }
                Ok(())
            }
            (Err(Error::Refused(why)), [(place, _)]) => {
                verdicts[*place] = Verdict::Refused(why);
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
) -> Result<HashMap<JobId, Verdict>, Error> {
    let sorts = Sorts::of(batch.iter().map(|(_, change)| *change));
    let beside = Beside::of(batch.iter().map(|(_, change)| *change));
    let parks: Vec<Uuid> =
        batch.iter().filter(|(_, change)| parks(change)).map(|(_, change)| change.job.0).collect();
    let follows =
        |(_, change): &Placed| is_tied(change) || is_counted(change) || !children(change).is_empty();

    let conn = store.conn().await?;
    let wrote = if batch.iter().any(follows) {
        step_by_step(store, &conn, now, batch, &sorts, &beside, names).await?
    } else {
        let wrote = match sorts.count() > 1 || !parks.is_empty() || !beside.is_empty() {
            true => together(&conn, now, &sorts, &beside, &parks).await?,
            false => sorts.write(&conn, now).await?,
        };
        // Few steps find their job paused: its slot is handed over afterwards, and a sweep finds what a crash leaves.
        let leaving: Vec<Uuid> = wrote.iter().filter(|wrote| wrote.leaves).map(|wrote| wrote.id.0).collect();
        serial::settle_alone(&conn, &leaving).await?;
        wrote
    };
    if sorts.has(Sort::Again) || sorts.has(Sort::Waits) || batch.iter().any(follows) {
        store.shared.floors.lowered(i64::MIN);
    }
    let wrote: HashMap<JobId, Wrote> = wrote.into_iter().map(|wrote| (wrote.id, wrote)).collect();
    tidy(&conn, &wrote, batch).await?;
    let mut told: HashMap<JobId, Verdict> = HashMap::with_capacity(batch.len());
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

/// Sends everything at once: nobody waits for the answer of another.
async fn together(
    conn: &Guard<'_>,
    now: Now,
    sorts: &Sorts<'_>,
    beside: &Beside<'_>,
    parks: &[Uuid],
) -> Result<Vec<Wrote>, Error> {
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
        wake::lock(conn, &ids),
        join(beside.write(conn), sorts.write(conn, now)),
        wake::wake(conn, now, parks),
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

/// Writes a batch of which some changes have consequences that hang on whether they were written.
async fn step_by_step(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    batch: &[Placed<'_>],
    sorts: &Sorts<'_>,
    beside: &Beside<'_>,
    names: &Names,
) -> Result<Vec<Wrote>, Error> {
    prepare(conn, sorts, beside).await?;
    let work = async {
        let (begun, wrote) = join(conn.begin(), write(store, conn, now, batch, sorts, beside, names)).await;
        begun?;
        let wrote = wrote?;
        conn.commit().await?;
        Ok(wrote)
    };
    let wrote = work.await;
    if wrote.is_err() {
        conn.rollback().await;
    }
    wrote
}

/// Prepares what [`write`] sends.
async fn prepare(conn: &Guard<'_>, sorts: &Sorts<'_>, beside: &Beside<'_>) -> Result<(), Error> {
    sorts.prepare(conn).await?;
    beside.prepare(conn).await?;
    for sql in [LOCK, COUNT, WAKE] {
        conn.prepare(sql).await?;
    }
    Ok(())
}

/// Writes a batch within a transaction, and what follows from it.
async fn write(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    batch: &[Placed<'_>],
    sorts: &Sorts<'_>,
    beside: &Beside<'_>,
    names: &Names,
) -> Result<Vec<Wrote>, Error> {
    // Parents are mostly older than their children: all are locked by id before any is written.
    let counted = batch.iter().filter(|(_, change)| is_counted(change));
    let mut ids: BTreeSet<JobId> = counted.filter_map(|(_, change)| change.parent).collect();
    if !ids.is_empty() || sorts.count() > 1 || !beside.is_empty() {
        ids.extend(batch.iter().map(|(_, change)| change.job));
    }
    let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
    let (locked, kept, wrote) =
        join3(wake::lock(conn, &ids), beside.write(conn), sorts.write(conn, now)).await;
    locked?;
    kept?;
    let wrote = wrote?;
    follow(store, conn, now, batch, &wrote, names).await?;
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
) -> Result<Option<Verdict>, Error> {
    let batch = [(0, change)];
    let (sorts, beside) = (Sorts::of([change].into_iter()), Beside::of([change].into_iter()));
    prepare(conn, &sorts, &beside).await?;
    let wrote = write(store, conn, now, &batch, &sorts, &beside, names).await?;
    let Some(one) = wrote.first() else { return Ok(None) };
    tidy(conn, &HashMap::from([(one.id, *one)]), &batch).await?;
    Ok(Some(verdict(change, one)))
}

/// What is to be said of a change that was written.
fn verdict(change: &Change, wrote: &Wrote) -> Verdict {
    let halted = wrote.held && change.outcome == Outcome::Next;
    if halted { Verdict::Halted } else { Verdict::Committed }
}

/// What follows from changes that were written, in their transaction: their children are put in, ends of children count,
/// those that have what they wait for are woken, and slots are handed over.
async fn follow(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    batch: &[Placed<'_>],
    wrote: &[Wrote],
    names: &Names,
) -> Result<(), Error> {
    let written: HashMap<JobId, &Wrote> = wrote.iter().map(|wrote| (wrote.id, wrote)).collect();
    let mut changes: Vec<Placed> =
        batch.iter().copied().filter(|(_, change)| written.contains_key(&change.job)).collect();
    changes.sort_by_key(|(place, _)| *place);
    put_children(store, conn, now, &changes, names).await?;
    let of = |wanted: fn(&Change) -> bool| -> Vec<Uuid> {
        let wanted = changes.iter().filter(|(_, change)| wanted(change));
        wanted.map(|(_, change)| change.job.0).collect()
    };
    let ends = of(is_counted);
    let mut waiting: BTreeSet<Uuid> = of(parks).into_iter().collect();
    let parents = changes.iter().filter(|(_, change)| is_counted(change));
    waiting.extend(parents.filter_map(|(_, change)| Some(change.parent?.0)));
    let waiting: Vec<Uuid> = waiting.into_iter().collect();
    let (counted, woken) = join(wake::count_ends(conn, now, &ends), wake::wake(conn, now, &waiting)).await;
    counted?;
    let woken = woken?;
    let mut settling = of(is_tied);
    settling.extend(wrote.iter().filter(|wrote| wrote.leaves).map(|wrote| wrote.id.0));
    settling.extend(woken.unsettled);
    serial::settle(conn, &settling).await.map(drop)
}

/// Puts in the children of changes that were written.
async fn put_children(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    changes: &[Placed<'_>],
    names: &Names,
) -> Result<(), Error> {
    let mut jobs: Vec<NewJob> = Vec::new();
    for (_, change) in changes {
        let told = change.step.as_ref().is_some_and(|step| step.told);
        let round = if told { Rev::TOLD } else { Rev(change.rev.0 + 1) };
        let (parent, round) = (Some(change.job), Some(round));
        jobs.extend(children(change).iter().map(|child| NewJob { parent, round, ..child.clone() }));
    }
    if jobs.is_empty() {
        return Ok(());
    }
    let batch = Batch { store, conn, now, jobs: &jobs, names, born: None };
    if batch.put_within().await?.iter().any(Option::is_none) {
        return Err(Error::Unavailable("jobs with these keys are being pruned".into()));
    }
    Ok(())
}

/// Forgets what is kept beside jobs that have ended. It need not be done with the commit: what a crash leaves of it says
/// nothing of a job that has ended.
async fn tidy(conn: &Guard<'_>, wrote: &HashMap<JobId, Wrote>, batch: &[Placed<'_>]) -> Result<(), Error> {
    let ends = batch.iter().map(|(_, change)| *change).filter(|change| change.outcome.ends());
    let ends: Vec<(&Change, &Wrote)> =
        ends.filter_map(|change| Some((change, wrote.get(&change.job)?))).collect();
    let held: Vec<Uuid> =
        ends.iter().filter(|(_, wrote)| wrote.held).map(|(change, _)| change.job.0).collect();
    if !held.is_empty() {
        conn.execute(include_str!("sql/act_clear.sql"), &[&held]).await?;
    }
    let deadline = |(change, _): &(&Change, &Wrote)| Some((change.deadline_at?.micros(), change.job.0));
    let (at, ids): (Vec<i64>, Vec<Uuid>) = ends.iter().filter_map(deadline).unzip();
    if !at.is_empty() {
        conn.execute(include_str!("sql/commit_untimer.sql"), &[&at, &ids, &DEADLINE]).await?;
    }
    Ok(())
}

/// What is to be said of changes that were not written now, but before their answer was lost.
async fn seen(
    conn: &Guard<'_>,
    batch: &[Placed<'_>],
    told: &mut HashMap<JobId, Verdict>,
) -> Result<(), Error> {
    let missing: HashMap<JobId, &Change> = batch
        .iter()
        .map(|(_, change)| (change.job, *change))
        .filter(|(job, _)| !told.contains_key(job))
        .collect();
    let base = Base::new(&missing.values().copied().collect::<Vec<_>>());
    let rows = conn.query(include_str!("sql/commit_seen.sql"), &[&base.id, &base.epoch, &base.rev]).await?;
    for row in rows {
        let (id, claimed) = (JobId(row.get(0)), row.get::<_, bool>(1));
        let halted = missing[&id].outcome == Outcome::Next && !claimed;
        told.insert(id, if halted { Verdict::Halted } else { Verdict::Committed });
    }
    Ok(())
}
