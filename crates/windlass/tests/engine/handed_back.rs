//! Jobs that were claimed ahead and are handed back while the store does not take them: they are handed back all the same,
//! by the worker that holds them and while it works.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::Semaphore;
use windlass::{
    Config, State,
    model::JobClaim,
    prelude::*,
    store::{Error, Fut, Now, Store, Wrapper, rusqlite, tokio_postgres},
};

use crate::on_both_stores;

on_both_stores!(
    a_release_that_fails_is_repeated_while_the_worker_works,
    a_worker_that_stops_waits_for_what_it_hands_back,
    a_destructor_that_panics_does_not_keep_its_job,
);

/// How many jobs are done quickly, so that the pool claims ahead; and how many then keep it waiting.
const FAST: u32 = 3_000;
const SLOW: u32 = 300;

/// Who may go on, by test.
static GATES: Mutex<Option<HashMap<String, Arc<Semaphore>>>> = Mutex::new(None);

fn gate(test: &str) -> Arc<Semaphore> {
    let mut gates = GATES.lock().expect("gates");
    let gates = gates.get_or_insert_default();
    Arc::clone(gates.entry(test.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
}

/// A job that is done at once, or when its gate lets it through.
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

/// A store that fails to hand jobs back, so many times.
struct Refusing {
    store: Arc<dyn Store>,
    left: Arc<AtomicUsize>,
}

impl Wrapper for Refusing {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        Box::pin(async move {
            let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if left.is_ok() {
                return Err(Error::Unavailable("a lock was not to be had".into()));
            }
            self.store.release(now, jobs).await
        })
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 60 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn in_state(engine: &Engine, state: State) -> u64 {
    let census = engine.inspect().state_counts(u64::MAX).await.expect("a census");
    census.iter().filter(|count| count.state == state).map(|count| count.jobs).sum()
}

async fn metric(engine: &Engine, series: &str) -> f64 {
    let page = engine.metrics().await;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("windlass_{series} ")));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse().expect("a number")
}

/// Puts in jobs that are done quickly and, once these are in, jobs that wait for a gate: the transactions of one
/// `submit_all` are committed in any order.
async fn submit(engine: &Engine, test: &str) {
    engine.submit_all((0..FAST).map(|_| Pass { gate: None })).await.expect("submitted");
    engine.submit_all((0..SLOW).map(|_| Pass { gate: Some(test.to_owned()) })).await.expect("submitted");
}

/// An engine with one slot on this store.
async fn start(url: &str, store: Arc<dyn Store>, drain: Duration) -> Engine {
    let config = Config { lease: Duration::from_secs(60), drain, ..Config::default() };
    let engine = Engine::on(url, store).task::<Pass>().queue("default", Pool::slots(1)).config(config);
    engine.start().await.expect("started")
}

/// Returns when a job waits at the gate; others were claimed that wait behind it, and are handed back a second later.
async fn claimed_ahead(engine: &Engine) {
    until("a job waits at the gate", async || engine.counts().started > u64::from(FAST)).await;
}

/// Lets all through and sees that each was run once.
async fn finish(engine: &Engine, test: &str) {
    gate(test).add_permits(SLOW as usize);
    until("all are done", async || in_state(engine, State::Done).await == u64::from(FAST + SLOW)).await;
    assert_eq!(engine.counts().started, u64::from(FAST + SLOW), "each was run once");
}

async fn a_release_that_fails_is_repeated_while_the_worker_works(url: &str) {
    let test = format!("repeated {url}");
    let store = Engine::open(url).await.expect("opened").store().clone();
    let left = Arc::new(AtomicUsize::new(3));
    let refusing = Refusing { store, left: Arc::clone(&left) };
    let engine = start(url, Arc::new(refusing), Duration::from_secs(30)).await;
    submit(&engine, &test).await;
    until("handing back has failed three times", async || left.load(Ordering::SeqCst) == 0).await;
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

async fn a_worker_that_stops_waits_for_what_it_hands_back(url: &str) {
    let test = format!("stops {url}");
    let plain = Engine::open(url).await.expect("opened");
    let left = Arc::new(AtomicUsize::new(0));
    let refusing = Refusing { store: plain.store().clone(), left: Arc::clone(&left) };
    let engine = start(url, Arc::new(refusing), Duration::from_secs(30)).await;
    submit(&engine, &test).await;
    claimed_ahead(&engine).await;
    left.store(4, Ordering::SeqCst);
    let stopping = engine.clone();
    let stopping = tokio::spawn(async move { stopping.stop().await });
    until("handing back has failed four times", async || left.load(Ordering::SeqCst) == 0).await;
    gate(&test).add_permits(1);
    assert_eq!(stopping.await.expect("stopped"), 0, "nothing was given up");
    let counts = engine.counts();
    assert!(counts.released > 0 && counts.claimed == counts.started + counts.released, "{counts:?}");
    assert_eq!(in_state(&plain, State::Running).await, 0);
}

/// A job whose future panics when it is dropped.
#[derive(Serialize, Deserialize)]
struct Spiteful;

struct Spite;

impl Drop for Spite {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

impl Task for Spiteful {
    const KIND: &'static str = "spiteful";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        let _spite = Spite;
        std::future::pending().await
    }
}

async fn a_destructor_that_panics_does_not_keep_its_job(url: &str) {
    let engine = Engine::open(url).await.expect("opened").task::<Spiteful>();
    // Claims that are over are forgotten with the next beat.
    let config = Config { renew_every: Duration::from_millis(100), ..Config::default() };
    let engine = engine.queue("default", Pool::slots(1)).config(config).start().await.expect("started");
    let job = engine.submit(Spiteful).await.expect("submitted");
    until("it runs", async || engine.counts().started == 1).await;
    let cancelled = engine.control("ada").cancel_within(job.id(), Duration::from_millis(50)).await;
    cancelled.expect("told to end");
    until("no claim is left", async || {
        let seen = engine.inspect().job(job.id()).await.expect("read").expect("there");
        let workers = engine.inspect().workers().await.expect("workers");
        seen.summary.state == State::Cancelled && workers.iter().all(|worker| worker.claims == 0)
    })
    .await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_handed_back_once_another_process_has_let_go_of_the_file() {
    let place = crate::common::sqlite();
    let path = place.url.strip_prefix("sqlite://").expect("a file").to_owned();
    let options = windlass::store::sqlite::Options::new(&path).patience(Duration::from_millis(50));
    let store = windlass::store::sqlite::Sqlite::open(options).expect("opened");
    let engine = start(&place.url, Arc::new(store), Duration::from_secs(30)).await;
    submit(&engine, "file").await;
    claimed_ahead(&engine).await;
    let other = rusqlite::Connection::open(&path).expect("opened");
    other.busy_timeout(Duration::from_secs(10)).expect("patient");
    other.execute_batch("begin immediate").expect("the write lock");
    until("handing back has failed", async || {
        metric(&engine, "store_errors_total{verb=\"release\"}").await >= 2.0
    })
    .await;
    assert!(metric(&engine, "releases_waiting").await > 0.0, "what is to be handed back is seen");
    other.execute_batch("rollback").expect("let go");
    until("all but the job that runs are ready again", async || {
        in_state(&engine, State::Ready).await == u64::from(SLOW - 1)
    })
    .await;
    finish(&engine, "file").await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_handed_back_once_their_rows_are_unlocked_on_postgres() {
    let place = tokio::task::spawn_blocking(crate::common::postgres).await.expect("a server");
    let (server, schema) = place.url.split_once("?schema=").expect("a schema");
    let opened = Engine::open(&place.url).await.expect("opened");
    submit(&opened, "rows").await;
    let (mut client, connection) =
        tokio_postgres::connect(server, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    let others = client.transaction().await.expect("a transaction");
    // The last of them: some of those that are handed back, and not the one that runs.
    let lock = format!(
        "select id from {schema}.jobs where state = 0 order by due_at desc, id desc limit {} for update",
        SLOW - 1
    );
    assert_eq!(others.query(&lock, &[]).await.expect("locked").len(), SLOW as usize - 1);
    let engine = start(&place.url, opened.store().clone(), Duration::from_secs(30)).await;
    until("handing back has failed", async || {
        metric(&engine, "store_errors_total{verb=\"release\"}").await >= 1.0
    })
    .await;
    assert!(metric(&engine, "releases_waiting").await > 0.0, "what is to be handed back is seen");
    others.rollback().await.expect("unlocked");
    until("all but the job that runs are ready again", async || {
        in_state(&engine, State::Ready).await == u64::from(SLOW - 1)
    })
    .await;
    finish(&engine, "rows").await;
    engine.stop().await;
}
