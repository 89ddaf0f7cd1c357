//! Reads for people: machines, their transitions, inboxes and children; and what people make of machines.

use rusqlite::params;
use windlass_model::{Awaited, JobId, KindVersion, Payload, Rev, Signal, State, Time, WorkerId};

use super::{
    Sqlite,
    act::{self, JobRow},
    admin,
    serial::Placement,
    signal, sql,
    step::{self, Stage},
    tx::{Tx, id_of},
    views::most,
};
use crate::{
    Actor, ChildEnd, ControlOutcome, Error, JobEnd, Now, StageUpdate, Transition, TransitionCount, Waiting,
    columns, control::outcome,
};

pub(super) fn inbox(tx: &Tx<'_>, id: JobId, limit: usize) -> Result<Vec<Signal>, Error> {
    tx.all(sql::inspect::INBOX, params![id.as_bytes(), most(limit)], |row| {
        Ok(Signal { unreadable: row.get(5)?, ..signal::read(row)? })
    })
}

pub(super) fn steps(
    tx: &Tx<'_>,
    id: JobId,
    after: Option<Rev>,
    limit: usize,
) -> Result<Vec<Transition>, Error> {
    let after = after.map_or(-1, |rev| rev.0);
    tx.all(sql::inspect::TRANSITIONS, params![id.as_bytes(), after, most(limit)], |row| {
        Ok(Transition {
            rev: Rev(row.get(0)?),
            stage: row.get(1)?,
            next: row.get(2)?,
            how: row.get(3)?,
            at: Time(row.get(4)?),
            worker: WorkerId(row.get(5)?),
        })
    })
}

pub(super) fn paths(tx: &Tx<'_>, kind: &str, limit: usize) -> Result<Vec<TransitionCount>, Error> {
    tx.all(sql::inspect::TRANSITION_COUNTS, params![kind, most(limit)], |row| {
        Ok(TransitionCount {
            version: row.get(0)?,
            stage: row.get(1)?,
            next: row.get(2)?,
            how: row.get(3)?,
            times: row.get::<_, i64>(4)? as u64,
        })
    })
}

pub(super) fn joined(
    tx: &Tx<'_>,
    parent: JobId,
    round: Rev,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<ChildEnd>, Error> {
    let after = after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    let mut statement = tx.prepare(sql::children::CHILD_ENDS)?;
    let mut rows = statement.query(params![parent.as_bytes(), round.0, after, most(limit)])?;
    let mut joined = Vec::new();
    while let Some(row) = rows.next()? {
        let output: Option<Vec<u8>> = row.get(7)?;
        let output = output.map(|bytes| Ok::<_, Error>(Payload { codec: row.get(6)?, bytes })).transpose()?;
        let failure = columns::failure(row.get::<_, Option<String>>(5)?.as_deref());
        let reason = columns::reason(row.get(4)?);
        let state = columns::final_state(row.get(3)?);
        joined.push(ChildEnd {
            id: id_of(row, 0)?,
            kind: tx.store.lane(tx, row.get(1)?)?.kind.kind,
            key: row.get(2)?,
            ended: state.and_then(|state| JobEnd::from_parts(state, reason, failure, output)),
        });
    }
    Ok(joined)
}

/// What a parked job waits for, and what of it is there.
pub(super) fn waiting(tx: &Tx<'_>, spot: &Placement) -> Result<Option<Waiting>, Error> {
    if !spot.parked {
        return Ok(None);
    }
    let id = spot.id.as_bytes();
    let found = tx.one(sql::inspect::WAIT, [id], |row| {
        let wait = row.get::<_, Option<String>>(0)?;
        Ok((wait, row.get::<_, Option<i64>>(1)?, row.get(2)?))
    })?;
    let Some((wait, until, pending)) = found else { return Ok(None) };
    let what = columns::wait(wait.as_deref()).unwrap_or(Awaited::Nothing);
    let mut there: Vec<String> = tx.all(sql::signals::INBOX_NAMES, [id], |row| row.get(0))?;
    there.sort_unstable();
    there.dedup();
    let (until, aside) = (until.map(Time), signal::aside(tx, id)?);
    Ok(Some(Waiting { what, until, arrived: there, pending, aside }))
}

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
    let Some(JobRow { spot, state, placed, epoch, rev, .. }) = act::read_job(tx, restate.job)? else {
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
    step::keep_data(tx, spot.id, &restate.data)?;
    if placed {
        tx.make_ready(&Placement { lane, ..spot })?;
    }
    admin::log(tx, now, &columns::stage_update_action(restate), &restate.job.to_string(), by)?;
    Ok(ControlOutcome::Done)
}
