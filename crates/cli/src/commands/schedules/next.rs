//! `windlass schedules next`: prints the next ticks of a calendar.

use std::{process::ExitCode, time::SystemTime};

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{Calendar, Time};

use crate::{durations, out};

/// Print the next ticks of a calendar, to try it; needs no store
#[derive(clap::Args)]
pub(super) struct Args {
    /// The calendar, in quotes: "0 3 * * mon-fri in Europe/Berlin", "every 15 minutes", "@daily"
    calendar: Calendar,
    /// How many ticks
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    count: u32,
    /// Ticks after this time [default: now]
    #[arg(long, value_name = "TIME")]
    after: Option<Time>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let now = Time::from_system(SystemTime::now());
    let ticks: Vec<Time> =
        args.calendar.ticks_after(args.after.unwrap_or(now)).take(args.count as usize).collect();
    if ticks.is_empty() {
        bail!("the calendar \"{}\" has no tick before the end of the year 9999; use another", args.calendar);
    }
    if args.json {
        let tick = |tick: &Time| json!({ "at": tick, "local": local(&args.calendar, *tick) });
        let ticks: Vec<Value> = ticks.iter().map(tick).collect();
        out::print_json(&json!({ "calendar": args.calendar.to_string(), "ticks": ticks }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let line =
        |tick: &Time| format!("{}  ({})\n", local(&args.calendar, *tick), durations::relative(*tick, now));
    out::print(&ticks.iter().map(line).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// A tick in the time zone of its calendar.
pub(super) fn local(calendar: &Calendar, tick: Time) -> String {
    let at = jiff::Timestamp::from_microsecond(tick.micros()).ok();
    let local = at.and_then(|at| at.in_tz(calendar.in_zone().name()).ok());
    local.map_or_else(|| tick.to_string(), |local| local.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string())
}
