//! `windlass jobs`: a page of jobs, newest first.

use std::{collections::BTreeMap, process::ExitCode};

use serde_json::json;
use windlass::{
    JobId, State, Time,
    store::{Census, Filter, Summary},
};

use crate::{out, place::Place, span, table};

/// List jobs, newest first, with how many there are in each state.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only in this state: scheduled, ready, running, done, failed or cancelled
    #[arg(long)]
    state: Option<State>,
    /// Only of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only with this key
    #[arg(long)]
    key: Option<String>,
    /// Only older than this one: the last of the page before
    #[arg(long, value_name = "ID")]
    before: Option<JobId>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How far each state is counted: whether there are ten thousand or more is all that a glance wants to know.
const CAP: u64 = 10_000;

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let inspect = engine.inspect();
    let filter = Filter {
        state: args.state,
        kind: args.kind.clone(),
        queue: args.queue.clone(),
        tag: args.tag.clone(),
        key: args.key.clone(),
        before: args.before,
        // One more than is shown says whether there is another page.
        limit: args.limit as usize + 1,
    };
    let mut jobs = inspect.jobs(&filter).await?;
    let counts = counts(&args, inspect.census(CAP).await?);
    let more = jobs.len() > args.limit as usize;
    jobs.truncate(args.limit as usize);
    let next = jobs.last().filter(|_| more).map(|job| job.id);
    if args.json {
        out::print_json(&json!({ "counts": counts, "jobs": jobs, "next_before": next }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = inspect.clock().await?;
    let mut text = total(&args, &counts);
    if jobs.is_empty() {
        text += &nothing(&args, place, counts.is_empty());
    } else {
        text.push('\n');
        text += &list(&jobs, now);
    }
    if let Some(next) = next {
        text += &format!("\nolder ones: {}\n", next_page(&args, place, next));
    }
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// How many jobs are in each state, among those of the kind and queue that were asked for.
fn counts(args: &Args, census: Vec<Census>) -> BTreeMap<State, u64> {
    let asked = |count: &Census| {
        args.kind.as_ref().is_none_or(|kind| *kind == count.kind)
            && args.queue.as_ref().is_none_or(|queue| *queue == count.queue)
    };
    let mut counts = BTreeMap::new();
    for count in census.into_iter().filter(asked).filter(|count| count.jobs > 0) {
        *counts.entry(count.state).or_default() += count.jobs;
    }
    counts.values_mut().for_each(|count| *count = CAP.min(*count));
    counts
}

fn total(args: &Args, counts: &BTreeMap<State, u64>) -> String {
    let count = |(state, count): (&State, &u64)| {
        let more = if *count >= CAP { "+" } else { "" };
        format!("{} {state}", out::thousands(*count) + more)
    };
    let counts: Vec<String> = counts.iter().map(count).collect();
    if counts.is_empty() {
        return String::new();
    }
    let of = |what: &str, name: &Option<String>| name.as_ref().map(|name| format!("{what} {name}"));
    let scope: Vec<String> =
        [of("kind", &args.kind), of("queue", &args.queue)].into_iter().flatten().collect();
    let scope = if scope.is_empty() { String::new() } else { format!("{}: ", scope.join(", ")) };
    format!("{scope}{}\n", counts.join(" · "))
}

fn nothing(args: &Args, place: &Place, empty: bool) -> String {
    let filtered = args.state.is_some()
        || args.before.is_some()
        || [&args.kind, &args.queue, &args.tag, &args.key].iter().any(|filter| filter.is_some());
    match (filtered, empty) {
        (true, _) => "no job matches\n".to_owned(),
        (false, _) => {
            format!(
                "no jobs yet; put one in with `{} submit noop --wait`, and start a worker\n",
                place.program
            )
        }
    }
}

fn list(jobs: &[Summary], now: Time) -> String {
    let columns = [
        table::column("ID"),
        table::column("STATE"),
        table::Column { least: Some(8), ..table::column("KIND") },
        table::Column { least: Some(7), expendable: 3, ..table::column("QUEUE") },
        table::Column { least: Some(6), expendable: 4, ..table::column("KEY") },
        table::Column { right: true, expendable: 5, ..table::column("FAILED") },
        table::Column { expendable: 2, ..table::column("SUBMITTED") },
        table::Column { least: Some(8), expendable: 1, ..table::column("NOTE") },
    ];
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            vec![
                job.id.to_string(),
                job.state.to_string(),
                if job.version == 1 {
                    out::plain(&job.kind)
                } else {
                    format!("{} v{}", out::plain(&job.kind), job.version)
                },
                out::plain(&job.queue),
                job.key.as_deref().map(out::plain).unwrap_or_default(),
                if job.attempts == 0 { String::new() } else { format!("{}x", job.attempts) },
                span::relative(job.submitted_at, now),
                note(job, now),
            ]
        })
        .collect();
    table::set(&columns, &rows, out::width())
}

/// What matters of a job in its state.
fn note(job: &Summary, now: Time) -> String {
    let took = |at: Time| format!("after {}", span::show(at.since(job.submitted_at)));
    match (job.state, job.reason, job.finished_at) {
        (State::Scheduled, ..) => format!("due {}", span::relative(job.due_at, now)),
        (State::Failed, Some(reason), _) => reason.to_string(),
        (State::Done, _, Some(at)) => took(at),
        _ => String::new(),
    }
}

/// The command that shows the next page.
fn next_page(args: &Args, place: &Place, next: JobId) -> String {
    let mut command = format!("{} jobs", place.program);
    if let Some(state) = args.state {
        command += &format!(" --state {state}");
    }
    let texts = [("kind", &args.kind), ("queue", &args.queue), ("tag", &args.tag), ("key", &args.key)];
    for (name, value) in texts {
        if let Some(value) = value {
            let plain = value.chars().all(|c| c.is_alphanumeric() || "-_.:/".contains(c));
            command += &if plain { format!(" --{name} {value}") } else { format!(" --{name} {value:?}") };
        }
    }
    if args.limit != 20 {
        command += &format!(" --limit {}", args.limit);
    }
    command + &format!(" --before {next}")
}
