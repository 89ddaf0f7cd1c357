//! What a phase cost: write-ahead log, rows and bytes, as the server counts them.

use anyhow::Result;
use tokio_postgres::Client;

use crate::report;

/// Write-ahead log of a phase, in bytes per job.
pub(crate) struct Wal {
    pub(crate) bytes: f64,
    pub(crate) images: f64,
}

/// Rows and bytes after a run, per job.
pub(crate) struct Rows {
    pub(crate) dead: f64,
    pub(crate) updates: f64,
    pub(crate) hot: f64,
    pub(crate) bytes: f64,
}

/// The CPU time of a server process, if the server runs on this machine.
pub(crate) struct Cpu {
    pid: i32,
    before: Option<f64>,
}

impl Cpu {
    /// Begins to count for the client's session.
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let pid = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
        Ok(Cpu { pid, before: report::cpu(pid) })
    }

    /// Microseconds per job since the start.
    pub(crate) fn used(&self, jobs: usize) -> Option<f64> {
        Some((report::cpu(self.pid)? - self.before?) / jobs as f64)
    }
}

/// Drops what the last run left and makes the tables of this one.
pub(crate) async fn fresh_schema(client: &Client, ddl: &str) -> Result<()> {
    client.batch_execute("create extension if not exists pg_walinspect schema public").await?;
    client.batch_execute("drop schema if exists layouts cascade; create schema layouts").await?;
    client.batch_execute(ddl).await?;
    Ok(())
}

/// Makes a checkpoint and returns where the log then stands. The first change of every page after it writes an
/// image of the whole page, so that a phase carries the most images it can.
pub(crate) async fn checkpoint(client: &Client) -> Result<String> {
    client.batch_execute("checkpoint").await?;
    Ok(client.query_one("select pg_current_wal_insert_lsn()::text", &[]).await?.get(0))
}

/// The log written since `before`.
pub(crate) async fn wal_since(client: &Client, before: &str, jobs: usize) -> Result<Wal> {
    let row = client
        .query_one(
            "select (pg_current_wal_flush_lsn() - $1::text::pg_lsn)::float8, (select sum(fpi_size)::float8 \
             from public.pg_get_wal_stats($1::text::pg_lsn, pg_current_wal_flush_lsn()))",
            &[&before],
        )
        .await?;
    Ok(Wal { bytes: row.get::<_, f64>(0) / jobs as f64, images: row.get::<_, f64>(1) / jobs as f64 })
}

/// Sums the statistics and sizes of all tables of the schema.
pub(crate) async fn rows(client: &Client, jobs: usize) -> Result<Rows> {
    let row = client
        .query_one(
            "select sum(n_dead_tup)::float8, sum(n_tup_upd)::float8, sum(n_tup_hot_upd)::float8, \
             sum(pg_total_relation_size(relid))::float8 from pg_stat_user_tables where schemaname = 'layouts'",
            &[],
        )
        .await?;
    let per_job = |column: usize| row.get::<_, f64>(column) / jobs as f64;
    Ok(Rows { dead: per_job(0), updates: per_job(1), hot: per_job(2), bytes: per_job(3) })
}
