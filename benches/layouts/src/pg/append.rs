//! Layout A on PostgreSQL: insert-only events and completions in segments, with a cursor per lane.
//!
//! A claim moves a cursor and writes one `claims` row for its range; a completion is an insert. Segments are
//! plain tables; a segment whose jobs are all finished is truncated.

use anyhow::{Result, ensure};
use tokio::sync::mpsc;
use tokio_postgres::Client;

use crate::job::{self, CLAIM_BATCH, Claimed, Job, SUBMIT_BATCH, WORKER};

use super::submit_batch;

/// Segments of one run.
pub(crate) const SEGMENTS: usize = 4;

/// The tables.
pub(crate) fn ddl() -> String {
    let mut ddl =
        "create table cursors (segment int4, lane int4, next int8 not null, primary key (segment, lane))
           with (autovacuum_enabled = off, fillfactor = 20);
         create table claims (worker int8, number int8, segment int4 not null, lane int4 not null,
           first int8 not null, last int8 not null, epoch int4 not null, primary key (worker, number))
           with (autovacuum_enabled = off);"
            .to_owned();
    for segment in 0..SEGMENTS {
        ddl += &format!(
            "create table events_{segment} (seq int8 generated always as identity, rank int8 not null,
               due_at int8 not null, submitted_at int8 not null, id uuid not null, lane int4 not null,
               priority int2 not null, digest bytea not null, input bytea not null, key text, options bytea,
               tags text[], primary key (lane, seq)) with (autovacuum_enabled = off);
             create table done_{segment} (seq int8 primary key, finished_at int8 not null,
               attempts int4 not null, state int2 not null, result bytea, error text)
               with (autovacuum_enabled = off);
             insert into cursors select {segment}, lane, 0 from generate_series(1, 64) lane;"
        );
    }
    ddl
}

/// Submits the jobs, a quarter of them to each segment.
pub(crate) async fn submit(client: &Client, jobs: &[Job]) -> Result<()> {
    for (segment, part) in jobs.chunks(jobs.len().div_ceil(SEGMENTS)).enumerate() {
        let statement = client
            .prepare(&format!(
                "insert into events_{segment} (rank, due_at, submitted_at, id, lane, priority, digest, input)
                 select d.rank, $6::int8, $6::int8, d.id, d.lane, 0, d.digest, d.input
                 from unnest($1::uuid[], $2::int4[], $3::int8[], $4::bytea[], $5::bytea[])
                   as d (id, lane, rank, input, digest)"
            ))
            .await?;
        for batch in part.chunks(SUBMIT_BATCH) {
            submit_batch(client, &statement, batch).await?;
        }
    }
    Ok(())
}

/// A claimed range.
struct Batch {
    segment: usize,
    number: i64,
    jobs: Vec<Claimed>,
}

/// Claims on one connection and commits on the other until all segments are read.
pub(crate) async fn drain(claim_on: &Client, commit_on: &Client, lanes: i32) -> Result<usize> {
    let (sender, mut receiver) = mpsc::channel::<Batch>(4);
    let claiming = async move {
        let mut number = 0;
        for segment in 0..SEGMENTS {
            let statement = claim_on.prepare(&claim_sql(segment)).await?;
            for lane in 1..=lanes {
                loop {
                    number += 1;
                    let rows =
                        claim_on.query(&statement, &[&lane, &(CLAIM_BATCH as i64), &WORKER, &number]).await?;
                    let jobs: Vec<Claimed> = rows
                        .iter()
                        .map(|row| Claimed {
                            id: row.get(0),
                            lane,
                            rank: row.get(1),
                            epoch: 1,
                            rev: 0,
                            attempts: 1,
                            input: row.get::<_, &[u8]>(2).to_vec(),
                        })
                        .collect();
                    if jobs.is_empty() {
                        break;
                    }
                    sender.send(Batch { segment, number, jobs }).await?;
                }
            }
        }
        anyhow::Ok(())
    };
    let committing = async {
        let (mut total, mut segment, mut statement) = (0, usize::MAX, None);
        while let Some(batch) = receiver.recv().await {
            if segment != batch.segment {
                segment = batch.segment;
                statement = Some(commit_on.prepare(&commit_sql(segment)).await?);
            }
            let Some(statement) = &statement else { continue };
            let seqs: Vec<i64> = batch.jobs.iter().map(|j| j.id.number()).collect();
            let results: Vec<Vec<u8>> = batch.jobs.iter().map(Claimed::result).collect();
            let inserted = commit_on
                .execute(statement, &[&seqs, &results, &WORKER, &batch.number, &1i32, &job::now()])
                .await?;
            ensure!(inserted == seqs.len() as u64, "{inserted} of {} jobs were committed", seqs.len());
            total += seqs.len();
        }
        anyhow::Ok(total)
    };
    let ((), total) = tokio::try_join!(claiming, committing)?;
    Ok(total)
}

/// Truncates every segment, as rotation does once all jobs of a segment are finished and past retention.
pub(crate) async fn rotate(client: &Client) -> Result<()> {
    for segment in 0..SEGMENTS {
        client.batch_execute(&format!("truncate events_{segment}, done_{segment}")).await?;
    }
    Ok(())
}

/// Takes the next range of a lane. Parameters: lane, limit, worker, number.
fn claim_sql(segment: usize) -> String {
    format!(
        "with c as materialized (
           select next from cursors where segment = {segment} and lane = $1::int4 for update),
         taken as materialized (
           select e.seq, e.rank, e.input from c, lateral (select * from events_{segment} e
             where e.lane = $1::int4 and e.seq >= c.next order by e.seq limit $2::int8) e),
         span as materialized (select min(seq) as first, max(seq) as last from taken having count(*) > 0),
         moved as (update cursors set next = span.last + 1 from span
           where segment = {segment} and lane = $1::int4),
         noted as (insert into claims select $3::int8, $4::int8, {segment}, $1::int4, first, last, 1 from span)
         select seq, rank, input from taken"
    )
}

/// Appends completions of a claim that is still held. Parameters: seqs, results, worker, number, epoch, now.
fn commit_sql(segment: usize) -> String {
    format!(
        "insert into done_{segment} (seq, finished_at, attempts, state, result)
         select d.seq, $6::int8, 1, 2, d.result from unnest($1::int8[], $2::bytea[]) as d (seq, result)
         where exists (select from claims where worker = $3::int8 and number = $4::int8 and epoch = $5::int4)"
    )
}
