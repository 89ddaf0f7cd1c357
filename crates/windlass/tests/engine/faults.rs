//! A store that fails in part: workers go on with what they can, lose nothing, and come back by themselves.

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
    model::{Change, CommitOutcome, NewJob, SubmitOutcome},
    prelude::*,
    store::{
        ClaimBatch, ClaimOnSubmit, ClaimRequest, Error, Fut, Now, ReapReport, ReapRequest, RenewRequest,
        Renewal, Store, delegate_store,
    },
};

use crate::on_both_stores;

on_both_stores!(
    an_unreadable_gate_stops_nothing,
    slots_start_nothing_while_too_many_outcomes_wait,
    outcomes_of_a_long_outage_are_committed_afterwards,
    large_jobs_are_not_submitted_all_at_once,
);

/// What is wrong with a store, and what it was asked for meanwhile.
#[derive(Default)]
struct Faults {
    /// Gates cannot be read.
    gate: AtomicBool,
    /// Commits are not answered.
    hangs: AtomicBool,
    /// Nothing that a worker calls is answered.
    away: AtomicBool,
    /// Renewals that were answered.
    renewed: AtomicUsize,
    /// Renewals and commits that failed.
    not_renewed: AtomicUsize,
    not_committed: AtomicUsize,
}

impl Faults {
    fn is_away(&self) -> Result<(), Error> {
        match self.away.load(Ordering::SeqCst) {
            true => Err(Error::Unavailable("the store is away".into())),
            false => Ok(()),
        }
    }
}

struct Faulty {
    store: Arc<dyn Store>,
    faults: Arc<Faults>,
}

impl Store for Faulty {
    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        Box::pin(async move {
            self.faults.is_away()?;
            match self.faults.gate.load(Ordering::SeqCst) {
                true => Err(Error::Unavailable("gates cannot be read".into())),
                false => self.store.gates(queues).await,
            }
        })
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            self.faults.is_away()?;
            self.store.claim(now, ask).await
        })
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            while self.faults.hangs.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if let Err(error) = self.faults.is_away() {
                self.faults.not_committed.fetch_add(1, Ordering::SeqCst);
                return Err(error);
            }
            self.store.commit(now, changes).await
        })
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(async move {
            if let Err(error) = self.faults.is_away() {
                self.faults.not_renewed.fetch_add(1, Ordering::SeqCst);
                return Err(error);
            }
            self.faults.renewed.fetch_add(1, Ordering::SeqCst);
            self.store.renew(now, beat).await
        })
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a ReapRequest) -> Fut<'a, ReapReport> {
        Box::pin(async move {
            self.faults.is_away()?;
            self.store.reap(now, sweep).await
        })
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let (store, faults) = (self.store.sibling().await?, Arc::clone(&self.faults));
            Ok(Arc::new(Faulty { store, faults }) as Arc<dyn Store>)
        })
    }

    delegate_store!(register_worker submit transact signal release release_claims retire_worker fire_timers cancel_requests repair poll_branches job_ends rest);
}

/// Waits until those of its gate are let through, or it is told to end.
#[derive(Serialize, Deserialize)]
struct Held {
    gate: String,
}

static GATES: Mutex<BTreeMap<String, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

fn gate(name: &str) -> Arc<Semaphore> {
    let mut gates = GATES.lock().expect("gates");
    Arc::clone(gates.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
}

impl Task for Held {
    const KIND: &'static str = "held";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        tokio::select! {
            through = gate(&self.gate).acquire_owned() => through.map(drop).map_err(|_| Failure::stop("closed")),
            () = cx.cancelled() => Err(Failure::cancel("told to end")),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Quick;

impl Task for Quick {
    const KIND: &'static str = "quick";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
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

async fn start(url: &str, faults: &Arc<Faults>, slots: usize, config: Config) -> Engine {
    let store = Engine::open(url).await.expect("opened").store().clone();
    let faulty = Faulty { store, faults: Arc::clone(faults) };
    let engine = Engine::on(url, Arc::new(faulty)).task::<Held>().task::<Quick>();
    engine.queue("default", Pool::slots(slots)).config(config).start().await.expect("started")
}

async fn state(engine: &Engine, id: JobId) -> State {
    engine.inspect().job(id).await.expect("read").expect("there").summary.state
}

async fn an_unreadable_gate_stops_nothing(url: &str) {
    let faults = Arc::new(Faults::default());
    faults.gate.store(true, Ordering::SeqCst);
    // Nothing is looked for without a reason within the time of this test.
    let config = Config { safety: Duration::from_secs(3_600), ..Config::default() };
    let engine = start(url, &faults, 4, config).await;
    // From elsewhere: this process is told of nothing.
    let other = Engine::open(url).await.expect("opened");
    let job = other.submit(Held { gate: "closed".into() }).await.expect("submitted");
    until("jobs are claimed", async || engine.counts().started == 1).await;
    let later = other.submit(Quick).delay(Duration::from_millis(100)).await.expect("submitted");
    until("timers fire", async || state(&other, later.id()).await == State::Done).await;
    other.control("ada").cancel_within(job.id(), Duration::from_secs(3_600)).await.expect("told");
    until("attempts are told to end", async || state(&other, job.id()).await == State::Cancelled).await;
    engine.stop().await;
}

async fn slots_start_nothing_while_too_many_outcomes_wait(url: &str) {
    let faults = Arc::new(Faults::default());
    let (slots, backlog, jobs) = (4, 5, 200);
    let config = Config {
        lease: Duration::from_secs(60),
        renew_every: Duration::from_millis(50),
        backlog,
        ..Config::default()
    };
    faults.hangs.store(true, Ordering::SeqCst);
    let engine = start(url, &faults, slots, config).await;
    let handles = engine.submit_all((0..jobs).map(|_| Quick)).await.expect("submitted");
    until("as many outcomes wait as may", async || engine.counts().started > backlog as u64).await;
    let beats = faults.renewed.load(Ordering::SeqCst);
    until("time passes", async || faults.renewed.load(Ordering::SeqCst) > beats + 10).await;
    // Each slot may have looked before the others brought theirs.
    let most = (backlog + 2 * slots) as u64;
    let counts = engine.counts();
    assert!(counts.started <= most && counts.committed == 0, "at most {most} are started: {counts:?}");
    faults.hangs.store(false, Ordering::SeqCst);
    for job in handles {
        engine.result::<()>(job.id).await.expect("done");
    }
    let counts = engine.counts();
    assert_eq!((counts.started, counts.fenced), (jobs, 0), "each ran once: {counts:?}");
    engine.stop().await;
}

async fn outcomes_of_a_long_outage_are_committed_afterwards(url: &str) {
    let (first, second) = (Arc::new(Faults::default()), Arc::new(Faults::default()));
    let config = |name: &str| Config {
        name: name.into(),
        lease: Duration::from_secs(3),
        renew_every: Duration::from_millis(200),
        ..Config::default()
    };
    let one = start(url, &first, 2, config("one")).await;
    let two = start(url, &second, 2, config("two")).await;
    let both = [&first, &second];
    let jobs = one.submit_all((0..4).map(|_| Held { gate: url.to_owned() })).await.expect("submitted");
    let started = async || one.counts().started + two.counts().started;
    until("all run", async || started().await == 4).await;
    both.iter().for_each(|faults| faults.away.store(true, Ordering::SeqCst));
    // A renewal that failed is tried again after 50 ms: this is longer than a lease.
    let failed = |faults: &Faults| faults.not_renewed.load(Ordering::SeqCst) > 80;
    until("renewals have failed for long", async || both.iter().all(|faults| failed(faults))).await;
    gate(url).add_permits(4);
    let kept = |faults: &Faults| faults.not_committed.load(Ordering::SeqCst) > 2;
    until("outcomes cannot be committed", async || both.iter().all(|faults| kept(faults))).await;
    // Who comes back first finds the lease of the other run out, and must not judge by that.
    first.away.store(false, Ordering::SeqCst);
    let renewed = first.renewed.load(Ordering::SeqCst);
    until("the first is back", async || first.renewed.load(Ordering::SeqCst) > renewed + 2).await;
    second.away.store(false, Ordering::SeqCst);
    for job in jobs {
        one.result::<()>(job.id).await.expect("done by its first attempt");
        let seen = one.inspect().job(job.id).await.expect("read").expect("there");
        assert_eq!((seen.epoch.0, seen.deaths), (0, 0), "nobody was taken for dead");
    }
    assert_eq!(started().await, 4, "each ran once");
    one.stop().await;
    two.stop().await;
}

/// A store that notes how many bytes were submitted at once.
struct Weighing {
    store: Arc<dyn Store>,
    most: Arc<AtomicUsize>,
}

impl Store for Weighing {
    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        self.most.fetch_max(jobs.iter().map(NewJob::bytes).sum(), Ordering::SeqCst);
        self.store.submit(now, jobs, born)
    }

    delegate_store!(
        register_worker claim commit transact signal renew reap release release_claims retire_worker fire_timers cancel_requests repair poll_branches gates job_ends sibling rest
    );
}

#[derive(Serialize, Deserialize)]
struct Large(String);

impl Task for Large {
    const KIND: &'static str = "large";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

async fn large_jobs_are_not_submitted_all_at_once(url: &str) {
    let store = Engine::open(url).await.expect("opened").store().clone();
    let most = Arc::new(AtomicUsize::new(0));
    let engine = Engine::on(url, Arc::new(Weighing { store, most: Arc::clone(&most) }));
    let large = || Large("x".repeat(1_000_000));
    engine.submit_all((0..40).map(|_| large())).await.expect("submitted");
    let lone = (0..40).map(|_| async { engine.submit(large()).await.map(drop) });
    futures_util::future::try_join_all(lone).await.expect("submitted");
    let most = most.load(Ordering::SeqCst);
    assert!((2_000_000..=17_100_000).contains(&most), "{most} bytes at once");
}
