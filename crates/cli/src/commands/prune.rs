//! `windlass prune`: deletes jobs that ended long ago.

use std::{process::ExitCode, sync::atomic::Ordering, time::Duration};

use anyhow::bail;
use windlass::{State, operate::PruneProgress};

use crate::{
    args::Actor,
    confirm::confirm,
    durations, out,
    program::Program,
    progress::Progress,
    stop::{self, StopSignals},
};

/// Delete jobs that ended long ago, with all their data
///
/// Workers prune by themselves, as the settings under [retention] say. A job is kept while its parent exists and is not done, because
/// the parent can be retried, and while it holds a unique name. The keys of deleted jobs can be used again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Jobs in this state: done, failed or cancelled
    #[arg(long)]
    state: State,
    /// Jobs that ended longer ago than this, e.g. 30d
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    older_than: Duration,
    /// Only of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    actor: Actor,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    if !args.state.is_final() {
        bail!(
            "{} jobs have not ended and cannot be deleted; prune done, failed or cancelled jobs, and cancel unwanted jobs \
             first",
            args.state
        );
    }
    let client = program.client().await?;
    let of = args.kind.as_ref().map(|kind| format!(" of kind {}", out::plain(kind))).unwrap_or_default();
    let what = format!(
        "jobs{of} that have been {} for {} or longer",
        args.state,
        durations::format(args.older_than)
    );
    let question = format!("Delete {what} from {}? This cannot be undone.", program.display_url());
    if !confirm(args.yes, &question)? {
        return Ok(ExitCode::FAILURE);
    }
    let stop = StopSignals::flag()?;
    let mut progress = Progress::of_jobs(None);
    let mut on_batch = |pruned: &PruneProgress| {
        progress.update(pruned.jobs as u64, "deleted");
        !stop.load(Ordering::Relaxed)
    };
    let kind = args.kind.as_deref();
    let pruned = client.prune(args.state, args.older_than, kind, &args.actor, &mut on_batch).await;
    progress.close();
    let pruned = pruned?;
    if args.json {
        out::print_json(&pruned)?;
    } else {
        out::print(&summary(&pruned))?;
    }
    if pruned.interrupted {
        out::note("interrupted; run it again for the rest");
        return Ok(ExitCode::from(stop::INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(pruned: &PruneProgress) -> String {
    let deleted = out::thousands(pruned.jobs as u64);
    match pruned.kept {
        0 => format!("{deleted} deleted\n"),
        kept => format!(
            "{deleted} deleted, {} kept: their parent is not done, or they hold a unique name\n",
            out::thousands(kept as u64)
        ),
    }
}
