//! The store in PostgreSQL.
//!
//! Verbs are single statements over arrays, prepared once per connection, so a batch is one round trip however
//! large it is; the few that need several share a transaction and are pipelined. What a statement writes
//! besides the job's own row hangs on the rows its guarded update returned: nothing of a fenced change is
//! ever written.
//!
//! The clock that judges leases is the server's. LISTEN/NOTIFY is not used.

mod admin;
mod arrivals;
mod autocommit;
mod branch;
mod branch_update;
mod children;
mod claim;
mod commit;
mod conn;
mod consequences;
mod control;
mod errors;
mod floor;
mod fork;
mod inspect;
mod journal;
mod lease;
mod migrate;
mod names;
mod open_claims;
mod params;
mod poll;
mod pool;
mod prune;
mod reap;
mod rows;
mod schedule;
mod serial;
mod settings;
mod signal;
mod stage_update;
mod step;
mod submit;
mod timers;
mod transact;
mod unique;
mod unwind;
mod views;
mod wait;

/// The statements of `sql/*.sql`: see `build.rs`.
mod sql {
    include!(concat!(env!("OUT_DIR"), "/postgres_sql.rs"));
}

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use windlass_model::{
    Change, ClaimNo, JobClaim, JobId, KindVersion, Limits, NewJob, NewSignal, SubmitOutcome, Time, Verdict,
    WorkerId,
};

use crate::{
    CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Control, Error, Fut, Inspect, JobEnd, Migration,
    NewWorker, Now, PollReport, ReapReport, ReapRequest, RenewRequest, Renewal, SchemaState, SignalOutcome,
    Store, TimerReport, Work,
    address::take_limits,
    intern::{Lane, Lanes},
};
pub use arrivals::submit_in;
use floor::Floors;
use open_claims::OpenClaims;
use pool::{Guard, Pool, Role};

/// How to reach a database.
#[derive(Clone, Debug)]
pub struct Options {
    config: tokio_postgres::Config,
    schema: String,
    migrate: bool,
    limits: Limits,
    connections: usize,
    patience: Duration,
    connection_life: Duration,
}

impl Options {
    /// The database at `url`, e.g. `postgres://user@host/database?schema=windlass`. The schema's name is taken
    /// from the `schema` parameter, and is `windlass` without it; limits from parameters like `limit_payload`.
    pub fn parse(url: &str) -> Result<Options, Error> {
        let (url, limits) = take_limits(url)?;
        let (url, schema) = take_schema(&url);
        let config = url.parse::<tokio_postgres::Config>().map_err(|e| {
            Error::Config(format!(
                "the PostgreSQL address is not valid ({e}); use postgres://USER@HOST/DATABASE"
            ))
        })?;
        let options = Options {
            config,
            schema: "windlass".to_owned(),
            migrate: true,
            limits,
            connections: 8,
            // Longer than any batch takes, shorter than a lease.
            patience: Duration::from_secs(10),
            // Long enough that connecting costs nothing, short enough for someone who waits for a change to take effect.
            connection_life: Duration::from_secs(30 * 60),
        };
        schema.map_or(Ok(options.clone()), |schema| options.schema(&schema))
    }

    /// The PostgreSQL schema that holds the tables.
    pub fn schema(mut self, schema: &str) -> Result<Options, Error> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || schema.len() > 60 || !schema.chars().all(plain) || schema.starts_with("pg_") {
            return Err(Error::Config(format!(
                "{schema:?} cannot be the schema's name; use up to 60 lower-case letters, digits and underscores, \
                 not beginning with pg_"
            )));
        }
        self.schema = schema.to_owned();
        Ok(self)
    }

    /// The name of the PostgreSQL schema that holds the tables.
    pub fn schema_name(&self) -> &str {
        &self.schema
    }

    /// Whether to bring the schema up to date.
    pub fn migrate(mut self, migrate: bool) -> Options {
        self.migrate = migrate;
        self
    }

    /// What may be submitted.
    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    /// How many connections this handle may open.
    pub fn connections(mut self, connections: usize) -> Options {
        self.connections = connections.max(1);
        self
    }

    /// How long a connection is used before a new one takes its place, give or take a tenth: 30 minutes, unless you say
    /// otherwise. So an address that has come to mean another server, and settings that were changed, are known everywhere
    /// after that time.
    pub fn connection_life(mut self, life: Duration) -> Options {
        self.connection_life = life;
        self
    }

    /// How long to wait for an answer before giving up with [`Error::Unavailable`].
    pub fn patience(mut self, patience: Duration) -> Options {
        self.patience = patience;
        self
    }
}

/// Takes the `schema` parameter out of an address.
fn take_schema(url: &str) -> (String, Option<String>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let (mine, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|p| p.starts_with("schema="));
    let schema = mine.first().map(|p| p["schema=".len()..].to_owned());
    let rest = rest.join("&");
    (if rest.is_empty() { base.to_owned() } else { format!("{base}?{rest}") }, schema)
}

/// The store in PostgreSQL; cloning shares its connections.
#[derive(Clone)]
pub struct Postgres {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    pool: Pool,
    /// Connections for transactions of others.
    guests: Pool,
    lanes: Lanes,
    floors: Floors,
    open_claims: OpenClaims,
    statements: Arc<AtomicU64>,
}

/// What priorities are multiplied with; see [`windlass_model::rank`].
const SPAN: i64 = windlass_model::rank::AGEING_SPAN.as_micros() as i64;

impl Postgres {
    /// Connects, making the schema if needed.
    pub async fn open(options: Options) -> Result<Postgres, Error> {
        migrate::prepare(&options).await?;
        let store = Postgres::with(options, Arc::default());
        drop(store.conn().await?);
        Ok(store)
    }

    /// A handle with connections of its own, opened as they are needed, that counts its statements in `statements`.
    fn with(options: Options, statements: Arc<AtomicU64>) -> Postgres {
        let pool = |role| Pool::new(options.clone(), role, Arc::clone(&statements));
        let (pool, guests) = (pool(Role::Store), pool(Role::Guest));
        let (lanes, floors, open_claims) = Default::default();
        let shared = Shared { options, pool, guests, lanes, floors, open_claims, statements };
        Postgres { shared: Arc::new(shared) }
    }

    /// Takes the schema to `target` (`None` is the newest).
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

    /// A session of one's own, set up as the store's transactions are: for tests and diagnostics.
    pub async fn client(options: &Options) -> Result<tokio_postgres::Client, Error> {
        let client = pool::connect(options, &tokio::runtime::Handle::current()).await?;
        client
            .batch_execute(&settings::Openings::for_session(&options.schema))
            .await
            .map_err(errors::sorted)?;
        Ok(client)
    }

    async fn conn(&self) -> Result<Guard<'_>, Error> {
        let conn = self.shared.pool.get().await?;
        if conn.is_new() && !self.read_lanes(&conn).await? {
            return Err(names::gone_back());
        }
        Ok(conn)
    }

    /// Makes numbers for the lanes of some jobs; they are committed before they are cached.
    async fn intern<'a>(
        &self,
        names: impl Iterator<Item = (&'a str, &'a KindVersion, i32)>,
    ) -> Result<(), Error> {
        let unknown: BTreeSet<_> =
            names.filter(|(q, k, b)| self.shared.lanes.get_in(q, k, *b).is_none()).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let queues: Vec<&str> = unknown.iter().map(|(queue, ..)| *queue).collect();
        let kinds: Vec<&str> = unknown.iter().map(|(_, kind, _)| kind.kind.as_str()).collect();
        let versions: Vec<i32> = unknown.iter().map(|(_, kind, _)| kind.version).collect();
        let buckets: Vec<i32> = unknown.iter().map(|(.., bucket)| *bucket).collect();
        let conn = self.conn().await?;
        conn.execute(sql::names::ADD_QUEUE, &[&queues]).await?;
        conn.execute(sql::names::ADD_KIND, &[&kinds]).await?;
        conn.execute(sql::names::ADD_LANE, &[&queues, &kinds, &versions, &buckets]).await?;
        self.read_lanes(&conn).await.map(drop)
    }

    /// Reads all lanes and queues. What is known of others is forgotten: the store was set back to an earlier state, or a standby
    /// that lacked them took over. Answers whether nothing was.
    async fn read_lanes(&self, conn: &Guard<'_>) -> Result<bool, Error> {
        let lane = |row: &tokio_postgres::Row| {
            let kind = KindVersion { kind: row.get(4), version: row.get(5) };
            let (id, queue_id, kind_id, bucket) = (row.get(0), row.get(1), row.get(2), row.get(6));
            Lane { id, queue_id, kind_id, bucket, queue: row.get(3), kind }
        };
        // What others make while this is read may be missing in it.
        let before = self.shared.lanes.snapshot();
        let lanes = conn.read(sql::names::LANES, &[]).await?;
        let lanes: Vec<Lane> = lanes.iter().map(lane).collect();
        let queues = conn.read(sql::names::QUEUES, &[]).await?;
        let queues: HashMap<String, i32> = queues.iter().map(|row| (row.get(1), row.get(0))).collect();
        let known = &self.shared.lanes;
        let kept = known.keep_if_among(&before, &lanes, &queues);
        lanes.into_iter().for_each(|lane| known.add(lane));
        queues.iter().for_each(|(name, id)| known.add_queue(name, *id));
        conn.set_known();
        Ok(kept)
    }

    /// What lanes' numbers stand for is known afterwards, though another process may have made them.
    async fn know_lanes(&self, conn: &Guard<'_>, mut ids: impl Iterator<Item = i32>) -> Result<(), Error> {
        if ids.any(|id| self.shared.lanes.by_id(id).is_none()) {
            self.read_lanes(conn).await?;
        }
        Ok(())
    }

    fn lane(&self, id: i32) -> Result<Lane, Error> {
        let lane = self.shared.lanes.by_id(id);
        lane.ok_or_else(|| Error::Fault(format!("a job is in lane {id}, which is not in the lanes table")))
    }
}

/// A moment as a parameter: null is the server's clock.
fn micros(now: Now) -> Option<i64> {
    now.map(Time::micros)
}

/// A span as a parameter.
fn span(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

impl Store for Postgres {
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        Box::pin(lease::enlist(self, now, worker))
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        Box::pin(submit::submit(self, now, jobs, born))
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(claim::claim(self, now, ask))
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<Verdict>> {
        Box::pin(commit::commit(self, now, changes))
    }

    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<Verdict>> {
        Box::pin(transact::transact(self, now, work))
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        Box::pin(signal::signal(self, now, signals))
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(lease::renew(self, now, beat))
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a ReapRequest) -> Fut<'a, ReapReport> {
        Box::pin(reap::reap(self, now, sweep))
    }

    fn release<'a>(&'a self, _now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        Box::pin(lease::release(self, jobs))
    }

    fn release_claims<'a>(&'a self, _now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        Box::pin(lease::disown(self, worker, numbers))
    }

    fn retire_worker<'a>(&'a self, _now: Now, worker: WorkerId) -> Fut<'a, usize> {
        Box::pin(lease::retire(self, worker))
    }

    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport> {
        Box::pin(timers::due(self, now, limit))
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        Box::pin(timers::gate(self, queues))
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        Box::pin(inspect::ended(self, ids))
    }

    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport> {
        Box::pin(poll::poll(self, now, limit))
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        // Connections are driven by the runtime that opened them, so another thread needs its own.
        let mut options = self.shared.options.clone();
        // It renews leases: a connection that hangs must be given up well before one runs out.
        options.patience = options.patience.min(Duration::from_secs(3));
        let other: Arc<dyn Store> = Arc::new(Postgres::with(options, Arc::clone(&self.shared.statements)));
        Box::pin(std::future::ready(Ok(other)))
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        Box::pin(lease::orders(self, worker))
    }

    fn repair(&self, now: Now) -> Fut<'_, usize> {
        Box::pin(async move { Ok(serial::sweep(self).await? + wait::sweep(self, now).await?) })
    }

    fn control(&self) -> &dyn Control {
        self
    }

    fn limits(&self) -> &Limits {
        &self.shared.options.limits
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_read_from_the_address_and_checked() {
        let options = Options::parse("postgres://u@h/db?schema=jobs&connect_timeout=3").expect("valid");
        assert_eq!(options.schema, "jobs");
        assert_eq!(options.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert!(
            Options::parse("postgres://u@h/db?schema=Jobs").unwrap_err().to_string().contains("lower-case")
        );
        assert!(
            Options::parse("postgres://u@h:x/db").unwrap_err().to_string().contains("postgres://USER@HOST")
        );
    }
}
