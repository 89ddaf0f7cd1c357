//! `windlass schedules`: schedules, which submit jobs at the ticks of a calendar.

mod next;
mod set;
mod show;

use std::process::ExitCode;

use windlass::{
    ControlOutcome, Time,
    operate::views::{ScheduleRow, Schedules},
    store::{AdminAction, ScheduleView},
};

use crate::{args::Actor, durations, out, outcome, program::Program, table};

/// List schedules; create, try, show, pause, trigger and drop them
///
/// A calendar is a cron expression or an interval, with a time zone if it is not UTC: "0 3 * * mon-fri in Europe/Berlin",
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
    /// Delete a schedule; its jobs stay
    Drop(Named),
    /// Pause a schedule until it is resumed
    Pause(Named),
    /// Resume a schedule; ticks that it missed while it was paused do not fire
    Resume(Named),
    /// Submit the job of a schedule now, and print its id
    Trigger(Named),
}

#[derive(clap::Args)]
struct Named {
    /// The schedule
    name: String,
    #[command(flatten)]
    actor: Actor,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    match args.command {
        None => list(args.json, program).await,
        Some(Command::Show(args)) => show::run(args, program).await,
        Some(Command::Set(args)) => set::run(*args, program).await,
        Some(Command::Next(args)) => next::run(&args),
        Some(Command::Drop(named)) => {
            let outcome = administer(program, &named, AdminAction::DropSchedule).await?;
            print(program, &named, &outcome, "dropped; jobs that it submitted stay")
        }
        Some(Command::Pause(named)) => {
            let outcome = administer(program, &named, AdminAction::PauseSchedule).await?;
            print(program, &named, &outcome, "paused")
        }
        Some(Command::Resume(named)) => {
            let outcome = administer(program, &named, AdminAction::ResumeSchedule).await?;
            print(program, &named, &outcome, "resumed")
        }
        Some(Command::Trigger(named)) => {
            let outcome = administer(program, &named, |name| AdminAction::Trigger { name, id: None }).await?;
            print(program, &named, &outcome, "triggered")
        }
    }
}

async fn administer(
    program: &Program,
    named: &Named,
    action: fn(String) -> AdminAction,
) -> anyhow::Result<ControlOutcome> {
    program.client().await?.administer(&action(named.name.clone()), &named.actor).await
}

fn print(program: &Program, named: &Named, outcome: &ControlOutcome, done: &str) -> anyhow::Result<ExitCode> {
    outcome::print(program, "schedule", &named.name, outcome, done)
}

async fn list(as_json: bool, program: &Program) -> anyhow::Result<ExitCode> {
    let view = program.client().await?.schedules().await?;
    if as_json {
        out::print_json(&view)?;
    } else if view.schedules.is_empty() {
        out::print(&format!(
            "no schedules; create one with `{} schedules set NAME \"every 15 minutes\" --kind KIND`\n",
            program.name
        ))?;
    } else {
        out::print(&render(&view))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(Schedules { schedules, now }: &Schedules) -> String {
    let columns = [
        table::Column { min_width: Some(14), ..table::column("SCHEDULE") },
        table::Column { min_width: Some(28), ..table::column("CALENDAR") },
        table::Column { min_width: Some(6), expendable: 1, ..table::column("KIND") },
        table::column("NEXT"),
        table::Column { expendable: 2, ..table::column("LAST JOB") },
        table::Column { min_width: Some(12), ..table::column("PAUSED") },
    ];
    let row = |ScheduleRow { view, calendar_text, .. }: &ScheduleRow| {
        vec![
            out::plain(&view.schedule.name),
            calendar_text.clone(),
            out::plain(&view.schedule.kind.kind),
            next(view, *now),
            view.last_job.map(|job| job.to_string()).unwrap_or_default(),
            view.paused.as_ref().map(|pause| outcome::paused_by(pause, *now)).unwrap_or_default(),
        ]
    };
    table::render(&columns, &schedules.iter().map(row).collect::<Vec<_>>(), out::width())
}

/// When a schedule fires next.
fn next(view: &ScheduleView, now: Time) -> String {
    match view.next_at {
        _ if view.paused.is_some() => "paused".to_owned(),
        // The tick has passed and no worker has fired it yet.
        Some(at) if at <= now => format!("due {}", durations::relative(at, now)),
        Some(at) => durations::relative(at, now),
        None => "never".to_owned(),
    }
}
