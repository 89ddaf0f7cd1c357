//! The engine as its users meet it, on both stores.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use windlass::{
    Config, OnFailure, Reason, State, Time,
    env::IdSource,
    prelude::*,
    store::{Filter, Job},
};

use crate::suspects::lose;

crate::on_both_stores!(
    a_result_is_typed_and_reaches_every_process,
    errors_are_retried_and_kept,
    each_way_to_fail_has_its_reason,
    a_panic_harms_only_itself,
    a_timeout_ends_the_attempt,
    an_attempt_that_blocks_its_thread_is_given_up,
    keys_and_ids_make_submits_repeatable,
    many_jobs_run_exactly_once,
    priorities_and_delays_are_kept,
    a_deadline_fails_what_has_not_ended,
    a_graceful_stop_finishes_what_runs_and_hands_back_the_rest,
    a_predecessor_that_died_leaves_nothing_waiting,
    bad_input_is_explained,
    an_output_that_is_too_large_fails_its_job_alone,
    several_engines_share_a_store,
    a_slot_that_falls_free_is_filled_at_once,
    an_attempt_given_up_has_one_outcome,
    a_panic_in_a_destructor_costs_no_slot,
    a_caller_whose_runtime_ends_harms_nobody,
    a_suspect_that_blocks_does_not_hold_up_the_others,
    an_engine_can_be_stopped_and_started_again,
    claims_whose_answer_was_lost_are_handed_back,
    long_suspects_do_not_wait_for_each_other,
    settings_that_cannot_work_are_refused,
    a_dropped_engine_is_found_dead_at_once,
    slow_jobs_are_not_hoarded,
    blocking_every_thread_does_not_cost_the_lease,
    a_job_past_its_deadline_is_not_started,
);

/// What a test task is told to do.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
enum Act {
    Return(u64),
    /// Fail so often, then return.
    FailFirst {
        times: u32,
        gate: String,
    },
    Stop,
    Cancel,
    Panic,
    Hang,
    Block(u64),
    Sleep(u64),
    Large(usize),
}

#[derive(Serialize, Deserialize, Clone, Debug)]
struct Do(Act);

/// An error type of the task's own.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
enum Trouble {
    Busy { try_again: bool },
    Broken,
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        let failure = match trouble {
            Trouble::Busy { .. } => Failure::retry("busy").class("busy"),
            Trouble::Broken => Failure::stop("broken").class("broken"),
        };
        failure.with_detail(&trouble)
    }
}

impl Task for Do {
    const KIND: &'static str = "do";
    type Output = u64;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
        match self.0 {
            Act::Return(n) => Ok(n),
            Act::FailFirst { times, .. } if cx.attempt() <= times => {
                Err(Trouble::Busy { try_again: true }.into())
            }
            Act::FailFirst { .. } => Ok(u64::from(cx.attempt())),
            Act::Stop => Err(Trouble::Broken.into()),
            Act::Cancel => Err(Failure::cancel("no longer wanted")),
            Act::Panic => panic!("as told"),
            Act::Hang => std::future::pending().await,
            Act::Block(ms) => {
                std::thread::sleep(Duration::from_millis(ms));
                Ok(ms)
            }
            Act::Sleep(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(ms)
            }
            Act::Large(size) => {
                // Digits, so that the output is this long.
                std::future::ready(()).await;
                Err(Failure::stop(format!("{:0size$}", 0)))
            }
        }
    }

    fn retry() -> Retry {
        Retry::times(3).backoff(Duration::from_millis(5), Duration::from_millis(20))
    }
}

async fn engine(url: &str) -> Engine {
    Engine::open(url).await.expect("opened").task::<Do>()
}

async fn started(url: &str) -> Engine {
    engine(url).await.start().await.expect("started")
}

async fn view(engine: &Engine, id: JobId) -> Job {
    engine.inspect().job(id).await.expect("read").expect("there")
}

/// Waits until something holds; panics after half a minute.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_result_is_typed_and_reaches_every_process(url: &str) {
    let worker = started(url).await;
    let elsewhere = Engine::open(url).await.expect("opened");
    let here = worker.submit(Do(Act::Return(7))).await.expect("submitted");
    assert_eq!(here.result().await.expect("done"), 7);
    let there = elsewhere.submit(Do(Act::Return(8))).await.expect("submitted");
    assert_eq!(there.result().await.expect("done"), 8);
    assert_eq!(elsewhere.result::<u64>(here.id()).await.expect("done"), 7);
    let gone = elsewhere.result::<u64>(elsewhere.new_id()).await.expect_err("never submitted");
    assert!(gone.to_string().contains("pruned, or never submitted"), "{gone}");
    worker.stop().await;
}

async fn errors_are_retried_and_kept(url: &str) {
    let engine = started(url).await;
    let job = engine.submit(Do(Act::FailFirst { times: 2, gate: String::new() })).await.expect("submitted");
    assert_eq!(job.result().await.expect("done at last"), 3);
    let seen = view(&engine, job.id()).await;
    assert_eq!((seen.summary.attempts, seen.summary.state, seen.rev.0), (2, State::Done, 3));
    let tried = engine.inspect().history(job.id()).await.expect("read");
    assert_eq!(tried.iter().map(|a| &*a.failure.class).collect::<Vec<_>>(), ["busy", "busy"]);
    assert_eq!(tried[0].failure.detail::<Trouble>(), Some(Trouble::Busy { try_again: true }));

    let first_try = engine.submit(Do(Act::Return(1))).await.expect("submitted");
    first_try.result().await.expect("done");
    assert!(engine.inspect().history(first_try.id()).await.expect("read").is_empty());
    engine.stop().await;
}

async fn each_way_to_fail_has_its_reason(url: &str) {
    let engine = started(url).await;
    let fails = |act: Act, retry: Retry| {
        let engine = engine.clone();
        async move {
            let job = engine.submit(Do(act)).retry(retry).await.expect("submitted");
            job.result().await.expect_err("failed")
        }
    };
    let quick = |retry: Retry| retry.backoff(Duration::from_millis(1), Duration::from_millis(2));
    let many = Act::FailFirst { times: 99, gate: String::new() };
    let reason = |error: &JobError| match error {
        JobError::Failed { reason, .. } => Some(*reason),
        _ => None,
    };
    assert_eq!(reason(&fails(many.clone(), quick(Retry::times(2))).await), Some(Reason::Exhausted));
    assert_eq!(reason(&fails(many, Retry::rules().on("other", 9)).await), Some(Reason::Stopped));
    let broken = fails(Act::Stop, Retry::times(9)).await;
    assert_eq!(reason(&broken), Some(Reason::Stopped));
    assert!(matches!(broken, JobError::Failed { failure, .. } if failure.detail() == Some(Trouble::Broken)));
    let cancelled = fails(Act::Cancel, Retry::times(9)).await;
    assert!(matches!(cancelled, JobError::Cancelled(failure) if failure.then == OnFailure::Cancel));

    let odd = engine.submit_json("do", 1, serde_json::json!({"no": "such act"})).await.expect("submitted");
    assert_eq!(reason(&odd.result().await.expect_err("failed")), Some(Reason::Undecodable));
    assert_eq!(view(&engine, odd.id()).await.summary.attempts, 0, "no attempt is burnt");
    engine.stop().await;
}

async fn a_panic_harms_only_itself(url: &str) {
    let engine = started(url).await;
    let bad = engine.submit(Do(Act::Panic)).retry(Retry::never()).await.expect("submitted");
    let jobs: Vec<_> = engine.submit_all((0..50).map(|n| Do(Act::Return(n)))).await.expect("submitted");
    for put in jobs {
        engine.result::<u64>(put.id).await.expect("its neighbours are done");
    }
    let error = bad.result().await.expect_err("failed");
    assert!(
        matches!(error, JobError::Failed { failure, .. } if failure.class == "panic" && failure.message == "as told")
    );
    engine.stop().await;
}

async fn a_timeout_ends_the_attempt(url: &str) {
    let engine = started(url).await;
    let job = engine.submit(Do(Act::Hang)).timeout(Duration::from_millis(30)).retry(Retry::never());
    let job = job.await.expect("submitted");
    let error = job.result().await.expect_err("failed");
    assert!(matches!(error, JobError::Failed { reason: Reason::Timeout, .. }), "{error}");
    engine.stop().await;
}

async fn an_attempt_that_blocks_its_thread_is_given_up(url: &str) {
    let engine = started(url).await;
    let job = engine.submit(Do(Act::Block(6_000))).timeout(Duration::from_millis(50)).retry(Retry::never());
    let job = job.await.expect("submitted");
    let lost = until("the slot is lost", async || engine.counts().lost_slots == 1);
    let (error, ()) = tokio::join!(job.result(), lost);
    let error = error.expect_err("given up");
    assert!(
        matches!(&error, JobError::Failed { reason: Reason::Timeout, failure } if failure.message.contains("blocks its thread")),
        "{error}"
    );
    until("the slot is back", async || engine.counts().lost_slots == 0).await;
    assert_eq!(view(&engine, job.id()).await.rev.0, 1, "what it returned at last was not written");
    engine.stop().await;
}

async fn keys_and_ids_make_submits_repeatable(url: &str) {
    let engine = engine(url).await;
    let first = engine.submit(Do(Act::Return(1))).key("k").await.expect("submitted");
    let again = engine.submit(Do(Act::Return(1))).key("k").await.expect("submitted");
    let other = engine.submit(Do(Act::Return(2))).key("k").await.expect("submitted");
    assert!(first.is_new() && !again.is_new() && !again.differs() && !other.is_new() && other.differs());
    assert_eq!((again.id(), other.id()), (first.id(), first.id()));

    let id = engine.new_id();
    assert!(engine.submit(Do(Act::Return(3))).id(id).await.expect("submitted").is_new());
    assert!(!engine.submit(Do(Act::Return(3))).id(id).await.expect("repeated").is_new());
    let taken = engine.submit(Do(Act::Return(4))).id(id).await.err().expect("another input");
    assert!(taken.to_string().contains("with another input"), "{taken}");

    let all =
        engine.submit_all((0..2_500).map(|n| Do(Act::Return(n % 100)))).key(|job| format!("{:?}", job.0));
    let all = all.await.expect("submitted");
    assert_eq!((all.len(), all.iter().filter(|put| put.is_new).count()), (2_500, 100));
}

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
    let engine = Engine::open(url).await.expect("opened").task::<Count>();
    engine.submit_all((base..base + n).map(|n| Count { n })).await.expect("submitted");
    let engine = engine.start().await.expect("started");
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
    let census = engine.inspect().state_counts(u64::MAX).await.expect("counted");
    assert_eq!(census.iter().map(|c| (c.state, c.jobs)).collect::<Vec<_>>(), [(State::Done, n)]);
    let counts = engine.counts();
    assert!(counts.commits * 20 < n, "group commit: {counts:?}");
}

async fn priorities_and_delays_are_kept(url: &str) {
    static ORDER: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());
    #[derive(Serialize, Deserialize)]
    struct Note(usize, u64);
    impl Task for Note {
        const KIND: &'static str = "note";
        type Output = ();
        type Error = Failure;
        async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
            ORDER.lock().expect("not poisoned").push((self.0, self.1));
            Ok(())
        }
    }
    let me = url.len();
    let engine = Engine::open(url).await.expect("opened").task::<Note>().queue("default", Pool::slots(1));
    let put = async |n: u64, priority: i16, ms: u64| {
        let job = engine.submit(Note(me, n)).priority(priority).delay(Duration::from_millis(ms));
        job.await.expect("submitted").id()
    };
    let jobs = [
        put(4, 5, 0).await,
        put(3, 0, 0).await,
        put(2, -1, 0).await,
        put(1, -5, 0).await,
        put(5, -100, 400).await,
    ];
    let scheduled = view(&engine, jobs[4]).await;
    assert_eq!(scheduled.summary.state, State::Scheduled);
    let engine = engine.start().await.expect("started");
    for id in jobs {
        engine.result::<()>(id).await.expect("done");
    }
    engine.stop().await;
    let order: Vec<u64> =
        ORDER.lock().expect("not poisoned").iter().filter(|(who, _)| *who == me).map(|(_, n)| *n).collect();
    assert_eq!(order, [1, 2, 3, 4, 5]);
}

async fn a_deadline_fails_what_has_not_ended(url: &str) {
    let engine = started(url).await;
    let soon = Time::from_system(std::time::SystemTime::now()).plus(Duration::from_millis(150));
    let running = engine.submit(Do(Act::Hang)).deadline(soon).await.expect("submitted");
    let waiting =
        engine.submit(Do(Act::Return(1))).queue("unserved").deadline(soon).await.expect("submitted");
    for job in [running, waiting] {
        let error = job.result().await.expect_err("failed");
        assert!(matches!(error, JobError::Failed { reason: Reason::Expired, .. }), "{error}");
    }
    engine.stop().await;
}

async fn a_graceful_stop_finishes_what_runs_and_hands_back_the_rest(url: &str) {
    let engine = engine(url).await.queue("default", Pool::slots(4).prefetch(50));
    engine.submit_all((0..40).map(|_| Do(Act::Sleep(150)))).await.expect("submitted");
    let engine = engine.start().await.expect("started");
    until("some run", async || engine.counts().started >= 4).await;
    assert_eq!(engine.stop().await, 0, "nothing had to be given up");
    let census = engine.inspect().state_counts(u64::MAX).await.expect("counted");
    let count = |state: State| census.iter().filter(|c| c.state == state).map(|c| c.jobs).sum::<u64>();
    assert_eq!((count(State::Running), count(State::Ready) + count(State::Done)), (0, 40), "{census:?}");
    assert!(count(State::Done) >= 4);
    let ready = Filter { state: Some(State::Ready), limit: 99, ..Filter::default() };
    let handed_back = engine.inspect().jobs(&ready).await.expect("listed");
    assert!(handed_back.iter().all(|job| job.attempts == 0));

    let again = started(url).await;
    until("the rest is done", async || again.counts().committed == count(State::Ready)).await;
    again.stop().await;
}

/// An engine in this process cannot be killed; what a killed one leaves is a worker whose beacon has gone out.
async fn a_predecessor_that_died_leaves_nothing_waiting(url: &str) {
    use windlass::{
        model::{ClaimNo, KindVersion},
        store::{ClaimRequest, NewWorker},
    };
    let engine = engine(url).await;
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
    };
    assert!(store.register_worker(None, &new).await.expect("enlisted"));
    let dir = store.liveness_dir().expect("both have one");
    std::fs::create_dir_all(&dir).expect("made");
    std::fs::write(dir.join(format!("{dead}.lock")), "").expect("written");
    let kinds = [KindVersion { kind: "do".into(), version: 1 }].into();
    let ask = ClaimRequest {
        worker: dead,
        number: ClaimNo(1),
        queue: "default".into(),
        kinds,
        limit: 9,
        solo: false,
        settled: vec![],
    };
    assert_eq!(store.claim(None, &ask).await.expect("claimed").jobs.len(), 1);

    let begun = Instant::now();
    let engine = engine.start().await.expect("started");
    assert_eq!(job.result().await.expect("done"), 5);
    assert!(begun.elapsed() < Duration::from_secs(10), "long before the lease of an hour");
    let seen = view(&engine, job.id()).await;
    assert_eq!((seen.deaths, seen.crashes, seen.summary.attempts), (1, 0, 0));
    engine.stop().await;
}

async fn bad_input_is_explained(url: &str) {
    let engine = engine(url).await;
    let submit = || engine.submit(Do(Act::Return(1)));
    let year_10000 = Time(Time::MAX.0 + 1);
    let errors = [
        (submit().key("k".repeat(1 << 20)).await, "more than the 512"),
        (submit().key("a\0b").await, "NUL"),
        (submit().queue("windlass.own").await, "reserved"),
        (submit().priority(500).await, "from -100"),
        (submit().at(year_10000).await, "year 9999"),
        (submit().options("{").await, "not JSON"),
        (submit().timeout(Duration::ZERO).await, "timeout is zero"),
        (submit().delay(Duration::MAX).await, "100 years"),
        (engine.submit(Do(Act::FailFirst { times: 0, gate: "x".repeat(1 << 21) })).await, "1048576 allowed"),
    ];
    for (answer, text) in errors {
        let error = answer.err().expect(text).to_string();
        assert!(error.contains(text) && error.contains(';'), "{error}");
    }
    let one_bad =
        engine.submit_all([Do(Act::Return(1)), Do(Act::FailFirst { times: 0, gate: "x".repeat(1 << 21) })]);
    one_bad.await.expect_err("refused");
    assert!(engine.inspect().state_counts(9).await.expect("counted").is_empty(), "nothing was written");
    let nothing = Engine::open(url).await.expect("opened").start().await.err().expect("no kinds");
    assert!(nothing.to_string().contains(".task::<T>()"), "{nothing}");
    let nowhere = Engine::open("mysql://x").await.err().expect("no such store");
    assert!(nowhere.to_string().contains("sqlite://PATH"), "{nowhere}");
}

#[derive(Serialize, Deserialize)]
struct Big(usize);

impl Task for Big {
    const KIND: &'static str = "big";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        Ok("x".repeat(self.0))
    }
}

async fn an_output_that_is_too_large_fails_its_job_alone(url: &str) {
    let engine = Engine::open(url).await.expect("opened").task::<Big>();
    let jobs = engine.submit_all([Big(10), Big(2 << 20), Big(20)]).await.expect("submitted");
    let engine = engine.start().await.expect("started");
    assert_eq!(engine.result::<String>(jobs[0].id).await.expect("done").len(), 10);
    assert_eq!(engine.result::<String>(jobs[2].id).await.expect("done").len(), 20);
    let error = engine.result::<String>(jobs[1].id).await.expect_err("failed");
    assert!(
        matches!(&error, JobError::Failed { reason: Reason::Refused, failure } if failure.message.contains("WINDLASS_LIMIT_PAYLOAD")),
        "{error}"
    );
    engine.stop().await;
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
    let me = usize::from(url.starts_with("sqlite"));
    let mut engines = Vec::new();
    for n in 0..4 {
        let config = Config { name: format!("engine {n}"), ..Config::default() };
        let engine = Engine::open(url).await.expect("opened").task::<Tick>().config(config);
        engines.push(engine.queue("default", Pool::slots(8)).start().await.expect("started"));
    }
    engines[0].submit_all((0..3_000).map(|_| Tick(me))).await.expect("submitted");
    until("all are done", async || engines.iter().map(|e| e.counts().committed).sum::<u64>() == 3_000).await;
    let alive = engines[1].inspect().workers().await.expect("listed").iter().filter(|w| w.alive).count();
    assert_eq!(alive, 4);
    for engine in &engines {
        engine.stop().await;
    }
    assert_eq!(RAN[me].load(Ordering::Relaxed), 3_000);
    let census = engines[0].inspect().state_counts(u64::MAX).await.expect("counted");
    assert_eq!(census.iter().map(|c| (c.state, c.jobs)).collect::<Vec<_>>(), [(State::Done, 3_000)]);
}

async fn a_slot_that_falls_free_is_filled_at_once(url: &str) {
    let engine = engine(url).await.queue("default", Pool::slots(1)).start().await.expect("started");
    let first = engine.submit(Do(Act::Sleep(300))).await.expect("submitted");
    let second = engine.submit(Do(Act::Return(2))).await.expect("submitted");
    first.result().await.expect("done");
    let waited = tokio::time::timeout(Duration::from_secs(10), second.result()).await;
    assert_eq!(waited.expect("long before the safety interval").expect("done"), 2);
    engine.stop().await;
}

/// The watchdog and the attempt end at about the same time, again and again: whoever is first decides, and what callers
/// are told is what the store has.
async fn an_attempt_given_up_has_one_outcome(url: &str) {
    let engine = started(url).await;
    for n in 0..6 {
        let blocked = 900 + n * 60;
        let job =
            engine.submit(Do(Act::Block(blocked))).timeout(Duration::from_millis(20)).retry(Retry::never());
        let job = job.await.expect("submitted");
        let told = job.result().await;
        let seen = view(&engine, job.id()).await;
        assert_eq!(seen.rev.0, 1);
        assert_eq!(told.is_ok(), seen.summary.state == State::Done, "{told:?} {seen:?}");
    }
    until("all slots are back", async || engine.counts().lost_slots == 0).await;
    engine.stop().await;
}

#[derive(Serialize, Deserialize)]
struct PanicsWhenDropped;

impl Task for PanicsWhenDropped {
    const KIND: &'static str = "panics_when_dropped";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in a destructor");
            }
        }
        let _bomb = Bomb;
        std::future::pending().await
    }
}

async fn a_panic_in_a_destructor_costs_no_slot(url: &str) {
    let engine = engine(url).await.task::<PanicsWhenDropped>().queue("default", Pool::slots(1));
    let engine = engine.start().await.expect("started");
    let job = engine.submit(PanicsWhenDropped).timeout(Duration::from_millis(20)).retry(Retry::never());
    let error = job.await.expect("submitted").result().await.expect_err("failed");
    assert!(matches!(&error, JobError::Failed { failure, .. } if failure.class == "panic"), "{error}");
    let next = engine.submit(Do(Act::Return(1))).await.expect("submitted");
    assert_eq!(next.result().await.expect("the only slot is there"), 1);
    engine.stop().await;
}

async fn a_caller_whose_runtime_ends_harms_nobody(url: &str) {
    let engine = engine(url).await.queue("default", Pool::slots(1)).start().await.expect("started");
    let elsewhere = engine.clone();
    let id = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { elsewhere.submit(Do(Act::Sleep(100))).await.expect("submitted").id() })
    });
    let id = id.join().expect("submitted");
    assert_eq!(engine.result::<u64>(id).await.expect("done"), 100);
    let next = engine.submit(Do(Act::Return(1))).await.expect("submitted");
    assert_eq!(next.result().await.expect("done"), 1);
    engine.stop().await;
}

async fn a_suspect_that_blocks_does_not_hold_up_the_others(url: &str) {
    let engine = engine(url).await;
    let suspect =
        engine.submit(Do(Act::Block(6_000))).timeout(Duration::from_millis(200)).retry(Retry::never());
    let suspect = suspect.await.expect("submitted").id();
    lose(&engine, "do", 1).await;
    let engine = engine.start().await.expect("started");
    until("the suspect runs", async || engine.counts().started == 1).await;
    let others = engine.submit_all((0..20).map(|n| Do(Act::Return(n)))).await.expect("submitted");
    for job in others {
        let done = tokio::time::timeout(Duration::from_secs(4), engine.result::<u64>(job.id)).await;
        done.expect("while the suspect still blocks").expect("done");
    }
    assert!(engine.result::<u64>(suspect).await.is_err(), "it was given up");
    engine.stop().await;
}

async fn an_engine_can_be_stopped_and_started_again(url: &str) {
    let engine = started(url).await;
    engine.submit(Do(Act::Return(1))).await.expect("submitted").result().await.expect("done");
    engine.stop().await;
    let later = engine.submit(Do(Act::Return(2))).await.expect("submitted");
    let engine = engine.start().await.expect("started again");
    assert_eq!(later.result().await.expect("done"), 2);
    let born = engine.submit(Do(Act::Return(3))).await.expect("submitted");
    assert_eq!(born.result().await.expect("done"), 3);
    until("both are counted, anew", async || engine.counts().committed == 2).await;
    engine.stop().await;
}

/// A claim that was recorded after its caller had stopped waiting for it, and that nobody knows of.
async fn claims_whose_answer_was_lost_are_handed_back(url: &str) {
    use windlass::{
        model::{ClaimNo, KindVersion},
        store::ClaimRequest,
    };
    let config = Config { renew_every: Duration::from_millis(200), ..Config::default() };
    let engine =
        engine(url).await.queue("other", Pool::slots(1)).config(config).start().await.expect("started");
    let job = engine.submit(Do(Act::Return(9))).await.expect("submitted");
    let workers = engine.inspect().workers().await.expect("listed");
    let worker = workers.iter().find(|worker| worker.alive).expect("it serves").id;
    let kinds = [KindVersion { kind: "do".into(), version: 1 }].into();
    let (number, queue) = (ClaimNo(1_000_000), "default".into());
    let ask = ClaimRequest { worker, number, queue, kinds, limit: 1, solo: false, settled: vec![] };
    assert_eq!(engine.store().claim(None, &ask).await.expect("claimed").jobs.len(), 1);
    until("it is ready again", async || view(&engine, job.id()).await.summary.state == State::Ready).await;
    let seen = view(&engine, job.id()).await;
    assert_eq!((seen.summary.attempts, seen.deaths, seen.epoch.0), (0, 0, 1));
    engine.stop().await;
}

static PATIENTS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// A task that runs until its worker stops.
#[derive(Serialize, Deserialize)]
struct Patient(usize);

impl Task for Patient {
    const KIND: &'static str = "patient";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        PATIENTS[self.0].fetch_add(1, Ordering::Relaxed);
        cx.cancelled().await;
        Ok(())
    }
}

/// Each is alone for a second and then has company: all run at once, though none ever ends.
async fn long_suspects_do_not_wait_for_each_other(url: &str) {
    let me = usize::from(url.starts_with("sqlite"));
    let config = Config { drain: Duration::ZERO, ..Config::default() };
    let engine = Engine::open(url).await.expect("opened").task::<Patient>().task::<Do>().config(config);
    engine.submit_all((0..3).map(|_| Patient(me))).await.expect("submitted");
    lose(&engine, "patient", 3).await;
    let engine = engine.start().await.expect("started");
    until("all three run", async || PATIENTS[me].load(Ordering::Relaxed) == 3).await;
    let other = engine.submit(Do(Act::Return(1))).await.expect("submitted");
    assert_eq!(other.result().await.expect("done beside them"), 1);
    engine.stop().await;
}

async fn settings_that_cannot_work_are_refused(url: &str) {
    let bad = [
        (Config { safety: Duration::ZERO, ..Config::default() }, "safety"),
        (Config { safety: Duration::MAX, ..Config::default() }, "safety"),
        (Config { drain: Duration::MAX, ..Config::default() }, "drain"),
        (Config { renew_every: Duration::from_secs(60), ..Config::default() }, "beat"),
        (Config { name: "x".repeat(999), ..Config::default() }, "name"),
    ];
    for (config, word) in bad {
        let error = engine(url).await.config(config).start().await.err().expect(word).to_string();
        assert!(error.contains(word), "{error}");
    }
    let pool = Pool { slots: 0, ..Pool::default() };
    let error = engine(url).await.queue("default", pool).start().await.err().expect("no slots").to_string();
    assert!(error.contains("0 slots"), "{error}");
}

async fn a_dropped_engine_is_found_dead_at_once(url: &str) {
    let config = Config { lease: Duration::from_secs(600), ..Config::default() };
    let dropped = engine(url).await.config(config).start().await.expect("started");
    let job = dropped.submit(Do(Act::Hang)).await.expect("submitted").id();
    until("it runs", async || dropped.counts().started == 1).await;
    drop(dropped);
    let engine = started(url).await;
    until("it runs again", async || engine.counts().started == 1).await;
    assert_eq!(view(&engine, job).await.deaths, 1);
    drop(engine);
}

/// After fast jobs a pool claims far ahead; when slow ones follow, it hands back what others could be doing.
async fn slow_jobs_are_not_hoarded(url: &str) {
    let one = engine(url).await.queue("default", Pool::slots(2)).start().await.expect("started");
    one.submit_all((0..3_000).map(|n| Do(Act::Return(n)))).await.expect("submitted");
    until("the fast ones are done", async || one.counts().committed >= 2_900).await;
    one.submit_all((0..40).map(|_| Do(Act::Sleep(3_000)))).await.expect("submitted");
    until("the slow ones run", async || one.counts().started >= 3_002).await;
    let other = engine(url).await.queue("default", Pool::slots(64)).start().await.expect("started");
    until("the other has most of them", async || other.counts().started >= 34).await;
    one.stop().await;
    other.stop().await;
}

/// Another worker, on a runtime of its own, stands by to take over what looks dead.
async fn blocking_every_thread_does_not_cost_the_lease(url: &str) {
    let config = || Config {
        lease: Duration::from_millis(1_500),
        renew_every: Duration::from_millis(300),
        ..Config::default()
    };
    let (ready, wait) = std::sync::mpsc::channel();
    let (over, watch) = tokio::sync::oneshot::channel();
    let standby = std::thread::spawn({
        let (url, config) = (url.to_owned(), config());
        move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let engine = engine(&url).await.queue("other", Pool::slots(1)).config(config);
                let engine = engine.start().await.expect("started");
                ready.send(()).expect("heard");
                watch.await.expect("told");
                let counts = engine.counts();
                engine.stop().await;
                counts
            })
        }
    });
    wait.recv().expect("it stands by");
    let engine = engine(url).await.config(config()).start().await.expect("started");
    let jobs = engine.submit_all((0..6).map(|_| Do(Act::Block(2_500)))).await.expect("submitted");
    for job in jobs {
        engine.result::<u64>(job.id).await.expect("done");
        assert_eq!(view(&engine, job.id).await.deaths, 0, "nobody took the worker for dead");
    }
    engine.stop().await;
    over.send(()).expect("heard");
    assert_eq!(standby.join().expect("ended").dead_workers, 0);
}

async fn a_job_past_its_deadline_is_not_started(url: &str) {
    let engine = engine(url).await.queue("default", Pool::slots(1));
    let past = Time::from_system(std::time::SystemTime::now()).minus(Duration::from_secs(1));
    let job = engine.submit(Do(Act::Return(1))).deadline(past).await.expect("submitted");
    let engine = engine.start().await.expect("started");
    let error = job.result().await.expect_err("failed");
    assert!(matches!(error, JobError::Failed { reason: Reason::Expired, .. }), "{error}");
    engine.stop().await;
}
