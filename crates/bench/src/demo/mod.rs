//! `windlass demo`: a crash test, and a company whose work a server shows.
//!
//! The crash test runs many small tasks in several worker processes, kills some of them and freezes one, and shows at the end that no
//! task was lost or done twice. In reading order: [`plan`] decides how each task ends; [`worker`] is a worker process and the task it
//! runs; [`record`] is the record it keeps outside the store, and [`recording_store`] adds the outcomes of commits to it; [`processes`]
//! starts, kills and freezes worker processes; [`chaos`] decides when; [`account`] compares plan, records and store; [`crash`] is all of
//! it.
//!
//! Without `--exit` the demo also has a [`bakery`]: jobs of every sort in every state. [`live`] serves the store from the start and keeps
//! the company at work until the demo is stopped.

mod account;
pub(crate) mod bakery;
mod chaos;
mod crash;
mod live;
mod place;
mod plan;
mod processes;
mod record;
mod recording_store;
mod screen;
mod stop;
pub(crate) mod worker;

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use crash::CrashTest;
use place::{Folder, Place};
use stop::Stop;
use windlass::{Engine, store::without_password};

use crate::out;

/// Serve the jobs of a small company in a browser, and verify that no task is lost or done twice while workers are killed
///
/// Prints the address to open, and runs until Ctrl-C. Meanwhile 20,000 tasks run while workers are killed and frozen, and then it prints an
/// account of them. With --exit it does that alone, and exits.
///
/// Needs only this binary: the jobs are in a SQLite file in a temporary folder, and the workers are processes of this program. The exit
/// code is 0 only if every task of the account ended exactly once.
#[derive(clap::Args)]
pub struct Args {
    /// Run the 20,000 tasks, print the account and exit: no bakery, no server
    #[arg(long)]
    exit: bool,
    /// The address to listen on, of this machine alone [default: 127.0.0.1:7077, or the next free port]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen, conflicts_with = "exit")]
    listen: Option<SocketAddr>,
    /// How many tasks
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=5_000_000))]
    tasks: u32,
    /// How many worker processes run them at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: u32,
    /// The folder for the files [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Keep the temporary folder
    #[arg(long)]
    keep: bool,
    /// Another store than a SQLite file: a URL, or `postgres` for a private server that is started for the demo. On a store named by
    /// its URL the demo deletes nothing: its jobs stay there
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How many children the large branch has
    #[arg(long, hide = true, value_name = "N", default_value_t = 200_000)]
    statements: u32,
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs().map_err(|error| format!("{error}; write it as 127.0.0.1:7077"))?;
    let mut local = addresses.filter(|address| address.ip().is_loopback());
    local.next().ok_or_else(|| {
        "others could reach it; the demo has no users: use an address of this machine alone, as 127.0.0.1:7077".into()
    })
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = Stop::listen()?;
    let folder = Folder::open(&args)?;
    let place = Place::open(&args, folder.path())?;
    introduce(&args, &place.url, folder.path());
    let ran = match args.exit {
        true => Box::pin(crash_test(&args, &place, folder.path(), stop)).await,
        false => Box::pin(live::run(&args, &place, folder.path(), stop)).await,
    };
    let adds_up = match ran {
        Ok(adds_up) => adds_up,
        Err(error) => {
            let kept = folder.keep();
            return Err(error.context(format!("the demo failed; its files are in {}", kept.display())));
        }
    };
    if args.exit && adds_up.is_none() {
        out::note("interrupted; the workers have exited");
        return Ok(ExitCode::from(stop::INTERRUPTED));
    }
    if adds_up == Some(false) || args.keep || args.dir.is_some() {
        out::note(&format!(
            "\nThe store, the workers' records and their logs are in {}",
            folder.keep().display()
        ));
    }
    Ok(if adds_up == Some(false) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The crash test alone.
async fn crash_test(args: &Args, place: &Place, dir: &Path, stop: Stop) -> anyhow::Result<Option<bool>> {
    let engine = Engine::open(&place.url).await.context("the demo's store cannot be opened")?;
    let test = CrashTest::submit(engine, args.tasks, args.workers).await?;
    test.run(&place.url, dir, stop).await
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
    if !args.exit {
        out::note(bakery::INTRODUCTION);
    }
}
