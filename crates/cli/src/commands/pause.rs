//! `windlass pause`: keeps jobs from being started.

use std::process::ExitCode;

use windlass::JobAction;

use crate::{
    act::{self, Target, Verb},
    place::Place,
};

/// Keep jobs from being started until they are resumed
///
/// What runs runs on, and is set aside if it is to be tried again. To stop a whole queue, also for jobs that are yet to
/// come, use `queues pause`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "pause", participle: "paused" };
    act::run(args.target, JobAction::Pause, verb, place).await
}
