//! Workers: enlisting, renewing, handing back, retiring.

use rusqlite::params;
use windlass_model::{ClaimNo, Epoch, JobClaim, JobId, Time, WorkerId};

use super::{
    claim::read_claim,
    serial::Placement,
    sql,
    tx::{PAIR, Tx, id_of, unpack},
};
use crate::{Actor, CancelRequest, Error, NewWorker, Now, RenewRequest, Renewal};

pub(super) fn enlist(tx: &Tx<'_>, now: Now, worker: &NewWorker) -> Result<bool, Error> {
    let now = tx.now(now);
    tx.run(sql::workers::DELETE_GONE, params![now.micros(), worker.id.0])?;
    let lease_until = now.plus(worker.lease).micros();
    let serves = serde_json::to_string(&worker.serves).expect("names and numbers are plain data");
    let params = params![worker.id.0, worker.name, worker.liveness_file, lease_until, serves];
    Ok(tx.run(sql::workers::REGISTER, params)? == 1)
}

pub(super) fn renew(tx: &Tx<'_>, now: Now, beat: &RenewRequest) -> Result<Renewal, Error> {
    let now = tx.now(now);
    settle(tx, beat.worker, &beat.settled)?;
    for number in &beat.to_confirm {
        tx.run(sql::workers::END_SOLO, [beat.worker.0, number.0])?;
    }
    let params = params![beat.worker.0, now.plus(beat.lease).micros(), now.micros()];
    let held = tx.one(sql::workers::RENEW, params, |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let Some((lapsed, claims)) = held else { return Ok(Renewal::Lost) };
    let claims = serde_json::from_str(&claims).map_err(|e| Error::Fault(e.to_string()))?;
    Ok(Renewal::Held { lapsed, claims })
}

/// Forgets claims of which nothing is left. One that still has jobs stays, and is handed back once its worker has seen that
/// it does not know it: the outcomes of these jobs were lost.
pub(super) fn settle(tx: &Tx<'_>, worker: WorkerId, numbers: &[ClaimNo]) -> Result<(), Error> {
    for number in numbers {
        let gone = tx.store.shared.open_claims.settled(worker, *number);
        let gone = i64::try_from(gone * PAIR).unwrap_or(0);
        if tx.run(sql::claim::REMOVE_SETTLED, [worker.0, number.0, gone])? == 1 {
            continue;
        }
        let mut left = false;
        for (id, epoch) in read_claim(tx, worker, *number)?.unwrap_or_default() {
            let sql = sql::claim::IS_CLAIMED;
            left |= tx.one(sql, params![id.as_bytes(), epoch.0], |_| Ok(()))?.is_some();
        }
        if !left {
            tx.run(sql::claim::REMOVE, [worker.0, number.0])?;
        }
    }
    Ok(())
}

pub(super) fn release(tx: &Tx<'_>, jobs: &[JobClaim]) -> Result<usize, Error> {
    let mut pairs = Vec::with_capacity(jobs.len());
    for held in jobs {
        if tx.knows(held.worker, held.claim)? {
            pairs.push((held.job, held.epoch));
        }
    }
    hand_back(tx, &pairs)
}

/// Puts jobs back where they stood in line, those whose epoch is the given one.
pub(super) fn hand_back(tx: &Tx<'_>, jobs: &[(JobId, Epoch)]) -> Result<usize, Error> {
    let mut released = 0;
    for (id, epoch) in jobs {
        let spot = tx.one(sql::workers::RELEASE, params![id.as_bytes(), epoch.0], |row| {
            Placement::read(*id, row, 0)
        })?;
        if let Some(spot) = spot {
            tx.enter(&spot)?;
            released += 1;
        }
    }
    Ok(released)
}

pub(super) fn retire(tx: &Tx<'_>, worker: WorkerId) -> Result<usize, Error> {
    if tx.run(sql::workers::RETIRE, [worker.0])? == 0 {
        return Ok(0);
    }
    disown(tx, worker, |_| true)
}

/// Hands back what is in a worker's claims, those that are meant.
pub(super) fn disown(tx: &Tx<'_>, worker: WorkerId, meant: impl Fn(ClaimNo) -> bool) -> Result<usize, Error> {
    let mut statement = tx.prepare(sql::workers::READ_CLAIMS)?;
    let claims = statement
        .query_map([worker.0], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))?
        .collect::<Result<Vec<_>, _>>()?;
    let mut released = 0;
    for (number, jobs) in claims.into_iter().filter(|(number, _)| meant(ClaimNo(*number))) {
        released += hand_back(tx, &unpack(&jobs)?)?;
        tx.run(sql::claim::REMOVE, [worker.0, number])?;
    }
    Ok(released)
}

/// Which of a worker's attempts were told to end.
pub(super) fn orders(tx: &Tx<'_>, worker: WorkerId) -> Result<Vec<CancelRequest>, Error> {
    tx.all(sql::workers::CANCEL_REQUESTS, [worker.0], |row| {
        let by = Actor { author: row.get(3)?, note: row.get(4)? };
        Ok(CancelRequest {
            job: id_of(row, 0)?,
            epoch: Epoch(row.get(1)?),
            deadline_at: Time(row.get(2)?),
            actor: by,
        })
    })
}
