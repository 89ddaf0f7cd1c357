//! The stores that a workload runs on: a fresh one each time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use anyhow::Context;
use windlass::{
    Builder, Engine,
    store::{Store, postgres, sqlite},
};
use windlass_testpg::Cluster;

/// Creates stores, and deletes them when it is dropped.
pub(super) struct Stores {
    kind: Kind,
    created: AtomicUsize,
}

enum Kind {
    Sqlite(tempfile::TempDir),
    Postgres(Box<Cluster>),
    /// A server of the caller's: each store is a schema of its own.
    Url(String),
}

impl Stores {
    pub(super) fn open(store: &str) -> anyhow::Result<Stores> {
        let kind = match store {
            "sqlite" => Kind::Sqlite(tempfile::tempdir().context("a temporary folder")?),
            "postgres" => {
                let cluster = Cluster::builder().preload("pg_stat_statements").start();
                Kind::Postgres(Box::new(cluster.context("starting a private PostgreSQL server")?))
            }
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                anyhow::ensure!(
                    !url.contains("schema="),
                    "the URL of a store to measure names no schema: each store gets a schema of its own; leave schema= out"
                );
                Kind::Url(url.to_owned())
            }
            other => anyhow::bail!(
                "{other:?} is not a store to measure; use sqlite, postgres or a postgres:// URL"
            ),
        };
        Ok(Stores { kind, created: AtomicUsize::new(0) })
    }

    /// The name of the backend, for the report.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite(_) => "sqlite",
            Kind::Postgres(_) | Kind::Url(_) => "postgres",
        }
    }

    /// The address of a fresh store.
    pub(super) fn url(&self) -> String {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let schema = |url: &str| {
            let glue = if url.contains('?') { '&' } else { '?' };
            format!("{url}{glue}schema=windlass_bench_{}_{number}", std::process::id())
        };
        match &self.kind {
            Kind::Sqlite(dir) => {
                format!("sqlite://{}", dir.path().join(format!("bench{number}.db")).display())
            }
            Kind::Postgres(cluster) => schema(&cluster.url()),
            Kind::Url(url) => schema(url),
        }
    }

    /// Kills the server, if it is a private one, and starts it again. Returns whether it did.
    pub(super) fn crash(&mut self) -> anyhow::Result<bool> {
        let Kind::Postgres(cluster) = &mut self.kind else { return Ok(false) };
        cluster.kill()?;
        cluster.restart()?;
        Ok(true)
    }

    /// A fresh store without an engine.
    pub(super) async fn store(&self) -> anyhow::Result<Arc<dyn Store>> {
        let url = self.url();
        Ok(match url.strip_prefix("sqlite://") {
            Some(path) => Arc::new(sqlite::Sqlite::open(sqlite::Options::new(path))?),
            None => Arc::new(postgres::Postgres::open(postgres::Options::parse(&url)?).await?),
        })
    }

    /// The description of an engine on a fresh store.
    pub(super) fn builder(&self) -> Builder {
        Engine::builder(self.url())
    }

    /// Writes a checkpoint before a measurement, so that it does not pay for its preparation.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        if let Kind::Postgres(cluster) = &self.kind {
            cluster.sql("windlass", "checkpoint")?;
        }
        Ok(())
    }

    /// The same for one store, also if it is a file: its log is checkpointed, so that the measurement does not depend on how much was
    /// written before.
    pub(super) fn settle_store(&self, url: &str) -> anyhow::Result<()> {
        if let (Kind::Sqlite(_), Some(path)) = (&self.kind, url.strip_prefix("sqlite://")) {
            let conn = rusqlite::Connection::open(path)?;
            conn.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
        }
        self.settle()
    }

    /// How many plain updates of one row this database commits per second, one after the other.
    pub(super) async fn bare_commits(&self, n: usize) -> anyhow::Result<f64> {
        match &self.kind {
            Kind::Sqlite(dir) => {
                let conn = rusqlite::Connection::open(dir.path().join("bare.db"))?;
                conn.query_row("pragma journal_mode = wal", [], |_| Ok(()))?;
                conn.execute_batch(
                    "pragma synchronous = full;
                     create table if not exists bare (id integer primary key, value integer);
                     insert into bare values (1, 0) on conflict do nothing",
                )?;
                let mut update = conn.prepare("update bare set value = value + 1 where id = 1")?;
                let started = Instant::now();
                for _ in 0..n {
                    update.execute([])?;
                }
                Ok(n as f64 / started.elapsed().as_secs_f64())
            }
            Kind::Postgres(_) | Kind::Url(_) => {
                let url = match &self.kind {
                    Kind::Postgres(cluster) => cluster.url(),
                    Kind::Url(url) => url.clone(),
                    Kind::Sqlite(_) => unreachable!("handled above"),
                };
                let (client, connection) =
                    windlass::store::tokio_postgres::connect(&url, windlass::store::tokio_postgres::NoTls)
                        .await?;
                tokio::spawn(connection);
                client
                    .batch_execute(
                        "create table if not exists windlass_bare (id int primary key, value int);
                         insert into windlass_bare values (1, 0) on conflict do nothing",
                    )
                    .await?;
                let update =
                    client.prepare("update windlass_bare set value = value + 1 where id = 1").await?;
                // In a task of the runtime, like its connection and the engine's commits.
                let (client, rate) = tokio::spawn(async move {
                    let started = Instant::now();
                    for _ in 0..n {
                        client.execute(&update, &[]).await?;
                    }
                    anyhow::Ok((client, n as f64 / started.elapsed().as_secs_f64()))
                })
                .await??;
                client.batch_execute("drop table windlass_bare").await?;
                Ok(rate)
            }
        }
    }

    /// Whether the server counts the pages of statements.
    pub(super) fn counts_pages(&self) -> bool {
        matches!(self.kind, Kind::Postgres(_))
    }

    /// Deletes a store that was created here and is closed.
    pub(super) fn delete(&self, url: &str) -> anyhow::Result<()> {
        match &self.kind {
            Kind::Sqlite(_) => {
                let path = url.trim_start_matches("sqlite://");
                for suffix in ["", "-wal", "-shm"] {
                    // A file that does not exist need not be deleted.
                    let _ = std::fs::remove_file(format!("{path}{suffix}"));
                }
                Ok(())
            }
            Kind::Postgres(cluster) => {
                let schema = url.rsplit_once("schema=").context("a store's schema")?.1;
                cluster.sql("windlass", &format!("drop schema {schema} cascade"))?;
                Ok(())
            }
            Kind::Url(_) => Ok(()),
        }
    }

    /// Runs SQL on a private server. Returns its rows; `None` on other stores.
    pub(super) fn sql(&self, sql: &str) -> anyhow::Result<Option<String>> {
        match &self.kind {
            Kind::Postgres(cluster) => Ok(Some(cluster.sql("windlass", sql)?)),
            _ => Ok(None),
        }
    }
}
