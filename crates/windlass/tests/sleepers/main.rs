//! Sleeps that outlive the process that began them, in real time. A test program of its own, so that no other test runs
//! while it measures.

#[path = "../engine/common/stores.rs"]
mod stores;
#[path = "../engine/common/until.rs"]
mod until;

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use until::until;
use windlass::{
    Filter, State, Time,
    model::journal::{CallEvent, CallKind},
    prelude::*,
};

const SLEEPERS: usize = 1_000;
const URL: &str = "WINDLASS_TEST_SLEEPERS";

#[derive(Serialize, Deserialize)]
struct Nap;

impl Workflow for Nap {
    const KIND: &'static str = "nap";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.sleep(seconds(3)).await;
        // So that the end of the sleep is in the journal.
        flow.step("awake", async || Ok(())).await
    }
}

/// The same without the sleep.
#[derive(Serialize, Deserialize)]
struct Awake;

impl Workflow for Awake {
    const KIND: &'static str = "awake";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.step("awake", async || Ok(())).await
    }
}

/// Not a test: the worker that the test kills, in a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a child by a_thousand_sleepers_wake_in_time_after_a_kill"]
async fn the_worker_that_is_killed() {
    let url = std::env::var(URL).expect("the URL");
    let engine = Engine::builder(&url).workflow::<Nap>();
    let _engine = engine.queue("default", Pool::slots(100)).start().await.expect("started");
    std::future::pending::<()>().await;
}

fn worker(url: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_worker_that_is_killed", "--ignored"])
        .env(URL, url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started")
}

/// Returns how late the sleepers woke, sorted, and how long the same number of jobs without a sleep takes on this machine.
async fn measure(url: &str) -> (Vec<Duration>, Duration) {
    let engine = Engine::open(url).await.expect("opened");
    let mut killed = worker(url);
    until("the first worker serves", async || {
        engine.inspect().workers().await.expect("workers").iter().any(|worker| worker.alive)
    })
    .await;
    let jobs = engine.submit_all((0..SLEEPERS).map(|_| Nap)).await.expect("submitted");
    let asleep = Filter { state: Some(State::Waiting), ..Filter::default() };
    until("all sleep", async || {
        let count = engine.inspect().count_jobs(&asleep, SLEEPERS).await.expect("counted");
        count.jobs.values().sum::<u64>() == SLEEPERS as u64
    })
    .await;
    killed.kill().expect("killed");
    killed.wait().expect("dead");
    let second =
        Engine::builder(url).workflow::<Nap>().workflow::<Awake>().queue("default", Pool::slots(100));
    let second = second.start().await.expect("started");
    let mut late = Vec::new();
    for job in &jobs {
        second.result::<()>(job.id().expect("submitted")).await.expect("it wakes");
        let journal = second.inspect().journal(job.id().expect("submitted"), None, 99).await.expect("a journal");
        let entry = |event: CallEvent| {
            journal.iter().find(|entry| entry.call_kind == CallKind::Sleep && entry.event == event)
        };
        let due: Time =
            serde_json::from_slice(&entry(CallEvent::Begun).expect("begun").payload.bytes).expect("a time");
        let woke = entry(CallEvent::Done).expect("over").at;
        assert!(woke >= due, "none wakes early: {woke} is before {due}");
        late.push(woke - due);
    }
    late.sort();
    let began = Instant::now();
    let jobs = second.submit_all((0..SLEEPERS).map(|_| Awake)).await.expect("submitted");
    for job in &jobs {
        second.result::<()>(job.id().expect("submitted")).await.expect("it runs");
    }
    let took = began.elapsed();
    second.stop().await;
    (late, took)
}

/// Both stores in one test, so that they do not run at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sleepers_wake_in_time_after_a_kill() {
    wake_in_time(&stores::sqlite().url).await;
    let store = tokio::task::spawn_blocking(stores::postgres).await.expect("a server");
    wake_in_time(&store.url).await;
}

async fn wake_in_time(url: &str) {
    // Repeated, because a run in which something else kept the machine busy proves nothing.
    let mut late_runs = Vec::new();
    for _ in 0..4 {
        let (late, awake) = measure(url).await;
        let p99 = late[late.len() * 99 / 100];
        // All wake at the same time: the last of them waits until the others have run.
        if p99 < awake.max(Duration::from_millis(250)) {
            return;
        }
        late_runs.push((p99, awake));
    }
    panic!(
        "sleepers woke too late in every run: (p99, the same number of jobs without a sleep): {late_runs:?}"
    );
}
