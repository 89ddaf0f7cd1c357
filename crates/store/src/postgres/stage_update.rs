//! Giving machines another version, stage and data.

use std::collections::HashMap;

use uuid::Uuid;
use windlass_model::{JobId, KindVersion, State};

use super::{
    Postgres,
    change_params::Param,
    conn::retry_deadlock,
    control::{log, transaction},
    errors::PgError,
    job_actions::{LockedJob, live_state, lock},
    serial, sql,
    tx::Tx,
};
use crate::{
    Actor, ControlOutcome, Error, Now, StageUpdate, columns,
    control::{check_actor, outcome},
    list::period_of,
};

pub(super) async fn update_stages(
    store: &Postgres,
    now: Now,
    updates: &[StageUpdate],
    actor: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    check_actor(actor)?;
    updates
        .iter()
        .try_for_each(|update| columns::check_stage_update(update, &store.shared.options.limits))?;
    intern_lanes(store, updates).await?;
    let mut outcomes: Vec<ControlOutcome> = Vec::with_capacity(updates.len());
    // A job that is named twice is updated twice, the second time in a later transaction.
    let mut rest = updates;
    while !rest.is_empty() {
        let is_repeated = |(index, update): (usize, &StageUpdate)| {
            rest[..index].iter().any(|earlier| earlier.job == update.job)
        };
        let end = rest.iter().enumerate().position(is_repeated).unwrap_or(rest.len());
        let (wave, later) = rest.split_at(end);
        outcomes.extend(retry_deadlock!(update_distinct(store, now, wave, actor))?);
        rest = later;
    }
    Ok(outcomes)
}

/// Adds the lanes of the new versions, which are committed before they are used.
async fn intern_lanes(store: &Postgres, updates: &[StageUpdate]) -> Result<(), PgError> {
    let ids: Vec<Uuid> = updates.iter().map(|update| update.job.0).collect();
    let conn = store.conn().await?;
    let rows = conn.query(sql::control::LANES_OF_JOBS, &[&ids]).await?;
    store.ensure_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
    drop(conn);
    let lanes: HashMap<JobId, i32> = rows.iter().map(|row| (JobId(row.get(0)), row.get(1))).collect();
    let mut names = Vec::new();
    for update in updates {
        if let Some(lane) = lanes.get(&update.job) {
            let lane = store.lane(*lane)?;
            let kind = KindVersion { version: update.version, ..lane.kind };
            names.push((lane.queue, kind, lane.bucket));
        }
    }
    store.intern_lanes(names.iter().map(|(queue, kind, bucket)| (queue.as_str(), kind, *bucket))).await
}

/// Updates jobs of which none is named twice.
async fn update_distinct(
    store: &Postgres,
    now: Now,
    updates: &[StageUpdate],
    actor: &Actor,
) -> Result<Vec<ControlOutcome>, PgError> {
    let ids: Vec<Uuid> = updates.iter().map(|update| update.job.0).collect();
    let by_job: HashMap<Uuid, &StageUpdate> = updates.iter().map(|update| (update.job.0, update)).collect();
    let has_moved =
        |job: &LockedJob, update: &StageUpdate| (job.epoch, job.rev) != (update.epoch, update.rev);
    transaction(store, now, async |tx, now| {
        let locked = lock(tx, &ids, |job| !has_moved(job, by_job[&job.id])).await?;
        let mut outcomes = Vec::with_capacity(updates.len());
        for update in updates {
            let Some(job) = locked.get(&update.job.0) else {
                outcomes.push(ControlOutcome::Unknown);
                continue;
            };
            // A job that has moved was not taken out of the ready set.
            let state = match (job.ended, has_moved(job, update)) {
                (None, true) => live_state(tx, job).await?,
                _ => job.state(),
            };
            outcomes.push(match state {
                State::Done => outcome::update_done(),
                State::Running => outcome::update_running(),
                _ if has_moved(job, update) => outcome::update_moved(),
                _ => {
                    write(store, tx, job, update).await?;
                    let action = columns::stage_update_action(update);
                    log(tx, now, &action, &[update.job.to_string()], actor).await?;
                    ControlOutcome::Done
                }
            });
        }
        let were_ready: Vec<Uuid> = locked.values().filter(|job| job.was_ready).map(|job| job.id).collect();
        serial::enter(tx, &were_ready).await?;
        Ok(outcomes)
    })
    .await
}

/// Updates a job that is locked and not in the ready set.
async fn write(store: &Postgres, tx: &Tx<'_>, job: &LockedJob, update: &StageUpdate) -> Result<(), PgError> {
    let lane = store.lane(job.lane)?;
    let kind = KindVersion { version: update.version, ..lane.kind };
    let lane = store.shared.lanes.get_in(&lane.queue, &kind, lane.bucket);
    let lane = lane.ok_or_else(|| Error::Unavailable("a lane is being added; try again".into()))?;
    let (codec, bytes) = (i16::from(update.data.codec), &update.data.bytes);
    let period = period_of(update.job);
    let params: [Param<'_>; 7] =
        [&update.job.0, &lane.id, &update.stage, &codec, bytes, &tx.count_writer, &period];
    tx.execute(sql::control::UPDATE_STAGE, &params).await.map(drop)
}
