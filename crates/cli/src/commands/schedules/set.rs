//! `windlass schedules set`: makes a schedule, or changes one.

use std::{process::ExitCode, time::Duration};

use windlass::{Calendar, CatchUp, ControlOutcome, Overlap, Retry};

use super::next;
use crate::{
    author::Author,
    flow::Flow,
    kind::{self, Version},
    place::Place,
    rule, span,
};

/// Make a schedule, or change the one of that name to be as said here
///
/// A change of anything but the calendar leaves the next tick as it is.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Its name
    name: String,
    /// When, in quotes: "0 3 * * mon-fri in Europe/Berlin", "every 15 minutes", "@daily"; try it with `schedules next`
    calendar: Calendar,
    /// What kind of job
    #[arg(long)]
    kind: String,
    /// Its input: JSON, @FILE to read it from a file, or - from standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "null", allow_hyphen_values = true)]
    input: String,
    /// The queue it waits in [default: that of the kind]
    #[arg(long)]
    queue: Option<String>,
    /// What becomes of a tick while the job of the one before has not ended: skip it, queue its job behind, allow both, or
    /// cancel_previous
    #[arg(long, value_name = "WHAT", default_value = "skip")]
    overlap: Overlap,
    /// What becomes of ticks that nobody was there for: fire the newest one, skip them, or fire all of the last day
    /// (all:6h for another window)
    #[arg(long, value_name = "WHAT", default_value = "one")]
    catch_up: CatchUp,
    /// From -100 (most urgent) to 100 (least urgent); each step is a minute's place in line
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i16,
    /// A word to find its jobs by; may be repeated
    #[arg(long)]
    tag: Vec<String>,
    /// How many attempts in all [default: the kind's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,
    /// How long one attempt may run [default: the kind's]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    timeout: Option<Duration>,
    #[command(flatten)]
    flow: Flow,
    #[command(flatten)]
    version: Version,
    #[command(flatten)]
    author: Author,
}

pub(super) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let input = kind::input(&args.input)?;
    let engine = place.engine().await?;
    let version = args.version.of(&engine, &args.kind)?;
    let mut schedule = engine
        .schedule_json(&args.name, args.calendar.clone(), &args.kind, version, &input)
        .overlap(args.overlap)
        .catch_up(args.catch_up)
        .priority(args.priority)
        .settings(|settings| {
            settings.retry = args.attempts.map(Retry::times);
            settings.timeout = args.timeout;
            settings.serial = args.flow.serial().map(Box::new);
            settings.rate = args.flow.charge().map(Box::new);
        });
    if let Some(queue) = &args.queue {
        schedule = schedule.queue(queue);
    }
    for tag in &args.tag {
        schedule = schedule.tag(tag);
    }
    let did = args.author.schedules(schedule).await?;
    let now = engine.inspect().clock().await?;
    let done = match args.calendar.next_after(now) {
        Some(at) if did == ControlOutcome::Done => {
            format!("fires next {}, {}", next::local(&args.calendar, at), span::relative(at, now))
        }
        _ => "it never fires".to_owned(),
    };
    rule::said(place, "schedule", &args.name, &did, &done)
}
