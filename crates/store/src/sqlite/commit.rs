//! Writing what attempts ask for.

use rusqlite::params;
use windlass_model::{Change, Failure, Limits, Outcome, Payload, Time, Verdict};

use super::{
    Sqlite,
    flow::Spot,
    submit::{NEAR, OUTPUT},
    tx::Tx,
};
use crate::{
    Error, Now,
    pick::{self, CANCELLED, DEADLINE, FAILED, WAKE},
};

/// Commits a batch in one transaction. Within it each change stands in a savepoint only if the batch failed
/// once without: a refusal is rare, and brackets around every change would cost more than the change.
pub(super) async fn commit(store: &Sqlite, now: Now, changes: &[Change]) -> Result<Vec<Verdict>, Error> {
    let limits = &store.shared.options.limits;
    let whole = store
        .write(changes.len(), |tx| {
            changes.iter().map(|change| apply(tx, tx.now(now), change, limits)).collect()
        })
        .await;
    match whole {
        Err(Error::Refused(_)) => store.write(changes.len(), |tx| one_by_one(tx, now, changes, limits)).await,
        answer => answer,
    }
}

/// The same with a savepoint around each change: what the database refuses for its data fails alone.
fn one_by_one(tx: &Tx<'_>, now: Now, changes: &[Change], limits: &Limits) -> Result<Vec<Verdict>, Error> {
    let mut verdicts = Vec::with_capacity(changes.len());
    for change in changes {
        tx.run("savepoint change", [])?;
        let verdict = match apply(tx, tx.now(now), change, limits) {
            Err(Error::Refused(why)) => {
                tx.run("rollback to change", [])?;
                Verdict::Refused(why)
            }
            answer => answer?,
        };
        tx.run("release change", [])?;
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// Applies one change. Most jobs have nothing hanging on them: the statements that end a job pass over those that are
/// held or have a serial key, and only when nothing was written is it looked why.
fn apply(tx: &Tx<'_>, now: Time, change: &Change, limits: &Limits) -> Result<Verdict, Error> {
    if let Outcome::Done(output) = &change.outcome
        && let Err(invalid) = limits.check_payload("output", &output.bytes)
    {
        return Ok(Verdict::Refused(invalid.to_string()));
    }
    if write(tx, now, change, false)? {
        return Ok(Verdict::Committed);
    }
    let params = params![change.job.as_bytes(), change.epoch.0, change.rev.0];
    let seen = tx.one(include_str!("sql/commit_seen.sql"), params, |row| {
        Ok((row.get(0)?, row.get(1)?, Spot::read(change.job, row, 2)?))
    })?;
    match seen {
        Some((true, ..)) => Ok(Verdict::Committed),
        Some((_, true, spot)) => {
            write(tx, now, change, true)?;
            tx.clear(&spot)?;
            Ok(Verdict::Committed)
        }
        _ => Ok(Verdict::Fenced),
    }
}

/// Writes a change if epoch and rev are its own. A change that ends the job is written only if nothing hangs on the
/// job, unless whatever does `is_cleared` by the caller.
fn write(tx: &Tx<'_>, now: Time, change: &Change, is_cleared: bool) -> Result<bool, Error> {
    match &change.outcome {
        Outcome::Done(output) => done(tx, now, change, output, is_cleared),
        Outcome::Failed { reason, failure } => {
            let reason = Some(pick::reason_number(*reason));
            ended(tx, now, change, FAILED, reason, failure, is_cleared)
        }
        Outcome::Cancelled(failure) => ended(tx, now, change, CANCELLED, None, failure, is_cleared),
        Outcome::Retry { after, spent, failure } => retry(tx, now, change, now.plus(*after), spent, failure),
    }
}

fn done(tx: &Tx<'_>, now: Time, change: &Change, output: &Payload, is_cleared: bool) -> Result<bool, Error> {
    let far = output.bytes.len() > NEAR;
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.started_at.micros(),
        now.micros(),
        output.codec,
        if far { &[] } else { output.bytes.as_slice() },
        far,
        is_cleared,
    ];
    let applied = tx.run(include_str!("sql/commit_done.sql"), params)? == 1;
    if applied && far {
        let params = params![change.job.as_bytes(), OUTPUT, output.bytes];
        tx.run(include_str!("sql/submit_payload.sql"), params)?;
    }
    forget_deadline(tx, change, applied)
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
    let text = pick::failure_text(failure);
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.started_at.micros(),
        now.micros(),
        state,
        reason,
        text,
        change.outcome.counts(),
        is_cleared,
    ];
    let applied = tx.run(include_str!("sql/commit_failed.sql"), params)? == 1;
    if applied {
        note(tx, now, change, &text)?;
    }
    forget_deadline(tx, change, applied)
}

fn retry(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    due_at: Time,
    spent: &[u32],
    failure: &Failure,
) -> Result<bool, Error> {
    let text = pick::failure_text(failure);
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.started_at.micros(),
        due_at.micros(),
        pick::spent_text(spent),
        text,
    ];
    let row = tx.one(include_str!("sql/commit_retry.sql"), params, |row| {
        Ok((Spot::read(change.job, row, 0)?, row.get::<_, Option<bool>>(8)?))
    })?;
    let Some((spot, keeps)) = row else { return Ok(false) };
    note(tx, now, change, &text)?;
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
    tx.run(include_str!("sql/commit_attempt.sql"), params)?;
    Ok(())
}

/// Takes a deadline's timer back when the job has ended.
fn forget_deadline(tx: &Tx<'_>, change: &Change, applied: bool) -> Result<bool, Error> {
    if let Some(at) = change.deadline_at.filter(|_| applied) {
        tx.unset_timer(at, change.job, DEADLINE)?;
    }
    Ok(applied)
}
