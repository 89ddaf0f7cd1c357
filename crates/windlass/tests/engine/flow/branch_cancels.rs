//! Parents of branches that are cancelled or reach their deadline; the rate at which children become due; a child in a
//! select.

use std::sync::atomic::{AtomicU64, Ordering};

use windlass::{
    First2, State,
    model::BranchNo,
    prelude::*,
    store::{Branch, BranchChildFilter, ChildStates},
    testing::Lab,
};

use super::{On, on_every_store, ran, spawns::until_branch, times};
use crate::common::until;

on_every_store!(
    a_parent_that_is_cancelled_while_it_spawns_spawns_no_more,
    a_cancel_reaches_all_descendants,
    children_are_cancelled_when_their_parent_expires,
    children_become_due_at_their_rate,
    a_child_can_win_a_select,
);

/// Numbers the tests of one process.
static RUNS: AtomicU64 = AtomicU64::new(0);

fn run() -> u64 {
    RUNS.fetch_add(1, Ordering::Relaxed)
}

/// A child that never ends by itself.
#[derive(Serialize, Deserialize)]
struct Sleeper;

impl Workflow for Sleeper {
    const KIND: &'static str = "cascades_sleeper";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.signal::<()>("never").await
    }
}

/// Spawns from a source that blocks after its third chunk.
#[derive(Serialize, Deserialize)]
struct Spawns {
    run: u64,
}

impl Workflow for Spawns {
    const KIND: &'static str = "cascades_spawns";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let run = self.run;
        let source = windlass::StreamSource::new(move || {
            futures_util::stream::unfold(0_u64, move |n| async move {
                if n == 12 {
                    ran(format!("blocks {run}"));
                    std::future::pending::<()>().await;
                }
                Some((n, n + 1))
            })
        });
        flow.branch("sleepers").chunk(4).spawn_each("sleeper", source, |_| Sleeper).automerge().await?;
        Ok(())
    }
}

async fn branches(lab: &Lab, job: JobId) -> Vec<Branch> {
    lab.engine().await.inspect().branches(job).await.expect("branches")
}

async fn a_parent_that_is_cancelled_while_it_spawns_spawns_no_more(on: On) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url)
        .workflow::<Sleeper>()
        .workflow::<Spawns>()
        .start()
        .await
        .expect("started");
    let run = run();
    let job = engine.submit(Spawns { run }).await.expect("submitted").id();
    let branch = async || engine.inspect().branches(job).await.expect("branches").into_iter().next();
    until("it spawns", async || branch().await.is_some_and(|branch| branch.spawned >= 8)).await;
    until("its source blocks", async || times(format!("blocks {run}")) > 0).await;
    let control = engine.control("test");
    control.cancel_within(job, Duration::ZERO).await.expect("cancelled").accepted().expect("cancelled");
    until("all are cancelled", async || {
        branch().await.is_some_and(|branch| branch.counts.ends() == (0, 0, branch.spawned))
    })
    .await;
    let seen = branch().await.expect("the branch exists");
    assert!(!seen.sealed && !seen.merged && seen.spawned <= 12, "{seen:?}");
    let children = engine.inspect().children(job, None, 99).await.expect("children");
    assert_eq!(children.len() as i64, seen.spawned, "each child exists");
    assert!(children.iter().all(|child| child.state == State::Cancelled), "{children:?}");
    let parent = engine.inspect().job(job).await.expect("read").expect("the job exists");
    assert_eq!(parent.summary.state, State::Cancelled);
    assert_eq!(times(format!("blocks {run}")), 1, "the source was not read again");
    engine.stop().await;
}

/// A branch of branches, of this depth.
#[derive(Serialize, Deserialize)]
struct Tree {
    depth: u32,
}

impl Workflow for Tree {
    const KIND: &'static str = "cascades_tree";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        match self.depth {
            0 => flow.signal::<()>("never").await,
            depth => {
                let branch =
                    flow.branch("below").spawn_each("n", 0..3_u8, move |_| Tree { depth: depth - 1 });
                branch.automerge().await.map(drop)
            }
        }
    }
}

/// All descendants of a job.
async fn descendants(lab: &Lab, job: JobId) -> Vec<windlass::store::Summary> {
    let engine = lab.engine().await;
    let (mut all, mut parents) = (Vec::new(), vec![job]);
    while let Some(parent) = parents.pop() {
        let children = engine.inspect().children(parent, None, 99).await.expect("children");
        parents.extend(children.iter().map(|child| child.id));
        all.extend(children);
    }
    all
}

async fn a_cancel_reaches_all_descendants(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Tree>()).await;
    let job = lab.submit(Tree { depth: 3 }).await;
    lab.run().await;
    assert_eq!(descendants(&lab, job.id()).await.len(), 3 + 9 + 27);
    lab.cancel(job).await.accepted().expect("accepted");
    for parent in [vec![job.id()], descendants(&lab, job.id()).await.iter().map(|child| child.id).collect()] {
        for parent in parent {
            if !branches(&lab, parent).await.is_empty() {
                until_branch(&lab, parent, |branch| branch.counts.ends() == (0, 0, 3)).await;
            }
        }
    }
    let all = descendants(&lab, job.id()).await;
    assert_eq!(all.len(), 3 + 9 + 27, "nothing was spawned afterwards");
    assert!(all.iter().all(|child| child.state == State::Cancelled), "{all:?}");
}

/// Opens a branch and waits for it.
#[derive(Serialize, Deserialize)]
struct Waits;

impl Workflow for Waits {
    const KIND: &'static str = "cascades_waits";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let branch = flow.branch("sleepers").spawn_each("sleeper", 0..4_u8, |_| Sleeper);
        Ok(branch.merge(Merge::settled()).await?.cancelled)
    }
}

/// The deadline of the parent passes while its children wait: it fails, and they are cancelled.
async fn children_are_cancelled_when_their_parent_expires(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Sleeper>().workflow::<Waits>()).await;
    let engine = lab.engine().await;
    let deadline = lab.now() + Duration::from_secs(600);
    let handle = engine.submit(Waits).deadline(deadline).await.expect("submitted");
    let job = lab.job::<u64>(handle.id());
    lab.advance(Duration::from_secs(60)).await;
    assert_eq!(lab.state(job).await, State::Waiting);
    lab.advance(Duration::from_secs(600)).await;
    assert_eq!(lab.state(job).await, State::Failed);
    until_branch(&lab, job.id(), |branch| branch.counts.ends() == (0, 0, 4)).await;
    let parent = engine.inspect().job(job.id()).await.expect("read").expect("the job exists");
    assert_eq!(parent.summary.reason, Some(windlass::model::Reason::Expired));
    for child in descendants(&lab, job.id()).await {
        assert_eq!(child.state, State::Cancelled);
        assert!(child.finished_at >= parent.summary.finished_at, "it ended after its parent");
    }
}

#[derive(Serialize, Deserialize)]
struct Item(u64);

impl Task for Item {
    const KIND: &'static str = "cascades_item";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(self.0)
    }
}

/// Two children become due each second.
#[derive(Serialize, Deserialize)]
struct Paced;

impl Workflow for Paced {
    const KIND: &'static str = "cascades_paced";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let branch = flow.branch("items").chunk(3).per_second(2.0).spawn_each("item", 0..10_u64, Item);
        branch.automerge().reduce(0, |sum: u64, n: u64| sum + n).await
    }
}

/// Each child is due half a second after the previous one, also if the worker dies between the chunks.
async fn children_become_due_at_their_rate(on: On) {
    let report = on
        .crash(
            |engine| engine.task::<Item>().workflow::<Paced>(),
            async |lab| {
                let job = lab.submit(Paced).await;
                lab.run().await;
                let number: BranchNo = branches(&lab, job.id()).await[0].number;
                let of = BranchChildFilter {
                    job: job.id(),
                    branch: number,
                    states: ChildStates::All,
                    after: None,
                    limit: 99,
                };
                let engine = lab.engine().await;
                let mut due: Vec<(u64, i64)> = Vec::new();
                for child in engine.inspect().branch_children(&of).await.expect("children") {
                    due.push((
                        child.branch_position.item.parse().expect("a number"),
                        child.summary.due_at.micros(),
                    ));
                }
                due.sort_unstable();
                let first = due[0].1;
                let after: Vec<i64> = due.iter().map(|(_, at)| (at - first) / 1_000).collect();
                (lab.result(job).await.map_err(|error| error.to_string()), after)
            },
        )
        .await;
    let halves: Vec<i64> = (0..10).map(|n| n * 500).collect();
    assert_eq!(report.outcome, (Ok(45), halves));
}

/// Sleeps for some minutes.
#[derive(Serialize, Deserialize)]
struct Minutes(u64);

impl Workflow for Minutes {
    const KIND: &'static str = "cascades_minutes";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        flow.sleep(minutes(self.0)).await;
        Ok(self.0)
    }
}

/// A child against a timer of ten minutes.
#[derive(Serialize, Deserialize)]
struct Races {
    takes: u64,
}

impl Workflow for Races {
    const KIND: &'static str = "cascades_races";
    type Output = (String, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(String, u64), Failure> {
        let child = flow.child("child", Minutes(self.takes));
        let timer = flow.sleep(minutes(10)).name("timer");
        let first = match flow.select("first", (child, timer)).await {
            First2::A(child) => format!("the child, {}", child?),
            First2::B(()) => "the timer".to_owned(),
        };
        // Both have ended by now: a replay must choose the same one.
        flow.sleep(minutes(30)).name("later").await;
        let length = first.len() as u64;
        let recorded = flow.step("record", move || async move { Ok(length) }).await?;
        Ok((first, recorded))
    }
}

async fn a_child_can_win_a_select(on: On) {
    for (takes, first) in [(5, "the child, 5"), (20, "the timer")] {
        let report = on
            .crash(
                |engine| engine.workflow::<Minutes>().workflow::<Races>(),
                |lab| async move {
                    let job = lab.submit(Races { takes }).await;
                    lab.run().await;
                    lab.result(job).await.map_err(|error| error.to_string())
                },
            )
            .await;
        assert_eq!(report.outcome, Ok((first.to_owned(), first.len() as u64)));
    }
}
