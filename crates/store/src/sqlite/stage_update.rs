//! Stage updates: people give machines another version, stage and data. And how stages are stored.

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

/// Updates stages, in one transaction.
pub(super) async fn update_stages(
    store: &Sqlite,
    now: Now,
    jobs: &[StageUpdate],
    actor: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    let outcomes = store
        .write(jobs.len() * 4, |tx| {
            let now = tx.now(now);
            jobs.iter().map(|update| update_stage(tx, now, update, actor)).collect()
        })
        .await?;
    // Lanes may have been added; they may be cached once they are committed.
    store.read_lanes()?;
    Ok(outcomes)
}

fn update_stage(
    tx: &Tx<'_>,
    now: Time,
    update: &StageUpdate,
    actor: &Actor,
) -> Result<ControlOutcome, Error> {
    let Some(JobRow { placement, state, in_ready, epoch, rev, .. }) = job_actions::read_job(tx, update.job)?
    else {
        return Ok(ControlOutcome::Unknown);
    };
    match state {
        State::Done => return Ok(outcome::update_done()),
        State::Running => return Ok(outcome::update_running()),
        _ if (epoch, rev) != (update.epoch, update.rev) => return Ok(outcome::update_moved()),
        _ => {}
    }
    let old = tx.store.lane(tx, placement.lane)?;
    let kind = KindVersion { kind: old.kind.kind, version: update.version };
    let name = (old.queue.as_str(), &kind, old.bucket);
    tx.intern(name)?;
    let lane = tx.lane_for(name)?.id;
    if in_ready {
        tx.remove_placement(&placement)?;
    }
    let stage = Stage::of(&update.stage, &update.data);
    let params =
        params![placement.id.as_bytes(), lane, stage.name, stage.codec, stage.inline, stage.is_external];
    tx.execute(sql::control::UPDATE_STAGE, params)?;
    tx.count_deleted(placement.lane, state);
    tx.count_added(lane, state);
    tx.note_period(lane, update.job);
    write_data(tx, placement.id, &update.data)?;
    if in_ready {
        tx.make_ready(&Placement { lane, ..placement })?;
    }
    admin::log(tx, now, &columns::stage_update_action(update), &update.job.to_string(), actor)?;
    Ok(ControlOutcome::Done)
}

/// A stage as it is stored: data in the row, or in `payloads` if it is large.
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

    /// The stage that a change leads to; nothing if it leaves the stage as it is.
    pub(super) fn after(change: &'a Change) -> Stage<'a> {
        let stage = change.writes.as_ref().and_then(|step| step.stage.as_ref());
        stage.map(|(name, data)| Stage::of(name, data)).unwrap_or_default()
    }
}

/// Writes external data, or deletes what was external before.
pub(super) fn write_data(tx: &Tx<'_>, id: JobId, data: &Payload) -> Result<(), Error> {
    if data.bytes.len() > INLINE_LIMIT {
        let params = params![id.as_bytes(), DATA, data.bytes];
        tx.execute(sql::submit::ADD_PAYLOAD, params)?;
    } else {
        tx.execute(sql::commit::DROP_EXTERNAL_DATA, [id.as_bytes()])?;
    }
    Ok(())
}
