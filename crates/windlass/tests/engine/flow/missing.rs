//! Children of branches that are needed are kept; where they are gone all the same, whoever reads them says so.

use std::{
    collections::BTreeSet,
    sync::Mutex,
    sync::atomic::{AtomicU64, Ordering},
};

use windlass::store::postgres::{Options, Postgres};
use windlass::{State, prelude::*, store::rusqlite::Connection, testing::Lab};

use super::{On, on_every_store};

on_every_store!(
    a_parent_that_is_retried_late_finds_its_children,
    a_fork_says_that_the_children_it_reads_were_pruned,
    a_quorum_reads_what_was_done_in_blocks,
);

/// What differs from one test to the next in the same process.
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
                Ok::<_, Failure>(seen)
            }
        });
        Ok((sum, seen.await?))
    }
}

async fn lab(url: &str) -> Lab {
    Lab::on(url, |engine| engine.task::<One>().workflow::<Gated>()).await
}

async fn prune_children(lab: &Lab) -> (usize, usize) {
    // The clock stands still: they have ended this very moment, and only older jobs are pruned.
    lab.advance(seconds(1)).await;
    let engine = lab.engine().await;
    let control = engine.control("test");
    let pruned =
        control.prune(State::Done, Duration::ZERO, Some("missing_one"), |_| true).await.expect("pruned");
    (pruned.jobs, pruned.kept)
}

async fn a_parent_that_is_retried_late_finds_its_children(on: On) {
    for late in [false, true] {
        let place = on.fresh().await;
        let lab = lab(&place.url).await;
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let job = lab.submit(Gated { run, late }).await;
        lab.run().await;
        assert_eq!(lab.state(job).await, State::Failed);
        let children = if late { 10 } else { 5 };
        assert_eq!(prune_children(&lab).await, (0, children), "its parent may be retried");
        OPEN.lock().expect("open").insert(run);
        lab.engine().await.control("test").retry(job.id()).await.expect("retried");
        lab.run().await;
        assert_eq!(lab.result(job).await.expect("done"), (15, 15), "late: {late}");
        assert_eq!(prune_children(&lab).await, (10, 0), "it is done");
    }
}

async fn a_fork_says_that_the_children_it_reads_were_pruned(on: On) {
    let place = on.fresh().await;
    let lab = lab(&place.url).await;
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    OPEN.lock().expect("open").insert(run);
    let job = lab.submit(Gated { run, late: false }).await;
    lab.run().await;
    assert_eq!(prune_children(&lab).await, (10, 0));
    let engine = lab.engine().await;
    for (place, branch) in [("reduce", "items"), ("read", "others")] {
        let fork = engine.control("test").fork().before(place).run(job.id()).await.expect("forked");
        lab.run().await;
        let error = engine.result::<(u64, u64)>(fork).await.expect_err("the children are gone").to_string();
        let text = format!("of the 5 children of {branch} that were counted as done 0 could be read");
        assert!(error.contains(&text), "{error}");
        let hint = format!("`windlass fork {} --before {branch}`", job.id());
        assert!(error.contains(&hint), "{error}");
    }
    let anew = engine.control("test").fork().before("items").run(job.id()).await.expect("forked");
    lab.run().await;
    assert_eq!(engine.result::<(u64, u64)>(anew).await.expect("done"), (15, 15), "as it was told to");
}

/// Items of which the 64th takes its time, so that it is followed by a commit, and the next holds its thread until it is told
/// not to.
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
        // What was done is committed after an item, if two seconds have passed.
        let holds = |passed: Duration| match self.n {
            63 => passed < Duration::from_millis(2_100),
            64 => passed < Duration::from_secs(60) && !OPEN.lock().expect("open").contains(&self.run),
            _ => false,
        };
        tokio::task::block_in_place(|| {
            while holds(started.elapsed()) {
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

/// What was done in a block is counted before the block has ended, and is read then.
async fn a_quorum_reads_what_was_done_in_blocks(on: On) {
    let place = on.fresh().await;
    let engine = Engine::open(&place.url).await.expect("opened").task::<Slow>().workflow::<Quorum>();
    let engine = engine.start().await.expect("started");
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let job = engine.submit(Quorum { run }).await.expect("submitted");
    let sum = job.result().await;
    OPEN.lock().expect("open").insert(run);
    assert_eq!(sum.expect("done"), 64, "those that were counted");
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

/// Children of which some wait for very long.
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
async fn a_merge_says_that_children_were_deleted_on_sqlite() {
    a_merge_says_that_children_were_deleted(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_says_that_children_were_deleted_on_postgres() {
    a_merge_says_that_children_were_deleted(On::Postgres).await;
}

async fn a_merge_says_that_children_were_deleted(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Naps>().workflow::<Waits>()).await;
    let job = lab.submit(Waits).await;
    lab.advance(Duration::from_secs(1)).await;
    delete_live_children(on, &place.url).await;
    let store = windlass::store::open(&place.url, true).await.expect("opened");
    for round in 0..2 {
        // A look to compare with, and one after which nothing has ended.
        for wait in [10, 400] {
            let now = lab.now().plus(Duration::from_secs(1_000 * round + wait));
            store.poll_branches(Some(now), 100).await.expect("polled");
        }
        lab.run().await;
        let error = lab.result(job).await.expect_err("children are missing").to_string();
        let text = "of the 5 children of naps 2 are not in the store any more: they were deleted by hand";
        assert!(error.contains(text), "{on:?}, round {round}: {error}");
        lab.engine().await.control("test").retry(job.id()).await.expect("retried");
        lab.run().await;
    }
}
