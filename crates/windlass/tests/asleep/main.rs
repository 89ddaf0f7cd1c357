//! Real time: sleeps that outlive the process that began them. In a program of its own, since it measures: nothing else
//! runs beside it.

#[path = "../engine/common.rs"]
mod common;

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

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
        flow.step("awake", || async { Ok::<_, Failure>(()) }).await
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
        flow.step("awake", || async { Ok::<_, Failure>(()) }).await
    }
}

/// Not a test: the worker that is killed, in a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is the other process of another test"]
async fn the_worker_that_is_killed() {
    let url = std::env::var(URL).expect("where to work");
    let engine = Engine::open(&url).await.expect("opened").workflow::<Nap>();
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

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How late the sleepers woke, sorted, and how long as many that do not sleep take on this machine.
async fn round(url: &str) -> (Vec<Duration>, Duration) {
    let engine = Engine::open(url).await.expect("opened");
    let mut killed = worker(url);
    until("the first worker serves", async || {
        engine.inspect().workers().await.expect("workers").iter().any(|worker| worker.alive)
    })
    .await;
    let put = engine.submit_all((0..SLEEPERS).map(|_| Nap)).await.expect("submitted");
    let asleep = Filter { state: Some(State::Waiting), limit: SLEEPERS, ..Filter::default() };
    until("all sleep", async || engine.inspect().jobs(&asleep).await.expect("jobs").len() == SLEEPERS).await;
    killed.kill().expect("killed");
    killed.wait().expect("dead");
    let second = engine.workflow::<Nap>().workflow::<Awake>().queue("default", Pool::slots(100));
    let second = second.start().await.expect("started");
    let mut late = Vec::new();
    for job in &put {
        second.result::<()>(job.id).await.expect("it wakes");
        let journal = second.inspect().journal(job.id, None, 99).await.expect("a journal");
        let of =
            |mark: CallEvent| journal.iter().find(|entry| entry.op == CallKind::Sleep && entry.mark == mark);
        let due: Time =
            serde_json::from_slice(&of(CallEvent::Begun).expect("begun").payload.bytes).expect("a moment");
        let woke = of(CallEvent::Done).expect("over").at;
        assert!(woke >= due, "nobody wakes early: {woke} is before {due}");
        late.push(woke.since(due));
    }
    late.sort();
    let begun = Instant::now();
    let put = second.submit_all((0..SLEEPERS).map(|_| Awake)).await.expect("submitted");
    for job in &put {
        second.result::<()>(job.id).await.expect("it runs");
    }
    let took = begun.elapsed();
    second.stop().await;
    (late, took)
}

/// One store after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sleepers_wake_in_time_after_a_kill() {
    wake_in_time(&common::sqlite().url).await;
    let place = tokio::task::spawn_blocking(common::postgres).await.expect("a server");
    wake_in_time(&place.url).await;
}

async fn wake_in_time(url: &str) {
    // A round in which something else kept the machine busy proves nothing.
    let mut worst = Vec::new();
    for _ in 0..4 {
        let (late, awake) = round(url).await;
        let p99 = late[late.len() * 99 / 100];
        // All wake at once: the last of them waits for the work of the others.
        if p99 < awake.max(Duration::from_millis(250)) {
            return;
        }
        worst.push((p99, awake));
    }
    panic!("sleepers woke too late in every round, at p99, and as many that do not sleep took: {worst:?}");
}
