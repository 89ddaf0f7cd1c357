//! `windlass resume`: resumes paused jobs.

use std::process::ExitCode;

use windlass::operate::JobAction;

use crate::{
    actions::{self, Target, Verb},
    program::Program,
};

/// Resume paused jobs
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "resume", participle: "resumed" };
    actions::run(args.target, JobAction::Resume, verb, program).await
}
