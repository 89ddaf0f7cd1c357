//! `windlass cancel`: ends jobs as cancelled.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use windlass::operate::JobAction;

use crate::{
    actions::{self, Target, Verb},
    durations,
    program::Program,
};

/// Cancel jobs
///
/// A job that is not running ends at once. A running attempt gets a cancel request; if it has not ended after --grace, the store
/// ends the job without it and refuses its later writes. The live children of a cancelled job's unmerged branches are cancelled
/// too.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long a running attempt may take to end by itself
    #[arg(long, value_name = "DURATION", value_parser = durations::parse, default_value = "10s")]
    grace: Duration,
    /// Also cancel all descendants: the jobs that these jobs submitted, and those that they submitted
    #[arg(long)]
    children: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "cancel", participle: "cancelled" };
    if !args.children {
        return actions::run(args.target, JobAction::Cancel { grace: args.grace }, verb, program).await;
    }
    if !args.target.is_named() {
        bail!("--children needs named jobs; give the parents by id or key");
    }
    actions::cancel_with_descendants(&args.target, args.grace, &verb, program).await
}
