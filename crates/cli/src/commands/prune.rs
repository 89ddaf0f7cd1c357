//! `windlass prune`: deletes jobs that ended long ago.

use std::{process::ExitCode, sync::atomic::Ordering, time::Duration};

use anyhow::bail;
use serde_json::json;
use windlass::{State, store::Pruned};

use crate::{
    ask,
    author::Author,
    out,
    place::Place,
    progress::Progress,
    span,
    stop::{self, Stop},
};

/// Delete jobs that ended long ago, with all that is kept of them
///
/// Workers do this by themselves, as the settings under [retention] say. Jobs whose parent has not ended, and jobs that
/// have a unique name still, are kept. The keys of deleted jobs are free again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Those that ended in this state: done, failed or cancelled
    #[arg(long)]
    state: State,
    /// Those that ended longer ago than this, e.g. 30d
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    older_than: Duration,
    /// Only of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Do it without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    author: Author,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    if !args.state.is_final() {
        bail!(
            "jobs that are {} have not ended, and unfinished work is not deleted; prune done, failed or cancelled jobs, \
             and cancel what is not wanted first",
            args.state
        );
    }
    let engine = place.reader().await?;
    let of = args.kind.as_ref().map(|kind| format!(" of kind {}", out::plain(kind))).unwrap_or_default();
    let what = format!("jobs{of} that were {} for {} or longer", args.state, span::show(args.older_than));
    let question = format!("Delete {what} from {}? This cannot be taken back.", place.shown());
    if !ask::sure(args.yes, &question)? {
        return Ok(ExitCode::FAILURE);
    }
    let told = Stop::flag()?;
    let mut progress = Progress::new(None);
    let seen = |pruned: &Pruned| {
        progress.at(pruned.jobs as u64, "deleted");
        !told.load(Ordering::Relaxed)
    };
    let control = args.author.control(&engine);
    let pruned = control.prune(args.state, args.older_than, args.kind.as_deref(), seen).await;
    progress.close();
    let pruned = pruned?;
    let cut_short = pruned.after.is_some();
    if args.json {
        out::print_json(&json!({ "pruned": pruned.jobs, "kept": pruned.kept, "cut_short": cut_short }))?;
    } else {
        out::print(&account(&pruned))?;
    }
    if cut_short {
        out::note("ended on the way; repeat it for the rest");
        return Ok(ExitCode::from(stop::INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

fn account(pruned: &Pruned) -> String {
    let deleted = out::thousands(pruned.jobs as u64);
    match pruned.kept {
        0 => format!("{deleted} deleted\n"),
        kept => format!(
            "{deleted} deleted, {} kept: their parent may still need them, or they have their unique name still\n",
            out::thousands(kept as u64)
        ),
    }
}
