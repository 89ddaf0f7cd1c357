//! The conformance suite on PostgreSQL, and what only a server can do. Fails on a machine without PostgreSQL.

/// Sends a call, and returns its result with the number of statements that it sent, `begin` and `commit` included.
macro_rules! count_statements {
    ($store:expr, $call:expr) => {{
        let before = $store.statements();
        let result = $call.await.expect("succeeds");
        (result, $store.statements() - before)
    }};
}

mod arrivals;
mod branch_contention;
mod branch_counts;
mod branch_plans;
mod child_costs;
mod empty_plans;
mod failures;
mod hostile_defaults;
mod list_plans;
mod list_times;
mod machines;
mod migrations;
mod plans;
mod rights;
mod rollup_costs;
mod sessions;
mod source_rows;
mod transact;
mod undecodable;
mod workflows;

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use windlass_store::{
    Store,
    conformance::kit::Handle,
    postgres::{Options, Postgres},
};
use windlass_testpg::Cluster;

/// One server for all tests of this process. It is never dropped: its watcher stops it when the process has ended.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        // The suite tests logic, not the disk, and every sibling has connections of its own.
        let builder = Cluster::builder().setting("fsync", "off").setting("max_connections", 400);
        builder.start().unwrap_or_else(|error| panic!("PostgreSQL is needed for these tests: {error}"))
    })
}

/// Options for a new schema.
fn fresh() -> Options {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let schema = format!("case_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    Options::parse(&cluster().url()).and_then(|options| options.schema(&schema)).expect("an address")
}

/// Opens a store in a new schema.
async fn open_fresh() -> Handle {
    Arc::new(Postgres::open(fresh()).await.expect("open"))
}

/// Opens a store in a schema, and connects a client with its settings.
async fn open_with_client(options: &Options) -> (Handle, tokio_postgres::Client) {
    let store = Arc::new(Postgres::open(options.clone()).await.expect("open"));
    (store, Postgres::client(options).await.expect("connected"))
}

/// Options for a schema of this name.
fn named(schema: &str) -> Options {
    Options::parse(&cluster().url()).and_then(|options| options.schema(schema)).expect("an address")
}

/// Runs statements in the default database, as the superuser. Returns what they print.
fn sql(statements: &str) -> String {
    cluster().sql("windlass", statements).expect("sql")
}

async fn open() -> ((), Arc<dyn Store>) {
    ((), open_fresh().await)
}

windlass_store::conformance!(open);
windlass_store::conformance_of_transactions!(open);

/// A schema that the next sequence reuses: creating one takes longer than most sequences.
struct Reused(Options);

static IDLE: Mutex<Vec<Options>> = Mutex::new(Vec::new());

impl Drop for Reused {
    fn drop(&mut self) {
        IDLE.lock().expect("idle schemas").push(self.0.clone());
    }
}

/// Empties all tables except for the version of the schema.
const TRUNCATE: &str = "do $$ begin execute (
    select 'truncate ' || string_agg(format('%I', tablename), ', ') || ' restart identity' from pg_tables
    where schemaname = current_schema() and tablename <> 'meta'
); end $$";

async fn reopen() -> (Reused, Arc<dyn Store>) {
    let idle = IDLE.lock().expect("idle schemas").pop();
    let options = match idle {
        Some(options) => {
            let client = Postgres::client(&options).await.expect("connected");
            client.batch_execute(TRUNCATE).await.expect("emptied");
            options
        }
        None => fresh(),
    };
    let store = Postgres::open(options.clone()).await.expect("open");
    (Reused(options), Arc::new(store))
}

#[test]
fn random_sequences_agree_with_the_reference() {
    windlass_store::conformance::random_sequences::run(64, reopen);
}

#[test]
fn random_sequences_with_branches_agree_with_the_reference() {
    windlass_store::conformance::random_sequences::run_with_branches(32, reopen);
}
