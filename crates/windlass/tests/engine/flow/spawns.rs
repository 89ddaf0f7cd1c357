//! Spawning: branches of machines, packed items that fail, streams and closures as sources, and what is refused.

use std::sync::atomic::{AtomicU32, Ordering};

use windlass::{JobError, Reason, State, model::journal::CallEvent, prelude::*, testing::Lab};

use super::{On, on_every_store, ran, times};
use crate::common::until;

on_every_store!(
    a_branch_of_a_machine_survives_every_crash,
    packed_items_that_fail_become_jobs,
    children_come_from_streams_and_closures_that_may_fail,
    each_mistake_with_a_branch_is_explained,
    a_source_that_changes_diverges,
    a_source_of_a_machine_that_changes_diverges,
    a_cancelled_parent_cancels_its_children,
    a_retried_parent_does_not_spawn_its_children_again,
    a_quorum_cancels_the_other_children,
    a_merge_waits_until_a_failed_child_is_retried,
);

#[derive(Serialize, Deserialize)]
struct Square(u64);

impl Task for Square {
    const KIND: &'static str = "spawns_square";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(self.0 * self.0)
    }
}

/// A machine that fans out.
#[derive(Serialize, Deserialize)]
enum Squares {
    Begin { n: u64 },
    Collect,
}

impl Machine for Squares {
    const KIND: &'static str = "spawns_squares";
    type Output = (u64, u64);
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Self>, Failure> {
        match self {
            Squares::Begin { n } => {
                cx.branch("squares").chunk(4).spawn_each("square", 0..n, Square).open().await?;
                Ok(Next::merge(Squares::Collect, ["squares"], Merge::all()))
            }
            Squares::Collect => {
                let merged = cx.merged("squares").await?;
                let mut results = cx.results::<u64>(&merged);
                let mut sum = 0;
                while let Some(child) = results.next().await? {
                    sum += child.result.map_err(Failure::stop)?;
                }
                Ok(Next::done((merged.done, sum)))
            }
        }
    }
}

async fn a_branch_of_a_machine_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.task::<Square>().machine::<Squares>(),
            async |lab| {
                let job = lab.submit(Squares::Begin { n: 10 }).await;
                lab.run().await;
                let branches = lab.engine().await.inspect().branches(job.id()).await.expect("branches");
                let result = lab.result(job).await.map_err(|error| error.to_string());
                (result, branches.iter().map(|branch| branch.spawned).collect::<Vec<_>>())
            },
        )
        .await;
    assert_eq!(report.outcome, (Ok((10, 285)), vec![10]));
}

/// Items of which one fails once, one panics once, and one always fails.
#[derive(Serialize, Deserialize)]
struct Rough {
    n: u64,
    run: u64,
}

impl Task for Rough {
    const KIND: &'static str = "spawns_rough";
    type Output = u64;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
        let times = ran(format!("rough {}/{}/{}", self.run, self.n, cx.id()));
        match self.n {
            3 if times == 1 => Err(Failure::retry("once")),
            5 if times == 1 => panic!("once"),
            7 => Err(Failure::stop("never")),
            n => Ok(n),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Packs {
    run: u64,
}

impl Workflow for Packs {
    const KIND: &'static str = "spawns_packs";
    type Output = (u64, u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64, u64), Failure> {
        let run = self.run;
        let branch = flow.branch("rough").packed().spawn_each("item", 0..20_u64, move |n| Rough { n, run });
        let merged = branch.merge(Merge::tolerate(1)).await?;
        let kept = merged.clone();
        let sum = flow
            .step_with("sum", move |cx| {
                let mut results = cx.results::<u64>(&kept);
                async move {
                    let mut sum = 0;
                    while let Some(child) = results.next().await? {
                        sum += child.result.unwrap_or(1_000);
                    }
                    Ok(sum)
                }
            })
            .await?;
        Ok((merged.done, merged.failed, sum))
    }
}

static RUNS: AtomicU32 = AtomicU32::new(0);

async fn packed_items_that_fail_become_jobs(on: On) {
    let store = on.fresh().await;
    let run = u64::from(RUNS.fetch_add(1, Ordering::Relaxed));
    let lab = Lab::on(&store.url, |engine| engine.task::<Rough>().workflow::<Packs>()).await;
    let job = lab.submit(Packs { run }).await;
    lab.run().await;
    let expected: u64 = (0..20).sum::<u64>() - 7 + 1_000;
    assert_eq!(lab.result(job).await.expect("done"), (19, 1, expected));
    let engine = lab.engine().await;
    let children = engine.inspect().children(job.id(), None, 100).await.expect("children");
    // A block, and a job for each of the three, with the id that it had as an item.
    assert_eq!(children.len(), 4);
    for child in children.iter().filter(|child| child.stage.is_none()) {
        let input = engine.inspect().job(child.id).await.expect("read").expect("the job exists").input;
        let item: Rough = serde_json::from_slice(&input.bytes).expect("input");
        let (state, ran, text, class) = match item.n {
            3 => (State::Done, 2, "once", "error"),
            5 => (State::Done, 2, "once", "panic"),
            7 => (State::Failed, 1, "never", "error"),
            n => panic!("item {n} succeeded in its block"),
        };
        let history = engine.inspect().history(child.id).await.expect("history");
        let [attempt] = history.as_slice() else { panic!("item {}: {history:?}", item.n) };
        assert_eq!((&*attempt.failure.message, &*attempt.failure.class), (text, class), "item {}", item.n);
        assert_eq!((child.state, child.attempts), (state, 1), "item {}", item.n);
        assert_eq!(times(format!("rough {run}/{}/{}", item.n, child.id)), ran, "item {}", item.n);
        if state == State::Failed {
            engine.control("test").retry(child.id).await.expect("retried").accepted().expect("retried");
            lab.run().await;
            assert_eq!(times(format!("rough {run}/7/{}", child.id)), 2, "a retry by hand runs it");
        }
    }
}

/// Children from a stream, made by a closure that may fail.
#[derive(Serialize, Deserialize)]
struct Streams {
    bad: Option<u64>,
}

impl Workflow for Streams {
    const KIND: &'static str = "spawns_streams";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let bad = self.bad;
        let source = windlass::StreamSource::new(|| futures_util::stream::iter(0..12_u64));
        let branch = flow.branch("streamed").chunk(5).spawn_each("n", source, move |n| match bad {
            // A class that the engine has for failures of its store, too.
            Some(bad) if n == bad => Err(Failure::stop(format!("item {n} is bad")).class("store")),
            _ => Ok(Square(n)),
        });
        let sum = branch.automerge().reduce(0, |sum: u64, n: u64| sum + n).await;
        sum.map_err(|failure| Failure::stop(format!("the code received: {}", failure.message)))
    }
}

async fn children_come_from_streams_and_closures_that_may_fail(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Square>().workflow::<Streams>()).await;
    let good = lab.submit(Streams { bad: None }).await;
    let bad = lab.submit(Streams { bad: Some(7) }).await;
    lab.run().await;
    assert_eq!(lab.result(good).await.expect("done"), 506);
    let error = lab.result(bad).await.expect_err("failed").to_string();
    assert!(error.contains("the code received: item 7 is bad"), "{error}");
    // The children that were spawned before are counted.
    let branches = lab.engine().await.inspect().branches(bad.id()).await.expect("branches");
    let [branch] = branches.as_slice() else { panic!("{branches:?}") };
    assert_eq!((branch.spawned, branch.counts.done, branch.sealed, branch.merged), (5, 5, false, false));
}

/// A mistake, by its number.
#[derive(Serialize, Deserialize)]
struct Wrong(u32);

/// A child that cannot be serialized.
#[derive(Deserialize)]
struct Unserializable;

impl Serialize for Unserializable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("not written"))
    }
}

impl Task for Unserializable {
    const KIND: &'static str = "spawns_unserializable";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

impl Workflow for Wrong {
    const KIND: &'static str = "spawns_wrong";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let one = |name: &str| flow.branch(name).spawn("one", Square(1));
        match self.0 {
            0 => one("a$b").await?,
            1 => one("a,b").await?,
            2 => _ = flow.merge_branch("never").await?,
            3 => {
                one("twice").automerge().await?;
                _ = flow.merge_branch("twice").key("again").await?;
            }
            4 => one("unmerged").await?,
            5 => flow.branch("two").spawn("one", Square(1)).spawn("one", Square(2)).await?,
            6 => flow.branch("chunk").chunk(0).spawn("one", Square(1)).await?,
            7 => flow.branch("written").spawn("one", Unserializable).await?,
            8 => _ = one("pace").merge(Merge::all().poll_interval(seconds(9), seconds(1))).await?,
            9 => _ = flow.branch("packed").packed().spawn("flow", Wrong(99)).automerge().await?,
            10 => {
                one("again").automerge().await?;
                flow.branch("again").spawn("two", Square(2)).await?;
            }
            11 => flow.branch("keyed").spawn("one", Child::new(Square(1)).key("k")).await?,
            12 => {
                one("open").await?;
                flow.continue_as_new::<Wrong, ()>(Wrong(99)).await;
            }
            13 => {
                let large = |_: String, n: u64| "x".repeat(2_000_000 + n as usize);
                _ = one("large").automerge().reduce(String::new(), large).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

async fn each_mistake_with_a_branch_is_explained(on: On) {
    let store = on.fresh().await;
    let lab =
        Lab::on(&store.url, |engine| engine.task::<Square>().task::<Unserializable>().workflow::<Wrong>())
            .await;
    for (number, text) in [
        (0, "contains '$'"),
        (1, "contains ','"),
        (2, "there is no branch \"never\" to be merged: none was opened"),
        (3, "the branch \"twice\" was merged before"),
        (4, "the branch \"unmerged\" was not merged"),
        (5, "has two spawns \"one\""),
        (6, "use 1 to 10000"),
        (7, "cannot be written as JSON (not written)"),
        (8, "the poll interval of the merge is from 9s to 1s"),
        (9, "cannot be packed"),
        (10, "\"again\" is used twice"),
        (11, "the key of a child of a branch is given"),
        (12, "`continue_as_new` is called, and the branch \"open\" was not merged"),
        (13, "more than the 1048576 allowed"),
    ] {
        let job = lab.submit(Wrong(number)).await;
        lab.run().await;
        match lab.result(job).await {
            Err(error) => assert!(error.to_string().contains(text), "{number}: {error} lacks {text:?}"),
            Ok(()) => panic!("{number} was not refused"),
        }
    }
}

/// The length of the source that changes.
static LENGTH: AtomicU32 = AtomicU32::new(0);

#[derive(Serialize, Deserialize)]
struct Changing {
    shift: bool,
}

/// Ends at the signal `end`.
#[derive(Serialize, Deserialize)]
struct Held(u64);

impl Workflow for Held {
    const KIND: &'static str = "spawns_held";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.signal::<()>("end").await
    }
}

impl Workflow for Changing {
    const KIND: &'static str = "spawns_changing";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        let pay = flow.step("pay", async || Ok(())).undo(move |()| async move {
            ran(format!("{id}/refund"));
            Ok(())
        });
        pay.await?;
        let length = u64::from(LENGTH.load(Ordering::SeqCst));
        let shift = if self.shift { length } else { 0 };
        let branch = flow.branch("changing").in_flight(5);
        let merged = branch.spawn_each("n", 0..length, move |n| Held(n + shift)).automerge().await;
        if merged.is_err() {
            flow.step("handle", async || Ok(())).await?;
        }
        merged.map(drop)
    }
}

async fn a_source_that_changes_diverges(on: On) {
    // One at a time: they share the length.
    static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _one = ONE.lock().await;
    for (shift, after, text) in
        [(false, 2, "now it ends after 2 items"), (true, 50, "item 2 is another one now")]
    {
        let store = on.fresh().await;
        LENGTH.store(100, Ordering::SeqCst);
        let lab = Lab::on(&store.url, |engine| engine.workflow::<Held>().workflow::<Changing>()).await;
        let job = lab.submit(Changing { shift }).await;
        lab.run().await;
        // The branch is full, and its parent waits.
        assert_eq!(lab.state(job).await, State::Waiting);
        LENGTH.store(after, Ordering::SeqCst);
        let children = lab.engine().await.inspect().children(job.id(), None, 9).await.expect("children");
        assert_eq!(children.len(), 3);
        for child in children {
            lab.signal(lab.job::<()>(child.id), "end", ()).await;
        }
        lab.run().await;
        match lab.result(job).await.expect_err("diverged") {
            JobError::Failed { reason: Reason::Diverged, failure, .. } => {
                let error = failure.to_string();
                assert!(error.contains(text) && error.contains("yields other items than before"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        let journal = lab.journal(job).await;
        let recorded: Vec<(CallEvent, &str)> =
            journal.iter().map(|entry| (entry.event, entry.name.as_str())).collect();
        assert_eq!(
            recorded,
            [(CallEvent::DoneWithUndo, "pay"), (CallEvent::Begun, "changing")],
            "the journal is unchanged"
        );
        assert_eq!(times(format!("{}/refund", job.id())), 0, "nothing is undone");
        // With the original source, the job continues from its journal.
        LENGTH.store(100, Ordering::SeqCst);
        lab.engine()
            .await
            .control("test")
            .retry(job.id())
            .await
            .expect("retried")
            .accepted()
            .expect("retried");
        lab.run().await;
        assert_eq!(lab.state(job).await, State::Waiting);
    }
}

/// Opens a branch, and fails afterwards.
#[derive(Serialize, Deserialize)]
enum Opens {
    Begin,
}

impl Machine for Opens {
    const KIND: &'static str = "spawns_opens";
    type Output = ();
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Self>, Failure> {
        let length = if times(format!("{}/deployed", cx.id())) == 0 { 100 } else { 2 };
        let branch = cx.branch("changing").in_flight(5);
        let opened = branch.spawn_each("n", 0..length, Held).open().await;
        ran(format!("{}/opened", cx.id()));
        Err(opened.err().unwrap_or_else(|| Failure::stop("it is open")))
    }

    async fn on_error(self, failure: Failure, cx: &MachineCx) -> Result<Next<Self>, Failure> {
        ran(format!("{}/handled", cx.id()));
        Err(failure)
    }
}

async fn a_source_of_a_machine_that_changes_diverges(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Held>().machine::<Opens>()).await;
    let job = lab.submit(Opens::Begin).await;
    until_branch(&lab, job.id(), |branch| branch.spawned == 3).await;
    ran(format!("{}/deployed", job.id()));
    lab.run().await;
    match lab.result(job).await.expect_err("diverged") {
        JobError::Failed { reason: Reason::Diverged, failure, .. } => {
            assert!(failure.message.contains("now it ends after 2 items"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    let calls = (times(format!("{}/opened", job.id())), times(format!("{}/handled", job.id())));
    assert_eq!(calls, (0, 0), "the code does not see the error");
}

/// A child that never ends by itself.
#[derive(Serialize, Deserialize)]
struct Sleeper;

impl Workflow for Sleeper {
    const KIND: &'static str = "spawns_sleeper";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.signal::<()>("never").await
    }
}

#[derive(Serialize, Deserialize)]
struct Waits;

impl Workflow for Waits {
    const KIND: &'static str = "spawns_waits";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.branch("sleepers").spawn_each("sleeper", 0..7_u8, |_| Sleeper).automerge().await?;
        Ok(())
    }
}

/// Waits, in real time, until the first branch of a job has reached some point.
pub(crate) async fn until_branch(lab: &Lab, job: JobId, reached: impl Fn(&windlass::store::Branch) -> bool) {
    let engine = lab.engine().await;
    until("the branch has reached that point", async || {
        engine.inspect().branches(job).await.expect("branches").first().is_some_and(&reached)
    })
    .await;
}

async fn a_cancelled_parent_cancels_its_children(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Sleeper>().workflow::<Waits>()).await;
    let job = lab.submit(Waits).await;
    lab.run().await;
    lab.cancel(job).await.accepted().expect("accepted");
    until_branch(&lab, job.id(), |branch| branch.counts.ends() == (0, 0, 7)).await;
    assert_eq!(lab.state(job).await, State::Cancelled);
}

/// Fails after its branch is open, the first time.
#[derive(Serialize, Deserialize)]
struct Fails {
    run: u64,
}

impl Workflow for Fails {
    const KIND: &'static str = "spawns_fails";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        flow.branch("squares").spawn_each("square", 0..5_u64, Square).await?;
        let run = self.run;
        flow.step("between", move || async move {
            match ran(format!("between {run}")) {
                1 => Err(Failure::stop("the first time")),
                _ => Ok(()),
            }
        })
        .await?;
        flow.merge_branch("squares").reduce(0, |sum: u64, n: u64| sum + n).await
    }
}

async fn a_retried_parent_does_not_spawn_its_children_again(on: On) {
    let store = on.fresh().await;
    let run = 1_000 + u64::from(RUNS.fetch_add(1, Ordering::Relaxed));
    let lab = Lab::on(&store.url, |engine| engine.task::<Square>().workflow::<Fails>()).await;
    let job = lab.submit(Fails { run }).await;
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Failed);
    lab.engine().await.control("tester").retry(job.id()).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 30);
    let branches = lab.engine().await.inspect().branches(job.id()).await.expect("branches");
    assert_eq!(branches.len(), 1, "its children were not spawned again");
}

/// Three children are done; the others never end by themselves.
#[derive(Serialize, Deserialize)]
struct Enough;

impl Workflow for Enough {
    const KIND: &'static str = "spawns_enough";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let branch = flow.branch("some").spawn_each("child", 0..6_u64, |n| match n < 3 {
            true => Child::new(Square(n)),
            false => Child::new(Sleeper),
        });
        Ok(branch.merge(Merge::quorum(3)).await?.done)
    }
}

async fn a_quorum_cancels_the_other_children(on: On) {
    let store = on.fresh().await;
    let lab =
        Lab::on(&store.url, |engine| engine.task::<Square>().workflow::<Sleeper>().workflow::<Enough>())
            .await;
    let job = lab.submit(Enough).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 3);
    until_branch(&lab, job.id(), |branch| branch.counts.ends() == (3, 0, 3)).await;
}

/// Fails in its first attempt.
#[derive(Serialize, Deserialize)]
struct FailsOnce {
    run: u64,
}

impl Task for FailsOnce {
    const KIND: &'static str = "spawns_fails_once";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        match ran(format!("fails once {}", self.run)) {
            1 => Err(Failure::stop("not yet")),
            _ => Ok(1),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WaitsForBoth {
    run: u64,
}

impl Workflow for WaitsForBoth {
    const KIND: &'static str = "spawns_waits_for_both";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let run = self.run;
        let branch = flow.branch("both").spawn("square", Square(1)).spawn("fails_once", FailsOnce { run });
        Ok(branch.automerge().await?.done)
    }
}

async fn a_merge_waits_until_a_failed_child_is_retried(on: On) {
    let store = on.fresh().await;
    let run = 2_000 + u64::from(RUNS.fetch_add(1, Ordering::Relaxed));
    let lab =
        Lab::on(&store.url, |engine| engine.task::<Square>().task::<FailsOnce>().workflow::<WaitsForBoth>())
            .await;
    let job = lab.submit(WaitsForBoth { run }).await;
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Waiting);
    let engine = lab.engine().await;
    let children = engine.inspect().children(job.id(), None, 9).await.expect("children");
    let failed = children.iter().find(|child| child.state == State::Failed).expect("one failed");
    engine.control("tester").retry(failed.id).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 2);
}
