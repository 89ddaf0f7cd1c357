//! An attempt sees its cancel request even if that came before it started, or while its worker stops.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use windlass::{Config, State, prelude::*, store::Error};

use crate::{
    common::{Call, Faults, faulty, make_suspects, reaches, until},
    on_both_stores,
};

on_both_stores!(
    an_attempt_whose_claim_is_answered_late_sees_its_cancel_request,
    an_attempt_that_waits_for_a_suspect_sees_its_cancel_request,
    an_attempt_of_a_worker_that_stops_sees_its_cancel_request,
);

/// Claims are answered late while `late`.
#[derive(Default)]
struct LateClaims {
    late: AtomicBool,
    /// The number of jobs that were claimed, whether the worker has the answer or not.
    claimed: AtomicUsize,
    /// How often the worker read at least one cancel request.
    requests_read: AtomicUsize,
}

impl Faults for LateClaims {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        match call {
            Call::Claimed(_, batch) => {
                self.claimed.fetch_add(batch.jobs.len(), Ordering::SeqCst);
                while self.late.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            Call::ReadCancelRequests(requests) => {
                self.requests_read.fetch_add(usize::from(!requests.is_empty()), Ordering::SeqCst);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Of each attempt, whether it saw a cancel request when it started; by test.
static STARTED: Mutex<BTreeMap<String, Vec<bool>>> = Mutex::new(BTreeMap::new());

fn started(test: &str) -> Vec<bool> {
    STARTED.lock().expect("attempts").get(test).cloned().unwrap_or_default()
}

/// Runs until it is cancelled, at most for `runs`.
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
        STARTED.lock().expect("attempts").entry(self.test).or_default().push(cx.is_cancelled());
        tokio::select! {
            () = cx.cancelled() => Err(Failure::cancel("as requested")),
            () = tokio::time::sleep(self.runs) => Ok(()),
        }
    }
}

const LONG: Duration = Duration::from_secs(3_600);

async fn start(url: &str, claims: &Arc<LateClaims>, slots: usize) -> Engine {
    let engine = faulty(url, claims).await.task::<Listens>().queue("default", Pool::slots(slots));
    engine.start().await.expect("started")
}

async fn an_attempt_whose_claim_is_answered_late_sees_its_cancel_request(url: &str) {
    let (first, test) = (format!("early {url}"), format!("late {url}"));
    let other = Engine::open(url).await.expect("opened");
    let submit = async |test: &str| {
        other.submit(Listens { test: test.to_owned(), runs: LONG }).await.expect("submitted").id()
    };
    let claims = Arc::new(LateClaims::default());
    let engine = start(url, &claims, 2).await;
    let early = submit(&first).await;
    until("one runs", async || !started(&first).is_empty()).await;
    claims.late.store(true, Ordering::SeqCst);
    let job = submit(&test).await;
    until("the other is claimed", async || claims.claimed.load(Ordering::SeqCst) == 2).await;
    other.control("ada").cancel_within(job, LONG).await.expect("requested").accepted().expect("requested");
    until("the worker has read the request", async || claims.requests_read.load(Ordering::SeqCst) > 0).await;
    // It stores one answer before it reads the next.
    other.control("ada").cancel_within(early, LONG).await.expect("requested").accepted().expect("requested");
    reaches(&other, early, State::Cancelled).await;
    claims.late.store(false, Ordering::SeqCst);
    until("it starts", async || !started(&test).is_empty()).await;
    assert_eq!(started(&test), [true], "it sees the request as it starts");
    reaches(&other, job, State::Cancelled).await;
    engine.stop().await;
}

async fn an_attempt_that_waits_for_a_suspect_sees_its_cancel_request(url: &str) {
    let (first, second) = (format!("suspect {url}"), format!("behind {url}"));
    let other = Engine::open(url).await.expect("opened");
    let runs = Duration::from_millis(900);
    let suspect = other.submit(Listens { test: first.clone(), runs }).await.expect("submitted").id();
    make_suspects(&other, "listens", 1).await;
    let claims = Arc::new(LateClaims::default());
    let engine = start(url, &claims, 2).await;
    until("the suspect runs", async || !started(&first).is_empty()).await;
    let job = engine.submit(Listens { test: second.clone(), runs: LONG }).await.expect("submitted").id();
    reaches(&other, job, State::Running).await;
    engine.control("ada").cancel_within(job, LONG).await.expect("requested").accepted().expect("requested");
    reaches(&other, suspect, State::Done).await;
    reaches(&other, job, State::Cancelled).await;
    assert_eq!(started(&second), [true], "it sees the request as it starts");
    engine.stop().await;
}

async fn an_attempt_of_a_worker_that_stops_sees_its_cancel_request(url: &str) {
    let test = format!("stops {url}");
    let other = Engine::open(url).await.expect("opened");
    let engine = Engine::builder(url).task::<Listens>();
    let config = Config { drain: Duration::from_secs(600), ..Config::default() };
    let engine = engine.config(config).start().await.expect("started");
    let job = engine.submit(Listens { test: test.clone(), runs: LONG }).await.expect("submitted").id();
    until("it runs", async || !started(&test).is_empty()).await;
    let stopping = engine.clone();
    let stopping = tokio::spawn(async move { stopping.stop().await });
    tokio::task::yield_now().await;
    other.control("ada").cancel_within(job, LONG).await.expect("requested").accepted().expect("requested");
    reaches(&other, job, State::Cancelled).await;
    assert_eq!(stopping.await.expect("stopped"), 0, "nothing was given up");
}
