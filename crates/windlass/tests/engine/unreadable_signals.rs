//! Signals that a job cannot decode: they are marked unreadable, and the job continues to wait.

use windlass::{Builder, Cause, ControlOutcome, MachineCx, State, model::Signal, prelude::*};

use crate::{
    common::{Reversed, until},
    on_both_stores,
};

on_both_stores!(
    a_machine_waits_until_it_can_read_a_signal,
    a_workflow_waits_until_it_can_read_a_signal,
    a_condition_receives_no_unreadable_signal,
    an_unreadable_signal_is_not_in_the_journal,
    a_step_receives_no_unreadable_signal,
    a_wait_with_an_unreadable_signal_times_out,
    a_signal_is_restored_once_its_codec_is_available,
    an_unreadable_signal_can_be_dropped,
);

/// Waits for a number and returns it.
#[derive(Serialize, Deserialize)]
enum Number {
    Start,
    Got,
}

impl Machine for Number {
    const KIND: &'static str = "number";
    type Output = u32;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Number>, Failure> {
        Ok(match self {
            Number::Start => Next::wait(Number::Got, "n"),
            Number::Got => Next::done(cx.signal("n")?.unwrap_or_default()),
        })
    }
}

/// Collects numbers until the signal `stop`: returns those that have arrived, and whether the wait timed out.
#[derive(Serialize, Deserialize)]
enum Numbers {
    Start { seconds: Option<u64> },
    Got,
}

impl Machine for Numbers {
    const KIND: &'static str = "numbers";
    type Output = (Vec<u32>, bool);
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Numbers>, Failure> {
        Ok(match self {
            Numbers::Start { seconds } => {
                let wait =
                    Next::wait(Numbers::Got, WaitFor::all([WaitFor::signals("n"), WaitFor::signal("stop")]));
                match seconds {
                    Some(seconds) => wait.timeout(Duration::from_secs(seconds)),
                    None => wait,
                }
            }
            // It ignores errors. What it returns after one must be dropped.
            Numbers::Got => {
                let numbers = cx.signals("n").unwrap_or_default();
                let _: Option<()> = cx.signal("stop").unwrap_or_default();
                Next::done((numbers, cx.timed_out()))
            }
        })
    }
}

/// The same as a workflow, in one of four ways.
#[derive(Serialize, Deserialize)]
struct Flowing {
    how: String,
}

impl Workflow for Flowing {
    const KIND: &'static str = "flowing";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        match self.how.as_str() {
            "signal" => flow.signal("n").await,
            "timeout" => match flow.signal::<u32>("n").timeout(Duration::from_secs(1)).await {
                Err(failure) if &*failure.class == "timeout" => Ok(0),
                other => other,
            },
            "select" => {
                let race = (flow.signal::<u32>("n"), flow.signal::<String>("other"));
                match flow.select("first", race).await {
                    First2::A(n) => n,
                    First2::B(_) => Ok(0),
                }
            }
            _ => flow.continue_if("n", async |n: Option<u32>| Ok(n)).await,
        }
    }
}

fn engine(url: &str) -> Builder {
    Engine::builder(url).machine::<Number>().machine::<Numbers>().workflow::<Flowing>()
}

/// The unreadable signals of a job.
async fn unreadable(engine: &Engine, id: JobId) -> Vec<Signal> {
    let inbox = engine.inspect().inbox(id, 99).await.expect("inbox");
    inbox.into_iter().filter(|signal| signal.unreadable.is_some()).collect()
}

/// Returns once a job waits and has `count` unreadable signals.
async fn waits_with_unreadable(engine: &Engine, id: JobId, count: usize) -> Vec<Signal> {
    until("it waits, with unreadable signals", async || {
        let state = engine.inspect().job(id).await.expect("read").expect("the job exists").summary.state;
        state == State::Waiting && unreadable(engine, id).await.len() == count
    })
    .await;
    unreadable(engine, id).await
}

/// What a job returns within a minute.
async fn result(engine: &Engine, id: JobId) -> Result<u32, String> {
    match tokio::time::timeout(Duration::from_secs(60), engine.result(id)).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it has not ended: {:?}", engine.why(id).await)),
    }
}

async fn a_machine_waits_until_it_can_read_a_signal(url: &str) {
    let engine = engine(url).start().await.expect("started");
    let job = engine.submit(Number::Start).signal("n", "seven").await.expect("submitted");
    job.signal("n", -7).await.expect("sent");
    job.signal("n", 7).await.expect("sent");
    assert_eq!(result(&engine, job.id()).await, Ok(7));
    engine.stop().await;
}

async fn a_workflow_waits_until_it_can_read_a_signal(url: &str) {
    let engine = engine(url).start().await.expect("started");
    for how in ["signal", "select"] {
        let job = engine.submit(Flowing { how: how.into() }).signal("n", "seven").await.expect("submitted");
        job.signal("n", -7).await.expect("sent");
        job.signal("n", 7).await.expect("sent");
        assert_eq!(result(&engine, job.id()).await, Ok(7), "{how}");
    }
    engine.stop().await;
}

async fn a_condition_receives_no_unreadable_signal(url: &str) {
    let engine = engine(url).start().await.expect("started");
    let job = engine.submit(Flowing { how: "if".into() }).signal("n", "seven").await.expect("submitted");
    job.signal("n", 7).await.expect("sent");
    assert_eq!(result(&engine, job.id()).await, Ok(7));
    engine.stop().await;
}

async fn an_unreadable_signal_is_not_in_the_journal(url: &str) {
    let engine = engine(url).start().await.expect("started");
    for how in ["signal", "select", "if"] {
        let job = engine.submit(Flowing { how: how.into() }).signal("n", "seven").await.expect("submitted");
        let bad = waits_with_unreadable(&engine, job.id(), 1).await;
        let why = bad[0].unreadable.clone().expect("a reason");
        assert!(why.contains("u32") && why.contains("invalid type: string"), "{why}");
        let journal = engine.inspect().journal(job.id(), None, 99).await.expect("journal");
        let is_recorded =
            journal.iter().any(|entry| String::from_utf8_lossy(&entry.payload.bytes).contains("seven"));
        assert!(!is_recorded, "{how}: {journal:?}");
        let reason = engine.why(job.id()).await.expect("read").expect("the job exists");
        assert_eq!(reason.cause, Cause::Signal, "{how}: {reason:?}");
        assert!(reason.also.iter().any(|also| also.contains("is unreadable: it does not")), "{reason:?}");
        job.signal("n", 7).await.expect("sent");
        assert_eq!(result(&engine, job.id()).await, Ok(7), "{how}");
        assert_eq!(unreadable(&engine, job.id()).await, bad, "{how}: it is kept unchanged");
    }
    engine.stop().await;
}

async fn a_step_receives_no_unreadable_signal(url: &str) {
    let engine = engine(url).start().await.expect("started");
    let job = engine.submit(Numbers::Start { seconds: None }).await.expect("submitted");
    for n in [serde_json::json!(1), serde_json::json!("two"), serde_json::json!(3), serde_json::json!([4])] {
        job.signal("n", n).await.expect("sent");
    }
    job.signal("stop", "no reason is wanted").await.expect("sent");
    // The attempts find them one after the other, in the order in which the step reads; then it waits.
    waits_with_unreadable(&engine, job.id(), 3).await;
    job.signal("stop", ()).await.expect("sent");
    let done = tokio::time::timeout(Duration::from_secs(60), job.result()).await.expect("it ends");
    assert_eq!(done.expect("done"), (vec![1, 3], false));
    let steps = engine.inspect().transitions(job.id(), None, 99).await.expect("steps");
    assert_eq!(steps.len(), 2, "an attempt that found an unreadable signal is no transition: {steps:?}");
    let seen = engine.inspect().job(job.id()).await.expect("read").expect("the job exists");
    assert!(seen.failure.is_none(), "nor an error: {seen:?}");
    engine.stop().await;
}

async fn a_wait_with_an_unreadable_signal_times_out(url: &str) {
    let engine = engine(url).start().await.expect("started");
    let job = engine.submit(Numbers::Start { seconds: Some(1) }).signal("n", "one").await.expect("submitted");
    job.signal("stop", ()).await.expect("sent");
    let done = tokio::time::timeout(Duration::from_secs(60), job.result()).await.expect("it ends");
    assert_eq!(done.expect("done"), (vec![], true), "it timed out, although the other signal had arrived");
    let flow = engine.submit(Flowing { how: "timeout".into() }).signal("n", "one").await.expect("submitted");
    assert_eq!(result(&engine, flow.id()).await, Ok(0));
    engine.stop().await;
}

async fn a_signal_is_restored_once_its_codec_is_available(url: &str) {
    let without = engine(url).start().await.expect("started");
    let machine = without.submit(Number::Start).await.expect("submitted").id();
    let flow = without.submit(Flowing { how: "signal".into() }).await.expect("submitted").id();
    let with = engine(url).codec(Reversed).open().await.expect("opened");
    let mut numbers = Vec::new();
    for id in [machine, flow] {
        with.signal(id, "n", 12).await.expect("sent");
        let bad = waits_with_unreadable(&without, id, 1).await;
        let why = bad[0].unreadable.clone().expect("a reason");
        assert!(why.contains("written by codec 77, which this engine does not have"), "{why}");
        numbers.push((id, bad[0].number));
    }
    without.stop().await;
    with.start().await.expect("started");
    for (id, number) in numbers {
        let outcome = with.control("ada").restore_signal(id, number).await.expect("restored");
        assert_eq!(outcome, ControlOutcome::Done);
        assert_eq!(result(&with, id).await, Ok(12), "the same signal, and not another");
        assert!(unreadable(&with, id).await.is_empty(), "it is not unreadable any more");
    }
    with.stop().await;
}

async fn an_unreadable_signal_can_be_dropped(url: &str) {
    let engine = engine(url).start().await.expect("started");
    let job = engine.submit(Number::Start).signal_once("n", "a", "seven").await.expect("submitted");
    let bad = waits_with_unreadable(&engine, job.id(), 1).await;
    let outcome = engine.control("ada").drop_signal(job.id(), bad[0].number).await.expect("dropped");
    assert_eq!(outcome, ControlOutcome::Done);
    assert!(engine.inspect().inbox(job.id(), 9).await.expect("inbox").is_empty());
    let again = job.signal("n", "seven").dedup("a").await.expect("sent");
    assert_eq!(again, windlass::Delivery::Duplicate, "its id is remembered");
    job.signal("n", 7).await.expect("sent");
    assert_eq!(result(&engine, job.id()).await, Ok(7));
    engine.stop().await;
}
