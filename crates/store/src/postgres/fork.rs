//! Forks: new jobs that start from part of another job's journal.

use windlass_model::{NewJob, Payload, SubmitOutcome};

use super::{
    Postgres,
    change_params::Param,
    conn::retry_deadlock,
    control::{log, transaction},
    errors::PgError,
    names::Names,
    sql,
    submit::Batch,
    wait,
};
use crate::{
    Actor, ControlOutcome, Error, Fork, Now, columns,
    control::{check_actor, outcome},
};

/// Makes forks one by one, each in a transaction of its own. A caller that repeats them gets the same outcomes for those that exist.
pub(super) async fn fork(
    store: &Postgres,
    now: Now,
    forks: &[Fork],
    actor: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    check_actor(actor)?;
    forks.iter().try_for_each(Fork::check)?;
    let mut outcomes = Vec::with_capacity(forks.len());
    for fork in forks {
        outcomes.push(retry_deadlock!(fork_once(store, now, fork, actor))?);
    }
    Ok(outcomes)
}

async fn fork_once(
    store: &Postgres,
    now: Now,
    fork: &Fork,
    actor: &Actor,
) -> Result<ControlOutcome, PgError> {
    let origin = match read_origin(store, fork).await? {
        None => return Ok(ControlOutcome::Unknown),
        Some(Err(fault)) => return Ok(outcome::undecodable(&fault)),
        Some(Ok(origin)) => origin,
    };
    let jobs = [fork.job(&origin)];
    // Before the transaction: names are added over another connection.
    let names = Names::unchecked(store, &jobs).await?;
    transaction(store, now, async |tx, now| {
        wait::lock_jobs(tx, &[fork.from.0]).await?;
        let rows = tx.query(sql::fork::FIND_ENTRY, &[&fork.from.0, &fork.before]).await?;
        let Some(row) = rows.first() else { return Ok(ControlOutcome::Unknown) };
        let existing = tx.query(sql::inspect::JOB_ENDS, &[&vec![fork.id.0]]).await?;
        if !existing.is_empty() {
            return Ok(ControlOutcome::Created(fork.id));
        }
        if !row.get::<_, bool>(0) && !fork.is_whole(row.get(1)) {
            return Ok(outcome::fork_nowhere(fork.before));
        }
        let now_at = Some(now);
        let batch =
            Batch { store, now: now_at, jobs: &jobs, names: &names, claim_on_submit: None, running: &[] };
        match batch.insert_in(tx).await?.pop().flatten() {
            Some(SubmitOutcome::New { .. }) => {}
            // Another call has made the fork, or taken its id, meanwhile.
            Some(SubmitOutcome::Repeated | SubmitOutcome::IdTaken) => {
                return Ok(ControlOutcome::Created(fork.id));
            }
            Some(
                SubmitOutcome::Existing { id, .. }
                | SubmitOutcome::Rejected { id }
                | SubmitOutcome::Replaced { id },
            ) => {
                return Ok(outcome::fork_key_taken(fork.key.as_deref().unwrap_or_default(), id));
            }
            None => {
                let why = "a job with this key is being pruned; fork again";
                return Err(Error::Unavailable(why.into()).into());
            }
        }
        let entry = fork.entry(now);
        let params: [Param<'_>; 9] = [
            &fork.from.0,
            &fork.id.0,
            &entry.seq,
            &entry.call_kind.number(),
            &entry.event.number(),
            &entry.name,
            &entry.at.micros(),
            &i16::from(entry.payload.codec),
            &entry.payload.bytes,
        ];
        tx.execute(sql::fork::COPY, &params).await?;
        log(tx, now, &columns::fork_action(fork), &[fork.from.to_string()], actor).await?;
        Ok(ControlOutcome::Created(fork.id))
    })
    .await
}

/// Reads what a fork copies from the job that it starts from; `Err` in it says what cannot be decoded.
async fn read_origin(store: &Postgres, fork: &Fork) -> Result<Option<Result<NewJob, Box<str>>>, PgError> {
    let conn = store.conn().await?;
    let rows = conn.query(sql::fork::READ_JOB, &[&fork.from.0]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    store.ensure_lanes(&conn, [row.get(0)].into_iter()).await?;
    let lane = store.lane(row.get(0))?;
    let input = Payload { codec: row.get::<_, i16>(5) as u8, bytes: row.get(6) };
    let mut job = NewJob::new(fork.from, &lane.kind.kind, &lane.queue, input);
    (job.kind, job.priority) = (lane.kind, row.get(1));
    let mut decoder = columns::Decoder::default();
    (job.tags, job.options, job.settings) =
        (decoder.tags(row.get(2)), row.get(3), decoder.settings(row.get(4)));
    job.digest = row.get::<_, &[u8]>(7).try_into().unwrap_or(job.digest);
    Ok(Some(decoder.fault().map_or(Ok(job), Err)))
}
