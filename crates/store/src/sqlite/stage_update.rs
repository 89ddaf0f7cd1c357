//! Giving machines another version, stage and data.

use rusqlite::params;
use windlass_model::{Change, JobId, KindVersion, Payload, State, Time};

use super::{
    Sqlite, admin,
    job_actions::{self, JobRow},
    serial::Placement,
    sql,
    submit::{DATA, INLINE_LIMIT},
    tx::Tx,
};
use crate::{Actor, ControlOutcome, Error, Now, StageUpdate, columns, control::outcome};

pub(super) async fn update_stages(
    store: &Sqlite,
    now: Now,
    jobs: &[StageUpdate],
    actor: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    let outcomes = store
        .write(jobs.len() * 4, |tx| {
            let now = tx.now(now);
            jobs.iter().map(|update_stages| update_stage(tx, now, update_stages, actor)).collect()
        })
        .await?;
    // Lanes may have been made, and may be known once they are committed.
    store.read_lanes()?;
    Ok(outcomes)
}

fn update_stage(
    tx: &Tx<'_>,
    now: Time,
    update_stages: &StageUpdate,
    actor: &Actor,
) -> Result<ControlOutcome, Error> {
    let Some(JobRow { placement, state, in_ready, epoch, rev, .. }) =
        job_actions::read_job(tx, update_stages.job)?
    else {
        return Ok(ControlOutcome::Unknown);
    };
    match state {
        State::Done => return Ok(outcome::restate_done()),
        State::Running => return Ok(outcome::restate_running()),
        _ if (epoch, rev) != (update_stages.epoch, update_stages.rev) => return Ok(outcome::restate_moved()),
        _ => {}
    }
    let old = tx.store.lane(tx, placement.lane)?;
    let kind = KindVersion { kind: old.kind.kind, version: update_stages.version };
    let name = (old.queue.as_str(), &kind, old.bucket);
    tx.intern(name)?;
    let lane = tx.lane_for(name)?.id;
    if in_ready {
        tx.remove_placement(&placement)?;
    }
    let stage = Stage::of(&update_stages.stage, &update_stages.data);
    let params =
        params![placement.id.as_bytes(), lane, stage.name, stage.codec, stage.inline, stage.is_external];
    tx.execute(sql::control::UPDATE_STAGE, params)?;
    write_data(tx, placement.id, &update_stages.data)?;
    if in_ready {
        tx.make_ready(&Placement { lane, ..placement })?;
    }
    admin::log(tx, now, &columns::stage_update_action(update_stages), &update_stages.job.to_string(), actor)?;
    Ok(ControlOutcome::Done)
}

/// The stage that a change leaves its job in, as it is kept: data in the row, or apart if it is large.
#[derive(Clone, Copy, Default)]
pub(super) struct Stage<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) codec: Option<u8>,
    pub(super) inline: Option<&'a [u8]>,
    pub(super) is_external: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn of(name: &'a str, data: &'a Payload) -> Stage<'a> {
        let is_external = data.bytes.len() > INLINE_LIMIT;
        let inline = if is_external { &[] } else { data.bytes.as_slice() };
        Stage { name: Some(name), codec: Some(data.codec), inline: Some(inline), is_external }
    }

    /// That of a change; nothing if it leaves the stage as it is.
    pub(super) fn after(change: &'a Change) -> Stage<'a> {
        let stage = change.step.as_ref().and_then(|step| step.stage.as_ref());
        stage.map(|(name, data)| Stage::of(name, data)).unwrap_or_default()
    }
}

/// Keeps large data apart, and forgets what was kept apart before.
pub(super) fn write_data(tx: &Tx<'_>, id: JobId, data: &Payload) -> Result<(), Error> {
    if data.bytes.len() > INLINE_LIMIT {
        let params = params![id.as_bytes(), DATA, data.bytes];
        tx.execute(sql::submit::ADD_PAYLOAD, params)?;
    } else {
        tx.execute(sql::commit::DROP_EXTERNAL_DATA, [id.as_bytes()])?;
    }
    Ok(())
}
