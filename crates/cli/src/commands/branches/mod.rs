//! `windlass branches`: how far the branches of a job are, what keeps them, and their children.

mod children;
mod page;
mod view;
mod watch;

use std::process::ExitCode;

use children::{Wanted, Which};
pub(crate) use page::{Setting, list, noted};
use serde_json::json;
use view::Sum;
pub(crate) use view::{Parent, View, children as counted, notes};
use watch::{Pace, Watched};

use crate::{named, out, place::Place, stop};

/// How many children are listed unless something else is said.
const LIMIT: u32 = 20;

/// Show how far the branches of a job are, how fast, and what keeps them
///
/// On a terminal it looks once a second until all branches are merged; the rate is that of the last ten seconds. With
/// --children it lists their children instead, those in blocks one by one.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job: its id, its key, or what it is called as a child of a branch
    job: String,
    /// Only the branch of this name
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Look once a second until all branches are merged [default on a terminal]
    #[arg(long, conflicts_with_all = ["once", "json", "children"])]
    watch: bool,
    /// Look once, also on a terminal
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
    only: Which,
    /// With --children: how many at most
    #[arg(long, value_name = "N", requires = "children", default_value_t = LIMIT, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// With --children: only after this place, which the page before names
    #[arg(long, value_name = "PLACE", requires = "children")]
    after: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let job = named::job(&args.job, &engine, place).await?;
    let branch = args.branch.as_deref();
    if args.children {
        let (which, after, limit) = (args.only, args.after.as_deref(), args.limit as usize);
        Wanted { job, branch, which, after, limit, json: args.json }.list(&engine, place).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let watched = Watched { job, branch, engine: &engine, place };
    if args.watch || (!args.once && !args.json && console::Term::stdout().is_term()) {
        return Ok(match watched.watch().await? {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(stop::INTERRUPTED),
        });
    }
    let mut look = watched.look(&mut Pace::default()).await?;
    watched.explain(&mut look).await?;
    if args.json {
        let views: Vec<_> = look.views.iter().map(View::told).collect();
        let (parent, sum) = (&look.parent, Sum::of(&look.views).told());
        out::print_json(&json!({
            "job": parent.id, "kind": parent.kind, "key": parent.key, "state": parent.state, "now": look.now,
            "branches": views, "open": sum,
        }))?;
    } else {
        out::print(&page::page(&look.parent, &look.views, look.now, Setting::here(), &place.program))?;
    }
    Ok(ExitCode::SUCCESS)
}
