//! The suite on PostgreSQL, and what only a server can suffer. A machine without PostgreSQL fails it.

mod arrive;
mod branch_plans;

mod cost;
mod crowd;
mod hostile;
mod machines;
mod parted;
mod plans;
mod rights;
mod sessions;
mod transact;
mod trouble;
mod user_rows;
mod workflows;

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use windlass_store::{
    Store,
    postgres::{Options, Postgres},
};
use windlass_testpg::Cluster;

/// One server for all tests of this process. It is never dropped: its watcher ends it when the process has.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        // The suite is about logic, not about the disk, and every sibling brings connections of its own.
        let builder = Cluster::builder().setting("fsync", "off").setting("max_connections", 400);
        builder.start().unwrap_or_else(|error| panic!("PostgreSQL is needed for these tests: {error}"))
    })
}

/// Options for a schema that nobody uses yet.
fn fresh() -> Options {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let schema = format!("case_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    Options::parse(&cluster().url()).and_then(|options| options.schema(&schema)).expect("an address")
}

async fn open() -> ((), Arc<dyn Store>) {
    ((), Arc::new(Postgres::open(fresh()).await.expect("open")))
}

windlass_store::conformance!(open);

/// A schema that is used again after a sequence: making one takes longer than most sequences do.
struct Reused(Options);

static IDLE: Mutex<Vec<Options>> = Mutex::new(Vec::new());

impl Drop for Reused {
    fn drop(&mut self) {
        IDLE.lock().expect("idle schemas").push(self.0.clone());
    }
}

/// Everything but the version of the schema.
const EMPTY: &str = "do $$ begin execute (
    select 'truncate ' || string_agg(format('%I', tablename), ', ') || ' restart identity' from pg_tables
    where schemaname = current_schema() and tablename <> 'meta'
); end $$";

async fn reopen() -> (Reused, Arc<dyn Store>) {
    let idle = IDLE.lock().expect("idle schemas").pop();
    let options = match idle {
        Some(options) => {
            let client = Postgres::client(&options).await.expect("connected");
            client.batch_execute(EMPTY).await.expect("emptied");
            options
        }
        None => fresh(),
    };
    let store = Postgres::open(options.clone()).await.expect("open");
    (Reused(options), Arc::new(store))
}

#[test]
fn random_sequences_agree_with_the_reference() {
    windlass_store::conformance::agree::random(64, reopen);
}

#[test]
fn random_sequences_with_branches_agree_with_the_reference() {
    windlass_store::conformance::agree::random_branches(32, reopen);
}
