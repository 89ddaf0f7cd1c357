//! `windlass priority`: changes the priority of jobs.

use std::process::ExitCode;

use windlass::operate::JobAction;

use crate::{
    actions::{self, Target, Verb},
    program::Program,
};

/// Change the priority of jobs
///
/// From -100 (most urgent) to 100 (least urgent). One step counts as much as a minute of waiting.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The priority
    #[arg(value_name = "N", allow_negative_numbers = true)]
    priority: i16,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "reorder", participle: "reordered" };
    actions::run(args.target, JobAction::Priority(args.priority), verb, program).await
}
