//! `windlass priority`: moves jobs forward or back in line.

use std::process::ExitCode;

use windlass::JobAction;

use crate::{
    act::{self, Target, Verb},
    place::Place,
};

/// Give jobs another priority
///
/// From -100 (most urgent) to 100 (least urgent); each step is a minute's place in line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The priority
    #[arg(value_name = "N", allow_negative_numbers = true)]
    priority: i16,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let verb = Verb { infinitive: "reorder", participle: "reordered" };
    act::run(args.target, JobAction::Priority(args.priority), verb, place).await
}
