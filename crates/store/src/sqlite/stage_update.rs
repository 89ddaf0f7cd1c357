//! Giving machines another version, stage and data.

use rusqlite::params;
use windlass_model::{Change, JobId, KindVersion, Payload, State, Time};

use super::{
    Sqlite, admin,
    job_actions::{self, JobRow},
    serial::Placement,
    sql,
    submit::{DATA, NEAR},
    tx::Tx,
};
use crate::{Actor, ControlOutcome, Error, Now, StageUpdate, columns, control::outcome};

pub(super) async fn restate(
    store: &Sqlite,
    now: Now,
    jobs: &[StageUpdate],
    by: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    let did = store
        .write(jobs.len() * 4, |tx| {
            let now = tx.now(now);
            jobs.iter().map(|restate| restate_one(tx, now, restate, by)).collect()
        })
        .await?;
    // Lanes may have been made, and may be known once they are committed.
    store.read_lanes()?;
    Ok(did)
}

fn restate_one(tx: &Tx<'_>, now: Time, restate: &StageUpdate, by: &Actor) -> Result<ControlOutcome, Error> {
    let Some(JobRow { spot, state, placed, epoch, rev, .. }) = job_actions::read_job(tx, restate.job)? else {
        return Ok(ControlOutcome::Unknown);
    };
    match state {
        State::Done => return Ok(outcome::restate_done()),
        State::Running => return Ok(outcome::restate_running()),
        _ if (epoch, rev) != (restate.epoch, restate.rev) => return Ok(outcome::restate_moved()),
        _ => {}
    }
    let old = tx.store.lane(tx, spot.lane)?;
    let kind = KindVersion { kind: old.kind.kind, version: restate.version };
    let name = (old.queue.as_str(), &kind, old.bucket);
    tx.intern(name)?;
    let lane = tx.lane_for(name)?.id;
    if placed {
        tx.unplace(&spot)?;
    }
    let stage = Stage::of(&restate.stage, &restate.data);
    let params = params![spot.id.as_bytes(), lane, stage.name, stage.codec, stage.near, stage.far];
    tx.run(sql::control::UPDATE_STAGE, params)?;
    keep_data(tx, spot.id, &restate.data)?;
    if placed {
        tx.make_ready(&Placement { lane, ..spot })?;
    }
    admin::log(tx, now, &columns::stage_update_action(restate), &restate.job.to_string(), by)?;
    Ok(ControlOutcome::Done)
}

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
