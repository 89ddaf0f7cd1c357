//! Signals: delivered into inboxes, and handed to the jobs that wait for them.

use rusqlite::{Row, params};
use windlass_model::{
    BranchNo, JobId, NewSignal, Payload, Signal, State, Time, WaitCondition,
    branch::BRANCH_SIGNAL,
    wait::{CHILD_SIGNAL, inbox_is_full},
};

use super::{Sqlite, job_actions::JobRow, serial::Placement, sql, tx::Tx};
use crate::{
    ControlOutcome, Error, Now, SignalOutcome, UnreadableSignalView,
    columns::{self, LIVE},
    control::outcome,
};

/// The job that a signal is for.
struct Recipient {
    state: i16,
    wait: Option<String>,
    /// The number of the last signal that it was sent, or 0.
    last_number: i64,
    wait_until: Option<i64>,
    pending_children: i64,
    placement: Placement,
    parked_at: Option<Time>,
}

/// Delivers signals, in one transaction.
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
    let Some(recipient) = find_recipient(tx, signal.job)? else { return Ok(SignalOutcome::Unknown) };
    if let Some(state) = columns::final_state(recipient.state) {
        return Ok(SignalOutcome::Ended(state));
    }
    if is_full(tx, &recipient, inbox_limit)? {
        let params = params![signal.job.as_bytes(), signal.name, signal.dedup];
        let known = tx.query_one(sql::signals::WAS_DELIVERED, params, |_| Ok(()))?.is_some();
        return Ok(if known { SignalOutcome::Duplicate } else { SignalOutcome::Full });
    }
    if !record_delivery(tx, now, signal.job, recipient.last_number + 1, signal)? {
        return Ok(SignalOutcome::Duplicate);
    }
    Ok(SignalOutcome::Delivered { woke: wake_if_met(tx, now, &recipient, &signal.name)? })
}

/// Sends a job the end of a child as a signal, however full its inbox is, and as often as the child ends.
pub(super) fn signal_parent(tx: &Tx<'_>, now: Time, parent: JobId, child: JobId) -> Result<(), Error> {
    let recipient = find_recipient(tx, parent)?.filter(|recipient| recipient.state == LIVE);
    let Some(recipient) = recipient else { return Ok(()) };
    add(
        tx,
        now,
        parent,
        recipient.last_number + 1,
        CHILD_SIGNAL,
        &Payload::json(format!("\"{child}\"").into_bytes()),
    )?;
    wake_if_met(tx, now, &recipient, CHILD_SIGNAL)?;
    Ok(())
}

/// Sends a job a signal that the watch of a branch is met, however full its inbox is.
pub(super) fn signal_branch(tx: &Tx<'_>, now: Time, job: JobId, number: BranchNo) -> Result<(), Error> {
    let recipient = find_recipient(tx, job)?.filter(|recipient| recipient.state == LIVE);
    let Some(recipient) = recipient else { return Ok(()) };
    add(
        tx,
        now,
        job,
        recipient.last_number + 1,
        BRANCH_SIGNAL,
        &Payload::json(number.to_string().into_bytes()),
    )?;
    wake_if_met(tx, now, &recipient, BRANCH_SIGNAL)?;
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
            parked_at: row.get::<_, Option<i64>>(17)?.map(Time),
        })
    })
}

/// Wakes a parked job if the signal that it has just received completes its wait. Returns whether it did.
fn wake_if_met(tx: &Tx<'_>, now: Time, recipient: &Recipient, name: &str) -> Result<bool, Error> {
    if !recipient.placement.parked {
        return Ok(false);
    }
    let mut decoder = columns::Decoder::default();
    let wait = decoder.wait(recipient.wait.as_deref());
    let woke = match &wait {
        // A job whose wait cannot be decoded is woken, and fails for that when it is claimed.
        _ if decoder.fault().is_some() => true,
        Some(WaitCondition::Signals { needs: 1, names }) => names.iter().any(|known| known.name == name),
        Some(wait) if wait.wants(name).is_some() => {
            tx.is_met(recipient.placement.id, wait, recipient.pending_children)?
        }
        _ => false,
    };
    match &wait {
        _ if !woke => {}
        // This signal is the one that it needs.
        Some(wait @ WaitCondition::Signals { needs: 1, .. }) => {
            let names = wait.names_of_ended([name], false);
            tx.record_wait_for(now, recipient.placement.lane, recipient.parked_at, &names, false)?;
        }
        _ => tx.record_wait(now, &recipient.placement, false)?,
    }
    if woke && recipient.wait_until.is_some() {
        tx.wake(now, &recipient.placement)?;
    } else if woke {
        tx.end_wait(&Placement { due_at: now, ..recipient.placement })?;
    }
    Ok(woke)
}

/// Whether an inbox is full: of signals, or of unreadable ones. It has at most as many as its last number says.
fn is_full(tx: &Tx<'_>, recipient: &Recipient, inbox_limit: usize) -> Result<bool, Error> {
    if recipient.last_number < i64::try_from(inbox_limit).unwrap_or(i64::MAX) {
        return Ok(false);
    }
    let counts = tx.query_one(sql::signals::COUNT, [recipient.placement.id.as_bytes()], |row| {
        Ok((row.get::<_, i64>(0)? as usize, row.get::<_, i64>(1)? as usize))
    })?;
    Ok(counts.is_some_and(|(readable, unreadable)| inbox_is_full(readable, unreadable, inbox_limit)))
}

/// Adds a signal to an inbox under a number, unless it was delivered before. Returns whether it was not.
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

/// The signals that a worker receives with a job: the oldest of each name it waits for, or all of that name.
pub(super) fn awaited_signals(
    tx: &Tx<'_>,
    id: JobId,
    wait: Option<&WaitCondition>,
) -> Result<Vec<Signal>, Error> {
    let Some(WaitCondition::Signals { names, .. }) = wait else { return Ok(Vec::new()) };
    let mut signals = Vec::new();
    for name in names {
        let sql = match name.every {
            true => sql::claim::INBOX,
            false => sql::claim::OLDEST_SIGNAL,
        };
        signals.extend(tx.query_all(sql, params![id.as_bytes(), name.name], read)?);
    }
    signals.sort_by_key(|signal| signal.number);
    Ok(signals)
}

/// Reads number, name, at, codec and payload of a readable signal.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Signal> {
    Ok(Signal {
        number: row.get(0)?,
        name: row.get(1)?,
        at: Time(row.get(2)?),
        payload: Payload { codec: row.get(3)?, bytes: row.get(4)? },
        unreadable: None,
    })
}

/// The unreadable signals of a job, as many as people are shown.
pub(super) fn unreadable_signals(tx: &Tx<'_>, id: &[u8]) -> Result<Vec<UnreadableSignalView>, Error> {
    tx.query_all(sql::inspect::UNREADABLE_SIGNALS, params![id, columns::UNREADABLE_SHOWN], |row| {
        Ok(UnreadableSignalView {
            number: row.get(0)?,
            name: row.get(1)?,
            at: Time(row.get(2)?),
            why: row.get(3)?,
        })
    })
}

/// Deletes a signal from an inbox.
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

/// Makes an unreadable signal readable again, and wakes the job if that meets its wait.
pub(super) fn restore(tx: &Tx<'_>, now: Time, id: JobId, number: i64) -> Result<ControlOutcome, Error> {
    let Some((name, is_unreadable)) = find_signal(tx, id, number)? else {
        return Ok(outcome::no_signal(number));
    };
    if !is_unreadable {
        return Ok(outcome::signal_is_readable());
    }
    tx.execute(sql::signals::RESTORE, params![id.as_bytes(), number])?;
    if let Some(recipient) = find_recipient(tx, id)? {
        wake_if_met(tx, now, &recipient, &name)?;
    }
    Ok(ControlOutcome::Done)
}

/// The name of a signal in an inbox, and whether it is unreadable.
fn find_signal(tx: &Tx<'_>, id: JobId, number: i64) -> Result<Option<(String, bool)>, Error> {
    tx.query_one(sql::signals::READ, params![id.as_bytes(), number], |row| Ok((row.get(0)?, row.get(1)?)))
}
