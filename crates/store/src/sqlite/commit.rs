//! Writing what attempts ask for.

use rusqlite::params;
use windlass_model::{Change, Failure, NewJob, Outcome, Payload, Time, Verdict, Wait};

use super::{
    Sqlite, branch,
    names::Name,
    rate::{self, Buckets},
    serial::Placement,
    sql,
    step::{self, Stage},
    submit::{NEAR, OUTPUT},
    tx::Tx,
    wait::Parked,
};
use crate::{
    Error, Now,
    columns::{self, CANCELLED, DEADLINE, FAILED, WAKE},
};

/// What a change brings with it that was looked at before the transaction: the rate limits of its children, or why it is
/// refused.
type Checked = Result<Buckets, String>;

/// Commits a batch in one transaction. Within it each change stands in a savepoint only if the batch failed
/// once without: a refusal is rare, and brackets around every change would cost more than the change.
pub(super) async fn commit(store: &Sqlite, now: Now, changes: &[Change]) -> Result<Vec<Verdict>, Error> {
    let checked = changes.iter().map(|change| check(store, change, || rate::check(store, jobs(change))));
    let checked = checked.collect::<Result<Vec<_>, _>>()?;
    let batch: Vec<_> = changes.iter().zip(&checked).collect();
    store.intern(lanes(&batch).into_iter()).await?;
    let size = changes.iter().map(|change| 1 + jobs(change).count()).sum();
    let whole = store
        .write(size, |tx| {
            batch.iter().map(|(change, checked)| apply(tx, tx.now(now), change, checked)).collect()
        })
        .await;
    match whole {
        Err(Error::Refused(_)) => store.write(size, |tx| one_by_one(tx, now, &batch)).await,
        answer => answer,
    }
}

/// The lanes of the children of a batch.
fn lanes<'a>(batch: &[(&'a Change, &'a Checked)]) -> Vec<Name<'a>> {
    let mut lanes = Vec::new();
    for (change, checked) in batch {
        if let Ok(buckets) = checked {
            lanes.extend(
                jobs(change).map(|job| (job.queue.as_str(), &job.kind, rate::bucket_of(job, buckets))),
            );
        }
    }
    lanes
}

/// The jobs that a change puts in.
fn jobs(change: &Change) -> impl Iterator<Item = &NewJob> + Clone {
    change.step.iter().flat_map(|step| step.children.iter().chain(&step.promoted))
}

/// Commits one change within a transaction that is open, unless it was committed before. `learned` says whether lanes were
/// made that are to be read after the commit.
pub(super) fn commit_in(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    learned: &mut bool,
) -> Result<Verdict, Error> {
    let checked = check(tx.store, change, || rate::check_in(tx, jobs(change)))?;
    let known = &tx.store.shared.lanes;
    for name in lanes(&[(change, &checked)]) {
        if known.get_in(name.0, name.1, name.2).is_none() {
            tx.intern(name)?;
            *learned = true;
        }
    }
    if checked.is_ok() && !find(tx, change)?.is_some_and(|found| found.open) {
        return Ok(Verdict::Fenced);
    }
    apply(tx, now, change, &checked)
}

/// Checks what a change wants written; `rates` looks at the rate limits of the jobs it puts in.
fn check(
    store: &Sqlite,
    change: &Change,
    rates: impl FnOnce() -> Result<Buckets, Error>,
) -> Result<Checked, Error> {
    if let Err(invalid) = store.shared.options.limits.check_change(change) {
        return Ok(Err(invalid.to_string()));
    }
    match rates() {
        Err(Error::Invalid(invalid)) => Ok(Err(invalid.to_string())),
        buckets => buckets.map(Ok),
    }
}

/// The same with a savepoint around each change: what the database refuses for its data fails alone.
fn one_by_one(tx: &Tx<'_>, now: Now, batch: &[(&Change, &Checked)]) -> Result<Vec<Verdict>, Error> {
    let mut verdicts = Vec::with_capacity(batch.len());
    for (change, checked) in batch {
        tx.run("savepoint change", [])?;
        let verdict = match apply(tx, tx.now(now), change, checked) {
            Err(Error::Refused(why)) => {
                tx.run("rollback to change", [])?;
                tx.counts.take();
                Verdict::Refused(why)
            }
            answer => answer?,
        };
        // What is counted for branches is part of the change.
        tx.settle_counts()?;
        tx.run("release change", [])?;
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// A job whose change was not written at once.
struct Found {
    /// Whether it was written before.
    repeated: bool,
    /// Whether epoch and rev are those of the change.
    open: bool,
    /// Whether it is claimed under the epoch of the change.
    claimed: bool,
    spot: Placement,
}

impl Found {
    /// What is to be said of a change that was written before its answer was lost; `None` if it was not.
    fn repeated(&self, change: &Change) -> Option<Verdict> {
        let next = change.outcome == Outcome::Next;
        match (self.repeated, next, self.claimed) {
            (false, ..) => None,
            (true, true, false) => Some(Verdict::Halted),
            // What its claim wrote was another change: this one would have ended the claim.
            (true, false, true) => None,
            _ => Some(Verdict::Committed),
        }
    }
}

fn find(tx: &Tx<'_>, change: &Change) -> Result<Option<Found>, Error> {
    let (worker, claim) = (change.worker.0, change.claim.0);
    let params = params![change.job.as_bytes(), change.epoch.0, change.rev.0, worker, claim];
    tx.one(sql::commit::EXPLAIN_UNAPPLIED, params, |row| {
        let (repeated, open, claimed) = (row.get::<_, Option<bool>>(0)?, row.get(1)?, row.get(2)?);
        Ok(Found {
            repeated: repeated == Some(true),
            open,
            claimed,
            spot: Placement::read(change.job, row, 3)?,
        })
    })
}

/// Applies one change. Most jobs have nothing hanging on them: the statements pass over those that are held, have a
/// serial key or a parent that waits, or large data to be forgotten, and only when nothing was written is it looked why.
fn apply(tx: &Tx<'_>, now: Time, change: &Change, checked: &Checked) -> Result<Verdict, Error> {
    let buckets = match checked {
        Ok(buckets) => buckets,
        Err(why) => return Ok(Verdict::Refused(why.clone())),
    };
    if !tx.knows(change.worker, change.claim)? {
        let found = find(tx, change)?;
        return Ok(found.and_then(|found| found.repeated(change)).unwrap_or(Verdict::Fenced));
    }
    let ties = change.outcome.ends() && (change.is_serial || change.parent.is_some());
    let step = change.step.as_deref();
    let bears = step.is_some_and(|step| !step.children.is_empty() || branch::concerns(step));
    let unwinds = step.is_some_and(|step| step.unwind.is_some());
    if let Some(step) = step.filter(|_| bears || unwinds)
        && let Some(found) = find(tx, change)?.filter(|found| found.open)
    {
        if let Some(why) = branch::refusal(tx, change, step)? {
            return Ok(Verdict::Refused(why));
        }
        if unwinds {
            tx.release_holds(&found.spot)?;
        }
    }
    if !ties && !bears && write(tx, now, change, false)? {
        change.branch_member.map_or(Ok(()), |counted| tx.member_wrote(now, change, counted))?;
        if change.outcome != Outcome::Next {
            tx.leaves((change.worker, change.claim));
        }
        return Ok(Verdict::Committed);
    }
    let Some(found) = find(tx, change)? else { return Ok(Verdict::Fenced) };
    if let Some(verdict) = found.repeated(change) {
        return Ok(verdict);
    }
    if !found.open {
        return Ok(Verdict::Fenced);
    }
    let halts = change.outcome == Outcome::Next && found.spot.hold.is_some();
    let mut spot = found.spot;
    let ends = change.outcome.ends();
    if let Some(step) = step {
        tx.update(now, change, step)?;
    }
    if spot.in_branch {
        tx.member_writes(now, change, buckets)?;
    }
    if bears && !ends {
        step::spawn_children(tx, now, change, buckets)?;
    }
    if bears {
        // A child that takes the place of another job may have told this very one to end, and it may have branches now.
        spot = find(tx, change)?.map_or(spot, |found| found.spot);
    }
    if halts {
        wait(tx, now, change, &Wait::YIELD, true)?;
    } else {
        write(tx, now, change, true)?;
    }
    if ends {
        tx.clear(now, &spot)?;
        // The names of a job that ends are free for its children.
        if bears {
            step::spawn_children(tx, now, change, buckets)?;
        }
    }
    if halts || change.outcome != Outcome::Next {
        tx.leaves((change.worker, change.claim));
    }
    Ok(if halts { Verdict::Halted } else { Verdict::Committed })
}

/// Writes how the first attempt at an item of a block ended, which has just become a job: it has nothing hanging on it but its
/// branch.
pub(super) fn first(tx: &Tx<'_>, now: Time, change: &Change) -> Result<(), Error> {
    if !write(tx, now, change, false)? {
        return Err(Error::Refused(format!("the job {} was there before its first attempt", change.job)));
    }
    change.branch_member.map_or(Ok(()), |counted| tx.member_wrote(now, change, counted))
}

/// Writes a change if epoch and rev are its own. It is written only if nothing hangs on the job that must be seen to,
/// unless the caller sees to it (`is_cleared`).
fn write(tx: &Tx<'_>, now: Time, change: &Change, is_cleared: bool) -> Result<bool, Error> {
    match &change.outcome {
        Outcome::Done(output) => done(tx, now, change, output, is_cleared),
        Outcome::Failed { reason, failure } => {
            let reason = Some(columns::reason_number(*reason));
            ended(tx, now, change, FAILED, reason, failure, is_cleared)
        }
        Outcome::Cancelled(failure) => ended(tx, now, change, CANCELLED, None, failure, is_cleared),
        Outcome::Retry { after, spent, failure } => {
            retry(tx, now, change, now.plus(*after), spent, failure.as_ref())
        }
        Outcome::Next => next(tx, now, change, is_cleared),
        Outcome::Wait(what) => wait(tx, now, change, what, is_cleared),
    }
}

/// The hot path of machines: one update, and one insert for the record.
fn next(tx: &Tx<'_>, now: Time, change: &Change, is_cleared: bool) -> Result<bool, Error> {
    let (stage, (undo, unwind)) = (Stage::after(change), step::undoing(change));
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.claim.0,
        change.started_at.micros(),
        undo,
        unwind,
        is_cleared,
        is_unchanged(change),
        stage.name,
        stage.codec,
        stage.near,
        stage.far,
    ];
    let applied = tx.run(sql::commit::NEXT, params)? == 1;
    if applied {
        step::keep_progress(tx, change, is_cleared)?;
        step::record(tx, now, change)?;
    }
    Ok(applied)
}

/// Parks a job, or lets others pass.
fn wait(tx: &Tx<'_>, now: Time, change: &Change, what: &Wait, is_cleared: bool) -> Result<bool, Error> {
    let (stage, parked) = (Stage::after(change), Parked::of(what, now));
    let (undo, unwind) = step::undoing(change);
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.claim.0,
        change.started_at.micros(),
        undo,
        unwind,
        is_cleared,
        is_unchanged(change),
        stage.name,
        stage.codec,
        stage.near,
        stage.far,
        parked.due_at.micros(),
        parked.wait,
        parked.until.map(Time::micros),
        parked.parked,
    ];
    let row = tx.one(sql::waits::PARK, params, |row| {
        Ok((Placement::read(change.job, row, 0)?, row.get::<_, Option<bool>>(12)?, row.get::<_, i64>(13)?))
    })?;
    let Some((spot, keeps, pending)) = row else { return Ok(false) };
    step::keep_progress(tx, change, is_cleared)?;
    step::record(tx, now, change)?;
    match parked.parked {
        None => tx.enter(&spot)?,
        Some(_) => tx.park(now, &spot, what, keeps == Some(true), pending)?,
    }
    Ok(true)
}

/// Whether a step leads to where it came from; `None` if it is but a part of an attempt.
fn is_unchanged(change: &Change) -> Option<bool> {
    match change.step.as_ref() {
        Some(step) if step.partial => None,
        step => Some(step.is_some_and(|step| step.unchanged)),
    }
}

fn done(tx: &Tx<'_>, now: Time, change: &Change, output: &Payload, is_cleared: bool) -> Result<bool, Error> {
    let far = output.bytes.len() > NEAR;
    let (undo, unwind) = step::undoing(change);
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.claim.0,
        change.started_at.micros(),
        undo,
        unwind,
        is_cleared,
        change.branch_member.is_some(),
        now.micros(),
        output.codec,
        if far { &[] } else { output.bytes.as_slice() },
        far,
    ];
    let applied = tx.run(sql::commit::DONE, params)? == 1;
    if applied && far {
        let params = params![change.job.as_bytes(), OUTPUT, output.bytes];
        tx.run(sql::submit::ADD_PAYLOAD, params)?;
    }
    close(tx, now, change, applied)
}

fn ended(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    state: i16,
    reason: Option<i16>,
    failure: &Failure,
    is_cleared: bool,
) -> Result<bool, Error> {
    let text = columns::failure_text(failure);
    let (undo, unwind) = step::undoing(change);
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.claim.0,
        change.started_at.micros(),
        undo,
        unwind,
        is_cleared,
        change.branch_member.is_some(),
        now.micros(),
        state,
        reason,
        text,
        change.outcome.counts(),
    ];
    let applied = tx.run(sql::commit::FAILED, params)? == 1;
    if applied {
        note(tx, now, change, &text)?;
    }
    close(tx, now, change, applied)
}

fn retry(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    due_at: Time,
    spent: &[u32],
    failure: Option<&Failure>,
) -> Result<bool, Error> {
    let text = failure.map(columns::failure_text);
    let (undo, unwind) = step::undoing(change);
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.claim.0,
        change.started_at.micros(),
        undo,
        unwind,
        due_at.micros(),
        columns::retry_counts_text(spent),
        text,
    ];
    let row = tx.one(sql::commit::RETRY, params, |row| {
        Ok((Placement::read(change.job, row, 0)?, row.get::<_, Option<bool>>(12)?))
    })?;
    let Some((spot, keeps)) = row else { return Ok(false) };
    if let Some(text) = text {
        note(tx, now, change, &text)?;
    }
    step::save(tx, change)?;
    step::record(tx, now, change)?;
    if due_at <= now {
        tx.enter(&spot)?;
        return Ok(true);
    }
    tx.set_timer(due_at, change.job, WAKE)?;
    if keeps != Some(true) {
        tx.leave(&spot)?;
    }
    Ok(true)
}

fn note(tx: &Tx<'_>, now: Time, change: &Change, failure: &str) -> Result<(), Error> {
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.worker.0,
        change.started_at.micros(),
        now.micros(),
        failure
    ];
    tx.run(sql::commit::ADD_ATTEMPT, params)?;
    Ok(())
}

/// Takes a deadline's timer back when the job has ended, and writes what its last step wants written.
fn close(tx: &Tx<'_>, now: Time, change: &Change, applied: bool) -> Result<bool, Error> {
    if !applied {
        return Ok(false);
    }
    if let Some(at) = change.deadline_at {
        tx.unset_timer(at, change.job, DEADLINE)?;
    }
    step::save(tx, change)?;
    step::record(tx, now, change)?;
    Ok(true)
}
