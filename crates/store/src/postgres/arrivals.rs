//! Jobs submitted in transactions of others: appended there, put in here.

use std::collections::HashSet;

use tokio_postgres::Row;
use windlass_model::{Invalid, JobId, Limits, NewJob, Reason, SubmitOutcome, Time};

use super::{Postgres, control::transaction, errors::sorted, names::Names, pool::Guard, sql, submit::Batch};
use crate::{
    Error, Now,
    arrival::{Arrival, check, duplicate, refused},
    columns::{self, CANCELLED, FAILED},
    intern::Lane,
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
        stage: row.get(17),
    }
}

/// A row that waits, and what can be made of it.
struct Waiting {
    seq: i64,
    arrival: Arrival,
    job: Result<NewJob, Invalid>,
}

/// Puts in what waits, at most `limit` jobs; answers how many rows were taken. Rows and jobs change places in one
/// transaction. What is invalid becomes a failed job, and what is there already a cancelled one.
pub(super) async fn admit(store: &Postgres, now: Now, limit: usize) -> Result<usize, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = store.conn().await?.query(sql::arrivals::READ_OLDEST, &[&limit]).await?;
    let mut names = Names::default();
    let mut waiting = Vec::with_capacity(rows.len());
    for row in &rows {
        let arrival = read(row);
        let job = match arrival.job(&store.shared.options.limits) {
            Ok(job) => match Names::of(store, std::slice::from_ref(&job)).await {
                Ok(known) => {
                    names.extend(known);
                    Ok(job)
                }
                Err(Error::Invalid(invalid)) => Err(invalid),
                Err(error) => return Err(error),
            },
            Err(invalid) => Err(invalid),
        };
        waiting.push(Waiting { seq: row.get(0), arrival, job });
    }
    match put(store, now, &waiting, &names).await {
        // Something in it cannot be written at all: one by one, so that it stands alone.
        Err(Error::Refused(_)) => {
            let mut admitted = 0;
            for mut one in waiting {
                admitted += match put(store, now, std::slice::from_ref(&one), &names).await {
                    Err(Error::Refused(why)) => {
                        let hint = "see the page on submitting in your own transaction".to_owned();
                        one.job =
                            Err(Invalid { what: "the job".into(), why: format!("is refused ({why})"), hint });
                        put(store, now, std::slice::from_ref(&one), &names).await?
                    }
                    answer => answer?,
                };
            }
            Ok(admitted)
        }
        answer => answer,
    }
}

/// Takes rows and puts their jobs in; answers how many were taken.
async fn put(store: &Postgres, now: Now, waiting: &[Waiting], names: &Names) -> Result<usize, Error> {
    for one in waiting.iter().filter(|one| one.job.is_err()) {
        let job = shown(store, &one.arrival);
        store.intern([(job.queue.as_str(), &job.kind, 0)].into_iter()).await?;
    }
    let seqs: Vec<i64> = waiting.iter().map(|one| one.seq).collect();
    transaction(store, now, async |conn, now| {
        let taken = conn.query(sql::arrivals::TAKE, &[&seqs]).await?;
        let taken: HashSet<i64> = taken.iter().map(|row| row.get(0)).collect();
        let mut jobs: Vec<NewJob> = Vec::new();
        let mut seen = HashSet::new();
        for one in waiting.iter().filter(|one| taken.contains(&one.seq)) {
            match &one.job {
                Ok(job) if seen.insert(job.id) => jobs.push(job.clone()),
                Ok(_) => {}
                Err(invalid) => keep(store, conn, now, &one.arrival, invalid).await?,
            }
        }
        let batch = Batch { store, conn, now: Some(now), jobs: &jobs, names, claim_on_submit: None, runs: &[] };
        for (job, answer) in jobs.iter().zip(batch.put_within().await?) {
            let there = match answer {
                Some(SubmitOutcome::Existing { id, .. } | SubmitOutcome::Rejected { id }) => id,
                Some(SubmitOutcome::IdTaken) => {
                    tracing::warn!(job = %job.id, "a job submitted in a transaction has the id of another; it is dropped");
                    continue;
                }
                Some(_) => continue,
                None => return Err(Error::Unavailable("jobs with these keys are being pruned".into())),
            };
            let failure = columns::failure_text(&duplicate(there));
            end(conn, now, batch.lane(job)?, job, (CANCELLED, None), &failure).await?;
        }
        Ok(taken.len())
    })
    .await
}

/// An invalid arrival as far as it can be shown.
fn shown(store: &Postgres, arrival: &Arrival) -> NewJob {
    let limits = &store.shared.options.limits;
    let fits = limits.check_payload("input", &arrival.input).is_ok();
    let input = windlass_model::Payload {
        codec: arrival.codec.clamp(0, 255) as u8,
        bytes: if fits { arrival.input.clone() } else { Vec::new() },
    };
    let short = |text: &str| text.chars().take(100).collect::<String>();
    let mut job = NewJob::new(arrival.id, &short(&arrival.kind), &short(&arrival.queue), input);
    job.kind.version = arrival.version;
    job
}

/// Keeps an invalid arrival as a failed job.
async fn keep(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    arrival: &Arrival,
    invalid: &Invalid,
) -> Result<(), Error> {
    let job = shown(store, arrival);
    let lane = store.shared.lanes.get(&job.queue, &job.kind);
    let lane = lane.ok_or_else(|| Error::Unavailable("a lane is being made; look again".into()))?;
    let failure = columns::failure_text(&refused(invalid));
    let reason = Some(columns::reason_number(Reason::Refused));
    end(conn, now, lane, &job, (FAILED, reason), &failure).await
}

async fn end(
    conn: &Guard<'_>,
    now: Time,
    lane: Lane,
    job: &NewJob,
    (state, reason): (i16, Option<i16>),
    failure: &str,
) -> Result<(), Error> {
    let (codec, digest) = (i16::from(job.input.codec), job.digest.as_slice());
    let sql = sql::arrivals::INSERT_REFUSED;
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
    check(job, limits)?;
    let sql = sql::arrivals::APPEND.replacen("into arrivals", &format!("into \"{schema}\".arrivals"), 1);
    let row = Arrival::of(job);
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 17] = [
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
        &row.stage,
    ];
    client.execute(&sql, &params).await.map_err(sorted).map(drop)
}
