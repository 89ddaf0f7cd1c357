//! Suspects start as other jobs do: under a living worker whose lease is known to hold, and that does not stop.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::Semaphore;
use windlass::{
    Config, State,
    env::IdSource,
    model::{ClaimNo, KindVersion},
    prelude::*,
    store::{
        ClaimBatch, ClaimRequest, Error, Fut, NewWorker, Now, ReapRequest, RenewRequest, Renewal, Store,
        Wrapper,
    },
};

use crate::on_both_stores;

on_both_stores!(
    a_suspect_does_not_start_once_its_worker_was_declared_dead,
    a_suspect_does_not_start_once_its_worker_stops,
    a_suspect_does_not_start_while_the_lease_is_not_known_to_hold,
);

/// Claims jobs of a kind for a worker that then dies: they become suspects.
pub(crate) async fn lose(engine: &Engine, kind: &str, jobs: usize) {
    let store = engine.store();
    let id = IdSource::default().worker();
    let new = NewWorker {
        id,
        name: "dies".into(),
        liveness_file: None,
        lease: Duration::from_secs(60),
        serves: Vec::new(),
    };
    assert!(store.register_worker(None, &new).await.expect("enlisted"));
    let kinds = [KindVersion { kind: kind.into(), version: 1 }].into();
    let (number, queue) = (ClaimNo(1), "default".into());
    let ask = ClaimRequest { worker: id, number, queue, kinds, limit: jobs, solo: false, settled: vec![] };
    assert_eq!(store.claim(None, &ask).await.expect("claimed").jobs.len(), jobs);
    let sweep = ReapRequest { dead: vec![id], lapsed: false, limit: 9, crashes: 3 };
    assert_eq!(store.reap(None, &sweep).await.expect("reaped").returned, jobs);
}

/// What happens to claims and renewals, and what a worker has done.
struct Seen {
    /// Who has it claims.
    claims: Semaphore,
    /// The next renewal that says of a suspect that it has company finds its worker dead.
    kills: AtomicBool,
    /// No renewal that says so is answered.
    hangs: AtomicBool,
    /// Renewals are made, and their answers lost.
    deaf: AtomicBool,
    /// How many renewals hung or were not answered.
    unheard: AtomicUsize,
    /// How many suspects were claimed.
    claimed: AtomicUsize,
}

impl Seen {
    fn new() -> Arc<Seen> {
        let off = || AtomicBool::new(false);
        let none = || AtomicUsize::new(0);
        let (kills, hangs, deaf) = (off(), off(), off());
        Arc::new(Seen { claims: Semaphore::new(1), kills, hangs, deaf, unheard: none(), claimed: none() })
    }

    /// Puts a job in whose worker dies, and returns when it was claimed as a suspect.
    async fn suspect(&self, url: &str, name: &str) -> JobId {
        let other = Engine::open(url).await.expect("opened");
        let claiming = self.claims.acquire().await.expect("open");
        let id = other.submit(Held(name.into())).await.expect("submitted").id();
        lose(&other, "held", 1).await;
        drop(claiming);
        until("the suspect is claimed", async || self.claimed.load(Ordering::SeqCst) == 1).await;
        id
    }
}

struct Watched {
    store: Arc<dyn Store>,
    seen: Arc<Seen>,
}

impl Wrapper for Watched {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            let _claiming = self.seen.claims.acquire().await;
            let haul = self.store.claim(now, ask).await?;
            if ask.solo {
                self.seen.claimed.fetch_add(haul.jobs.len(), Ordering::SeqCst);
            }
            Ok(haul)
        })
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(async move {
            let seen = &self.seen;
            if !beat.solo_ended.is_empty() && seen.kills.swap(false, Ordering::SeqCst) {
                let sweep = ReapRequest { dead: vec![beat.worker], lapsed: false, limit: 9, crashes: 3 };
                self.store.reap(now, &sweep).await?;
                return Ok(Renewal::Lost);
            }
            if !beat.solo_ended.is_empty() && seen.hangs.load(Ordering::SeqCst) {
                seen.unheard.fetch_add(1, Ordering::SeqCst);
                return Err(Error::Unavailable("not now".into()));
            }
            let renewed = self.store.renew(now, beat).await?;
            if seen.deaf.load(Ordering::SeqCst) {
                seen.unheard.fetch_add(1, Ordering::SeqCst);
                return Err(Error::Unavailable("the answer was lost".into()));
            }
            Ok(renewed)
        })
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let (store, seen) = (self.store.sibling().await?, Arc::clone(&self.seen));
            Ok(Arc::new(Watched { store, seen }) as Arc<dyn Store>)
        })
    }
}

/// How many attempts have begun, and who may go on.
struct Notes {
    begun: AtomicUsize,
    gate: Arc<Semaphore>,
}

/// By name.
static NOTES: Mutex<BTreeMap<String, Arc<Notes>>> = Mutex::new(BTreeMap::new());

fn notes(name: &str) -> Arc<Notes> {
    let new = || Arc::new(Notes { begun: AtomicUsize::new(0), gate: Arc::new(Semaphore::new(0)) });
    Arc::clone(NOTES.lock().expect("notes").entry(name.to_owned()).or_insert_with(new))
}

fn begun(name: &str) -> usize {
    notes(name).begun.load(Ordering::SeqCst)
}

/// Runs until those of its name are let through.
#[derive(Serialize, Deserialize)]
struct Held(String);

impl Task for Held {
    const KIND: &'static str = "held";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        let notes = notes(&self.0);
        notes.begun.fetch_add(1, Ordering::SeqCst);
        let _through = notes.gate.acquire().await.map_err(|_| Failure::stop("closed"))?;
        Ok(())
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 40 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn state(engine: &Engine, id: JobId) -> State {
    engine.inspect().job(id).await.expect("read").expect("there").summary.state
}

/// A worker with two slots.
async fn start(url: &str, seen: &Arc<Seen>, lease: Duration) -> Engine {
    let store = Engine::open(url).await.expect("opened").store().clone();
    let watched = Watched { store, seen: Arc::clone(seen) };
    let config = Config { lease, renew_every: Duration::from_millis(100), ..Config::default() };
    let engine = Engine::on(url, Arc::new(watched)).task::<Held>().config(config);
    engine.queue("default", Pool::slots(2)).start().await.expect("started")
}

/// A worker that runs a job, and so has company for a suspect that waits to be alone; and both jobs.
async fn with_company(url: &str, seen: &Arc<Seen>, company: &str, suspect: &str) -> (Engine, JobId, JobId) {
    let engine = start(url, seen, Duration::from_secs(60)).await;
    let first = engine.submit(Held(company.into())).await.expect("submitted").id();
    until("it has company", async || begun(company) == 1).await;
    let second = seen.suspect(url, suspect).await;
    (engine, first, second)
}

async fn a_suspect_does_not_start_once_its_worker_was_declared_dead(url: &str) {
    let (company, suspect) = (format!("company 1 {url}"), format!("suspect 1 {url}"));
    let seen = Seen::new();
    seen.kills.store(true, Ordering::SeqCst);
    let (engine, first, second) = with_company(url, &seen, &company, &suspect).await;
    let worker = engine.inspect().workers().await.expect("workers")[0].id;
    until("it goes on under a new name", async || {
        let workers = engine.inspect().workers().await.expect("workers");
        workers.iter().any(|other| other.alive && other.id != worker)
    })
    .await;
    [&company, &suspect].into_iter().for_each(|name| notes(name).gate.add_permits(100));
    for id in [first, second] {
        engine.result::<()>(id).await.expect("done");
    }
    assert_eq!(begun(&suspect), 1, "only the living worker has started it");
    engine.stop().await;
}

async fn a_suspect_does_not_start_once_its_worker_stops(url: &str) {
    let (company, suspect) = (format!("company 2 {url}"), format!("suspect 2 {url}"));
    let seen = Seen::new();
    seen.hangs.store(true, Ordering::SeqCst);
    let other = Engine::open(url).await.expect("opened");
    let (engine, first, second) = with_company(url, &seen, &company, &suspect).await;
    until("the store is not told of its company", async || seen.unheard.load(Ordering::SeqCst) > 0).await;
    notes(&suspect).gate.add_permits(100);
    let stopping = engine.clone();
    let stopping = tokio::spawn(async move { stopping.stop().await });
    until("it is handed back", async || state(&other, second).await == State::Ready).await;
    notes(&company).gate.add_permits(100);
    assert_eq!(stopping.await.expect("stopped"), 0, "nothing was given up");
    assert_eq!((state(&other, first).await, state(&other, second).await), (State::Done, State::Ready));
    assert_eq!(begun(&suspect), 0, "a worker that stops starts nothing");
}

async fn a_suspect_does_not_start_while_the_lease_is_not_known_to_hold(url: &str) {
    let suspect = format!("suspect 3 {url}");
    let seen = Seen::new();
    let engine = start(url, &seen, Duration::from_secs(1)).await;
    seen.deaf.store(true, Ordering::SeqCst);
    // A renewal that was not answered is tried again after 50 ms: this is longer than a lease.
    until("the lease is not known to hold", async || seen.unheard.load(Ordering::SeqCst) > 40).await;
    let job = seen.suspect(url, &suspect).await;
    let unheard = seen.unheard.load(Ordering::SeqCst);
    until("time passes", async || seen.unheard.load(Ordering::SeqCst) > unheard + 5).await;
    assert_eq!(begun(&suspect), 0, "it waits for the lease");
    seen.deaf.store(false, Ordering::SeqCst);
    notes(&suspect).gate.add_permits(100);
    engine.result::<()>(job).await.expect("done");
    assert_eq!(begun(&suspect), 1);
    engine.stop().await;
}
