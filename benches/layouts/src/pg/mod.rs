//! PostgreSQL: sessions with the engine's settings, the types on the wire, and one whole run of a layout.

mod append;
mod drain;
mod latency;
mod meter;
mod schema;

use std::time::Instant;

use anyhow::{Context, Result};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, NoTls, Statement};

pub(crate) use drain::Flow;
pub(crate) use latency::measure as latency;
pub(crate) use schema::{Layout, Shape};

use crate::job::{self, Id, IdKind, Job, SUBMIT_BATCH};
use crate::report::{self, Sample};

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// What every session of the engine sets, so that a statement is planned once and never by scans.
const SETTINGS: &str = "set search_path = layouts; set plan_cache_mode = force_generic_plan; \
    set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off";

impl ToSql for Id {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        match *ty {
            Type::INT8 => out.extend_from_slice(&self.number().to_be_bytes()),
            _ => out.extend_from_slice(&self.0.to_be_bytes()),
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::UUID | Type::INT8)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(raw.iter().fold(Id(0), |id, byte| Id(id.0 << 8 | u128::from(*byte))))
    }

    fn accepts(ty: &Type) -> bool {
        <Id as ToSql>::accepts(ty)
    }
}

/// Connects; the connection is driven by a task of the current runtime.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.context("cannot connect to PostgreSQL")?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("connection lost: {error}");
        }
    });
    client.batch_execute(SETTINGS).await?;
    Ok(client)
}

/// One run: fresh tables, submit all jobs, drain them all.
pub(crate) async fn run(url: &str, shape: Shape, flow: Flow, n: usize, lanes: i32) -> Result<Sample> {
    let admin = connect(url).await?;
    meter::fresh_schema(&admin, &schema::ddl(shape)).await?;
    let jobs = job::make(n, lanes, shape.ids);
    let (claimer, committer) = (connect(url).await?, connect(url).await?);

    let before = meter::checkpoint(&admin).await?;
    let started = Instant::now();
    if shape.layout == Layout::A {
        append::submit(&committer, &jobs).await?;
    } else {
        submit(&committer, shape, &jobs).await?;
    }
    let submit_us = started.elapsed().as_secs_f64() * 1e6 / n as f64;
    let submitted = meter::wal_since(&admin, &before, n).await?;

    let before = meter::checkpoint(&admin).await?;
    let (claim_cpu, commit_cpu) = (meter::Cpu::start(&claimer).await?, meter::Cpu::start(&committer).await?);
    let started = Instant::now();
    let done = if shape.layout == Layout::A {
        append::drain(&claimer, &committer, lanes).await?
    } else {
        drain::drain(&claimer, &committer, shape, flow, lanes).await?
    };
    let drain_us = started.elapsed().as_secs_f64() * 1e6 / n as f64;
    anyhow::ensure!(done == n, "{done} of {n} jobs were drained");
    let (claim_cpu, commit_cpu) = (claim_cpu.used(n), commit_cpu.used(n));
    let drained = meter::wal_since(&admin, &before, n).await?;

    for client in [&claimer, &committer] {
        client.batch_execute("select pg_stat_force_next_flush()").await?;
        client.batch_execute("select 1").await?;
    }
    let rows = meter::rows(&admin, n).await?;
    let started = Instant::now();
    if shape.layout == Layout::A {
        append::rotate(&admin).await?;
        eprintln!("   rotation of all segments: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    } else {
        let table = if shape.layout == Layout::W { "jobs" } else { "ready" };
        admin.batch_execute(&format!("vacuum {table}")).await?;
    }
    let clean_us = started.elapsed().as_secs_f64() * 1e6 / n as f64;
    Ok(Sample {
        store: "PostgreSQL",
        layout: String::new(),
        repeat: 0,
        jobs: n,
        lanes,
        submit_us,
        drain_us,
        claim_cpu,
        commit_cpu,
        submit_wal: submitted.bytes,
        drain_wal: drained.bytes,
        drain_fpi: Some(drained.images),
        dead: Some(rows.dead),
        updates: Some(rows.updates),
        hot: Some(rows.hot),
        bytes: rows.bytes,
        vacuum_us: Some(clean_us),
        load: report::load(),
    })
}

/// Submits the jobs in batches, each of which is one statement over binary arrays.
async fn submit(client: &Client, shape: Shape, jobs: &[Job]) -> Result<()> {
    let statement = client.prepare(&schema::submit(shape)).await?;
    for batch in jobs.chunks(SUBMIT_BATCH) {
        submit_batch(client, &statement, batch).await?;
    }
    Ok(())
}

/// Sends one batch of jobs as arrays.
async fn submit_batch(client: &Client, statement: &Statement, batch: &[Job]) -> Result<()> {
    let ids: Vec<Id> = batch.iter().map(|j| j.id).collect();
    let lanes: Vec<i32> = batch.iter().map(|j| j.lane).collect();
    let ranks: Vec<i64> = batch.iter().map(|j| j.rank).collect();
    let inputs: Vec<&[u8]> = batch.iter().map(|j| &j.input[..]).collect();
    let digests: Vec<&[u8]> = batch.iter().map(|j| &j.digest[..]).collect();
    client.execute(statement, &[&ids, &lanes, &ranks, &inputs, &digests, &job::now()]).await?;
    Ok(())
}

/// The SQL type of ids.
pub(crate) fn id_type(ids: IdKind) -> &'static str {
    match ids {
        IdKind::Uuid => "uuid",
        IdKind::Number => "int8",
    }
}
