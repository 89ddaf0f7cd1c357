//! Jobs that go on from somewhere in the journals of others.

use windlass_model::{NewJob, Payload, Submitted};

use super::{
    Postgres,
    conn::giving_way,
    control::{log, transaction},
    names::Names,
    submit::Batch,
    wake,
};
use crate::{
    By, Did, Error, Fork, Now,
    control::{check_by, said},
    pick,
};

/// Makes forks one by one, each in a transaction of its own: whoever sends them again is told the same of those that are
/// there.
pub(super) async fn fork(store: &Postgres, now: Now, forks: &[Fork], by: &By) -> Result<Vec<Did>, Error> {
    check_by(by)?;
    forks.iter().try_for_each(Fork::check)?;
    let mut dids = Vec::with_capacity(forks.len());
    for fork in forks {
        dids.push(giving_way!(once(store, now, fork, by))?);
    }
    Ok(dids)
}

async fn once(store: &Postgres, now: Now, fork: &Fork, by: &By) -> Result<Did, Error> {
    let Some(from) = read(store, fork).await? else { return Ok(Did::Unknown) };
    let jobs = [fork.job(&from)];
    // Before the transaction: they are made over a connection of their own.
    let names = Names::unchecked(store, &jobs).await?;
    transaction(store, now, async |conn, now| {
        wake::lock(conn, &[fork.from.0]).await?;
        let sql = include_str!("sql/act_fork_from.sql");
        let rows = conn.query(sql, &[&fork.from.0, &fork.before]).await?;
        let Some(row) = rows.first() else { return Ok(Did::Unknown) };
        let there = conn.query(include_str!("sql/ended.sql"), &[&vec![fork.id.0]]).await?;
        if !there.is_empty() {
            return Ok(Did::Made(fork.id));
        }
        if !row.get::<_, bool>(0) && !fork.is_whole(row.get(1)) {
            return Ok(said::fork_nowhere(fork.before));
        }
        let batch = Batch { store, conn, now: Some(now), jobs: &jobs, names: &names, born: None, runs: &[] };
        match batch.put_within().await?.pop().flatten() {
            Some(Submitted::New { .. }) => {}
            // Someone has made it, or taken its id, meanwhile.
            Some(Submitted::Repeated | Submitted::IdTaken) => return Ok(Did::Made(fork.id)),
            Some(
                Submitted::Existing { id, .. } | Submitted::Rejected { id } | Submitted::Replaced { id },
            ) => {
                return Ok(said::fork_key_taken(fork.key.as_deref().unwrap_or_default(), id));
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
        conn.execute(include_str!("sql/act_fork.sql"), &params).await?;
        log(conn, now, &pick::fork_action(fork), &[fork.from.to_string()], by).await?;
        Ok(Did::Made(fork.id))
    })
    .await
}

/// The job that is forked, as it was submitted; as far as a fork takes it over.
async fn read(store: &Postgres, fork: &Fork) -> Result<Option<NewJob>, Error> {
    let conn = store.conn().await?;
    let rows = conn.query(include_str!("sql/act_fork_read.sql"), &[&fork.from.0]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    store.know_lanes(&conn, [row.get(0)].into_iter()).await?;
    let lane = store.lane(row.get(0))?;
    let input = Payload { codec: row.get::<_, i16>(5) as u8, bytes: row.get(6) };
    let mut job = NewJob::new(fork.from, &lane.kind.kind, &lane.queue, input);
    (job.kind, job.priority) = (lane.kind, row.get(1));
    (job.tags, job.options, job.settings) = (pick::tags(row.get(2)), row.get(3), pick::settings(row.get(4)));
    job.digest = row.get::<_, &[u8]>(7).try_into().unwrap_or(job.digest);
    Ok(Some(job))
}
