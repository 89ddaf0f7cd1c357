//! Control of jobs (cancel, pause, retry, bulk, prune) and flow control (serial keys, rate limits, schedules, unique jobs).

use std::{
    collections::HashMap,
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use windlass::{
    CatchUp, Cause, ControlOutcome, Error, Overlap, State, Unit,
    operate::JobAction,
    prelude::*,
    store::{AuditFilter, Filter},
};

use crate::common::{reaches, state, until};

crate::on_both_stores!(
    a_running_job_that_watches_for_a_cancel_ends_by_itself,
    a_running_job_that_ignores_a_cancel_is_ended_after_the_grace_period,
    a_cancelled_job_that_blocks_its_thread_is_ended_by_the_store,
    a_paused_queue_runs_nothing_until_it_is_resumed,
    jobs_of_a_serial_key_run_in_order_and_never_two_at_once,
    a_job_of_a_serial_key_that_ends_lets_the_next_one_run,
    a_rate_limit_holds_and_can_be_raised_while_jobs_wait,
    schedules_fire_and_their_jobs_know_the_tick,
    a_unique_submit_returns_the_existing_job_or_replaces_it,
    a_failed_job_is_retried_with_its_counters_reset,
    bulk_operations_can_be_previewed_and_are_in_the_audit_log,
    cancelling_a_parent_cancels_its_children,
    an_action_on_an_unknown_job_is_an_error,
    pruning_keeps_children_of_open_parents_and_holders_of_unique_names,
);

static LOG: LazyLock<Mutex<HashMap<String, Vec<u64>>>> = LazyLock::new(Mutex::default);

fn note(what: &str, n: u64) {
    LOG.lock().expect("not poisoned").entry(what.to_owned()).or_default().push(n);
}

fn noted(what: &str) -> Vec<u64> {
    LOG.lock().expect("not poisoned").get(what).cloned().unwrap_or_default()
}

#[derive(Serialize, Deserialize, Clone)]
enum Play {
    /// Logs its number under a name, and takes `millis`.
    Note { name: String, n: u64, millis: u64 },
    /// Waits until it is cancelled.
    Listen,
    /// Ignores a cancel.
    Sleep,
    /// Blocks its thread, for a number of seconds.
    Block(u64),
    /// Fails until something is logged under this name.
    Fail(String),
}

impl Task for Play {
    const KIND: &'static str = "play";
    type Output = u64;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
        match self {
            Play::Note { name, n, millis } => {
                note(&name, cx.tick().map_or(n, |tick| tick.0 as u64));
                tokio::time::sleep(Duration::from_millis(millis)).await;
                note(&format!("{name} ended"), n);
                Ok(n)
            }
            Play::Listen => {
                cx.cancelled().await;
                Err(Failure::retry("interrupted"))
            }
            Play::Sleep => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                Ok(0)
            }
            Play::Block(seconds) => {
                // As blocking work should: without its runtime's thread, whose connections would be blocked with it.
                tokio::task::block_in_place(|| std::thread::sleep(Duration::from_secs(seconds)));
                Ok(0)
            }
            Play::Fail(name) if noted(&name).is_empty() => Err(Failure::stop("not yet")),
            Play::Fail(_) => Ok(7),
        }
    }
}

async fn start(url: &str) -> Engine {
    let engine = Engine::builder(url).task::<Play>();
    engine.queue("default", Pool::slots(16)).start().await.expect("started")
}

fn name(test: &str, url: &str) -> String {
    format!("{test} {url}")
}

async fn a_running_job_that_watches_for_a_cancel_ends_by_itself(url: &str) {
    let engine = start(url).await;
    // As from another process.
    let operator = Engine::open(url).await.expect("opened");
    let job = engine.submit(Play::Listen).await.expect("submitted");
    until("it runs", async || engine.counts().started == 1).await;
    let ops = operator.control("ada").note("wrong month");
    assert_eq!(
        ops.cancel_within(job.id(), Duration::from_secs(600)).await.expect("cancel"),
        ControlOutcome::CancelRequested
    );
    let Err(JobError::Cancelled(failure)) = job.result().await else {
        panic!("it is cancelled, not retried")
    };
    assert_eq!(failure.message, "cancelled by ada: wrong month");
    let ControlOutcome::Already(why) = ops.cancel(job.id()).await.expect("cancel") else {
        panic!("it is cancelled")
    };
    assert!(why.contains("cancelled already"), "{why}");
    engine.stop().await;
}

async fn a_running_job_that_ignores_a_cancel_is_ended_after_the_grace_period(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Play::Sleep).await.expect("submitted");
    until("it runs", async || engine.counts().started == 1).await;
    let outcome = engine.control("ada").cancel_within(job.id(), Duration::from_millis(200)).await;
    assert_eq!(outcome.expect("cancel"), ControlOutcome::CancelRequested);
    assert!(matches!(job.result().await, Err(JobError::Cancelled(_))));
    // Its slot is free again: the attempt does not run any more.
    assert_eq!(engine.stop().await, 0, "no attempt had to be given up");
}

async fn a_cancelled_job_that_blocks_its_thread_is_ended_by_the_store(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Play::Block(6)).await.expect("submitted");
    until("it runs", async || engine.counts().started == 1).await;
    // Cancelled and ended as from another process.
    let (url, id) = (url.to_owned(), job.id());
    let others = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let operator = Engine::open(&url).await.expect("opened");
            let grace = Duration::from_millis(100);
            operator
                .control("ada")
                .cancel_within(id, grace)
                .await
                .expect("cancel")
                .accepted()
                .expect("cancel");
            until("its grace period is over", async || {
                operator.store().fire_timers(None, 10).await.expect("due");
                state(&operator, id).await == State::Cancelled
            })
            .await;
        });
    });
    tokio::task::spawn_blocking(|| others.join().expect("joined")).await.expect("joined");
    // What it returns when its thread is free again is fenced.
    let result = job.result().await;
    assert!(matches!(result, Err(JobError::Cancelled(_))), "{result:?}");
    engine.stop().await;
}

async fn a_paused_queue_runs_nothing_until_it_is_resumed(url: &str) {
    let engine = start(url).await;
    let ops = engine.control("ada").note("the printer is out of paper");
    assert!(ops.pause_queue("default").await.expect("pause"));
    assert!(!ops.pause_queue("default").await.expect("pause"), "it is paused already");
    // Several at once, which are not claimed at submit: a pause concerns claims.
    let jobs: Vec<Play> = (0..20).map(|n| Play::Note { name: name("paused", url), n, millis: 0 }).collect();
    let submitted = engine.submit_all(jobs).await.expect("submitted");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(noted(&name("paused", url)).is_empty(), "nothing was claimed");
    let why = engine.why(submitted[3].id().expect("submitted")).await.expect("why").expect("the job exists");
    assert_eq!(why.cause, Cause::QueuePaused);
    assert!(why.because.contains("ada") && why.because.contains("out of paper"), "{}", why.because);
    assert!(ops.resume_queue("default").await.expect("resume"));
    for job in submitted {
        let done: u64 = engine.result(job.id().expect("submitted")).await.expect("it runs");
        assert!(done < 20);
    }
    engine.stop().await;
}

async fn jobs_of_a_serial_key_run_in_order_and_never_two_at_once(url: &str) {
    let engine = start(url).await;
    let log = name("serial", url);
    let mut jobs = Vec::new();
    for n in 0..30 {
        let play = Play::Note { name: log.clone(), n, millis: 2 };
        // Priorities do not count: jobs of a serial key run in the order of their submits.
        let submit = engine.submit(play).serial("customer 7").priority(-(n as i16));
        jobs.push(submit.await.expect("submitted"));
    }
    for job in &jobs {
        job.result().await.expect("done");
    }
    assert_eq!(noted(&log), (0..30).collect::<Vec<u64>>(), "they start in order");
    assert_eq!(noted(&format!("{log} ended")), noted(&log), "each ends before the next starts");
    let keys = engine.inspect().serial_keys(Some("customer 7"), 1).await.expect("keys");
    assert_eq!((keys[0].held, keys[0].waiting), (0, 0));
    engine.stop().await;
}

async fn a_job_of_a_serial_key_that_ends_lets_the_next_one_run(url: &str) {
    let engine = start(url).await;
    let stuck = engine.submit(Play::Sleep).serial("k").await.expect("submitted");
    reaches(&engine, stuck.id(), State::Running).await;
    let next = engine.submit(Play::Note { name: name("next", url), n: 1, millis: 0 }).serial("k");
    let next = next.await.expect("submitted");
    let why = engine.why(next.id()).await.expect("why").expect("the job exists");
    assert_eq!(why.cause, Cause::Serial);
    assert!(why.because.contains(&stuck.id().to_string()), "{}", why.because);
    engine
        .control("ada")
        .cancel_within(stuck.id(), Duration::ZERO)
        .await
        .expect("cancel")
        .accepted()
        .expect("cancel");
    assert_eq!(next.result().await.expect("done"), 1);
    engine.stop().await;
}

async fn a_rate_limit_holds_and_can_be_raised_while_jobs_wait(url: &str) {
    let engine = start(url).await;
    let ops = engine.control("ada");
    let unknown = engine.submit(Play::Listen).rate("api").await.expect_err("refused").to_string();
    assert!(unknown.contains("does not exist") && unknown.contains("limits set"), "{unknown}");
    // One an hour, two at once: the third waits.
    let slow = RateLimit::per("api", 1, Duration::from_secs(3_600)).burst(2);
    assert!(ops.set_limit(slow).await.expect("set"));
    let heavy = engine.submit(Play::Listen).rate(RateCharge::new("api").weight(3)).await;
    assert!(heavy.expect_err("refused").to_string().contains("burst of 2"));
    let log = name("rate", url);
    let mut jobs = Vec::new();
    for n in 0..6 {
        let play = Play::Note { name: log.clone(), n, millis: 0 };
        jobs.push(engine.submit(play).rate("api").await.expect("submitted"));
    }
    until("two ran", async || noted(&log).len() == 2).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(noted(&log).len(), 2, "no more than the burst");
    let why = engine.why(jobs[5].id()).await.expect("why").expect("the job exists");
    assert_eq!(why.cause, Cause::Rate, "{}", why.because);
    assert!(ops.set_limit(RateLimit::per_second("api", 1_000)).await.expect("set"));
    for job in &jobs {
        job.result().await.expect("done");
    }
    engine.stop().await;
}

async fn schedules_fire_and_their_jobs_know_the_tick(url: &str) {
    let engine = start(url).await;
    let log = name("schedule", url);
    let play = Play::Note { name: log.clone(), n: 0, millis: 0 };
    let every = Calendar::every(1, Unit::Seconds).expect("a calendar");
    let scheduling = |play: Play| {
        let scheduling = engine.schedule("tick", every.clone(), play);
        scheduling.overlap(Overlap::Allow).catch_up(CatchUp::All { window: Duration::from_secs(60) })
    };
    assert!(scheduling(play.clone()).await.expect("made"), "it is new");
    assert!(!scheduling(play).await.expect("made"), "repeated at every start of a program");
    until("three ticks", async || noted(&log).len() >= 3).await;
    let mut ticks = noted(&log);
    assert!(ticks.iter().all(|tick| tick % 1_000_000 == 0), "on the grid: {ticks:?}");
    ticks.dedup();
    assert_eq!(ticks.len(), noted(&log).len(), "each once");
    let ControlOutcome::Created(now) = engine.control("ada").trigger("tick").await.expect("trigger") else {
        panic!("it is submitted")
    };
    reaches(&engine, now, State::Done).await;
    assert_eq!(engine.control("ada").drop_schedule("tick").await.expect("drop"), ControlOutcome::Done);
    engine.stop().await;
}

async fn a_unique_submit_returns_the_existing_job_or_replaces_it(url: &str) {
    let engine = start(url).await;
    let first = engine.submit(Play::Listen).unique("report").await.expect("submitted");
    let same = engine.submit(Play::Listen).unique("report").await.expect("answered");
    assert_eq!((same.id(), same.is_new()), (first.id(), false));
    reaches(&engine, first.id(), State::Running).await;
    let rejected = engine.submit(Play::Listen).unique(Unique::new("report").or_replace()).await;
    let rejected = rejected.expect_err("a running job is not replaced").to_string();
    assert!(rejected.contains(&first.id().to_string()), "{rejected}");
    let unique = Unique::new("report").or_cancel_and_replace();
    let second = engine.submit(Play::Sleep).unique(unique).delay(Duration::from_secs(3_600)).await;
    let second = second.expect("submitted");
    assert_eq!(second.replaced(), Some(first.id()));
    assert!(matches!(first.result().await, Err(JobError::Cancelled(_))), "it listens");
    let third = engine.submit(Play::Note { name: name("unique", url), n: 3, millis: 0 });
    let third = third.unique(Unique::new("report").or_replace()).await.expect("submitted");
    assert_eq!(third.replaced(), Some(second.id()));
    assert_eq!(state(&engine, second.id()).await, State::Cancelled);
    assert_eq!(third.result().await.expect("done"), 3);
    engine.stop().await;
}

async fn a_failed_job_is_retried_with_its_counters_reset(url: &str) {
    let engine = start(url).await;
    let fixed = name("fixed", url);
    let job = engine.submit(Play::Fail(fixed.clone())).await.expect("submitted");
    assert!(matches!(job.result().await, Err(JobError::Failed { .. })));
    note(&fixed, 1);
    let ops = engine.control("ada");
    assert_eq!(ops.retry(job.id()).await.expect("retry"), ControlOutcome::Done);
    reaches(&engine, job.id(), State::Done).await;
    let ControlOutcome::Refused(why) = ops.retry(job.id()).await.expect("retry") else {
        panic!("it is done")
    };
    assert!(why.contains("submit a new job"), "{why}");
    let job = engine.inspect().job(job.id()).await.expect("job").expect("the job exists");
    assert_eq!(job.summary.attempts, 0, "attempts before the retry do not count");
    engine.stop().await;
}

async fn bulk_operations_can_be_previewed_and_are_in_the_audit_log(url: &str) {
    let engine = Engine::open(url).await.expect("opened");
    let jobs: Vec<Play> = (0..250).map(|_| Play::Listen).collect();
    let submitted = engine.submit_all(jobs).tag("batch 7").await.expect("submitted");
    let ops = engine.control("ada").note("the wrong file");
    let filter = Filter { tag: Some("batch 7".into()), state: Some(State::Ready), ..Filter::default() };
    let cancel = windlass::operate::JobAction::Cancel { grace: Duration::ZERO };
    let preview = ops.bulk(filter.clone(), cancel).preview().await.expect("preview");
    assert_eq!((preview.matching, preview.at_least, preview.sample.len()), (250, false, 10));
    assert_eq!(
        state(&engine, submitted[0].id().expect("submitted")).await,
        State::Ready,
        "a preview does nothing"
    );
    let later = engine.submit(Play::Listen).tag("batch 7").await.expect("submitted");
    // Interrupted after the first batch, then repeated to its end.
    let mut bulk = ops.bulk(filter.clone(), cancel);
    let seen = AtomicUsize::new(0);
    let counts = bulk.run(|_| seen.fetch_add(1, Ordering::Relaxed) > 0).await.expect("run");
    assert!(counts.interrupted && counts.done == 100, "{counts:?}");
    bulk = ops.bulk(filter, cancel).per_second(1_000);
    let counts = bulk.run(|_| true).await.expect("run");
    assert_eq!((counts.done, counts.refused, counts.interrupted), (151, 0, false));
    assert_eq!(state(&engine, later.id()).await, State::Cancelled);
    let entries = engine.inspect().audit(&AuditFilter { limit: 1_000, ..AuditFilter::default() }).await;
    let entries = entries.expect("audit");
    assert_eq!(entries.iter().filter(|entry| entry.action == "cancel").count(), 251, "each is in the log");
    let bulk: Vec<_> = entries.iter().filter(|entry| entry.action.starts_with("bulk cancel")).collect();
    assert_eq!(bulk.len(), 4, "begun and ended, twice");
    assert!(bulk.iter().all(|entry| entry.subject == "state=ready tag=batch 7" && entry.author == "ada"));
}

async fn cancelling_a_parent_cancels_its_children(url: &str) {
    let engine = Engine::open(url).await.expect("opened");
    let parent = engine.submit(Play::Listen).await.expect("submitted");
    let child = engine.submit(Play::Listen).parent(parent.id()).await.expect("submitted");
    let grandchild = engine.submit(Play::Listen).parent(child.id()).await.expect("submitted");
    let other = engine.submit(Play::Listen).await.expect("submitted");
    let ops = engine.control("ada");
    assert_eq!(ops.cancel_with_children(parent.id(), Duration::ZERO).await.expect("cancel"), 3);
    for id in [parent.id(), child.id(), grandchild.id()] {
        assert_eq!(state(&engine, id).await, State::Cancelled);
    }
    assert_eq!(state(&engine, other.id()).await, State::Ready);
}

async fn an_action_on_an_unknown_job_is_an_error(url: &str) {
    let engine = Engine::open(url).await.expect("opened");
    let (ops, unknown) = (engine.control("ada"), engine.new_id());
    let is_error = |what: &str, answer: Result<(), Error>| {
        assert!(matches!(answer, Err(Error::NoSuchJob(id)) if id == unknown), "{what}: {answer:?}");
    };
    is_error("cancel", ops.cancel(unknown).await.map(drop));
    is_error("pause", ops.pause(unknown).await.map(drop));
    is_error("resume", ops.resume(unknown).await.map(drop));
    is_error("retry", ops.retry(unknown).await.map(drop));
    is_error("priority", ops.priority(unknown, 3).await.map(drop));
    is_error("drop a signal", ops.drop_signal(unknown, 1).await.map(drop));
    is_error("cancel with children", ops.cancel_with_children(unknown, Duration::ZERO).await.map(drop));
    let outcomes = ops.act_on(&[unknown], JobAction::Pause).await.expect("acted");
    assert_eq!(outcomes, [ControlOutcome::Unknown], "of several jobs some may exist");
    // A refusal of a job that exists is an outcome, and an error if that is asked for.
    let job = engine.submit(Play::Listen).await.expect("submitted").id();
    ops.cancel(job).await.expect("cancel").accepted().expect("cancelled");
    ops.cancel(job).await.expect("cancel").accepted().expect("it is so already");
    let refused = ops.pause(job).await.expect("pause").accepted().expect_err("refused").to_string();
    assert!(refused.contains("retry it first to pause it"), "{refused}");
    assert!(engine.inspect().audit(&AuditFilter::default()).await.expect("audit").len() == 1, "one change");
}

async fn pruning_keeps_children_of_open_parents_and_holders_of_unique_names(url: &str) {
    let engine = start(url).await;
    let quick = |n| Play::Note { name: name("prune", url), n, millis: 0 };
    let parent = engine.submit(Play::Listen).await.expect("submitted");
    let child = engine.submit(quick(1)).parent(parent.id()).await.expect("submitted");
    let kept = windlass::States::KEPT;
    let named = engine.submit(quick(2)).unique(Unique::new("once").scope(kept)).await.expect("submitted");
    let plain = engine.submit(quick(3)).key("k").await.expect("submitted");
    for job in [&child, &named, &plain] {
        job.result().await.expect("done");
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let ops = engine.control("ada");
    let pruned = ops.prune(State::Done, Duration::ZERO, None, |_| true).await.expect("prune");
    assert_eq!((pruned.jobs, pruned.kept), (1, 2));
    assert!(matches!(plain.result().await, Err(JobError::Gone(_))));
    assert!(engine.submit(quick(4)).key("k").await.expect("submitted").is_new(), "its key is free");
    let again = engine.submit(quick(5)).unique(Unique::new("once").scope(kept)).await.expect("answered");
    assert_eq!(again.id(), named.id(), "a name that is still held is still held");
    assert!(
        ops.prune(State::Running, Duration::ZERO, None, |_| true).await.is_err(),
        "unfinished jobs are never pruned"
    );
    ops.cancel_within(parent.id(), Duration::ZERO).await.expect("cancel").accepted().expect("cancel");
    reaches(&engine, parent.id(), State::Cancelled).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let pruned = ops.prune(State::Done, Duration::ZERO, None, |_| true).await.expect("prune");
    assert!(
        engine.inspect().job(child.id()).await.expect("job").is_some(),
        "its parent may be retried: {pruned:?}"
    );
    assert_eq!(ops.prune(State::Cancelled, Duration::ZERO, None, |_| true).await.expect("prune").jobs, 1);
    let pruned = ops.prune(State::Done, Duration::ZERO, None, |_| true).await.expect("prune");
    assert!(pruned.jobs >= 1, "the child's parent is gone: {pruned:?}");
    assert!(engine.inspect().job(child.id()).await.expect("job").is_none());
    engine.stop().await;
}
