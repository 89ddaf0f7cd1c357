//! The plumbing of a store: its connections, and the properties of its database.

use std::{path::PathBuf, sync::Arc, time::Duration};

use windlass_model::Limits;

use crate::{Fut, Store};

/// What a program must know of the database behind a store. Called once by whoever opens or wraps a store: the engine, the
/// loops that need connections of their own, tests that count statements. Nothing here reads or writes jobs.
pub trait Backend: Send + Sync + 'static {
    /// Opens the same store through connections of its own, for use from another thread and runtime: what one thread
    /// blocks does not delay the other.
    fn sibling(&self) -> Fut<'_, Arc<dyn Store>>;

    /// The limits of what may be submitted.
    fn limits(&self) -> &Limits;

    /// The number of write transactions of one process in flight at once that pays off. More of them only wait for each
    /// other.
    fn concurrent_commits(&self) -> usize;

    /// Whether a write transaction waits for the one before it, whoever of the process sends it: then it pays off to decide what it
    /// writes when its turn comes.
    fn writes_in_turn(&self) -> bool {
        false
    }

    /// The schema of the database that holds the store's tables, if the database has schemas: what a transaction of the
    /// caller's own names to submit a job.
    fn schema_name(&self) -> Option<&str> {
        None
    }

    /// Whether the code of jobs may run transactions of its own on the database ([`crate::Execution::transact`]) and read its tables
    /// ([`crate::Replay::source_rows`]). Not through a server: a worker there has no access to the database.
    fn runs_transactions(&self) -> bool {
        true
    }

    /// How long [`crate::Execution::wait_for_gates`] should wait at most, if this store learns of a change by itself. `None` if it has to
    /// be asked: workers poll it.
    fn gate_wait(&self) -> Option<Duration> {
        None
    }

    /// The directory where a worker on this machine may keep a lock file by which others here notice at once that it died.
    /// The path names the store, so that only processes on the same store compare files. `None` if the store is not shared
    /// between processes.
    fn liveness_dir(&self) -> Option<PathBuf>;

    /// Statements sent to the database by this handle and its siblings since it was opened, `begin` and `commit` included.
    fn statements(&self) -> u64;
}
