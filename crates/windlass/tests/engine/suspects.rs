//! A suspect starts only under a worker that lives, knows that its lease holds, and is not stopping.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::sync::RwLock;
use windlass::{
    Config, State,
    prelude::*,
    store::{Error, ReapRequest, Store},
};

use crate::{
    common::{Call, Faults, faulty, gate, make_suspects, state, until},
    on_both_stores,
};

on_both_stores!(
    a_suspect_does_not_start_once_its_worker_was_declared_dead,
    a_suspect_does_not_start_once_its_worker_stops,
    a_suspect_does_not_start_while_the_lease_is_not_known_to_hold,
);

/// What goes wrong with the renewals of a worker.
struct Renewals {
    store: Arc<dyn Store>,
    claiming: RwLock<()>,
    /// The next renewal that ends a suspect's solo run finds its worker dead.
    kills: AtomicBool,
    /// Renewals that end a suspect's solo run fail.
    fails: AtomicBool,
    /// Renewals succeed, and their answers are lost.
    loses_answers: AtomicBool,
    /// The number of renewals that failed or whose answer was lost.
    failed: AtomicUsize,
    /// The number of suspects that were claimed.
    claimed: AtomicUsize,
}

impl Renewals {
    async fn new(url: &str) -> Arc<Renewals> {
        let no = || AtomicBool::new(false);
        Arc::new(Renewals {
            store: Engine::open(url).await.expect("opened").store().clone(),
            claiming: RwLock::new(()),
            kills: no(),
            fails: no(),
            loses_answers: no(),
            failed: AtomicUsize::new(0),
            claimed: AtomicUsize::new(0),
        })
    }

    /// Makes a suspect, and returns once it is claimed.
    async fn suspect(&self, url: &str, name: &str) -> JobId {
        let other = Engine::open(url).await.expect("opened");
        let no_claims = self.claiming.write().await;
        let id = other.submit(Held(name.into())).await.expect("submitted").id();
        make_suspects(&other, "held", 1).await;
        drop(no_claims);
        until("the suspect is claimed", async || self.claimed.load(Ordering::SeqCst) == 1).await;
        id
    }

    fn fail(&self, why: &str) -> Result<(), Error> {
        self.failed.fetch_add(1, Ordering::SeqCst);
        Err(Error::Unavailable(why.into()))
    }

    fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }
}

impl Faults for Renewals {
    fn claim_lock(&self) -> Option<&RwLock<()>> {
        Some(&self.claiming)
    }

    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        match call {
            Call::Claimed(request, batch) if request.solo => {
                self.claimed.fetch_add(batch.jobs.len(), Ordering::SeqCst);
                Ok(())
            }
            Call::Renew(request) if !request.solo_ended.is_empty() => {
                if self.kills.swap(false, Ordering::SeqCst) {
                    let reap =
                        ReapRequest { dead: vec![request.worker], lapsed: false, limit: 9, max_crashes: 3 };
                    self.store.reap(None, &reap).await?;
                }
                match self.fails.load(Ordering::SeqCst) {
                    true => self.fail("not now"),
                    false => Ok(()),
                }
            }
            Call::Renewed if self.loses_answers.load(Ordering::SeqCst) => self.fail("the answer was lost"),
            _ => Ok(()),
        }
    }
}

/// How many attempts have started, by name.
static STARTED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn started(name: &str) -> usize {
    STARTED.lock().expect("attempts").get(name).copied().unwrap_or_default()
}

/// Runs until it has passed the gate of its name.
#[derive(Serialize, Deserialize)]
struct Held(String);

impl Task for Held {
    const KIND: &'static str = "held";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        *STARTED.lock().expect("attempts").entry(self.0.clone()).or_default() += 1;
        gate(&self.0).acquire_owned().await.map(drop).map_err(|_| Failure::stop("closed"))
    }
}

/// A worker with two slots.
async fn start(url: &str, renewals: &Arc<Renewals>, lease: Duration) -> Engine {
    let config = Config { lease, renew_every: Duration::from_millis(100), ..Config::default() };
    let engine = faulty(url, renewals).await.task::<Held>().config(config);
    engine.queue("default", Pool::slots(2)).start().await.expect("started")
}

/// A worker that runs one job and has claimed a suspect, which waits because it does not run alone; and both jobs.
async fn with_neighbour(
    url: &str,
    renewals: &Arc<Renewals>,
    neighbour: &str,
    suspect: &str,
) -> (Engine, JobId, JobId) {
    let engine = start(url, renewals, Duration::from_secs(60)).await;
    let first = engine.submit(Held(neighbour.into())).await.expect("submitted").id();
    until("the neighbour runs", async || started(neighbour) == 1).await;
    let second = renewals.suspect(url, suspect).await;
    (engine, first, second)
}

async fn a_suspect_does_not_start_once_its_worker_was_declared_dead(url: &str) {
    let (neighbour, suspect) = (format!("neighbour 1 {url}"), format!("suspect 1 {url}"));
    let renewals = Renewals::new(url).await;
    renewals.kills.store(true, Ordering::SeqCst);
    let (engine, first, second) = with_neighbour(url, &renewals, &neighbour, &suspect).await;
    let worker = engine.inspect().workers().await.expect("workers")[0].id;
    until("it has registered again", async || {
        let workers = engine.inspect().workers().await.expect("workers");
        workers.iter().any(|other| other.alive && other.id != worker)
    })
    .await;
    [&neighbour, &suspect].into_iter().for_each(|name| gate(name).add_permits(100));
    for id in [first, second] {
        engine.result::<()>(id).await.expect("done");
    }
    assert_eq!(started(&suspect), 1, "only the worker that lives has started it");
    engine.stop().await;
}

async fn a_suspect_does_not_start_once_its_worker_stops(url: &str) {
    let (neighbour, suspect) = (format!("neighbour 2 {url}"), format!("suspect 2 {url}"));
    let renewals = Renewals::new(url).await;
    renewals.fails.store(true, Ordering::SeqCst);
    let other = Engine::open(url).await.expect("opened");
    let (engine, first, second) = with_neighbour(url, &renewals, &neighbour, &suspect).await;
    until("a renewal has failed", async || renewals.failed() > 0).await;
    gate(&suspect).add_permits(100);
    let stopping = engine.clone();
    let stopping = tokio::spawn(async move { stopping.stop().await });
    until("it is released", async || state(&other, second).await == State::Ready).await;
    gate(&neighbour).add_permits(100);
    assert_eq!(stopping.await.expect("stopped"), 0, "nothing was given up");
    assert_eq!((state(&other, first).await, state(&other, second).await), (State::Done, State::Ready));
    assert_eq!(started(&suspect), 0, "a worker that stops starts nothing");
}

async fn a_suspect_does_not_start_while_the_lease_is_not_known_to_hold(url: &str) {
    let suspect = format!("suspect 3 {url}");
    let renewals = Renewals::new(url).await;
    let engine = start(url, &renewals, Duration::from_secs(1)).await;
    renewals.loses_answers.store(true, Ordering::SeqCst);
    // A renewal without an answer is repeated after 50 ms: this takes longer than a lease.
    until("the lease is not known to hold", async || renewals.failed() > 40).await;
    let job = renewals.suspect(url, &suspect).await;
    let failed = renewals.failed();
    until("time passes", async || renewals.failed() > failed + 5).await;
    assert_eq!(started(&suspect), 0, "it waits for the lease");
    renewals.loses_answers.store(false, Ordering::SeqCst);
    gate(&suspect).add_permits(100);
    engine.result::<()>(job).await.expect("done");
    assert_eq!(started(&suspect), 1);
    engine.stop().await;
}
