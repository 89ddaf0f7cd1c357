//! Workers: registering, renewing leases, releasing jobs, retiring.

use rusqlite::{Row, params};
use windlass_model::{ClaimNo, Epoch, JobClaim, JobId, Lease, Time, WorkerId, WorkerStatus};

use super::{
    claim::read_claim,
    serial::Placement,
    sql,
    tx::{PAIR_BYTES, Tx, read_id, unpack},
};
use crate::{
    Actor, CancelRequest, Error, NewWorker, Now, RenewRequest, Renewal,
    columns::{self, ALIVE, DEAD},
};

pub(super) fn register(tx: &Tx<'_>, now: Now, worker: &NewWorker) -> Result<bool, Error> {
    let now = tx.now(now);
    tx.execute(sql::workers::DELETE_GONE, params![now.micros(), worker.id.0])?;
    let lease_until = (now + worker.lease).micros();
    let serves = serde_json::to_string(&worker.serves).expect("names and numbers are plain data");
    let params = params![worker.id.0, worker.name, worker.liveness_file, lease_until, serves, worker.token];
    Ok(tx.execute(sql::workers::REGISTER, params)? == 1)
}

pub(super) fn renew(tx: &Tx<'_>, now: Now, request: &RenewRequest) -> Result<Renewal, Error> {
    let now = tx.now(now);
    settle_claims(tx, request.worker, &request.settled)?;
    for number in &request.solo_ended {
        tx.execute(sql::workers::END_SOLO, [request.worker.0, number.0])?;
    }
    let progress = request.progress.as_deref().map(columns::progress_text);
    let params = params![request.worker.0, (now + request.lease).micros(), now.micros(), progress];
    let held =
        tx.query_one(sql::workers::RENEW, params, |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let Some((lapsed, claims)) = held else { return Ok(Renewal::Lost) };
    let claims = serde_json::from_str(&claims).map_err(|e| Error::Fault(e.to_string()))?;
    Ok(Renewal::Held { lapsed, claims })
}

/// Reads the lease of a worker from its status and the time.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Lease> {
    let status = match row.get::<_, i16>(0)? {
        ALIVE => WorkerStatus::Alive,
        DEAD => WorkerStatus::Dead,
        _ => WorkerStatus::Gone,
    };
    Ok(Lease { status, until: Time(row.get(1)?) })
}

/// Deletes claims that have no claimed jobs left. One that has some stays: their outcomes were lost, and it is
/// released once its worker has noticed that it does not know the claim.
pub(super) fn settle_claims(tx: &Tx<'_>, worker: WorkerId, numbers: &[ClaimNo]) -> Result<(), Error> {
    for number in numbers {
        let left_bytes = tx.store.shared.open_claims.settled(worker, *number);
        let left_bytes = i64::try_from(left_bytes * PAIR_BYTES).unwrap_or(0);
        if tx.execute(sql::claim::REMOVE_SETTLED, [worker.0, number.0, left_bytes])? == 1 {
            continue;
        }
        let mut has_claimed_jobs = false;
        for (id, epoch) in read_claim(tx, worker, *number)?.unwrap_or_default() {
            let sql = sql::claim::IS_CLAIMED;
            has_claimed_jobs |= tx.query_one(sql, params![id.as_bytes(), epoch.0], |_| Ok(()))?.is_some();
        }
        if !has_claimed_jobs {
            tx.execute(sql::claim::REMOVE, [worker.0, number.0])?;
        }
    }
    Ok(())
}

pub(super) fn release(tx: &Tx<'_>, jobs: &[JobClaim]) -> Result<usize, Error> {
    let mut pairs = Vec::with_capacity(jobs.len());
    for held in jobs {
        if tx.is_recorded(held.worker, held.claim)? {
            pairs.push((held.job, held.epoch));
        }
    }
    return_jobs(tx, &pairs)
}

/// Returns jobs whose epoch is the given one to the positions they had in the ready set.
pub(super) fn return_jobs(tx: &Tx<'_>, jobs: &[(JobId, Epoch)]) -> Result<usize, Error> {
    let mut released = 0;
    for (id, epoch) in jobs {
        let placement = tx.query_one(sql::workers::RELEASE, params![id.as_bytes(), epoch.0], |row| {
            Placement::read(*id, row, 0)
        })?;
        if let Some(placement) = placement {
            tx.enter(&placement)?;
            released += 1;
        }
    }
    Ok(released)
}

pub(super) fn retire(tx: &Tx<'_>, worker: WorkerId) -> Result<usize, Error> {
    if tx.execute(sql::workers::RETIRE, [worker.0])? == 0 {
        return Ok(0);
    }
    release_claims(tx, worker, |_| true)
}

/// Returns the jobs in those claims of a worker that `is_meant` accepts, and deletes the claims.
pub(super) fn release_claims(
    tx: &Tx<'_>,
    worker: WorkerId,
    is_meant: impl Fn(ClaimNo) -> bool,
) -> Result<usize, Error> {
    let mut statement = tx.prepare(sql::workers::READ_CLAIMS)?;
    let claims = statement
        .query_map([worker.0], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))?
        .collect::<Result<Vec<_>, _>>()?;
    let mut released = 0;
    for (number, jobs) in claims.into_iter().filter(|(number, _)| is_meant(ClaimNo(*number))) {
        released += return_jobs(tx, &unpack(&jobs)?)?;
        tx.execute(sql::claim::REMOVE, [worker.0, number])?;
    }
    Ok(released)
}

/// The cancel requests for a worker's attempts.
pub(super) fn cancel_requests(tx: &Tx<'_>, worker: WorkerId) -> Result<Vec<CancelRequest>, Error> {
    tx.query_all(sql::workers::CANCEL_REQUESTS, [worker.0], |row| {
        let actor = Actor { author: row.get(3)?, note: row.get(4)? };
        Ok(CancelRequest {
            job: read_id(row, 0)?,
            epoch: Epoch(row.get(1)?),
            deadline_at: Time(row.get(2)?),
            actor,
        })
    })
}
