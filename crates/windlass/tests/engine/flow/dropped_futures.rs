//! Futures that are dropped during a commit, and journals of another kind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use windlass::{
    Config, JobError, MachineCx, Reason,
    prelude::*,
    store::{Error, ReapRequest},
};

use super::On;
use crate::common::{Call, Faults, faulty, until};

/// Commits wait while `holds`.
#[derive(Default)]
struct HeldCommits {
    holds: AtomicBool,
    waiting: AtomicUsize,
}

impl Faults for HeldCommits {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        while matches!(call, Call::Commit) && self.holds.load(Ordering::SeqCst) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct One;

impl Workflow for One {
    const KIND: &'static str = "dropped_one";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        flow.step("one", async || Ok(1)).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_declared_dead_during_a_commit_commits_again() {
    let store = On::Sqlite.fresh().await;
    let commits = Arc::new(HeldCommits::default());
    let config = Config {
        lease: Duration::from_secs(600),
        renew_every: Duration::from_millis(100),
        ..Config::default()
    };
    let engine = faulty(&store.url, &commits).await.workflow::<One>().config(config);
    let engine = engine.start().await.expect("started");
    commits.holds.store(true, Ordering::SeqCst);
    let first = engine.submit(One).await.expect("submitted");
    until("its commit waits", async || commits.waiting.load(Ordering::SeqCst) > 0).await;
    // The worker is declared dead while its step is being committed: the future is dropped there.
    let worker = engine.worker().await.expect("it works");
    let request = ReapRequest { dead: vec![worker], lapsed: false, limit: 99, max_crashes: 99 };
    engine.store().reap(None, &request).await.expect("reaped");
    until("it has a new id", async || engine.worker().await != Some(worker)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    commits.holds.store(false, Ordering::SeqCst);
    let second = engine.submit(One).await.expect("submitted");
    let both = async { (first.result().await.ok(), second.result().await.ok()) };
    let both = tokio::time::timeout(Duration::from_secs(60), both).await;
    assert_eq!(both.expect("the worker commits again"), (Some(1), Some(1)));
    engine.stop().await;
}

#[derive(Serialize, Deserialize)]
enum Kinds {
    Begin,
    Then,
}

impl Machine for Kinds {
    const KIND: &'static str = "kinds";
    type Output = ();
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Kinds>, Failure> {
        Ok(match self {
            Kinds::Begin => Next::wait(Kinds::Then, "go"),
            Kinds::Then => Next::done(()),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct AsWorkflow;

impl Workflow for AsWorkflow {
    const KIND: &'static str = "kinds";
    type Output = ();
    type Error = Failure;

    async fn run(self, _flow: Flow) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_a_machine_is_not_run_as_a_workflow() {
    let store = On::Sqlite.fresh().await;
    let engine = Engine::builder(&store.url).machine::<Kinds>().start().await.expect("started");
    let job = engine.submit(Kinds::Begin).await.expect("submitted");
    until("it waits", async || {
        engine.inspect().job(job.id()).await.expect("read").expect("the job exists").wait.is_some()
    })
    .await;
    engine.stop().await;
    let other = Engine::builder(&store.url).workflow::<AsWorkflow>().open().await.expect("opened");
    let checked = other.check().run(|_| true).await.expect("checked");
    assert_eq!(checked.broken.len(), 1, "{checked:?}");
    other.start().await.expect("started");
    other.signal(job.id(), "go", ()).await.expect("sent");
    match other.result::<()>(job.id()).await {
        Err(JobError::Failed { reason: Reason::Undecodable, failure, .. }) => {
            let part = "in the stage \"Then\" of a machine, and \"kinds\" is a workflow here";
            assert!(failure.message.contains(part), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    other.stop().await;
}
