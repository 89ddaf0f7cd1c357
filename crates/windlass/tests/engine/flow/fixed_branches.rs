//! Branches after something went wrong: sources that are fixed, parents that are retried, machines that crash; and blocks with
//! large results.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use windlass::{State, prelude::*, testing::Lab};

use super::{On, on_every_store};

on_every_store!(
    a_fixed_source_continues_where_it_failed,
    a_cancelled_parent_can_be_retried,
    two_merges_of_one_branch_at_once_are_refused,
    blocks_can_return_nothing_and_large_results,
    a_machine_that_crashes_while_it_spawns_receives_its_signal_again,
    a_machine_can_open_two_branches_at_once,
    a_machine_must_merge_its_branches,
);

/// Numbers the tests of one process.
static RUNS: AtomicU64 = AtomicU64::new(0);

fn run() -> u64 {
    RUNS.fetch_add(1, Ordering::Relaxed)
}

#[derive(Serialize, Deserialize)]
struct One(u64);

impl Task for One {
    const KIND: &'static str = "fixed_one";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(self.0)
    }
}

/// Whether the source was fixed, by run.
static FIXED: [AtomicBool; 16] = [const { AtomicBool::new(false) }; 16];

#[derive(Serialize, Deserialize)]
struct BadSource {
    run: u64,
    /// Whether the code merges the children that were spawned before the error.
    merges: bool,
}

impl Workflow for BadSource {
    const KIND: &'static str = "fixed_bad_source";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let run = self.run as usize % 16;
        let branch = flow.branch("items").chunk(4).spawn_each("item", 0..10_u64, move |n| {
            match n == 6 && !FIXED[run].load(Ordering::SeqCst) {
                true => Err(Failure::stop("item 6 is broken")),
                false => Ok(One(n)),
            }
        });
        if let Err(failure) = branch.await {
            if self.merges {
                flow.merge_branch("items").by(Merge::settled()).await?;
            }
            return Err(failure);
        }
        if self.merges {
            return Ok(flow.merge_branch("items").by(Merge::settled()).await?.done);
        }
        flow.merge_branch("items").reduce(0, |sum: u64, n: u64| sum + n).await
    }
}

async fn a_fixed_source_continues_where_it_failed(on: On) {
    for (merges, spawned, result) in [(false, 10, 45), (true, 4, 4)] {
        let store = on.fresh().await;
        let lab = Lab::on(&store.url, |engine| engine.task::<One>().workflow::<BadSource>()).await;
        let run = run();
        let job = lab.submit(BadSource { run, merges }).await;
        lab.run().await;
        assert_eq!(lab.state(job).await, State::Failed);
        FIXED[run as usize % 16].store(true, Ordering::SeqCst);
        lab.engine()
            .await
            .control("test")
            .retry(job.id())
            .await
            .expect("retried")
            .accepted()
            .expect("retried");
        lab.run().await;
        assert_eq!(lab.result(job).await.expect("done"), result, "merges: {merges}");
        let branches = lab.engine().await.inspect().branches(job.id()).await.expect("branches");
        let seen: Vec<_> = branches.iter().map(|branch| (branch.spawned, branch.counts.done)).collect();
        assert_eq!(seen, [(spawned, spawned)], "one branch, each child once");
    }
}

/// Ends at the signal `end`.
#[derive(Serialize, Deserialize)]
struct Held;

impl Workflow for Held {
    const KIND: &'static str = "fixed_held";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.signal::<()>("end").await
    }
}

#[derive(Serialize, Deserialize)]
struct Holds;

impl Workflow for Holds {
    const KIND: &'static str = "fixed_holds";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let branch = flow.branch("held").spawn_each("held", 0..3_u8, |_| Held);
        Ok(branch.merge(Merge::settled()).await?.cancelled)
    }
}

async fn a_cancelled_parent_can_be_retried(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Held>().workflow::<Holds>()).await;
    let job = lab.submit(Holds).await;
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Waiting);
    lab.cancel(job).await.accepted().expect("accepted");
    super::spawns::until_branch(&lab, job.id(), |branch| branch.counts.cancelled == 3).await;
    lab.engine().await.control("test").retry(job.id()).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 3);
}

#[derive(Serialize, Deserialize)]
struct Overlap;

impl Workflow for Overlap {
    const KIND: &'static str = "fixed_overlap";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        for name in ["a", "b", "c"] {
            flow.branch(name).spawn("one", One(1)).await?;
        }
        let (first, second) = futures_util::future::join(
            flow.merge(["a", "b"]).into_future(),
            flow.merge(["b", "c"]).into_future(),
        )
        .await;
        first.and(second).map(drop)
    }
}

async fn two_merges_of_one_branch_at_once_are_refused(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<One>().workflow::<Overlap>()).await;
    let job = lab.submit(Overlap).await;
    lab.run().await;
    let error = lab.result(job).await.expect_err("refused").to_string();
    assert!(error.contains("the branch \"b\" is being merged already"), "{error}");
}

/// Items that return nothing or many bytes, at once or after a while.
#[derive(Serialize, Deserialize)]
struct Large {
    bytes: usize,
    waits: bool,
}

impl Task for Large {
    const KIND: &'static str = "fixed_large";
    type Output = Option<String>;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<Option<String>, Failure> {
        if self.waits {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok((self.bytes > 0).then(|| "x".repeat(self.bytes)))
    }
}

#[derive(Serialize, Deserialize)]
struct Returns {
    items: usize,
    bytes: usize,
    waits: bool,
}

impl Workflow for Returns {
    const KIND: &'static str = "fixed_returns";
    type Output = (u64, usize);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, usize), Failure> {
        let Returns { items, bytes, waits } = self;
        let branch =
            flow.branch("large").packed().spawn_each("item", 0..items, move |_| Large { bytes, waits });
        let add = |(count, bytes): (u64, usize), result: Option<String>| {
            (count + 1, bytes + result.map_or(0, |text| text.len()))
        };
        branch.automerge().reduce((0, 0), add).await
    }
}

async fn blocks_can_return_nothing_and_large_results(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Large>().workflow::<Returns>()).await;
    for (items, bytes, waits) in
        [(30, 0, false), (1_000, 2_000, false), (1_000, 2_000, true), (60, 20_000, true), (3, 600_000, false)]
    {
        let job = lab.submit(Returns { items, bytes, waits }).await;
        lab.run().await;
        let result = lab.result(job).await;
        assert_eq!(result.expect("done"), (items as u64, items * bytes), "{items} of {bytes} bytes");
    }
}

/// A machine that opens a branch in a step that was woken by a signal.
#[derive(Serialize, Deserialize)]
enum Paid {
    Begin,
    Wait,
    Merged { amount: u64 },
}

impl Machine for Paid {
    const KIND: &'static str = "fixed_paid";
    type Output = (u64, u64);
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Ok(match self {
            Paid::Begin => Next::wait(Paid::Wait, "payment"),
            Paid::Wait => {
                let amount = cx.signal::<u64>("payment")?.ok_or_else(|| Failure::stop("no payment"))?;
                cx.branch("items").chunk(2).spawn_each("item", 0..6_u64, One).open().await?;
                Next::merge(Paid::Merged { amount }, ["items"], Merge::all())
            }
            Paid::Merged { amount } => Next::done((amount, cx.merged("items").await?.done)),
        })
    }
}

async fn a_machine_that_crashes_while_it_spawns_receives_its_signal_again(on: On) {
    let report = on
        .crash(
            |engine| engine.task::<One>().machine::<Paid>(),
            async |lab| {
                let job = lab.submit(Paid::Begin).await;
                lab.signal(job, "payment", 7).await;
                lab.run().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok((7, 6)));
}

/// A machine that opens branches at the same time, and merges them or not.
#[derive(Serialize, Deserialize)]
enum Two {
    Begin { merges: bool },
    Merged,
}

impl Machine for Two {
    const KIND: &'static str = "fixed_two";
    type Output = u64;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Ok(match self {
            Two::Begin { merges } => {
                let left = cx.branch("left").chunk(2).spawn_each("item", 0..6_u64, One).open();
                let right = cx.branch("right").chunk(2).spawn_each("item", 0..6_u64, One).open();
                futures_util::future::try_join(left, right).await?;
                match merges {
                    true => Next::merge(Two::Merged, ["left", "right", "left"], Merge::all()),
                    false => Next::done(0),
                }
            }
            Two::Merged => Next::done(cx.merged("left").await?.done),
        })
    }
}

async fn a_machine_can_open_two_branches_at_once(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<One>().machine::<Two>()).await;
    let job = lab.submit(Two::Begin { merges: true }).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 12);
    let branches = lab.engine().await.inspect().branches(job.id()).await.expect("branches");
    assert_eq!(branches.iter().map(|branch| branch.counts.done).collect::<Vec<_>>(), [6, 6]);
}

async fn a_machine_must_merge_its_branches(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<One>().machine::<Two>()).await;
    let job = lab.submit(Two::Begin { merges: false }).await;
    lab.run().await;
    let error = lab.result(job).await.expect_err("refused").to_string();
    assert!(
        error.contains("the machine is done, and its branch") && error.contains("was not merged"),
        "{error}"
    );
}
