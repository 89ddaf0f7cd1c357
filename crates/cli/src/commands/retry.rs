//! `windlass retry`: runs failed and cancelled jobs again.

use std::process::ExitCode;

use windlass::operate::JobAction;

use crate::{
    actions::{self, Target, Verb},
    program::Program,
};

/// Retry failed or cancelled jobs
///
/// Attempts, retry budgets and deaths of workers are counted from zero again. A deadline is as far away as it was at the
/// submit.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "retry", participle: "retried" };
    actions::run(args.target, JobAction::Retry, verb, program).await
}
