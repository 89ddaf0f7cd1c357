//! `windlass queues`: the lines that jobs wait in, and stopping them.

use std::{collections::BTreeMap, process::ExitCode};

use serde_json::{Value, json};
use windlass::{
    State, Time,
    store::{Backlog, QueueView, StateCount},
};

use crate::{author::Author, out, place::Place, rule, span, table};

/// List queues with what waits and runs in them; pause and resume them
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
    /// Start nothing from a queue until it is resumed; what runs runs on
    Pause(Named),
    /// Start jobs of a queue again
    Resume(Named),
}

#[derive(clap::Args)]
struct Named {
    /// The queue
    name: String,
    #[command(flatten)]
    author: Author,
}

/// How far jobs are counted: whether there are ten thousand or more is all that a glance wants to know.
const CAP: u64 = 10_000;

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    match args.command {
        None => list(args.json, place).await,
        Some(Command::Pause(Named { name, author })) => {
            // Also before the first job comes.
            let engine = place.engine().await?;
            let did = author.control(&engine).pause_queue(&name).await?;
            rule::said(place, "queue", &name, &did, "paused; what runs in it runs on")
        }
        Some(Command::Resume(Named { name, author })) => {
            let engine = place.reader().await?;
            let did = author.control(&engine).resume_queue(&name).await?;
            rule::said(place, "queue", &name, &did, "resumed")
        }
    }
}

async fn list(as_json: bool, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
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
        out::print_json(&rows.iter().map(told).collect::<Vec<Value>>())?;
    } else if rows.is_empty() {
        out::print("no queues yet: the first job that is submitted to one makes it\n")?;
    } else {
        out::print(&set(&rows, now))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A queue, what waits and runs in it, and how many of its jobs are parked.
struct Row<'a> {
    queue: &'a QueueView,
    backlog: &'a Backlog,
    parked: u64,
}

/// How many jobs are parked in each queue.
fn parked(census: &[StateCount]) -> BTreeMap<String, u64> {
    let mut parked = BTreeMap::new();
    for count in census.iter().filter(|count| count.state == State::Waiting) {
        *parked.entry(count.queue.clone()).or_default() += count.jobs;
    }
    parked
}

fn told(Row { queue, backlog, parked }: &Row) -> Value {
    json!({
        "name": queue.name, "ready": backlog.ready, "scheduled": backlog.scheduled, "running": backlog.running,
        "waiting": CAP.min(*parked),
        "oldest_ready": queue.oldest_ready, "paused": queue.paused,
    })
}

fn set(rows: &[Row], now: Time) -> String {
    let number = |head| table::Column { right: true, ..table::column(head) };
    let columns = [
        table::Column { least: Some(8), ..table::column("QUEUE") },
        number("READY"),
        number("SCHEDULED"),
        number("RUNNING"),
        number("WAITING"),
        table::Column { expendable: 1, ..table::column("OLDEST") },
        table::Column { least: Some(12), ..table::column("PAUSED") },
    ];
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|Row { queue, backlog, parked }| {
            vec![
                out::plain(&queue.name),
                table::capped(backlog.ready, CAP),
                table::capped(backlog.scheduled, CAP),
                table::capped(backlog.running, CAP),
                // A column without anything in it is not shown.
                if *parked == 0 { String::new() } else { table::capped(*parked, CAP) },
                queue.oldest_ready.map(|at| span::relative(at, now)).unwrap_or_default(),
                queue.paused.as_ref().map(|pause| rule::paused(pause, now)).unwrap_or_default(),
            ]
        })
        .collect();
    table::set(&columns, &rows, out::width())
}
