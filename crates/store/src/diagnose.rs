//! What `windlass doctor` reads: the settings and health of the database, and work that does not progress.
//!
//! [`Diagnose`] reads through an open store. [`schema_state`] and [`database`] read by the store's address alone: they work on a
//! schema that this binary may not use, and they neither create nor migrate anything.

use std::time::Duration;

use serde::Serialize;
use windlass_model::{BranchCounts, JobCounts, JobId, Merge, Time};

use crate::{Error, Fut, SchemaState, intern::Lane, sqlite_path};

/// Reads for a diagnosis. They change nothing, and their cost is bounded by their arguments and by the number of lanes, not by
/// the number of jobs.
pub trait Diagnose: Send + Sync {
    /// The settings and health of the database, as a new session of this store's user sees them.
    fn database(&self) -> Fut<'_, Database>;

    /// The first ready job of each queue, kind and version; suspects, which wait in a lane of their own, have another.
    fn oldest_ready(&self) -> Fut<'_, Vec<OldestReady>>;

    /// How many ready jobs are suspects. Counting stops at `cap`.
    fn suspects(&self, cap: u64) -> Fut<'_, u64>;

    /// How many failed jobs nobody has taken into account: those that are not children of a merged branch, whose merge has counted
    /// them and whose rule, or the code after it, has dealt with them. Reads the newest `cap` failed jobs.
    fn unhandled_failures(&self, cap: u64) -> Fut<'_, u64>;

    /// Branches that their job waits for, in the order of their next poll. Reads at most `limit` branches.
    fn awaited_branches(&self, limit: usize) -> Fut<'_, Vec<BranchHealth>>;

    /// Branches whose job has ended while children have not, and that nobody is cancelling. Reads the newest `limit` branches.
    fn orphaned_branches(&self, limit: usize) -> Fut<'_, Vec<BranchHealth>>;

    /// Where the number of jobs that is maintained differs from the number of rows, which should be nowhere. Unlike all others, this
    /// reads all jobs.
    fn miscounts(&self) -> Fut<'_, Vec<Miscount>>;
}

/// A queue, kind and version whose jobs are not counted rightly.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Miscount {
    /// The queue.
    pub queue: String,
    /// The kind.
    pub kind: String,
    /// The kind's version.
    pub version: i32,
    /// The counts that are maintained.
    pub maintained: JobCounts,
    /// The counts of the rows.
    pub counted: JobCounts,
}

impl Miscount {
    pub(crate) fn new(lane: Lane, maintained: JobCounts, counted: JobCounts) -> Miscount {
        let Lane { queue, kind, .. } = lane;
        Miscount { queue, kind: kind.kind, version: kind.version, maintained, counted }
    }
}

/// The database of a store.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "backend", rename_all = "lowercase")]
pub enum Database {
    /// Maps in this process: there is nothing to report.
    Memory,
    /// A SQLite file.
    Sqlite(SqliteHealth),
    /// A PostgreSQL database.
    Postgres(PostgresHealth),
}

/// The settings and health of a SQLite file.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SqliteHealth {
    /// SQLite's journal mode; the engine works in `wal`.
    pub journal_mode: String,
    /// Whether this user may write.
    pub write: WriteAccess,
    /// The size of the file and of its write-ahead log.
    pub used_bytes: u64,
    /// How much space is left on its disk; `None` if the file system does not report it.
    pub free_bytes: Option<u64>,
}

/// The settings and health of a PostgreSQL server, and of the store's schema on it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PostgresHealth {
    /// The server's version.
    pub version: String,
    /// The store's schema.
    pub schema: String,
    /// The role of the session.
    pub user: String,
    /// `fsync`.
    pub fsync: String,
    /// `full_page_writes`.
    pub full_page_writes: String,
    /// `synchronous_commit`, as this role has it by default.
    pub synchronous_commit: String,
    /// Whether this role may write to the schema.
    pub write: WriteAccess,
    /// How long the oldest transaction on this database has been open: it keeps vacuum from removing dead rows.
    pub longest_transaction: Duration,
    /// The tables of the schema, largest first.
    pub tables: Vec<TableHealth>,
}

/// A table of a PostgreSQL schema.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TableHealth {
    /// Its name.
    pub name: String,
    /// Its size with its indexes.
    pub bytes: u64,
    /// How many rows it has, as the server's statistics estimate.
    pub live_rows: u64,
    /// How many dead rows wait for vacuum, as the server's statistics estimate.
    pub dead_rows: u64,
}

/// Whether a session may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteAccess {
    /// It may.
    Allowed,
    /// The user lacks the right: to the file or its folder, or to the schema.
    Denied,
    /// Another process has held SQLite's write lock for three seconds.
    Locked,
    /// The server is a standby.
    Standby,
    /// Transactions are read-only by default.
    ReadOnly,
}

/// The first ready job of one queue, kind and version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OldestReady {
    /// The queue.
    pub queue: String,
    /// The kind.
    pub kind: String,
    /// The kind's version.
    pub version: i32,
    /// Since when the job is due.
    pub due_at: Time,
}

/// A branch, as far as a diagnosis needs it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BranchHealth {
    /// The job that opened it.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// How it is merged, once its job waits for that.
    pub merge: Option<Merge>,
    /// How many children it has.
    pub spawned: i64,
    /// How they ended. `started` is not read.
    pub counts: BranchCounts,
    /// When workers poll it next; `None` if nobody waits for it.
    pub poll_at: Option<Time>,
}

/// Reads a merge record; one that this binary does not know is none.
pub(crate) fn merge(record: Option<&str>) -> Option<Merge> {
    serde_json::from_str(record?).ok()
}

/// Reads the schema version of the store at an address. A SQLite file that does not exist has version 0.
pub async fn schema_state(url: &str) -> Result<SchemaState, Error> {
    match sqlite_path(url) {
        #[cfg(feature = "sqlite")]
        Some(path) if path.exists() => crate::sqlite::Sqlite::schema_of(&path),
        #[cfg(feature = "sqlite")]
        Some(_) => Ok(SchemaState { version: 0, oldest: 0, ..SchemaState::CURRENT }),
        #[cfg(feature = "postgres")]
        None if crate::is_postgres(url) => {
            crate::postgres::Postgres::schema_of(&crate::postgres::Options::parse(url)?).await
        }
        // The memory store is always current; any other address is an error of `open`.
        _ => crate::open(url, false).await?.inspect().schema().await,
    }
}

/// Reads the settings and health of the database at an address. A SQLite file must exist.
pub async fn database(url: &str) -> Result<Database, Error> {
    match sqlite_path(url) {
        #[cfg(feature = "sqlite")]
        Some(path) => crate::sqlite::Sqlite::database_of(&path),
        #[cfg(feature = "postgres")]
        None if crate::is_postgres(url) => {
            crate::postgres::Postgres::database_of(&crate::postgres::Options::parse(url)?).await
        }
        _ => crate::open(url, false).await?.diagnose().database().await,
    }
}
