//! The commands of the `windlass` binary, also for programs with kinds of their own: [`run`] gives them the same ones.
//!
//! In reading order: `config` says which settings there are and where they come from, `place` finds the store and opens
//! it as the command needs it, `kinds` are those that the stock binary serves itself. Then there is one file per
//! command. What several share: `which` jobs are meant and how one is `named`, by what `author`, `act` on jobs and `rule` for
//! many, `flow`, `unique` name and `kind` of jobs to come; `out` is how they all speak, `ask` and `progress` how they speak
//! to a person.
//!
//! What always holds: answers go to standard output and everything else to standard error; a closed pipe is no error;
//! the exit code is 0 only if what was asked for came true.

mod act;
mod ask;
mod audit;
mod author;
mod bench;
mod branches;
mod cancel;
mod check;
mod config;
mod demo;
mod diagram;
mod doctor;
mod flow;
mod fork;
mod jobs;
mod kind;
mod kinds;
mod limits;
mod log;
mod migrate;
mod named;
mod out;
mod pause;
mod pg;
mod place;
mod priority;
mod progress;
mod prune;
mod queues;
mod redrive;
mod resume;
mod retry;
mod rule;
mod schedules;
mod serial;
mod show;
mod signal;
mod span;
mod stop;
mod submit;
mod table;
mod unique;
mod which;
mod why;
mod worker;

use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use config::Settings;
use place::Place;
use windlass::Engine;

/// Durable work: jobs whose every step is committed before the work goes on.
#[derive(Parser)]
#[command(name = "windlass", version, max_term_width = 100, after_help = AFTER)]
struct Stock {
    /// Where jobs are kept: sqlite://PATH or postgres://USER@HOST/DATABASE [env: WINDLASS_STORE]
    /// [default: sqlite://windlass.db]
    #[arg(long, global = true, value_name = "URL", help_heading = "Settings")]
    store: Option<String>,
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: StockCommand,
}

const AFTER: &str = "\
Start with `windlass demo`: it needs nothing but this binary.

Settings are read from windlass.toml, then from the environment (WINDLASS_STORE, WINDLASS_LEASE, …), then from flags; \
the last one wins.";

/// The commands of a program with kinds of its own.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Own {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Args)]
struct Common {
    /// A file with settings [env: WINDLASS_CONFIG] [default: windlass.toml, if it is there]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Settings")]
    config: Option<std::path::PathBuf>,
    /// What to log to standard error: error, warn, info, debug, or a filter like windlass_runtime=debug
    /// [env: WINDLASS_LOG, RUST_LOG]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Settings")]
    log: Option<String>,
}

#[derive(Subcommand)]
enum StockCommand {
    // Each command's first words stand at the head of its own file.
    #[command(flatten)]
    Shared(Command),
    Demo(demo::Args),
    Bench(bench::Args),
    /// One worker process of the demo
    #[command(hide = true)]
    DemoWorker(demo::worker::Args),
}

#[derive(Subcommand)]
enum Command {
    Worker(worker::Args),
    Submit(Box<submit::Args>),
    Jobs(jobs::Args),
    Show(show::Args),
    Why(why::Args),
    Branches(branches::Args),
    Signal(signal::Args),
    Diagram(diagram::Args),
    Cancel(cancel::Args),
    Retry(retry::Args),
    Redrive(redrive::Args),
    Fork(Box<fork::Args>),
    Check(check::Args),
    Pause(pause::Args),
    Resume(resume::Args),
    Priority(priority::Args),
    Queues(queues::Args),
    Limits(limits::Args),
    Serial(serial::Args),
    Schedules(Box<schedules::Args>),
    Audit(audit::Args),
    Prune(prune::Args),
    Migrate(migrate::Args),
    Doctor(doctor::Args),
}

impl Command {
    async fn run(self, place: &Place) -> anyhow::Result<ExitCode> {
        match self {
            Command::Worker(args) => worker::run(args, place).await,
            Command::Submit(args) => submit::run(*args, place).await,
            Command::Jobs(args) => jobs::run(args, place).await,
            Command::Show(args) => show::run(args, place).await,
            Command::Why(args) => why::run(args, place).await,
            Command::Branches(args) => branches::run(args, place).await,
            Command::Signal(args) => signal::run(args, place).await,
            Command::Diagram(args) => diagram::run(args, place).await,
            Command::Cancel(args) => cancel::run(args, place).await,
            Command::Retry(args) => retry::run(args, place).await,
            Command::Redrive(args) => redrive::run(args, place).await,
            Command::Fork(args) => fork::run(*args, place).await,
            Command::Check(args) => check::run(args, place).await,
            Command::Pause(args) => pause::run(args, place).await,
            Command::Resume(args) => resume::run(args, place).await,
            Command::Priority(args) => priority::run(args, place).await,
            Command::Queues(args) => queues::run(args, place).await,
            Command::Limits(args) => limits::run(args, place).await,
            Command::Serial(args) => serial::run(args, place).await,
            Command::Schedules(args) => schedules::run(*args, place).await,
            Command::Audit(args) => audit::run(args, place).await,
            Command::Prune(args) => prune::run(args, place).await,
            Command::Migrate(args) => migrate::run(args, place).await,
            Command::Doctor(args) => doctor::run(args, place).await,
        }
    }

    /// Begins to log: a worker tells what it does, the others only what goes wrong.
    fn log(&self, settings: &Settings) -> anyhow::Result<log::Log> {
        match self {
            #[cfg(feature = "otel")]
            Command::Worker(args) => log::start_with_spans(settings, "info", args.otlp.as_deref()),
            #[cfg(not(feature = "otel"))]
            Command::Worker(_) => log::start(settings, "info"),
            _ => log::start(settings, "warn"),
        }
    }
}

/// The stock binary: all commands, on the store that the settings name, with the kinds that are built in.
pub fn stock() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("the async runtime does not start")),
    };
    let stock = Stock::parse();
    let done = runtime.block_on(Box::pin(async {
        match stock.command {
            StockCommand::Bench(args) => bench::run(args).await,
            StockCommand::Demo(args) => demo::run(args).await,
            StockCommand::DemoWorker(args) => demo::worker::run(args).await,
            StockCommand::Shared(command) => {
                let flags = Settings { store: stock.store, log: stock.common.log, ..Settings::default() };
                let settings = config::read(stock.common.config.as_deref(), flags)?;
                let _log = command.log(&settings)?;
                command.run(&Place::named(settings)).await
            }
        }
    }));
    // Not dropped: a blocking read of standard input would hold up the end.
    runtime.shutdown_background();
    done.unwrap_or_else(|error| failed(&error))
}

/// Gives a program all commands but `demo` and `bench` (`worker`, `submit`, `jobs`, `why`, `signal`, `cancel`, …) for
/// the kinds of its engine, which is opened and not started:
///
/// ```no_run
/// # use windlass::Engine;
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     match Engine::open("sqlite://work.db").await {
///         Ok(engine) => windlass_cli::run(engine /* .task::<MyTask>() … */).await,
///         Err(error) => panic!("{error}"),
///     }
/// }
/// ```
///
/// The process's arguments say which command; settings are read as by the stock binary, and win over those given to
/// the engine in code.
pub async fn run(engine: Engine) -> ExitCode {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = name.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("windlass").to_owned();
    let matches = Own::command().display_name(name.clone()).bin_name(name.clone()).get_matches();
    let own = match Own::from_arg_matches(&matches) {
        Ok(own) => own,
        Err(error) => error.exit(),
    };
    let done = Box::pin(async {
        let flags = Settings { log: own.common.log, ..Settings::default() };
        let settings = config::read(own.common.config.as_deref(), flags)?;
        let _log = own.command.log(&settings)?;
        own.command.run(&Place::opened(engine, settings, &name)).await
    });
    done.await.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &anyhow::Error) -> ExitCode {
    out::note(&format!("error: {error:#}"));
    ExitCode::FAILURE
}
