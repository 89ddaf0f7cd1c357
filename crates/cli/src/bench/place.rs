//! Where a workload runs: a fresh store of its own each time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::Context;
use windlass::{
    Engine,
    store::{Store, postgres, sqlite},
};
use windlass_cluster::Cluster;

/// A place for stores, which takes everything along when it is dropped.
pub(super) struct Place {
    kind: Kind,
    made: AtomicUsize,
}

enum Kind {
    Sqlite(tempfile::TempDir),
    Postgres(Box<Cluster>),
    /// Somebody's server: stores are schemas of their own, dropped afterwards.
    Url(String),
}

impl Place {
    pub(super) fn open(store: &str) -> anyhow::Result<Place> {
        let kind = match store {
            "sqlite" => Kind::Sqlite(tempfile::tempdir().context("a temporary folder")?),
            "postgres" => {
                let cluster = Cluster::builder().preload("pg_stat_statements").start();
                Kind::Postgres(Box::new(cluster.context("starting a private PostgreSQL server")?))
            }
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Kind::Url(url.to_owned())
            }
            other => anyhow::bail!(
                "{other:?} is not a store to measure; use sqlite, postgres or a postgres:// URL"
            ),
        };
        Ok(Place { kind, made: AtomicUsize::new(0) })
    }

    /// What the report calls it.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite(_) => "sqlite",
            Kind::Postgres(_) | Kind::Url(_) => "postgres",
        }
    }

    /// The address of a fresh store.
    pub(super) fn url(&self) -> String {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
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

    /// A fresh store without an engine.
    pub(super) async fn store(&self) -> anyhow::Result<Arc<dyn Store>> {
        let url = self.url();
        Ok(match url.strip_prefix("sqlite://") {
            Some(path) => Arc::new(sqlite::Sqlite::open(sqlite::Options::new(path))?),
            None => Arc::new(postgres::Postgres::open(postgres::Options::parse(&url)?).await?),
        })
    }

    /// An engine on a fresh store.
    pub(super) async fn engine(&self) -> anyhow::Result<Engine> {
        Ok(Engine::open(&self.url()).await?)
    }

    /// Before a measurement begins: what was written for its preparation is not to be paid for in it.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        if let Kind::Postgres(cluster) = &self.kind {
            cluster.sql("windlass", "checkpoint")?;
        }
        Ok(())
    }

    /// The same for one store that was made here, also where it is a file: its log is moved into it, so that whether a
    /// measurement pays for that does not hang on how much was written before.
    pub(super) fn settle_store(&self, url: &str) -> anyhow::Result<()> {
        if let (Kind::Sqlite(_), Some(path)) = (&self.kind, url.strip_prefix("sqlite://")) {
            let conn = rusqlite::Connection::open(path)?;
            conn.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
        }
        self.settle()
    }

    /// Whether the server counts the pages of statements.
    pub(super) fn counts_pages(&self) -> bool {
        matches!(self.kind, Kind::Postgres(_))
    }

    /// Removes a store that was made here and is closed.
    pub(super) fn forget(&self, url: &str) -> anyhow::Result<()> {
        match &self.kind {
            Kind::Sqlite(_) => {
                let path = url.trim_start_matches("sqlite://");
                for suffix in ["", "-wal", "-shm"] {
                    // What is not there need not go.
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

    /// Runs SQL on a private server and answers its rows; nothing elsewhere.
    pub(super) fn sql(&self, sql: &str) -> anyhow::Result<Option<String>> {
        match &self.kind {
            Kind::Postgres(cluster) => Ok(Some(cluster.sql("windlass", sql)?)),
            _ => Ok(None),
        }
    }
}
