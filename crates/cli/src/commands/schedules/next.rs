//! `windlass schedules next`: the ticks of a calendar, to try one before it is used.

use std::{
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{Calendar, Time};

use crate::{out, span};

/// Print when a calendar ticks next, to try it; no store is needed
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
        bail!(
            "the calendar \"{}\" has no tick before the end of the year 9999; choose another",
            args.calendar
        );
    }
    if args.json {
        let tick = |tick: &Time| json!({ "at": tick, "local": local(&args.calendar, *tick) });
        let ticks: Vec<Value> = ticks.iter().map(tick).collect();
        out::print_json(&json!({ "calendar": args.calendar.to_string(), "ticks": ticks }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = ticks.iter().map(|tick| {
        let away = if *tick > now { tick.since(now) } else { Duration::ZERO };
        let away =
            if away.is_zero() { span::relative(*tick, now) } else { format!("in {}", span::show(away)) };
        format!("{}  ({away})\n", local(&args.calendar, *tick))
    });
    out::print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// A tick by the clock on the calendar's wall.
pub(super) fn local(calendar: &Calendar, tick: Time) -> String {
    let at = jiff::Timestamp::from_microsecond(tick.micros()).ok();
    let local = at.and_then(|at| at.in_tz(calendar.in_zone().name()).ok());
    local.map_or_else(|| tick.to_string(), |local| local.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string())
}
