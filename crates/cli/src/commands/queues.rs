//! `windlass queues`: lists, pauses and resumes queues.

use std::process::ExitCode;

use windlass::{
    operate::views::{QueueRow, Queues},
    store::AdminAction,
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

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    match args.command {
        None => list(args.json, program).await,
        Some(Command::Pause(Named { name, actor })) => {
            // Creates the store: a queue can be paused before its first job.
            let client = program.client_or_create().await?;
            let outcome = client.administer(&AdminAction::PauseQueue(name.clone()), &actor).await?;
            outcome::print(program, "queue", &name, &outcome, "paused; running attempts continue")
        }
        Some(Command::Resume(Named { name, actor })) => {
            let client = program.client().await?;
            let outcome = client.administer(&AdminAction::ResumeQueue(name.clone()), &actor).await?;
            outcome::print(program, "queue", &name, &outcome, "resumed")
        }
    }
}

async fn list(as_json: bool, program: &Program) -> anyhow::Result<ExitCode> {
    let view = program.client().await?.queues().await?;
    if as_json {
        out::print_json(&view)?;
    } else if view.queues.is_empty() {
        out::print("no queues yet; the first job that is submitted to a queue creates it\n")?;
    } else {
        out::print(&render(&view))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(Queues { queues, now }: &Queues) -> String {
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
    let row = |queue: &QueueRow| {
        vec![
            out::plain(&queue.name),
            out::thousands(queue.ready),
            out::thousands(queue.scheduled),
            out::thousands(queue.running),
            // Empty, so that the column is left out if no queue has parked jobs.
            if queue.waiting == 0 { String::new() } else { out::thousands(queue.waiting) },
            queue.oldest_ready.map(|at| durations::relative(at, *now)).unwrap_or_default(),
            queue.paused.as_ref().map(|pause| outcome::paused_by(pause, *now)).unwrap_or_default(),
        ]
    };
    table::render(&columns, &queues.iter().map(row).collect::<Vec<_>>(), out::width())
}
