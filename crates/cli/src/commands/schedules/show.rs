//! `windlass schedules show`: shows one schedule.

use std::process::ExitCode;

use anyhow::bail;
use windlass::{
    Time,
    operate::views::{ScheduleDetails, ScheduleRow},
    store::{Firing, Miss, ScheduleView},
};

use super::next;
use crate::{commands::show, durations, out, outcome, program::Program};

/// Show one schedule: what it submits, its latest firings, and the ticks that it missed and why
#[derive(clap::Args)]
pub(super) struct Args {
    /// The schedule
    name: String,
    /// How many firings and missed ticks
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    let Some(details) = client.schedule(&args.name, args.limit as usize).await? else {
        bail!("there is no schedule {}; `{} schedules` lists them", out::plain(&args.name), program.name);
    };
    if args.json {
        out::print_json(&details)?;
    } else {
        out::print(&page(&details))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(details: &ScheduleDetails) -> String {
    let ScheduleDetails { row: ScheduleRow { view, input, .. }, firings, misses, now } = details;
    let (schedule, now) = (&view.schedule, *now);
    let mut page = format!("schedule {}\n", out::plain(&schedule.name));
    let mut line = |name: &str, text: String| page += &format!("  {name:<11}{text}\n");
    line("calendar", schedule.calendar.to_string());
    if let Some(pause) = &view.paused {
        line("paused", outcome::paused_by(pause, now));
    }
    match view.next_at {
        Some(at) if view.paused.is_none() => {
            line("next", format!("{}  ({})", next::local(&schedule.calendar, at), super::next(view, now)));
        }
        None if view.paused.is_none() => line("next", "never".to_owned()),
        _ => {}
    }
    line("overlap", format!("{}: {}", schedule.overlap, overlap(view)));
    line("catch-up", schedule.catch_up.to_string());
    line("kind", format!("{}, version {}", out::plain(&schedule.kind.kind), schedule.kind.version));
    let priority =
        if schedule.priority == 0 { String::new() } else { format!(", priority {}", schedule.priority) };
    line("queue", out::plain(&schedule.queue) + &priority);
    if !schedule.tags.is_empty() {
        line("tags", out::plain(&schedule.tags.join(", ")));
    }
    page += &show::settings(&schedule.settings);
    page += &show::section("input", &show::pretty(input));
    if firings.is_empty() {
        page += "\nno recent firings\n";
    } else {
        let firing = |firing: &Firing| {
            let at = next::local(&schedule.calendar, firing.tick);
            format!("{at}  job {}  ({})\n", firing.job, durations::relative(firing.tick, now))
        };
        page += &show::section("fired, newest first", &firings.iter().map(firing).collect::<String>());
    }
    if !misses.is_empty() {
        let miss = |miss: &Miss| missed(view, miss);
        page += &show::section("missed, newest first", &misses.iter().map(miss).collect::<String>());
    }
    page
}

fn overlap(view: &ScheduleView) -> &'static str {
    use windlass::Overlap;
    match view.schedule.overlap {
        Overlap::Skip => "a tick is skipped while the previous job has not ended",
        Overlap::Queue => "the job of a tick waits until the previous one has ended",
        Overlap::CancelPrevious => "the previous job is cancelled",
        Overlap::Allow => "jobs of several ticks may run at once",
    }
}

fn missed(view: &ScheduleView, miss: &Miss) -> String {
    let local = |at: Time| next::local(&view.schedule.calendar, at);
    let missed = &miss.missed;
    let more = if missed.at_least { "at least " } else { "" };
    let what = match missed.count {
        1 if !missed.at_least => local(missed.from),
        count => {
            format!(
                "{more}{} ticks from {} to {}",
                out::thousands(count),
                local(missed.from),
                local(missed.to)
            )
        }
    };
    format!("{what}: {}\n", out::plain(&miss.why))
}
