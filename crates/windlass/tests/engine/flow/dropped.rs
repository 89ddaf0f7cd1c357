//! Futures that are dropped in the middle of a commit, and journals of another kind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use windlass::{
    Config, JobError, Reason, StepCx,
    model::{Change, CommitOutcome},
    prelude::*,
    store::{Fut, Now, ReapRequest, Store, delegate_store},
};

use super::On;

/// A store that does not answer commits for a while.
struct Slow {
    store: Arc<dyn Store>,
    away: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
}

impl Store for Slow {
    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            while self.away.load(Ordering::SeqCst) {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.store.commit(now, changes).await
        })
    }

    delegate_store!(
        register_worker submit claim transact signal renew reap release release_claims retire_worker fire_timers cancel_requests repair poll_branches gates job_ends sibling rest
    );
}

#[derive(Serialize, Deserialize)]
struct One;

impl Workflow for One {
    const KIND: &'static str = "dropped_one";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        flow.step("one", || async { Ok::<_, Failure>(1) }).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_declared_dead_in_the_middle_of_a_commit_goes_on() {
    let place = On::Sqlite.fresh().await;
    let store = Engine::open(&place.url).await.expect("opened").store().clone();
    let (away, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let slow = Slow { store: Arc::clone(&store), away: Arc::clone(&away), waiting: Arc::clone(&waiting) };
    let config = Config {
        lease: Duration::from_secs(600),
        renew_every: Duration::from_millis(100),
        ..Config::default()
    };
    let engine = Engine::on(&place.url, Arc::new(slow)).workflow::<One>().config(config);
    let engine = engine.start().await.expect("started");
    away.store(true, Ordering::SeqCst);
    let first = engine.submit(One).await.expect("submitted");
    while waiting.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Its step is being committed when somebody declares the worker dead: the future is dropped where it is.
    let worker = engine.worker().await.expect("it works");
    let sweep = ReapRequest { dead: vec![worker], lapsed: false, limit: 99, crashes: 99 };
    store.reap(None, &sweep).await.expect("reaped");
    while engine.worker().await == Some(worker) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    away.store(false, Ordering::SeqCst);
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

    async fn step(self, _cx: &StepCx) -> Result<Next<Kinds>, Failure> {
        Ok(match self {
            Kinds::Begin => Next::wait(Kinds::Then, signal("go")),
            Kinds::Then => Next::done(()),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Flowing;

impl Workflow for Flowing {
    const KIND: &'static str = "kinds";
    type Output = ();
    type Error = Failure;

    async fn run(self, _flow: Flow) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_s_job_is_not_taken_for_a_workflow_s() {
    let place = On::Sqlite.fresh().await;
    let engine =
        Engine::open(&place.url).await.expect("opened").machine::<Kinds>().start().await.expect("started");
    let job = engine.submit(Kinds::Begin).await.expect("submitted");
    while engine.inspect().job(job.id()).await.expect("read").expect("there").wait.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.stop().await;
    let other = Engine::open(&place.url).await.expect("opened").workflow::<Flowing>();
    let checked = other.check().run(|_| true).await.expect("checked");
    assert_eq!(checked.broken.len(), 1, "{checked:?}");
    let other = other.start().await.expect("started");
    other.signal(job.id(), "go", ()).await.expect("sent");
    match other.result::<()>(job.id()).await {
        Err(JobError::Failed { reason: Reason::Undecodable, failure }) => {
            let part = "in the state \"Then\" of a machine, and \"kinds\" is a workflow here";
            assert!(failure.message.contains(part), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    other.stop().await;
}
