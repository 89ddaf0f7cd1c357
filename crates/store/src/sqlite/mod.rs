//! The store in a SQLite file.
//!
//! One connection writes, behind a fair lock; others read. A verb runs on the thread that calls it: there is no
//! writer thread to wake, which makes a single commit as fast as the disk. Batches large enough to hold up an async
//! thread run with the thread marked as blocking. Several processes may share the file: a write transaction begins
//! `immediate`, and a locked database is waited for without blocking the thread.
//!
//! Durable: WAL with `synchronous=FULL`. Only claims reach the disk with the next other write, since a loss of power
//! that loses a claim also ends its worker. Files on a network file system are refused, because their locks cannot be
//! trusted.

mod admin;
mod alerts;
mod arrivals;
mod branch;
mod branch_update;
mod caller_tx;
mod children;
mod claim;
mod commit;
mod conn;
mod consequences;
mod control;
mod counts;
mod details;
mod diagnose;
mod errors;
mod fork;
mod inspect;
mod job_actions;
mod journal;
mod lease;
mod list;
mod migrate;
mod names;
mod open_claims;
mod operations;
mod options;
mod poll;
mod pool;
mod prune;
mod pulse;
mod rate;
mod reap;
mod rollups;
mod schedule;
mod serial;
mod signal;
mod source_rows;
mod stage_update;
mod step;
mod submit;
mod timers;
mod tokens;
mod transact;
mod tx;
mod unique;
mod unwind;
mod users;
mod views;
mod wait;

/// The statements of `sql/*.sql`: see `build.rs`.
mod sql {
    include!(concat!(env!("OUT_DIR"), "/sqlite_sql.rs"));
}

pub use arrivals::submit_in;
pub use options::Options;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use rusqlite::Connection;
use windlass_model::{
    Change, ClaimNo, ClaimedJob, CommitOutcome, JobClaim, JobId, Limits, NewJob, NewSignal, SubmitOutcome,
    WorkerId,
};

use self::{open_claims::OpenClaims, pool::SMALL};
use crate::{
    Backend, CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Error, Execution, Fut, JobEnd,
    Maintenance, Migration, NewWorker, Now, PollReport, Prune, Pruned, ReapReport, ReapRequest, RenewRequest,
    Renewal, RollUpReport, RollUpRequest, SignalOutcome, Store, TimerReport, Work, columns, intern::Lanes,
};

/// The store in a SQLite file; cloning shares it.
#[derive(Clone)]
pub struct Sqlite {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    writer: Arc<tokio::sync::Mutex<Connection>>,
    reader: Mutex<Connection>,
    /// For reads that may take long; opened by the first of them.
    snapshot_reader: Mutex<Option<Connection>>,
    lanes: Lanes,
    open_claims: OpenClaims,
    /// This handle's row in each gate. One row is enough: there is one writer at a time.
    gate_writer: i64,
    statements: Arc<AtomicU64>,
}

impl Sqlite {
    /// Opens a file, and creates it and its schema if needed.
    pub fn open(options: Options) -> Result<Sqlite, Error> {
        Sqlite::open_with_counter(options, Arc::default())
    }

    /// The same, counting its statements together with another handle's.
    fn open_with_counter(options: Options, statements: Arc<AtomicU64>) -> Result<Sqlite, Error> {
        let mut writer = conn::open_writer(&options.path)?;
        migrate::prepare(&mut writer, options.migrate)?;
        let reader = conn::open_reader(&options.path)?;
        let store = Sqlite {
            shared: Arc::new(Shared {
                writer: Arc::new(tokio::sync::Mutex::new(writer)),
                reader: Mutex::new(reader),
                snapshot_reader: Mutex::default(),
                lanes: Lanes::default(),
                open_claims: OpenClaims::default(),
                gate_writer: 0,
                statements,
                options,
            }),
        };
        store.read_lanes()?;
        Ok(store)
    }

    /// Reads the schema version of the file at `path`, which must exist. Writes nothing.
    pub fn schema_of(path: &Path) -> Result<crate::SchemaState, Error> {
        let conn = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        migrate::state(&conn, migrate::MIGRATIONS)
    }

    /// Migrates the schema of the file at `path` to `target` (`None` is the newest), and creates the file if needed.
    pub fn migrate(path: &Path, target: Option<i32>) -> Result<crate::SchemaState, Error> {
        Sqlite::migrate_with(path, target, Sqlite::MIGRATIONS)
    }

    /// All statements of `sql/*.sql`: file, name and text.
    #[cfg(feature = "conformance")]
    pub const STATEMENTS: &[(&str, &str, &str)] = sql::ALL;

    /// The migrations of this build.
    pub const MIGRATIONS: &[Migration] = migrate::MIGRATIONS;

    /// [`Sqlite::migrate`] with other migrations: for tests of migrating itself.
    pub fn migrate_with(
        path: &Path,
        target: Option<i32>,
        migrations: &[Migration],
    ) -> Result<crate::SchemaState, Error> {
        let mut writer = conn::open_writer(path)?;
        migrate::to(&mut writer, target, migrations)
    }
}

impl Execution for Sqlite {
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        Box::pin(self.write(1, move |tx| lease::register(tx, now, worker)))
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        claim_on_submit: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        Box::pin(submit::submit(self, now, jobs, claim_on_submit))
    }

    fn claim<'a>(&'a self, now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            self.intern(request.kinds.iter().map(|kind| (request.queue.as_str(), kind, 0))).await?;
            if let Some(nothing) = self.read(|tx| claim::find_idle(tx, now, request))? {
                return Ok(nothing);
            }
            // What a claim takes need not survive a loss of power, which ends the worker too; what it charges must.
            if let Some(batch) =
                self.write_unsynced(request.limit, |tx| claim::claim(tx, now, request, false)).await?
            {
                return Ok(batch);
            }
            let batch = self.write(request.limit, |tx| claim::claim(tx, now, request, true)).await?;
            batch.ok_or_else(|| Error::Fault("a claim that waits for the disk may charge".into()))
        })
    }

    fn claimed_jobs(&self, worker: WorkerId, number: ClaimNo) -> Fut<'_, Vec<ClaimedJob>> {
        Box::pin(std::future::ready(self.read(|tx| claim::claimed_jobs(tx, worker, number))))
    }

    fn claims_with_jobs<'a>(&'a self, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, Vec<ClaimNo>> {
        Box::pin(std::future::ready(self.read(|tx| claim::claims_with_jobs(tx, worker, numbers))))
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(commit::commit(self, now, changes))
    }

    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        Box::pin(transact::transact(self, now, work))
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        Box::pin(signal::signal(self, now, signals))
    }

    fn release<'a>(&'a self, _now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        Box::pin(self.write(jobs.len(), move |tx| lease::release(tx, jobs)))
    }

    fn release_claims<'a>(&'a self, _now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        Box::pin(self.write(numbers.len(), move |tx| {
            lease::release_claims(tx, worker, |number| numbers.contains(&number))
        }))
    }

    fn retire_worker<'a>(&'a self, _now: Now, worker: WorkerId) -> Fut<'a, usize> {
        Box::pin(self.write(SMALL + 1, move |tx| lease::retire(tx, worker)))
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        Box::pin(std::future::ready(self.read(|tx| lease::cancel_requests(tx, worker))))
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        Box::pin(std::future::ready(timers::gates(self, queues)))
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        Box::pin(std::future::ready(self.read(|tx| inspect::job_ends(tx, ids))))
    }
}

impl Maintenance for Sqlite {
    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(async move {
            if request.settled.is_empty() && request.solo_ended.is_empty() {
                self.write_one(|tx| lease::renew(tx, now, request)).await
            } else {
                self.write(request.settled.len(), |tx| lease::renew(tx, now, request)).await
            }
        })
    }

    fn reap<'a>(&'a self, now: Now, request: &'a ReapRequest) -> Fut<'a, ReapReport> {
        Box::pin(self.write(request.limit, move |tx| reap::reap(tx, now, request)))
    }

    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport> {
        Box::pin(timers::fire_timers(self, now, limit))
    }

    fn repair(&self, now: Now) -> Fut<'_, usize> {
        Box::pin(serial::repair(self, now))
    }

    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport> {
        Box::pin(poll::poll(self, now, limit))
    }

    fn prune<'a>(&'a self, now: Now, prune: &'a Prune) -> Fut<'a, Pruned> {
        Box::pin(async move {
            columns::check_prune(prune)?;
            prune::prune(self, now, prune).await
        })
    }

    fn roll_up<'a>(&'a self, request: &'a RollUpRequest) -> Fut<'a, RollUpReport> {
        Box::pin(rollups::roll_up(self, request))
    }

    fn prune_sessions(&self, now: Now, limit: usize) -> Fut<'_, usize> {
        Box::pin(users::prune_sessions(self, now, limit))
    }
}

impl Backend for Sqlite {
    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        // Connections of its own: this handle's lock may be held by a task whose thread is blocked.
        let options = self.shared.options.clone().migrate(false);
        let statements = Arc::clone(&self.shared.statements);
        let other =
            Sqlite::open_with_counter(options, statements).map(|store| Arc::new(store) as Arc<dyn Store>);
        Box::pin(std::future::ready(other))
    }

    fn limits(&self) -> &Limits {
        &self.shared.options.limits
    }

    /// One: a file has one writer at a time.
    fn concurrent_commits(&self) -> usize {
        1
    }

    fn writes_in_turn(&self) -> bool {
        true
    }

    fn liveness_dir(&self) -> Option<PathBuf> {
        Some(conn::liveness_dir(&self.shared.options.path))
    }

    fn statements(&self) -> u64 {
        self.shared.statements.load(Ordering::Relaxed)
    }
}
