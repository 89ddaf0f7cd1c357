//! `windlass queues`: lists, pauses and resumes queues.

use std::{collections::BTreeMap, process::ExitCode};

use serde_json::{Value, json};
use windlass::{
    State, Time,
    store::{Backlog, QueueView, StateCount},
};

use crate::{args::Actor, durations, out, outcome, program::Program, table};

/// List queues with the number of jobs in each state; pause and resume them
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
    /// Pause a queue: none of its jobs starts until it is resumed; running attempts continue
    Pause(Named),
    /// Resume a queue
    Resume(Named),
}

#[derive(clap::Args)]
struct Named {
    /// The queue
    name: String,
    #[command(flatten)]
    actor: Actor,
}

/// Counting stops here: exact numbers would cost a scan, and an overview does not need them.
const CAP: u64 = 10_000;

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    match args.command {
        None => list(args.json, program).await,
        Some(Command::Pause(Named { name, actor })) => {
            // Creates the store: a queue can be paused before its first job.
            let engine = program.engine().await?;
            let outcome = actor.control(&engine).pause_queue(&name).await?;
            outcome::print(program, "queue", &name, &outcome, "paused; running attempts continue")
        }
        Some(Command::Resume(Named { name, actor })) => {
            let engine = program.reader().await?;
            let outcome = actor.control(&engine).resume_queue(&name).await?;
            outcome::print(program, "queue", &name, &outcome, "resumed")
        }
    }
}

async fn list(as_json: bool, program: &Program) -> anyhow::Result<ExitCode> {
    let engine = program.reader().await?;
    let inspect = engine.inspect();
    let (queues, backlog, now) =
        (inspect.queues().await?, inspect.backlog(CAP).await?, inspect.clock().await?);
    let parked = parked(&inspect.state_counts(CAP).await?);
    let backlog: BTreeMap<&str, &Backlog> =
        backlog.iter().map(|queue| (queue.queue.as_str(), queue)).collect();
    let none = Backlog::default();
    let rows: Vec<Row> = queues
        .iter()
        .map(|queue| Row {
            queue,
            backlog: backlog.get(queue.name.as_str()).copied().unwrap_or(&none),
            parked: parked.get(&queue.name).copied().unwrap_or(0),
        })
        .collect();
    if as_json {
        out::print_json(&rows.iter().map(to_json).collect::<Vec<Value>>())?;
    } else if rows.is_empty() {
        out::print("no queues yet; the first job that is submitted to a queue creates it\n")?;
    } else {
        out::print(&render(&rows, now))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A queue, its backlog, and the number of its parked jobs.
struct Row<'a> {
    queue: &'a QueueView,
    backlog: &'a Backlog,
    parked: u64,
}

/// The number of parked jobs in each queue.
fn parked(counts: &[StateCount]) -> BTreeMap<String, u64> {
    let mut parked = BTreeMap::new();
    for count in counts.iter().filter(|count| count.state == State::Waiting) {
        *parked.entry(count.queue.clone()).or_default() += count.jobs;
    }
    parked
}

fn to_json(Row { queue, backlog, parked }: &Row) -> Value {
    json!({
        "name": queue.name, "ready": backlog.ready, "scheduled": backlog.scheduled, "running": backlog.running,
        "waiting": CAP.min(*parked),
        "oldest_ready": queue.oldest_ready, "paused": queue.paused,
    })
}

fn render(rows: &[Row], now: Time) -> String {
    let number = |heading| table::Column { align_right: true, ..table::column(heading) };
    let columns = [
        table::Column { min_width: Some(8), ..table::column("QUEUE") },
        number("READY"),
        number("SCHEDULED"),
        number("RUNNING"),
        number("WAITING"),
        table::Column { expendable: 1, ..table::column("OLDEST") },
        table::Column { min_width: Some(12), ..table::column("PAUSED") },
    ];
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|Row { queue, backlog, parked }| {
            vec![
                out::plain(&queue.name),
                table::capped(backlog.ready, CAP),
                table::capped(backlog.scheduled, CAP),
                table::capped(backlog.running, CAP),
                // Empty, so that the column is left out if no queue has parked jobs.
                if *parked == 0 { String::new() } else { table::capped(*parked, CAP) },
                queue.oldest_ready.map(|at| durations::relative(at, now)).unwrap_or_default(),
                queue.paused.as_ref().map(|pause| outcome::paused_by(pause, now)).unwrap_or_default(),
            ]
        })
        .collect();
    table::render(&columns, &rows, out::width())
}
