//! Workflows: many at once, one long one, and one that is brought back to where it was.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use windlass::{Engine, Filter, prelude::*};

use super::{Stores, helper::Helper, record::Account, report::Report};

/// How many workflows are in flight.
const AT_ONCE: usize = 100;

/// How often each workflow's step was executed.
static EXECUTED: OnceLock<Vec<AtomicU32>> = OnceLock::new();

fn executed(n: usize) {
    if let Some(executed) = EXECUTED.get().and_then(|all| all.get(n)) {
        executed.fetch_add(1, Ordering::Relaxed);
    }
}

/// One step that does nothing.
#[derive(Serialize, Deserialize)]
struct One {
    n: usize,
}

impl Workflow for One {
    const KIND: &'static str = "bench.one";
    type Output = usize;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<usize, Failure> {
        let n = self.n;
        flow.step("only", || async move {
            executed(n);
            Ok(n)
        })
        .await
    }
}

/// n workflows of one step, a fixed number of them in flight: taken from a full queue, and then submitted and awaited by as many
/// clients.
pub(super) async fn run(stores: &Stores, n: usize) -> anyhow::Result<Report> {
    EXECUTED.get_or_init(|| (0..2 * n).map(|_| AtomicU32::new(0)).collect());
    let url = stores.url();
    let engine =
        Engine::builder(&url).workflow::<One>().queue("default", Pool::slots(AT_ONCE)).open().await?;
    let submitted = engine.submit_all((0..n).map(|n| One { n })).await?;
    let mut ids = submitted.iter().map(|job| job.id()).collect::<Result<Vec<JobId>, _>>()?;
    stores.settle_store(&url)?;
    let started = Instant::now();
    engine.start().await?;
    let deadline = started + Duration::from_secs(300);
    // Two commits each: the step, and the end.
    while engine.counts().committed < 2 * n as u64 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let commits = engine.counts().commits;
    stores.settle_store(&url)?;
    let begun = Instant::now();
    ids.extend(clients(&engine, n).await?);
    let answered = n as f64 / begun.elapsed().as_secs_f64();
    let answered_commits = engine.counts().commits - commits;
    engine.stop().await;
    let mut account = Account { lost: (2 * n).saturating_sub(ids.len()), duplicated: 0 };
    // Every step has an entry of its own, which was committed before its workflow went on.
    for (index, id) in ids.iter().enumerate() {
        let entries = engine.inspect().journal(*id, None, 2).await?;
        let ended = engine.store().job_ends(&[*id]).await?.pop().flatten();
        let is_done = matches!(ended, Some(windlass::store::JobEnd::Done(_)));
        account.lost += usize::from(entries.len() != 1 || !is_done);
        let times = EXECUTED.get().map_or(0, |all| all[index].load(Ordering::Relaxed));
        account.lost += usize::from(times == 0);
        account.duplicated += times.saturating_sub(1) as usize;
    }
    let bytes = engine.inspect().bytes().await?;
    Ok(Report::new("flow", stores.name(), n)
        .rate(n, seconds)
        .figure("answered_per_second", answered)
        .figure("answered_commits_per_job", answered_commits as f64 / n as f64)
        .figure("commits_per_job", commits as f64 / n as f64)
        .figure("db_bytes_per_job", bytes as f64 / (2 * n) as f64)
        .account(account))
}

/// Several clients, each of which submits a workflow and waits for its result, until there were n.
async fn clients(engine: &Engine, n: usize) -> anyhow::Result<Vec<JobId>> {
    let next = Arc::new(AtomicUsize::new(n));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (engine, next) = (engine.clone(), Arc::clone(&next));
        clients.spawn(async move {
            let mut ids = Vec::new();
            loop {
                let mine = next.fetch_add(1, Ordering::Relaxed);
                if mine >= 2 * n {
                    return anyhow::Ok(ids);
                }
                let job = engine.submit(One { n: mine }).await?;
                anyhow::ensure!(job.result().await? == mine, "workflow {mine} returned something else");
                ids.push((mine, job.id()));
            }
        });
    }
    let mut ids = Vec::with_capacity(n);
    while let Some(client) = clients.join_next().await {
        ids.extend(client??);
    }
    ids.sort_unstable();
    Ok(ids.into_iter().map(|(_, id)| id).collect())
}

/// Sequential steps.
#[derive(Serialize, Deserialize)]
struct Chain {
    steps: usize,
    counted: bool,
}

impl Workflow for Chain {
    const KIND: &'static str = "bench.flowchain";
    type Output = usize;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<usize, Failure> {
        let mut sum = 0;
        let counted = self.counted;
        for step in 0..self.steps {
            sum += flow
                .step("step", || async move {
                    if counted {
                        executed(0);
                    }
                    Ok(1)
                })
                .key(step)
                .await?;
        }
        Ok(sum)
    }
}

/// One workflow of n steps, one after the other.
pub(super) async fn chain(stores: &Stores, n: usize) -> anyhow::Result<Report> {
    EXECUTED.get_or_init(|| vec![AtomicU32::new(0)]);
    let url = stores.url();
    let engine = Engine::builder(&url).workflow::<Chain>().start().await?;
    // Once to have everything warm, then for the record.
    engine.submit(Chain { steps: n.min(100), counted: false }).await?.result().await?;
    stores.settle_store(&url)?;
    let bare = n.clamp(100, 2_000) / 2;
    let before = stores.bare_commits(bare).await?;
    let engine_commits = engine.counts().commits;
    let started = Instant::now();
    let job = engine.submit(Chain { steps: n, counted: true }).await?;
    let sum = job.result().await?;
    let seconds = started.elapsed().as_secs_f64();
    let commits = engine.counts().commits - engine_commits;
    let bare = (before + stores.bare_commits(bare).await?) / 2.0;
    engine.stop().await;
    let kept = engine.inspect().journal(job.id(), None, n + 1).await?.len();
    let executed = EXECUTED.get().map_or(0, |all| all[0].load(Ordering::Relaxed)) as usize;
    let lost = n.saturating_sub(kept.min(sum));
    let account = Account { lost, duplicated: executed.saturating_sub(n) };
    Ok(Report::new("flowchain", stores.name(), n)
        .rate(n, seconds)
        .figure("floor_per_second", bare)
        .figure("floor_ratio", n as f64 / seconds / bare)
        .figure("commits_per_step", commits as f64 / n as f64)
        .account(account))
}

/// When the steps after a replay started.
static LIVE: Mutex<Vec<Instant>> = Mutex::new(Vec::new());

/// Many finished steps, then one after a signal, again and again.
#[derive(Serialize, Deserialize)]
struct Long {
    steps: usize,
    rounds: usize,
}

impl Workflow for Long {
    const KIND: &'static str = "bench.long";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        for step in 0..self.steps {
            // A hundred bytes as they are kept.
            flow.step("fill", || async move { Ok(format!("{step:098}")) }).key(step).await?;
        }
        for round in 0..self.rounds {
            flow.signal::<()>("go").key(round).await?;
            flow.step("live", || async {
                LIVE.lock().unwrap_or_else(|e| e.into_inner()).push(Instant::now());
                Ok(())
            })
            .key(round)
            .await?;
        }
        Ok(())
    }
}

/// A workflow that sleeps for a long time.
#[derive(Serialize, Deserialize)]
struct Sleeper {
    n: usize,
}

impl Workflow for Sleeper {
    const KIND: &'static str = "bench.sleeping";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.step("before", async || Ok(())).await?;
        flow.sleep(days(365)).await;
        Ok(())
    }
}

/// A parked workflow with n finished steps, woken in a fresh process; and what as many sleeping ones cost an idle engine.
pub(super) async fn replay(stores: &Stores, n: usize, quick: bool) -> anyhow::Result<Report> {
    let url = stores.url();
    let rounds = if quick { 2 } else { 15 };
    let dir = tempfile::tempdir().context("a temporary folder")?;
    // One process makes it and is gone before another brings it back.
    let filling = engine(&url).await?;
    let job = filling.submit(Long { steps: n, rounds }).await?;
    parked(&filling, 1).await?;
    filling.stop().await;
    drop(filling);
    stores.settle_store(&url)?;
    let record = dir.path().join("replay");
    let mut latencies = Vec::new();
    for round in 0..rounds {
        let mut helper = Helper::start("replay-worker", &url, &record).await?;
        helper.send(&format!("go {}", job.id())).await?;
        helper.stop().await?;
        let text = std::fs::read_to_string(&record).context("what the other process saw")?;
        latencies.push(text.trim().parse::<f64>().with_context(|| format!("round {round}: {text:?}"))?);
    }
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    // The sleepers are made by another process, so that nothing of their making is in this one.
    let mut helper = Helper::start("replay-worker", &url, &record).await?;
    let sleepers = if quick { 50 } else { 10_000 };
    helper.send("rss").await?;
    let before = read(&record)?;
    let submitting = Engine::open(&url).await?;
    submitting.submit_all((0..sleepers).map(|n| Sleeper { n })).await?;
    parked(&submitting, sleepers).await?;
    tokio::time::sleep(Duration::from_secs(if quick { 0 } else { 3 })).await;
    helper.send("rss").await?;
    let after = read(&record)?;
    helper.stop().await?;
    Ok(Report::new("replay", stores.name(), n)
        .figure("p50_ms", at(0.5))
        .figure("p99_ms", at(0.99))
        .with("sleeping", sleepers as u32)
        .figure("sleeping_rss_mb", after - before))
}

fn read(record: &std::path::Path) -> anyhow::Result<f64> {
    Ok(std::fs::read_to_string(record).context("what the other process saw")?.trim().parse()?)
}

async fn engine(url: &str) -> anyhow::Result<Engine> {
    let engine = Engine::builder(url).workflow::<Long>().workflow::<Sleeper>();
    Ok(engine.queue("default", Pool::slots(AT_ONCE)).start().await?)
}

/// Sends the signal. Returns how long it took until the next step started, in milliseconds.
async fn wake(engine: &Engine, job: JobId) -> anyhow::Result<f64> {
    parked(engine, 1).await?;
    let count = || LIVE.lock().unwrap_or_else(|e| e.into_inner()).len();
    let before = count();
    let sender = engine.clone();
    // From a task of the runtime, where a program's own signals come from.
    let sent = tokio::spawn(async move {
        let sent = Instant::now();
        sender.signal(job, "go", ()).await.map(|_| sent)
    })
    .await??;
    let deadline = sent + Duration::from_secs(30);
    while count() == before {
        anyhow::ensure!(Instant::now() < deadline, "the workflow was not woken");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    let live = LIVE.lock().unwrap_or_else(|e| e.into_inner())[before];
    Ok((live - sent).as_secs_f64() * 1_000.0)
}

/// Waits until n workflows are parked.
async fn parked(engine: &Engine, n: usize) -> anyhow::Result<()> {
    let filter = Filter { state: Some(windlass::State::Waiting), ..Filter::default() };
    let deadline = Instant::now() + Duration::from_secs(300);
    while engine.inspect().count_jobs(&filter, n).await?.jobs.into_values().sum::<u64>() < n as u64 {
        anyhow::ensure!(Instant::now() < deadline, "not all workflows were parked");
        tokio::time::sleep(Duration::from_millis(if n == 1 { 5 } else { 100 })).await;
    }
    Ok(())
}

/// The other process of the replay workload.
pub(super) async fn replay_worker(
    url: &str,
    record: &std::path::Path,
) -> anyhow::Result<std::process::ExitCode> {
    let engine = engine(url).await?;
    // It must have done its first work before it reports that it is ready.
    tokio::time::sleep(Duration::from_millis(300)).await;
    super::helper::serve_commands_with(async |word: &str| {
        let figure = match word.strip_prefix("go ") {
            Some(job) => wake(&engine, job.parse().map_err(|error| anyhow::anyhow!("{error}"))?).await?,
            None => rss()?,
        };
        std::fs::write(record, figure.to_string()).context("writing what was seen")
    })
    .await
}

/// Memory of this process, in megabytes.
fn rss() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("this process's statistics")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("its memory")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1_024.0)
}
