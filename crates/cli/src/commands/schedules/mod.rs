//! `windlass schedules`: jobs that are submitted by the calendar.

mod next;
mod set;
mod show;

use std::process::ExitCode;

use serde_json::Value;
use windlass::{ControlOutcome, Time, store::ScheduleView};

use crate::{author::Author, out, place::Place, rule, span, table};

/// List schedules; make, try, show, pause, trigger and drop them
///
/// A calendar is a cron expression or a step, with a time zone if it is not UTC: "0 3 * * mon-fri in Europe/Berlin",
/// "every 15 minutes", "@daily".
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    Show(show::Args),
    Set(Box<set::Args>),
    Next(next::Args),
    /// Forget a schedule; its jobs stay
    Drop(Named),
    /// Let a schedule rest until it is resumed
    Pause(Named),
    /// Let a schedule go on; what would have fired meanwhile does not
    Resume(Named),
    /// Submit the job of a schedule now, and print its id
    Trigger(Named),
}

#[derive(clap::Args)]
struct Named {
    /// The schedule
    name: String,
    #[command(flatten)]
    author: Author,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    match args.command {
        None => list(args.json, place).await,
        Some(Command::Show(args)) => show::run(args, place).await,
        Some(Command::Set(args)) => set::run(*args, place).await,
        Some(Command::Next(args)) => next::run(&args),
        Some(Command::Drop(named)) => {
            let engine = place.reader().await?;
            let did = named.author.control(&engine).drop_schedule(&named.name).await?;
            said(place, &named, &did, "dropped; jobs that it submitted stay")
        }
        Some(Command::Pause(named)) => {
            let engine = place.reader().await?;
            let did = named.author.control(&engine).pause_schedule(&named.name).await?;
            said(place, &named, &did, "paused")
        }
        Some(Command::Resume(named)) => {
            let engine = place.reader().await?;
            let did = named.author.control(&engine).resume_schedule(&named.name).await?;
            said(place, &named, &did, "resumed")
        }
        Some(Command::Trigger(named)) => {
            let engine = place.reader().await?;
            let did = named.author.control(&engine).trigger(&named.name).await?;
            said(place, &named, &did, "triggered")
        }
    }
}

fn said(place: &Place, named: &Named, did: &ControlOutcome, done: &str) -> anyhow::Result<ExitCode> {
    rule::said(place, "schedule", &named.name, did, done)
}

async fn list(as_json: bool, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let schedules = engine.inspect().schedules().await?;
    if as_json {
        let all: Vec<Value> = schedules.iter().map(told).collect::<anyhow::Result<_>>()?;
        out::print_json(&all)?;
    } else if schedules.is_empty() {
        out::print(&format!(
            "no schedules; make one with `{} schedules set NAME \"every 15 minutes\" --kind KIND`\n",
            place.program
        ))?;
    } else {
        out::print(&set(&schedules, engine.inspect().clock().await?))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A schedule as JSON, with its calendar also as it is written and its input, which is kept apart.
fn told(view: &ScheduleView) -> anyhow::Result<Value> {
    let mut told = serde_json::to_value(view)?;
    let input = &view.schedule.input;
    told["calendar_text"] = view.schedule.calendar.to_string().into();
    told["input"] = match (input.codec, serde_json::from_slice(&input.bytes)) {
        (0, Ok(value)) => value,
        (codec, _) => format!("<{} bytes, codec {codec}>", input.bytes.len()).into(),
    };
    Ok(told)
}

fn set(schedules: &[ScheduleView], now: Time) -> String {
    let columns = [
        table::Column { least: Some(14), ..table::column("SCHEDULE") },
        table::Column { least: Some(28), ..table::column("CALENDAR") },
        table::Column { least: Some(6), expendable: 1, ..table::column("KIND") },
        table::column("NEXT"),
        table::Column { expendable: 2, ..table::column("LAST JOB") },
        table::Column { least: Some(12), ..table::column("PAUSED") },
    ];
    let rows: Vec<Vec<String>> = schedules
        .iter()
        .map(|view| {
            vec![
                out::plain(&view.schedule.name),
                view.schedule.calendar.to_string(),
                out::plain(&view.schedule.kind.kind),
                next(view, now),
                view.last_job.map(|job| job.to_string()).unwrap_or_default(),
                view.paused.as_ref().map(|pause| rule::paused(pause, now)).unwrap_or_default(),
            ]
        })
        .collect();
    table::set(&columns, &rows, out::width())
}

/// When a schedule fires next, in short.
fn next(view: &ScheduleView, now: Time) -> String {
    match view.next_at {
        _ if view.paused.is_some() => "paused".to_owned(),
        // Told to fire, and nobody has: a worker does.
        Some(at) if at <= now => format!("due {}", span::relative(at, now)),
        Some(at) => span::relative(at, now),
        None => "never".to_owned(),
    }
}
