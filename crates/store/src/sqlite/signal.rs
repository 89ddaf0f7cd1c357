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
struct Addressee {
    state: i16,
    wait: Option<String>,
    /// The last number in its inbox, or 0.
    last: i64,
    until: Option<i64>,
    pending: i64,
    spot: Placement,
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

fn deliver(tx: &Tx<'_>, now: Time, signal: &NewSignal, most: usize) -> Result<SignalOutcome, Error> {
    let Some(found) = find(tx, signal.job)? else { return Ok(SignalOutcome::Unknown) };
    if let Some(state) = columns::final_state(found.state) {
        return Ok(SignalOutcome::Ended(state));
    }
    if is_full(tx, &found, most)? {
        let params = params![signal.job.as_bytes(), signal.name, signal.dedup];
        let known = tx.one(sql::signals::WAS_DELIVERED, params, |_| Ok(()))?.is_some();
        return Ok(if known { SignalOutcome::Duplicate } else { SignalOutcome::Full });
    }
    if !record_delivery(tx, now, signal.job, found.last + 1, signal)? {
        return Ok(SignalOutcome::Duplicate);
    }
    Ok(SignalOutcome::Delivered { woke: wake_for(tx, now, &found, &signal.name)? })
}

/// Tells a job of the end of a child. However full its inbox is, and as often as the child ends.
pub(super) fn signal_parent(tx: &Tx<'_>, now: Time, parent: JobId, child: JobId) -> Result<(), Error> {
    let found = find(tx, parent)?.filter(|found| found.state == LIVE);
    let Some(found) = found else { return Ok(()) };
    put(tx, now, parent, found.last + 1, CHILD, &Payload::json(format!("\"{child}\"").into_bytes()))?;
    wake_for(tx, now, &found, CHILD)?;
    Ok(())
}

/// Tells a job that one of its branches has come to what it waits for, however full its inbox is.
pub(super) fn signal_branch(tx: &Tx<'_>, now: Time, job: JobId, number: BranchNo) -> Result<(), Error> {
    let found = find(tx, job)?.filter(|found| found.state == LIVE);
    let Some(found) = found else { return Ok(()) };
    put(tx, now, job, found.last + 1, BRANCH, &Payload::json(number.to_string().into_bytes()))?;
    wake_for(tx, now, &found, BRANCH)?;
    Ok(())
}

fn find(tx: &Tx<'_>, id: JobId) -> Result<Option<Addressee>, Error> {
    tx.one(sql::signals::RECIPIENT, [id.as_bytes()], |row| {
        Ok(Addressee {
            state: row.get(0)?,
            wait: row.get(1)?,
            last: row.get(2)?,
            until: row.get(3)?,
            pending: row.get(4)?,
            spot: Placement::read(id, row, 5)?,
        })
    })
}

/// Wakes a parked job if a signal of this name that it just got completes what it waits for; answers whether it did.
fn wake_for(tx: &Tx<'_>, now: Time, found: &Addressee, name: &str) -> Result<bool, Error> {
    let wait = columns::wait(found.wait.as_deref()).filter(|_| found.spot.parked);
    let woke = match &wait {
        Some(Awaited::Signals { needs: 1, names }) => names.iter().any(|known| known.name == name),
        Some(wait) if wait.wants(name).is_some() => tx.is_met(found.spot.id, wait, found.pending)?,
        _ => false,
    };
    if woke && found.until.is_some() {
        tx.wake(now, &found.spot)?;
    } else if woke {
        tx.rouse(&Placement { due_at: now, ..found.spot })?;
    }
    Ok(woke)
}

/// Whether an inbox has as many signals as it may, or as many were set aside. It has at most as many as its last number says.
fn is_full(tx: &Tx<'_>, found: &Addressee, most: usize) -> Result<bool, Error> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    if found.last < most {
        return Ok(false);
    }
    let counts = tx.one(sql::signals::COUNT, [found.spot.id.as_bytes()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })?;
    Ok(counts.is_some_and(|(waiting, aside)| waiting >= most || aside >= most))
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
    let new = tx.run(sql::signals::RECORD_DELIVERY, params)? == 1;
    if new {
        put(tx, now, id, number, &signal.name, &signal.payload)?;
    }
    Ok(new)
}

fn put(tx: &Tx<'_>, now: Time, id: JobId, number: i64, name: &str, payload: &Payload) -> Result<(), Error> {
    let params = params![id.as_bytes(), number, name, now.micros(), payload.codec, payload.bytes];
    tx.run(sql::signals::DELIVER, params)?;
    tx.run(sql::signals::SET_LAST_NUMBER, params![id.as_bytes(), number])?;
    Ok(())
}

/// The signals that a worker is handed with a job: the oldest of each name it waits for, or all of the name.
pub(super) fn shown(tx: &Tx<'_>, id: JobId, wait: Option<&Awaited>) -> Result<Vec<Signal>, Error> {
    let Some(Awaited::Signals { names, .. }) = wait else { return Ok(Vec::new()) };
    let mut shown = Vec::new();
    for name in names {
        let sql = match name.every {
            true => sql::claim::INBOX,
            false => sql::claim::OLDEST_SIGNAL,
        };
        shown.extend(tx.all(sql, params![id.as_bytes(), name.name], read)?);
    }
    shown.sort_by_key(|signal| signal.number);
    Ok(shown)
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
pub(super) fn aside(tx: &Tx<'_>, id: &[u8]) -> Result<Vec<AsideSignal>, Error> {
    tx.all(sql::inspect::UNREADABLE_SIGNALS, params![id, columns::UNREADABLE_SHOWN], |row| {
        Ok(AsideSignal { number: row.get(0)?, name: row.get(1)?, at: Time(row.get(2)?), why: row.get(3)? })
    })
}

/// Takes a signal out of an inbox for good.
pub(super) fn drop_from(tx: &Tx<'_>, seen: &JobRow, number: i64) -> Result<ControlOutcome, Error> {
    let id = seen.spot.id;
    Ok(match find_one(tx, id, number)? {
        None => outcome::no_signal(number),
        Some((_, false)) if seen.state == State::Running => outcome::signal_in_use(),
        Some(_) => {
            tx.run(sql::signals::DROP, params![id.as_bytes(), number])?;
            ControlOutcome::Done
        }
    })
}

/// Puts a signal back that was set aside, and wakes the job if it has what it waits for by that.
pub(super) fn restore(tx: &Tx<'_>, now: Time, id: JobId, number: i64) -> Result<ControlOutcome, Error> {
    let Some((name, is_aside)) = find_one(tx, id, number)? else { return Ok(outcome::no_signal(number)) };
    if !is_aside {
        return Ok(outcome::not_aside());
    }
    tx.run(sql::signals::RESTORE, params![id.as_bytes(), number])?;
    if let Some(found) = find(tx, id)? {
        wake_for(tx, now, &found, &name)?;
    }
    Ok(ControlOutcome::Done)
}

/// The name of a signal in an inbox, and whether it was set aside.
fn find_one(tx: &Tx<'_>, id: JobId, number: i64) -> Result<Option<(String, bool)>, Error> {
    tx.one(sql::signals::READ, params![id.as_bytes(), number], |row| Ok((row.get(0)?, row.get(1)?)))
}
