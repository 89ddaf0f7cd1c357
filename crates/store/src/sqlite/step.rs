//! The statements that write a change: a guarded update of the job, then what its step adds.

use rusqlite::params;
use windlass_model::{Change, Failure, Outcome, Payload, State, Time, Wait};

use super::{
    journal,
    open_claims::ClaimedFrom,
    serial::Placement,
    sql,
    stage_update::{Stage, write_data},
    submit::{INLINE_LIMIT, OUTPUT},
    tx::Tx,
    wait::Parked,
};
use crate::{
    Error,
    columns::{self, DEADLINE, WAKE},
};

/// The parameters ?1 to ?8 of every guarded update, then those of the statement. See commit.sql.
macro_rules! guarded_params {
    ($change:expr, $undo:expr; $($rest:expr),* $(,)?) => {
        params![
            $change.job.as_bytes(),
            $change.epoch.0,
            $change.rev.0,
            $change.worker.0,
            $change.claim.0,
            $change.started_at.micros(),
            $undo.0,
            $undo.1,
            $($rest),*
        ]
    };
}

/// The same for a step, which has the parameters ?9 to ?14 too.
macro_rules! step_params {
    ($change:expr, $undo:expr, $is_cleared:expr, $stage:expr; $($rest:expr),* $(,)?) => {
        guarded_params![
            $change,
            $undo;
            $is_cleared,
            $change.stage_unchanged(),
            $stage.name,
            $stage.codec,
            $stage.inline,
            $stage.is_external,
            $($rest),*
        ]
    };
}

/// Writes a change if epoch and revision match. Writes nothing if something depends on the job, unless the caller
/// takes care of that (`is_cleared`). Returns whether it wrote.
pub(super) fn write(tx: &Tx<'_>, now: Time, change: &Change, is_cleared: bool) -> Result<bool, Error> {
    match &change.outcome {
        Outcome::Done(output) => done(tx, now, change, output, is_cleared),
        Outcome::Failed { reason, failure } => {
            let reason = Some(columns::reason_number(*reason));
            failed(tx, now, change, State::Failed, reason, failure, is_cleared)
        }
        Outcome::Cancelled(failure) => failed(tx, now, change, State::Cancelled, None, failure, is_cleared),
        Outcome::Retry { after, retry_counts, failure } => {
            retry(tx, now, change, now + *after, retry_counts, failure.as_ref())
        }
        Outcome::Next => next(tx, now, change, is_cleared),
        Outcome::Wait(awaited) => wait(tx, now, change, awaited, is_cleared),
    }
}

/// The hot path of machines: one update, and one insert for the transition.
fn next(tx: &Tx<'_>, now: Time, change: &Change, is_cleared: bool) -> Result<bool, Error> {
    let (stage, undo) = (Stage::after(change), undo_columns(change));
    let params = step_params![
        change,
        undo,
        is_cleared,
        stage;
    ];
    let applied = tx.execute(sql::commit::NEXT, params)? == 1;
    if applied {
        write_stage_data(tx, change, is_cleared)?;
        write_step(tx, now, change)?;
    }
    Ok(applied)
}

/// Parks a job, or yields.
pub(super) fn wait(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    awaited: &Wait,
    is_cleared: bool,
) -> Result<bool, Error> {
    let (stage, parked) = (Stage::after(change), Parked::of(awaited, now));
    let undo = undo_columns(change);
    let params = step_params![
        change,
        undo,
        is_cleared,
        stage;
        parked.due_at.micros(),
        parked.wait,
        parked.wait_until.map(Time::micros),
        parked.parked,
        parked.parked.map(|_| now.micros()),
    ];
    let row = tx.query_one(sql::waits::PARK, params, |row| {
        Ok((Placement::read(change.job, row, 0)?, row.get::<_, Option<bool>>(12)?, row.get::<_, i64>(13)?))
    })?;
    let Some((placement, keeps_slot, pending_children)) = row else { return Ok(false) };
    write_stage_data(tx, change, is_cleared)?;
    write_step(tx, now, change)?;
    match parked.parked {
        None => tx.enter(&placement)?,
        Some(_) => tx.park(now, &placement, awaited, keeps_slot == Some(true), pending_children)?,
    }
    Ok(true)
}

fn done(tx: &Tx<'_>, now: Time, change: &Change, output: &Payload, is_cleared: bool) -> Result<bool, Error> {
    let is_external = output.bytes.len() > INLINE_LIMIT;
    let undo = undo_columns(change);
    let params = guarded_params![
        change,
        undo;
        is_cleared,
        change.branch_member.is_some(),
        now.micros(),
        output.codec,
        if is_external { &[] } else { output.bytes.as_slice() },
        is_external,
    ];
    let applied = tx.execute(sql::commit::DONE, params)? == 1;
    if applied && is_external {
        let params = params![change.job.as_bytes(), OUTPUT, output.bytes];
        tx.execute(sql::submit::ADD_PAYLOAD, params)?;
    }
    finish_end(tx, now, change, applied, State::Done)
}

fn failed(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    state: State,
    reason: Option<i16>,
    failure: &Failure,
    is_cleared: bool,
) -> Result<bool, Error> {
    let text = columns::failure_text(failure);
    let undo = undo_columns(change);
    let params = guarded_params![
        change,
        undo;
        is_cleared,
        change.branch_member.is_some(),
        now.micros(),
        columns::state_number(state),
        reason,
        text,
        change.outcome.counts_as_attempt(),
    ];
    let applied = tx.execute(sql::commit::FAILED, params)? == 1;
    if applied {
        add_attempt(tx, now, change, &text)?;
    }
    finish_end(tx, now, change, applied, state)
}

fn retry(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    due_at: Time,
    retry_counts: &[u32],
    failure: Option<&Failure>,
) -> Result<bool, Error> {
    let text = failure.map(columns::failure_text);
    let undo = undo_columns(change);
    let params = guarded_params![
        change,
        undo;
        due_at.micros(),
        columns::retry_counts_text(retry_counts),
        text,
    ];
    let row = tx.query_one(sql::commit::RETRY, params, |row| {
        Ok((Placement::read(change.job, row, 0)?, row.get::<_, Option<bool>>(12)?))
    })?;
    let Some((placement, keeps_slot)) = row else { return Ok(false) };
    if let Some(text) = text {
        add_attempt(tx, now, change, &text)?;
        tx.record_retry(now, placement.lane);
    }
    set_stage(tx, change)?;
    write_step(tx, now, change)?;
    if due_at <= now {
        tx.enter(&placement)?;
        return Ok(true);
    }
    tx.set_timer(due_at, change.job, WAKE)?;
    tx.count_moved(placement.lane, State::Running, State::Scheduled);
    if keeps_slot != Some(true) {
        tx.leave_serial_key(&placement)?;
    }
    Ok(true)
}

fn add_attempt(tx: &Tx<'_>, now: Time, change: &Change, failure: &str) -> Result<(), Error> {
    let params = params![
        change.job.as_bytes(),
        change.epoch.0,
        change.worker.0,
        change.started_at.micros(),
        now.micros(),
        failure
    ];
    tx.execute(sql::commit::ADD_ATTEMPT, params)?;
    Ok(())
}

/// Counts a job that has ended, deletes its deadline, and writes what its last step adds, if the change was applied.
fn finish_end(tx: &Tx<'_>, now: Time, change: &Change, applied: bool, state: State) -> Result<bool, Error> {
    if !applied {
        return Ok(false);
    }
    let ClaimedFrom { lane, due_at } = tx.claimed_from((change.worker, change.claim), change.job)?;
    tx.count_moved(lane, State::Running, state);
    let branch = change.branch_member.map(|member| (member.parent, member.branch));
    tx.record_end(now, lane, state, branch, Some((due_at, change.started_at)));
    if let Some(at) = change.deadline_at {
        tx.delete_timer(at, change.job, DEADLINE)?;
    }
    set_stage(tx, change)?;
    write_step(tx, now, change)?;
    Ok(true)
}

/// Writes the data of a step that was written. External data of an earlier stage is deleted only if `is_known`.
fn write_stage_data(tx: &Tx<'_>, change: &Change, is_known: bool) -> Result<(), Error> {
    match change.writes.as_ref().and_then(|step| step.stage.as_ref()) {
        Some((_, data)) if is_known || data.bytes.len() > INLINE_LIMIT => write_data(tx, change.job, data),
        _ => Ok(()),
    }
}

/// Writes the stage with an outcome that makes no progress.
fn set_stage(tx: &Tx<'_>, change: &Change) -> Result<(), Error> {
    let Some((name, data)) = change.writes.as_ref().and_then(|step| step.stage.as_ref()) else {
        return Ok(());
    };
    let stage = Stage::of(name, data);
    let params = params![change.job.as_bytes(), stage.name, stage.codec, stage.inline, stage.is_external];
    tx.execute(sql::commit::SET_STAGE, params)?;
    write_data(tx, change.job, data)
}

/// What a change says about undoing: whether there is something to undo from now on, and how the job ends after that;
/// `None` leaves the column as it is.
fn undo_columns(change: &Change) -> (Option<bool>, Option<String>) {
    let step = change.writes.as_deref();
    let unwind = step.and_then(|step| step.unwind.as_deref());
    (step.filter(|step| step.has_undo).map(|_| true), unwind.map(columns::unwind_text))
}

/// Records the transition, deletes consumed signals, marks unreadable ones, and writes to the journal.
fn write_step(tx: &Tx<'_>, now: Time, change: &Change) -> Result<(), Error> {
    let Some(step) = &change.writes else { return Ok(()) };
    let id = change.job.as_bytes();
    if let Some(from_stage) = &step.from_stage {
        let next = step.stage.as_ref().map(|(stage, _)| stage);
        let (ends, outcome) = (change.outcome.ends(), change.outcome.name());
        let params =
            params![id, change.rev.0 + 1, from_stage, ends, next, outcome, now.micros(), change.worker.0];
        tx.execute(sql::commit::ADD_TRANSITION, params)?;
    }
    for number in &step.consumed {
        tx.execute(sql::signals::CONSUME, params![id, number])?;
    }
    for signal in &step.unreadable {
        tx.execute(sql::signals::MARK_UNREADABLE, params![id, signal.number, signal.why])?;
    }
    journal::write(tx, change.job, step)
}
