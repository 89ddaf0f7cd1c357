//! `windlass limits`: lists, sets and lifts rate limits.

use std::{process::ExitCode, time::Duration};

use windlass::{
    RateLimit,
    store::{AdminAction, LimitView},
};

use crate::{args::Actor, durations, out, outcome, program::Program, table};

/// List rate limits and how many jobs wait for them; set and lift them
///
/// A rate limit gains tokens at a steady rate. The start of a job that was submitted with --rate costs as many tokens as its
/// weight.
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
    Set(Set),
    /// Lift a limit: its jobs start without paying until it is set again
    Lift(Lift),
}

/// Create a limit, or change one while jobs wait for it
#[derive(clap::Args)]
struct Set {
    /// The limit's name, as in `submit --rate NAME`
    name: String,
    /// How many tokens it gains per period
    rate: u32,
    /// The period
    #[arg(long, value_name = "DURATION", value_parser = durations::parse, default_value = "1s")]
    per: Duration,
    /// How many tokens it holds at most: what may start at once after a pause [default: the rate]
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
    #[command(flatten)]
    actor: Actor,
}

#[derive(clap::Args)]
struct Lift {
    /// The limit
    name: String,
    #[command(flatten)]
    actor: Actor,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    match args.command {
        None => list(args.json, program).await,
        Some(Command::Set(set)) => {
            let limit = RateLimit {
                burst: set.burst.unwrap_or(set.rate),
                ..RateLimit::per(&set.name, set.rate, set.per)
            };
            // Checked before a store is created.
            limit.check()?;
            let done = format!("{} per {}, burst {}", limit.rate, durations::format(limit.per), limit.burst);
            let client = program.client_or_create().await?;
            let outcome = client.administer(&AdminAction::Limit(limit), &set.actor).await?;
            outcome::print(program, "limit", &set.name, &outcome, &done)
        }
        Some(Command::Lift(lift)) => {
            let client = program.client().await?;
            let outcome = client.administer(&AdminAction::Lift(lift.name.clone()), &lift.actor).await?;
            outcome::print(
                program,
                "limit",
                &lift.name,
                &outcome,
                "lifted; its jobs start without paying until it is set again",
            )
        }
    }
}

async fn list(as_json: bool, program: &Program) -> anyhow::Result<ExitCode> {
    let view = program.client().await?.rate_limits().await?;
    if as_json {
        out::print_json(&view)?;
    } else if view.limits.is_empty() {
        out::print(&format!(
            "no rate limits; create one with `{} limits set NAME 10 --per 1s`\n",
            program.name
        ))?;
    } else {
        out::print(&render(&view.limits))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(limits: &[LimitView]) -> String {
    let number = |heading| table::Column { align_right: true, ..table::column(heading) };
    let columns = [
        table::Column { min_width: Some(8), ..table::column("LIMIT") },
        number("RATE"),
        table::column("PER"),
        number("BURST"),
        number("TOKENS NOW"),
        number("WAITING"),
        table::column("LIFTED"),
    ];
    let rows: Vec<Vec<String>> = limits
        .iter()
        .map(|view| {
            vec![
                out::plain(&view.limit.name),
                out::thousands(view.limit.rate.into()),
                durations::format(view.limit.per),
                out::thousands(view.limit.burst.into()),
                if view.lifted { String::new() } else { out::thousands(view.tokens.max(0) as u64) },
                table::capped(view.waiting),
                if view.lifted { "yes".to_owned() } else { String::new() },
            ]
        })
        .collect();
    table::render(&columns, &rows, out::width())
}
