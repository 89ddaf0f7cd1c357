//! Packed branches when something goes wrong in the middle of a block, and when what is kept is not plain.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use windlass::{
    Codec,
    model::Limits,
    prelude::*,
    store::{ChildStates, memory::Memory},
    testing::Lab,
};

use super::{On, on_every_store, ran, times};

on_every_store! {
    a_block_that_was_cancelled_half_way_goes_on_where_it_was,
    an_item_that_holds_its_thread_harms_only_itself,
    nothing_of_a_block_is_kept_in_plain_under_a_codec,
    a_block_that_kills_its_worker_is_split_at_once,
    a_block_commits_between_items_that_hold_its_thread,
    a_block_commits_while_it_waits_for_an_item,
    a_block_looks_at_its_cancel_after_every_item,
}

/// Items that take a moment of their thread; one of them holds it for long, once.
#[derive(Serialize, Deserialize)]
struct Busy {
    n: u64,
    run: String,
}

static HOLDS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

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
        let holds = HOLDS.lock().expect("holds").contains(&self.run);
        let millis = if holds && first && self.n == 7 { 3_000 } else { 2 };
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
                Ok::<_, Failure>(seen)
            }
        });
        let seen = seen.await?;
        Ok((merged.done, merged.cancelled, seen))
    }
}

async fn engine(url: &str) -> Engine {
    let engine = Engine::open(url).await.expect("opened").task::<Busy>().workflow::<Packs>();
    engine.start().await.expect("started")
}

async fn a_block_that_was_cancelled_half_way_goes_on_where_it_was(on: On) {
    const ITEMS: u64 = 192;
    let place = on.fresh().await;
    let engine = engine(&place.url).await;
    let run = format!("half {on:?}");
    let packs = Packs { items: ITEMS, run: run.clone(), merge: Merge::settled() };
    let job = engine.submit(packs).await.expect("submitted");
    while times(format!("{run} any")) < 10 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let blocks = engine.inspect().children(job.id(), None, 9).await.expect("children");
    assert_eq!(blocks.len(), 1);
    let control = engine.control("test");
    control.cancel_within(blocks[0].id, Duration::from_secs(600)).await.expect("cancelled");
    let (done, cancelled, seen) = job.result().await.expect("settled");
    assert!(done > 0 && cancelled > 0 && done + cancelled == ITEMS, "{done} and {cancelled}");
    assert_eq!(seen, done, "what was done is there to be read");
    assert_eq!(u64::from(times(format!("{run} any"))), done, "what ran is counted, and nothing else");
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

async fn an_item_that_holds_its_thread_harms_only_itself(on: On) {
    const ITEMS: u64 = 40;
    let place = on.fresh().await;
    let run = format!("holds {on:?}");
    HOLDS.lock().expect("holds").insert(run.clone());
    let engine = engine(&place.url).await;
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
    /// The first holds its thread for longer than a block may go on without a commit; the second waits until it is let go.
    Holds,
    /// The last waits until it is let go.
    Waits,
    /// All hold their thread for a moment.
    All,
}

/// The runs whose items were let go.
static LET_GO: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Slow {
    /// Fewer than are run before others get their turn.
    const ITEMS: u64 = 60;

    fn is_let_go(&self) -> bool {
        LET_GO.lock().unwrap_or_else(|e| e.into_inner()).contains(&self.run)
    }
}

impl Task for Slow {
    const KIND: &'static str = "packed_slow";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        ran(format!("{} any", self.run));
        let waits = match (self.how, self.n) {
            (How::Holds, 0) => {
                std::thread::sleep(Duration::from_millis(2_100));
                false
            }
            (How::All, _) => {
                std::thread::sleep(Duration::from_millis(100));
                false
            }
            (How::Holds, n) => n == 1,
            (How::Waits, n) => n == Slow::ITEMS - 1,
        };
        while waits && !self.is_let_go() {
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
async fn slow(url: &str, on: On, how: How) -> (Engine, windlass::Handle<(u64, u64)>, String) {
    let engine = Engine::open(url).await.expect("opened").task::<Slow>().workflow::<Slows>();
    let engine = engine.start().await.expect("started");
    let run = format!("slow {} {on:?}", how as u8);
    let job = engine.submit(Slows { run: run.clone(), how }).await.expect("submitted");
    (engine, job, run)
}

/// Waits until so many items of a job's branch are committed, and lets the others go, or gives up.
async fn let_go_after(engine: &Engine, job: JobId, run: &str, done: i64) {
    let mut counts = 0;
    for _ in 0..1_000 {
        let branches = engine.inspect().branches(job).await.expect("branches");
        counts = branches.first().map_or(0, |branch| branch.counts.done);
        if counts > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    LET_GO.lock().unwrap_or_else(|e| e.into_inner()).insert(run.to_owned());
    assert_eq!(counts, done, "committed before the others are let go");
}

async fn a_block_commits_between_items_that_hold_its_thread(on: On) {
    let place = on.fresh().await;
    let (engine, job, run) = slow(&place.url, on, How::Holds).await;
    let_go_after(&engine, job.id(), &run, 1).await;
    assert_eq!(job.result().await.expect("done"), (Slow::ITEMS, 0));
    assert_eq!(u64::from(times(format!("{run} any"))), Slow::ITEMS, "each once");
    engine.stop().await;
}

async fn a_block_commits_while_it_waits_for_an_item(on: On) {
    let place = on.fresh().await;
    let (engine, job, run) = slow(&place.url, on, How::Waits).await;
    let_go_after(&engine, job.id(), &run, Slow::ITEMS as i64 - 1).await;
    assert_eq!(job.result().await.expect("done"), (Slow::ITEMS, 0));
    assert_eq!(u64::from(times(format!("{run} any"))), Slow::ITEMS, "the slow one was not moved out before");
    engine.stop().await;
}

async fn a_block_looks_at_its_cancel_after_every_item(on: On) {
    let place = on.fresh().await;
    let (engine, job, run) = slow(&place.url, on, How::All).await;
    while times(format!("{run} any")) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let blocks = engine.inspect().children(job.id(), None, 9).await.expect("children");
    let control = engine.control("test");
    control.cancel_within(blocks[0].id, Duration::from_secs(600)).await.expect("cancelled");
    let (done, cancelled) = job.result().await.expect("settled");
    assert!(done > 0 && cancelled > 0 && done + cancelled == Slow::ITEMS, "{done} and {cancelled}");
    assert_eq!(u64::from(times(format!("{run} any"))), done, "what ran is counted");
    engine.stop().await;
}

async fn nothing_of_a_block_is_kept_in_plain_under_a_codec(on: On) {
    let place = on.fresh().await;
    let engine = Engine::open(&place.url).await.expect("opened").task::<Busy>().workflow::<Packs>();
    let engine = engine.codec(Backwards).start().await.expect("started");
    let run = format!("secret {on:?}");
    let job = engine.submit(Packs { items: 20, run, merge: Merge::all() }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), (20, 0, 20));
    let blocks = engine.inspect().children(job.id(), None, 9).await.expect("children");
    assert_eq!(blocks.len(), 1);
    let block = engine.inspect().job(blocks[0].id).await.expect("read").expect("there");
    let output = block.output.as_ref().expect("an output");
    for payload in [&block.input, output] {
        let kept = String::from_utf8_lossy(&payload.bytes).into_owned();
        assert!(!kept.contains("secret") && !kept.contains("busy"), "{kept}");
    }
    let items = engine.items(job.id(), Some("busy"), ChildStates::All).await;
    let first = items.expect("items").next().await.expect("read").expect("there");
    assert!(
        first.input.as_ref().is_some_and(|input| input.to_string().contains("secret")),
        "people who have the codec read it: {first:?}"
    );
    engine.stop().await;
}

/// Items of which one does not come back until its worker has died under it twice.
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

/// Of fifty items in a block one kills its worker: after the first death it is in a block of five, after the second alone. Its
/// neighbours run again, and none of them is blamed.
async fn a_block_that_kills_its_worker_is_split_at_once(on: On) {
    let place = on.fresh().await;
    let run = format!("deadly {on:?}");
    let lab = Lab::on(&place.url, |engine| engine.task::<Deadly>().workflow::<Dies>()).await;
    let job = lab.submit(Dies { run: run.clone() }).await;
    for deaths in 1..=2 {
        let dying = async {
            while times(format!("{run} 7")) < deaths {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), dying).await.expect("the item runs");
        lab.crash().await;
    }
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 50);
    assert_eq!(times(format!("{run} 7")), 3, "after two deaths it ends well");
    let engine = lab.engine().await;
    let mut left: Vec<(String, u32)> = Vec::new();
    for child in engine.inspect().children(job.id(), None, 99).await.expect("children") {
        assert_eq!(child.state, windlass::State::Done);
        let child = engine.inspect().job(child.id).await.expect("read").expect("there");
        assert!(child.deaths <= 1, "{} deaths of a block that was not split", child.deaths);
        let place = child.place.expect("a child of the branch");
        left.extend((place.items > 0).then_some((place.item, place.items)));
    }
    assert_eq!(left.iter().map(|(_, items)| items).sum::<u32>(), 50, "{left:?}");
    assert!(left.contains(&("7".into(), 1)), "the item that is to blame is alone: {left:?}");
    assert!(left.iter().all(|(_, items)| *items <= 5), "{left:?}");
    for n in 0..50 {
        assert!((1..=3).contains(&times(format!("{run} {n}"))), "item {n}");
    }
}

/// Blocks are as small as the payloads that the store takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_fit_in_what_the_store_takes() {
    let limits = Limits { payload: 4_096, ..Limits::default() };
    let store = Arc::new(Memory::with_limits(limits));
    let engine = Engine::on("memory:", store).task::<Busy>().workflow::<Packs>();
    let engine = engine.start().await.expect("started");
    let packs = Packs { items: 300, run: "fit".into(), merge: Merge::all() };
    let job = engine.submit(packs).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), (300, 0, 300));
    let blocks = engine.inspect().children(job.id(), None, 99).await.expect("children");
    assert!(blocks.len() > 5, "{} blocks", blocks.len());
    for n in 0..300 {
        assert_eq!(times(format!("fit {n}")), 1, "item {n}");
    }
    // An item that does not fit in any block is refused, in words that say what to do.
    let packs = Packs { items: 3, run: "x".repeat(2_000), merge: Merge::all() };
    let job = engine.submit(packs).await.expect("submitted");
    let error = job.result().await.expect_err("refused").to_string();
    assert!(error.contains("too long to be packed"), "{error}");
    engine.stop().await;
}

/// Keeps everything backwards.
struct Backwards;

impl Codec for Backwards {
    fn id(&self) -> u8 {
        77
    }

    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(plain.iter().rev().copied().collect()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.iter().rev().copied().collect())
    }
}
