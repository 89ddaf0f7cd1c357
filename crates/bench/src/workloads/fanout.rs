//! One parent, n children, a merge.

use std::{
    path::Path,
    process::ExitCode,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;
use clap::ValueEnum;
use windlass::{
    Engine, Time,
    model::BranchNo,
    prelude::*,
    store::{BranchChildFilter, ChildStates, JobEnd},
};

use super::{
    Stores,
    executions::{self, Compared, Sum},
    helper::Helper,
    record::Account,
    report::Report,
};

/// How many children run at once.
const SLOTS: usize = 200;
/// How long workers live while there is chaos.
const LIFE: Duration = Duration::from_secs(2);
/// How many workers there are then.
const WORKERS: usize = 2;

/// What the children are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Tasks that do nothing
    Task,
    /// Workflows of one step that does nothing
    Flow,
}

/// What to measure.
#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) n: usize,
    pub(super) child: Kind,
    pub(super) packed: bool,
    pub(super) failing: bool,
    pub(super) chaos: bool,
}

/// How often each child was executed, in this process.
static EXECUTED: OnceLock<Vec<AtomicU8>> = OnceLock::new();
/// When the parent went on.
static MERGED: OnceLock<SystemTime> = OnceLock::new();
/// Whether every hundredth child fails when it is first executed.
static FAILING: AtomicBool = AtomicBool::new(false);

/// Records an execution. Fails if that is planned.
fn executed(n: usize) -> Result<usize, Failure> {
    executions::note(n)
        .map_err(|error| Failure::retry(format!("the execution cannot be recorded: {error}")))?;
    let before = match EXECUTED.get().and_then(|all| all.get(n)) {
        Some(executed) => executed.fetch_add(1, Ordering::Relaxed),
        None => 1,
    };
    match before == 0 && n.is_multiple_of(100) && FAILING.load(Ordering::Relaxed) {
        true => Err(Failure::retry("planned")),
        false => Ok(n),
    }
}

#[derive(Serialize, Deserialize)]
struct ItemTask {
    n: usize,
}

impl Task for ItemTask {
    const KIND: &'static str = "bench.item";
    type Output = usize;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<usize, Failure> {
        executed(self.n)
    }

    fn retry() -> Retry {
        Retry::times(5)
    }
}

#[derive(Serialize, Deserialize)]
struct ItemFlow {
    n: usize,
}

impl Workflow for ItemFlow {
    const KIND: &'static str = "bench.itemflow";
    type Output = usize;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<usize, Failure> {
        let n = self.n;
        flow.step("only", || async move { executed(n) }).await
    }
}

/// Somebody else's job, which must not have to wait for all these children.
#[derive(Serialize, Deserialize)]
struct Probe;

impl Task for Probe {
    const KIND: &'static str = "bench.probe";
    const QUEUE: &'static str = "probe";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

/// Submits probes one after the other. Returns how long each took, in milliseconds.
async fn probe(engine: Engine, over: Arc<AtomicBool>) -> anyhow::Result<Vec<f64>> {
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        engine.submit(Probe).await?.result().await?;
        took.push(started.elapsed().as_secs_f64() * 1_000.0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// The parent.
#[derive(Serialize, Deserialize)]
struct Fan {
    n: usize,
    child: Kind,
    packed: bool,
    /// Whether what all children returned is read back.
    reduces: bool,
}

impl Workflow for Fan {
    const KIND: &'static str = "bench.fan";
    /// How many are done, and their results, if those are read.
    type Output = (u64, Option<Sum>);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, Option<Sum>), Failure> {
        let branch = flow.branch("items");
        let merging = match (self.child, self.packed) {
            (Kind::Task, true) => branch.packed().spawn_each("item", 0..self.n, |n| ItemTask { n }),
            (Kind::Task, false) => branch.spawn_each("item", 0..self.n, |n| ItemTask { n }),
            (Kind::Flow, _) => branch.spawn_each("item", 0..self.n, |n| ItemFlow { n }),
        }
        .automerge();
        if self.reduces {
            let sum = merging.reduce(Sum::default(), Sum::and).await?;
            return Ok((sum.ends, Some(sum)));
        }
        let merged = merging.await?;
        let _ = MERGED.set(SystemTime::now());
        Ok((merged.done, None))
    }
}

async fn engine(url: &str) -> anyhow::Result<Engine> {
    let engine = Engine::builder(url).task::<ItemTask>().workflow::<ItemFlow>().workflow::<Fan>();
    let engine = engine.task::<Probe>().queue("default", Pool::slots(SLOTS)).queue("probe", Pool::slots(2));
    Ok(engine.open().await?)
}

pub(super) async fn run(stores: &mut Stores, options: Options) -> anyhow::Result<Report> {
    let Options { n, child, packed, failing, chaos } = options;
    anyhow::ensure!(!packed || child == Kind::Task, "packed children are tasks; leave out `--child flow`");
    EXECUTED.get_or_init(|| (0..n).map(|_| AtomicU8::new(0)).collect());
    FAILING.store(failing, Ordering::Relaxed);
    let url = stores.url();
    let engine = engine(&url).await?;
    let fan = Fan { n, child, packed, reduces: packed || chaos };
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let (mut killed, mut others) = (Killed::default(), Vec::new());
    let (job, seconds) = if chaos {
        let job = engine.submit(fan).await?.id();
        let started = Instant::now();
        killed = Box::pin(survive(stores, &engine, &url, folder.path(), job, n)).await?;
        (job, started.elapsed().as_secs_f64())
    } else {
        engine.start().await?;
        stores.settle_store(&url)?;
        let over = Arc::new(AtomicBool::new(false));
        let probe = tokio::spawn(probe(engine.clone(), Arc::clone(&over)));
        let started = Instant::now();
        let job = engine.submit(fan).await?;
        job.result().await?;
        let seconds = started.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        others = probe.await??;
        engine.stop().await;
        (job.id(), seconds)
    };
    let bytes = engine.inspect().bytes().await?;
    let seen = seen(&engine, job, options, folder.path()).await?;
    let woken = MERGED.get().and_then(|merged| {
        let merged = Time::from_system(*merged);
        Some((merged - seen.last?).as_secs_f64() * 1_000.0)
    });
    let report = Report::new("fanout", stores.name(), n)
        .with("child", if child == Kind::Task { "task" } else { "flow" })
        .with("packed", packed)
        .with("chaos", chaos)
        .rate(n, seconds)
        .figure("db_bytes_per_job", bytes as f64 / n as f64)
        .with("rows", seen.rows as u64)
        .with("promoted", seen.promoted as u64)
        .account(seen.account)
        .must(seen.adds_up);
    let report = match chaos {
        true => report
            .with("killed", killed.workers)
            .with("servers_killed", killed.servers)
            .with("rerun", seen.rerun as u64),
        false => report,
    };
    let report = match woken {
        Some(woken) => report.figure("woken_ms", woken),
        None => report,
    };
    let at = |part: f64| others.get(((others.len().max(1) - 1) as f64 * part) as usize).copied();
    Ok(match (at(0.5), at(0.99)) {
        (Some(p50), Some(p99)) => report.figure("p50_ms", p50).figure("p99_ms", p99),
        _ => report,
    })
}

/// What was killed before the parent had ended.
#[derive(Default)]
struct Killed {
    workers: u32,
    servers: u32,
}

/// Keeps workers alive for a short time each until the parent has ended, and kills a private server twice: when a third of the
/// children have ended, and when two thirds have.
async fn survive(
    stores: &mut Stores,
    engine: &Engine,
    url: &str,
    record: &Path,
    job: JobId,
    n: usize,
) -> anyhow::Result<Killed> {
    let mut workers = std::collections::VecDeque::new();
    for _ in 0..WORKERS {
        workers.push_back(Helper::start("fanout-worker", url, record).await?);
    }
    let deadline = Instant::now() + Duration::from_secs(900);
    let mut killed = Killed::default();
    let mut parts = 0;
    loop {
        let life = Instant::now() + LIFE / WORKERS as u32;
        while Instant::now() < life {
            if let Ok(ended) = engine.store().job_ends(&[job]).await
                && ended[0].is_some()
            {
                for worker in workers {
                    worker.kill().await?;
                }
                return Ok(killed);
            }
            let branches = engine.inspect().branches(job).await.unwrap_or_default();
            let ended: i64 = branches.iter().map(|branch| branch.counts.ended()).sum();
            if parts < 2 && ended as usize * 3 >= n * (parts + 1) {
                parts += 1;
                killed.servers += u32::from(stores.crash()?);
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::ensure!(Instant::now() < deadline, "the parent has not ended");
        if let Some(oldest) = workers.pop_front() {
            oldest.kill().await?;
            killed.workers += 1;
        }
        workers.push_back(Helper::start("fanout-worker", url, record).await?);
    }
}

/// One of the workers while there is chaos. It records what it executes in this folder.
pub(super) async fn worker(url: &str, record: &Path) -> anyhow::Result<ExitCode> {
    executions::record_in(record)?;
    let engine = engine(url).await?;
    engine.start().await?;
    super::helper::serve_commands(|_| {}).await
}

struct Seen {
    account: Account,
    adds_up: bool,
    rows: usize,
    /// Items that became jobs of their own.
    promoted: usize,
    /// Executions beyond one for each item, where workers are killed.
    rerun: usize,
    /// When the last child ended.
    last: Option<Time>,
}

/// Reads all children back, and compares what was executed, as it was recorded outside the store, with what the parent counted
/// and what was counted.
async fn seen(engine: &Engine, job: JobId, options: Options, record: &Path) -> anyhow::Result<Seen> {
    let Options { n, packed, failing, chaos, .. } = options;
    let branches = engine.inspect().branches(job).await?;
    let [branch] = branches.as_slice() else { anyhow::bail!("the parent has {} branches", branches.len()) };
    let mut done = vec![0_u8; n];
    let mut seen =
        Seen { account: Account::default(), adds_up: true, rows: 0, promoted: 0, rerun: 0, last: None };
    let mut filter = page(job, branch.number, if packed { 20 } else { 2_000 });
    loop {
        let page = engine.inspect().branch_children(&filter).await?;
        let Some(last) = page.last() else { break };
        filter.after = Some(last.summary.id);
        for child in page {
            seen.rows += 1;
            seen.last = seen.last.max(child.summary.finished_at);
            let Some(JobEnd::Done(output)) = child.ended else { continue };
            if child.summary.stage.is_none() {
                seen.promoted += usize::from(packed);
                note(&mut done, serde_json::from_slice(&output.bytes)?);
                continue;
            }
            let block: serde_json::Value = serde_json::from_slice(&output.bytes)?;
            let results = block["results"].as_array().cloned().unwrap_or_default();
            results.iter().filter_map(serde_json::Value::as_u64).for_each(|n| note(&mut done, n as usize));
        }
    }
    let ended = engine.store().job_ends(&[job]).await?.pop().flatten();
    let output: Option<(u64, Option<Sum>)> = match ended {
        Some(JobEnd::Done(output)) => serde_json::from_slice(&output.bytes).ok(),
        _ => None,
    };
    let sum = output.and_then(|(_, sum)| sum);
    if chaos {
        let executed = executions::read(record, n)?;
        let Compared { lost, duplicated, rerun } = executions::compare(&executed, sum.unwrap_or_default());
        (seen.account, seen.rerun) = (Account { lost, duplicated }, rerun);
    } else {
        let times = |n: usize| EXECUTED.get().map_or(0, |all| all[n].load(Ordering::Relaxed));
        let planned = |n: usize| if failing && n.is_multiple_of(100) { 2 } else { 1 };
        for (n, ends) in done.iter().enumerate() {
            seen.account.lost += usize::from(*ends == 0 || times(n) == 0);
            seen.account.duplicated += usize::from(*ends > 1 || times(n) > planned(n));
        }
    }
    // The store's rows and counts must agree.
    let all = (0..n as u64).fold(Sum::default(), Sum::and);
    seen.adds_up = output.is_some_and(|(done, _)| done == n as u64)
        && (sum == Some(all) || (sum.is_none() && !packed && !chaos))
        && done.iter().all(|ends| *ends == 1)
        && branch.counts.ends() == (n as i64, 0, 0)
        && branch.spawned == n as i64
        && branch.merged;
    Ok(seen)
}

fn note(done: &mut [u8], n: usize) {
    if let Some(done) = done.get_mut(n) {
        *done = done.saturating_add(1);
    }
}

fn page(job: JobId, branch: BranchNo, limit: usize) -> BranchChildFilter {
    BranchChildFilter { job, branch, states: ChildStates::Ended, after: None, limit }
}
