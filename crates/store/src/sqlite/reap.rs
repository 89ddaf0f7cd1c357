//! Returning the jobs of dead workers.

use rusqlite::params;
use windlass_model::{
    Epoch, JobId, Reason, State, Time, Unwind, WorkerId,
    crash::{AfterDeath, after_death, lost},
};

use super::{
    serial::Placement,
    sql,
    tx::{Tx, unpack},
};
use crate::{Error, Now, ReapReport, ReapRequest, columns};

/// A recorded claim of a dead worker.
struct Claim {
    worker: WorkerId,
    number: i64,
    solo: bool,
    claimed_at: Time,
    jobs: Vec<u8>,
}

pub(super) fn reap(tx: &Tx<'_>, now: Now, request: &ReapRequest) -> Result<ReapReport, Error> {
    let now = tx.now(now);
    let mut reaped = ReapReport::default();
    let mut dead = request.dead.clone();
    if request.lapsed {
        let mut statement = tx.prepare(sql::reap::LAPSED)?;
        let lapsed = statement.query_map([now.micros()], |row| Ok(WorkerId(row.get(0)?)))?;
        dead.extend(lapsed.collect::<Result<Vec<_>, _>>()?);
    }
    dead.sort_unstable();
    dead.dedup();
    for worker in dead {
        if tx.execute(sql::reap::DECLARE_DEAD, [worker.0, now.micros()])? == 1 {
            reaped.workers.push(worker);
        }
    }
    let claims = {
        let mut statement = tx.prepare(sql::reap::READ_CLAIMS)?;
        let claims = statement.query_map([request.limit as i64], |row| {
            Ok(Claim {
                worker: WorkerId(row.get(0)?),
                number: row.get(1)?,
                solo: row.get(2)?,
                claimed_at: Time(row.get(3)?),
                jobs: row.get(4)?,
            })
        })?;
        claims.collect::<Result<Vec<_>, _>>()?
    };
    for claim in claims {
        for (id, epoch) in unpack(&claim.jobs)? {
            return_job(tx, now, &claim, id, epoch, request.max_crashes, &mut reaped)?;
        }
        tx.execute(sql::claim::REMOVE, [claim.worker.0, claim.number])?;
    }
    tx.execute(sql::reap::RETIRE_DEAD, [])?;
    reaped.more = tx.query_one(sql::reap::HAS_DEAD, [], |row| row.get(0))?.unwrap_or(false);
    Ok(reaped)
}

fn return_job(
    tx: &Tx<'_>,
    now: Time,
    claim: &Claim,
    id: JobId,
    epoch: Epoch,
    max_crashes: u16,
    reaped: &mut ReapReport,
) -> Result<(), Error> {
    let row = tx.query_one(sql::reap::READ_JOB, params![id.as_bytes(), epoch.0], |row| {
        let counters = (row.get::<_, u16>(12)?, row.get::<_, u16>(13)?);
        Ok((Placement::read(id, row, 0)?, counters, row.get::<_, bool>(14)?))
    })?;
    let Some((placement, (worker_deaths, solo_crashes), must_unwind)) = row else { return Ok(()) };
    let death = lost(claim.worker, claim.solo);
    let failure = columns::failure_text(&death);
    let (worker, started_at) = (claim.worker.0, claim.claimed_at.micros());
    let attempt = params![id.as_bytes(), epoch.0, worker, started_at, now.micros(), failure];
    tx.execute(sql::commit::ADD_ATTEMPT, attempt)?;
    match after_death(worker_deaths, solo_crashes, claim.solo, max_crashes) {
        AfterDeath::Suspect { worker_deaths, solo_crashes } => {
            tx.execute(sql::reap::RETURN_JOB, params![id.as_bytes(), worker_deaths, solo_crashes, failure])?;
            tx.enter(&Placement { suspect: true, ..placement })?;
            reaped.returned += 1;
        }
        AfterDeath::Poison { .. } if must_unwind => {
            let unwind = Unwind { reason: Some(Reason::Poison), failure: death };
            tx.unwind(now, &placement, State::Running, &unwind, Some(&failure))?;
            reaped.poisoned += 1;
        }
        AfterDeath::Poison { worker_deaths, solo_crashes } => {
            let reason = columns::reason_number(Reason::Poison);
            let params = params![id.as_bytes(), worker_deaths, solo_crashes, failure, reason, now.micros()];
            tx.execute(sql::reap::POISON, params)?;
            tx.count_moved(placement.lane, State::Running, State::Failed);
            tx.record_end_outside(now, &placement, State::Failed)?;
            tx.after_end(now, &placement)?;
            reaped.poisoned += 1;
        }
    }
    Ok(())
}
