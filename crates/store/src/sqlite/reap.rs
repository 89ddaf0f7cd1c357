//! Returning the jobs of lost workers.

use rusqlite::params;
use windlass_model::{
    Epoch, JobId, Reason, Time, Unwind, WorkerId,
    crash::{Fate, after_death},
};

use super::{
    flow::Spot,
    tx::{Tx, unpack},
};
use crate::{Error, Now, Reaped, Sweep, memory::lost, pick};

/// One recorded claim of a dead worker.
struct Claim {
    worker: WorkerId,
    number: i64,
    alone: bool,
    claimed_at: Time,
    jobs: Vec<u8>,
}

pub(super) fn reap(tx: &Tx<'_>, now: Now, sweep: &Sweep) -> Result<Reaped, Error> {
    let now = tx.now(now);
    let mut reaped = Reaped::default();
    let mut dead = sweep.dead.clone();
    if sweep.lapsed {
        let mut statement = tx.prepare(include_str!("sql/reap_lapsed.sql"))?;
        let lapsed = statement.query_map([now.micros()], |row| Ok(WorkerId(row.get(0)?)))?;
        dead.extend(lapsed.collect::<Result<Vec<_>, _>>()?);
    }
    dead.sort_unstable();
    dead.dedup();
    for worker in dead {
        if tx.run(include_str!("sql/reap_worker.sql"), [worker.0])? == 1 {
            reaped.workers.push(worker);
        }
    }
    let claims = {
        let mut statement = tx.prepare(include_str!("sql/reap_claims.sql"))?;
        let claims = statement.query_map([sweep.limit as i64], |row| {
            Ok(Claim {
                worker: WorkerId(row.get(0)?),
                number: row.get(1)?,
                alone: row.get(2)?,
                claimed_at: Time(row.get(3)?),
                jobs: row.get(4)?,
            })
        })?;
        claims.collect::<Result<Vec<_>, _>>()?
    };
    for claim in claims {
        for (id, epoch) in unpack(&claim.jobs)? {
            return_job(tx, now, &claim, id, epoch, sweep.crashes, &mut reaped)?;
        }
        tx.run(include_str!("sql/claim_settle.sql"), [claim.worker.0, claim.number])?;
    }
    tx.run(include_str!("sql/reap_gone.sql"), [])?;
    reaped.more = tx.one(include_str!("sql/reap_more.sql"), [], |row| row.get(0))?.unwrap_or(false);
    Ok(reaped)
}

fn return_job(
    tx: &Tx<'_>,
    now: Time,
    claim: &Claim,
    id: JobId,
    epoch: Epoch,
    cap: u16,
    reaped: &mut Reaped,
) -> Result<(), Error> {
    let row = tx.one(include_str!("sql/reap_job.sql"), params![id.as_bytes(), epoch.0], |row| {
        let counters = (row.get::<_, u16>(12)?, row.get::<_, u16>(13)?);
        Ok((Spot::read(id, row, 0)?, counters, row.get::<_, bool>(14)?))
    })?;
    let Some((spot, (deaths, crashes), unwinds)) = row else { return Ok(()) };
    let death = lost(claim.worker, claim.alone);
    let failure = pick::failure_text(&death);
    let (worker, started_at) = (claim.worker.0, claim.claimed_at.micros());
    let attempt = params![id.as_bytes(), epoch.0, worker, started_at, now.micros(), failure];
    tx.run(include_str!("sql/commit_attempt.sql"), attempt)?;
    match after_death(deaths, crashes, claim.alone, cap) {
        Fate::Suspect { deaths, crashes } => {
            tx.run(include_str!("sql/reap_return.sql"), params![id.as_bytes(), deaths, crashes, failure])?;
            tx.enter(&Spot { suspect: true, ..spot })?;
            reaped.returned += 1;
        }
        Fate::Poison { .. } if unwinds => {
            let unwind = Unwind { reason: Some(Reason::Poison), failure: death };
            tx.unwind(now, &spot, &unwind, Some(&failure))?;
            reaped.poisoned += 1;
        }
        Fate::Poison { deaths, crashes } => {
            let reason = pick::reason_number(Reason::Poison);
            let params = params![id.as_bytes(), deaths, crashes, failure, reason, now.micros()];
            tx.run(include_str!("sql/reap_poison.sql"), params)?;
            tx.clear(now, &spot)?;
            reaped.poisoned += 1;
        }
    }
    Ok(())
}
