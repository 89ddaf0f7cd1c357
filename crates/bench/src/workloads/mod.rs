//! `windlass bench`: workloads on a store, measured with the library's defaults.
//!
//! Tasks record their executions themselves, outside the engine, and the record is compared with the store: `lost` and `duplicated` never
//! rely on the engine's own counts.

mod drain;
mod enqueue;
mod executions;
mod fanout;
mod flow;
mod helper;
mod idle;
mod latency;
mod machine;
mod pages;
mod rate;
mod record;
mod remote;
mod report;
mod schedule;
mod serial;
mod stores;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use stores::Stores;

/// Measure a workload on a store
///
/// JSON keys of all workloads: workload, store, n, seconds, per_second, floor_per_second (the same rows through the store's own batch
/// statements in the same run, without the engine), p50_ms, p99_ms, peak_rss_mb, db_bytes_per_job, commits_per_job, lost, duplicated,
/// commit (of the source). Keys that do not apply are null.
///
/// floor: n jobs, claimed and committed in batches of 500 over two connections, without the engine.
///
/// drain: n preloaded no-op tasks, one worker process.
///
/// remote: n preloaded no-op tasks, run through a server: one engine has the store and serves HTTP on a loopback address, another runs the
/// jobs and has nothing but the server's address; both are in this process. Adds calls_per_job (requests to the server).
///
/// enqueue: bulk submit of n jobs.
///
/// latency: one job at a time on an idle engine. Adds started_p50_ms and started_p99_ms (submit called → handler runs, which is after the
/// submit was committed), committed_p50_ms and committed_p99_ms (submit called → outcome committed and returned to the caller),
/// other_idle_p50_ms and other_busy_p50_ms (submitted by another process → handler runs, with an idle and a busy worker).
///
/// idle: a worker with 10 queues and no jobs. Adds statements_per_minute and cpu_percent (of one core).
///
/// serial: drains n free no-op tasks while n others wait for ten serial keys (per_second), and without the others (plain_per_second);
/// medians of 5 each. Adds ratio of the two; on a private PostgreSQL server pages_plain, pages_blocked and pages_ratio (pages that a claim
/// of 100 touches); blocked_per_second for the blocked tasks once they may run; fifo (whether the tasks of each key started in the order
/// of their submits) and at_once (the most tasks of a key that ran at once).
///
/// rate: one limit with a burst of 50 and jobs that weigh 1 to 5, four processes, 20 s at 500 and at 5,000 tokens a second; then all
/// processes pause for 10 s and resume. Adds ratio and ratio_5000 (admitted weight divided by allowed weight), over (windows of one second
/// from each admission that admitted more than rate and burst, or more than the burst right after the pause) and burst_after_stop (the
/// most weight admitted at one instant).
///
/// schedule: n schedules with a tick every second for 30 s, three processes, two of them killed and replaced. Adds ticks (of the
/// calendar), fired, late_p50_ms, late_p99_ms and late_max_ms (tick → its job is submitted).
///
/// machine: n machines of --steps committed steps, 100 at once. per_second counts steps; floor_per_second is the same changes committed in
/// batches of 100 without the engine. Adds steps and commits_per_step.
///
/// chain: one machine of n sequential steps. floor_per_second is a plain update of one row, committed, on the same database, half of them
/// before and half after. Adds ratio and commits_per_step.
///
/// signal: p50_ms and p99_ms are signal sent → step of the parked machine starts, in one process; per_second is how fast 500 senders wake
/// n parked machines. Adds delivered_per_second.
///
/// flow: n workflows of one no-op step from a full queue, 100 in flight; the step's entry is committed before the workflow continues. Adds
/// answered_per_second (as many more, submitted and awaited by 100 clients).
///
/// flowchain: one workflow of n sequential steps; floor_per_second as in chain. Adds floor_ratio and commits_per_step.
///
/// replay: wakes a parked workflow with n done steps of 100-byte results, each time in a new process; p50_ms and p99_ms are signal sent →
/// next step starts. Adds sleeping_rss_mb (what 10,000 sleeping workflows add to the memory of an idle engine).
///
/// fanout: one parent, n children, merged, in one process; p50_ms and p99_ms are how long other jobs took meanwhile, from submit to
/// result. Adds woken_ms (commit of the last child → the parent continues) and rows (children, or blocks of them). With --packed the items
/// are packed into blocks and the merge reads their results; promoted counts those that were promoted to jobs of their own. With --chaos two
/// worker processes are killed and replaced all the time, and the private PostgreSQL server is killed twice. Each child then records its
/// execution in a file outside the store, and the parent reduces the results of its children, which takes part of the time. lost: children
/// without a record, and results that the reduction misses. duplicated: results in the reduction beyond one per executed child. rerun:
/// executions beyond one per child, which a killed worker causes.
///
/// pages: n jobs, half of them children of one branch; every page of the dashboard is read 50 times, one request at a time. p95_ms and
/// draining_p95_ms are of the slowest page while the store is idle and while the children run; html_kb is the size of the largest page. Adds
/// statements_per_second (of 200 open pages on an idle store) and pages (the figures of each page).
#[derive(Parser)]
pub struct Args {
    /// What to measure
    #[arg(value_enum)]
    workload: Workload,
    /// sqlite (a file in a temporary folder), postgres (a private server, started for the run), or a store's URL
    /// [default: sqlite; postgres for rate]
    #[arg(long)]
    store: Option<String>,
    /// How many jobs [default: depends on the workload]
    #[arg(long)]
    n: Option<usize>,
    /// How many steps each machine makes
    #[arg(long, default_value_t = 10)]
    steps: u32,
    /// What the children of fanout are
    #[arg(long, value_enum, default_value = "task")]
    child: fanout::Kind,
    /// Pack the children of fanout into blocks of a thousand
    #[arg(long)]
    packed: bool,
    /// Make every hundredth child of fanout fail once
    #[arg(long)]
    failing: bool,
    /// Kill workers of fanout every few seconds, and a private PostgreSQL server twice
    #[arg(long)]
    chaos: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Take few samples: checks that it runs
    #[arg(long, hide = true)]
    quick: bool,
    /// The file in which a process of the workload records its results
    #[arg(long, hide = true)]
    record: Option<std::path::PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Workload {
    /// The store's batch statements alone
    Floor,
    /// Preloaded no-op tasks, one worker
    Drain,
    /// Preloaded no-op tasks, one worker through a server
    Remote,
    /// Bulk submit
    Enqueue,
    /// One job at a time
    Latency,
    /// Nothing to do
    Idle,
    /// 100,000 blocked jobs and as many free ones
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
    /// Every page of the dashboard, with a million jobs
    Pages,
    /// One of the workers of the fanout workload
    #[value(hide = true)]
    FanoutWorker,
    /// The other process of the replay workload
    #[value(hide = true)]
    ReplayWorker,
    /// The process that submits for the latency workload
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
    let default = if let Workload::Rate = args.workload { "postgres" } else { "sqlite" };
    let store = args.store.as_deref().unwrap_or(default);
    match args.workload {
        Workload::LatencySubmitter => return latency::submitter(store).await,
        Workload::RateWorker => return rate::worker(store, &args.record.unwrap_or_default()).await,
        Workload::ScheduleWorker => return schedule::worker(store).await,
        Workload::FanoutWorker => return fanout::worker(store, &args.record.unwrap_or_default()).await,
        Workload::ReplayWorker => return flow::replay_worker(store, &args.record.unwrap_or_default()).await,
        _ => {}
    }
    let mut stores = Stores::open(store)?;
    let n = args.n;
    let report = match args.workload {
        Workload::Floor => drain::floor(&stores, n.unwrap_or(100_000)).await?,
        Workload::Drain => drain::run(&stores, n.unwrap_or(100_000)).await?,
        Workload::Remote => Box::pin(remote::run(&stores, n.unwrap_or(40_000))).await?,
        Workload::Enqueue => enqueue::run(&stores, n.unwrap_or(300_000)).await?,
        Workload::Latency => latency::run(&stores, n.unwrap_or(300), args.quick).await?,
        Workload::Idle => idle::run(&stores, args.quick).await?,
        Workload::Serial => Box::pin(serial::run(&stores, n.unwrap_or(100_000), args.quick)).await?,
        Workload::Rate => Box::pin(rate::run(&stores, args.quick)).await?,
        Workload::Schedule => Box::pin(schedule::run(&stores, n.unwrap_or(1_000), args.quick)).await?,
        Workload::Machine => Box::pin(machine::run(&stores, n.unwrap_or(5_000), args.steps)).await?,
        Workload::Chain => Box::pin(machine::chain(&stores, n.unwrap_or(1_000))).await?,
        Workload::Signal => Box::pin(machine::signals(&stores, n.unwrap_or(20_000), args.quick)).await?,
        Workload::Flow => Box::pin(flow::run(&stores, n.unwrap_or(20_000))).await?,
        Workload::Flowchain => Box::pin(flow::chain(&stores, n.unwrap_or(1_000))).await?,
        Workload::Replay => Box::pin(flow::replay(&stores, n.unwrap_or(10_000), args.quick)).await?,
        Workload::Fanout => {
            let Args { child, packed, failing, chaos, .. } = args;
            let options = fanout::Options { n: n.unwrap_or(100_000), child, packed, failing, chaos };
            Box::pin(fanout::run(&mut stores, options)).await?
        }
        Workload::Pages => Box::pin(pages::run(&stores, n.unwrap_or(1_000_000), args.quick)).await?,
        Workload::LatencySubmitter
        | Workload::FanoutWorker
        | Workload::RateWorker
        | Workload::ScheduleWorker
        | Workload::ReplayWorker => unreachable!("handled above"),
    };
    report.print(args.json);
    Ok(if report.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
