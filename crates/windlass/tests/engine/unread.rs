//! A store that cannot be read for longer than an attempt waits for it, while it takes commits: an outage is no failure of the
//! code that wanted to read, and is not charged to its retry policy.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::Semaphore;
use windlass::{
    Config, State,
    model::{JournalEntry, Payload, Rev, Signal, Time},
    prelude::*,
    store::{self, Error, Fut, JobEnd, Store, Wrapper},
};

use crate::on_both_stores;

on_both_stores!(an_outage_of_reads_is_ridden_out);

/// A store that cannot be read while it is told so.
struct Blind {
    store: Arc<dyn Store>,
    blind: Arc<AtomicBool>,
}

impl Blind {
    fn check(&self) -> Result<(), Error> {
        match self.blind.load(Ordering::SeqCst) {
            true => Err(Error::Unavailable("it cannot be read".into())),
            false => Ok(()),
        }
    }
}

/// Declares [`Blind`] as a store whose reads fail while it is blind: those that attempts make.
macro_rules! reads {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        impl Wrapper for Blind {
            fn inner(&self) -> &dyn Store {
                &*self.store
            }

            $(fn $name<'a>(&'a self, $($arg: $type),*) -> Fut<'a, $out> {
                Box::pin(async move {
                    self.check()?;
                    self.store.$name($($arg),*).await
                })
            })*
        }
    };
}

reads! {
    job_ends(ids: &'a [JobId]) -> Vec<Option<JobEnd>>;
    child_ends(parent: JobId, parent_rev: Rev, after: Option<JobId>, limit: usize) -> Vec<store::ChildEnd>;
    branches(job: JobId) -> Vec<store::Branch>;
    branch_children(filter: &'a store::BranchChildFilter) -> Vec<store::BranchChild>;
    source_rows(source: &'a store::TableSource, after: Option<&'a str>, limit: usize) -> Vec<store::SourceRow>;
    inbox(id: JobId, limit: usize) -> Vec<Signal>;
    journal(id: JobId, after: Option<i32>, limit: usize) -> Vec<JournalEntry>;
    journals(ids: &'a [JobId]) -> Vec<Vec<JournalEntry>>;
    context(id: JobId) -> Vec<(String, Payload)>;
    clock() -> Time;
}

/// Opens when the children may end, by store.
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

/// Waits for a signal, and so reads its journal when it goes on.
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
        let one: u32 = flow.step("one", async || Ok::<_, Failure>(1)).await?;
        flow.signal::<()>("go").await?;
        Ok(one)
    }
}

/// Merges a branch, and so reads how it stands.
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

    async fn on_error(self, failure: Failure, _cx: &StepCx) -> Result<Next<Merges>, Failure> {
        ERRORS.fetch_add(1, Ordering::SeqCst);
        Ok(Next::by_policy(failure))
    }

    async fn step(self, cx: &StepCx) -> Result<Next<Merges>, Failure> {
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

    async fn on_error(self, failure: Failure, _cx: &StepCx) -> Result<Next<Parent>, Failure> {
        ERRORS.fetch_add(1, Ordering::SeqCst);
        Ok(Next::by_policy(failure))
    }

    async fn step(self, cx: &StepCx) -> Result<Next<Parent>, Failure> {
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

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 90 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn an_outage_of_reads_is_ridden_out(url: &str) {
    let gate = usize::from(url.starts_with("sqlite"));
    let other = Engine::open(url).await.expect("opened");
    let blind = Arc::new(AtomicBool::new(false));
    let store = Blind { store: other.store().clone(), blind: Arc::clone(&blind) };
    let config = Config { lease: Duration::from_secs(60), ..Config::default() };
    let engine = Engine::on(url, Arc::new(store)).config(config).task::<Held>();
    let engine = engine.workflow::<Waits>().machine::<Merges>().machine::<Parent>();
    let engine = engine.start().await.expect("started");
    let waits = engine.submit(Waits).await.expect("submitted").id();
    let merges = engine.submit(Merges::Open { gate }).await.expect("submitted").id();
    let parent = engine.submit(Parent::Spawn { gate }).await.expect("submitted").id();
    let ids = [waits, merges, parent];
    let job = async |id: JobId| other.inspect().job(id).await.expect("read").expect("there");
    for id in ids {
        until("all wait", async || job(id).await.summary.state == State::Waiting).await;
    }
    blind.store(true, Ordering::SeqCst);
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
    blind.store(false, Ordering::SeqCst);
    for id in ids {
        let result = engine.result::<u32>(id).await;
        assert!(matches!(result, Ok(1)), "{result:?}");
        assert_eq!(job(id).await.summary.attempts, 0, "no attempt was spent");
    }
    assert_eq!(ERRORS.load(Ordering::SeqCst), 0, "no code was told of it");
    engine.stop().await;
}
