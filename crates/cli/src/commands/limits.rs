//! `windlass limits`: how fast jobs are started, and changing that while they wait.

use std::{process::ExitCode, time::Duration};

use windlass::{Limit, store::LimitView};

use crate::{author::Author, out, place::Place, rule, span, table};

/// List rate limits with what waits for them; set and lift them
///
/// A limit lets so many tokens through in a time; jobs that were submitted with --rate cost as many as their weight.
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
    /// Let the jobs under a limit pass, until it is set again
    Lift(Lift),
}

/// Make a limit, or change one while jobs wait for it
#[derive(clap::Args)]
struct Set {
    /// Its name, which jobs are submitted with
    name: String,
    /// How many tokens it gains…
    rate: u32,
    /// …in this time
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "1s")]
    per: Duration,
    /// How many it holds at most: what may start at once after a pause [default: the rate]
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
    #[command(flatten)]
    author: Author,
}

#[derive(clap::Args)]
struct Lift {
    /// The limit
    name: String,
    #[command(flatten)]
    author: Author,
}

/// How far the store counts who waits for a limit.
const CAP: u64 = 10_000;

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    match args.command {
        None => list(args.json, place).await,
        Some(Command::Set(set)) => {
            let limit =
                Limit { burst: set.burst.unwrap_or(set.rate), ..Limit::per(&set.name, set.rate, set.per) };
            // Before a store is made for it.
            limit.check()?;
            let done = format!("{} per {}, burst {}", limit.rate, span::show(limit.per), limit.burst);
            let engine = place.engine().await?;
            let did = set.author.control(&engine).set_limit(limit).await?;
            rule::said(place, "limit", &set.name, &did, &done)
        }
        Some(Command::Lift(lift)) => {
            let engine = place.reader().await?;
            let did = lift.author.control(&engine).lift_limit(&lift.name).await?;
            rule::said(place, "limit", &lift.name, &did, "lifted; its jobs pass until it is set again")
        }
    }
}

async fn list(as_json: bool, place: &Place) -> anyhow::Result<ExitCode> {
    let limits = place.reader().await?.inspect().rate_limits().await?;
    if as_json {
        out::print_json(&limits)?;
    } else if limits.is_empty() {
        out::print(&format!(
            "no rate limits; make one with `{} limits set NAME 10 --per 1s`\n",
            place.program
        ))?;
    } else {
        out::print(&set(&limits))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn set(limits: &[LimitView]) -> String {
    let number = |head| table::Column { right: true, ..table::column(head) };
    let columns = [
        table::Column { least: Some(8), ..table::column("LIMIT") },
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
                span::show(view.limit.per),
                out::thousands(view.limit.burst.into()),
                if view.lifted { String::new() } else { out::thousands(view.tokens.max(0) as u64) },
                table::capped(view.waiting, CAP),
                if view.lifted { "yes".to_owned() } else { String::new() },
            ]
        })
        .collect();
    table::set(&columns, &rows, out::width())
}
