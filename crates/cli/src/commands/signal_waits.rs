//! `windlass signal-waits`: how long jobs waited for signals.

use std::{process::ExitCode, time::Duration};

use windlass::operate::views::SignalWaitsView;

use super::throughput::{parse_span, seconds};
use crate::{out, program::Program, table};

/// Show how long jobs waited for signals, by kind and signal
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only of jobs of this kind; may be given several times
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only for this signal
    #[arg(long, value_name = "NAME")]
    signal: Option<String>,
    /// How long ago the waits ended at most, to the day; at most 366d
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = parse_span)]
    since: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let view = program.client().await?.signal_waits(&args.kind, args.signal.as_deref(), args.since).await?;
    if args.json {
        out::print_json(&view)?;
    } else if view.waits.is_empty() {
        out::print("no wait for a signal has ended\n")?;
    } else {
        out::print(&render(&view))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(view: &SignalWaitsView) -> String {
    let number = |heading| table::Column { align_right: true, ..table::column(heading) };
    let columns = [
        table::Column { min_width: Some(8), ..table::column("KIND") },
        table::Column { min_width: Some(8), ..table::column("SIGNAL") },
        number("ARRIVED"),
        number("p50"),
        number("p95"),
        table::Column { expendable: 1, ..number("p99") },
        number("TIMED OUT"),
    ];
    let row = |waits: &windlass::operate::views::SignalWaitsRow| {
        vec![
            out::plain(&waits.kind),
            out::plain(&waits.signal),
            out::thousands(waits.arrived.count),
            seconds(waits.arrived.p50_seconds),
            seconds(waits.arrived.p95_seconds),
            seconds(waits.arrived.p99_seconds),
            // Empty, so that the column is left out if no wait timed out.
            if waits.timed_out == 0 { String::new() } else { out::thousands(waits.timed_out) },
        ]
    };
    table::render(&columns, &view.waits.iter().map(row).collect::<Vec<_>>(), out::width())
}
