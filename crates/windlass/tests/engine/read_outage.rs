//! A store that takes commits but cannot be read, for longer than an attempt waits for it: such an outage is no failure of
//! the code that wanted to read, and costs it no attempt.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::Semaphore;
use windlass::{Config, State, prelude::*, store::Error};

use crate::{
    common::{Call, Faults, faulty, until},
    on_both_stores,
};

on_both_stores!(an_outage_of_reads_costs_no_attempt);

/// Whether reads fail.
#[derive(Default)]
struct ReadOutage(AtomicBool);

impl Faults for ReadOutage {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        match call {
            Call::Read if self.0.load(Ordering::SeqCst) => {
                Err(Error::Unavailable("it cannot be read".into()))
            }
            _ => Ok(()),
        }
    }
}

/// Where children wait, by store.
static GATES: [LazyLock<Semaphore>; 2] =
    [LazyLock::new(|| Semaphore::new(0)), LazyLock::new(|| Semaphore::new(0))];
/// How often `on_error` was called.
static ERRORS: AtomicUsize = AtomicUsize::new(0);

#[derive(Serialize, Deserialize)]
struct Held(usize);

impl Task for Held {
    const KIND: &'static str = "held";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        let _through = GATES[self.0].acquire().await.map_err(|_| Failure::stop("closed"))?;
        Ok(1)
    }
}

/// Waits for a signal, and so reads its journal when it continues.
#[derive(Serialize, Deserialize)]
struct Waits;

impl Workflow for Waits {
    const KIND: &'static str = "waits";
    type Output = u32;
    type Error = Failure;

    fn retry(&self) -> Retry {
        Retry::never()
    }

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let one: u32 = flow.step("one", async || Ok(1)).await?;
        flow.signal::<()>("go").await?;
        Ok(one)
    }
}

/// Merges a branch, and so reads its counts.
#[derive(Serialize, Deserialize)]
enum Merges {
    Open { gate: usize },
    Merged,
}

impl Machine for Merges {
    const KIND: &'static str = "merges";
    type Output = u32;
    type Error = Failure;

    fn retry(&self) -> Retry {
        Retry::never()
    }

    async fn on_error(self, failure: Failure, _cx: &MachineCx) -> Result<Next<Merges>, Failure> {
        ERRORS.fetch_add(1, Ordering::SeqCst);
        Ok(Next::by_policy(failure))
    }

    async fn step(self, cx: &MachineCx) -> Result<Next<Merges>, Failure> {
        match self {
            Merges::Open { gate } => {
                cx.branch("one").spawn("one", Child::new(Held(gate))).open().await?;
                Ok(Next::merge(Merges::Merged, ["one"], Merge::all()))
            }
            Merges::Merged => Ok(Next::done(cx.merged("one").await?.done as u32)),
        }
    }
}

/// Waits for a child, and so reads how it ended. Its step has less time than the outage takes.
#[derive(Serialize, Deserialize)]
enum Parent {
    Spawn { gate: usize },
    Read,
}

impl Machine for Parent {
    const KIND: &'static str = "parent";
    type Output = u32;
    type Error = Failure;

    fn retry(&self) -> Retry {
        Retry::never()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(5))
    }

    async fn on_error(self, failure: Failure, _cx: &MachineCx) -> Result<Next<Parent>, Failure> {
        ERRORS.fetch_add(1, Ordering::SeqCst);
        Ok(Next::by_policy(failure))
    }

    async fn step(self, cx: &MachineCx) -> Result<Next<Parent>, Failure> {
        match self {
            Parent::Spawn { gate } => Ok(Next::children(Parent::Read, [Child::new(Held(gate))])),
            Parent::Read => {
                let children = cx.children::<u32>().await?;
                let results = children.into_iter().map(|child| child.result.unwrap_or_default());
                Ok(Next::done(results.sum()))
            }
        }
    }
}

async fn an_outage_of_reads_costs_no_attempt(url: &str) {
    let gate = usize::from(url.starts_with("sqlite"));
    let other = Engine::open(url).await.expect("opened");
    let outage = Arc::new(ReadOutage::default());
    let config = Config { lease: Duration::from_secs(60), ..Config::default() };
    let engine = faulty(url, &outage).await.config(config).task::<Held>();
    let engine = engine.workflow::<Waits>().machine::<Merges>().machine::<Parent>();
    let engine = engine.start().await.expect("started");
    let waits = engine.submit(Waits).await.expect("submitted").id();
    let merges = engine.submit(Merges::Open { gate }).await.expect("submitted").id();
    let parent = engine.submit(Parent::Spawn { gate }).await.expect("submitted").id();
    let ids = [waits, merges, parent];
    let job = async |id: JobId| other.inspect().job(id).await.expect("read").expect("the job exists");
    for id in ids {
        until("all wait", async || job(id).await.summary.state == State::Waiting).await;
    }
    outage.0.store(true, Ordering::SeqCst);
    other.signal(waits, "go", ()).await.expect("sent");
    GATES[gate].add_permits(100);
    let mut epochs = Vec::new();
    for id in ids {
        until("all are claimed", async || job(id).await.summary.state != State::Waiting).await;
        epochs.push(job(id).await.epoch.0);
    }
    for (id, epoch) in ids.into_iter().zip(epochs) {
        // An attempt waits for half a minute.
        until("attempts were given up", async || {
            let seen = job(id).await;
            seen.epoch.0 > epoch || seen.summary.state.is_final()
        })
        .await;
    }
    outage.0.store(false, Ordering::SeqCst);
    for id in ids {
        let result = engine.result::<u32>(id).await;
        assert!(matches!(result, Ok(1)), "{result:?}");
        assert_eq!(job(id).await.summary.attempts, 0, "no attempt was counted");
    }
    assert_eq!(ERRORS.load(Ordering::SeqCst), 0, "on_error was not called");
    engine.stop().await;
}
