//! `windlass fork`: starts new jobs from part of the journals of others.

use std::{process::ExitCode, sync::atomic::Ordering};

use anyhow::bail;
use serde_json::json;
use windlass::{
    JobId,
    operate::{ForkPoint, ForkProgress, Forked, Refusal},
    store::Filter,
};

use crate::{
    actions,
    args::{Actor, Filters},
    client::Client,
    confirm::confirm,
    out,
    program::Program,
    progress::Progress,
    resolve,
    stop::{self, StopSignals},
};

/// Start a new job from part of the journal of another
///
/// The new job has the input of the other job and its journal up to a position: the calls before that position return their
/// recorded results, and the code runs from there. The other job does not change. By default the position is the end of the
/// journal. Filters fork many jobs, each at its own position.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("position").args(["before", "before_entry", "from_beginning"])))]
pub(crate) struct Args {
    /// The job: its id, kind/key, its key, or its name as a child of a branch; or select jobs with filters
    job: Option<String>,
    /// Start at the call of this name, which runs again
    #[arg(long, value_name = "NAME")]
    before: Option<String>,
    /// With --before: the call with this key
    #[arg(long, value_name = "KEY", requires = "before")]
    step_key: Option<String>,
    /// Start at this entry of the journal, which is not copied; `show` lists the entries
    #[arg(long, value_name = "SEQ")]
    before_entry: Option<i32>,
    /// Start at the beginning: copy nothing of the journal
    #[arg(long)]
    from_beginning: bool,
    /// The key of the new job [default: no key]
    #[arg(long, value_name = "KEY", requires = "job")]
    new_key: Option<String>,
    #[command(flatten)]
    actor: Actor,
    /// With filters: only show the jobs that match
    #[arg(long)]
    dry_run: bool,
    /// With filters: do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Filters, instead of a job")]
    filters: Filters,
    /// Every job in the store
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    let filtered = args.all || !args.filters.is_empty();
    match &args.job {
        Some(_) if filtered || args.dry_run => {
            bail!(
                "a job is given together with filters or --dry-run, which are for many jobs; use one or the other"
            )
        }
        Some(job) => {
            let id = resolve::job(job, &client, program).await?;
            fork_one(&args, id, &client).await
        }
        None if filtered => fork_matching(&args, &client).await,
        None => bail!(
            "no job is given; name it, select jobs with filters like --kind or --state, or use --all for every job"
        ),
    }
}

fn position(args: &Args) -> ForkPoint {
    match (&args.before, args.before_entry) {
        (Some(name), _) => ForkPoint::Call { name: name.clone(), key: args.step_key.clone() },
        (None, Some(seq)) => ForkPoint::Entry(seq),
        (None, None) if args.from_beginning => ForkPoint::Beginning,
        (None, None) => ForkPoint::End,
    }
}

async fn fork_one(args: &Args, job: JobId, client: &Client) -> anyhow::Result<ExitCode> {
    let new = client.fork(job, &position(args), args.new_key.as_deref(), &args.actor).await?;
    if args.json {
        out::print_json(&json!({ "job": new, "from": job }))?;
    } else {
        out::print(&format!("{new}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn fork_matching(args: &Args, client: &Client) -> anyhow::Result<ExitCode> {
    actions::check_all(args.all, &args.filters)?;
    let filter = args.filters.to_filter();
    let preview = client.fork_preview(&filter).await?;
    if args.dry_run && args.json {
        out::print_json(&actions::preview_json(&preview))?;
        return Ok(ExitCode::SUCCESS);
    }
    let nothing = || "no job matches; nothing to fork\n".to_owned();
    let text = actions::preview_text(&preview, "fork", nothing);
    if args.dry_run {
        out::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::note(text.trim_end());
    if preview.matching > 0 && !confirm(args.yes, &format!("Fork {}?", actions::matching(&preview)))? {
        return Ok(ExitCode::FAILURE);
    }
    let stop = StopSignals::flag()?;
    let mut progress = Progress::of_jobs(Some(preview.matching as u64));
    let mut on_batch = |forked: &ForkProgress| {
        let (made, refused) = (forked.made.len() as u64, forked.refused.len() as u64);
        progress.update(made + refused, &format!("{} forked", out::thousands(made)));
        !stop.load(Ordering::Relaxed)
    };
    // Not those that were submitted after the preview.
    let filter = Filter { before: preview.before, ..filter };
    let forked = client.fork_each(&filter, &position(args), &args.actor, &mut on_batch).await;
    progress.close();
    report(args, &forked?)
}

fn report(args: &Args, forked: &ForkProgress) -> anyhow::Result<ExitCode> {
    let ForkProgress { made, refused, interrupted, .. } = forked;
    if args.json {
        out::print_json(&json!({ "forked": made, "refused": refused, "interrupted": interrupted }))?;
    } else {
        let mut text: String = made.iter().map(|Forked { from, job }| format!("{from} → {job}\n")).collect();
        text += &format!("{} forked", out::thousands(made.len() as u64));
        text += &match refused.len() {
            0 => "\n".to_owned(),
            refused => format!(", {} refused\n", out::thousands(refused as u64)),
        };
        for Refusal { job, why } in refused {
            out::note(&format!("error: {job} cannot be forked: {}", out::plain(why)));
        }
        out::print(&text)?;
    }
    Ok(match (interrupted, refused.is_empty()) {
        (true, _) => ExitCode::from(stop::INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}
