//! Machines on an engine: steps, waits, signals, children, and how they fail.

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use windlass::{Cause, ChildResult, Config, Delivery, Error, MachineCx, Reason, State, prelude::*};

use crate::{
    common::{reaches, state},
    on_both_stores,
};

on_both_stores!(
    each_transition_of_a_machine_is_recorded_once,
    a_signal_wakes_a_parked_machine,
    a_signal_that_arrives_before_its_wait_is_kept,
    many_duplicates_of_a_signal_have_one_effect,
    a_wait_that_times_out_continues_without_its_signal,
    all_waits_for_all_and_any_for_the_first,
    a_wait_for_one_signal_leaves_the_others_in_the_inbox,
    a_step_that_did_not_wait_gets_no_signal,
    a_submit_with_a_signal_sends_it_to_the_new_or_existing_job,
    a_signal_that_cannot_be_delivered_is_an_error_that_says_why,
    errors_panics_and_timeouts_reach_on_error,
    an_on_error_that_fails_ends_the_job,
    retry_after_keeps_the_stage_and_counts_attempts,
    a_stage_that_leads_to_itself_forever_is_stopped,
    a_machine_sleeps,
    bad_steps_are_refused_with_what_to_do,
    a_parent_waits_for_its_children_and_reads_their_results,
    a_parent_of_no_children_continues_at_once,
    a_machine_of_many_steps_yields_its_slot_to_others,
    a_paused_machine_stops_after_its_step,
    a_cancelled_machine_ends_between_its_steps,
);

/// What steps logged, by name.
fn notes() -> &'static Mutex<HashMap<String, Vec<String>>> {
    static NOTES: OnceLock<Mutex<HashMap<String, Vec<String>>>> = OnceLock::new();
    NOTES.get_or_init(Mutex::default)
}

fn note(name: &str, text: impl ToString) {
    notes().lock().expect("notes").entry(name.to_owned()).or_default().push(text.to_string());
}

fn noted(name: &str) -> Vec<String> {
    notes().lock().expect("notes").get(name).cloned().unwrap_or_default()
}

/// A machine whose stages say what it does.
#[derive(Serialize, Deserialize, Clone, Debug)]
enum Act {
    /// Counts down to 0, one step for each number.
    Count {
        left: u32,
        log: String,
    },
    /// Waits for signals, then moves to `Got`.
    Wait {
        names: Vec<String>,
        all: bool,
        every: bool,
        millis: Option<u64>,
        log: String,
    },
    /// Returns the signals that it received.
    Got {
        names: Vec<String>,
        log: String,
        fail: u32,
    },
    /// Submits children, then moves to `Sum`, which adds up their results.
    Spawn {
        children: Vec<Addend>,
    },
    Sum,
    /// Fails in its first `times` attempts.
    Fail {
        how: How,
        times: u32,
        log: String,
    },
    Rescued,
    /// Polls `until` times.
    Poll {
        polls: u32,
        until: u32,
    },
    /// Leads to itself.
    Loop,
    /// Sleeps, then moves to `Rescued`.
    Nap {
        millis: u64,
    },
    /// Returns an invalid `Next`.
    Bad(u8),
    /// Counts down to 0 with a sleep of `millis` in each step.
    Slow {
        left: u32,
        millis: u64,
        log: String,
    },
}

#[derive(Serialize, Deserialize, Clone, Debug)]
enum How {
    Error,
    Stop,
    Panic,
    Timeout,
    /// Moves to `Rescued` from `on_error`.
    Rescue,
    /// Fails in `on_error` too.
    Twice,
    /// Panics in `on_error` too.
    PanicTwice,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
struct Addend {
    value: Option<u32>,
}

impl Task for Addend {
    const KIND: &'static str = "addend";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        self.value.ok_or_else(|| Failure::stop("no value"))
    }
}

impl Machine for Act {
    const KIND: &'static str = "act";
    type Output = Vec<String>;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Act>, Failure> {
        Ok(match self {
            Act::Count { left, log } => {
                note(&log, left);
                match left {
                    0 => Next::done(vec!["counted".into()]),
                    left => Next::to(Act::Count { left: left - 1, log }),
                }
            }
            Act::Wait { names, all: every_name, every, millis, log } => {
                let wait = |name: &String| if every { WaitFor::signals(name) } else { WaitFor::signal(name) };
                let waits = names.iter().map(wait);
                let wait = if every_name { WaitFor::all(waits) } else { WaitFor::any(waits) };
                let next = Next::wait(Act::Got { names, log, fail: 0 }, wait);
                match millis {
                    Some(millis) => next.timeout(Duration::from_millis(millis)),
                    None => next,
                }
            }
            Act::Got { names, log, fail } => {
                let mut got = Vec::new();
                for name in &names {
                    let of_name: Vec<serde_json::Value> = cx.signals(name)?;
                    got.extend(of_name.into_iter().map(|value| format!("{name}={value}")));
                }
                note(&log, got.join(" "));
                if cx.attempt() <= fail {
                    return Err(Failure::retry("not yet"));
                }
                if cx.timed_out() {
                    got.push("late".into());
                }
                Next::done(got)
            }
            Act::Spawn { children } => Next::children(Act::Sum, children.into_iter().map(Child::new)),
            Act::Sum => {
                let children: Vec<ChildResult<u32>> = cx.children().await?;
                let failed = children.iter().filter(|child| child.result.is_err()).count();
                let sum: u32 = children.iter().filter_map(|child| child.result.as_ref().ok()).sum();
                Next::done(vec![sum.to_string(), failed.to_string()])
            }
            Act::Fail { how, times, log } => {
                note(&log, cx.attempt());
                if cx.attempt() > times {
                    return Ok(Next::done(vec![cx.attempt().to_string()]));
                }
                match how {
                    How::Panic | How::PanicTwice => panic!("on purpose"),
                    How::Timeout => tokio::time::sleep(Duration::from_secs(600)).await,
                    How::Stop => return Ok(Next::stop("had enough")),
                    How::Error | How::Rescue | How::Twice => {}
                }
                return Err(Failure::retry("went wrong"));
            }
            Act::Rescued => Next::done(vec!["rescued".into()]),
            Act::Poll { polls, until } if polls < until => {
                Next::retry_after(Act::Poll { polls: polls + 1, until }, Duration::from_millis(1))
            }
            Act::Poll { polls, .. } => Next::done(vec![polls.to_string(), cx.attempt().to_string()]),
            Act::Loop => Next::to(Act::Loop),
            Act::Bad(0) => Next::wait(Act::Loop, "x").timeout(Duration::ZERO),
            Act::Bad(1) => Next::wait(Act::Loop, "x").timeout(days(365 * 200)),
            Act::Bad(2) => Next::wait(Act::Loop, WaitFor::any([""; 0])),
            Act::Bad(3) => Next::to(Act::Loop).timeout(seconds(1)),
            Act::Bad(4) => Next::children(Act::Sum, [Child::new(Addend { value: None }).queue("")]),
            Act::Bad(5) => Next::retry_after(Act::Bad(5), days(365 * 200)),
            Act::Bad(6) => {
                let _: Option<u8> = cx.signal("never waited for")?;
                Next::to(Act::Loop)
            }
            Act::Nap { millis } => Next::sleep(Act::Rescued, Duration::from_millis(millis)),
            Act::Bad(7) => Next::done(vec!["x".repeat(2 << 20)]),
            Act::Bad(9) => Next::wait(
                Act::Loop,
                WaitFor::all([
                    WaitFor::any([WaitFor::signal("a"), WaitFor::signal("b")]),
                    WaitFor::signal("c"),
                ]),
            ),
            Act::Bad(10) => Next::retry_after(Act::Loop, seconds(1)),
            Act::Bad(12) => Next::done(vec!["a century is long".into()]),
            Act::Bad(_) => Next::to(Act::Count { left: 0, log: "x".repeat(2 << 20) }),
            Act::Slow { left, millis, log } => {
                note(&log, left);
                tokio::time::sleep(Duration::from_millis(millis)).await;
                match left {
                    0 => Next::done(Vec::new()),
                    left => Next::to(Act::Slow { left: left - 1, millis, log }),
                }
            }
        })
    }

    async fn on_error(self, failure: Failure, _cx: &MachineCx) -> Result<Next<Act>, Failure> {
        match self {
            Act::Fail { how: How::Rescue, .. } => Ok(Next::to(Act::Rescued)),
            Act::Fail { how: How::Twice, .. } => Err(Failure::retry("and again")),
            Act::Fail { how: How::PanicTwice, .. } => panic!("in on_error"),
            _ => Ok(Next::by_policy(failure)),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Act::Got { fail: 0, .. } => Retry::never(),
            _ => Retry::times(4).backoff(Duration::from_millis(1), Duration::from_millis(1)),
        }
    }

    fn timeout(&self) -> Option<Duration> {
        match self {
            Act::Fail { how: How::Timeout, .. } => Some(Duration::from_millis(20)),
            Act::Bad(11) => Some(Duration::ZERO),
            Act::Bad(12) => Some(days(365 * 100)),
            _ => Some(Duration::from_secs(60)),
        }
    }
}

async fn start(url: &str) -> Engine {
    let engine = Engine::builder(url).machine::<Act>().task::<Addend>();
    engine.queue("default", Pool::slots(8)).start().await.expect("started")
}

fn wait(names: &[&str], all: bool, millis: Option<u64>, log: &str) -> Act {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Act::Wait { names, all, every: false, millis, log: log.to_owned() }
}

async fn failure(handle: &Handle<Act>) -> (Reason, Failure) {
    match handle.result().await {
        Err(JobError::Failed { reason, failure, .. }) => (reason, failure),
        other => panic!("it should have failed: {other:?}"),
    }
}

async fn transitions(engine: &Engine, id: JobId) -> Vec<String> {
    let steps = engine.inspect().transitions(id, None, 1_000).await.expect("steps");
    let text = |step: &windlass::store::Transition| {
        format!("{} {} {}", step.stage, step.outcome, step.next.as_deref().unwrap_or("-"))
    };
    steps.iter().map(text).collect()
}

async fn each_transition_of_a_machine_is_recorded_once(url: &str) {
    let engine = start(url).await;
    let log = format!("count {url}");
    let job = engine.submit(Act::Count { left: 5, log: log.clone() }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), ["counted"]);
    assert_eq!(noted(&log), ["5", "4", "3", "2", "1", "0"]);
    let mut expected = vec!["Count next Count"; 5];
    expected.push("Count done -");
    assert_eq!(transitions(&engine, job.id()).await, expected);
    let kept = engine.inspect().job(job.id()).await.expect("job").expect("the job exists");
    assert_eq!((kept.summary.stage.as_deref(), kept.rev.0, kept.epoch.0), (Some("Count"), 6, 0));
    let data = engine.decode(&kept.data.expect("data")).expect("decoded");
    assert!(String::from_utf8_lossy(&data).contains("\"left\":0"), "the data of the last stage is kept");
    engine.stop().await;
}

async fn a_signal_wakes_a_parked_machine(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(wait(&["go"], false, None, "")).await.expect("submitted");
    reaches(&engine, job.id(), State::Waiting).await;
    let why = engine.why(job.id()).await.expect("why").expect("the job exists");
    assert_eq!(why.cause, Cause::Signal, "{why:?}");
    assert_eq!(engine.signal(job.id(), "other", 1).await.expect("sent"), Delivery::Delivered);
    assert_eq!(state(&engine, job.id()).await, State::Waiting, "a signal of another name does not wake it");
    job.signal("go", vec![1, 2]).await.expect("sent");
    assert_eq!(job.result().await.expect("done"), ["go=[1,2]"]);
    assert_eq!(transitions(&engine, job.id()).await, ["Wait wait Got", "Got done -"]);
    engine.stop().await;
}

async fn a_signal_that_arrives_before_its_wait_is_kept(url: &str) {
    let idle = Engine::open(url).await.expect("opened");
    let job = idle.submit(wait(&["go"], false, None, "")).key("early").await.expect("submitted");
    idle.signal_key("act", "early", "go", "first").await.expect("sent");
    idle.signal(job.id(), "go", "second").await.expect("sent");
    let engine = start(url).await;
    assert_eq!(job.result().await.expect("done"), ["go=\"first\""], "one signal, the oldest");
    assert_eq!(
        engine.inspect().inbox(job.id(), 9).await.expect("inbox").len(),
        2,
        "the end consumes nothing"
    );
    engine.stop().await;
}

async fn many_duplicates_of_a_signal_have_one_effect(url: &str) {
    let engine = start(url).await;
    let log = format!("storm {url}");
    let mut jobs = Vec::new();
    for _ in 0..10 {
        jobs.push(engine.submit(wait(&["go"], false, None, &log)).await.expect("submitted"));
    }
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..8 {
        let (engine, ids) = (engine.clone(), jobs.iter().map(Handle::id).collect::<Vec<_>>());
        senders.spawn(async move {
            let mut delivered = 0;
            for pass in 0..5 {
                for id in &ids {
                    match engine.signal(*id, "go", 7).dedup("once").await {
                        Ok(Delivery::Delivered) => delivered += 1,
                        Ok(Delivery::Duplicate) | Err(Error::Ended { .. }) => {}
                        Err(error) => panic!("sender {sender}, pass {pass}: {error}"),
                    }
                }
            }
            delivered
        });
    }
    let delivered: usize = senders.join_all().await.into_iter().sum();
    assert_eq!(delivered, jobs.len(), "each job was sent one signal");
    for job in &jobs {
        assert_eq!(job.result().await.expect("done"), ["go=7"]);
    }
    assert_eq!(noted(&log), vec!["go=7"; jobs.len()], "each effect happened once");
    engine.stop().await;
}

async fn a_wait_that_times_out_continues_without_its_signal(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(wait(&["go"], false, Some(50), "")).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), ["late"]);
    let partly = engine.submit(wait(&["a", "b"], true, Some(300), "")).await.expect("submitted");
    partly.signal("b", 1).await.expect("sent");
    assert_eq!(partly.result().await.expect("done"), ["b=1", "late"], "it receives what has arrived");
    engine.stop().await;
}

async fn all_waits_for_all_and_any_for_the_first(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(wait(&["a", "b"], true, None, "")).await.expect("submitted");
    reaches(&engine, job.id(), State::Waiting).await;
    job.signal("b", 1).await.expect("sent");
    job.signal("b", 2).await.expect("sent");
    assert_eq!(state(&engine, job.id()).await, State::Waiting);
    job.signal("a", 3).await.expect("sent");
    assert_eq!(job.result().await.expect("done"), ["a=3", "b=1"]);
    let job = engine.submit(wait(&["a", "b"], false, None, "")).await.expect("submitted");
    job.signal("b", 1).await.expect("sent");
    assert_eq!(job.result().await.expect("done"), ["b=1"]);
    engine.stop().await;
}

/// Waits for one item at a time, three times.
#[derive(Serialize, Deserialize)]
enum Items {
    Start,
    Item(Vec<u64>),
}

impl Machine for Items {
    const KIND: &'static str = "items";
    type Output = Vec<u64>;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Items>, Failure> {
        let mut items = match self {
            Items::Start => Vec::new(),
            Items::Item(mut items) => {
                items.extend(cx.signal::<u64>("item")?);
                items
            }
        };
        if items.len() == 3 {
            items.push(0);
            return Ok(Next::done(items));
        }
        Ok(Next::wait(Items::Item(items), "item"))
    }
}

async fn a_wait_for_one_signal_leaves_the_others_in_the_inbox(url: &str) {
    let engine = Engine::builder(url).machine::<Items>().start().await.expect("started");
    let job = engine.submit(Items::Start).signal("item", 1).signal("item", 2).await.expect("submitted");
    reaches(&engine, job.id(), State::Waiting).await;
    job.signal("item", 3).await.expect("sent");
    assert_eq!(job.result().await.expect("done"), [1, 2, 3, 0], "each is received once, in order");
    engine.stop().await;
}

async fn a_step_that_did_not_wait_gets_no_signal(url: &str) {
    let engine = start(url).await;
    let log = format!("again {url}");
    let got = Act::Got { names: vec!["go".into()], log: log.clone(), fail: 0 };
    let refused = engine.submit(got).await.expect("submitted");
    assert!(failure(&refused).await.1.message.contains("did not wait for the signal"), "it never waited");
    let job = engine.submit(wait(&["go"], false, None, &log)).await.expect("submitted");
    job.signal("go", "a string where a list is wanted").await.expect("sent");
    assert_eq!(job.result().await.expect("done").len(), 1);
    engine.stop().await;
}

async fn a_submit_with_a_signal_sends_it_to_the_new_or_existing_job(url: &str) {
    let engine = start(url).await;
    let submit = || engine.submit(wait(&["a", "b"], true, None, "")).key("with");
    let first = submit().signal_once("a", "1", 1).await.expect("submitted");
    reaches(&engine, first.id(), State::Waiting).await;
    let second = submit().signal_once("a", "1", 2).signal("b", 3).await.expect("submitted");
    assert!(first.is_new() && !second.is_new() && first.id() == second.id());
    assert_eq!(first.result().await.expect("done"), ["a=1", "b=3"]);
    let late = submit().signal("a", 1).await.expect_err("it has ended").to_string();
    assert!(late.contains("is done: it takes no more signals"), "{late}");
    engine.stop().await;
}

async fn a_signal_that_cannot_be_delivered_is_an_error_that_says_why(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(wait(&["go"], false, None, "")).await.expect("submitted");
    let unknown = engine.signal(engine.new_id(), "go", 1).await.expect_err("unknown").to_string();
    assert!(unknown.contains("does not exist"), "{unknown}");
    let nobody = engine.signal_key("act", "nobody", "go", 1).await.expect_err("no key").to_string();
    assert!(nobody.contains("no \"act\" job has the key \"nobody\""), "{nobody}");
    let name = engine.signal(job.id(), "two words", 1).await.expect_err("a bad name").to_string();
    assert!(name.contains("contains ' '"), "{name}");
    let large = engine.signal(job.id(), "go", "x".repeat(2 << 20)).await.expect_err("too large").to_string();
    assert!(large.contains("more than the 1048576"), "{large}");
    let most = engine.store().limits().inbox;
    for n in 0..most {
        engine.signal(job.id(), "other", n).await.expect("there is room");
    }
    let full = engine.signal(job.id(), "go", 1).await.expect_err("full").to_string();
    assert!(full.contains("is full: 1000 signals wait") && full.contains("windlass why"), "{full}");
    engine.control("ada").cancel(job.id()).await.expect("cancelled").accepted().expect("cancelled");
    let ended = engine.signal(job.id(), "go", 1).await.expect_err("ended").to_string();
    assert!(ended.contains("is cancelled: it takes no more signals; retry it first"), "{ended}");
    engine.stop().await;
}

async fn errors_panics_and_timeouts_reach_on_error(url: &str) {
    let engine = start(url).await;
    for how in [How::Error, How::Panic, How::Timeout] {
        let log = format!("{how:?} {url}");
        let job = engine.submit(Act::Fail { how: how.clone(), times: 2, log: log.clone() });
        let job = job.await.expect("submitted");
        assert_eq!(job.result().await.expect("done"), ["3"], "{how:?}");
        assert_eq!(noted(&log), ["1", "2", "3"]);
        let job = engine.submit(Act::Fail { how, times: 9, log }).await.expect("submitted");
        let (reason, _) = failure(&job).await;
        assert!(
            matches!(reason, Reason::Exhausted | Reason::Timeout),
            "by the policy of the stage: {reason}"
        );
    }
    let log = format!("rescue {url}");
    let job = engine.submit(Act::Fail { how: How::Rescue, times: 9, log }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), ["rescued"]);
    assert_eq!(transitions(&engine, job.id()).await, ["Fail next Rescued", "Rescued done -"]);
    let log = format!("stop {url}");
    let job = engine.submit(Act::Fail { how: How::Stop, times: 9, log }).await.expect("submitted");
    let (reason, failure) = failure(&job).await;
    assert_eq!((reason, failure.message.as_str()), (Reason::Stopped, "had enough"));
    assert_eq!(transitions(&engine, job.id()).await, ["Fail failed -"]);
    engine.stop().await;
}

async fn an_on_error_that_fails_ends_the_job(url: &str) {
    let engine = start(url).await;
    for (how, message) in [(How::Twice, "and again"), (How::PanicTwice, "in on_error")] {
        let log = format!("{how:?} {url}");
        let job = engine.submit(Act::Fail { how, times: 9, log: log.clone() }).await.expect("submitted");
        let (reason, failure) = failure(&job).await;
        assert_eq!(reason, Reason::Stopped);
        assert!(
            failure.message.contains("on_error failed") && failure.message.contains(message),
            "{failure}"
        );
        assert_eq!(noted(&log), ["1"], "it is not retried");
    }
    engine.stop().await;
}

async fn retry_after_keeps_the_stage_and_counts_attempts(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Act::Poll { polls: 0, until: 25 }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), ["25", "26"], "no policy limits it");
    assert_eq!(transitions(&engine, job.id()).await, ["Poll done -"], "polling again is no transition");
    assert!(engine.inspect().history(job.id()).await.expect("history").is_empty(), "nor is it an error");
    engine.stop().await;
}

async fn a_stage_that_leads_to_itself_forever_is_stopped(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Act::Loop).await.expect("submitted");
    let (reason, failure) = failure(&job).await;
    assert_eq!(reason, Reason::Stopped);
    assert!(failure.message.contains("100 times in a row"), "{failure}");
    assert!(failure.message.contains("Next::retry_after"), "{failure}");
    engine.stop().await;
}

async fn a_machine_sleeps(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Act::Nap { millis: 300 }).await.expect("submitted");
    reaches(&engine, job.id(), State::Waiting).await;
    let why = engine.why(job.id()).await.expect("why").expect("the job exists");
    assert_eq!(why.cause, Cause::Asleep, "{why:?}");
    assert_eq!(job.result().await.expect("done"), ["rescued"]);
    assert_eq!(transitions(&engine, job.id()).await, ["Nap wait Rescued", "Rescued done -"]);
    engine.stop().await;
}

async fn bad_steps_are_refused_with_what_to_do(url: &str) {
    let engine = start(url).await;
    let messages = [
        "the timeout of the wait is zero",
        "longer than 100 years",
        "names no signal",
        "a timeout was set where nothing is waited for",
        "the queue is empty",
        "longer than 100 years",
        "did not wait for the signal \"never waited for\"",
        "more than the 1048576",
        "the data of the stage is 2097",
        "cannot be nested",
        "use `Next::sleep`",
        "the timeout of the stage \"Bad\" is zero; give the step time",
    ];
    for (n, message) in messages.iter().enumerate() {
        let job = engine.submit(Act::Bad(n as u8)).await.expect("submitted");
        let (reason, failure) = failure(&job).await;
        assert_eq!(reason, Reason::Refused, "{n}: {failure}");
        assert!(failure.message.contains(message), "{n}: {failure}");
    }
    let job = engine.submit(Act::Bad(12)).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), ["a century is long"]);
    engine.stop().await;
}

async fn a_parent_waits_for_its_children_and_reads_their_results(url: &str) {
    let engine = start(url).await;
    let children = [Some(1), Some(2), None, Some(39)].map(|value| Addend { value }).to_vec();
    let job = engine.submit(Act::Spawn { children }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), ["42", "1"], "a failed child counts as ended too");
    assert_eq!(transitions(&engine, job.id()).await, ["Spawn children Sum", "Sum done -"]);
    engine.stop().await;
}

async fn a_parent_of_no_children_continues_at_once(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Act::Spawn { children: Vec::new() }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), ["0", "0"]);
    engine.stop().await;
}

async fn a_machine_of_many_steps_yields_its_slot_to_others(url: &str) {
    let engine = Engine::builder(url).machine::<Act>();
    let engine = engine.queue("default", Pool::slots(1)).start().await.expect("started");
    let long = Act::Slow { left: 2_000, millis: 1, log: format!("long {url}") };
    let long = engine.submit(long).await.expect("submitted");
    reaches(&engine, long.id(), State::Running).await;
    let short = Act::Count { left: 1, log: format!("short {url}") };
    let short = engine.submit(short).await.expect("submitted");
    short.result().await.expect("done");
    assert!(
        !state(&engine, long.id()).await.is_final(),
        "the short one passed the long one on its only slot"
    );
    engine
        .control("ada")
        .cancel_within(long.id(), Duration::ZERO)
        .await
        .expect("cancelled")
        .accepted()
        .expect("cancelled");
    engine.stop().await;
}

async fn a_paused_machine_stops_after_its_step(url: &str) {
    let engine = start(url).await;
    let log = format!("pause {url}");
    let slow = Act::Slow { left: 60, millis: 20, log: log.clone() };
    let job = engine.submit(slow).await.expect("submitted");
    reaches(&engine, job.id(), State::Running).await;
    engine.control("ada").pause(job.id()).await.expect("paused").accepted().expect("paused");
    reaches(&engine, job.id(), State::Ready).await;
    let steps = noted(&log).len();
    assert!(steps < 60, "it did not run to its end");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(noted(&log).len(), steps, "no step runs");
    assert_eq!(engine.why(job.id()).await.expect("why").expect("the job exists").cause, Cause::Paused);
    engine.control("ada").resume(job.id()).await.expect("resumed").accepted().expect("resumed");
    job.result().await.expect("done");
    assert_eq!(noted(&log).len(), 61, "each step ran once");
    engine.stop().await;
}

async fn a_cancelled_machine_ends_between_its_steps(url: &str) {
    let engine = start(url).await;
    let log = format!("cancel {url}");
    let slow = Act::Slow { left: 1_000, millis: 10, log: log.clone() };
    let job = engine.submit(slow).await.expect("submitted");
    reaches(&engine, job.id(), State::Running).await;
    engine
        .control("ada")
        .cancel_within(job.id(), Duration::from_secs(600))
        .await
        .expect("requested")
        .accepted()
        .expect("requested");
    let Err(JobError::Cancelled(_)) = job.result().await else { panic!("it is cancelled") };
    assert!(noted(&log).len() < 1_000);
    engine.stop().await;
}

#[tokio::test]
async fn an_enum_that_cannot_be_a_machine_is_refused_at_start() {
    #[derive(Serialize, Deserialize)]
    #[serde(tag = "type")]
    enum Tagged {
        A,
    }
    impl Machine for Tagged {
        const KIND: &'static str = "tagged";
        type Output = ();
        type Error = Failure;

        async fn step(self, _cx: &MachineCx) -> Result<Next<Tagged>, Failure> {
            Ok(Next::done(()))
        }
    }
    let engine = Engine::builder("memory:").machine::<Tagged>();
    let error = engine.config(Config::default()).start().await.err().expect("refused").to_string();
    assert!(error.contains("\"tagged\"") && error.contains("#[serde(tag)]"), "{error}");
}
