//! Writing what attempts ask for.

use rusqlite::params;
use windlass_model::{Change, Failure, Limits, Outcome, Time, Verdict, rank::rank};

use super::{Sqlite, Tx};
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

fn apply(tx: &Tx<'_>, now: Time, change: &Change, limits: &Limits) -> Result<Verdict, Error> {
    let applied = match &change.outcome {
        Outcome::Done(output) => {
            if let Err(invalid) = limits.check_payload("output", &output.bytes) {
                return Ok(Verdict::Refused(invalid.to_string()));
            }
            done(tx, now, change, output.codec, &output.bytes)?
        }
        Outcome::Failed { reason, failure } => {
            ended(tx, now, change, FAILED, Some(pick::reason_number(*reason)), failure)?
        }
        Outcome::Cancelled(failure) => ended(tx, now, change, CANCELLED, None, failure)?,
        Outcome::Retry { after, spent, failure } => retry(tx, now, change, now.plus(*after), spent, failure)?,
    };
    if applied {
        return Ok(Verdict::Committed);
    }
    let params = params![change.job.as_bytes(), change.epoch.0, change.rev.0];
    let seen = tx.one(include_str!("sql/commit_seen.sql"), params, |row| row.get(0))?.unwrap_or(false);
    Ok(if seen { Verdict::Committed } else { Verdict::Fenced })
}

fn done(tx: &Tx<'_>, now: Time, change: &Change, codec: u8, output: &[u8]) -> Result<bool, Error> {
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.rev.0,
        change.worker.0,
        change.started_at.micros(),
        now.micros(),
        codec,
        output,
    ];
    let applied = tx.run(include_str!("sql/commit_done.sql"), params)? == 1;
    forget_deadline(tx, change, applied)
}

fn ended(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    state: i16,
    reason: Option<i16>,
    failure: &Failure,
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
        Ok((row.get::<_, i32>(0)?, row.get::<_, i16>(1)?))
    })?;
    let Some((lane, priority)) = row else { return Ok(false) };
    note(tx, now, change, &text)?;
    if due_at > now {
        tx.set_timer(due_at, change.job, WAKE)?;
    } else {
        tx.make_ready(&tx.store.lane(tx, lane)?, false, rank(due_at, priority), change.job)?;
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
        tx.run(
            include_str!("sql/commit_untimer.sql"),
            params![at.micros(), change.job.as_bytes(), DEADLINE],
        )?;
    }
    Ok(applied)
}
