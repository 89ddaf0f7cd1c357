//! `windlass audit`: what people did, and who.

use std::process::ExitCode;

use serde_json::json;
use windlass::{
    Time,
    store::{AuditEntry, AuditFilter},
};

use crate::{out, place::Place, span, table};

/// List what was done to jobs, queues, limits and schedules, and by whom, newest first
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what was done to this: a job's id, or the name of a queue, limit, serial key or schedule
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Only entries before this number: the last of the page before
    #[arg(long, value_name = "N")]
    before: Option<i64>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let inspect = engine.inspect();
    // One more than is shown says whether there is another page.
    let limit = args.limit as usize + 1;
    let filter = AuditFilter { subject: args.subject.clone(), before: args.before, limit };
    let mut entries = inspect.audit(&filter).await?;
    let more = entries.len() > args.limit as usize;
    entries.truncate(args.limit as usize);
    let next = entries.last().filter(|_| more).map(|entry| entry.number);
    if args.json {
        out::print_json(&json!({ "entries": entries, "next_before": next }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if entries.is_empty() {
        out::print("nothing was done by hand here\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = set(&entries, inspect.clock().await?);
    if let Some(next) = next {
        let subject = args.subject.map(|subject| format!(" --subject {subject:?}")).unwrap_or_default();
        text += &format!(
            "\nolder ones: {} audit{subject} --limit {} --before {next}\n",
            place.program, args.limit
        );
    }
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn set(entries: &[AuditEntry], now: Time) -> String {
    let columns = [
        table::Column { right: true, expendable: 2, ..table::column("NO") },
        table::column("WHEN"),
        table::Column { least: Some(6), ..table::column("WHO") },
        table::Column { least: Some(12), ..table::column("DID") },
        table::Column { least: Some(12), ..table::column("TO") },
        table::Column { least: Some(8), expendable: 1, ..table::column("WHY") },
    ];
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            vec![
                entry.number.to_string(),
                span::relative(entry.at, now),
                out::plain(&entry.author),
                out::plain(&entry.action),
                out::plain(&entry.subject),
                entry.note.as_deref().map(out::plain).unwrap_or_default(),
            ]
        })
        .collect();
    table::set(&columns, &rows, out::width())
}
