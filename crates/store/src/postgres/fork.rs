//! Jobs that go on from somewhere in the journals of others.

use windlass_model::{NewJob, Payload, SubmitOutcome};

use super::{
    Postgres,
    conn::retry_deadlock,
    control::{log, transaction},
    names::Names,
    sql,
    submit::Batch,
    wait,
};
use crate::{
    Actor, ControlOutcome, Error, Fork, Now, columns,
    control::{check_actor, outcome},
};

/// Makes forks one by one, each in a transaction of its own: whoever sends them again is told the same of those that are
/// there.
pub(super) async fn fork(
    store: &Postgres,
    now: Now,
    forks: &[Fork],
    by: &Actor,
) -> Result<Vec<ControlOutcome>, Error> {
    check_actor(by)?;
    forks.iter().try_for_each(Fork::check)?;
    let mut dids = Vec::with_capacity(forks.len());
    for fork in forks {
        dids.push(retry_deadlock!(once(store, now, fork, by))?);
    }
    Ok(dids)
}

async fn once(store: &Postgres, now: Now, fork: &Fork, by: &Actor) -> Result<ControlOutcome, Error> {
    let Some(from) = read(store, fork).await? else { return Ok(ControlOutcome::Unknown) };
    let jobs = [fork.job(&from)];
    // Before the transaction: they are made over a connection of their own.
    let names = Names::unchecked(store, &jobs).await?;
    transaction(store, now, async |conn, now| {
        wait::lock(conn, &[fork.from.0]).await?;
        let sql = sql::fork::FIND_ENTRY;
        let rows = conn.query(sql, &[&fork.from.0, &fork.before]).await?;
        let Some(row) = rows.first() else { return Ok(ControlOutcome::Unknown) };
        let there = conn.query(sql::inspect::JOB_ENDS, &[&vec![fork.id.0]]).await?;
        if !there.is_empty() {
            return Ok(ControlOutcome::Created(fork.id));
        }
        if !row.get::<_, bool>(0) && !fork.is_whole(row.get(1)) {
            return Ok(outcome::fork_nowhere(fork.before));
        }
        let batch = Batch {
            store,
            conn,
            now: Some(now),
            jobs: &jobs,
            names: &names,
            claim_on_submit: None,
            runs: &[],
        };
        match batch.put_within().await?.pop().flatten() {
            Some(SubmitOutcome::New { .. }) => {}
            // Someone has made it, or taken its id, meanwhile.
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
            None => return Err(Error::Unavailable("a job with this key is being pruned; fork again".into())),
        }
        let entry = fork.entry(now);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 9] = [
            &fork.from.0,
            &fork.id.0,
            &entry.seq,
            &entry.op.number(),
            &entry.mark.number(),
            &entry.name,
            &entry.at.micros(),
            &i16::from(entry.payload.codec),
            &entry.payload.bytes,
        ];
        conn.execute(sql::fork::COPY, &params).await?;
        log(conn, now, &columns::fork_action(fork), &[fork.from.to_string()], by).await?;
        Ok(ControlOutcome::Created(fork.id))
    })
    .await
}

/// The job that is forked, as it was submitted; as far as a fork takes it over.
async fn read(store: &Postgres, fork: &Fork) -> Result<Option<NewJob>, Error> {
    let conn = store.conn().await?;
    let rows = conn.query(sql::fork::READ_JOB, &[&fork.from.0]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    store.know_lanes(&conn, [row.get(0)].into_iter()).await?;
    let lane = store.lane(row.get(0))?;
    let input = Payload { codec: row.get::<_, i16>(5) as u8, bytes: row.get(6) };
    let mut job = NewJob::new(fork.from, &lane.kind.kind, &lane.queue, input);
    (job.kind, job.priority) = (lane.kind, row.get(1));
    (job.tags, job.options, job.settings) =
        (columns::tags(row.get(2)), row.get(3), columns::settings(row.get(4)));
    job.digest = row.get::<_, &[u8]>(7).try_into().unwrap_or(job.digest);
    Ok(Some(job))
}
