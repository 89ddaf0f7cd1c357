//! The workloads of `windlass bench` and the demo. Only the stock binary depends on this crate.

mod demo;
mod out;
mod workloads;

use std::process::ExitCode;

use clap::Subcommand;

/// The commands that the stock binary has and other programs have not.
#[derive(Subcommand)]
#[expect(missing_docs, reason = "each command's help is at its `Args`")]
pub enum Command {
    Demo(demo::Args),
    Bench(workloads::Args),
    /// One worker process of the demo
    #[command(hide = true)]
    DemoWorker(demo::worker::Args),
    /// One worker process of the demo's company
    #[command(hide = true)]
    DemoBakeryWorker(demo::bakery::worker::Args),
}

impl Command {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Demo(args) => demo::run(args).await,
            Command::Bench(args) => workloads::run(args).await,
            Command::DemoWorker(args) => demo::worker::run(args).await,
            Command::DemoBakeryWorker(args) => demo::bakery::worker::run(args).await,
        }
    }
}
