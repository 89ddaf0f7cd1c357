//! Children of branches are kept while they are needed. If they were deleted or pruned, reading them is an error that says so.

use std::{
    collections::BTreeSet,
    sync::Mutex,
    sync::atomic::{AtomicU64, Ordering},
};

use windlass::store::postgres::{Options, Postgres};
use windlass::{State, prelude::*, store::rusqlite::Connection, testing::Lab};

use super::{On, on_every_store};

on_every_store!(
    children_of_a_failed_parent_are_not_pruned,
    a_fork_that_reads_pruned_children_fails_with_what_to_do,
    a_quorum_reads_items_of_blocks_that_still_run,
);

/// Numbers the tests of one process.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// The runs whose gate is open.
static OPEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

#[derive(Serialize, Deserialize)]
struct One(u64);

impl Task for One {
    const KIND: &'static str = "missing_one";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(self.0)
    }
}

/// Spawns five children and fails at a gate, before or after it has merged them; then it adds them up.
#[derive(Serialize, Deserialize)]
struct Gated {
    run: u64,
    late: bool,
}

impl Workflow for Gated {
    const KIND: &'static str = "missing_gated";
    type Output = (u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64), Failure> {
        let gate = async |name: &'static str| {
            let open = OPEN.lock().expect("open").contains(&self.run);
            flow.step(name, move || async move {
                if open { Ok(()) } else { Err(Failure::stop("the gate is shut")) }
            })
            .await
        };
        flow.branch("items").spawn_each("item", 1..6_u64, One).await?;
        if !self.late {
            gate("early").await?;
        }
        let sum = flow.merge_branch("items").reduce(0, |sum: u64, n: u64| sum + n).await?;
        flow.branch("others").spawn_each("other", 1..6_u64, One).await?;
        let merged = flow.merge_branch("others").await?;
        if self.late {
            gate("late").await?;
        }
        let seen = flow.step_with("read", move |cx| {
            let mut results = cx.results::<u64>(&merged);
            async move {
                let mut seen = 0;
                while let Some(child) = results.next().await? {
                    seen += child.result.map_err(Failure::stop)?;
                }
                Ok(seen)
            }
        });
        Ok((sum, seen.await?))
    }
}

async fn lab(url: &str) -> Lab {
    Lab::on(url, |engine| engine.task::<One>().workflow::<Gated>()).await
}

async fn prune_children(lab: &Lab) -> (usize, usize) {
    // The clock of a lab does not move by itself, and only jobs that ended earlier are pruned.
    lab.advance(seconds(1)).await;
    let engine = lab.engine().await;
    let control = engine.control("test");
    let pruned =
        control.prune(State::Done, Duration::ZERO, Some("missing_one"), |_| true).await.expect("pruned");
    (pruned.jobs, pruned.kept)
}

async fn children_of_a_failed_parent_are_not_pruned(on: On) {
    for late in [false, true] {
        let store = on.fresh().await;
        let lab = lab(&store.url).await;
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let job = lab.submit(Gated { run, late }).await;
        lab.run().await;
        assert_eq!(lab.state(job).await, State::Failed);
        let children = if late { 10 } else { 5 };
        assert_eq!(prune_children(&lab).await, (0, children), "its parent may be retried");
        OPEN.lock().expect("open").insert(run);
        lab.engine()
            .await
            .control("test")
            .retry(job.id())
            .await
            .expect("retried")
            .accepted()
            .expect("retried");
        lab.run().await;
        assert_eq!(lab.result(job).await.expect("done"), (15, 15), "late: {late}");
        assert_eq!(prune_children(&lab).await, (10, 0), "it is done");
    }
}

async fn a_fork_that_reads_pruned_children_fails_with_what_to_do(on: On) {
    let store = on.fresh().await;
    let lab = lab(&store.url).await;
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    OPEN.lock().expect("open").insert(run);
    let job = lab.submit(Gated { run, late: false }).await;
    lab.run().await;
    assert_eq!(prune_children(&lab).await, (10, 0));
    let engine = lab.engine().await;
    for (call, branch) in [("reduce", "items"), ("read", "others")] {
        let fork = engine.control("test").fork().before(call).run(job.id()).await.expect("forked");
        lab.run().await;
        let error = engine.result::<(u64, u64)>(fork).await.expect_err("the children are gone").to_string();
        let text = format!("of the 5 children of {branch} that were counted as done 0 could be read");
        assert!(error.contains(&text), "{error}");
        let hint = format!("`windlass fork {} --before {branch}`", job.id());
        assert!(error.contains(&hint), "{error}");
    }
    let again = engine.control("test").fork().before("items").run(job.id()).await.expect("forked");
    lab.run().await;
    assert_eq!(engine.result::<(u64, u64)>(again).await.expect("done"), (15, 15), "as the hint says");
}

/// Items of which the 64th is so slow that a commit follows it, and the next blocks its thread until its run is open.
#[derive(Serialize, Deserialize)]
struct Slow {
    n: u64,
    run: u64,
}

impl Task for Slow {
    const KIND: &'static str = "missing_slow";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        let started = std::time::Instant::now();
        // A block commits after an item if two seconds have passed.
        let blocks = |passed: Duration| match self.n {
            63 => passed < Duration::from_millis(2_100),
            64 => passed < Duration::from_secs(60) && !OPEN.lock().expect("open").contains(&self.run),
            _ => false,
        };
        tokio::task::block_in_place(|| {
            while blocks(started.elapsed()) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Ok(1)
    }
}

#[derive(Serialize, Deserialize)]
struct Quorum {
    run: u64,
}

impl Workflow for Quorum {
    const KIND: &'static str = "missing_quorum";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let run = self.run;
        let branch = flow.branch("slow").packed().spawn_each("n", 0..110_u64, move |n| Slow { n, run });
        branch.merge(Merge::quorum(64).let_rest_run()).reduce(0, |sum: u64, n: u64| sum + n).await
    }
}

/// Items that are done are counted and can be read before their block has ended.
async fn a_quorum_reads_items_of_blocks_that_still_run(on: On) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url).task::<Slow>().workflow::<Quorum>();
    let engine = engine.start().await.expect("started");
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let job = engine.submit(Quorum { run }).await.expect("submitted");
    let sum = job.result().await;
    OPEN.lock().expect("open").insert(run);
    assert_eq!(sum.expect("done"), 64, "the items that were counted");
    engine.stop().await;
}

/// Deletes all rows of children that have not ended.
async fn delete_live_children(on: On, url: &str) {
    if on == On::Sqlite {
        let conn = Connection::open(url.trim_start_matches("sqlite://")).expect("open");
        conn.execute_batch(
            "delete from windlass_timers where job in (select id from windlass_jobs where parent is not null and state = 0);
             delete from windlass_jobs where parent is not null and state = 0",
        )
        .expect("deleted");
    } else {
        let options = Options::parse(url).expect("an address");
        let client = Postgres::client(&options).await.expect("connected");
        client
            .batch_execute(
                "delete from timers where job in (select id from jobs where parent is not null and state = 0);
                 delete from jobs where parent is not null and state = 0",
            )
            .await
            .expect("deleted");
    }
}

/// Children of which some sleep for very long.
#[derive(Serialize, Deserialize)]
struct Naps(u64);

impl Workflow for Naps {
    const KIND: &'static str = "missing_naps";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        if self.0 > 2 {
            flow.sleep(Duration::from_secs(100 * 86_400)).await;
        }
        Ok(1)
    }
}

#[derive(Serialize, Deserialize)]
struct Waits;

impl Workflow for Waits {
    const KIND: &'static str = "missing_waits";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        Ok(flow.branch("naps").spawn_each("nap", 0..5_u64, Naps).automerge().await?.done)
    }
}

/// A merge does not wait for children whose rows were deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_of_deleted_children_fails_on_sqlite() {
    a_merge_of_deleted_children_fails(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_of_deleted_children_fails_on_postgres() {
    a_merge_of_deleted_children_fails(On::Postgres).await;
}

async fn a_merge_of_deleted_children_fails(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Naps>().workflow::<Waits>()).await;
    let job = lab.submit(Waits).await;
    lab.advance(Duration::from_secs(1)).await;
    delete_live_children(on, &store.url).await;
    let store = windlass::store::open(&store.url, true).await.expect("opened");
    for pass in 0..2 {
        // The second poll finds that no child has ended since the first.
        for wait in [10, 400] {
            let now = lab.now() + Duration::from_secs(1_000 * pass + wait);
            store.poll_branches(Some(now), 100).await.expect("polled");
        }
        lab.run().await;
        let error = lab.result(job).await.expect_err("children are missing").to_string();
        let text = "of the 5 children of naps 2 are not in the store any more: they were deleted by hand";
        assert!(error.contains(text), "{on:?}, pass {pass}: {error}");
        lab.engine()
            .await
            .control("test")
            .retry(job.id())
            .await
            .expect("retried")
            .accepted()
            .expect("retried");
        lab.run().await;
    }
}
