//! Machines: many at once, one long chain, and signals.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use windlass::{
    Engine, Filter, Handle, Time,
    env::IdSource,
    model::{Change, ClaimNo, ClaimedJob, CommitOutcome, KindVersion, NewJob, Outcome, Payload, StepWrites},
    prelude::*,
    store::{ClaimRequest, NewWorker, Store},
};

use super::{Stores, record::Account, report::Report};

/// How often each machine's step was executed.
static EXECUTED: OnceLock<Vec<AtomicU32>> = OnceLock::new();

/// A machine of a given number of steps.
#[derive(Serialize, Deserialize)]
enum Count {
    Down { n: usize, left: u32 },
}

impl Machine for Count {
    const KIND: &'static str = "bench.count";
    type Output = usize;
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Count>, Failure> {
        let Count::Down { n, left } = self;
        if let Some(executed) = EXECUTED.get().and_then(|all| all.get(n)) {
            executed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(match left {
            0 | 1 => Next::done(n),
            left => Next::to(Count::Down { n, left: left - 1 }),
        })
    }
}

/// How many machines run at once.
const AT_ONCE: usize = 100;

/// n machines of some steps each.
pub(super) async fn run(stores: &Stores, n: usize, steps: u32) -> anyhow::Result<Report> {
    anyhow::ensure!(steps > 0, "a machine has at least one step");
    let floor = floor(stores, n, steps).await?;
    EXECUTED.get_or_init(|| (0..n).map(|_| AtomicU32::new(0)).collect());
    let url = stores.url();
    let engine =
        Engine::builder(&url).machine::<Count>().queue("default", Pool::slots(AT_ONCE)).open().await?;
    let submitted = engine.submit_all((0..n).map(|n| Count::Down { n, left: steps })).await?;
    stores.settle_store(&url)?;
    let started = Instant::now();
    engine.start().await?;
    let all = n as u64 * u64::from(steps);
    let deadline = started + Duration::from_secs(300);
    while engine.counts().committed < all && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let counts = engine.counts();
    engine.stop().await;
    let mut account = Account::default();
    for (n, job) in submitted.iter().enumerate() {
        let kept = engine.inspect().transitions(job.id()?, None, steps as usize + 1).await?.len() as u64;
        let executed = EXECUTED.get().map_or(0, |all| all[n].load(Ordering::Relaxed));
        account.lost += u64::from(steps).saturating_sub(kept) as usize;
        account.duplicated += executed.saturating_sub(steps) as usize;
    }
    let bytes = engine.inspect().bytes().await?;
    Ok(Report::new("machine", stores.name(), n)
        .with("steps", steps)
        .rate(n * steps as usize, seconds)
        .figure("floor_per_second", floor)
        .figure("commits_per_step", counts.commits as f64 / all as f64)
        .figure("commits_per_job", counts.commits as f64 / n as f64)
        .figure("db_bytes_per_job", bytes as f64 / n as f64)
        .account(account))
}

/// Commits the same changes in batches without an engine. Returns how many per second.
async fn floor(stores: &Stores, n: usize, steps: u32) -> anyhow::Result<f64> {
    let store = stores.store().await?;
    let ids = IdSource::default();
    let worker = register_worker(&*store, &ids).await?;
    let input = |n: usize| Payload::json(format!("{{\"Down\":{{\"n\":{n},\"left\":{steps}}}}}").into_bytes());
    let job = |n: usize| {
        let job = NewJob::new(ids.job(), Count::KIND, "default", input(n));
        NewJob { stage: Some("Down".into()), ..job }
    };
    let mut batches = Vec::new();
    for batch in 0..n.div_ceil(AT_ONCE) {
        let jobs: Vec<NewJob> = (batch * AT_ONCE..((batch + 1) * AT_ONCE).min(n)).map(job).collect();
        store.submit(None, &jobs, None).await?;
        batches.push(claim(&*store, worker, batch as i64 + 1).await?);
    }
    stores.settle()?;
    let now = Time::from_system(std::time::SystemTime::now());
    let started = Instant::now();
    let mut committed = 0;
    for mut jobs in batches {
        for left in (0..steps).rev() {
            let ran = Some("Down".to_owned());
            let change = |(n, job): (usize, &ClaimedJob)| {
                let data = format!("{{\"n\":{n},\"left\":{left}}}").into_bytes();
                let stage = (left > 0).then(|| ("Down".to_owned(), Payload::json(data)));
                let outcome = match left {
                    0 => Outcome::Done(Payload::json(n.to_string().into_bytes())),
                    _ => Outcome::Next,
                };
                let step = StepWrites { from_stage: ran.clone(), stage, ..StepWrites::default() };
                Change { writes: Some(Box::new(step)), ..Change::new(job, worker, now, outcome) }
            };
            let changes: Vec<Change> = jobs.iter().enumerate().map(change).collect();
            let outcomes = store.commit(None, &changes).await?;
            committed += outcomes.iter().filter(|outcome| **outcome == CommitOutcome::Committed).count();
            jobs.iter_mut().for_each(|job| job.rev.0 += 1);
        }
    }
    anyhow::ensure!(committed == n * steps as usize, "the floor committed {committed} changes");
    Ok(committed as f64 / started.elapsed().as_secs_f64())
}

async fn register_worker(store: &dyn Store, ids: &IdSource) -> anyhow::Result<windlass::model::WorkerId> {
    let lease = Duration::from_secs(600);
    let (id, name, serves) = (ids.worker(), "floor".into(), Vec::new());
    let worker = NewWorker { id, name, liveness_file: None, lease, serves, token: None };
    anyhow::ensure!(store.register_worker(None, &worker).await?, "the worker is registered");
    Ok(id)
}

async fn claim(
    store: &dyn Store,
    worker: windlass::model::WorkerId,
    number: i64,
) -> anyhow::Result<Vec<ClaimedJob>> {
    let kinds: Arc<[KindVersion]> = [KindVersion { kind: Count::KIND.into(), version: 1 }].into();
    let request = ClaimRequest {
        worker,
        number: ClaimNo(number),
        queue: "default".into(),
        kinds,
        limit: AT_ONCE,
        solo: false,
        only: None,
        settled: Vec::new(),
    };
    Ok(store.claim(None, &request).await?.jobs)
}

/// One machine of n steps, one after the other.
pub(super) async fn chain(stores: &Stores, n: usize) -> anyhow::Result<Report> {
    EXECUTED.get_or_init(|| vec![AtomicU32::new(0)]);
    let url = stores.url();
    let engine = Engine::builder(&url).machine::<Count>().start().await?;
    // Once to have everything warm, then for the record.
    run_one(&engine, n.min(100), usize::MAX).await?;
    stores.settle_store(&url)?;
    // Half before and half after: a disk is not always equally fast.
    let bare = n.clamp(100, 2_000) / 2;
    let before = stores.bare_commits(bare).await?;
    let engine_commits = engine.counts().commits;
    let started = Instant::now();
    let id = run_one(&engine, n, 0).await?.id();
    let seconds = started.elapsed().as_secs_f64();
    let commits = engine.counts().commits - engine_commits;
    let bare = (before + stores.bare_commits(bare).await?) / 2.0;
    engine.stop().await;
    let kept = engine.inspect().transitions(id, None, n + 1).await?.len();
    let executed = EXECUTED.get().map_or(0, |all| all[0].load(Ordering::Relaxed)) as usize;
    let account = Account { lost: n.saturating_sub(kept), duplicated: executed.saturating_sub(n) };
    Ok(Report::new("chain", stores.name(), n)
        .rate(n, seconds)
        .figure("floor_per_second", bare)
        .figure("ratio", n as f64 / seconds / bare)
        .figure("commits_per_step", commits as f64 / n as f64)
        .account(account))
}

async fn run_one(engine: &Engine, steps: usize, n: usize) -> anyhow::Result<Handle<Count>> {
    let job = engine.submit(Count::Down { n, left: u32::try_from(steps)? }).await?;
    job.result().await?;
    Ok(job)
}

/// When woken steps started, by machine and round.
static WOKEN: Mutex<Vec<Instant>> = Mutex::new(Vec::new());

/// A machine that waits for a given number of signals.
#[derive(Serialize, Deserialize)]
enum Sleeper {
    Fresh { rounds: u32 },
    Woken { rounds: u32 },
}

impl Machine for Sleeper {
    const KIND: &'static str = "bench.sleeper";
    type Output = ();
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Sleeper>, Failure> {
        let rounds = match self {
            Sleeper::Fresh { rounds } => rounds,
            Sleeper::Woken { rounds } => {
                WOKEN.lock().unwrap_or_else(|e| e.into_inner()).push(Instant::now());
                rounds - 1
            }
        };
        Ok(match rounds {
            0 => Next::done(()),
            rounds => Next::wait(Sleeper::Woken { rounds }, "go"),
        })
    }
}

fn woken() -> usize {
    WOKEN.lock().unwrap_or_else(|e| e.into_inner()).len()
}

/// How many tasks send signals at once.
const SENDERS: usize = 500;

/// Signals: how soon a parked machine's step starts, and how fast n parked machines are woken.
pub(super) async fn signals(stores: &Stores, n: usize, quick: bool) -> anyhow::Result<Report> {
    let url = stores.url();
    let engine = Engine::builder(&url).machine::<Sleeper>().queue("default", Pool::slots(AT_ONCE));
    let engine = engine.start().await?;
    let rounds = if quick { 5 } else { 300 };
    // From a task of the runtime, where a program's own signals come from.
    let one = engine.clone();
    let mut latencies = tokio::spawn(async move { one_by_one(&one, rounds).await }).await??;
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];

    WOKEN.lock().unwrap_or_else(|e| e.into_inner()).clear();
    let submitted = engine.submit_all((0..n).map(|_| Sleeper::Fresh { rounds: 1 })).await?;
    all_parked(&engine, n).await?;
    stores.settle_store(&url)?;
    let ids: Arc<[JobId]> = submitted.iter().map(|job| job.id()).collect::<Result<_, _>>()?;
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut senders = tokio::task::JoinSet::new();
    // Each takes the next machine, until none is left.
    for _ in 0..SENDERS {
        let (engine, ids, next) = (engine.clone(), Arc::clone(&ids), Arc::clone(&next));
        senders.spawn(async move {
            while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                engine.signal(*id, "go", ()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    let sent = started.elapsed();
    let deadline = started + Duration::from_secs(120);
    while woken() < n && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    for job in &submitted {
        engine.result::<()>(job.id()?).await?;
    }
    engine.stop().await;
    let account = Account { lost: n.saturating_sub(woken()), duplicated: woken().saturating_sub(n) };
    Ok(Report::new("signal", stores.name(), n)
        .rate(n, seconds)
        .figure("p50_ms", at(0.5))
        .figure("p99_ms", at(0.99))
        .figure("delivered_per_second", n as f64 / sent.as_secs_f64())
        .account(account))
}

/// One signal at a time to a parked machine: how long until its step starts, in milliseconds.
async fn one_by_one(engine: &Engine, rounds: u32) -> anyhow::Result<Vec<f64>> {
    let job = engine.submit(Sleeper::Fresh { rounds }).await?;
    let mut latencies = Vec::new();
    for round in 0..rounds as usize {
        all_parked(engine, 1).await?;
        let sent = Instant::now();
        job.signal("go", ()).await?;
        let deadline = sent + Duration::from_secs(10);
        while woken() <= round {
            anyhow::ensure!(Instant::now() < deadline, "round {round}: the machine was not woken");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let started = WOKEN.lock().unwrap_or_else(|e| e.into_inner())[round];
        latencies.push((started - sent).as_secs_f64() * 1_000.0);
    }
    job.result().await?;
    Ok(latencies)
}

/// Waits until n machines are parked.
async fn all_parked(engine: &Engine, n: usize) -> anyhow::Result<()> {
    let filter = Filter { state: Some(windlass::State::Waiting), ..Filter::default() };
    let deadline = Instant::now() + Duration::from_secs(120);
    while engine.inspect().count_jobs(&filter, n).await?.jobs.into_values().sum::<u64>() < n as u64 {
        anyhow::ensure!(Instant::now() < deadline, "not all machines were parked");
        tokio::time::sleep(Duration::from_millis(if n == 1 { 1 } else { 100 })).await;
    }
    Ok(())
}
