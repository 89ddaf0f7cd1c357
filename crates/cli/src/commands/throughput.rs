//! `windlass throughput`: what ended, and how long jobs waited and ran.

use std::{process::ExitCode, time::Duration};

use windlass::{
    operate::views::{EndedView, MAX_SPAN, Percentiles, ThroughputRequest, ThroughputView},
    store::ThroughputBy,
};

use crate::{durations, out, program::Program, table};

/// Show what ended by minute, hour or kind, and how long jobs waited and ran
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only of this queue; may be given several times
    #[arg(long, value_name = "NAME")]
    queue: Vec<String>,
    /// Only of this kind; may be given several times
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// How long ago to begin, at most 366d [default: 15m by minute, 24h by hour and by kind]
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    since: Option<Duration>,
    /// What a row sums up: minute, hour or kind
    #[arg(long, default_value = "minute")]
    by: ThroughputBy,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Parses a span that can be shown.
pub(super) fn parse_span(text: &str) -> Result<Duration, String> {
    match durations::parse(text)? {
        span if span.is_zero() => Err(format!("{text:?} is no time; write it as 15m, 24h or 7d")),
        span if span > MAX_SPAN => {
            Err(format!("{text:?} is longer than 366d, the longest span that is shown"))
        }
        span => Ok(span),
    }
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let default = match args.by {
        ThroughputBy::Minute => Duration::from_secs(15 * 60),
        ThroughputBy::Hour | ThroughputBy::Kind => Duration::from_secs(86_400),
    };
    let since = args.since.unwrap_or(default);
    let request = ThroughputRequest { queues: args.queue, kinds: args.kind, since, by: args.by };
    let view = program.client().await?.throughput(&request).await?;
    if args.json {
        out::print_json(&view)?;
    } else if view.rows.is_empty() {
        out::print(&format!("nothing ended in the last {}\n", durations::format(since)))?;
    } else {
        out::print(&render(&view))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A percentile as people read it.
pub(super) fn seconds(seconds: Option<f64>) -> String {
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.map(durations::format).unwrap_or_default()
}

fn render(view: &ThroughputView) -> String {
    let number = |heading| table::Column { align_right: true, ..table::column(heading) };
    let less = |heading, expendable| table::Column { expendable, ..number(heading) };
    let columns = [
        table::column("FROM (UTC)"),
        less("MIN", 6),
        table::Column { min_width: Some(8), ..table::column("QUEUE") },
        table::Column { min_width: Some(8), ..table::column("KIND") },
        number("DONE"),
        number("FAILED"),
        less("CANCELLED", 5),
        less("RETRIED", 2),
        less("WAIT p50", 3),
        number("WAIT p95"),
        less("WAIT p99", 4),
        less("RUN p50", 3),
        number("RUN p95"),
        less("RUN p99", 4),
    ];
    let cells = |ended: &EndedView| -> Vec<String> {
        let some = |count: u64| if count == 0 { String::new() } else { out::thousands(count) };
        let Percentiles { p50_seconds, p95_seconds, p99_seconds, .. } = ended.wait;
        let wait = [p50_seconds, p95_seconds, p99_seconds];
        let run = [ended.run.p50_seconds, ended.run.p95_seconds, ended.run.p99_seconds];
        let counts = [out::thousands(ended.done), out::thousands(ended.failed)];
        let rare = [some(ended.cancelled), some(ended.retried)];
        counts.into_iter().chain(rare).chain(wait.into_iter().chain(run).map(seconds)).collect()
    };
    let mut rows: Vec<Vec<String>> = Vec::with_capacity(view.rows.len() + 1);
    for row in &view.rows {
        // A minute is written as 2026-11-15 08:30.
        let from =
            row.starts_at.map(|at| at.to_string().chars().take(16).collect::<String>().replace('T', " "));
        let minutes = row.minutes.filter(|minutes| *minutes > 1).map(|minutes| minutes.to_string());
        let name = |name: &Option<String>| name.as_deref().map(out::plain).unwrap_or_default();
        let head = [from.unwrap_or_default(), minutes.unwrap_or_default(), name(&row.queue), name(&row.kind)];
        rows.push(head.into_iter().chain(cells(&row.ended)).collect());
    }
    if view.rows.len() > 1 {
        let label = "total".to_owned();
        let is_by_time = view.rows.iter().any(|row| row.starts_at.is_some());
        let head = match is_by_time {
            true => [label, String::new(), String::new(), String::new()],
            false => [String::new(), String::new(), label, String::new()],
        };
        rows.push(head.into_iter().chain(cells(&view.total)).collect());
    }
    table::render(&columns, &rows, out::width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_bounded() {
        assert_eq!(parse_span("90m"), Ok(Duration::from_secs(5_400)));
        assert!(parse_span("0s").is_err() && parse_span("400d").is_err() && parse_span("soon").is_err());
    }

    #[test]
    fn percentiles_are_durations() {
        assert_eq!(
            (seconds(Some(0.25)), seconds(Some(90.0)), seconds(None)),
            ("250ms".into(), "90s".into(), String::new())
        );
    }
}
