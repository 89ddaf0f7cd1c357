//! `windlass schedules set`: creates or changes a schedule.

use std::{process::ExitCode, time::Duration};

use windlass::{Calendar, CatchUp, ControlOutcome, Overlap};

use super::next;
use crate::{
    args::{self, Actor, FlowControl, KindVersion},
    client::NewSchedule,
    durations, outcome,
    program::Program,
};

/// Create a schedule, or replace all settings of the one of that name
///
/// The next tick changes only if the calendar does.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The name of the schedule
    name: String,
    /// The calendar, in quotes: "0 3 * * mon-fri in Europe/Berlin", "every 15 minutes", "@daily"; try it with `schedules next`
    calendar: Calendar,
    /// The kind of the jobs
    #[arg(long)]
    kind: String,
    /// Their input: JSON, @FILE to read it from a file, or - from standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "null", allow_hyphen_values = true)]
    input: String,
    /// Their queue [default: that of the kind]
    #[arg(long)]
    queue: Option<String>,
    /// What a tick does while the job of the previous tick has not ended: skip, queue its job, allow both to run, or
    /// cancel_previous
    #[arg(long, value_name = "WHAT", default_value = "skip")]
    overlap: Overlap,
    /// What happens to ticks that passed while no worker ran: fire one (the newest), skip them, or fire all of the last day
    /// (all:6h for another window)
    #[arg(long, value_name = "WHAT", default_value = "one")]
    catch_up: CatchUp,
    /// From -100 (most urgent) to 100 (least urgent); one step counts as much as a minute of waiting
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i16,
    /// A tag for the jobs; may be repeated
    #[arg(long)]
    tag: Vec<String>,
    /// The number of attempts in total [default: the kind's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,
    /// How long one attempt may run [default: the kind's]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    timeout: Option<Duration>,
    #[command(flatten)]
    flow_control: FlowControl,
    #[command(flatten)]
    version: KindVersion,
    #[command(flatten)]
    actor: Actor,
}

pub(super) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let input = args::json("input", &args.input)?;
    let version = args.version.resolve(program, &args.kind).await?;
    let client = program.client_or_create().await?;
    let schedule = NewSchedule {
        name: args.name.clone(),
        calendar: args.calendar.clone(),
        kind: args.kind,
        version,
        input,
        is_unchecked: args.version.any_kind,
        queue: args.queue,
        overlap: args.overlap,
        catch_up: args.catch_up,
        priority: args.priority,
        tags: args.tag,
        attempts: args.attempts,
        timeout: args.timeout,
        serial: args.flow_control.serial(),
        rate: args.flow_control.charge(),
    };
    let (outcome, now) = client.set_schedule(&schedule, &args.actor).await?;
    let done = match args.calendar.next_after(now) {
        Some(at) if outcome == ControlOutcome::Done => {
            format!("fires next {}, {}", next::local(&args.calendar, at), durations::relative(at, now))
        }
        _ => "it never fires".to_owned(),
    };
    outcome::print(program, "schedule", &args.name, &outcome, &done)
}
