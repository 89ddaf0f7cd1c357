//! The store in PostgreSQL.
//!
//! Most verbs are single statements over arrays, prepared once per connection, so that a batch is one round trip, however large it
//! is. Verbs that need several statements send them in one transaction (`tx.rs`), pipelined where possible. What a statement writes
//! besides the job's own row depends on the rows that its guarded update returned: nothing of a fenced change is ever written.
//!
//! The server's clock decides about leases. `LISTEN` and `NOTIFY` are not used.

mod admin;
mod alerts;
mod arrivals;
mod autocommit;
mod branch;
mod branch_update;
mod caller_tx;
mod caller_types;
mod change_params;
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
mod floor;
mod fork;
mod inspect;
mod job_actions;
mod job_params;
mod journal;
mod lease;
mod list;
mod migrate;
mod names;
mod numeric;
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
mod settings;
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
    include!(concat!(env!("OUT_DIR"), "/postgres_sql.rs"));
}

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use windlass_model::{
    Change, ClaimNo, ClaimedJob, CommitOutcome, JobClaim, JobId, Limits, NewJob, NewSignal, SubmitOutcome,
    Time, WorkerId,
};

use crate::{
    Backend, CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Error, Execution, Fut, JobEnd,
    Maintenance, Migration, NewWorker, Now, PollReport, Prune, Pruned, ReapReport, ReapRequest, RenewRequest,
    Renewal, RollUpReport, RollUpRequest, SchemaState, SignalOutcome, Store, TimerReport, Work,
    intern::Lanes,
};
pub use arrivals::submit_in;
pub use caller_tx::PostgresTx;
use conn::retry_deadlock;
use errors::PgError;
use floor::Floors;
use open_claims::OpenClaims;
pub use options::Options;
use pool::{Pool, PooledConn, Role};

/// The store in PostgreSQL. Clones share its connections.
#[derive(Clone)]
pub struct Postgres {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    pool: Pool,
    /// Connections for transactions that run the caller's own statements.
    caller_pool: Pool,
    lanes: Lanes,
    floors: Floors,
    open_claims: OpenClaims,
    statements: Arc<AtomicU64>,
}

/// What a priority is multiplied with in a rank; see [`windlass_model::rank`].
const SPAN: i64 = windlass_model::rank::AGEING_SPAN.as_micros() as i64;

impl Postgres {
    /// Connects, and migrates the schema if needed.
    pub async fn open(options: Options) -> Result<Postgres, Error> {
        migrate::prepare(&options).await?;
        let store = Postgres::with(options, Arc::default());
        drop(store.conn().await?);
        Ok(store)
    }

    /// A handle with connections of its own, opened as they are needed, which counts its statements in `statements`.
    fn with(options: Options, statements: Arc<AtomicU64>) -> Postgres {
        let pool = |role| Pool::new(options.clone(), role, Arc::clone(&statements));
        let (pool, caller_pool) = (pool(Role::Store), pool(Role::Caller));
        let (lanes, floors, open_claims) = Default::default();
        let shared = Shared { options, pool, caller_pool, lanes, floors, open_claims, statements };
        Postgres { shared: Arc::new(shared) }
    }

    /// Migrates the schema to version `target`; `None` is the newest.
    pub async fn migrate(options: &Options, target: Option<i32>) -> Result<SchemaState, Error> {
        Postgres::migrate_with(options, target, Postgres::MIGRATIONS).await
    }

    /// All statements of `sql/*.sql`: file, name and text.
    #[cfg(feature = "conformance")]
    pub const STATEMENTS: &[(&str, &str, &str)] = sql::ALL;

    /// The migrations of this build.
    pub const MIGRATIONS: &[Migration] = migrate::MIGRATIONS;

    /// [`Postgres::migrate`] with other migrations: for tests of migrating itself.
    pub async fn migrate_with(
        options: &Options,
        target: Option<i32>,
        migrations: &[Migration],
    ) -> Result<SchemaState, Error> {
        migrate::to(options, target, migrations).await
    }

    /// Connects a client with the settings of the store's transactions, for tests and diagnostics.
    pub async fn client(options: &Options) -> Result<tokio_postgres::Client, Error> {
        let (client, _) = pool::connect(options, &tokio::runtime::Handle::current()).await?;
        client
            .batch_execute(&settings::BeginSql::for_session(&options.schema))
            .await
            .map_err(PgError::from)?;
        Ok(client)
    }

    async fn conn(&self) -> Result<PooledConn<'_>, PgError> {
        let conn = self.shared.pool.get().await?;
        if conn.is_new() && !self.read_lanes(&conn).await? {
            return Err(names::database_restored().into());
        }
        Ok(conn)
    }
}

/// A time as a parameter; null is the server's clock.
fn micros(now: Now) -> Option<i64> {
    now.map(Time::micros)
}

/// A duration as a parameter.
fn span(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

impl Execution for Postgres {
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        Box::pin(lease::register(self, now, worker))
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
        Box::pin(claim::claim(self, now, request))
    }

    fn claimed_jobs(&self, worker: WorkerId, number: ClaimNo) -> Fut<'_, Vec<ClaimedJob>> {
        Box::pin(claim::claimed_jobs(self, worker, number))
    }

    fn claims_with_jobs<'a>(&'a self, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, Vec<ClaimNo>> {
        Box::pin(claim::claims_with_jobs(self, worker, numbers))
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
        Box::pin(lease::release(self, jobs))
    }

    fn release_claims<'a>(&'a self, _now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        Box::pin(lease::release_claims(self, worker, numbers))
    }

    fn retire_worker<'a>(&'a self, _now: Now, worker: WorkerId) -> Fut<'a, usize> {
        Box::pin(lease::retire(self, worker))
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        Box::pin(lease::cancel_requests(self, worker))
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        Box::pin(timers::gates(self, queues))
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        Box::pin(inspect::job_ends(self, ids))
    }
}

impl Maintenance for Postgres {
    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(lease::renew(self, now, request))
    }

    fn reap<'a>(&'a self, now: Now, request: &'a ReapRequest) -> Fut<'a, ReapReport> {
        Box::pin(reap::reap(self, now, request))
    }

    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport> {
        Box::pin(timers::fire_timers(self, now, limit))
    }

    fn repair(&self, now: Now) -> Fut<'_, usize> {
        Box::pin(async move { Ok(serial::repair(self).await? + wait::repair(self, now).await?) })
    }

    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport> {
        Box::pin(poll::poll(self, now, limit))
    }

    fn prune<'a>(&'a self, now: Now, what: &'a Prune) -> Fut<'a, Pruned> {
        Box::pin(async move { retry_deadlock!(prune::prune(self, now, what)) })
    }

    fn roll_up<'a>(&'a self, request: &'a RollUpRequest) -> Fut<'a, RollUpReport> {
        Box::pin(async move { retry_deadlock!(rollups::roll_up(self, request)) })
    }

    fn prune_sessions(&self, now: Now, limit: usize) -> Fut<'_, usize> {
        Box::pin(async move { Ok(users::prune_sessions(self, now, limit).await?) })
    }
}

impl Backend for Postgres {
    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        // The runtime that opened connections drives them, so another thread needs its own.
        let mut options = self.shared.options.clone();
        // It renews leases: a connection that hangs must be given up well before a lease expires.
        options.patience = options.patience.min(Duration::from_secs(3));
        let other: Arc<dyn Store> = Arc::new(Postgres::with(options, Arc::clone(&self.shared.statements)));
        Box::pin(std::future::ready(Ok(other)))
    }

    fn limits(&self) -> &Limits {
        &self.shared.options.limits
    }

    /// Two at once are faster than one, and a third gains nothing.
    fn concurrent_commits(&self) -> usize {
        2
    }

    fn schema_name(&self) -> Option<&str> {
        Some(&self.shared.options.schema)
    }

    fn liveness_dir(&self) -> Option<PathBuf> {
        let options = &self.shared.options;
        let host = options.config.get_hosts().first().map(|host| format!("{host:?}")).unwrap_or_default();
        let port = options.config.get_ports().first().copied().unwrap_or(5432);
        let name =
            format!("{host}-{port}-{}-{}", options.config.get_dbname().unwrap_or_default(), options.schema);
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        Some(std::env::temp_dir().join("windlass-workers").join(plain))
    }

    fn statements(&self) -> u64 {
        self.shared.statements.load(Ordering::Relaxed)
    }
}
