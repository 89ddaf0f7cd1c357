//! Releasing jobs that were claimed ahead while the store fails to release them: the worker that holds them repeats it until
//! it succeeds, without stopping its other work.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use windlass::{
    Config, State,
    prelude::*,
    store::{Error, rusqlite, tokio_postgres},
};

use crate::{
    common::{Call, Faults, faulty, gate, until},
    on_both_stores,
};

on_both_stores!(
    a_release_that_fails_is_repeated_while_the_worker_works,
    a_worker_that_stops_waits_for_its_releases,
    a_destructor_that_panics_does_not_keep_its_job,
);

/// How many jobs are done quickly, so that the pool claims ahead; and how many jobs then wait at a gate.
const FAST: u32 = 3_000;
const SLOW: u32 = 300;

/// A job that is done at once, or once it has passed its gate.
#[derive(Serialize, Deserialize)]
struct Pass {
    gate: Option<String>,
}

impl Task for Pass {
    const KIND: &'static str = "pass";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        if let Some(name) = self.gate {
            let _through = gate(&name).acquire_owned().await.map_err(|_| Failure::stop("closed"))?;
        }
        Ok(())
    }
}

/// The number of releases that still fail.
struct FailedReleases(AtomicUsize);

impl FailedReleases {
    fn next(count: usize) -> Arc<FailedReleases> {
        Arc::new(FailedReleases(AtomicUsize::new(count)))
    }

    async fn until_none_is_left(&self) {
        until("as many releases have failed as were to fail", async || self.0.load(Ordering::SeqCst) == 0)
            .await;
    }
}

impl Faults for FailedReleases {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        let one_less = |left: usize| left.checked_sub(1);
        match call {
            Call::Release if self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() => {
                Err(Error::Unavailable("a lock could not be taken".into()))
            }
            _ => Ok(()),
        }
    }
}

async fn in_state(engine: &Engine, state: State) -> u64 {
    let counts = engine.inspect().state_counts().await.expect("counts");
    counts.iter().filter(|count| count.state == state).map(|count| count.jobs).sum()
}

async fn metric(engine: &Engine, series: &str) -> f64 {
    let page = engine.metrics().await;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("windlass_{series} ")));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse().expect("a number")
}

/// Submits jobs that are done quickly and, after these, jobs that wait at a gate: the transactions of one `submit_all` are
/// committed in any order.
async fn submit(engine: &Engine, test: &str) {
    engine.submit_all((0..FAST).map(|_| Pass { gate: None })).await.expect("submitted");
    engine.submit_all((0..SLOW).map(|_| Pass { gate: Some(test.to_owned()) })).await.expect("submitted");
}

/// Starts an engine with one slot.
async fn start(engine: windlass::Builder) -> Engine {
    let config =
        Config { lease: Duration::from_secs(60), drain: Duration::from_secs(30), ..Config::default() };
    let engine = engine.task::<Pass>().queue("default", Pool::slots(1)).config(config);
    engine.start().await.expect("started")
}

/// Returns when a job waits at the gate. Others were claimed, wait behind it, and are released a second later.
async fn claimed_ahead(engine: &Engine) {
    until("a job waits at the gate", async || engine.counts().started > u64::from(FAST)).await;
}

/// Opens the gate and checks that each job runs once.
async fn finish(engine: &Engine, test: &str) {
    gate(test).add_permits(SLOW as usize);
    until("all are done", async || in_state(engine, State::Done).await == u64::from(FAST + SLOW)).await;
    assert_eq!(engine.counts().started, u64::from(FAST + SLOW), "each was run once");
}

async fn a_release_that_fails_is_repeated_while_the_worker_works(url: &str) {
    let test = format!("repeated {url}");
    let failing = FailedReleases::next(3);
    let engine = start(faulty(url, &failing).await).await;
    submit(&engine, &test).await;
    failing.until_none_is_left().await;
    until("all but the job that runs are ready again", async || {
        in_state(&engine, State::Ready).await == u64::from(SLOW - 1)
    })
    .await;
    assert_eq!(in_state(&engine, State::Running).await, 1);
    assert_eq!(metric(&engine, "releases_waiting").await, 0.0);
    assert_eq!(metric(&engine, "store_errors_total{verb=\"release\"}").await, 3.0);
    finish(&engine, &test).await;
    engine.stop().await;
}

async fn a_worker_that_stops_waits_for_its_releases(url: &str) {
    let test = format!("stops {url}");
    let plain = Engine::open(url).await.expect("opened");
    let failing = FailedReleases::next(0);
    let engine = start(faulty(url, &failing).await).await;
    submit(&engine, &test).await;
    claimed_ahead(&engine).await;
    failing.0.store(4, Ordering::SeqCst);
    let stopping = engine.clone();
    let stopping = tokio::spawn(async move { stopping.stop().await });
    failing.until_none_is_left().await;
    gate(&test).add_permits(1);
    assert_eq!(stopping.await.expect("stopped"), 0, "nothing was given up");
    let counts = engine.counts();
    assert!(counts.released > 0 && counts.claimed == counts.started + counts.released, "{counts:?}");
    assert_eq!(in_state(&plain, State::Running).await, 0);
}

/// A job whose future panics when it is dropped.
#[derive(Serialize, Deserialize)]
struct PanicsOnDrop;

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

impl Task for PanicsOnDrop {
    const KIND: &'static str = "panics_on_drop";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        let _bomb = Bomb;
        std::future::pending().await
    }
}

async fn a_destructor_that_panics_does_not_keep_its_job(url: &str) {
    let engine = Engine::builder(url).task::<PanicsOnDrop>();
    // Settled claims are forgotten with the next renewal.
    let config = Config { renew_every: Duration::from_millis(100), ..Config::default() };
    let engine = engine.queue("default", Pool::slots(1)).config(config).start().await.expect("started");
    let job = engine.submit(PanicsOnDrop).await.expect("submitted");
    until("it runs", async || engine.counts().started == 1).await;
    let cancelled = engine.control("ada").cancel_within(job.id(), Duration::from_millis(50)).await;
    cancelled.expect("cancel requested").accepted().expect("cancel requested");
    until("no claim is left", async || {
        let seen = engine.inspect().job(job.id()).await.expect("read").expect("the job exists");
        let workers = engine.inspect().workers().await.expect("workers");
        seen.summary.state == State::Cancelled && workers.iter().all(|worker| worker.claims == 0)
    })
    .await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_released_once_another_process_has_unlocked_the_file() {
    let place = crate::common::sqlite();
    let path = place.url.strip_prefix("sqlite://").expect("a file").to_owned();
    let options = windlass::store::sqlite::Options::new(&path).patience(Duration::from_millis(50));
    let store = windlass::store::sqlite::Sqlite::open(options).expect("opened");
    let engine = start(Engine::builder(&place.url).store(Arc::new(store))).await;
    submit(&engine, "file").await;
    claimed_ahead(&engine).await;
    let other = rusqlite::Connection::open(&path).expect("opened");
    other.busy_timeout(Duration::from_secs(10)).expect("patient");
    other.execute_batch("begin immediate").expect("the write lock");
    until("a release has failed", async || {
        metric(&engine, "store_errors_total{verb=\"release\"}").await >= 2.0
    })
    .await;
    assert!(metric(&engine, "releases_waiting").await > 0.0, "pending releases are in the metrics");
    other.execute_batch("rollback").expect("unlocked");
    until("all but the job that runs are ready again", async || {
        in_state(&engine, State::Ready).await == u64::from(SLOW - 1)
    })
    .await;
    finish(&engine, "file").await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_released_once_their_rows_are_unlocked_on_postgres() {
    let place = tokio::task::spawn_blocking(crate::common::postgres).await.expect("a server");
    let (server, schema) = place.url.split_once("?schema=").expect("a schema");
    let opened = Engine::open(&place.url).await.expect("opened");
    submit(&opened, "rows").await;
    let (mut client, connection) =
        tokio_postgres::connect(server, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    let others = client.transaction().await.expect("a transaction");
    // The last of them: some of those that are released, and not the one that runs.
    let lock = format!(
        "select id from {schema}.jobs where state = 0 order by due_at desc, id desc limit {} for update",
        SLOW - 1
    );
    assert_eq!(others.query(&lock, &[]).await.expect("locked").len(), SLOW as usize - 1);
    let engine = start(Engine::builder(&place.url).store(opened.store().clone())).await;
    until("a release has failed", async || {
        metric(&engine, "store_errors_total{verb=\"release\"}").await >= 1.0
    })
    .await;
    assert!(metric(&engine, "releases_waiting").await > 0.0, "pending releases are in the metrics");
    others.rollback().await.expect("unlocked");
    until("all but the job that runs are ready again", async || {
        in_state(&engine, State::Ready).await == u64::from(SLOW - 1)
    })
    .await;
    finish(&engine, "rows").await;
    engine.stop().await;
}
