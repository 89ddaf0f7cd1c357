//! Workers: several on one store, started and stopped, dead and replaced.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use windlass::{
    Config, State,
    env::IdSource,
    model::{ClaimNo, KindVersion},
    prelude::*,
    store::{ClaimRequest, Filter, NewWorker},
};

use super::{Act, Do, engine, started, view};
use crate::common::until;

crate::on_both_stores!(
    many_jobs_run_exactly_once,
    several_engines_share_a_store,
    an_engine_can_be_stopped_and_started_again,
    a_graceful_stop_finishes_running_jobs_and_releases_the_others,
    jobs_of_a_dead_predecessor_run_at_once,
    jobs_of_a_dropped_engine_run_again_at_once,
    a_claim_whose_answer_was_lost_is_released,
    a_worker_keeps_its_lease_while_every_thread_is_blocked,
    invalid_settings_are_refused,
);

static RUNS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

#[derive(Serialize, Deserialize)]
struct Count {
    n: u64,
}

impl Task for Count {
    const KIND: &'static str = "count";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        RUNS.lock().expect("not poisoned").push(self.n);
        Ok(())
    }
}

async fn many_jobs_run_exactly_once(url: &str) {
    let base = if url.starts_with("sqlite") { 1_000_000 } else { 2_000_000 };
    let n = 20_000;
    let engine = Engine::builder(url).task::<Count>().open().await.expect("opened");
    engine.submit_all((base..base + n).map(|n| Count { n })).await.expect("submitted");
    engine.start().await.expect("started");
    until("all are done", async || engine.counts().committed == n).await;
    engine.stop().await;
    let mut runs: Vec<u64> = RUNS
        .lock()
        .expect("not poisoned")
        .iter()
        .copied()
        .filter(|r| r / 1_000_000 == base / 1_000_000)
        .collect();
    runs.sort_unstable();
    assert!(runs.iter().copied().eq(base..base + n), "each ran once, none twice");
    let counts = engine.inspect().state_counts().await.expect("counted");
    assert_eq!(counts.iter().map(|c| (c.state, c.jobs)).collect::<Vec<_>>(), [(State::Done, n)]);
    let counts = engine.counts();
    assert!(counts.commits * 20 < n, "group commit: {counts:?}");
}

async fn several_engines_share_a_store(url: &str) {
    static RAN: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    #[derive(Serialize, Deserialize)]
    struct Tick(usize);
    impl Task for Tick {
        const KIND: &'static str = "tick";
        type Output = ();
        type Error = Failure;
        async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
            RAN[self.0].fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(())
        }
    }
    let store = usize::from(url.starts_with("sqlite"));
    let mut engines = Vec::new();
    for n in 0..4 {
        let config = Config { name: format!("engine {n}"), ..Config::default() };
        let engine = Engine::builder(url).task::<Tick>().config(config);
        engines.push(engine.queue("default", Pool::slots(8)).start().await.expect("started"));
    }
    engines[0].submit_all((0..3_000).map(|_| Tick(store))).await.expect("submitted");
    until("all are done", async || engines.iter().map(|e| e.counts().committed).sum::<u64>() == 3_000).await;
    let alive = engines[1].inspect().workers().await.expect("listed").iter().filter(|w| w.alive).count();
    assert_eq!(alive, 4);
    for engine in &engines {
        engine.stop().await;
    }
    assert_eq!(RAN[store].load(Ordering::Relaxed), 3_000);
    let counts = engines[0].inspect().state_counts().await.expect("counted");
    assert_eq!(counts.iter().map(|c| (c.state, c.jobs)).collect::<Vec<_>>(), [(State::Done, 3_000)]);
}

async fn an_engine_can_be_stopped_and_started_again(url: &str) {
    let engine = started(url).await;
    engine.submit(Do(Act::Return(1))).await.expect("submitted").result().await.expect("done");
    engine.stop().await;
    let later = engine.submit(Do(Act::Return(2))).await.expect("submitted");
    engine.start().await.expect("started again");
    assert_eq!(later.result().await.expect("done"), 2);
    let third = engine.submit(Do(Act::Return(3))).await.expect("submitted");
    assert_eq!(third.result().await.expect("done"), 3);
    until("counting starts again at 0", async || engine.counts().committed == 2).await;
    engine.stop().await;
}

async fn a_graceful_stop_finishes_running_jobs_and_releases_the_others(url: &str) {
    let engine = engine(url).queue("default", Pool::slots(4).prefetch(50)).open().await.expect("opened");
    engine.submit_all((0..40).map(|_| Do(Act::Sleep(150)))).await.expect("submitted");
    engine.start().await.expect("started");
    until("some run", async || engine.counts().started >= 4).await;
    assert_eq!(engine.stop().await, 0, "no attempt was given up");
    let counts = engine.inspect().state_counts().await.expect("counted");
    let count = |state: State| counts.iter().filter(|c| c.state == state).map(|c| c.jobs).sum::<u64>();
    assert_eq!((count(State::Running), count(State::Ready) + count(State::Done)), (0, 40), "{counts:?}");
    assert!(count(State::Done) >= 4);
    let ready = Filter { state: Some(State::Ready), limit: 99, ..Filter::default() };
    let released = engine.inspect().jobs(&ready).await.expect("listed").jobs;
    assert!(released.iter().all(|job| job.attempts == 0));

    let again = started(url).await;
    until("the rest is done", async || again.counts().committed == count(State::Ready)).await;
    again.stop().await;
}

/// An engine in this process cannot be killed. What a killed one leaves is a worker whose liveness file is not locked.
async fn jobs_of_a_dead_predecessor_run_at_once(url: &str) {
    let engine = engine(url).open().await.expect("opened");
    let job = engine.submit(Do(Act::Return(5))).await.expect("submitted");
    let store = engine.store();
    let dead = IdSource::default().worker();
    let hour = Duration::from_secs(3_600);
    let new = NewWorker {
        id: dead,
        name: "predecessor".into(),
        liveness_file: None,
        lease: hour,
        serves: Vec::new(),
        token: None,
    };
    assert!(store.register_worker(None, &new).await.expect("registered"));
    let dir = store.liveness_dir().expect("both stores have one");
    std::fs::create_dir_all(&dir).expect("made");
    std::fs::write(dir.join(format!("{dead}.lock")), "").expect("written");
    let kinds = [KindVersion { kind: "do".into(), version: 1 }].into();
    let request = ClaimRequest {
        worker: dead,
        number: ClaimNo(1),
        queue: "default".into(),
        kinds,
        limit: 9,
        solo: false,
        only: None,
        settled: vec![],
    };
    assert_eq!(store.claim(None, &request).await.expect("claimed").jobs.len(), 1);

    let began = Instant::now();
    engine.start().await.expect("started");
    assert_eq!(job.result().await.expect("done"), 5);
    assert!(began.elapsed() < Duration::from_secs(10), "long before the lease of an hour");
    let seen = view(&engine, job.id()).await;
    assert_eq!((seen.worker_deaths, seen.solo_crashes, seen.summary.attempts), (1, 0, 0));
    engine.stop().await;
}

async fn jobs_of_a_dropped_engine_run_again_at_once(url: &str) {
    let config = Config { lease: Duration::from_secs(600), ..Config::default() };
    let dropped = engine(url).config(config).start().await.expect("started");
    let job = dropped.submit(Do(Act::Hang)).await.expect("submitted").id();
    until("it runs", async || dropped.counts().started == 1).await;
    drop(dropped);
    let engine = started(url).await;
    until("it runs again", async || engine.counts().started == 1).await;
    assert_eq!(view(&engine, job).await.worker_deaths, 1);
    drop(engine);
}

/// A claim that was recorded after the worker had stopped waiting for the answer.
async fn a_claim_whose_answer_was_lost_is_released(url: &str) {
    let config = Config { renew_every: Duration::from_millis(200), ..Config::default() };
    let engine = engine(url).queue("other", Pool::slots(1)).config(config).start().await.expect("started");
    let job = engine.submit(Do(Act::Return(9))).await.expect("submitted");
    let workers = engine.inspect().workers().await.expect("listed");
    let worker = workers.iter().find(|worker| worker.alive).expect("it serves").id;
    let kinds = [KindVersion { kind: "do".into(), version: 1 }].into();
    let (number, queue) = (ClaimNo(1_000_000), "default".into());
    let request =
        ClaimRequest { worker, number, queue, kinds, limit: 1, solo: false, only: None, settled: vec![] };
    assert_eq!(engine.store().claim(None, &request).await.expect("claimed").jobs.len(), 1);
    until("it is ready again", async || view(&engine, job.id()).await.summary.state == State::Ready).await;
    let seen = view(&engine, job.id()).await;
    assert_eq!((seen.summary.attempts, seen.worker_deaths, seen.epoch.0), (0, 0, 1));
    engine.stop().await;
}

/// Another worker, on a runtime of its own, would reap this one if its lease lapsed.
async fn a_worker_keeps_its_lease_while_every_thread_is_blocked(url: &str) {
    let config = || Config {
        lease: Duration::from_millis(1_500),
        renew_every: Duration::from_millis(300),
        ..Config::default()
    };
    let (ready, wait) = std::sync::mpsc::channel();
    let (over, end) = tokio::sync::oneshot::channel();
    let standby = std::thread::spawn({
        let (url, config) = (url.to_owned(), config());
        move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let engine = engine(&url).queue("other", Pool::slots(1)).config(config);
                let engine = engine.start().await.expect("started");
                ready.send(()).expect("received");
                end.await.expect("sent");
                let counts = engine.counts();
                engine.stop().await;
                counts
            })
        }
    });
    wait.recv().expect("it has started");
    let engine = engine(url).config(config()).start().await.expect("started");
    let jobs = engine.submit_all((0..6).map(|_| Do(Act::Block(2_500)))).await.expect("submitted");
    for job in jobs {
        engine.result::<u64>(job.id().expect("submitted")).await.expect("done");
        assert_eq!(
            view(&engine, job.id().expect("submitted")).await.worker_deaths,
            0,
            "the worker was not declared dead"
        );
    }
    engine.stop().await;
    over.send(()).expect("received");
    assert_eq!(standby.join().expect("ended").dead_workers, 0);
}

async fn invalid_settings_are_refused(url: &str) {
    let bad = [
        (Config { check_interval: Duration::ZERO, ..Config::default() }, "check interval"),
        (Config { check_interval: Duration::MAX, ..Config::default() }, "check interval"),
        (Config { drain: Duration::MAX, ..Config::default() }, "drain"),
        (Config { renew_every: Duration::from_secs(60), ..Config::default() }, "renewing every"),
        (Config { name: "x".repeat(999), ..Config::default() }, "name"),
    ];
    for (config, word) in bad {
        let error = engine(url).config(config).start().await.err().expect(word).to_string();
        assert!(error.contains(word), "{error}");
    }
    let pool = Pool { slots: 0, ..Pool::default() };
    let error = engine(url).queue("default", pool).start().await.err().expect("no slots").to_string();
    assert!(error.contains("0 slots"), "{error}");
}
