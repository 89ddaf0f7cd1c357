//! `windlass branches`: shows the progress of a job's branches, what blocks them, and their children.

mod children;
mod page;
mod watch;

use std::process::ExitCode;

use children::{ChildFilter, ChildPage};
pub(crate) use page::{Layout, render_notes, table};
use watch::BranchWatcher;

use crate::{out, program::Program, resolve, stop};

/// How many children are listed by default.
const LIMIT: u32 = 20;

/// Show the progress and rate of a job's branches, and what blocks them
///
/// On a terminal the page is refreshed once a second until all branches are merged; the rate is that of the last ten seconds.
/// With --children it lists their children instead, including those that are packed into blocks.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job: its id, kind/key, its key, or its name as a child of a branch
    job: String,
    /// Only the branch of this name
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Refresh once a second until all branches are merged [default on a terminal]
    #[arg(long, conflicts_with_all = ["once", "json", "children"])]
    watch: bool,
    /// Print once, even on a terminal
    #[arg(long)]
    once: bool,
    /// List the children
    #[arg(long)]
    children: bool,
    /// With --children: which of them
    #[arg(
        long,
        value_name = "WHICH",
        requires = "children",
        default_value = "all",
        hide_default_value = true
    )]
    only: ChildFilter,
    /// With --children: at most this many
    #[arg(long, value_name = "N", requires = "children", default_value_t = LIMIT, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// With --children: only children after this position, which the previous page printed
    #[arg(long, value_name = "POSITION", requires = "children")]
    after: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    let job = resolve::job_or_block(&args.job, &client, program).await?;
    let branch = args.branch.as_deref();
    if args.children {
        let (only, after, limit) = (args.only, args.after.as_deref(), args.limit as usize);
        ChildPage { job, branch, only, after, limit, json: args.json }.print(&client, program).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let watcher = BranchWatcher { job, branch, client: &client, program };
    if args.watch || (!args.once && !args.json && console::Term::stdout().is_term()) {
        return Ok(match watcher.watch().await? {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(stop::INTERRUPTED),
        });
    }
    let view = watcher.read(true).await?;
    if args.json {
        out::print_json(&view)?;
    } else {
        out::print(&page::page(&view, Layout::of_terminal()))?;
    }
    Ok(ExitCode::SUCCESS)
}
