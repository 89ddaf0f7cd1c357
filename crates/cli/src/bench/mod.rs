//! `windlass bench`: workloads on a store, measured with the library's defaults.
//!
//! What was executed is recorded by the tasks themselves, outside the engine, and compared with a read-back of the
//! store: `lost` and `duplicated` are never the engine's own word.

mod drain;
mod enqueue;
mod idle;
mod latency;
mod place;
mod record;
mod report;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use place::Place;

/// Measure a workload on a store.
///
/// JSON keys of all workloads: workload, store, n, seconds, per_second, floor_per_second (the same rows through the
/// store's own batch statements in the same run, without the engine), p50_ms, p99_ms, peak_rss_mb, db_bytes_per_job,
/// commits_per_job, lost, duplicated, commit (the source's). Keys that do not apply are null.
///
/// floor: n jobs claimed and committed by batches of 500 on two connections, no engine. drain: n preloaded no-op
/// tasks, one worker process. enqueue: bulk submit of n jobs. latency: one job at a time on an idle engine; adds
/// started_p50_ms, started_p99_ms (submit called → handler runs, which is after the submit has committed),
/// committed_p50_ms, committed_p99_ms (→ outcome committed and the caller told), other_idle_p50_ms and
/// other_busy_p50_ms (submitted by another process → handler runs, with the worker idle and busy). idle: a worker with
/// 10 queues and nothing to do; adds statements_per_minute and cpu_percent (of one core).
#[derive(Parser)]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_enum)]
    workload: Workload,
    /// sqlite (a file in a temporary folder), postgres (a private server, started for the run), or a store's URL
    #[arg(long, default_value = "sqlite")]
    store: String,
    /// How many jobs [default: what the workload likes]
    #[arg(long)]
    n: Option<usize>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Take few samples: whether it runs, not how well
    #[arg(long, hide = true)]
    quick: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Workload {
    /// The store's batch statements alone
    Floor,
    /// Preloaded no-op tasks, one worker
    Drain,
    /// Bulk submit
    Enqueue,
    /// One job at a time
    Latency,
    /// Nothing to do
    Idle,
    /// Submits for the latency workload, from a process of their own
    #[value(hide = true)]
    LatencySubmitter,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Workload::LatencySubmitter = args.workload {
        return latency::submitter(&args.store).await;
    }
    let place = Place::open(&args.store)?;
    let n = args.n;
    let report = match args.workload {
        Workload::Floor => drain::floor(&place, n.unwrap_or(100_000)).await?,
        Workload::Drain => drain::run(&place, n.unwrap_or(100_000)).await?,
        Workload::Enqueue => enqueue::run(&place, n.unwrap_or(300_000)).await?,
        Workload::Latency => latency::run(&place, n.unwrap_or(300), args.quick).await?,
        Workload::Idle => idle::run(&place, args.quick).await?,
        Workload::LatencySubmitter => unreachable!("handled above"),
    };
    report.print(args.json);
    Ok(if report.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
