//! What people do to single jobs: cancel, pause, resume, retry, reorder, drop and restore signals.

use std::time::Duration;

use rusqlite::params;
use windlass_model::{
    Epoch, JobId, Location, Rev, Settings, State, Time, Unwind, WorkerId, job::deadline_after_revival,
    rank::AGEING_SPAN,
};

use super::{
    inspect::holders,
    serial::Placement,
    signal, sql,
    tx::{CANCEL_GATE_ID, Tx},
    unique,
    wait::ChildrenOf,
};
use crate::{
    Actor, ControlOutcome, Error, JobAction,
    columns::{self, CANCEL, DEADLINE, HELD, TO_HOLD},
    control::outcome,
};

/// A job with all that decides what may be done to it.
pub(super) struct JobRow {
    pub(super) placement: Placement,
    pub(super) state: State,
    /// Whether it is in the ready set: neither held nor waiting for its serial key.
    pub(super) in_ready: bool,
    pub(super) epoch: Epoch,
    pub(super) rev: Rev,
    pub(super) kind: i32,
    pub(super) submitted_at: Time,
    pub(super) digest: [u8; 16],
    pub(super) settings: Settings,
    /// See [`columns::Decoder`].
    pub(super) fault: Option<Box<str>>,
    /// Whether it is unwound first when it is ended from outside.
    pub(super) must_unwind: bool,
}

/// Reads a job.
pub(super) fn read_job(tx: &Tx<'_>, id: JobId) -> Result<Option<JobRow>, Error> {
    let params = params![id.as_bytes(), AGEING_SPAN.as_micros() as i64];
    tx.query_one(sql::control::READ_JOB, params, |row| {
        let placement = Placement::read(id, row, 0)?;
        let (in_ready, in_serial_waiting) = (row.get(17)?, row.get(18)?);
        let location = Location {
            is_parked: placement.parked,
            is_ready: in_ready || in_serial_waiting || placement.hold == Some(HELD),
            is_scheduled: row.get(19)?,
        };
        let mut decoder = columns::Decoder::default();
        let state = columns::final_state(row.get(12)?).unwrap_or_else(|| location.state());
        Ok(JobRow {
            placement,
            state,
            in_ready,
            epoch: Epoch(row.get(13)?),
            rev: Rev(row.get(21)?),
            kind: row.get(14)?,
            submitted_at: Time(row.get(15)?),
            digest: row.get(16)?,
            settings: decoder.settings(row.get::<_, Option<String>>(20)?.as_deref()),
            fault: decoder.fault(),
            must_unwind: row.get(22)?,
        })
    })
}

/// Does one thing to a job, and records it in the audit log.
pub(super) fn act(
    tx: &Tx<'_>,
    now: Time,
    id: JobId,
    act: JobAction,
    actor: &Actor,
) -> Result<ControlOutcome, Error> {
    let Some(job) = read_job(tx, id)? else { return Ok(ControlOutcome::Unknown) };
    let result = match act {
        JobAction::Cancel { grace } => cancel(tx, now, &job, grace, actor)?,
        JobAction::Pause => pause(tx, now, job, actor)?,
        JobAction::Resume => resume(tx, job)?,
        JobAction::Retry => revive(tx, now, job)?,
        JobAction::Priority(priority) => set_priority(tx, job, priority)?,
        JobAction::DropSignal(number) => signal::drop_from(tx, &job, number)?,
        JobAction::RestoreSignal(number) => signal::restore(tx, now, id, number)?,
    };
    if matches!(result, ControlOutcome::Done | ControlOutcome::CancelRequested) {
        super::admin::log(tx, now, &columns::action(act), &id.to_string(), actor)?;
    }
    Ok(result)
}

/// Ends a job that does not run, and requests the attempt of a running one to end.
pub(super) fn cancel(
    tx: &Tx<'_>,
    now: Time,
    job: &JobRow,
    grace: Duration,
    actor: &Actor,
) -> Result<ControlOutcome, Error> {
    let placement = &job.placement;
    match job.state {
        state if state.is_final() => return Ok(outcome::ended(state)),
        State::Running => {}
        _ => {
            return Ok(if end_cancelled(tx, now, job, actor)? {
                ControlOutcome::Done
            } else {
                ControlOutcome::CancelRequested
            });
        }
    }
    let claimed = (placement.id, job.epoch);
    let worker = holders(tx)?.get(&claimed).map_or(WorkerId(0), |(worker, _)| *worker);
    let deadline_at = now + grace;
    let params = params![
        placement.id.as_bytes(),
        worker.0,
        job.epoch.0,
        deadline_at.micros(),
        actor.author,
        actor.note
    ];
    if tx.execute(sql::control::REQUEST_CANCEL, params)? == 0 {
        return Ok(outcome::cancel_requested_before());
    }
    tx.execute(sql::control::SET_HOLD, params![placement.id.as_bytes(), TO_HOLD])?;
    tx.set_timer(deadline_at, placement.id, CANCEL)?;
    tx.bump_gate(CANCEL_GATE_ID);
    Ok(ControlOutcome::CancelRequested)
}

/// Ends a job as cancelled, or starts to unwind it; a running attempt is fenced. Returns whether the job has ended.
pub(super) fn end_cancelled(tx: &Tx<'_>, now: Time, job: &JobRow, actor: &Actor) -> Result<bool, Error> {
    let (placement, failure) = (&job.placement, actor.failure());
    if job.must_unwind {
        tx.unwind(now, placement, job.state, &Unwind { reason: None, failure }, None)?;
        return Ok(false);
    }
    let params = params![placement.id.as_bytes(), columns::failure_text(&failure), now.micros()];
    tx.execute(sql::control::CANCEL, params)?;
    tx.count_moved(placement.lane, job.state, State::Cancelled);
    tx.record_end_outside(now, placement, State::Cancelled)?;
    tx.remove_placement(placement)?;
    tx.after_end(now, placement)?;
    Ok(true)
}

fn pause(tx: &Tx<'_>, now: Time, job: JobRow, actor: &Actor) -> Result<ControlOutcome, Error> {
    let placement = &job.placement;
    let id = placement.id.as_bytes();
    if job.state.is_final() {
        return Ok(outcome::cannot("pause", job.state));
    }
    if placement.hold.is_some() {
        let why = tx.query_one(sql::control::HOLD_REASONS, [id], |row| {
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
    tx.execute(sql::control::PAUSE, params![id, now.micros(), actor.author, actor.note])?;
    let hold = if job.state == State::Ready {
        tx.remove_placement(placement)?;
        tx.leave_serial_key(placement)?;
        HELD
    } else {
        TO_HOLD
    };
    tx.execute(sql::control::SET_HOLD, params![id, hold])?;
    Ok(ControlOutcome::Done)
}

fn resume(tx: &Tx<'_>, job: JobRow) -> Result<ControlOutcome, Error> {
    let mut placement = job.placement;
    let id = placement.id.as_bytes();
    if placement.hold.is_none() || tx.execute(sql::control::RESUME, [id])? == 0 {
        return Ok(ControlOutcome::Already("it is not paused".into()));
    }
    let cancel_requested = tx.query_one(sql::control::HOLD_REASONS, [id], |row| row.get::<_, bool>(0))?;
    if cancel_requested.unwrap_or(false) {
        return Ok(ControlOutcome::Done);
    }
    tx.execute(sql::control::SET_HOLD, params![id, None::<i16>])?;
    if placement.hold.take() == Some(HELD) {
        tx.enter(&placement)?;
    }
    Ok(ControlOutcome::Done)
}

fn revive(tx: &Tx<'_>, now: Time, job: JobRow) -> Result<ControlOutcome, Error> {
    match job.state {
        State::Done => return Ok(outcome::retry_done()),
        state if !state.is_final() => return Ok(outcome::retry_live(state)),
        _ => {}
    }
    if let Some(fault) = &job.fault {
        return Ok(outcome::undecodable(fault));
    }
    let placement = &job.placement;
    if let Some(unique) = &job.settings.unique {
        if let Some(other) = unique::holder_of(tx, now, job.kind, &unique.key, placement.id)? {
            return Ok(outcome::name_taken(other.placement.id));
        }
        unique::take(tx, job.kind, &unique.key, placement.id)?;
    }
    let deadline_at = placement.deadline_at.map(|at| deadline_after_revival(at, job.submitted_at, now));
    let params = params![placement.id.as_bytes(), now.micros(), deadline_at.map(Time::micros)];
    tx.execute(sql::control::REVIVE, params)?;
    tx.count_moved(placement.lane, job.state, State::Ready);
    if let Some(at) = deadline_at {
        tx.set_timer(at, placement.id, DEADLINE)?;
    }
    if let Some(parent) = placement.parent.filter(|_| !placement.signals_parent) {
        tx.add_pending_children(now, parent, 1, ChildrenOf::Child(placement.id))?;
    }
    if placement.in_branch {
        tx.branch_child_revived(now, placement.id, job.state)?;
    }
    let placement = Placement {
        due_at: now,
        serial_position: now,
        suspect: false,
        hold: None,
        deadline_at,
        ..job.placement
    };
    tx.enter(&placement)?;
    Ok(ControlOutcome::Done)
}

fn set_priority(tx: &Tx<'_>, job: JobRow, priority: i16) -> Result<ControlOutcome, Error> {
    if job.state.is_final() {
        return Ok(outcome::cannot("reorder", job.state));
    }
    if job.placement.priority == priority {
        return Ok(ControlOutcome::Already(format!("its priority is {priority}")));
    }
    if job.in_ready {
        tx.remove_placement(&job.placement)?;
    }
    tx.execute(sql::control::SET_PRIORITY, params![job.placement.id.as_bytes(), priority])?;
    if job.in_ready {
        tx.make_ready(&Placement { priority, ..job.placement })?;
    }
    Ok(ControlOutcome::Done)
}
