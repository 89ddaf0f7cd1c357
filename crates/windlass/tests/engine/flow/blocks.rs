//! Packed branches: blocks that are cancelled, blocked, encoded, or that kill their worker.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use windlass::{
    model::Limits,
    prelude::*,
    store::{ChildStates, memory::Memory},
    testing::Lab,
};

use super::{On, on_every_store, ran, times};
use crate::common::{Reversed, until};

on_every_store! {
    a_redriven_block_runs_only_the_items_that_were_not_done,
    an_item_that_blocks_its_thread_delays_no_other_item,
    a_block_is_encoded_with_the_codec,
    a_block_that_kills_its_worker_is_split_at_once,
    a_block_commits_between_items_that_block_its_thread,
    a_block_commits_while_it_waits_for_an_item,
    a_block_checks_for_a_cancel_after_every_item,
}

/// Items that block their thread for a moment; one of them does so for long, once.
#[derive(Serialize, Deserialize)]
struct Busy {
    n: u64,
    run: String,
}

static BLOCKS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Task for Busy {
    const KIND: &'static str = "packed_busy";
    type Output = String;
    type Error = Failure;

    fn timeout() -> Option<Duration> {
        Some(Duration::from_millis(500))
    }

    fn retry() -> Retry {
        Retry::times(9).backoff(Duration::from_millis(10), Duration::from_millis(50))
    }

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        ran(format!("{} any", self.run));
        let first = ran(format!("{} {}", self.run, self.n)) == 1;
        let blocks = BLOCKS.lock().expect("runs").contains(&self.run);
        let millis = if blocks && first && self.n == 7 { 3_000 } else { 2 };
        std::thread::sleep(Duration::from_millis(millis));
        Ok(format!("busy {}", self.n))
    }
}

#[derive(Serialize, Deserialize)]
struct Packs {
    items: u64,
    run: String,
    merge: Merge,
}

impl Workflow for Packs {
    const KIND: &'static str = "packed_packs";
    type Output = (u64, u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64, u64), Failure> {
        let Packs { items, run, merge } = self;
        let branch = flow.branch("busy").packed();
        let branch = branch.spawn_each("n", 0..items, move |n| Busy { n, run: run.clone() });
        let merged = branch.merge(merge).await?;
        let seen = flow.step_with("count", |cx| {
            let merged = &merged;
            async move {
                let (mut results, mut seen) = (cx.results::<String>(merged), 0);
                while let Some(child) = results.next().await? {
                    seen += u64::from(child.result.is_ok_and(|text| text == format!("busy {}", child.item)));
                }
                Ok(seen)
            }
        });
        let seen = seen.await?;
        Ok((merged.done, merged.cancelled, seen))
    }
}

async fn engine(url: &str) -> Engine {
    let engine = Engine::builder(url).task::<Busy>().workflow::<Packs>();
    engine.start().await.expect("started")
}

async fn a_redriven_block_runs_only_the_items_that_were_not_done(on: On) {
    const ITEMS: u64 = 192;
    let store = on.fresh().await;
    let engine = engine(&store.url).await;
    let run = format!("half {on:?}");
    let packs = Packs { items: ITEMS, run: run.clone(), merge: Merge::settled() };
    let job = engine.submit(packs).await.expect("submitted");
    until("some items have run", async || times(format!("{run} any")) >= 10).await;
    let blocks = engine.inspect().children(job.id(), None, 9).await.expect("children");
    assert_eq!(blocks.len(), 1);
    let control = engine.control("test");
    control
        .cancel_within(blocks[0].id, Duration::from_secs(600))
        .await
        .expect("cancelled")
        .accepted()
        .expect("cancelled");
    let (done, cancelled, seen) = job.result().await.expect("settled");
    assert!(done > 0 && cancelled > 0 && done + cancelled == ITEMS, "{done} and {cancelled}");
    assert_eq!(seen, done, "the results of done items can be read");
    assert_eq!(u64::from(times(format!("{run} any"))), done, "exactly the items that ran are counted");
    let counts = async || engine.inspect().branches(job.id()).await.expect("branches")[0].counts.ends();
    assert_eq!(counts().await, (done as i64, 0, cancelled as i64));

    let redriven = control.redrive(job.id(), Some("busy")).run(|_| true).await.expect("redriven");
    assert_eq!((redriven.retried, redriven.refused), (cancelled, 0), "{redriven:?}");
    engine.result::<serde_json::Value>(blocks[0].id).await.expect("done");
    assert_eq!(counts().await, (ITEMS as i64, 0, 0));
    for n in 0..ITEMS {
        assert_eq!(times(format!("{run} {n}")), 1, "item {n}");
    }
    engine.stop().await;
}

async fn an_item_that_blocks_its_thread_delays_no_other_item(on: On) {
    const ITEMS: u64 = 40;
    let store = on.fresh().await;
    let run = format!("holds {on:?}");
    BLOCKS.lock().expect("runs").insert(run.clone());
    let engine = engine(&store.url).await;
    let packs = Packs { items: ITEMS, run: run.clone(), merge: Merge::all() };
    let job = engine.submit(packs).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), (ITEMS, 0, ITEMS));
    assert_eq!(times(format!("{run} 7")), 2, "given up once, and run again");
    engine.stop().await;
}

/// Items of which some are slow.
#[derive(Clone, Serialize, Deserialize)]
struct Slow {
    n: u64,
    run: String,
    how: How,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum How {
    /// The first blocks its thread for longer than a block may run without a commit; the second waits until it is released.
    FirstBlocks,
    /// The last waits until it is released.
    LastWaits,
    /// All block their thread for a moment.
    AllBlock,
}

/// The runs whose items were released.
static RELEASED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Slow {
    /// Fewer than a block runs before it yields its slot.
    const ITEMS: u64 = 60;

    fn is_released(&self) -> bool {
        RELEASED.lock().unwrap_or_else(|e| e.into_inner()).contains(&self.run)
    }
}

impl Task for Slow {
    const KIND: &'static str = "packed_slow";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        ran(format!("{} any", self.run));
        let waits = match (self.how, self.n) {
            (How::FirstBlocks, 0) => {
                std::thread::sleep(Duration::from_millis(2_100));
                false
            }
            (How::AllBlock, _) => {
                std::thread::sleep(Duration::from_millis(100));
                false
            }
            (How::FirstBlocks, n) => n == 1,
            (How::LastWaits, n) => n == Slow::ITEMS - 1,
        };
        while waits && !self.is_released() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(self.n)
    }
}

#[derive(Serialize, Deserialize)]
struct Slows {
    run: String,
    how: How,
}

impl Workflow for Slows {
    const KIND: &'static str = "packed_slows";
    type Output = (u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64), Failure> {
        let Slows { run, how } = self;
        let branch = flow.branch("slow").packed();
        let branch = branch.spawn_each("n", 0..Slow::ITEMS, move |n| Slow { n, run: run.clone(), how });
        let merged = branch.merge(Merge::settled()).await?;
        Ok((merged.done, merged.cancelled))
    }
}

/// An engine with a job of slow items, and the name of its run.
async fn slow(url: &str, on: On, how: How) -> (Engine, Handle<Slows>, String) {
    let engine = Engine::builder(url).task::<Slow>().workflow::<Slows>();
    let engine = engine.start().await.expect("started");
    let run = format!("slow {} {on:?}", how as u8);
    let job = engine.submit(Slows { run: run.clone(), how }).await.expect("submitted");
    (engine, job, run)
}

/// Waits until items of the job's branch are committed, and releases the others. Panics unless `done` were committed.
async fn release_after(engine: &Engine, job: JobId, run: &str, done: i64) {
    let mut counts = 0;
    for _ in 0..1_000 {
        let branches = engine.inspect().branches(job).await.expect("branches");
        counts = branches.first().map_or(0, |branch| branch.counts.done);
        if counts > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    RELEASED.lock().unwrap_or_else(|e| e.into_inner()).insert(run.to_owned());
    assert_eq!(counts, done, "committed before the others are released");
}

async fn a_block_commits_between_items_that_block_its_thread(on: On) {
    let store = on.fresh().await;
    let (engine, job, run) = slow(&store.url, on, How::FirstBlocks).await;
    release_after(&engine, job.id(), &run, 1).await;
    assert_eq!(job.result().await.expect("done"), (Slow::ITEMS, 0));
    assert_eq!(u64::from(times(format!("{run} any"))), Slow::ITEMS, "each once");
    engine.stop().await;
}

async fn a_block_commits_while_it_waits_for_an_item(on: On) {
    let store = on.fresh().await;
    let (engine, job, run) = slow(&store.url, on, How::LastWaits).await;
    release_after(&engine, job.id(), &run, Slow::ITEMS as i64 - 1).await;
    assert_eq!(job.result().await.expect("done"), (Slow::ITEMS, 0));
    assert_eq!(u64::from(times(format!("{run} any"))), Slow::ITEMS, "the slow one was not promoted before");
    engine.stop().await;
}

async fn a_block_checks_for_a_cancel_after_every_item(on: On) {
    let store = on.fresh().await;
    let (engine, job, run) = slow(&store.url, on, How::AllBlock).await;
    until("an item has run", async || times(format!("{run} any")) > 0).await;
    let blocks = engine.inspect().children(job.id(), None, 9).await.expect("children");
    let control = engine.control("test");
    control
        .cancel_within(blocks[0].id, Duration::from_secs(600))
        .await
        .expect("cancelled")
        .accepted()
        .expect("cancelled");
    let (done, cancelled) = job.result().await.expect("settled");
    assert!(done > 0 && cancelled > 0 && done + cancelled == Slow::ITEMS, "{done} and {cancelled}");
    assert_eq!(u64::from(times(format!("{run} any"))), done, "the items that ran are counted");
    engine.stop().await;
}

async fn a_block_is_encoded_with_the_codec(on: On) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url).task::<Busy>().workflow::<Packs>();
    let engine = engine.codec(Reversed).start().await.expect("started");
    let run = format!("secret {on:?}");
    let job = engine.submit(Packs { items: 20, run, merge: Merge::all() }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), (20, 0, 20));
    let blocks = engine.inspect().children(job.id(), None, 9).await.expect("children");
    assert_eq!(blocks.len(), 1);
    let block = engine.inspect().job(blocks[0].id).await.expect("read").expect("the job exists");
    let output = block.output.as_ref().expect("an output");
    for payload in [&block.input, output] {
        let kept = String::from_utf8_lossy(&payload.bytes).into_owned();
        assert!(!kept.contains("secret") && !kept.contains("busy"), "{kept}");
    }
    let items = engine.items(job.id(), Some("busy"), ChildStates::All).await;
    let first = items.expect("items").next().await.expect("read").expect("the job exists");
    assert!(
        first.input.as_ref().is_some_and(|input| input.to_string().contains("secret")),
        "it can be read with the codec: {first:?}"
    );
    engine.stop().await;
}

/// Items of which one hangs until its worker has died twice.
#[derive(Serialize, Deserialize)]
struct Deadly {
    n: u64,
    run: String,
}

impl Task for Deadly {
    const KIND: &'static str = "packed_deadly";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        if ran(format!("{} {}", self.run, self.n)) <= 2 && self.n == 7 {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Dies {
    run: String,
}

impl Workflow for Dies {
    const KIND: &'static str = "packed_dies";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let branch = flow.branch("deadly").packed();
        let branch = branch.spawn_each("n", 0..50_u64, move |n| Deadly { n, run: self.run.clone() });
        Ok(branch.automerge().await?.done)
    }
}

/// Of fifty items in a block one kills its worker: after the first death it is in a block of five, after the second alone. The
/// other items run again, and none of them counts as the cause.
async fn a_block_that_kills_its_worker_is_split_at_once(on: On) {
    let store = on.fresh().await;
    let run = format!("deadly {on:?}");
    let lab = Lab::on(&store.url, |engine| engine.task::<Deadly>().workflow::<Dies>()).await;
    let job = lab.submit(Dies { run: run.clone() }).await;
    for deaths in 1..=2 {
        let runs = async {
            while times(format!("{run} 7")) < deaths {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), runs).await.expect("the item runs");
        lab.crash().await;
    }
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 50);
    assert_eq!(times(format!("{run} 7")), 3, "after two deaths it succeeds");
    let engine = lab.engine().await;
    let mut left: Vec<(String, u32)> = Vec::new();
    for child in engine.inspect().children(job.id(), None, 99).await.expect("children") {
        assert_eq!(child.state, windlass::State::Done);
        let child = engine.inspect().job(child.id).await.expect("read").expect("the job exists");
        assert!(child.worker_deaths <= 1, "{} deaths of a block that was not split", child.worker_deaths);
        let place = child.position.expect("a child of the branch");
        left.extend((place.items > 0).then_some((place.item, place.items)));
    }
    assert_eq!(left.iter().map(|(_, items)| items).sum::<u32>(), 50, "{left:?}");
    assert!(left.contains(&("7".into(), 1)), "the item that kills its worker is alone: {left:?}");
    assert!(left.iter().all(|(_, items)| *items <= 5), "{left:?}");
    for n in 0..50 {
        assert!((1..=3).contains(&times(format!("{run} {n}"))), "item {n}");
    }
}

/// A block is no larger than a payload may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_are_not_larger_than_a_payload_may_be() {
    let limits = Limits { payload: 4_096, ..Limits::default() };
    let store = Arc::new(Memory::with_limits(limits));
    let engine = Engine::builder("memory:").store(store).task::<Busy>().workflow::<Packs>();
    let engine = engine.start().await.expect("started");
    let packs = Packs { items: 300, run: "fit".into(), merge: Merge::all() };
    let job = engine.submit(packs).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), (300, 0, 300));
    let blocks = engine.inspect().children(job.id(), None, 99).await.expect("children");
    assert!(blocks.len() > 5, "{} blocks", blocks.len());
    for n in 0..300 {
        assert_eq!(times(format!("fit {n}")), 1, "item {n}");
    }
    // An item that does not fit into a block is refused with what to do.
    let packs = Packs { items: 3, run: "x".repeat(2_000), merge: Merge::all() };
    let job = engine.submit(packs).await.expect("submitted");
    let error = job.result().await.expect_err("refused").to_string();
    assert!(error.contains("too long to be packed"), "{error}");
    engine.stop().await;
}
