//! `windlass demo`: runs many small tasks in several worker processes, kills some of them and freezes one, and shows at the end that no
//! task was lost or done twice.
//!
//! In reading order: [`plan`] decides how each task ends; [`worker`] is a worker process and the task it runs; [`record`] is the record it
//! keeps outside the store, and [`recording_store`] adds the outcomes of commits to it; [`processes`] starts, kills and freezes worker
//! processes; [`chaos`] decides when; [`account`] compares plan, records and store.

mod account;
mod chaos;
mod plan;
mod processes;
mod record;
mod recording_store;
mod screen;
pub(crate) mod worker;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, bail};
use chaos::{Chaos, Interrupted};
use processes::{Processes, WorkerArgs};
use windlass::{Engine, JobId, store::without_password};
use windlass_testpg::Cluster;
use worker::Numbered;

use crate::out;

/// Run 20,000 tasks while workers are killed and frozen, and verify that none is lost or done twice
///
/// Needs only this binary: the jobs are in a SQLite file in a temporary folder, and the workers are processes of this program. The exit
/// code is 0 only if every task ended exactly once.
#[derive(clap::Args)]
pub struct Args {
    /// How many tasks
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=5_000_000))]
    tasks: u32,
    /// How many worker processes at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: u32,
    /// The folder for the files [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Keep the temporary folder
    #[arg(long)]
    keep: bool,
    /// Exit at the end, which is the default; for scripts
    #[arg(long)]
    exit: bool,
    /// Another store than a SQLite file: a URL, or `postgres` for a private server that is started for the demo
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    // The demo always exits at the end.
    let _ = args.exit;
    let folder = Folder::open(&args)?;
    let (url, _server) = store(&args, folder.path())?;
    introduce(&args, &url, folder.path());
    let screen = screen::Screen::new(u64::from(args.tasks));
    let engine = Engine::open(&url).await.context("the demo's store cannot be opened")?;
    // A queue of its own, so that the account can tell its jobs from others in a shared store.
    let queue = format!("demo-{:08x}", fastrand::u32(..));
    let numbers = (1..args.tasks).map(|number| Numbered { number });
    let mut ids: Vec<JobId> = vec![engine.new_id()];
    for submitted in engine.submit_all(numbers).queue(&queue).await? {
        ids.push(submitted.id()?);
    }
    screen.event(&format!(
        "{} tasks submitted; starting {} workers",
        out::thousands(args.tasks.into()),
        args.workers
    ));

    let (slots, mean) = pace(&args);
    let worker_args =
        WorkerArgs { url: url.clone(), queue: queue.clone(), dir: folder.path().to_owned(), slots, mean };
    let (processes, events) = Processes::new(worker_args);
    let started = Instant::now();
    let mut chaos = Chaos::new(engine.clone(), processes, events, screen, queue.clone(), &ids, folder.path());
    let happened = Box::pin(chaos.run(args.workers)).await;
    let happened = match happened {
        Ok(happened) => happened,
        Err(error) if error.is::<Interrupted>() => {
            out::note("interrupted; the workers have exited");
            return Ok(ExitCode::from(130));
        }
        Err(error) => {
            let kept = folder.keep();
            return Err(error.context(format!("the demo failed; its files are in {}", kept.display())));
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    let account = account::make(&engine, &queue, &ids, folder.path(), &happened).await?;
    out::print(&account.text(seconds, &happened))?;
    if !account.adds_up() || args.keep || args.dir.is_some() {
        out::note(&format!(
            "\nThe store, the workers' records and their logs are in {}",
            folder.keep().display()
        ));
    }
    Ok(if account.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The slots of a worker, and the mean duration of a task in microseconds: about four seconds of work without faults, so that there is
/// time for them; few tasks get few slots.
fn pace(args: &Args) -> (usize, u64) {
    let slots = (args.tasks / (args.workers * 100)).clamp(2, 16);
    let mean = 4_000_000 * u64::from(slots * args.workers) / u64::from(args.tasks);
    (slots as usize, mean.clamp(1_000, 50_000))
}

fn introduce(args: &Args, url: &str, folder: &Path) {
    let tasks = out::thousands(args.tasks.into());
    let flaky = (0..args.tasks).filter(|number| matches!(plan::of(*number), plan::Plan::Flaky(_))).count();
    let bad = (0..args.tasks).filter(|number| plan::of(*number).end() != plan::Plan::Done.end()).count();
    let place = if url.starts_with("sqlite:") {
        format!("a SQLite file in {}", folder.display())
    } else {
        without_password(url)
    };
    out::note(&format!(
        "windlass demo: {tasks} tasks, {workers} worker processes, {place}

  Each task is a durable job that takes a few milliseconds. {flaky} of them fail once or twice and are
  retried; {bad} are planned to fail for good. While they run, workers are killed with SIGKILL and replaced,
  and one is frozen until the others have taken over its jobs, and then woken: a zombie, whose writes must
  be refused. The tasks keep a record of their own outside the store. At the end the record is compared
  with the store, job by job.
",
        flaky = out::thousands(flaky as u64),
        bad = out::thousands(bad as u64),
        workers = args.workers,
    ));
}

/// The address of the store, and the server behind it if it was started for the demo.
fn store(args: &Args, folder: &Path) -> anyhow::Result<(String, Option<Cluster>)> {
    match args.store.as_deref() {
        None | Some("sqlite") => {
            let file = folder.join("demo.db");
            if file.exists() {
                bail!(
                    "{} exists already, from an earlier demo; remove it, or name another --dir",
                    file.display()
                );
            }
            Ok((format!("sqlite://{}", file.display()), None))
        }
        Some("postgres") => {
            let server = Cluster::start().context("a private PostgreSQL server cannot be started")?;
            Ok((server.url(), Some(server)))
        }
        Some("memory:") => bail!("memory: cannot be shared by processes; use sqlite or a postgres:// URL"),
        Some(url) => Ok((url.to_owned(), None)),
    }
}

/// The folder with the demo's files.
enum Folder {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    fn open(args: &Args) -> anyhow::Result<Folder> {
        let Some(path) = &args.dir else {
            let folder = tempfile::Builder::new().prefix("windlass-demo-").tempdir();
            return Ok(Folder::Temporary(
                folder.context("a temporary folder cannot be created; name one with --dir")?,
            ));
        };
        std::fs::create_dir_all(path)
            .with_context(|| format!("the folder {} cannot be created", path.display()))?;
        Ok(Folder::Given(path.canonicalize()?))
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Given(path) => path,
            Folder::Temporary(folder) => folder.path(),
        }
    }

    fn keep(self) -> PathBuf {
        match self {
            Folder::Given(path) => path,
            Folder::Temporary(folder) => folder.keep(),
        }
    }
}
