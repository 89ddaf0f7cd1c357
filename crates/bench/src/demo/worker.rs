//! One worker process of the demo, and the task it runs.
//!
//! It speaks to the demo on its standard output (`acked N`, `fenced N`, `holding`) and works until its standard input is
//! closed, which it also is when the demo dies.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use windlass::{Config, Engine, Failure, JobId, Pool, Retry, Task, TaskCx};

use super::{
    plan::{self, Plan},
    record::Record,
    recording_store::{Gate, RecordingStore},
};
use crate::out;

/// A task of the demo: its plan follows from its number.
#[derive(Serialize, Deserialize)]
pub(super) struct Numbered {
    pub(super) number: u32,
}

/// What it returns: which execution made the result.
#[derive(Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) number: u32,
    pub(super) run: String,
}

/// How long a worker may go without renewing: short, so that the demo need not wait long for a frozen one to be
/// declared dead; long enough that a busy machine does not look dead.
pub(super) const LEASE: Duration = Duration::from_secs(3);
const BEAT: Duration = Duration::from_millis(600);

/// One worker process of the demo.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long = "at")]
    url: String,
    #[arg(long)]
    queue: String,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    serial: u32,
    #[arg(long)]
    slots: usize,
    /// How long a task takes on average, in microseconds
    #[arg(long)]
    mean: u64,
}

/// What the tasks of this process share.
struct World {
    record: Arc<Record>,
    gate: Arc<Gate>,
    held: Arc<OnceLock<JobId>>,
    /// The held task continues once this file exists.
    marker: PathBuf,
    mean: u64,
}

static WORLD: OnceLock<World> = OnceLock::new();

/// The file that lets the held task continue.
pub(super) fn marker(dir: &std::path::Path) -> PathBuf {
    dir.join("go-on")
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    // A frozen worker cannot see that its parent died; the system ends it then.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let record = Arc::new(Record::open(&args.dir, args.serial)?);
    let (gate, held) = (Gate::new(), Arc::new(OnceLock::new()));
    let world = World {
        record: Arc::clone(&record),
        gate: Arc::clone(&gate),
        held: Arc::clone(&held),
        marker: marker(&args.dir),
        mean: args.mean,
    };
    WORLD.set(world).ok().context("one worker per process")?;
    let store = windlass::store::open(&args.url, true).await?;
    let store = Arc::new(RecordingStore { store, gate, record, on_commit, held });
    let config = Config {
        name: format!("demo worker {}", args.serial),
        lease: LEASE,
        renew_every: BEAT,
        drain: Duration::from_secs(10),
        // The demo kills workers whatever they run; no job is to be blamed for it.
        max_crashes: u16::MAX,
        ..Config::default()
    };
    let engine = Engine::builder(&args.url)
        .store(store)
        .task::<Numbered>()
        .queue(&args.queue, Pool::slots(args.slots))
        .config(config)
        .start()
        .await?;
    let mut nothing = [0];
    let _ = tokio::io::stdin().read(&mut nothing).await;
    let left = engine.stop().await;
    anyhow::ensure!(left == 0, "{left} attempts did not end");
    Ok(ExitCode::SUCCESS)
}

/// Reports the outcomes of a commit to the demo.
fn on_commit(done: usize, fenced: usize) {
    let mut lines = String::new();
    if done > 0 {
        lines += &format!("acked {done}\n");
    }
    if fenced > 0 {
        lines += &format!("fenced {fenced}\n");
    }
    // If nobody listens any more, the record still says it.
    let _ = out::print(&lines);
}

impl Task for Numbered {
    const KIND: &'static str = "demo";
    type Output = Made;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<Made, Failure> {
        let world = WORLD.get().ok_or_else(|| Failure::stop("only workers of the demo run its tasks"))?;
        let (job, number, fence) = (cx.id(), self.number, cx.fence());
        let run = world.record.start(job, number, fence);
        let plan = plan::of(number);
        match plan {
            Plan::Hold => hold(world, job).await,
            _ => tokio::time::sleep(Duration::from_micros(fastrand::u64(0..=world.mean * 2))).await,
        }
        let failure = match plan {
            Plan::Stop => Some(Failure::stop("planned to fail for good")),
            _ if cx.attempt() <= plan.failures() => Some(Failure::retry("planned to fail this time")),
            _ => None,
        };
        world.record.end(job, number, fence, &run, if failure.is_some() { "failed" } else { "done" });
        failure.map_or(Ok(Made { number, run }), Err)
    }

    fn retry() -> Retry {
        Retry::times(plan::BUDGET).backoff(Duration::from_millis(50), Duration::from_millis(200))
    }
}

/// Holds until the demo has frozen this process, others have taken its work, and it was woken. Elsewhere, and later, the
/// marker is there already and nothing is held.
async fn hold(world: &World, job: JobId) {
    if world.marker.exists() {
        return;
    }
    /// However this ends, the store is reachable again.
    struct Reopen<'a>(&'a Gate, bool);
    impl Drop for Reopen<'_> {
        fn drop(&mut self) {
            if self.1 {
                self.0.open();
            }
        }
    }
    let _ = world.held.set(job);
    let mut reopen = Reopen(&world.gate, true);
    world.gate.shut().await;
    let _ = out::print("holding\n");
    while !world.marker.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    reopen.1 = false;
    world.gate.wake();
}
