//! `windlass bench`: workloads on a store, measured with the library's defaults.
//!
//! What was executed is recorded by the tasks themselves, outside the engine, and compared with a read-back of the
//! store: `lost` and `duplicated` are never the engine's own word.

mod drain;
mod enqueue;
mod executions;
mod fanout;
mod flow;
mod helper;
mod idle;
mod latency;
mod machine;
mod place;
mod rate;
mod record;
mod report;
mod schedule;
mod serial;

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
///
/// serial: n free no-op tasks drained beside n that wait for ten serial keys (per_second), and alone
/// (plain_per_second), medians of 5 each; adds ratio of the two, on a private PostgreSQL server pages_plain,
/// pages_blocked and pages_ratio (pages that a claim of 100 touches), then blocked_per_second for the blocked ones once
/// they may run, fifo (whether each key's started in the order of submission) and at_once (the most of a key that ran
/// together). rate: one limit with a burst of 50 and jobs that weigh 1 to 5, four processes, 20 s at 500 and at 5,000
/// tokens a second, then all stop for 10 s and go on; adds ratio and ratio_5000 (weight admitted by weight allowed),
/// over (windows of a second, one from every admission on, that admitted more than rate and burst; also if more than
/// the burst is admitted after the stop) and burst_after_stop (the most at one instant). schedule: n schedules of a
/// second for 30 s, three processes, two of them killed and replaced; adds ticks (that the calendar has), fired,
/// late_p50_ms, late_p99_ms, late_max_ms (tick → its job is submitted).
///
/// machine: n machines of some committed steps, 100 at once; per_second counts steps, floor_per_second is the same change
/// rows committed by batches of 100 without the engine; adds steps and commits_per_step. chain: one machine of n
/// sequential steps; floor_per_second is a bare update of one row, committed, on the same database, half of them before and
/// half after; adds ratio and
/// commits_per_step. signal: p50_ms and p99_ms are signal sent → step of the parked machine starts, in one process;
/// per_second is how fast n parked machines are woken by 500 senders; adds delivered_per_second.
///
/// flow: n workflows of one no-op step from a full queue, 100 in flight; the step's entry is committed before the
/// workflow goes on; adds answered_per_second (as many more, submitted and awaited by 100 clients). flowchain: one workflow of n sequential steps; floor_per_second as in chain; adds floor_ratio and
/// commits_per_step. replay: a parked workflow with n finished steps of 100-byte results is woken, each time in a fresh
/// process; p50_ms and p99_ms are signal sent → next step starts; adds sleeping_rss_mb (what 10,000 sleeping workflows add to the memory of an idle engine).
///
/// fanout: one parent, n children, merged, in one process; p50_ms and p99_ms are how long other jobs took meanwhile, from
/// their submit to their result; adds woken_ms (the last child's commit → the parent goes on) and
/// rows (children, or blocks of them). With --packed the items are packed into blocks and what they returned is read back by
/// the merge; moved are those that became jobs of their own. With --chaos two worker processes are killed and replaced all
/// the time, and the private PostgreSQL server is killed twice. Each child then records that it is executed in a file outside
/// the store, and the parent reduces what its children returned, which takes part of the time. lost: children without such a
/// record, and ends that are missing in the reduction; duplicated: ends in the reduction beyond one for each child that was
/// executed (what happens within a child may happen twice: that is what rerun counts, executions beyond one for each child).
#[derive(Parser)]
pub struct Args {
    /// What to measure
    #[arg(value_enum)]
    workload: Workload,
    /// sqlite (a file in a temporary folder), postgres (a private server, started for the run), or a store's URL
    /// [default: sqlite; postgres for rate]
    #[arg(long)]
    store: Option<String>,
    /// How many jobs [default: what the workload likes]
    #[arg(long)]
    n: Option<usize>,
    /// How many steps each machine makes
    #[arg(long, default_value_t = 10)]
    steps: u32,
    /// What the children of fanout are
    #[arg(long, value_enum, default_value = "task")]
    child: fanout::Kind,
    /// Packs the children of fanout into blocks of a thousand
    #[arg(long)]
    packed: bool,
    /// Has every hundredth child of fanout fail once
    #[arg(long)]
    failing: bool,
    /// Kills workers of fanout every few seconds, and a private PostgreSQL server twice
    #[arg(long)]
    chaos: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Take few samples: whether it runs, not how well
    #[arg(long, hide = true)]
    quick: bool,
    /// Where a process of the workload writes what it saw
    #[arg(long, hide = true)]
    record: Option<std::path::PathBuf>,
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
    /// 100,000 blocked jobs beside free ones
    Serial,
    /// One rate limit, four processes
    Rate,
    /// 1,000 schedules, three processes, two of them killed
    Schedule,
    /// Machines of some steps, 100 at once
    Machine,
    /// One machine, many steps
    Chain,
    /// Signals to parked machines
    Signal,
    /// Workflows of one step, 100 in flight
    Flow,
    /// One workflow, many steps
    Flowchain,
    /// A workflow of many steps, woken in a fresh process
    Replay,
    /// One parent, many children, merged
    Fanout,
    /// One of the workers of the fanout workload
    #[value(hide = true)]
    FanoutWorker,
    /// The other process of the replay workload
    #[value(hide = true)]
    ReplayWorker,
    /// Submits for the latency workload, from a process of their own
    #[value(hide = true)]
    LatencySubmitter,
    /// One of the processes of the rate workload
    #[value(hide = true)]
    RateWorker,
    /// One of the processes of the schedule workload
    #[value(hide = true)]
    ScheduleWorker,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let usual = if let Workload::Rate = args.workload { "postgres" } else { "sqlite" };
    let store = args.store.as_deref().unwrap_or(usual);
    match args.workload {
        Workload::LatencySubmitter => return latency::submitter(store).await,
        Workload::RateWorker => return rate::worker(store, &args.record.unwrap_or_default()).await,
        Workload::ScheduleWorker => return schedule::worker(store).await,
        Workload::FanoutWorker => return fanout::worker(store, &args.record.unwrap_or_default()).await,
        Workload::ReplayWorker => return flow::replay_worker(store, &args.record.unwrap_or_default()).await,
        _ => {}
    }
    let mut place = Place::open(store)?;
    let n = args.n;
    let report = match args.workload {
        Workload::Floor => drain::floor(&place, n.unwrap_or(100_000)).await?,
        Workload::Drain => drain::run(&place, n.unwrap_or(100_000)).await?,
        Workload::Enqueue => enqueue::run(&place, n.unwrap_or(300_000)).await?,
        Workload::Latency => latency::run(&place, n.unwrap_or(300), args.quick).await?,
        Workload::Idle => idle::run(&place, args.quick).await?,
        Workload::Serial => Box::pin(serial::run(&place, n.unwrap_or(100_000), args.quick)).await?,
        Workload::Rate => Box::pin(rate::run(&place, args.quick)).await?,
        Workload::Schedule => Box::pin(schedule::run(&place, n.unwrap_or(1_000), args.quick)).await?,
        Workload::Machine => Box::pin(machine::run(&place, n.unwrap_or(5_000), args.steps)).await?,
        Workload::Chain => Box::pin(machine::chain(&place, n.unwrap_or(1_000))).await?,
        Workload::Signal => Box::pin(machine::signals(&place, n.unwrap_or(20_000), args.quick)).await?,
        Workload::Flow => Box::pin(flow::run(&place, n.unwrap_or(20_000))).await?,
        Workload::Flowchain => Box::pin(flow::chain(&place, n.unwrap_or(1_000))).await?,
        Workload::Replay => Box::pin(flow::replay(&place, n.unwrap_or(10_000), args.quick)).await?,
        Workload::Fanout => {
            let Args { child, packed, failing, chaos, .. } = args;
            let options = fanout::Options { n: n.unwrap_or(100_000), child, packed, failing, chaos };
            Box::pin(fanout::run(&mut place, options)).await?
        }
        Workload::LatencySubmitter
        | Workload::FanoutWorker
        | Workload::RateWorker
        | Workload::ScheduleWorker
        | Workload::ReplayWorker => unreachable!("handled above"),
    };
    report.print(args.json);
    Ok(if report.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
