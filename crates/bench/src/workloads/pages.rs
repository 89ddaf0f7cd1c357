//! Every page of the dashboard on a large store: how long the server takes, how large the pages are, and what open pages cost.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use windlass::{Engine, JobId, Pool, State, prelude::*};
use windlass_http::{Client, Options, Request};
use windlass_server::{Server, Settings};

use super::{Stores, report::Report};

/// How often each page is read.
const TIMES: usize = 50;
/// How many pages are open while the store is idle.
const OPEN: usize = 200;
/// For how long the statements of open pages are counted.
const COUNTED: Duration = Duration::from_secs(30);
/// How long jobs may take to be submitted and run.
const PATIENCE: Duration = Duration::from_secs(900);

/// A job of the mix: one in two hundred fails.
#[derive(Serialize, Deserialize)]
struct Mail {
    n: usize,
}

impl Task for Mail {
    const KIND: &'static str = "bench.mail";
    const QUEUE: &'static str = "mail";
    type Output = usize;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<usize, Failure> {
        match self.n % 200 {
            7 => Err(Failure::stop(format!("the address {} is not known", self.n))),
            _ => Ok(self.n),
        }
    }
}

/// A job that nobody runs.
#[derive(Serialize, Deserialize)]
struct Idle {
    n: usize,
}

impl Task for Idle {
    const KIND: &'static str = "bench.idle";
    const QUEUE: &'static str = "idle";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

/// A child of the branch.
#[derive(Serialize, Deserialize)]
struct Item {
    n: usize,
}

impl Task for Item {
    const KIND: &'static str = "bench.item";
    const QUEUE: &'static str = "items";
    type Output = usize;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<usize, Failure> {
        Ok(self.n)
    }
}

/// Opens a branch of `n` children and merges it.
#[derive(Serialize, Deserialize)]
struct Batch {
    n: usize,
}

impl Workflow for Batch {
    const KIND: &'static str = "bench.batch";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let n = flow.step("plan", async || Ok(self.n)).await?;
        flow.branch("items").spawn_each("item", 0..n, |n| Item { n }).merge(Merge::all()).await?;
        Ok(())
    }
}

/// A machine that waits for a signal.
#[derive(Serialize, Deserialize)]
enum Claim {
    Received,
    Checked,
}

impl Machine for Claim {
    const KIND: &'static str = "bench.claim";
    type Output = ();
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Ok(match self {
            Claim::Received => Next::wait(Claim::Checked, WaitFor::signal("approved")),
            Claim::Checked => Next::done(()),
        })
    }
}

/// Jobs that pages show.
struct Shown {
    failed: JobId,
    done: JobId,
    machine: JobId,
    batch: JobId,
}

/// Fills a store with `n` jobs, half of them in one branch, and reads every page.
pub(super) async fn run(stores: &Stores, n: usize, quick: bool) -> anyhow::Result<Report> {
    let (times, counted) = if quick { (3, Duration::from_secs(3)) } else { (TIMES, COUNTED) };
    let kinds = |builder: windlass::Builder| {
        builder.task::<Mail>().task::<Idle>().task::<Item>().workflow::<Batch>().machine::<Claim>()
    };
    let url = stores.url();
    let shown = fill(kinds(Engine::builder(&url)), n).await?;
    stores.settle()?;

    // It runs nothing: all its statements are of pages.
    let host = kinds(Engine::builder(&url)).open().await?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings { listen, rate: 0, ..Settings::default() };
    let server = Server::bind(host.clone(), settings).await?;
    let client = Client::new(&format!("http://{}", server.address()), Options::default())?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));

    let pages = pages(&shown);
    let mut idle = Measured::default();
    for page in &pages {
        idle.read(&client, page, times).await?;
    }
    let statements_per_second = open_pages(&host, &client, &pages, counted).await?;

    // The children drain while all pages are read again, one after the other.
    let worker =
        kinds(Engine::builder(&url)).serve_only([("items".to_owned(), Pool::slots(64))]).start().await?;
    let mut draining = Measured::default();
    for round in 0..times {
        for page in &pages {
            draining.read(&client, page, 1).await?;
        }
        let left = host.inspect().state_counts().await?;
        let left: u64 = left
            .iter()
            .filter(|count| count.kind == "bench.item" && !count.state.is_final())
            .map(|count| count.jobs)
            .sum();
        if left == 0 {
            crate::out::note(&format!("the branch was empty after {} of {times} rounds", round + 1));
            break;
        }
    }
    worker.stop().await;
    drop((client, stop));
    serving.await?;
    host.stop().await;

    let (_, slowest) = idle.slowest();
    let (_, slowest_draining) = draining.slowest();
    let (largest, _) = idle.largest();
    Ok(Report::new("pages", stores.name(), n)
        .figure("p95_ms", slowest)
        .figure("draining_p95_ms", slowest_draining)
        .figure("html_kb", largest)
        .figure("statements_per_second", statements_per_second)
        .with("pages", idle.to_json(&draining)))
}

/// Submits the jobs, and runs those that are to end.
async fn fill(builder: windlass::Builder, n: usize) -> anyhow::Result<Shown> {
    let engine = builder
        .serve_only(["mail", "default"].map(|queue| (queue.to_owned(), Pool::slots(64))))
        .start()
        .await?;
    let (children, mails, machines) = (n / 2, n / 4, (n / 100).min(5_000));
    let submitted = engine.submit_all((0..mails).map(|n| Mail { n })).await?;
    let (failed, done) = (submitted.get(7), submitted.first());
    let failed = failed.context("there are too few jobs; use --n 1000 or more")?.id()?;
    let done = done.context("there are no jobs")?.id()?;
    let waiting = engine.submit_all((0..machines).map(|_| Claim::Received)).await?;
    let machine = waiting.first().context("there are no machines; use --n 1000 or more")?.id()?;
    engine.submit_all((0..n - children - mails - machines).map(|n| Idle { n })).tag("later").await?;
    let batch = engine.submit(Batch { n: children }).key("batch").await?.id();
    let control = engine.control("bench").note("measured");
    let _ = control.pause_queue("idle").await?;
    let started = Instant::now();
    loop {
        ensure!(started.elapsed() < PATIENCE, "the store was not filled in time");
        let counts = engine.inspect().state_counts().await?;
        let of = |kind: &str, state| {
            counts
                .iter()
                .filter(|count| count.kind == kind && count.state == state)
                .map(|count| count.jobs)
                .sum::<u64>()
        };
        let mails_left = of("bench.mail", State::Ready) + of("bench.mail", State::Running);
        let items = of("bench.item", State::Ready);
        if mails_left == 0
            && items as usize == children
            && of("bench.claim", State::Waiting) as usize == machines
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    engine.stop().await;
    Ok(Shown { failed, done, machine, batch })
}

/// All pages, each with the queries that people use most.
fn pages(shown: &Shown) -> Vec<String> {
    let Shown { failed, done, machine, batch } = shown;
    let fixed = [
        "/",
        "/jobs",
        "/jobs?state=failed",
        "/jobs?state=ready",
        "/jobs?state=waiting",
        "/jobs?state=done",
        "/jobs?kind=bench.mail",
        "/jobs?queue=idle&kind=bench.idle",
        "/jobs?tag=later",
        "/jobs?key_prefix=ba",
        "/jobs?state=failed&preview=retry",
        "/branches",
        "/waiting",
        "/failures",
        "/schedules",
        "/queues",
        "/workers",
        "/analytics",
        "/analytics?span=24h",
        "/audit",
        "/access",
        "/submit",
    ];
    let jobs = [
        format!("/jobs/{failed}"),
        format!("/jobs/{done}"),
        format!("/jobs/{machine}"),
        format!("/jobs/{batch}"),
        format!("/jobs/{batch}/branches/items"),
        format!("/jobs/{batch}/branches/items?only=live"),
        format!("/jobs/{batch}/branches/items?only=all"),
    ];
    fixed.into_iter().map(String::from).chain(jobs).collect()
}

/// How long pages took, and how large they were.
#[derive(Default)]
struct Measured {
    pages: Vec<(String, Vec<f64>, usize)>,
}

impl Measured {
    /// Reads a page some times.
    async fn read(&mut self, client: &Client, page: &str, times: usize) -> anyhow::Result<()> {
        let index = match self.pages.iter().position(|(known, ..)| known == page) {
            Some(index) => index,
            None => {
                self.pages.push((page.to_owned(), Vec::new(), 0));
                self.pages.len() - 1
            }
        };
        for _ in 0..times {
            let started = Instant::now();
            let response = client.send(Request::get(page)).await.with_context(|| format!("GET {page}"))?;
            let status = response.status();
            let bytes = response.bytes().await?;
            let took = started.elapsed().as_secs_f64() * 1_000.0;
            ensure!(
                status.is_success(),
                "GET {page} was answered with {status}: {}",
                String::from_utf8_lossy(&bytes)
            );
            let (_, all, size) = &mut self.pages[index];
            all.push(took);
            *size = (*size).max(bytes.len());
        }
        Ok(())
    }

    fn slowest(&self) -> (&str, f64) {
        let all = self.pages.iter().map(|(page, took, _)| (page.as_str(), p95(took)));
        all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", 0.0))
    }

    /// In kB.
    fn largest(&self) -> (f64, &str) {
        let all = self.pages.iter().map(|(page, _, size)| (*size as f64 / 1_024.0, page.as_str()));
        all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, ""))
    }

    fn to_json(&self, draining: &Measured) -> Value {
        let pages = self.pages.iter().map(|(page, took, size)| {
            let busy = draining.pages.iter().find(|(known, ..)| known == page).map(|(_, took, _)| p95(took));
            let round = |value: f64| (value * 10.0).round() / 10.0;
            let figures = json!({ "p95_ms": round(p95(took)), "draining_p95_ms": busy.map(round), "kb": round(*size as f64 / 1_024.0) });
            (page_name(page), figures)
        });
        Value::Object(pages.collect::<Map<String, Value>>())
    }
}

/// The page without the ids of this run.
fn page_name(page: &str) -> String {
    page.split('/')
        .map(|part| if part.len() == 36 && part.contains('-') { "{job}" } else { part })
        .collect::<Vec<_>>()
        .join("/")
}

fn p95(took: &[f64]) -> f64 {
    let mut sorted = took.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Opens many pages, and counts the statements of a while in which nothing happens.
async fn open_pages(
    host: &Engine,
    client: &Client,
    pages: &[String],
    counted: Duration,
) -> anyhow::Result<f64> {
    let mut open = Vec::new();
    for page in pages.iter().cycle().take(OPEN) {
        let request = Request::get("/live").query("page", page).timeout(Duration::from_secs(3_600));
        let response = client.send(request).await.with_context(|| format!("the updates of {page}"))?;
        ensure!(response.status().is_success(), "the updates of {page} were refused: {}", response.status());
        let mut events = response.events();
        open.push(tokio::spawn(async move { while let Ok(Some(_)) = events.next().await {} }));
    }
    // What has changed while they were opened is rendered first.
    tokio::time::sleep(counted / 3).await;
    let (before, started) = (host.store().statements(), Instant::now());
    tokio::time::sleep(counted).await;
    let statements = host.store().statements() - before;
    for stream in open {
        stream.abort();
    }
    Ok(statements as f64 / started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_names() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((p95(&hundred), p95(&[3.0]), p95(&[])), (95.0, 3.0, 0.0));
        assert_eq!(page_name("/jobs/0199f0c2-6f7a-7000-8000-3d2a2d6b8c91/graph"), "/jobs/{job}/graph");
        assert_eq!(page_name("/jobs?state=failed"), "/jobs?state=failed");
    }
}
