//! One file per command: `Args` with the command's help, and `run`.

mod audit;
pub(crate) mod branches;
mod cancel;
mod check;
mod diagram;
mod doctor;
mod fork;
pub(crate) mod jobs;
mod limits;
mod migrate;
mod pause;
mod priority;
mod prune;
mod queues;
mod redrive;
mod resume;
mod retry;
mod schedules;
mod serial;
pub(crate) mod show;
mod signal;
mod submit;
mod why;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

use crate::{config::Settings, log, place::Place};

/// The commands that every program has.
#[derive(Subcommand)]
pub(crate) enum Command {
    // Each command's help is at its `Args`.
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
    pub(crate) async fn run(self, place: &Place) -> anyhow::Result<ExitCode> {
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
    pub(crate) fn log(&self, settings: &Settings) -> anyhow::Result<log::Log> {
        match self {
            #[cfg(feature = "otel")]
            Command::Worker(args) => log::start_with_spans(settings, "info", args.otlp.as_deref()),
            #[cfg(not(feature = "otel"))]
            Command::Worker(_) => log::start(settings, "info"),
            _ => log::start(settings, "warn"),
        }
    }
}
