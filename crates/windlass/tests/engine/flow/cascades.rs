//! Parents that are cancelled or run out of time while they spawn and through branches of branches, how fast children become
//! due, and a child as one of several calls of which the first is wanted.

use std::sync::atomic::{AtomicU64, Ordering};

use windlass::{
    First2, State,
    model::BranchNo,
    prelude::*,
    store::{Branch, BranchChildFilter, ChildStates},
    testing::Lab,
};

use super::{On, on_every_store, ran, spawned::until_branch, times};

on_every_store!(
    a_parent_that_is_cancelled_while_it_spawns_spawns_no_more,
    a_cancel_goes_down_through_all_branches,
    children_do_not_outlive_their_parents_deadline,
    children_become_due_at_their_rate,
    a_child_may_be_the_first_of_several_calls,
);

/// What differs from one test to the next in the same process.
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

/// Spawns from a source that stands still after its third chunk until its reader is gone.
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
        let source = stream(move || {
            futures_util::stream::unfold(0_u64, move |n| async move {
                if n == 12 {
                    ran(format!("stands {run}"));
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
    let place = on.fresh().await;
    let engine = Engine::open(&place.url).await.expect("opened");
    let engine = engine.workflow::<Sleeper>().workflow::<Spawns>().start().await.expect("started");
    let run = run();
    let job = engine.submit(Spawns { run }).await.expect("submitted").id();
    let branch = async || engine.inspect().branches(job).await.expect("branches").into_iter().next();
    let until = async |what: &str, reached: &dyn Fn(&Branch) -> bool| {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !branch().await.as_ref().is_some_and(reached) {
            assert!(std::time::Instant::now() < deadline, "{what}: {:?}", branch().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    until("it spawns", &|branch| branch.spawned >= 8).await;
    while times(format!("stands {run}")) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let control = engine.control("test");
    control.cancel_within(job, Duration::ZERO).await.expect("cancelled");
    until("all are cancelled", &|branch| branch.counts.ends() == (0, 0, branch.spawned)).await;
    let seen = branch().await.expect("the branch is there");
    assert!(!seen.sealed && !seen.merged && seen.spawned <= 12, "{seen:?}");
    let children = engine.inspect().children(job, None, 99).await.expect("children");
    assert_eq!(children.len() as i64, seen.spawned, "what was spawned is there");
    assert!(children.iter().all(|child| child.state == State::Cancelled), "{children:?}");
    let parent = engine.inspect().job(job).await.expect("read").expect("there");
    assert_eq!(parent.summary.state, State::Cancelled);
    assert_eq!(times(format!("stands {run}")), 1, "the source was not read again");
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

async fn a_cancel_goes_down_through_all_branches(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Tree>()).await;
    let job = lab.submit(Tree { depth: 3 }).await;
    lab.run().await;
    assert_eq!(descendants(&lab, job.id()).await.len(), 3 + 9 + 27);
    lab.cancel(job).await;
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
struct Patient;

impl Workflow for Patient {
    const KIND: &'static str = "cascades_patient";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let branch = flow.branch("sleepers").spawn_each("sleeper", 0..4_u8, |_| Sleeper);
        Ok(branch.merge(Merge::settled()).await?.cancelled)
    }
}

/// The parent's deadline passes while its children wait: it fails, they are cancelled, and a retry of it finds that.
async fn children_do_not_outlive_their_parents_deadline(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Sleeper>().workflow::<Patient>()).await;
    let engine = lab.engine().await;
    let deadline = lab.now().plus(Duration::from_secs(600));
    let handle = engine.submit(Patient).deadline(deadline).await.expect("submitted");
    let job = lab.job::<u64>(handle.id());
    lab.advance(Duration::from_secs(60)).await;
    assert_eq!(lab.state(job).await, State::Waiting);
    lab.advance(Duration::from_secs(600)).await;
    assert_eq!(lab.state(job).await, State::Failed);
    until_branch(&lab, job.id(), |branch| branch.counts.ends() == (0, 0, 4)).await;
    let parent = engine.inspect().job(job.id()).await.expect("read").expect("there");
    assert_eq!(parent.summary.reason, Some(windlass::model::Reason::Expired));
    for child in descendants(&lab, job.id()).await {
        assert_eq!(child.state, State::Cancelled);
        assert!(child.finished_at >= parent.summary.finished_at, "it was there when its parent ended");
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

/// Each child is due half a second after the one before, also if the worker dies between the chunks.
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
                    only: ChildStates::All,
                    after: None,
                    limit: 99,
                };
                let engine = lab.engine().await;
                let mut due: Vec<(u64, i64)> = Vec::new();
                for leaf in engine.inspect().branch_children(&of).await.expect("leaves") {
                    due.push((
                        leaf.branch_position.item.parse().expect("a number"),
                        leaf.summary.due_at.micros(),
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

/// Takes so many minutes.
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

/// A child against a timer of ten minutes, and then a word.
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
        // By now both are over: a replay must say the same all the same.
        flow.sleep(minutes(30)).name("later").await;
        let length = first.len() as u64;
        let said = flow.step("say", move || async move { Ok::<_, Failure>(length) }).await?;
        Ok((first, said))
    }
}

async fn a_child_may_be_the_first_of_several_calls(on: On) {
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
