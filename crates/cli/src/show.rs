//! `windlass show`: all that is known of one job.

use std::process::ExitCode;

use anyhow::bail;
use windlass::{
    JobId, Payload, State, Time,
    store::{Attempt, Job},
};

use crate::{out, place::Place, span};

/// Show all that is known of one job.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job
    id: JobId,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let inspect = engine.inspect();
    let Some(job) = inspect.job(args.id).await? else {
        bail!(
            "there is no job {} in {}; it was pruned, or is in another store (`{} jobs` lists this one's)",
            args.id,
            place.shown(),
            place.program
        );
    };
    let history = inspect.history(args.id).await?;
    if args.json {
        let mut told = serde_json::to_value(&job)?;
        told["history"] = serde_json::to_value(&history)?;
        out::print_json(&told)?;
    } else {
        out::print(&page(&job, &history, inspect.clock().await?))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(job: &Job, history: &[Attempt], now: Time) -> String {
    let summary = &job.summary;
    let mut page = format!("job {}\n", summary.id);
    let mut line = |name: &str, text: String| page += &format!("  {name:<11}{text}\n");
    line("state", state(job, now));
    line("kind", format!("{}, version {}", out::plain(&summary.kind), summary.version));
    let priority =
        if summary.priority == 0 { String::new() } else { format!(", priority {}", summary.priority) };
    line("queue", out::plain(&summary.queue) + &priority);
    if let Some(key) = &summary.key {
        line("key", out::plain(key));
    }
    if !job.tags.is_empty() {
        line("tags", out::plain(&job.tags.join(", ")));
    }
    line("submitted", moment(summary.submitted_at, now));
    if summary.due_at != summary.submitted_at {
        line("due", moment(summary.due_at, now));
    }
    if let Some(at) = job.started_at {
        line(if summary.state == State::Running { "claimed" } else { "last start" }, moment(at, now));
    }
    if let Some(at) = summary.finished_at {
        line("ended", moment(at, now));
    }
    if let Some(at) = job.deadline_at {
        line("deadline", moment(at, now));
    }
    if let Some(worker) = job.worker {
        line("worker", worker.to_string());
    }
    if let Some(timeout) = job.settings.timeout {
        line("timeout", format!("{} per attempt", span::show(timeout)));
    }
    if let Some(trace) = &job.settings.trace {
        line("trace", out::plain(trace));
    }
    for rule in job.settings.retry.iter().flat_map(|retry| retry.as_rules()) {
        let class = rule.class.as_deref().unwrap_or("any error");
        line(
            "retry",
            format!(
                "{class}: {} attempts, {} to {} apart",
                rule.attempts,
                span::show(rule.base),
                span::show(rule.cap)
            ),
        );
    }
    if job.deaths > 0 {
        line(
            "deaths",
            format!("{} workers died holding it, {} of them while it ran alone", job.deaths, job.crashes),
        );
    }
    line("writes", format!("{} committed, epoch {}", job.rev.0, job.epoch.0));
    if let Some(options) = &job.options {
        line("options", out::plain(options));
    }
    page += &block("input", &payload(&job.input));
    if let Some(output) = &job.output {
        page += &block("output", &payload(output));
    }
    if !history.is_empty() {
        page += &block("attempts that failed", &attempts(history, now));
    }
    page
}

fn state(job: &Job, now: Time) -> String {
    let summary = &job.summary;
    match (summary.state, summary.reason) {
        (State::Failed, Some(reason)) => {
            let error = job.failure.as_ref().map(|failure| format!(": {}", out::plain(&failure.to_string())));
            format!("failed ({reason}){}", error.unwrap_or_default())
        }
        (State::Cancelled, _) => {
            let why = job.failure.as_ref().map(|failure| format!(": {}", out::plain(&failure.message)));
            format!("cancelled{}", why.unwrap_or_default())
        }
        (State::Scheduled, _) => format!("scheduled, due {}", span::relative(summary.due_at, now)),
        (state, _) => state.to_string(),
    }
}

fn moment(at: Time, now: Time) -> String {
    format!("{at}  ({})", span::relative(at, now))
}

fn block(title: &str, text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("  {line}\n")).collect();
    format!("\n{title}\n{lines}")
}

/// A payload as readable JSON; strings in it stay escaped, so that it cannot steer the terminal.
fn payload(payload: &Payload) -> String {
    match (payload.codec, serde_json::from_slice::<serde_json::Value>(&payload.bytes)) {
        (0, Ok(value)) => serde_json::to_string_pretty(&value).unwrap_or_default(),
        (codec, _) => format!("{} bytes written by codec {codec}", payload.bytes.len()),
    }
}

fn attempts(history: &[Attempt], now: Time) -> String {
    let attempt = |(number, attempt): (usize, &Attempt)| {
        let took = span::show(attempt.ended_at.since(attempt.started_at));
        format!(
            "{:>2}  {} ({}), {took}, worker {}\n    {}\n",
            number + 1,
            attempt.started_at,
            span::relative(attempt.started_at, now),
            attempt.worker,
            out::plain(&attempt.failure.to_string())
        )
    };
    history.iter().enumerate().map(attempt).collect()
}
