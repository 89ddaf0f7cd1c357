//! Jobs that were submitted in transactions of callers: rows of `arrivals`, which a worker admits.
//!
//! A row is deleted in the transaction that inserts its job. An arrival that cannot be admitted becomes a job too, which has ended
//! and says why, so that its submitter finds it.

use std::collections::HashSet;

use tokio_postgres::{GenericClient, Row};
use windlass_model::{Invalid, JobId, Limits, NewJob, Reason, SubmitOutcome, Time};

use super::{
    Postgres, change_params::Param, control::transaction, errors::PgError, names::Names, sql, submit::Batch,
    tx::Tx,
};
use crate::{
    Error, Now,
    arrival::{Arrival, check, duplicate, refused},
    columns::{self, CANCELLED, FAILED},
    intern::Lane,
    list::period_of,
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

/// A row of the table, and its job or why it is invalid.
struct Pending {
    seq: i64,
    arrival: Arrival,
    job: Result<NewJob, Invalid>,
}

/// Admits the oldest arrivals, up to `limit`. Returns how many rows were taken. An invalid arrival becomes a failed job, and one whose
/// key or unique name is taken a cancelled one.
pub(super) async fn admit(store: &Postgres, now: Now, limit: usize) -> Result<usize, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = store.conn().await?.query(sql::arrivals::READ_OLDEST, &[&limit]).await?;
    let mut names = Names::default();
    let mut pending = Vec::with_capacity(rows.len());
    for row in &rows {
        let arrival = read(row);
        let job = match arrival.job(&store.shared.options.limits) {
            Ok(job) => match Names::of(store, std::slice::from_ref(&job)).await.map_err(Error::from) {
                Ok(known) => {
                    names.extend(known);
                    Ok(job)
                }
                Err(Error::Invalid(invalid)) => Err(invalid),
                Err(error) => return Err(error),
            },
            Err(invalid) => Err(invalid),
        };
        pending.push(Pending { seq: row.get(0), arrival, job });
    }
    match admit_batch(store, now, &pending, &names).await {
        // The database refuses one of them: admit them one by one, to find it.
        Err(Error::Refused(_)) => {
            let mut admitted = 0;
            for mut one in pending {
                admitted += match admit_batch(store, now, std::slice::from_ref(&one), &names).await {
                    Err(Error::Refused(why)) => {
                        let hint = "see the page on submitting in your own transaction".to_owned();
                        one.job =
                            Err(Invalid { what: "the job".into(), why: format!("is refused ({why})"), hint });
                        admit_batch(store, now, std::slice::from_ref(&one), &names).await?
                    }
                    admitted => admitted?,
                };
            }
            Ok(admitted)
        }
        admitted => admitted,
    }
}

/// Deletes arrivals and inserts their jobs. Returns how many were taken.
async fn admit_batch(store: &Postgres, now: Now, pending: &[Pending], names: &Names) -> Result<usize, Error> {
    for one in pending.iter().filter(|one| one.job.is_err()) {
        let job = readable_part(store, &one.arrival);
        store.intern_lanes([(job.queue.as_str(), &job.kind, 0)].into_iter()).await?;
    }
    let seqs: Vec<i64> = pending.iter().map(|one| one.seq).collect();
    let admitted = transaction(store, now, async |tx, now| {
        let taken = tx.query(sql::arrivals::TAKE, &[&seqs]).await?;
        let taken: HashSet<i64> = taken.iter().map(|row| row.get(0)).collect();
        let mut jobs: Vec<NewJob> = Vec::new();
        let mut seen = HashSet::new();
        for one in pending.iter().filter(|one| taken.contains(&one.seq)) {
            match &one.job {
                Ok(job) if seen.insert(job.id) => jobs.push(job.clone()),
                Ok(_) => {}
                Err(invalid) => refuse(store, tx, now, &one.arrival, invalid).await?,
            }
        }
        let at = Some(now);
        let batch = Batch { store, now: at, jobs: &jobs, names, claim_on_submit: None, running: &[] };
        for (job, outcome) in jobs.iter().zip(batch.insert_in(tx).await?) {
            let existing = match outcome {
                Some(SubmitOutcome::Existing { id, .. } | SubmitOutcome::Rejected { id }) => id,
                Some(SubmitOutcome::IdTaken) => {
                    tracing::warn!(job = %job.id, "a job submitted in a transaction has the id of another; it is dropped");
                    continue;
                }
                Some(_) => continue,
                None => {
                    let why = "jobs with these keys are being pruned";
                    return Err(Error::Unavailable(why.into()).into());
                }
            };
            let failure = columns::failure_text(&duplicate(existing));
            insert_ended(tx, now, batch.lane(job)?, job, (CANCELLED, None), &failure).await?;
        }
        Ok(taken.len())
    });
    Ok(admitted.await?)
}

/// An invalid arrival as a job, as far as it can be shown.
fn readable_part(store: &Postgres, arrival: &Arrival) -> NewJob {
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

/// Inserts an invalid arrival as a failed job.
async fn refuse(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Time,
    arrival: &Arrival,
    invalid: &Invalid,
) -> Result<(), PgError> {
    let job = readable_part(store, arrival);
    let lane = store.shared.lanes.get(&job.queue, &job.kind);
    let lane = lane.ok_or_else(|| Error::Unavailable("a lane is being added; try again".into()))?;
    let failure = columns::failure_text(&refused(invalid));
    let reason = Some(columns::reason_number(Reason::Refused));
    insert_ended(tx, now, lane, &job, (FAILED, reason), &failure).await
}

async fn insert_ended(
    tx: &Tx<'_>,
    now: Time,
    lane: Lane,
    job: &NewJob,
    (state, reason): (i16, Option<i16>),
    failure: &str,
) -> Result<(), PgError> {
    let (codec, digest) = (i16::from(job.input.codec), job.digest.as_slice());
    let period = period_of(job.id);
    let params: [Param<'_>; 12] = [
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
        &tx.count_writer,
        &period,
    ];
    tx.execute(sql::arrivals::INSERT_REFUSED, &params).await.map(drop)
}

/// Submits a job to the store in `schema` in a transaction of the caller's own: the job exists if, and only if, that commits.
/// Locks nothing, and blocks no other transaction, however long this one takes.
pub async fn submit_in(
    client: &impl GenericClient,
    schema: &str,
    limits: &Limits,
    job: &NewJob,
) -> Result<(), Error> {
    check(job, limits)?;
    let sql = sql::arrivals::APPEND.replacen("into arrivals", &format!("into \"{schema}\".arrivals"), 1);
    let row = Arrival::of(job);
    let params: [Param<'_>; 17] = [
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
    client.execute(&sql, &params).await.map_err(PgError::from)?;
    Ok(())
}
