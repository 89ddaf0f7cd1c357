//! Workers: registering, renewing their leases, releasing their claims, retiring.

use windlass_model::{ClaimNo, Epoch, JobClaim, JobId, Time, WorkerId};

use super::{Postgres, SPAN, change_params::Param, errors::PgError, micros, serial, span, sql, tx::Tx};
use crate::{Actor, CancelRequest, Error, NewWorker, Now, RenewRequest, Renewal, columns};

pub(super) async fn register(store: &Postgres, now: Now, worker: &NewWorker) -> Result<bool, Error> {
    let serves = serde_json::to_string(&worker.serves).expect("names are plain data");
    store.shared.pool.set_has_worker();
    let conn = store.conn().await?;
    let wrote = conn
        .execute(
            sql::workers::REGISTER,
            &[
                &micros(now),
                &worker.id.0,
                &worker.name,
                &worker.liveness_file,
                &span(worker.lease),
                &serves,
                &worker.token,
            ],
        )
        .await?;
    Ok(wrote == 1)
}

pub(super) async fn renew(store: &Postgres, now: Now, request: &RenewRequest) -> Result<Renewal, Error> {
    let settled: Vec<i64> = request.settled.iter().map(|number| number.0).collect();
    let solo_ended: Vec<i64> = request.solo_ended.iter().map(|number| number.0).collect();
    let progress = request.progress.as_deref().map(columns::progress_text);
    let conn = store.conn().await?;
    let rows = conn
        .query_autocommit(
            sql::workers::RENEW,
            &[&micros(now), &request.worker.0, &span(request.lease), &settled, &solo_ended, &progress],
        )
        .await?;
    let held = |row: &tokio_postgres::Row| {
        let claims = row.get::<_, Vec<i64>>(1).into_iter().map(ClaimNo).collect();
        Renewal::Held { lapsed: row.get(0), claims }
    };
    Ok(rows.first().map_or(Renewal::Lost, held))
}

pub(super) async fn release(store: &Postgres, jobs: &[JobClaim]) -> Result<usize, Error> {
    if jobs.is_empty() {
        return Ok(0);
    }
    let mut conn = store.conn().await?;
    let tx = Tx::write(&mut conn).await?;
    let part = |claim: &JobClaim| (claim.job, claim.epoch, Some((claim.worker, claim.claim)));
    let released = return_jobs(&tx, jobs.iter().map(part).collect()).await;
    let released = tx.finish(released).await;
    store.shared.floors.lowered(i64::MIN);
    Ok(released?)
}

pub(super) async fn cancel_requests(store: &Postgres, worker: WorkerId) -> Result<Vec<CancelRequest>, Error> {
    let rows = store.conn().await?.query(sql::workers::CANCEL_REQUESTS, &[&worker.0]).await?;
    let request = |row: &tokio_postgres::Row| CancelRequest {
        job: JobId(row.get(0)),
        epoch: Epoch(row.get(1)),
        deadline_at: Time(row.get(2)),
        actor: Actor { author: row.get(3), note: row.get(4) },
    };
    Ok(rows.iter().map(request).collect())
}

/// A job to return, with the claim that must be recorded for it, if one must.
type ReturnedJob = (JobId, Epoch, Option<(WorkerId, ClaimNo)>);

/// Returns claimed jobs to the ready set, and raises their epochs. Returns how many.
async fn return_jobs(tx: &Tx<'_>, mut jobs: Vec<ReturnedJob>) -> Result<usize, PgError> {
    jobs.sort_unstable();
    let ids: Vec<_> = jobs.iter().map(|(id, ..)| id.0).collect();
    let epochs: Vec<i32> = jobs.iter().map(|(_, epoch, _)| epoch.0).collect();
    let workers: Vec<_> = jobs.iter().map(|(.., claim)| claim.map(|(worker, _)| worker.0)).collect();
    let claims: Vec<_> = jobs.iter().map(|(.., claim)| claim.map(|(_, number)| number.0)).collect();
    let params: [Param<'_>; 6] = [&ids, &epochs, &SPAN, &tx.gate_writer, &workers, &claims];
    let rows = tx.query(sql::workers::RELEASE, &params).await?;
    let Some(row) = rows.first() else { return Ok(0) };
    // Jobs that are held now give up their serial slots.
    serial::settle(tx, &row.get::<_, Option<Vec<uuid::Uuid>>>(1).unwrap_or_default()).await?;
    serial::fill_slots(tx).await?;
    Ok(row.get::<_, i64>(0) as usize)
}

pub(super) async fn retire(store: &Postgres, worker: WorkerId) -> Result<usize, Error> {
    return_claims(store, worker, None).await
}

pub(super) async fn release_claims(
    store: &Postgres,
    worker: WorkerId,
    numbers: &[ClaimNo],
) -> Result<usize, Error> {
    return_claims(store, worker, Some(numbers.iter().map(|number| number.0).collect())).await
}

/// Returns the jobs in a worker's claims: in those numbered, or in all of them, which also retires the worker.
async fn return_claims(
    store: &Postgres,
    worker: WorkerId,
    numbers: Option<Vec<i64>>,
) -> Result<usize, Error> {
    let mut conn = store.conn().await?;
    let tx = Tx::write(&mut conn).await?;
    let work = async {
        if numbers.is_none() && tx.execute(sql::workers::RETIRE, &[&worker.0]).await? == 0 {
            return Ok(0);
        }
        let rows = tx.query(sql::workers::TAKE_CLAIMS, &[&worker.0, &numbers]).await?;
        let mut jobs = Vec::new();
        for row in rows {
            let (ids, epochs): (Vec<uuid::Uuid>, Vec<i32>) = (row.get(0), row.get(1));
            let pairs = ids.into_iter().map(JobId).zip(epochs.into_iter().map(Epoch));
            jobs.extend(pairs.map(|(id, epoch)| (id, epoch, None)));
        }
        return_jobs(&tx, jobs).await
    };
    let released = work.await;
    let released = tx.finish(released).await;
    store.shared.floors.lowered(i64::MIN);
    Ok(released?)
}
