//! `windlass retry`: tries failed and cancelled jobs again.

use std::process::ExitCode;

use windlass::JobAction;

use crate::{
    act::{self, Target, Verb},
    place::Place,
};

/// Try failed or cancelled jobs again
///
/// Their counters start anew: attempts, retry budgets, deaths of workers. A deadline is as far away as it was at first.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "retry", participle: "retried" };
    act::run(args.target, JobAction::Retry, verb, place).await
}
