//! Mistakes in the code of a workflow: each fails its own job with an explanation.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use windlass::{Config, JobError, Reason, model::failure::class, prelude::*, testing::Lab};

use super::{On, on_every_store, ran, times};

on_every_store!(each_mistake_is_explained, mistakes_do_not_affect_other_jobs);

/// A workflow that makes one mistake.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
enum Mistake {
    NameTwice,
    NameTwiceInALoop,
    KeyTwice,
    EmptyName,
    ReservedName,
    NameWithBlank,
    ForeignTimer,
    ForeignChannel,
    ForeignDuringAStep,
    StepInAStep,
    SleepInAStep,
    ContextInAStep,
    TooLarge,
    TooManySignals,
    ContinueDuringAStep,
    ContinueAsAnotherKind,
    StepIsASignalToo,
    LargeContext,
    CatchesNothing,
}

async fn nothing() -> Result<(), Failure> {
    Ok(())
}

impl Workflow for Mistake {
    const KIND: &'static str = "mistake";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        use Mistake::*;
        match self {
            NameTwice => {
                flow.step("a", nothing).await?;
                flow.step("a", nothing).await?;
            }
            NameTwiceInALoop => {
                for _ in 0..2 {
                    flow.step("a", nothing).await?;
                }
            }
            KeyTwice => {
                for _ in 0..2 {
                    flow.step("a", nothing).key(7).await?;
                }
            }
            EmptyName => flow.step("", nothing).await?,
            ReservedName => flow.step("windlass.a", nothing).await?,
            NameWithBlank => flow.step("a b", nothing).await?,
            ForeignTimer => tokio::time::sleep(Duration::from_millis(1)).await,
            ForeignChannel => {
                let (_sender, receiver) = tokio::sync::oneshot::channel::<()>();
                let _ = receiver.await;
            }
            ForeignDuringAStep => {
                let slow = flow.step("slow", || async {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    Ok(())
                });
                let (slow, ()) = tokio::join!(slow, tokio::time::sleep(Duration::from_millis(10)));
                slow?;
            }
            StepInAStep => {
                flow.step("outer", || async {
                    // Also if the error is ignored.
                    let _ = flow.step("inner", nothing).await;
                    Ok(())
                })
                .await?;
            }
            SleepInAStep => {
                flow.step("outer", || async {
                    flow.sleep(days(1)).await;
                    Ok(())
                })
                .await?;
            }
            ContextInAStep => {
                flow.step("outer", || async { flow.context().set("a", 1) }).await?;
            }
            TooLarge => {
                flow.step("large", async || Ok("x".repeat(2 << 20))).await?;
            }
            TooManySignals => {
                let signals = (0..40).map(|n| flow.signal::<()>(&format!("s{n}")));
                futures_util::future::join_all(signals).await;
            }
            ContinueDuringAStep => {
                let slow = flow.step("slow", || async {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Ok(())
                });
                let _: (Result<(), Failure>, ()) =
                    tokio::join!(slow, flow.continue_as_new(Mistake::NameTwice));
            }
            ContinueAsAnotherKind => return flow.continue_as_new(Correct).await,
            StepIsASignalToo => {
                flow.step("pay", nothing).await?;
                flow.signal::<()>("pay").await?;
            }
            LargeContext => flow.context().set("a", "x".repeat(20_000))?,
            CatchesNothing => {
                // The code cannot catch this error.
                let _ = flow.step("a", nothing).await;
                let _ = flow.step("a", nothing).await;
            }
        }
        Ok("not noticed".into())
    }
}

async fn each_mistake_is_explained(on: On) {
    use Mistake::*;
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Mistake>()).await;
    for (mistake, parts) in [
        (NameTwice, &["\"a\" is used twice", "misuse.rs:", "another name with `.name(…)`"][..]),
        (NameTwiceInALoop, &["\"a\" is used twice", "In a loop, tell them apart with `.key(…)`"]),
        (KeyTwice, &["\"a\" with key \"7\" is used twice", "different in each turn"]),
        (EmptyName, &["the step is empty; give it a name", "misuse.rs:"]),
        (ReservedName, &["reserved for the engine"]),
        (NameWithBlank, &["contains ' '"]),
        (ForeignTimer, &["not durable", "before its first durable call", "`flow.sleep`"]),
        (ForeignChannel, &["not durable", "Put it into a step"]),
        (ForeignDuringAStep, &["not durable", "after the durable call at", "misuse.rs:"]),
        (StepInAStep, &["step \"inner\" at", "is called inside \"outer\"", "before or after it"]),
        (SleepInAStep, &["sleep \"sleep\" at", "is called inside \"outer\""]),
        (ContextInAStep, &["setting \"a\" of the context is called inside \"outer\""]),
        (TooLarge, &["the result is 2097154 bytes long, more than the 1048576 allowed", "reference"]),
        (TooManySignals, &["waits for 40 signals at once, more than the 32 allowed"]),
        (ContinueDuringAStep, &["`continue_as_new` is called while step \"slow\" is under way"]),
        (ContinueAsAnotherKind, &["called with a \"correct\", and this workflow is a \"mistake\""]),
        (StepIsASignalToo, &["\"pay\" is used twice: by a step at", "and by a signal at"]),
        (LargeContext, &["the value \"a\" of the context is 20002 bytes long", "a reference to it"]),
        (CatchesNothing, &["\"a\" is used twice"]),
    ] {
        let job = lab.submit(mistake).await;
        lab.run().await;
        let failure = match lab.result(job).await {
            Err(JobError::Failed { reason, failure, .. }) => {
                assert_eq!(reason, Reason::Refused, "{mistake:?}");
                failure
            }
            other => panic!("{mistake:?}: {other:?}"),
        };
        assert_eq!(failure.class, class::REFUSED, "{mistake:?}: {failure}");
        for part in parts {
            assert!(failure.message.contains(part), "{mistake:?}: {:?} lacks {part:?}", failure.message);
        }
    }
}

/// A workflow without a mistake.
#[derive(Serialize, Deserialize)]
struct Correct;

impl Workflow for Correct {
    const KIND: &'static str = "correct";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        flow.step("pause", || async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        })
        .await?;
        flow.sleep(minutes(1)).await;
        flow.step("seven", async || Ok(7)).await
    }
}

async fn mistakes_do_not_affect_other_jobs(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Mistake>().workflow::<Correct>()).await;
    let mut jobs = Vec::new();
    for mistake in [Mistake::ForeignTimer, Mistake::StepInAStep, Mistake::NameTwice] {
        lab.submit(mistake).await;
        jobs.push(lab.submit(Correct).await);
    }
    lab.run().await;
    for job in jobs {
        assert_eq!(lab.result(job).await.ok(), Some(7));
    }
}

/// Panics in its code twice, and in a step twice.
#[derive(Serialize, Deserialize)]
struct Panics;

impl Workflow for Panics {
    const KIND: &'static str = "panics";
    type Output = (u32, u32);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u32, u32), Failure> {
        let id = flow.id();
        let first = flow.step("first", || async move { Ok(ran(format!("{id}/first"))) }).await?;
        if ran(format!("{id}/code")) < 3 {
            panic!("the code of the workflow is broken");
        }
        let step = flow.step_with("step", |cx| async move {
            if cx.attempt() < 3 {
                panic!("the step is broken");
            }
            Ok(cx.attempt())
        });
        Ok((first, step.await?))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_repeats_only_the_step_or_the_code_in_which_it_happened() {
    let lab = Lab::new(|engine| engine.workflow::<Panics>()).await;
    let job = lab.submit(Panics).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.ok(), Some((1, 3)));
    assert_eq!(times(format!("{}/first", job.id())), 1, "a recorded step is not run again");
}

static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Blocks its thread between two durable calls, the first time.
#[derive(Serialize, Deserialize)]
struct BlocksThread;

impl Workflow for BlocksThread {
    const KIND: &'static str = "blocks_thread";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        flow.step("one", nothing).await?;
        if RUNS.fetch_add(1, Ordering::SeqCst) == 0 {
            // Long enough to be given up, but not for ever: the test must end.
            std::thread::sleep(Duration::from_secs(15));
        }
        Ok(7)
    }

    fn retry(&self) -> Retry {
        Retry::times(3).backoff(Duration::from_millis(10), Duration::from_millis(10))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_blocks_its_thread_is_given_up() {
    let store = On::Sqlite.fresh().await;
    let engine = Engine::builder(&store.url).workflow::<BlocksThread>().workflow::<Correct>();
    let engine =
        engine.config(Config::default()).queue("default", Pool::slots(4)).start().await.expect("started");
    let stuck = engine.submit(BlocksThread).await.expect("submitted");
    // Other jobs run meanwhile.
    let other = engine.submit(Correct).await.expect("submitted");
    assert_eq!(stuck.result().await.expect("the next attempt succeeds"), 7);
    let history = engine.inspect().history(stuck.id()).await.expect("a history");
    let text = &history.first().expect("one failed attempt").failure.message;
    assert!(text.contains("ran on and on between two durable calls"), "{text}");
    engine.control("test").cancel(other.id()).await.expect("cancelled").accepted().expect("cancelled");
    engine.stop().await;
}
