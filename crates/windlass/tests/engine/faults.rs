//! A store of which some calls fail: workers continue with the others, lose nothing, and recover by themselves.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use windlass::{Config, State, model::NewJob, prelude::*, store::Error};

use crate::{
    common::{Call, Faults, faulty, gate, reaches, until},
    on_both_stores,
};

on_both_stores!(
    a_worker_needs_no_gates_to_work,
    no_attempt_starts_while_too_many_outcomes_wait,
    outcomes_of_a_long_outage_are_committed_afterwards,
    large_jobs_are_submitted_in_several_transactions,
);

/// What is wrong with a store, and how often it was called.
#[derive(Default)]
struct Partial {
    /// Gates cannot be read.
    no_gates: AtomicBool,
    /// Commits wait.
    holds_commits: AtomicBool,
    /// Every call of a worker fails.
    is_down: AtomicBool,
    /// The number of renewals that reached the store, and of renewals and commits that failed.
    renewed: AtomicUsize,
    failed_renewals: AtomicUsize,
    failed_commits: AtomicUsize,
    /// The most bytes that were submitted in one call.
    max_submit: AtomicUsize,
}

impl Faults for Partial {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        match call {
            Call::Submit(jobs, _) => {
                self.max_submit.fetch_max(jobs.iter().map(NewJob::bytes).sum(), Ordering::SeqCst);
                return Ok(());
            }
            Call::ReadGates if self.no_gates.load(Ordering::SeqCst) => {
                return Err(Error::Unavailable("gates cannot be read".into()));
            }
            Call::Commit => {
                while self.holds_commits.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            Call::Claim | Call::Renew(_) | Call::Reap | Call::ReadGates => {}
            _ => return Ok(()),
        }
        let is_down = self.is_down.load(Ordering::SeqCst);
        match (call, is_down) {
            (Call::Commit, true) => self.failed_commits.fetch_add(1, Ordering::SeqCst),
            (Call::Renew(_), true) => self.failed_renewals.fetch_add(1, Ordering::SeqCst),
            (Call::Renew(_), false) => self.renewed.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        match is_down {
            true => Err(Error::Unavailable("the store is down".into())),
            false => Ok(()),
        }
    }
}

/// Waits at its gate, or until it is cancelled.
#[derive(Serialize, Deserialize)]
struct Held {
    gate: String,
}

impl Task for Held {
    const KIND: &'static str = "held";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        tokio::select! {
            through = gate(&self.gate).acquire_owned() => through.map(drop).map_err(|_| Failure::stop("closed")),
            () = cx.cancelled() => Err(Failure::cancel("as requested")),
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

async fn start(url: &str, faults: &Arc<Partial>, slots: usize, config: Config) -> Engine {
    let engine = faulty(url, faults).await.task::<Held>().task::<Quick>();
    engine.queue("default", Pool::slots(slots)).config(config).start().await.expect("started")
}

async fn a_worker_needs_no_gates_to_work(url: &str) {
    let faults = Arc::new(Partial::default());
    faults.no_gates.store(true, Ordering::SeqCst);
    // The check interval is longer than this test.
    let config = Config { check_interval: Duration::from_secs(3_600), ..Config::default() };
    let engine = start(url, &faults, 4, config).await;
    // From another engine, so that the worker is not notified.
    let other = Engine::open(url).await.expect("opened");
    let job = other.submit(Held { gate: "closed".into() }).await.expect("submitted");
    until("jobs are claimed", async || engine.counts().started == 1).await;
    let later = other.submit(Quick).delay(Duration::from_millis(100)).await.expect("submitted");
    reaches(&other, later.id(), State::Done).await;
    other
        .control("ada")
        .cancel_within(job.id(), Duration::from_secs(3_600))
        .await
        .expect("requested")
        .accepted()
        .expect("requested");
    reaches(&other, job.id(), State::Cancelled).await;
    engine.stop().await;
}

async fn no_attempt_starts_while_too_many_outcomes_wait(url: &str) {
    let faults = Arc::new(Partial::default());
    let (slots, backlog, jobs) = (4, 5, 200);
    let config = Config {
        lease: Duration::from_secs(60),
        renew_every: Duration::from_millis(50),
        max_uncommitted: backlog,
        ..Config::default()
    };
    faults.holds_commits.store(true, Ordering::SeqCst);
    let engine = start(url, &faults, slots, config).await;
    let handles = engine.submit_all((0..jobs).map(|_| Quick)).await.expect("submitted");
    until("as many outcomes wait as may", async || engine.counts().started > backlog as u64).await;
    let renewed = faults.renewed.load(Ordering::SeqCst);
    until("time passes", async || faults.renewed.load(Ordering::SeqCst) > renewed + 10).await;
    // Each slot may have checked before the other slots added their outcomes.
    let most = (backlog + 2 * slots) as u64;
    let counts = engine.counts();
    assert!(counts.started <= most && counts.committed == 0, "at most {most} are started: {counts:?}");
    faults.holds_commits.store(false, Ordering::SeqCst);
    for job in handles {
        engine.result::<()>(job.id().expect("submitted")).await.expect("done");
    }
    let counts = engine.counts();
    assert_eq!((counts.started, counts.fenced), (jobs, 0), "each ran once: {counts:?}");
    engine.stop().await;
}

async fn outcomes_of_a_long_outage_are_committed_afterwards(url: &str) {
    let (first, second) = (Arc::new(Partial::default()), Arc::new(Partial::default()));
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
    both.iter().for_each(|faults| faults.is_down.store(true, Ordering::SeqCst));
    // A renewal that failed is repeated after 50 ms: this takes longer than a lease.
    let failed = |faults: &Partial| faults.failed_renewals.load(Ordering::SeqCst) > 80;
    until("renewals have failed for long", async || both.iter().all(|faults| failed(faults))).await;
    gate(url).add_permits(4);
    let waits = |faults: &Partial| faults.failed_commits.load(Ordering::SeqCst) > 2;
    until("outcomes cannot be committed", async || both.iter().all(|faults| waits(faults))).await;
    // The first that reaches the store again finds the lease of the other lapsed, and must not reap it.
    first.is_down.store(false, Ordering::SeqCst);
    let renewed = first.renewed.load(Ordering::SeqCst);
    until("the first renews again", async || first.renewed.load(Ordering::SeqCst) > renewed + 2).await;
    second.is_down.store(false, Ordering::SeqCst);
    for job in jobs {
        one.result::<()>(job.id().expect("submitted")).await.expect("done by its first attempt");
        let seen =
            one.inspect().job(job.id().expect("submitted")).await.expect("read").expect("the job exists");
        assert_eq!((seen.epoch.0, seen.worker_deaths), (0, 0), "no worker was declared dead");
    }
    assert_eq!(started().await, 4, "each ran once");
    one.stop().await;
    two.stop().await;
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

async fn large_jobs_are_submitted_in_several_transactions(url: &str) {
    let faults = Arc::new(Partial::default());
    let engine = faulty(url, &faults).await.open().await.expect("opened");
    let large = || Large("x".repeat(1_000_000));
    engine.submit_all((0..40).map(|_| large())).await.expect("submitted");
    let single = (0..40).map(|_| async { engine.submit(large()).await.map(drop) });
    futures_util::future::try_join_all(single).await.expect("submitted");
    let most = faults.max_submit.load(Ordering::SeqCst);
    assert!((2_000_000..=17_100_000).contains(&most), "{most} bytes at once");
}
