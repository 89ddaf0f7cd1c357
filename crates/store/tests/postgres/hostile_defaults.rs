//! The conformance suite for roles whose defaults would break the store's statements: none of them may matter.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use windlass_store::{
    Store,
    conformance::kit::*,
    postgres::{Options, Postgres},
};

use super::cluster;

/// The defaults of the roles, besides the isolation level.
const DEFAULTS: &str = "
    default_transaction_read_only = on;
    default_transaction_deferrable = on;
    statement_timeout = '500ms';
    lock_timeout = '1ms';
    idle_in_transaction_session_timeout = '50ms';
    search_path = nowhere, pg_catalog;
    row_security = off;
    standard_conforming_strings = off;
    escape_string_warning = off;
    transform_null_equals = on;
    array_nulls = off;
    timezone = 'Asia/Kathmandu';
    datestyle = 'sql, dmy';
    intervalstyle = 'sql_standard';
    bytea_output = 'escape';
    extra_float_digits = -15;
    enable_indexscan = off;
    enable_indexonlyscan = off;
    enable_nestloop = off;
    enable_sort = off;
    plan_cache_mode = 'force_custom_plan';
    client_min_messages = 'debug1'";

/// The roles, which may create schemas in a database of their own: one per isolation level that is not the store's.
const ROLES: [(&str, &str); 2] = [("hostile_rr", "repeatable read"), ("hostile_ser", "serializable")];

fn create_roles() {
    cluster().create_database("hostile").expect("created");
    for (name, isolation) in ROLES {
        let set = |setting: &str| format!("alter role {name} set {};", setting.trim());
        let defaults: String = DEFAULTS.split(';').map(set).collect();
        let create = format!(
            "create role {name} login; grant create on database hostile to {name};
             alter role {name} set default_transaction_isolation = '{isolation}'; {defaults}"
        );
        cluster().sql("hostile", &create).expect("created");
    }
}

/// Opens a store in a new schema, as one of the roles in turn.
async fn open() -> ((), Arc<dyn Store>) {
    static CREATED: OnceLock<()> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(1);
    CREATED.get_or_init(create_roles);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (role, _) = ROLES[number as usize % ROLES.len()];
    let url = format!("postgres://{role}@127.0.0.1:{}/hostile?schema=case_{number}", cluster().port());
    let store = Postgres::open(Options::parse(&url).expect("an address")).await.expect("open");
    ((), Arc::new(store))
}

windlass_store::conformance!(open);

/// The defaults of a role change while the store works, so that each new session starts with others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_that_change_do_not_matter() {
    cluster()
        .sql("windlass", "create role changing login; grant create on database windlass to changing")
        .expect("made");
    let url = format!("postgres://changing@127.0.0.1:{}/windlass?schema=changing", cluster().port());
    let options = Options::parse(&url).expect("an address").connection_life(Duration::from_millis(5));
    let store: Handle = Arc::new(Postgres::open(options).await.expect("open"));
    let worker = worker(&store, 1).await;
    for n in 0..20 {
        let (read_only, isolation) = (
            ["on", "off"][n as usize % 2],
            ["serializable", "read committed", "repeatable read"][n as usize % 3],
        );
        let set = format!(
            "alter role changing set default_transaction_read_only = {read_only};
             alter role changing set default_transaction_isolation = '{isolation}'"
        );
        cluster().sql("windlass", &set).expect("set");
        submit(&store, &[job(n)]).await;
        let claimed = claim_one(&store, 1, worker, i64::from(n) + 1).await;
        assert_eq!(
            commit(&store, 2, change(worker, &claimed, done("x"))).await,
            windlass_model::CommitOutcome::Committed,
            "{read_only}, {isolation}"
        );
    }
}
