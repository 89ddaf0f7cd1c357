//! `windlass pause`: keeps jobs from being started.

use std::process::ExitCode;

use windlass::operate::JobAction;

use crate::{
    actions::{self, Target, Verb},
    program::Program,
};

/// Pause jobs: they are not started until they are resumed
///
/// A running attempt continues; if it ends in a retry, the retry is held. To pause a queue, including jobs that are
/// submitted later, use `queues pause`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "pause", participle: "paused" };
    actions::run(args.target, JobAction::Pause, verb, program).await
}
