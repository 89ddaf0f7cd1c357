//! Sessions that have become useless: those of a server that only reads, of a server that was replaced, and old ones.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use windlass_model::{KindVersion, NewJob};
use windlass_store::{
    conformance::kit::*,
    postgres::{Options, Postgres},
};
use windlass_testpg::{Cluster, Proxy};

use super::cluster;

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Creates a database on the shared server. Returns its name and its options.
fn database() -> (String, Options) {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let name = format!("sessions_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let url = cluster().create_database(&name).expect("created");
    (name, Options::parse(&url).expect("an address"))
}

fn sql(database: &str, statements: &str) -> String {
    cluster().sql(database, statements).expect("sql")
}

/// Terminates all other sessions of a database.
fn terminate(database: &str) {
    let others = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                  where datname = current_database() and pid <> pg_backend_pid()";
    sql(database, others);
}

/// A session keeps the defaults with which it was opened. One that was opened while the database was read-only cannot write later,
/// and must not be kept.
#[tokio::test]
async fn a_session_that_was_opened_read_only_is_given_up() {
    let (name, options) = database();
    let store: Handle = Arc::new(Postgres::open(options).await.expect("opened"));
    let sibling = store.sibling().await.expect("another");
    for store in [&store, &sibling] {
        let mut n = 0;
        let mut works = async || {
            n += 1;
            store.submit(None, &[job(n)], None).await.is_ok()
        };
        assert!(works().await);
        sql(&name, &format!("alter database {name} set default_transaction_read_only = on"));
        terminate(&name);
        // These calls open several sessions, and may fail.
        for _ in 0..4 {
            works().await;
        }
        sql("windlass", &format!("alter database {name} reset default_transaction_read_only"));
        until("it works again once new sessions can write", async || works().await).await;
    }
}

/// Options for the schema that both the primary and the standby have.
fn on_both(url: &str) -> Options {
    Options::parse(url).and_then(|options| options.schema("on_both")).expect("an address")
}

/// Starts a standby with the same schema as the shared server.
fn standby() -> Cluster {
    let mut standby = Cluster::builder().setting("fsync", "off").start().expect("PostgreSQL");
    let options = on_both(&standby.url());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async { drop(Postgres::open(options).await.expect("created")) });
    standby.stop().expect("stopped");
    std::fs::write(standby.data_dir().join("standby.signal"), "").expect("written");
    standby.restart().expect("restarted");
    standby
}

/// An address leads to a standby for a while. Sessions that were opened then stay there: they are closed, and new ones reach the
/// primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_a_standby_are_replaced_by_sessions_of_the_primary() {
    let standby = tokio::task::spawn_blocking(standby).await.expect("a server");
    let proxy = Proxy::to(standby.port()).expect("a proxy");
    let address = format!("postgres://windlass@127.0.0.1:{}/windlass", proxy.port());
    let options = on_both(&address);
    let store: Handle = Arc::new(Postgres::open(options.migrate(false)).await.expect("it can be read"));
    assert_eq!(store.inspect().workers().await.expect("read").len(), 0);
    let sibling = store.sibling().await.expect("another");
    for store in [&store, &sibling] {
        for _ in 0..3 {
            let error = store.submit(None, &[job(1)], None).await.expect_err("nothing can be written");
            assert!(error.is_retryable() && error.to_string().contains("connect to the primary"), "{error}");
        }
    }
    drop(Postgres::open(on_both(&cluster().url())).await.expect("created"));
    proxy.retarget(cluster().port());
    for store in [&store, &sibling] {
        until("it works over sessions of the primary", async || {
            store.submit(None, &[job(1)], None).await.is_ok()
        })
        .await;
    }
}

/// A worker reads from the primary only: a standby may lack the latest commits without reporting it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_reads_nothing_from_a_standby() {
    let standby = tokio::task::spawn_blocking(standby).await.expect("a server");
    drop(Postgres::open(on_both(&cluster().url())).await.expect("created"));
    let proxy = Proxy::to(cluster().port()).expect("a proxy");
    let address = format!("postgres://windlass@127.0.0.1:{}/windlass", proxy.port());
    let store: Handle = Arc::new(Postgres::open(on_both(&address)).await.expect("opened"));
    let new = job(77);
    store.submit(None, std::slice::from_ref(&new), None).await.expect("submitted");
    proxy.retarget(standby.port());
    proxy.cut();
    let refused = |error: windlass_store::Error| {
        assert!(error.is_retryable(), "{error}");
        error.to_string().contains("connect to the primary")
    };
    until("people can read there", async || store.inspect().job(new.id).await.is_ok()).await;
    until("a standby does not report a job as gone", async || {
        refused(store.job_ends(&[new.id]).await.expect_err("a standby does not know"))
    })
    .await;
    let registered = store.register_worker(None, &new_worker(7_007)).await;
    registered.expect_err("nothing can be written");
    until("a worker reads nothing there", async || {
        refused(store.inspect().journal(new.id, None, 9).await.expect_err("a standby may lack entries"))
    })
    .await;
    proxy.retarget(cluster().port());
    until("it reads from the primary again", async || {
        store.inspect().journal(new.id, None, 9).await.is_ok()
            && store.job_ends(&[new.id]).await.is_ok_and(|ended| ended == [None])
    })
    .await;
}

/// A database that was restored to an earlier state may lack cached names, or give their numbers to others.
#[tokio::test]
async fn names_that_the_database_has_lost_are_added_again() {
    let (name, options) = database();
    let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("opened"));
    let of = |n: u32, kind: &str| NewJob { kind: KindVersion { kind: kind.into(), version: 1 }, ..job(n) };
    store.submit(None, &[of(1, "kept"), of(2, "lost")], None).await.expect("submitted");
    // Restores the state before the second kind, whose number another one gets.
    let restore = "set search_path = windlass; delete from jobs where id in (select job from ready where lane = 2); \
                delete from ready where lane = 2; update kinds set name = 'other' where name = 'lost'";
    sql(&name, restore);
    terminate(&name);
    until("it is submitted", async || store.submit(None, &[of(3, "lost")], None).await.is_ok()).await;
    let other: Handle = Arc::new(Postgres::open(options).await.expect("opened"));
    let kind = other.inspect().job(job(3).id).await.expect("read").expect("exists").summary.kind;
    assert_eq!(kind, "lost");
}

/// The process ids of an application's sessions.
fn sessions(application: &str) -> Vec<String> {
    let pids =
        format!("select pid from pg_stat_activity where application_name = '{application}' order by pid");
    sql("windlass", &pids).lines().map(str::to_owned).collect()
}

/// A session that has reached the age limit is closed, and another replaces it.
#[tokio::test]
async fn an_old_session_is_replaced() {
    let url = format!("{}?application_name=short_lived", cluster().url());
    let options = Options::parse(&url).and_then(|options| options.schema("short_lived")).expect("an address");
    let store: Handle =
        Arc::new(Postgres::open(options.connection_life(Duration::from_millis(1))).await.expect("open"));
    let sibling = store.sibling().await.expect("another");
    for store in [&store, &sibling] {
        store.submit(None, &[job(1)], None).await.expect("submitted");
        until("none is kept beyond its life", async || sessions("short_lived").is_empty()).await;
    }
    let long = Options::parse(&url.replace("short_lived", "long_lived")).expect("an address");
    let long = long.schema("short_lived").expect("a name");
    let store: Handle = Arc::new(Postgres::open(long).await.expect("open"));
    store.submit(None, &[job(2)], None).await.expect("submitted");
    let before = sessions("long_lived");
    for n in 3..10 {
        store.submit(None, &[job(n)], None).await.expect("submitted");
    }
    assert_eq!((before.len(), &sessions("long_lived")), (1, &before), "a young session is kept");
}
