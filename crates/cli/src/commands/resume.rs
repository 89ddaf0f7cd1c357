//! `windlass resume`: lets paused jobs go on.

use std::process::ExitCode;

use windlass::JobAction;

use crate::{
    act::{self, Target, Verb},
    place::Place,
};

/// Let paused jobs go on
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "resume", participle: "resumed" };
    act::run(args.target, JobAction::Resume, verb, place).await
}
