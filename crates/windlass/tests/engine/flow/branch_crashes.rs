//! Branches with a worker that dies before and after each commit, and branches by each merge rule.

use windlass::{prelude::*, testing::Lab};

use super::{On, on_every_store};

on_every_store!(
    a_branch_of_several_chunks_survives_every_crash,
    two_branches_of_mixed_kinds_survive_every_crash,
    a_packed_branch_survives_every_crash,
    a_branch_with_a_limit_survives_every_crash,
    each_merge_rule_decides_as_it_says,
    branches_can_have_branches,
);

/// Returns its number, or fails.
#[derive(Serialize, Deserialize)]
struct Item {
    n: u64,
    fails: bool,
}

impl Task for Item {
    const KIND: &'static str = "branch_item";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        match self.fails {
            true => Err(Failure::stop(format!("item {} fails", self.n))),
            false => Ok(self.n),
        }
    }
}

/// A workflow as a child.
#[derive(Serialize, Deserialize)]
struct Twice(u64);

impl Workflow for Twice {
    const KIND: &'static str = "branch_twice";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let n = self.0;
        flow.step("twice", || async move { Ok(2 * n) }).await
    }
}

/// Twelve children in three chunks, added up.
#[derive(Serialize, Deserialize)]
struct Sum {
    packed: bool,
    limit: Option<u64>,
}

impl Workflow for Sum {
    const KIND: &'static str = "branch_sum";
    type Output = (u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64), Failure> {
        let mut branch = flow.branch("items").chunk(5);
        if self.packed {
            branch = branch.packed();
        }
        if let Some(limit) = self.limit {
            branch = branch.in_flight(limit);
        }
        let merged = branch.spawn_each("item", 0..12_u64, |n| Item { n, fails: false }).automerge();
        let sum = merged.reduce(0, |sum: u64, n: u64| sum + n).await?;
        let after = flow.step("after", async || Ok(1)).await?;
        Ok((sum, after))
    }
}

async fn sum(on: On, packed: bool, limit: Option<u64>) {
    let report = on
        .crash(
            |engine| engine.task::<Item>().workflow::<Sum>(),
            move |lab| async move {
                let job = lab.submit(Sum { packed, limit }).await;
                lab.run().await;
                let engine = lab.engine().await;
                let branches = engine.inspect().branches(job.id()).await.expect("branches");
                let seen: Vec<_> = branches
                    .iter()
                    .map(|branch| (branch.spawned, branch.counts.ends(), branch.sealed, branch.merged))
                    .collect();
                let result = lab.result(job).await.map_err(|error| error.to_string());
                (result, seen)
            },
        )
        .await;
    assert_eq!(report.outcome, (Ok((66, 1)), vec![(12, (12, 0, 0), true, true)]));
}

async fn a_branch_of_several_chunks_survives_every_crash(on: On) {
    sum(on, false, None).await;
}

async fn a_packed_branch_survives_every_crash(on: On) {
    sum(on, true, None).await;
}

async fn a_branch_with_a_limit_survives_every_crash(on: On) {
    sum(on, false, Some(4)).await;
}

/// Two branches that are open at once, with children of several kinds.
#[derive(Serialize, Deserialize)]
struct Both;

impl Workflow for Both {
    const KIND: &'static str = "branch_both";
    type Output = (u64, u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64, u64), Failure> {
        flow.branch("left")
            .spawn("one", Item { n: 1_000, fails: false })
            .spawn_each("mixed", vec![1_u64, 2, 3], |n| match n % 2 {
                0 => Child::new(Twice(n)),
                _ => Child::new(Item { n, fails: false }).queue("default"),
            })
            .await?;
        flow.branch("right").spawn_each("twice", 0..3_u64, Twice).await?;
        flow.branch("empty").spawn_each("none", std::iter::empty::<u64>(), Twice).await?;
        let empty = flow.merge_branch("empty").await?;
        let both = flow.merge(["right", "left"]).await?;
        let merged = both.clone();
        let sum = flow
            .step_with("sum", move |cx| {
                let mut results = cx.results::<u64>(&merged);
                async move {
                    let mut sum = 0;
                    while let Some(child) = results.next().await? {
                        sum += child.result.map_err(Failure::stop)?;
                    }
                    Ok(sum)
                }
            })
            .await?;
        Ok((empty.spawned, both.done, sum))
    }
}

async fn two_branches_of_mixed_kinds_survive_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.task::<Item>().workflow::<Twice>().workflow::<Both>(),
            async |lab| {
                let job = lab.submit(Both).await;
                lab.run().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok((0, 7, 1_000 + 1 + 4 + 3 + 6)));
}

/// Some of ten children fail.
#[derive(Serialize, Deserialize)]
struct Some10 {
    fail: u64,
    merge: Merge,
}

impl Workflow for Some10 {
    const KIND: &'static str = "branch_some";
    type Output = (u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64), Failure> {
        let fail = self.fail;
        let merged = flow
            .branch("ten")
            .spawn_each("item", 0..10_u64, move |n| Item { n, fails: n < fail })
            .merge(self.merge)
            .await?;
        Ok((merged.done, merged.failed))
    }
}

async fn each_merge_rule_decides_as_it_says(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Item>().workflow::<Some10>()).await;
    for (fail, merge, expected) in [
        (0, Merge::all(), Ok((10, 0))),
        (0, Merge::fail_fast(), Ok((10, 0))),
        (2, Merge::tolerate(2), Ok((8, 2))),
        (2, Merge::tolerate(percent(20.0)), Ok((8, 2))),
        (10, Merge::settled(), Ok((0, 10))),
        (1, Merge::fail_fast(), Err("of 10 children 1 failed")),
        (3, Merge::tolerate(2), Err("of 10 children 3 failed, and 2 are tolerated; among them")),
        (6, Merge::quorum(5), Err("so 5 can no longer be done")),
        (1, Merge::all().timeout(hours(2)), Err("took longer than it may")),
    ] {
        let text = format!("{fail} under {merge:?}");
        let job = lab.submit(Some10 { fail, merge }).await;
        lab.run().await;
        match (lab.result(job).await.map_err(|error| error.to_string()), expected) {
            (Ok(result), Ok(expected)) => assert_eq!(result, expected, "{text}"),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{text}: {error}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    // A merge of all waits until a failed child is retried; a quorum does not.
    let job = lab.submit(Some10 { fail: 1, merge: Merge::all() }).await;
    lab.run().await;
    assert_eq!(lab.state(job).await, windlass::State::Waiting);
    let job = lab.submit(Some10 { fail: 1, merge: Merge::quorum(9).let_rest_run() }).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done").0, 9);
}

/// Branches in branches.
#[derive(Serialize, Deserialize)]
struct Tree {
    depth: u32,
}

impl Workflow for Tree {
    const KIND: &'static str = "branch_tree";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        if self.depth == 0 {
            return Ok(1);
        }
        let depth = self.depth - 1;
        let merged = flow.branch("deeper").spawn_each("tree", 0..3_u8, move |_| Tree { depth }).automerge();
        merged.reduce(1, |sum: u64, n: u64| sum + n).await
    }
}

async fn branches_can_have_branches(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Tree>()).await;
    let job = lab.submit(Tree { depth: 3 }).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 1 + 3 + 9 + 27);
}
