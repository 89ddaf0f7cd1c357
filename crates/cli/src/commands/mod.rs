//! One file per command: `Args` with the command's help, and `run`.

mod alerts;
mod audit;
pub(crate) mod branches;
mod cancel;
mod check;
mod completions;
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
#[cfg(feature = "serve")]
mod serve;
pub(crate) mod show;
mod signal;
mod signal_waits;
mod submit;
mod throughput;
mod tokens;
mod ui;
mod users;
mod why;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

use crate::{config::Settings, log, program::Program};

/// The commands that every program has. The help of each is at its `Args`.
#[derive(Subcommand)]
pub(crate) enum Command {
    Worker(Box<worker::Args>),
    #[cfg(feature = "serve")]
    Serve(Box<serve::Args>),
    Ui(ui::Args),
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
    Throughput(throughput::Args),
    SignalWaits(signal_waits::Args),
    Limits(limits::Args),
    Serial(serial::Args),
    Schedules(Box<schedules::Args>),
    Alerts(alerts::Args),
    Tokens(tokens::Args),
    Users(users::Args),
    Audit(audit::Args),
    Prune(prune::Args),
    Migrate(migrate::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
}

impl Command {
    pub(crate) async fn run(self, program: &Program) -> anyhow::Result<ExitCode> {
        match self {
            Command::Worker(args) => worker::run(*args, program).await,
            #[cfg(feature = "serve")]
            Command::Serve(args) => serve::run(*args, program).await,
            Command::Ui(args) => ui::run(args, program).await,
            Command::Submit(args) => submit::run(*args, program).await,
            Command::Jobs(args) => jobs::run(args, program).await,
            Command::Show(args) => show::run(args, program).await,
            Command::Why(args) => why::run(args, program).await,
            Command::Branches(args) => branches::run(args, program).await,
            Command::Signal(args) => signal::run(args, program).await,
            Command::Diagram(args) => diagram::run(args, program).await,
            Command::Cancel(args) => cancel::run(args, program).await,
            Command::Retry(args) => retry::run(args, program).await,
            Command::Redrive(args) => redrive::run(args, program).await,
            Command::Fork(args) => fork::run(*args, program).await,
            Command::Check(args) => check::run(args, program).await,
            Command::Pause(args) => pause::run(args, program).await,
            Command::Resume(args) => resume::run(args, program).await,
            Command::Priority(args) => priority::run(args, program).await,
            Command::Queues(args) => queues::run(args, program).await,
            Command::Throughput(args) => throughput::run(args, program).await,
            Command::SignalWaits(args) => signal_waits::run(args, program).await,
            Command::Limits(args) => limits::run(args, program).await,
            Command::Serial(args) => serial::run(args, program).await,
            Command::Schedules(args) => schedules::run(*args, program).await,
            Command::Alerts(args) => alerts::run(args, program).await,
            Command::Tokens(args) => tokens::run(args, program).await,
            Command::Users(args) => users::run(args, program).await,
            Command::Audit(args) => audit::run(args, program).await,
            Command::Prune(args) => prune::run(args, program).await,
            Command::Migrate(args) => migrate::run(args, program).await,
            Command::Doctor(args) => doctor::run(args, program).await,
            Command::Completions(_) => unreachable!("it is answered before a program is made"),
        }
    }

    /// Completes the settings. Without a setting for a server, commands work on the store, and `ui` on a server of this machine.
    pub(crate) fn complete(&self, settings: &mut Settings) {
        if let Command::Ui(_) = self {
            ui::complete(settings);
        }
    }

    /// Starts logging: a worker logs what it does, the other commands only warnings.
    pub(crate) fn start_log(&self, settings: &Settings) -> anyhow::Result<log::Log> {
        match self {
            #[cfg(feature = "otel")]
            Command::Worker(args) => log::start_with_spans(settings, "info", args.working.otlp.as_deref()),
            #[cfg(not(feature = "otel"))]
            Command::Worker(_) => log::start(settings, "info"),
            #[cfg(all(feature = "serve", feature = "otel"))]
            Command::Serve(args) => log::start_with_spans(settings, "info", args.working.otlp.as_deref()),
            #[cfg(all(feature = "serve", not(feature = "otel")))]
            Command::Serve(_) => log::start(settings, "info"),
            _ => log::start(settings, "warn"),
        }
    }
}
