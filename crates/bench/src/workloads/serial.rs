//! Blocked and free jobs in one queue: what 100,000 jobs that wait for ten serial keys cost the free ones, and whether the blocked
//! ones run one at a time, in order, once their keys are free.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use windlass::{
    Engine, Serial, Time,
    env::IdSource,
    model::{Change, ClaimNo, ClaimedJob, KindVersion, NewJob, Outcome, Payload, WorkerId},
    prelude::*,
    store::{ClaimRequest, NewWorker},
};

use super::{
    Stores,
    record::Account,
    report::{self, Report},
};
use crate::out;

/// How many keys are hot.
const KEYS: usize = 10;
/// How many drains of each kind are measured.
const ROUNDS: usize = 5;
/// How long a store is left idle after it was filled, so that the disk settles.
const SETTLE: Duration = Duration::from_secs(1);
/// How long a drain may take.
const PATIENCE: Duration = Duration::from_secs(420);
/// How many jobs a claim takes whose pages are counted, and how many such claims there are.
const BATCH: usize = 100;
const CLAIMS: usize = 50;

/// A task that records its run; one with a key also its order and how many ran at once.
#[derive(Serialize, Deserialize)]
struct Queued {
    n: usize,
    key: Option<usize>,
}

/// What the tasks of one store have recorded.
#[derive(Default)]
struct RunLog {
    /// How often each number was executed.
    executions: Vec<AtomicU32>,
    keys: [Key; KEYS],
}

#[derive(Default)]
struct Key {
    /// The numbers in the order of their starts.
    starts: Mutex<Vec<usize>>,
    running: AtomicU32,
    /// The most that ever ran at once.
    most: AtomicU32,
}

static RUN_LOG: Mutex<Option<&'static RunLog>> = Mutex::new(None);

fn run_log() -> Option<&'static RunLog> {
    *RUN_LOG.lock().unwrap_or_else(|e| e.into_inner())
}

/// Begins a new record, with room for numbers from 0 to `n`. The one before is never freed: a late task may hold it.
fn begin(n: usize) -> &'static RunLog {
    let executions = (0..n).map(|_| AtomicU32::new(0)).collect();
    let run_log: &'static RunLog = Box::leak(Box::new(RunLog { executions, keys: Default::default() }));
    *RUN_LOG.lock().unwrap_or_else(|e| e.into_inner()) = Some(run_log);
    run_log
}

impl Task for Queued {
    const KIND: &'static str = "bench.queued";
    type Output = usize;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<usize, Failure> {
        let run_log = run_log().ok_or_else(|| Failure::stop("only the bench runs its tasks"))?;
        if let Some(key) = self.key.map(|key| &run_log.keys[key]) {
            key.most.fetch_max(key.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            key.starts.lock().unwrap_or_else(|e| e.into_inner()).push(self.n);
            // A task of the same key that may run starts now.
            tokio::task::yield_now().await;
            key.running.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(count) = run_log.executions.get(self.n) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.n)
    }
}

/// A store with free jobs, and perhaps blocked ones.
struct Fixture {
    engine: Engine,
    url: String,
    free: usize,
    blocked: usize,
    holders: Option<Holders>,
}

/// The jobs that hold the keys, claimed by a worker that keeps them running.
struct Holders {
    worker: WorkerId,
    jobs: Vec<ClaimedJob>,
}

pub(super) async fn run(stores: &Stores, n: usize, quick: bool) -> anyhow::Result<Report> {
    let rounds = if quick { 1 } else { ROUNDS };
    let (mut plain, mut blocked) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        // Each of them first as often as the other, as far as that goes.
        let order = if round % 2 == 1 { [false, true] } else { [true, false] };
        for waiting in order {
            let fixture = Fixture::make(stores, n, if waiting { n } else { 0 }).await?;
            let rate = n as f64 / fixture.drain_free().await?;
            let load = if waiting { "with blocked ones" } else { "alone" };
            out::note(&format!("  round {round} of {rounds}: {rate:.0} free jobs a second {load}"));
            if waiting { &mut blocked } else { &mut plain }.push(rate);
            fixture.delete(stores).await?;
        }
    }
    let pages_plain = Box::pin(pages(stores, n, 0)).await?;
    let fixture = Fixture::make(stores, n, n).await?;
    let pages_blocked = fixture.count_pages(stores).await?;
    let blocked_seconds = fixture.drain_all(stores).await?;
    let run_log = run_log().context("tasks have run")?;
    let account = account(run_log, n + KEYS..2 * n + KEYS);
    let fifo = run_log.keys.iter().all(|key| {
        let starts = key.starts.lock().unwrap_or_else(|e| e.into_inner());
        starts.is_sorted()
    });
    let at_once = run_log.keys.iter().map(|key| key.most.load(Ordering::SeqCst)).max().unwrap_or(0);
    let bytes = fixture.engine.inspect().bytes().await?;
    fixture.delete(stores).await?;

    let (plain, blocked) = (report::median(plain), report::median(blocked));
    let mut report = Report::new("serial", stores.name(), n)
        .rate(n, n as f64 / blocked)
        .figure("plain_per_second", plain)
        .figure("ratio", blocked / plain)
        .figure("blocked_seconds", blocked_seconds)
        .figure("blocked_per_second", n as f64 / blocked_seconds)
        .figure("db_bytes_per_job", bytes as f64 / (2 * n) as f64)
        .with("keys", KEYS)
        .with("fifo", fifo)
        .with("at_once", at_once)
        .account(account)
        .must(fifo && at_once == 1);
    if let (Some(plain), Some(blocked)) = (pages_plain, pages_blocked) {
        report = report
            .figure("pages_plain", plain)
            .figure("pages_blocked", blocked)
            .figure("pages_ratio", blocked / plain);
    }
    Ok(report)
}

/// Compares the run log of these numbers with one run each.
fn account(run_log: &RunLog, numbers: std::ops::Range<usize>) -> Account {
    let counts = || run_log.executions[numbers.clone()].iter().map(|count| count.load(Ordering::Relaxed));
    Account {
        lost: counts().filter(|count| *count == 0).count(),
        duplicated: counts().filter(|count| *count > 1).count(),
    }
}

/// The pages of a claim on a store of its own.
async fn pages(stores: &Stores, free: usize, blocked: usize) -> anyhow::Result<Option<f64>> {
    let fixture = Fixture::make(stores, free, blocked).await?;
    let pages = fixture.count_pages(stores).await?;
    fixture.delete(stores).await?;
    Ok(pages)
}

impl Fixture {
    /// A fresh store. Numbers: the free jobs from 0, then the holders, then the blocked ones, key after key in turn.
    async fn make(stores: &Stores, free: usize, blocked: usize) -> anyhow::Result<Fixture> {
        begin(free + KEYS + blocked);
        let url = stores.url();
        let engine = Engine::builder(&url).task::<Queued>().open().await?;
        let mut fixture = Fixture { engine, url, free, blocked, holders: None };
        let ids = IdSource::default();
        if blocked > 0 {
            let keyed = |n: usize| queued(&ids, n, Some((n - free) % KEYS));
            fixture.submit(free..free + KEYS, keyed).await?;
            fixture.holders = Some(fixture.hold(&ids).await?);
            fixture.submit(free + KEYS..free + KEYS + blocked, keyed).await?;
        }
        fixture.submit(0..free, |n| queued(&ids, n, None)).await?;
        stores.settle_store(&fixture.url)?;
        // The disk must have settled before a drain is measured.
        rustix::fs::sync();
        tokio::time::sleep(SETTLE).await;
        Ok(fixture)
    }

    /// One batch after the other, so that the order of submission is that of the numbers.
    async fn submit(
        &self,
        numbers: std::ops::Range<usize>,
        job: impl Fn(usize) -> NewJob,
    ) -> anyhow::Result<()> {
        let all: Vec<usize> = numbers.collect();
        for chunk in all.chunks(1_000) {
            let jobs: Vec<NewJob> = chunk.iter().map(|n| job(*n)).collect();
            self.engine.store().submit(None, &jobs, None).await?;
        }
        Ok(())
    }

    /// Registers a worker for manual claims; its lease outlasts the bench.
    async fn register_worker(&self, ids: &IdSource) -> anyhow::Result<WorkerId> {
        let lease = Duration::from_secs(3_600);
        let worker = NewWorker {
            id: ids.worker(),
            name: "bench".into(),
            liveness_file: None,
            lease,
            serves: Vec::new(),
            token: None,
        };
        anyhow::ensure!(
            self.engine.store().register_worker(None, &worker).await?,
            "the worker's name is taken"
        );
        Ok(worker.id)
    }

    async fn claim(&self, worker: WorkerId, number: i64, limit: usize) -> anyhow::Result<Vec<ClaimedJob>> {
        let request = ClaimRequest {
            worker,
            number: ClaimNo(number),
            queue: "default".into(),
            kinds: [KindVersion { kind: Queued::KIND.into(), version: 1 }].into(),
            limit,
            solo: false,
            only: None,
            settled: Vec::new(),
        };
        Ok(self.engine.store().claim(None, &request).await?.jobs)
    }

    /// Claims the first job of each key.
    async fn hold(&self, ids: &IdSource) -> anyhow::Result<Holders> {
        let worker = self.register_worker(ids).await?;
        let jobs = self.claim(worker, 1, KEYS).await?;
        anyhow::ensure!(jobs.len() == KEYS, "{} of {KEYS} keys are held", jobs.len());
        Ok(Holders { worker, jobs })
    }

    /// Starts an engine and waits until it has committed `n` jobs.
    async fn drain(&self, n: usize) -> anyhow::Result<(Engine, f64)> {
        let started = Instant::now();
        let engine = self.engine.clone();
        engine.start().await?;
        self.committed(&engine, n, started).await?;
        Ok((engine, started.elapsed().as_secs_f64()))
    }

    async fn committed(&self, engine: &Engine, n: usize, since: Instant) -> anyhow::Result<()> {
        let (mut printed_at, mut seen) = (Instant::now(), 0);
        while seen < n as u64 {
            anyhow::ensure!(since.elapsed() < PATIENCE, "{seen} of {n} jobs were drained in {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
            seen = engine.counts().committed;
            if printed_at.elapsed() > Duration::from_secs(2) {
                printed_at = Instant::now();
                out::note(&format!("  {} of {} jobs", out::thousands(seen), out::thousands(n as u64)));
            }
        }
        Ok(())
    }

    /// Drains the free jobs. Returns the seconds that took.
    async fn drain_free(&self) -> anyhow::Result<f64> {
        let (engine, seconds) = self.drain(self.free).await?;
        engine.stop().await;
        let account = account(run_log().context("tasks have run")?, 0..self.free);
        let Account { lost, duplicated } = account;
        anyhow::ensure!(lost + duplicated == 0, "of the free jobs {lost} are lost, {duplicated} ran twice");
        Ok(seconds)
    }

    /// Drains the remaining free jobs, ends the holders and drains the jobs they blocked. Returns the seconds of the latter.
    async fn drain_all(&self, stores: &Stores) -> anyhow::Result<f64> {
        let left = self.free - if stores.counts_pages() { self.counted() } else { 0 };
        let (engine, _) = self.drain(left).await?;
        stores.settle_store(&self.url)?;
        let holders = self.holders.as_ref().context("jobs hold the keys")?;
        let now = Time::from_system(std::time::SystemTime::now());
        let change = |job: &ClaimedJob| {
            Change::new(job, holders.worker, now, Outcome::Done(Payload::json(b"0".to_vec())))
        };
        let changes: Vec<Change> = holders.jobs.iter().map(change).collect();
        let started = Instant::now();
        self.engine.store().commit(None, &changes).await?;
        engine.poke();
        self.committed(&engine, left + self.blocked, started).await?;
        let seconds = started.elapsed().as_secs_f64();
        engine.stop().await;
        Ok(seconds)
    }

    /// How many jobs [`Fixture::count_pages`] takes.
    fn counted(&self) -> usize {
        BATCH * CLAIMS.min(self.free / BATCH / 2)
    }

    /// The pages that a claim of [`BATCH`] jobs touches, by the server's count; the jobs stay claimed.
    async fn count_pages(&self, stores: &Stores) -> anyhow::Result<Option<f64>> {
        if !stores.counts_pages() {
            return Ok(None);
        }
        let worker = self.register_worker(&IdSource::default()).await?;
        stores.sql("create extension if not exists pg_stat_statements; select pg_stat_statements_reset()")?;
        let claims = self.counted() / BATCH;
        for number in 1..=claims {
            let jobs = self.claim(worker, number as i64, BATCH).await?;
            anyhow::ensure!(jobs.len() == BATCH, "a claim of {BATCH} returned {} jobs", jobs.len());
        }
        let sql = "select sum(shared_blks_hit + shared_blks_read)::float8 / sum(calls) from pg_stat_statements \
                   where query like '%into claims%' and query like '%for update skip locked%'";
        let Some(text) = stores.sql(sql)? else { return Ok(None) };
        Ok(Some(text.trim().parse().context("the server's count of pages")?))
    }

    /// Removes the store, so that the next one has the machine to itself.
    async fn delete(self, stores: &Stores) -> anyhow::Result<()> {
        let Fixture { engine, url, .. } = self;
        drop(engine);
        stores.delete(&url)
    }
}

fn queued(ids: &IdSource, n: usize, key: Option<usize>) -> NewJob {
    let key_text = key.map_or("null".into(), |key| key.to_string());
    let input = Payload::json(format!("{{\"n\":{n},\"key\":{key_text}}}").into_bytes());
    let mut job = NewJob::new(ids.job(), Queued::KIND, "default", input);
    job.settings.serial = key.map(|key| Box::new(Serial::new(format!("hot{key}"))));
    job
}
