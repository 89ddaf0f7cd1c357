//! What the step of a machine writes beside its outcome.

use rusqlite::params;
use windlass_model::{Change, JobId, NewJob, Payload, Rev, Time};

use super::{
    journal,
    rate::Buckets,
    sql,
    submit::{DATA, NEAR, put},
    tx::Tx,
};
use crate::{Error, columns};

/// The stage that a change leaves its job in, as it is kept: data in the row, or apart if it is large.
#[derive(Clone, Copy, Default)]
pub(super) struct Stage<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) codec: Option<u8>,
    pub(super) near: Option<&'a [u8]>,
    pub(super) far: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn of(name: &'a str, data: &'a Payload) -> Stage<'a> {
        let far = data.bytes.len() > NEAR;
        let near = if far { &[] } else { data.bytes.as_slice() };
        Stage { name: Some(name), codec: Some(data.codec), near: Some(near), far }
    }

    /// That of a change; nothing if it leaves the stage as it is.
    pub(super) fn after(change: &'a Change) -> Stage<'a> {
        let stage = change.step.as_ref().and_then(|step| step.stage.as_ref());
        stage.map(|(name, data)| Stage::of(name, data)).unwrap_or_default()
    }
}

/// Keeps large data apart, and forgets what was kept apart before.
pub(super) fn keep_data(tx: &Tx<'_>, id: JobId, data: &Payload) -> Result<(), Error> {
    if data.bytes.len() > NEAR {
        let params = params![id.as_bytes(), DATA, data.bytes];
        tx.run(sql::submit::ADD_PAYLOAD, params)?;
    } else {
        tx.run(sql::commit::DROP_EXTERNAL_DATA, [id.as_bytes()])?;
    }
    Ok(())
}

/// The same of a step that was written: there is something to forget only if that is known.
pub(super) fn keep_progress(tx: &Tx<'_>, change: &Change, is_known: bool) -> Result<(), Error> {
    match change.step.as_ref().and_then(|step| step.stage.as_ref()) {
        Some((_, data)) if is_known || data.bytes.len() > NEAR => keep_data(tx, change.job, data),
        _ => Ok(()),
    }
}

/// Writes the stage with an outcome that is no progress.
pub(super) fn save(tx: &Tx<'_>, change: &Change) -> Result<(), Error> {
    let Some((name, data)) = change.step.as_ref().and_then(|step| step.stage.as_ref()) else {
        return Ok(());
    };
    let stage = Stage::of(name, data);
    let params = params![change.job.as_bytes(), stage.name, stage.codec, stage.near, stage.far];
    tx.run(sql::commit::SET_STAGE, params)?;
    keep_data(tx, change.job, data)
}

/// What a change says about undoing: whether there is something to undo from now on, and how the job ends after that;
/// nothing of what it leaves as it is.
pub(super) fn undoing(change: &Change) -> (Option<bool>, Option<String>) {
    let step = change.step.as_deref();
    let unwind = step.and_then(|step| step.unwind.as_deref());
    (step.filter(|step| step.has_undo).map(|_| true), unwind.map(columns::unwind_text))
}

/// Records the transition, consumes the signals that the step was shown, sets those aside that it could not read, and writes
/// to the journal.
pub(super) fn record(tx: &Tx<'_>, now: Time, change: &Change) -> Result<(), Error> {
    let Some(step) = &change.step else { return Ok(()) };
    let id = change.job.as_bytes();
    if let Some(ran) = &step.stage_ran {
        let next = step.stage.as_ref().map(|(stage, _)| stage);
        let (ends, how) = (change.outcome.ends(), change.outcome.name());
        let params = params![id, change.rev.0 + 1, ran, ends, next, how, now.micros(), change.worker.0];
        tx.run(sql::commit::ADD_TRANSITION, params)?;
    }
    for number in &step.consumed {
        tx.run(sql::signals::CONSUME, params![id, number])?;
    }
    for aside in &step.unreadable {
        tx.run(sql::signals::MARK_UNREADABLE, params![id, aside.number, aside.why])?;
    }
    journal::write(tx, change.job, step)
}

/// Puts the children of a step in, as by a submit, and counts those of branches.
pub(super) fn spawn_children(
    tx: &Tx<'_>,
    now: Time,
    change: &Change,
    buckets: &Buckets,
) -> Result<(), Error> {
    let Some(step) = &change.step else { return Ok(()) };
    let round = if step.signal_child_ends { Rev::SIGNALLED } else { Rev(change.rev.0 + 1) };
    let parent = Some(change.job);
    let child = |child: &NewJob| {
        let round = Some(round).filter(|_| child.branch_position.is_none());
        NewJob { parent, parent_rev: round, ..child.clone() }
    };
    let children: Vec<NewJob> = step.children.iter().map(child).collect();
    if change.outcome.progresses() && step.stage.is_some() {
        let params = params![change.job.as_bytes(), change.rev.0 + 1];
        tx.run(sql::commit::RESET_PENDING_CHILDREN, params)?;
    }
    let put = put(tx, now, &children, buckets, None)?;
    tx.spawned(now, change, step, &put)
}
