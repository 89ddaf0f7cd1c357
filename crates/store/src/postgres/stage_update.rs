//! Giving machines another version, stage and data.

use std::collections::HashMap;

use uuid::Uuid;
use windlass_model::{JobId, KindVersion, State};

use super::{
    Postgres,
    conn::retry_deadlock,
    control::{log, transaction},
    job_actions::{Held, hold, live_state},
    pool::Guard,
    serial, sql,
};
use crate::{
    Actor, ControlOutcome, Error, Now, StageUpdate, columns,
    control::{check_actor, outcome},
};

pub(super) async fn restate(
    store: &Postgres,
    now: Now,
    jobs: &[StageUpdate],
    by: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    check_actor(by)?;
    jobs.iter().try_for_each(|restate| columns::check_stage_update(restate, &store.shared.options.limits))?;
    make_lanes(store, jobs).await?;
    let mut dids: Vec<ControlOutcome> = Vec::with_capacity(jobs.len());
    // A job that is named twice has its second turn after its first.
    let mut rest = jobs;
    while !rest.is_empty() {
        let named_before = |(place, restate): (usize, &StageUpdate)| {
            rest[..place].iter().any(|before| before.job == restate.job)
        };
        let twice = rest.iter().enumerate().position(named_before).unwrap_or(rest.len());
        let (wave, later) = rest.split_at(twice);
        dids.extend(retry_deadlock!(once(store, now, wave, by))?);
        rest = later;
    }
    Ok(dids)
}

/// Makes the lanes of the versions that are asked for; they are committed before they are used.
async fn make_lanes(store: &Postgres, jobs: &[StageUpdate]) -> Result<(), Error> {
    let ids: Vec<Uuid> = jobs.iter().map(|restate| restate.job.0).collect();
    let conn = store.conn().await?;
    let rows = conn.query(sql::control::LANES_OF_JOBS, &[&ids]).await?;
    store.know_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
    drop(conn);
    let lanes: HashMap<JobId, i32> = rows.iter().map(|row| (JobId(row.get(0)), row.get(1))).collect();
    let mut names = Vec::new();
    for restate in jobs {
        if let Some(lane) = lanes.get(&restate.job) {
            let lane = store.lane(*lane)?;
            let kind = KindVersion { version: restate.version, ..lane.kind };
            names.push((lane.queue, kind, lane.bucket));
        }
    }
    store.intern(names.iter().map(|(queue, kind, bucket)| (queue.as_str(), kind, *bucket))).await
}

/// Restates jobs of which none is named twice.
async fn once(
    store: &Postgres,
    now: Now,
    jobs: &[StageUpdate],
    by: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    let ids: Vec<Uuid> = jobs.iter().map(|restate| restate.job.0).collect();
    let asked: HashMap<Uuid, &StageUpdate> = jobs.iter().map(|restate| (restate.job.0, restate)).collect();
    let moved = |job: &Held, restate: &StageUpdate| (job.epoch, job.rev) != (restate.epoch, restate.rev);
    transaction(store, now, async |conn, now| {
        let held = hold(conn, &ids, |job| !moved(job, asked[&job.id])).await?;
        let mut dids = Vec::with_capacity(jobs.len());
        for restate in jobs {
            let Some(job) = held.get(&restate.job.0) else {
                dids.push(ControlOutcome::Unknown);
                continue;
            };
            // One that has moved was left where it is, which may be the ready set.
            let state = match (job.ended, moved(job, restate)) {
                (None, true) => live_state(conn, job).await?,
                _ => job.state(),
            };
            dids.push(match state {
                State::Done => outcome::restate_done(),
                State::Running => outcome::restate_running(),
                _ if moved(job, restate) => outcome::restate_moved(),
                _ => {
                    write(store, conn, job, restate).await?;
                    log(conn, now, &columns::stage_update_action(restate), &[restate.job.to_string()], by)
                        .await?;
                    ControlOutcome::Done
                }
            });
        }
        let back: Vec<Uuid> = held.values().filter(|job| job.was_ready).map(|job| job.id).collect();
        serial::enter(conn, &back).await?;
        Ok(dids)
    })
    .await
}

/// Writes one that is locked and in no ready set.
async fn write(store: &Postgres, conn: &Guard<'_>, job: &Held, restate: &StageUpdate) -> Result<(), Error> {
    let lane = store.lane(job.lane)?;
    let kind = KindVersion { version: restate.version, ..lane.kind };
    let lane = store.shared.lanes.get_in(&lane.queue, &kind, lane.bucket);
    let lane = lane.ok_or_else(|| Error::Unavailable("a lane is being made; try again".into()))?;
    let (codec, bytes) = (i16::from(restate.data.codec), &restate.data.bytes);
    let sql = sql::control::UPDATE_STAGE;
    conn.execute(sql, &[&restate.job.0, &lane.id, &restate.stage, &codec, bytes]).await.map(drop)
}
