//! Workers: enlisting, renewing, handing back, retiring.

use windlass_model::{ClaimNo, Epoch, JobClaim, JobId, Time, WorkerId};

use super::{Postgres, SPAN, change_params::Param, micros, pool::Guard, serial, span, sql};
use crate::{Actor, CancelRequest, Error, NewWorker, Now, RenewRequest, Renewal};

pub(super) async fn enlist(store: &Postgres, now: Now, worker: &NewWorker) -> Result<bool, Error> {
    let serves = serde_json::to_string(&worker.serves).expect("names are plain data");
    store.shared.pool.serve();
    let conn = store.conn().await?;
    let wrote = conn
        .execute(
            sql::workers::REGISTER,
            &[&micros(now), &worker.id.0, &worker.name, &worker.liveness_file, &span(worker.lease), &serves],
        )
        .await?;
    Ok(wrote == 1)
}

pub(super) async fn renew(store: &Postgres, now: Now, beat: &RenewRequest) -> Result<Renewal, Error> {
    let settled: Vec<i64> = beat.settled.iter().map(|number| number.0).collect();
    let joined: Vec<i64> = beat.solo_ended.iter().map(|number| number.0).collect();
    let conn = store.conn().await?;
    let rows = conn
        .query_autocommit(
            sql::workers::RENEW,
            &[&micros(now), &beat.worker.0, &span(beat.lease), &settled, &joined],
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
    let conn = store.conn().await?;
    conn.begin().await?;
    let part = |held: &JobClaim| (held.job, held.epoch, Some((held.worker, held.claim)));
    let released = hand_back(&conn, jobs.iter().map(part).collect()).await;
    match &released {
        Ok(_) => conn.commit().await?,
        Err(_) => conn.rollback().await,
    }
    store.shared.floors.lowered(i64::MIN);
    released
}

pub(super) async fn orders(store: &Postgres, worker: WorkerId) -> Result<Vec<CancelRequest>, Error> {
    let rows = store.conn().await?.query(sql::workers::CANCEL_REQUESTS, &[&worker.0]).await?;
    let order = |row: &tokio_postgres::Row| CancelRequest {
        job: JobId(row.get(0)),
        epoch: Epoch(row.get(1)),
        deadline_at: Time(row.get(2)),
        actor: Actor { author: row.get(3), note: row.get(4) },
    };
    Ok(rows.iter().map(order).collect())
}

/// A job to hand back, with the claim that must be recorded for it, if one must.
type Part = (JobId, Epoch, Option<(WorkerId, ClaimNo)>);

async fn hand_back(conn: &Guard<'_>, mut jobs: Vec<Part>) -> Result<usize, Error> {
    jobs.sort_unstable();
    let ids: Vec<_> = jobs.iter().map(|(id, ..)| id.0).collect();
    let epochs: Vec<i32> = jobs.iter().map(|(_, epoch, _)| epoch.0).collect();
    let workers: Vec<_> = jobs.iter().map(|(.., claim)| claim.map(|(worker, _)| worker.0)).collect();
    let claims: Vec<_> = jobs.iter().map(|(.., claim)| claim.map(|(_, number)| number.0)).collect();
    let params: [Param<'_>; 6] = [&ids, &epochs, &SPAN, &conn.gate_writer, &workers, &claims];
    let rows = conn.query(sql::workers::RELEASE, &params).await?;
    let Some(row) = rows.first() else { return Ok(0) };
    // What is held was set aside, and gives up its slot.
    serial::settle(conn, &row.get::<_, Option<Vec<uuid::Uuid>>>(1).unwrap_or_default()).await?;
    serial::hand_over(conn).await?;
    Ok(row.get::<_, i64>(0) as usize)
}

pub(super) async fn retire(store: &Postgres, worker: WorkerId) -> Result<usize, Error> {
    hand_back_claims(store, worker, None).await
}

pub(super) async fn disown(store: &Postgres, worker: WorkerId, numbers: &[ClaimNo]) -> Result<usize, Error> {
    hand_back_claims(store, worker, Some(numbers.iter().map(|number| number.0).collect())).await
}

/// Hands back what is in a worker's claims: in those named, or in all of them, which ends its service.
async fn hand_back_claims(
    store: &Postgres,
    worker: WorkerId,
    numbers: Option<Vec<i64>>,
) -> Result<usize, Error> {
    let conn = store.conn().await?;
    conn.begin().await?;
    let work = async {
        if numbers.is_none() && conn.execute(sql::workers::RETIRE, &[&worker.0]).await? == 0 {
            return Ok(0);
        }
        let rows = conn.query(sql::workers::TAKE_CLAIMS, &[&worker.0, &numbers]).await?;
        let mut jobs = Vec::new();
        for row in rows {
            let (ids, epochs): (Vec<uuid::Uuid>, Vec<i32>) = (row.get(0), row.get(1));
            let pairs = ids.into_iter().map(JobId).zip(epochs.into_iter().map(Epoch));
            jobs.extend(pairs.map(|(id, epoch)| (id, epoch, None)));
        }
        hand_back(&conn, jobs).await
    };
    let released: Result<usize, Error> = work.await;
    match &released {
        Ok(_) => conn.commit().await?,
        Err(_) => conn.rollback().await,
    }
    store.shared.floors.lowered(i64::MIN);
    released
}
