//! Attempts that are told to end before they have started, or while their worker stops: they see it all the same.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use windlass::{
    Config, State,
    model::WorkerId,
    prelude::*,
    store::{CancelRequest, ClaimBatch, ClaimRequest, Fut, Now, Store, Wrapper},
};

use crate::{on_both_stores, suspects::lose};

on_both_stores!(
    an_attempt_whose_claim_is_answered_late_is_told,
    an_attempt_that_waits_behind_a_suspect_is_told,
    an_attempt_of_a_worker_that_stops_is_told,
);

/// A store whose claims are answered late, while it is told to.
struct Late {
    store: Arc<dyn Store>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    late: AtomicBool,
    /// Jobs whose claim is not answered yet.
    claimed: AtomicUsize,
    /// How often orders were read, and there were some.
    orders: AtomicUsize,
}

impl Wrapper for Late {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            let haul = self.store.claim(now, ask).await?;
            self.seen.claimed.fetch_add(haul.jobs.len(), Ordering::SeqCst);
            while self.seen.late.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(haul)
        })
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        Box::pin(async move {
            let orders = self.store.cancel_requests(worker).await?;
            self.seen.orders.fetch_add(usize::from(!orders.is_empty()), Ordering::SeqCst);
            Ok(orders)
        })
    }
}

/// Whether attempts were told to end when they began, by test.
static BEGAN: Mutex<BTreeMap<String, Vec<bool>>> = Mutex::new(BTreeMap::new());

fn began(test: &str) -> Vec<bool> {
    BEGAN.lock().expect("attempts").get(test).cloned().unwrap_or_default()
}

/// Runs until it is told to end, or for as long as it is told to run.
#[derive(Serialize, Deserialize)]
struct Listens {
    test: String,
    runs: Duration,
}

impl Task for Listens {
    const KIND: &'static str = "listens";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        BEGAN.lock().expect("attempts").entry(self.test).or_default().push(cx.is_cancelled());
        tokio::select! {
            () = cx.cancelled() => Err(Failure::cancel("told to end")),
            () = tokio::time::sleep(self.runs) => Ok(()),
        }
    }
}

const LONG: Duration = Duration::from_secs(3_600);

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn state(engine: &Engine, id: JobId) -> State {
    engine.inspect().job(id).await.expect("read").expect("there").summary.state
}

async fn start(url: &str, seen: &Arc<Seen>, slots: usize) -> Engine {
    let store = Engine::open(url).await.expect("opened").store().clone();
    let late = Late { store, seen: Arc::clone(seen) };
    let engine = Engine::on(url, Arc::new(late)).task::<Listens>().queue("default", Pool::slots(slots));
    engine.start().await.expect("started")
}

async fn an_attempt_whose_claim_is_answered_late_is_told(url: &str) {
    let (first, test) = (format!("early {url}"), format!("late {url}"));
    let other = Engine::open(url).await.expect("opened");
    let submit = async |test: &str| {
        other.submit(Listens { test: test.to_owned(), runs: LONG }).await.expect("submitted").id()
    };
    let seen = Arc::new(Seen::default());
    let engine = start(url, &seen, 2).await;
    let early = submit(&first).await;
    until("one runs", async || !began(&first).is_empty()).await;
    seen.late.store(true, Ordering::SeqCst);
    let job = submit(&test).await;
    until("the other is claimed", async || seen.claimed.load(Ordering::SeqCst) == 2).await;
    other.control("ada").cancel_within(job, LONG).await.expect("told to end");
    until("the worker has read that", async || seen.orders.load(Ordering::SeqCst) > 0).await;
    // It keeps what it reads before it reads again.
    other.control("ada").cancel_within(early, LONG).await.expect("told to end");
    until("the first has ended", async || state(&other, early).await == State::Cancelled).await;
    seen.late.store(false, Ordering::SeqCst);
    until("it starts", async || !began(&test).is_empty()).await;
    assert_eq!(began(&test), [true], "it is told to end as it starts");
    until("it has ended", async || state(&other, job).await == State::Cancelled).await;
    engine.stop().await;
}

async fn an_attempt_that_waits_behind_a_suspect_is_told(url: &str) {
    let (first, second) = (format!("suspect {url}"), format!("behind {url}"));
    let other = Engine::open(url).await.expect("opened");
    let runs = Duration::from_millis(900);
    let suspect = other.submit(Listens { test: first.clone(), runs }).await.expect("submitted").id();
    lose(&other, "listens", 1).await;
    let seen = Arc::new(Seen::default());
    let engine = start(url, &seen, 2).await;
    until("the suspect runs", async || !began(&first).is_empty()).await;
    let job = engine.submit(Listens { test: second.clone(), runs: LONG }).await.expect("submitted").id();
    until("it is claimed", async || state(&other, job).await == State::Running).await;
    engine.control("ada").cancel_within(job, LONG).await.expect("told to end");
    until("the suspect has ended", async || state(&other, suspect).await == State::Done).await;
    until("it has ended", async || state(&other, job).await == State::Cancelled).await;
    assert_eq!(began(&second), [true], "it is told to end as it starts");
    engine.stop().await;
}

async fn an_attempt_of_a_worker_that_stops_is_told(url: &str) {
    let test = format!("stops {url}");
    let other = Engine::open(url).await.expect("opened");
    let engine = Engine::open(url).await.expect("opened").task::<Listens>();
    let config = Config { drain: Duration::from_secs(600), ..Config::default() };
    let engine = engine.config(config).start().await.expect("started");
    let job = engine.submit(Listens { test: test.clone(), runs: LONG }).await.expect("submitted").id();
    until("it runs", async || !began(&test).is_empty()).await;
    let stopping = engine.clone();
    let stopping = tokio::spawn(async move { stopping.stop().await });
    tokio::task::yield_now().await;
    other.control("ada").cancel_within(job, LONG).await.expect("told to end");
    until("it has ended", async || state(&other, job).await == State::Cancelled).await;
    assert_eq!(stopping.await.expect("stopped"), 0, "nothing was given up");
}
