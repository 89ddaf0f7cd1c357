//! How long one claim of 100 jobs takes in R3 on a large store: 1,000,000 jobs, of which 300,000 are ready and
//! 100,000 of those wait in a lane that is not claimed and sorts first.

use std::time::Instant;

use anyhow::{Result, ensure};
use tokio_postgres::Client;

use crate::report::{self, Latency};

use super::drain::{Claimer, Flow};
use super::schema::{self, Layout, Shape};
use super::{connect, meter};

/// Jobs of one claim.
const LIMIT: usize = 100;
/// Claims in one measured stretch.
const STRETCH: usize = 200;

/// Fills the store and measures claims: fresh, after many claims without vacuum, after vacuum, and while an old
/// snapshot keeps the server from skipping dead index entries.
pub(crate) async fn measure(url: &str) -> Result<Vec<Latency>> {
    let shape = Shape::plain(Layout::R3);
    let admin = connect(url).await?;
    meter::fresh_schema(&admin, &schema::ddl(shape)).await?;
    fill(&admin).await?;

    let client = connect(url).await?;
    let flow = Flow { claim_batch: LIMIT, commit_batch: LIMIT, connections: 1, floor: false };
    let mut claimer = Claimer::new(&client, shape, flow, vec![2, 3]).await?;
    let mut out = Vec::new();
    out.push(stretch(&mut claimer, "fresh").await?);
    for _ in 0..600 {
        claimer.claim(&[]).await?;
    }
    out.push(stretch(&mut claimer, "after 80,000 claimed, no vacuum").await?);
    admin.batch_execute("vacuum ready").await?;
    out.push(stretch(&mut claimer, "after vacuum").await?);

    let old = connect(url).await?;
    old.batch_execute("begin isolation level repeatable read; select count(*) from claims").await?;
    out.push(stretch(&mut claimer, "old snapshot open, claims 1–200 under it").await?);
    out.push(stretch(&mut claimer, "old snapshot open, claims 201–400 under it").await?);
    claimer.use_floor();
    claimer.claim(&[]).await?;
    out.push(stretch(&mut claimer, "old snapshot open, rank floor").await?);
    drop(old);
    Ok(out)
}

/// One stretch of claims.
async fn stretch(claimer: &mut Claimer<'_>, state: &str) -> Result<Latency> {
    let mut times = Vec::with_capacity(STRETCH);
    let cpu = meter::Cpu::start(claimer.client).await?;
    for _ in 0..STRETCH {
        let started = Instant::now();
        let jobs = claimer.claim(&[]).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
        ensure!(jobs.len() == LIMIT, "a claim found {} jobs", jobs.len());
    }
    Ok(Latency {
        store: "PostgreSQL",
        layout: format!("R3, 1,000,000 jobs, {state}"),
        claims: STRETCH,
        p50_us: report::quantile(&mut times, 0.5),
        p99_us: report::quantile(&mut times, 0.99),
        max_us: report::quantile(&mut times, 1.0),
        cpu_us: cpu.used(STRETCH),
        load: report::load(),
    })
}

/// Writes 1,000,000 jobs on the server: every tenth in lane 1, the others in lanes 2 and 3; in each lane the
/// last ones are ready.
async fn fill(client: &Client) -> Result<()> {
    client
        .batch_execute(
            "set enable_hashjoin = on; set enable_seqscan = on;
             insert into jobs (id, rank, due_at, submitted_at, lane, state, priority, digest, input, result)
             select (lpad(to_hex(1735689600000 + i / 1000), 12, '0') || '7' || lpad(to_hex(i % 1000), 3, '0')
                 || '8' || substr(md5(i::text), 1, 15))::uuid,
               i, i, i, case when i % 10 = 0 then 1 else 2 + i % 2 end,
               case when i % 10 = 0 or i > 777777 then 0 else 2 end, 0, decode(md5(i::text), 'hex'),
               convert_to('{\"to\":\"user' || lpad(i::text, 8, '0')
                 || '@example.org\",\"template\":\"welcome\"}', 'UTF8'),
               case when i % 10 = 0 or i > 777777 then null else '{\"sum\":000000000001}'::bytea end
             from generate_series(1, 1000000) i;
             insert into ready (lane, epoch, rank, job) select lane, 0, rank, id from jobs where state = 0",
        )
        .await?;
    for command in ["vacuum analyze jobs", "vacuum analyze ready", "checkpoint"] {
        client.batch_execute(command).await?;
    }
    Ok(())
}
