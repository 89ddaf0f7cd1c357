//! Jobs submitted in transactions of others: appended there, put in here.

use std::collections::HashSet;

use tokio_postgres::Row;
use windlass_model::{JobId, Limits, NewJob, Reason, Submitted, Time};

use super::{
    Postgres,
    conn::{Guard, sorted},
    control::transaction,
    submit::{Batch, Names},
};
use crate::{
    Error, Now,
    arrival::{Arrival, duplicate, refused},
    pick::{self, CANCELLED, FAILED},
};

fn read(row: &Row) -> Arrival {
    Arrival {
        id: JobId(row.get(1)),
        kind: row.get(2),
        version: row.get(3),
        queue: row.get(4),
        key: row.get(5),
        priority: row.get(6),
        at: row.get(7),
        delay: row.get(8),
        deadline_at: row.get(9),
        parent: row.get::<_, Option<uuid::Uuid>>(10).map(JobId),
        tags: row.get(11),
        options: row.get(12),
        settings: row.get(13),
        codec: row.get(14),
        input: row.get(15),
        digest: row.get(16),
    }
}

/// Puts in what waits, at most `limit` jobs; answers how many rows were taken. Rows and jobs change places in one
/// transaction. What is invalid becomes a failed job, and what is there already a cancelled one.
pub(super) async fn admit(store: &Postgres, now: Now, limit: usize) -> Result<usize, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    transaction(store, now, async |conn, now| {
        let mut rows = conn.query(include_str!("sql/arrive_take.sql"), &[&limit]).await?;
        rows.sort_by_key(|row| row.get::<_, i64>(0));
        let arrivals: Vec<Arrival> = rows.iter().map(read).collect();
        let mut jobs: Vec<NewJob> = Vec::new();
        let mut seen = HashSet::new();
        for arrival in &arrivals {
            let job = match arrival.job(&store.shared.options.limits) {
                Ok(job) => job,
                Err(invalid) => {
                    keep(store, conn, now, arrival, &invalid).await?;
                    continue;
                }
            };
            // Names are made outside of this transaction: they hold whatever becomes of it.
            match Names::of(store, std::slice::from_ref(&job)).await {
                Ok(_) if seen.insert(job.id) => jobs.push(job),
                Ok(_) => {}
                Err(Error::Invalid(invalid)) => keep(store, conn, now, arrival, &invalid).await?,
                Err(error) => return Err(error),
            }
        }
        let names = Names::of(store, &jobs).await?;
        let batch = Batch { store, conn, now: Some(now), jobs: &jobs, names: &names, born: None };
        for (job, answer) in jobs.iter().zip(batch.put_within().await?) {
            let there = match answer {
                Some(Submitted::Existing { id, .. } | Submitted::Rejected { id }) => id,
                Some(Submitted::IdTaken) => {
                    tracing::warn!(job = %job.id, "a job submitted in a transaction has the id of another; it is dropped");
                    continue;
                }
                Some(_) => continue,
                None => return Err(Error::Unavailable("jobs with these keys are being pruned".into())),
            };
            let failure = pick::failure_text(&duplicate(there));
            end(store, conn, now, job, CANCELLED, None, &failure).await?;
        }
        Ok(arrivals.len())
    })
    .await
}

/// Keeps an invalid arrival as a failed job, as far as it can be shown.
async fn keep(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    arrival: &Arrival,
    invalid: &windlass_model::Invalid,
) -> Result<(), Error> {
    let limits = &store.shared.options.limits;
    let fits = limits.check_payload("input", &arrival.input).is_ok();
    let input = windlass_model::Payload {
        codec: arrival.codec.clamp(0, 255) as u8,
        bytes: if fits { arrival.input.clone() } else { Vec::new() },
    };
    let short = |text: &str| text.chars().take(100).collect::<String>();
    let mut job = NewJob::new(arrival.id, &short(&arrival.kind), &short(&arrival.queue), input);
    job.kind.version = arrival.version;
    store.intern([(job.queue.as_str(), &job.kind, 0)].into_iter()).await?;
    let failure = pick::failure_text(&refused(invalid));
    end(store, conn, now, &job, FAILED, Some(pick::reason_number(Reason::Refused)), &failure).await
}

async fn end(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    job: &NewJob,
    state: i16,
    reason: Option<i16>,
    failure: &str,
) -> Result<(), Error> {
    let lane = match store.shared.lanes.get(&job.queue, &job.kind) {
        Some(lane) => lane,
        None => {
            store.intern([(job.queue.as_str(), &job.kind, 0)].into_iter()).await?;
            store.shared.lanes.get(&job.queue, &job.kind).expect("interned just now")
        }
    };
    let (codec, digest) = (i16::from(job.input.codec), job.digest.as_slice());
    let sql = include_str!("sql/arrive_refuse.sql");
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
        &job.id.0,
        &now.micros(),
        &lane.id,
        &lane.kind_id,
        &codec,
        &digest,
        &job.input.bytes,
        &state,
        &reason,
        &failure,
    ];
    conn.execute(sql, &params).await.map(drop)
}

/// Appends a job to the arrivals of the store in `schema`, in the caller's own transaction: it is in if, and only if, that commits.
/// Nothing is locked and nobody is held up, however long the transaction takes.
pub async fn submit_in(
    client: &impl tokio_postgres::GenericClient,
    schema: &str,
    limits: &Limits,
    job: &NewJob,
) -> Result<(), Error> {
    limits.check(job)?;
    let sql = include_str!("sql/arrive_write.sql").replacen(
        "into arrivals",
        &format!("into \"{schema}\".arrivals"),
        1,
    );
    let row = Arrival::of(job);
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 16] = [
        &row.id.0,
        &row.kind,
        &row.version,
        &row.queue,
        &row.key,
        &row.priority,
        &row.at,
        &row.delay,
        &row.deadline_at,
        &row.parent.map(|id| id.0),
        &row.tags,
        &row.options,
        &row.settings,
        &row.codec,
        &row.input,
        &row.digest,
    ];
    client.execute(&sql, &params).await.map_err(sorted).map(drop)
}
