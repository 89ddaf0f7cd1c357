//! What people do to single jobs.

use std::time::Duration;

use rusqlite::params;
use windlass_model::{Epoch, JobId, Rev, Settings, State, Time, Unwind, WorkerId, rank::AGEING_SPAN};

use super::{
    flow::Spot,
    inspect::holders,
    scope, signal,
    tx::{ORDERS, Tx},
    wait::Of,
};
use crate::{
    Act, By, Did, Error,
    control::said,
    pick::{self, ASIDE, CANCEL, DEADLINE, WANTED},
};

/// A job as it is now, with all that decides what may be done to it.
pub(super) struct Seen {
    pub(super) spot: Spot,
    pub(super) state: State,
    /// Whether it is in the ready set itself, not in line nor aside.
    pub(super) placed: bool,
    pub(super) epoch: Epoch,
    pub(super) rev: Rev,
    pub(super) kind: i32,
    pub(super) submitted_at: Time,
    pub(super) digest: [u8; 16],
    pub(super) settings: Settings,
    /// Whether it is unwound first when someone ends it from outside.
    pub(super) unwinds: bool,
}

/// Looks a job up.
pub(super) fn look(tx: &Tx<'_>, id: JobId) -> Result<Option<Seen>, Error> {
    let params = params![id.as_bytes(), AGEING_SPAN.as_micros() as i64];
    tx.one(include_str!("sql/act_job.sql"), params, |row| {
        let spot = Spot::read(id, row, 0)?;
        let (placed, in_line, waits) = (row.get(17)?, row.get(18)?, row.get(19)?);
        let state = match pick::final_state(row.get(12)?) {
            Some(state) => state,
            None if spot.parked => State::Waiting,
            None if placed || in_line || spot.hold == Some(ASIDE) => State::Ready,
            None if waits => State::Scheduled,
            None => State::Running,
        };
        Ok(Seen {
            spot,
            state,
            placed,
            epoch: Epoch(row.get(13)?),
            rev: Rev(row.get(21)?),
            kind: row.get(14)?,
            submitted_at: Time(row.get(15)?),
            digest: row.get(16)?,
            settings: pick::settings(row.get::<_, Option<String>>(20)?.as_deref()),
            unwinds: row.get(22)?,
        })
    })
}

pub(super) fn act(tx: &Tx<'_>, now: Time, id: JobId, act: Act, by: &By) -> Result<Did, Error> {
    let Some(seen) = look(tx, id)? else { return Ok(Did::Unknown) };
    let did = match act {
        Act::Cancel { grace } => cancel(tx, now, &seen, grace, by)?,
        Act::Pause => pause(tx, now, seen, by)?,
        Act::Resume => resume(tx, seen)?,
        Act::Retry => revive(tx, now, seen)?,
        Act::Priority(priority) => reprioritise(tx, seen, priority)?,
        Act::DropSignal(number) => signal::drop_from(tx, &seen, number)?,
        Act::RestoreSignal(number) => signal::restore(tx, now, id, number)?,
    };
    if matches!(did, Did::Done | Did::Told) {
        super::rules::log(tx, now, &pick::action(act), &id.to_string(), by)?;
    }
    Ok(did)
}

/// Ends a job that waits, and tells one that runs.
pub(super) fn cancel(tx: &Tx<'_>, now: Time, seen: &Seen, grace: Duration, by: &By) -> Result<Did, Error> {
    let spot = &seen.spot;
    match seen.state {
        state if state.is_final() => return Ok(said::ended(state)),
        State::Running => {}
        _ => {
            return Ok(if end_cancelled(tx, now, seen, by)? { Did::Done } else { Did::Told });
        }
    }
    let pair = (spot.id, seen.epoch);
    let worker = holders(tx)?.get(&pair).map_or(WorkerId(0), |(worker, _)| *worker);
    let deadline_at = now.plus(grace);
    let params =
        params![spot.id.as_bytes(), worker.0, seen.epoch.0, deadline_at.micros(), by.author, by.note];
    if tx.run(include_str!("sql/act_tell.sql"), params)? == 0 {
        return Ok(said::told_before());
    }
    tx.run(include_str!("sql/act_hold.sql"), params![spot.id.as_bytes(), WANTED])?;
    tx.set_timer(deadline_at, spot.id, CANCEL)?;
    tx.move_gate(ORDERS);
    Ok(Did::Told)
}

/// Ends a job by request, or has it unwound first; whoever runs it is fenced. Answers whether it has ended.
pub(super) fn end_cancelled(tx: &Tx<'_>, now: Time, seen: &Seen, by: &By) -> Result<bool, Error> {
    let (spot, failure) = (&seen.spot, by.failure());
    if seen.unwinds {
        tx.unwind(now, spot, &Unwind { reason: None, failure }, None)?;
        return Ok(false);
    }
    let params = params![spot.id.as_bytes(), pick::failure_text(&failure), now.micros()];
    tx.run(include_str!("sql/act_cancel.sql"), params)?;
    tx.unplace(spot)?;
    tx.clear(now, spot)?;
    Ok(true)
}

fn pause(tx: &Tx<'_>, now: Time, seen: Seen, by: &By) -> Result<Did, Error> {
    let spot = &seen.spot;
    let id = spot.id.as_bytes();
    if seen.state.is_final() {
        return Ok(said::cannot("pause", seen.state));
    }
    if spot.hold.is_some() {
        let why = tx.one(include_str!("sql/act_held.sql"), [id], |row| {
            Ok((row.get::<_, bool>(0)?, row.get::<_, Option<String>>(1)?))
        })?;
        match why {
            Some((true, _)) => return Ok(said::being_cancelled()),
            Some((_, Some(author))) => return Ok(Did::Already(format!("it was paused by {author} before"))),
            _ => {}
        }
    }
    tx.run(include_str!("sql/act_pause.sql"), params![id, now.micros(), by.author, by.note])?;
    let hold = if seen.state == State::Ready {
        tx.unplace(spot)?;
        tx.leave(spot)?;
        ASIDE
    } else {
        WANTED
    };
    tx.run(include_str!("sql/act_hold.sql"), params![id, hold])?;
    Ok(Did::Done)
}

fn resume(tx: &Tx<'_>, seen: Seen) -> Result<Did, Error> {
    let mut spot = seen.spot;
    let id = spot.id.as_bytes();
    if spot.hold.is_none() || tx.run(include_str!("sql/act_resume.sql"), [id])? == 0 {
        return Ok(Did::Already("it is not paused".into()));
    }
    let told = tx.one(include_str!("sql/act_held.sql"), [id], |row| row.get::<_, bool>(0))?;
    if told.unwrap_or(false) {
        return Ok(Did::Done);
    }
    tx.run(include_str!("sql/act_hold.sql"), params![id, None::<i16>])?;
    if spot.hold.take() == Some(ASIDE) {
        tx.enter(&spot)?;
    }
    Ok(Did::Done)
}

fn revive(tx: &Tx<'_>, now: Time, seen: Seen) -> Result<Did, Error> {
    match seen.state {
        State::Done => return Ok(said::retry_done()),
        state if !state.is_final() => return Ok(said::retry_live(state)),
        _ => {}
    }
    let spot = &seen.spot;
    if let Some(unique) = &seen.settings.unique {
        if let Some(other) = scope::namesake(tx, now, seen.kind, &unique.key, spot.id)? {
            return Ok(said::name_taken(other.spot.id));
        }
        scope::take(tx, seen.kind, &unique.key, spot.id)?;
    }
    let deadline_at = spot.deadline_at.map(|at| now.plus(at.since(seen.submitted_at)));
    let params = params![spot.id.as_bytes(), now.micros(), deadline_at.map(Time::micros)];
    tx.run(include_str!("sql/act_retry.sql"), params)?;
    if let Some(at) = deadline_at {
        tx.set_timer(at, spot.id, DEADLINE)?;
    }
    if let Some(parent) = spot.parent.filter(|_| !spot.told) {
        tx.count_children(now, parent, 1, Of::Child(spot.id))?;
    }
    if spot.kin {
        tx.kin_lives(now, spot.id, seen.state)?;
    }
    let spot = Spot { due_at: now, place: now, suspect: false, hold: None, deadline_at, ..seen.spot };
    tx.enter(&spot)?;
    Ok(Did::Done)
}

fn reprioritise(tx: &Tx<'_>, seen: Seen, priority: i16) -> Result<Did, Error> {
    if seen.state.is_final() {
        return Ok(said::cannot("reorder", seen.state));
    }
    if seen.spot.priority == priority {
        return Ok(Did::Already(format!("its priority is {priority}")));
    }
    if seen.placed {
        tx.unplace(&seen.spot)?;
    }
    tx.run(include_str!("sql/act_priority.sql"), params![seen.spot.id.as_bytes(), priority])?;
    if seen.placed {
        tx.make_ready(&Spot { priority, ..seen.spot })?;
    }
    Ok(Did::Done)
}
