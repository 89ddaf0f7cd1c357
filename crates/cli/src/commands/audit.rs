//! `windlass audit`: lists the audit log.

use std::process::ExitCode;

use windlass::{
    Time,
    operate::{AuditFilter, views::AuditPage},
    store::AuditEntry,
};

use crate::{durations, out, program::Program, resolve, table};

/// List what people did to jobs, queues, limits and schedules, newest first
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only entries about this subject: the name of a queue, limit, serial key or schedule, or a job by id, kind/key or key
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Only entries before this number, which the previous page printed
    #[arg(long, value_name = "N")]
    before: Option<i64>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    let mut filter = AuditFilter { subject: args.subject, before: args.before, limit: args.limit as usize };
    let mut page = client.audit(&filter).await?;
    // Entries about a job have its id. Nothing has this name as it is, so it may name a job in another way.
    if page.entries.is_empty()
        && let Some(name) = &filter.subject
        && let Ok(job) = resolve::job(name, &client, program).await
    {
        filter.subject = Some(job.to_string());
        page = client.audit(&filter).await?;
    }
    if args.json {
        out::print_json(&page)?;
        return Ok(ExitCode::SUCCESS);
    }
    let AuditPage { entries, next_before, now } = page;
    if entries.is_empty() {
        out::print("the audit log has no entries\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = render(&entries, now);
    if let Some(next) = next_before {
        let subject = filter.subject.map(|subject| format!(" --subject {subject:?}")).unwrap_or_default();
        text += &format!(
            "\nolder entries: {} audit{subject} --limit {} --before {next}\n",
            program.name, args.limit
        );
    }
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn render(entries: &[AuditEntry], now: Time) -> String {
    let columns = [
        table::Column { align_right: true, expendable: 2, ..table::column("NO") },
        table::column("WHEN"),
        table::Column { min_width: Some(6), ..table::column("ACTOR") },
        table::Column { min_width: Some(12), ..table::column("ACTION") },
        table::Column { min_width: Some(12), ..table::column("SUBJECT") },
        table::Column { min_width: Some(8), expendable: 1, ..table::column("NOTE") },
    ];
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            vec![
                entry.number.to_string(),
                durations::relative(entry.at, now),
                out::plain(&entry.author),
                out::plain(&entry.action),
                out::plain(&entry.subject),
                entry.note.as_deref().map(out::plain).unwrap_or_default(),
            ]
        })
        .collect();
    table::render(&columns, &rows, out::width())
}
