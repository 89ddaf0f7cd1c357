//! What people do to single jobs.

use std::time::Duration;

use rusqlite::params;
use windlass_model::{Epoch, JobId, Rev, Settings, State, Time, Unwind, WorkerId, rank::AGEING_SPAN};

use super::{
    inspect::holders,
    serial::Placement,
    signal, sql,
    tx::{ORDERS, Tx},
    unique,
    wait::Of,
};
use crate::{
    Actor, ControlOutcome, Error, JobAction,
    columns::{self, ASIDE, CANCEL, DEADLINE, TO_HOLD},
    control::outcome,
};

/// A job as it is now, with all that decides what may be done to it.
pub(super) struct JobRow {
    pub(super) spot: Placement,
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
pub(super) fn read_job(tx: &Tx<'_>, id: JobId) -> Result<Option<JobRow>, Error> {
    let params = params![id.as_bytes(), AGEING_SPAN.as_micros() as i64];
    tx.one(sql::control::READ_JOB, params, |row| {
        let spot = Placement::read(id, row, 0)?;
        let (placed, in_line, waits) = (row.get(17)?, row.get(18)?, row.get(19)?);
        let state = match columns::final_state(row.get(12)?) {
            Some(state) => state,
            None if spot.parked => State::Waiting,
            None if placed || in_line || spot.hold == Some(ASIDE) => State::Ready,
            None if waits => State::Scheduled,
            None => State::Running,
        };
        Ok(JobRow {
            spot,
            state,
            placed,
            epoch: Epoch(row.get(13)?),
            rev: Rev(row.get(21)?),
            kind: row.get(14)?,
            submitted_at: Time(row.get(15)?),
            digest: row.get(16)?,
            settings: columns::settings(row.get::<_, Option<String>>(20)?.as_deref()),
            unwinds: row.get(22)?,
        })
    })
}

pub(super) fn act(
    tx: &Tx<'_>,
    now: Time,
    id: JobId,
    act: JobAction,
    by: &Actor,
) -> Result<ControlOutcome, Error> {
    let Some(seen) = read_job(tx, id)? else { return Ok(ControlOutcome::Unknown) };
    let did = match act {
        JobAction::Cancel { grace } => cancel(tx, now, &seen, grace, by)?,
        JobAction::Pause => pause(tx, now, seen, by)?,
        JobAction::Resume => resume(tx, seen)?,
        JobAction::Retry => revive(tx, now, seen)?,
        JobAction::Priority(priority) => reprioritise(tx, seen, priority)?,
        JobAction::DropSignal(number) => signal::drop_from(tx, &seen, number)?,
        JobAction::RestoreSignal(number) => signal::restore(tx, now, id, number)?,
    };
    if matches!(did, ControlOutcome::Done | ControlOutcome::CancelRequested) {
        super::admin::log(tx, now, &columns::action(act), &id.to_string(), by)?;
    }
    Ok(did)
}

/// Ends a job that waits, and tells one that runs.
pub(super) fn cancel(
    tx: &Tx<'_>,
    now: Time,
    seen: &JobRow,
    grace: Duration,
    by: &Actor,
) -> Result<ControlOutcome, Error> {
    let spot = &seen.spot;
    match seen.state {
        state if state.is_final() => return Ok(outcome::ended(state)),
        State::Running => {}
        _ => {
            return Ok(if end_cancelled(tx, now, seen, by)? {
                ControlOutcome::Done
            } else {
                ControlOutcome::CancelRequested
            });
        }
    }
    let pair = (spot.id, seen.epoch);
    let worker = holders(tx)?.get(&pair).map_or(WorkerId(0), |(worker, _)| *worker);
    let deadline_at = now.plus(grace);
    let params =
        params![spot.id.as_bytes(), worker.0, seen.epoch.0, deadline_at.micros(), by.author, by.note];
    if tx.run(sql::control::REQUEST_CANCEL, params)? == 0 {
        return Ok(outcome::cancel_requested_before());
    }
    tx.run(sql::control::SET_HOLD, params![spot.id.as_bytes(), TO_HOLD])?;
    tx.set_timer(deadline_at, spot.id, CANCEL)?;
    tx.move_gate(ORDERS);
    Ok(ControlOutcome::CancelRequested)
}

/// Ends a job by request, or has it unwound first; whoever runs it is fenced. Answers whether it has ended.
pub(super) fn end_cancelled(tx: &Tx<'_>, now: Time, seen: &JobRow, by: &Actor) -> Result<bool, Error> {
    let (spot, failure) = (&seen.spot, by.failure());
    if seen.unwinds {
        tx.unwind(now, spot, &Unwind { reason: None, failure }, None)?;
        return Ok(false);
    }
    let params = params![spot.id.as_bytes(), columns::failure_text(&failure), now.micros()];
    tx.run(sql::control::CANCEL, params)?;
    tx.unplace(spot)?;
    tx.clear(now, spot)?;
    Ok(true)
}

fn pause(tx: &Tx<'_>, now: Time, seen: JobRow, by: &Actor) -> Result<ControlOutcome, Error> {
    let spot = &seen.spot;
    let id = spot.id.as_bytes();
    if seen.state.is_final() {
        return Ok(outcome::cannot("pause", seen.state));
    }
    if spot.hold.is_some() {
        let why = tx.one(sql::control::HOLD_REASONS, [id], |row| {
            Ok((row.get::<_, bool>(0)?, row.get::<_, Option<String>>(1)?))
        })?;
        match why {
            Some((true, _)) => return Ok(outcome::being_cancelled()),
            Some((_, Some(author))) => {
                return Ok(ControlOutcome::Already(format!("it was paused by {author} before")));
            }
            _ => {}
        }
    }
    tx.run(sql::control::PAUSE, params![id, now.micros(), by.author, by.note])?;
    let hold = if seen.state == State::Ready {
        tx.unplace(spot)?;
        tx.leave(spot)?;
        ASIDE
    } else {
        TO_HOLD
    };
    tx.run(sql::control::SET_HOLD, params![id, hold])?;
    Ok(ControlOutcome::Done)
}

fn resume(tx: &Tx<'_>, seen: JobRow) -> Result<ControlOutcome, Error> {
    let mut spot = seen.spot;
    let id = spot.id.as_bytes();
    if spot.hold.is_none() || tx.run(sql::control::RESUME, [id])? == 0 {
        return Ok(ControlOutcome::Already("it is not paused".into()));
    }
    let told = tx.one(sql::control::HOLD_REASONS, [id], |row| row.get::<_, bool>(0))?;
    if told.unwrap_or(false) {
        return Ok(ControlOutcome::Done);
    }
    tx.run(sql::control::SET_HOLD, params![id, None::<i16>])?;
    if spot.hold.take() == Some(ASIDE) {
        tx.enter(&spot)?;
    }
    Ok(ControlOutcome::Done)
}

fn revive(tx: &Tx<'_>, now: Time, seen: JobRow) -> Result<ControlOutcome, Error> {
    match seen.state {
        State::Done => return Ok(outcome::retry_done()),
        state if !state.is_final() => return Ok(outcome::retry_live(state)),
        _ => {}
    }
    let spot = &seen.spot;
    if let Some(unique) = &seen.settings.unique {
        if let Some(other) = unique::namesake(tx, now, seen.kind, &unique.key, spot.id)? {
            return Ok(outcome::name_taken(other.spot.id));
        }
        unique::take(tx, seen.kind, &unique.key, spot.id)?;
    }
    let deadline_at = spot.deadline_at.map(|at| now.plus(at.since(seen.submitted_at)));
    let params = params![spot.id.as_bytes(), now.micros(), deadline_at.map(Time::micros)];
    tx.run(sql::control::REVIVE, params)?;
    if let Some(at) = deadline_at {
        tx.set_timer(at, spot.id, DEADLINE)?;
    }
    if let Some(parent) = spot.parent.filter(|_| !spot.signals_parent) {
        tx.count_children(now, parent, 1, Of::Child(spot.id))?;
    }
    if spot.in_branch {
        tx.child_lives(now, spot.id, seen.state)?;
    }
    let spot = Placement { due_at: now, place: now, suspect: false, hold: None, deadline_at, ..seen.spot };
    tx.enter(&spot)?;
    Ok(ControlOutcome::Done)
}

fn reprioritise(tx: &Tx<'_>, seen: JobRow, priority: i16) -> Result<ControlOutcome, Error> {
    if seen.state.is_final() {
        return Ok(outcome::cannot("reorder", seen.state));
    }
    if seen.spot.priority == priority {
        return Ok(ControlOutcome::Already(format!("its priority is {priority}")));
    }
    if seen.placed {
        tx.unplace(&seen.spot)?;
    }
    tx.run(sql::control::SET_PRIORITY, params![seen.spot.id.as_bytes(), priority])?;
    if seen.placed {
        tx.make_ready(&Placement { priority, ..seen.spot })?;
    }
    Ok(ControlOutcome::Done)
}
