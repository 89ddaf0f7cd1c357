//! `windlass cancel`: ends jobs that are not wanted any more.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use windlass::JobAction;

use crate::{
    act::{self, Target, Verb},
    place::Place,
    span,
};

/// End jobs as cancelled
///
/// A job that waits ends at once. One that runs is told to end, and is ended from outside if it has not done so after
/// --grace; whatever it still writes then is refused. The branches of a job that is cancelled are cut: their children that
/// have not ended are cancelled too.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long a running attempt is given to end by itself
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "10s")]
    grace: Duration,
    /// Also what the jobs submitted, and what that submitted, and so on
    #[arg(long)]
    children: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "cancel", participle: "cancelled" };
    if !args.children {
        return act::run(args.target, JobAction::Cancel { grace: args.grace }, verb, place).await;
    }
    if !args.target.is_named() {
        bail!("--children goes with jobs that are named; cancel their parents by id");
    }
    act::cancel_families(&args.target, args.grace, &verb, place).await
}
