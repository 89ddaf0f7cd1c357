//! Signals: into an inbox, and shown to whoever waited for them.

use rusqlite::{Row, params};
use windlass_model::{
    Awaited, BranchNo, JobId, NewSignal, Payload, Signal, State, Time, branch::BRANCH, wait::CHILD,
};

use super::{Sqlite, job_actions::JobRow, serial::Placement, sql, tx::Tx};
use crate::{
    AsideSignal, ControlOutcome, Error, Now, SignalOutcome,
    columns::{self, LIVE},
    control::outcome,
};

/// The job that a signal is for.
struct Recipient {
    state: i16,
    wait: Option<String>,
    /// The last number in its inbox, or 0.
    last_number: i64,
    wait_until: Option<i64>,
    pending_children: i64,
    placement: Placement,
}

pub(super) async fn signal(
    store: &Sqlite,
    now: Now,
    signals: &[NewSignal],
) -> Result<Vec<SignalOutcome>, Error> {
    let limits = &store.shared.options.limits;
    signals.iter().try_for_each(|signal| limits.check_signal(signal))?;
    store
        .write(signals.len() * 2, |tx| {
            let now = tx.now(now);
            signals.iter().map(|signal| deliver(tx, now, signal, limits.inbox)).collect()
        })
        .await
}

fn deliver(tx: &Tx<'_>, now: Time, signal: &NewSignal, inbox_limit: usize) -> Result<SignalOutcome, Error> {
    let Some(found) = find_recipient(tx, signal.job)? else { return Ok(SignalOutcome::Unknown) };
    if let Some(state) = columns::final_state(found.state) {
        return Ok(SignalOutcome::Ended(state));
    }
    if is_full(tx, &found, inbox_limit)? {
        let params = params![signal.job.as_bytes(), signal.name, signal.dedup];
        let known = tx.query_one(sql::signals::WAS_DELIVERED, params, |_| Ok(()))?.is_some();
        return Ok(if known { SignalOutcome::Duplicate } else { SignalOutcome::Full });
    }
    if !record_delivery(tx, now, signal.job, found.last_number + 1, signal)? {
        return Ok(SignalOutcome::Duplicate);
    }
    Ok(SignalOutcome::Delivered { woke: wake_if_met(tx, now, &found, &signal.name)? })
}

/// Tells a job of the end of a child. However full its inbox is, and as often as the child ends.
pub(super) fn signal_parent(tx: &Tx<'_>, now: Time, parent: JobId, child: JobId) -> Result<(), Error> {
    let found = find_recipient(tx, parent)?.filter(|found| found.state == LIVE);
    let Some(found) = found else { return Ok(()) };
    add(tx, now, parent, found.last_number + 1, CHILD, &Payload::json(format!("\"{child}\"").into_bytes()))?;
    wake_if_met(tx, now, &found, CHILD)?;
    Ok(())
}

/// Tells a job that one of its branches has come to what it waits for, however full its inbox is.
pub(super) fn signal_branch(tx: &Tx<'_>, now: Time, job: JobId, number: BranchNo) -> Result<(), Error> {
    let found = find_recipient(tx, job)?.filter(|found| found.state == LIVE);
    let Some(found) = found else { return Ok(()) };
    add(tx, now, job, found.last_number + 1, BRANCH, &Payload::json(number.to_string().into_bytes()))?;
    wake_if_met(tx, now, &found, BRANCH)?;
    Ok(())
}

fn find_recipient(tx: &Tx<'_>, id: JobId) -> Result<Option<Recipient>, Error> {
    tx.query_one(sql::signals::RECIPIENT, [id.as_bytes()], |row| {
        Ok(Recipient {
            state: row.get(0)?,
            wait: row.get(1)?,
            last_number: row.get(2)?,
            wait_until: row.get(3)?,
            pending_children: row.get(4)?,
            placement: Placement::read(id, row, 5)?,
        })
    })
}

/// Wakes a parked job if a signal of this name that it just got completes what it waits for; answers whether it did.
fn wake_if_met(tx: &Tx<'_>, now: Time, found: &Recipient, name: &str) -> Result<bool, Error> {
    let wait = columns::wait(found.wait.as_deref()).filter(|_| found.placement.parked);
    let woke = match &wait {
        Some(Awaited::Signals { needs: 1, names }) => names.iter().any(|known| known.name == name),
        Some(wait) if wait.wants(name).is_some() => {
            tx.is_met(found.placement.id, wait, found.pending_children)?
        }
        _ => false,
    };
    if woke && found.wait_until.is_some() {
        tx.wake(now, &found.placement)?;
    } else if woke {
        tx.end_wait(&Placement { due_at: now, ..found.placement })?;
    }
    Ok(woke)
}

/// Whether an inbox has as many signals as it may, or as many were set aside. It has at most as many as its last number says.
fn is_full(tx: &Tx<'_>, found: &Recipient, inbox_limit: usize) -> Result<bool, Error> {
    let inbox_limit = i64::try_from(inbox_limit).unwrap_or(i64::MAX);
    if found.last_number < inbox_limit {
        return Ok(false);
    }
    let counts = tx.query_one(sql::signals::COUNT, [found.placement.id.as_bytes()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })?;
    Ok(counts.is_some_and(|(waiting, unreadable_signals)| {
        waiting >= inbox_limit || unreadable_signals >= inbox_limit
    }))
}

/// Puts a signal into an inbox under a number, unless it was there before; answers whether it was not.
pub(super) fn record_delivery(
    tx: &Tx<'_>,
    now: Time,
    id: JobId,
    number: i64,
    signal: &NewSignal,
) -> Result<bool, Error> {
    let params = params![id.as_bytes(), signal.name, signal.dedup];
    let new = tx.execute(sql::signals::RECORD_DELIVERY, params)? == 1;
    if new {
        add(tx, now, id, number, &signal.name, &signal.payload)?;
    }
    Ok(new)
}

fn add(tx: &Tx<'_>, now: Time, id: JobId, number: i64, name: &str, payload: &Payload) -> Result<(), Error> {
    let params = params![id.as_bytes(), number, name, now.micros(), payload.codec, payload.bytes];
    tx.execute(sql::signals::DELIVER, params)?;
    tx.execute(sql::signals::SET_LAST_NUMBER, params![id.as_bytes(), number])?;
    Ok(())
}

/// The signals that a worker is handed with a job: the oldest of each name it waits for, or all of the name.
pub(super) fn awaited_signals(tx: &Tx<'_>, id: JobId, wait: Option<&Awaited>) -> Result<Vec<Signal>, Error> {
    let Some(Awaited::Signals { names, .. }) = wait else { return Ok(Vec::new()) };
    let mut awaited_signals = Vec::new();
    for name in names {
        let sql = match name.every {
            true => sql::claim::INBOX,
            false => sql::claim::OLDEST_SIGNAL,
        };
        awaited_signals.extend(tx.query_all(sql, params![id.as_bytes(), name.name], read)?);
    }
    awaited_signals.sort_by_key(|signal| signal.number);
    Ok(awaited_signals)
}

/// Reads number, name, at, codec and payload of a signal that was not set aside.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Signal> {
    Ok(Signal {
        number: row.get(0)?,
        name: row.get(1)?,
        at: Time(row.get(2)?),
        payload: Payload { codec: row.get(3)?, bytes: row.get(4)? },
        unreadable: None,
    })
}

/// The signals of a job that were set aside, as many as people are shown.
pub(super) fn unreadable_signals(tx: &Tx<'_>, id: &[u8]) -> Result<Vec<AsideSignal>, Error> {
    tx.query_all(sql::inspect::UNREADABLE_SIGNALS, params![id, columns::UNREADABLE_SHOWN], |row| {
        Ok(AsideSignal { number: row.get(0)?, name: row.get(1)?, at: Time(row.get(2)?), why: row.get(3)? })
    })
}

/// Takes a signal out of an inbox for good.
pub(super) fn drop_from(tx: &Tx<'_>, job: &JobRow, number: i64) -> Result<ControlOutcome, Error> {
    let id = job.placement.id;
    Ok(match find_signal(tx, id, number)? {
        None => outcome::no_signal(number),
        Some((_, false)) if job.state == State::Running => outcome::signal_in_use(),
        Some(_) => {
            tx.execute(sql::signals::DROP, params![id.as_bytes(), number])?;
            ControlOutcome::Done
        }
    })
}

/// Puts a signal back that was set aside, and wakes the job if it has what it waits for by that.
pub(super) fn restore(tx: &Tx<'_>, now: Time, id: JobId, number: i64) -> Result<ControlOutcome, Error> {
    let Some((name, is_unreadable)) = find_signal(tx, id, number)? else {
        return Ok(outcome::no_signal(number));
    };
    if !is_unreadable {
        return Ok(outcome::not_aside());
    }
    tx.execute(sql::signals::RESTORE, params![id.as_bytes(), number])?;
    if let Some(found) = find_recipient(tx, id)? {
        wake_if_met(tx, now, &found, &name)?;
    }
    Ok(ControlOutcome::Done)
}

/// The name of a signal in an inbox, and whether it was set aside.
fn find_signal(tx: &Tx<'_>, id: JobId, number: i64) -> Result<Option<(String, bool)>, Error> {
    tx.query_one(sql::signals::READ, params![id.as_bytes(), number], |row| Ok((row.get(0)?, row.get(1)?)))
}
