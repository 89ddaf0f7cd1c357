//! Slots: they are filled at once, and neither panics nor suspects nor slow jobs keep them from other jobs.

use std::sync::atomic::{AtomicUsize, Ordering};

use windlass::{Config, prelude::*};

use super::{Act, Do, engine};
use crate::common::{make_suspects, until};

crate::on_both_stores!(
    a_freed_slot_is_filled_at_once,
    a_panic_in_a_destructor_costs_no_slot,
    a_suspect_that_blocks_its_thread_does_not_delay_other_jobs,
    long_suspects_do_not_wait_for_each_other,
    slow_jobs_are_not_hoarded,
);

async fn a_freed_slot_is_filled_at_once(url: &str) {
    let engine = engine(url).queue("default", Pool::slots(1)).start().await.expect("started");
    let first = engine.submit(Do(Act::Sleep(300))).await.expect("submitted");
    let second = engine.submit(Do(Act::Return(2))).await.expect("submitted");
    first.result().await.expect("done");
    let waited = tokio::time::timeout(Duration::from_secs(10), second.result()).await;
    assert_eq!(waited.expect("long before the check interval").expect("done"), 2);
    engine.stop().await;
}

#[derive(Serialize, Deserialize)]
struct PanicsOnDrop;

impl Task for PanicsOnDrop {
    const KIND: &'static str = "panics_on_drop";
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
    let engine = engine(url).task::<PanicsOnDrop>().queue("default", Pool::slots(1));
    let engine = engine.start().await.expect("started");
    let job = engine.submit(PanicsOnDrop).timeout(Duration::from_millis(20)).retry(Retry::never());
    let error = job.await.expect("submitted").result().await.expect_err("failed");
    assert!(matches!(&error, JobError::Failed { failure, .. } if failure.class == "panic"), "{error}");
    let next = engine.submit(Do(Act::Return(1))).await.expect("submitted");
    assert_eq!(next.result().await.expect("the only slot is free"), 1);
    engine.stop().await;
}

async fn a_suspect_that_blocks_its_thread_does_not_delay_other_jobs(url: &str) {
    let engine = engine(url).open().await.expect("opened");
    let suspect =
        engine.submit(Do(Act::Block(6_000))).timeout(Duration::from_millis(200)).retry(Retry::never());
    let suspect = suspect.await.expect("submitted").id();
    make_suspects(&engine, "do", 1).await;
    engine.start().await.expect("started");
    until("the suspect runs", async || engine.counts().started == 1).await;
    let others = engine.submit_all((0..20).map(|n| Do(Act::Return(n)))).await.expect("submitted");
    for job in others {
        let done =
            tokio::time::timeout(Duration::from_secs(4), engine.result::<u64>(job.id().expect("submitted")))
                .await;
        done.expect("while the suspect still blocks").expect("done");
    }
    assert!(engine.result::<u64>(suspect).await.is_err(), "it was given up");
    engine.stop().await;
}

static STARTED: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// A task that runs until its worker stops.
#[derive(Serialize, Deserialize)]
struct RunsUntilStopped(usize);

impl Task for RunsUntilStopped {
    const KIND: &'static str = "runs_until_stopped";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        STARTED[self.0].fetch_add(1, Ordering::Relaxed);
        cx.cancelled().await;
        Ok(())
    }
}

/// Each runs alone for a second; then the next may start. In the end all run at once, though none ends.
async fn long_suspects_do_not_wait_for_each_other(url: &str) {
    let store = usize::from(url.starts_with("sqlite"));
    let config = Config { drain: Duration::ZERO, ..Config::default() };
    let engine = Engine::builder(url).task::<RunsUntilStopped>().task::<Do>().config(config);
    let engine = engine.open().await.expect("opened");
    engine.submit_all((0..3).map(|_| RunsUntilStopped(store))).await.expect("submitted");
    make_suspects(&engine, "runs_until_stopped", 3).await;
    engine.start().await.expect("started");
    until("all three run", async || STARTED[store].load(Ordering::Relaxed) == 3).await;
    let other = engine.submit(Do(Act::Return(1))).await.expect("submitted");
    assert_eq!(other.result().await.expect("done while they run"), 1);
    engine.stop().await;
}

/// After fast jobs a pool claims far ahead. When slow jobs follow, it releases those that other workers could run.
async fn slow_jobs_are_not_hoarded(url: &str) {
    let one = engine(url).queue("default", Pool::slots(2)).start().await.expect("started");
    one.submit_all((0..3_000).map(|n| Do(Act::Return(n)))).await.expect("submitted");
    until("the fast ones are done", async || one.counts().committed >= 2_900).await;
    one.submit_all((0..40).map(|_| Do(Act::Sleep(3_000)))).await.expect("submitted");
    until("the slow ones run", async || one.counts().started >= 3_002).await;
    let other = engine(url).queue("default", Pool::slots(64)).start().await.expect("started");
    until("the other has most of them", async || other.counts().started >= 34).await;
    one.stop().await;
    other.stop().await;
}
