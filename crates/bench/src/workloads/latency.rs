//! One job at a time: how soon it starts, how soon its outcome is committed.

use std::{
    process::{ExitCode, Stdio},
    sync::Mutex,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use hdrhistogram::Histogram;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use windlass::{Engine, Pool, prelude::*};

use super::{
    Stores,
    record::{self, Noop},
    report::Report,
};

/// When handlers started, by the machine's clock in nanoseconds, and which submit they belong to.
static STARTS: Mutex<Vec<(usize, u128, u128)>> = Mutex::new(Vec::new());

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// A task that notes when it starts.
#[derive(Serialize, Deserialize)]
struct Stamp {
    n: usize,
    submitted: u128,
}

impl Task for Stamp {
    const KIND: &'static str = "bench.stamp";
    type Output = usize;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<usize, Failure> {
        STARTS.lock().unwrap_or_else(|e| e.into_inner()).push((self.n, self.submitted, now()));
        Ok(self.n)
    }
}

/// Latencies in microseconds.
struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> anyhow::Result<Latencies> {
        Ok(Latencies(Histogram::new(3)?))
    }

    fn add(&mut self, nanos: u128) {
        let _ = self.0.record((nanos / 1_000) as u64);
    }

    fn ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1_000.0
    }
}

pub(super) async fn run(stores: &Stores, n: usize, quick: bool) -> anyhow::Result<Report> {
    let url = stores.url();
    let engine = Engine::builder(&url).task::<Stamp>().task::<Noop>().queue("default", Pool::default());
    let engine = engine.start().await?;
    // From a task of the runtime, where a program's own submits come from.
    let (started, committed, seconds) = tokio::spawn(alone(engine.clone(), n)).await??;
    let other = elsewhere(&engine, &url, false, if quick { 1 } else { 12 }).await?;
    let busy = elsewhere(&engine, &url, true, if quick { 3 } else { 40 }).await?;
    engine.stop().await;
    Ok(Report::new("latency", stores.name(), n)
        .rate(n, seconds)
        .figure("p50_ms", committed.ms(0.5))
        .figure("p99_ms", committed.ms(0.99))
        .figure("started_p50_ms", started.ms(0.5))
        .figure("started_p99_ms", started.ms(0.99))
        .figure("committed_p50_ms", committed.ms(0.5))
        .figure("committed_p99_ms", committed.ms(0.99))
        .figure("other_idle_p50_ms", other.ms(0.5))
        .figure("other_idle_max_ms", other.ms(1.0))
        .figure("other_busy_p50_ms", busy.ms(0.5))
        .figure("other_busy_p99_ms", busy.ms(0.99)))
}

/// In one process, on an idle engine: a job is submitted when the one before has ended.
async fn alone(engine: Engine, n: usize) -> anyhow::Result<(Latencies, Latencies, f64)> {
    let (mut started, mut committed) = (Latencies::new()?, Latencies::new()?);
    let warm_up = 20;
    let begun = Instant::now();
    for n in 0..n + warm_up {
        let submitted = now();
        let job = engine.submit(Stamp { n, submitted }).await?;
        job.result().await?;
        let ended = now();
        let start = STARTS.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let (_, _, start) = start.context("a job ended without having started")?;
        if n >= warm_up {
            started.add(start - submitted);
            committed.add(ended - submitted);
        }
    }
    Ok((started, committed, begun.elapsed().as_secs_f64()))
}

/// Submitted by another process, with this one's worker idle or busy.
async fn elsewhere(engine: &Engine, url: &str, busy: bool, n: usize) -> anyhow::Result<Latencies> {
    STARTS.lock().unwrap_or_else(|e| e.into_inner()).clear();
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .args(["bench", "latency-submitter", "--store", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting the other process")?;
    let mut stdin = child.stdin.take().context("the other process's input")?;
    let mut stdout = BufReader::new(child.stdout.take().context("the other process's output")?).lines();
    let background = busy.then(|| tokio::spawn(keep_busy(engine.clone())));
    let mut latencies = Latencies::new()?;
    for n in 0..n {
        // Idle: long enough for the worker to reach its longest poll interval, and never in step with its polls.
        let pause = if busy { 30.0 + fastrand::f64() * 40.0 } else { 2_500.0 + fastrand::f64() * 2_000.0 };
        tokio::time::sleep(Duration::from_secs_f64(pause / 1_000.0)).await;
        stdin.write_all(format!("{n}\n").as_bytes()).await?;
        stdout.next_line().await?.context("the other process ended")?;
        let start = wait_for(n).await?;
        latencies.add(start);
    }
    drop(stdin);
    if let Some(background) = background {
        background.abort();
    }
    child.wait().await?;
    Ok(latencies)
}

/// Nanoseconds from submit to start of one job.
async fn wait_for(wanted: usize) -> anyhow::Result<u128> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let found = {
            let starts = STARTS.lock().unwrap_or_else(|e| e.into_inner());
            starts
                .iter()
                .find(|(n, ..)| *n == wanted)
                .map(|(_, submitted, start)| start.saturating_sub(*submitted))
        };
        if let Some(nanos) = found {
            return Ok(nanos);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    anyhow::bail!("a job submitted by another process did not start within a minute")
}

/// Keeps the worker supplied: a steady backlog of a few hundred no-op jobs.
async fn keep_busy(engine: Engine) -> Result<(), windlass::Error> {
    record::prepare(0);
    let mut submitted = 0u64;
    loop {
        if submitted.saturating_sub(engine.counts().committed) < 500 {
            engine.submit_all((0..250).map(|n| Noop { n })).await?;
            submitted += 250;
        } else {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
}

/// The other process: submits a job for each line it reads.
pub(super) async fn submitter(url: &str) -> anyhow::Result<ExitCode> {
    let engine = Engine::open(url).await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        engine.submit(Stamp { n: line.trim().parse()?, submitted: now() }).await?;
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}
