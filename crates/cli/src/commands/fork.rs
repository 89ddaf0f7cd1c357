//! `windlass fork`: starts new jobs from part of the journals of others.

use std::{process::ExitCode, sync::atomic::Ordering};

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{
    Engine, JobId,
    operate::{Fork, ForkProgress, Preview},
    store::{Filter, Inspect},
};

use crate::{
    actions,
    args::{Actor, Filters},
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

/// Up to how many matching jobs a preview counts: reading more would take long, and nobody needs the exact number.
const COUNTED: usize = 100_000;
/// How many of them it shows.
const SHOWN: usize = 10;

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let engine = program.reader().await?;
    let control = args.actor.control(&engine);
    let fork = with_position(&args, control.fork());
    let filtered = args.all || !args.filters.is_empty();
    match &args.job {
        Some(_) if filtered || args.dry_run => {
            bail!(
                "a job is given together with filters or --dry-run, which are for many jobs; use one or the other"
            )
        }
        Some(job) => {
            let id = resolve::job(job, &engine, program).await?;
            fork_one(&args, &fork, id, program, &engine).await
        }
        None if filtered => fork_matching(&args, &fork, &engine).await,
        None => bail!(
            "no job is given; name it, select jobs with filters like --kind or --state, or use --all for every job"
        ),
    }
}

fn with_position(args: &Args, fork: Fork) -> Fork {
    let fork = match (&args.before, &args.step_key, args.before_entry) {
        (Some(name), Some(key), _) => fork.before_key(name, key),
        (Some(name), None, _) => fork.before(name),
        (None, _, Some(seq)) => fork.before_entry(seq),
        _ if args.from_beginning => fork.from_beginning(),
        _ => fork,
    };
    match &args.new_key {
        Some(key) => fork.key(key),
        None => fork,
    }
}

async fn fork_one(
    args: &Args,
    fork: &Fork,
    job: JobId,
    program: &Program,
    engine: &Engine,
) -> anyhow::Result<ExitCode> {
    if engine.inspect().job(job).await?.is_none() {
        bail!(program.no_job(job));
    }
    let new = fork.run(job).await?;
    if args.json {
        out::print_json(&json!({ "job": new, "from": job }))?;
    } else {
        out::print(&format!("{new}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn fork_matching(args: &Args, fork: &Fork, engine: &Engine) -> anyhow::Result<ExitCode> {
    actions::check_all(args.all, &args.filters)?;
    let preview = preview(engine.inspect(), args.filters.to_filter()).await?;
    if args.dry_run && args.json {
        out::print_json(&actions::preview_json(&preview))?;
        return Ok(ExitCode::SUCCESS);
    }
    let nothing = || "no job matches; nothing to fork\n".to_owned();
    let text = actions::preview_text(engine, &preview, "fork", nothing).await?;
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
    let on_batch = |forked: &ForkProgress| {
        let (made, refused) = (forked.made.len() as u64, forked.refused.len() as u64);
        progress.update(made + refused, &format!("{} forked", out::thousands(made)));
        !stop.load(Ordering::Relaxed)
    };
    let forked = fork.each(args.filters.to_filter(), on_batch).await;
    progress.close();
    report(args, &forked?, stop.load(Ordering::Relaxed))
}

async fn preview(inspect: &dyn Inspect, filter: Filter) -> anyhow::Result<Preview> {
    let mut filter = Filter { limit: 1_000, ..filter };
    let mut preview = Preview { matching: 0, at_least: false, sample: Vec::new() };
    loop {
        let mut page = inspect.jobs(&filter).await?;
        filter.before = page.last().map(|job| job.id);
        preview.matching += page.len();
        preview.at_least = page.len() == filter.limit;
        page.truncate(SHOWN - preview.sample.len());
        preview.sample.append(&mut page);
        if !preview.at_least || preview.matching >= COUNTED {
            return Ok(preview);
        }
    }
}

fn report(args: &Args, forked: &ForkProgress, interrupted: bool) -> anyhow::Result<ExitCode> {
    let ForkProgress { made, refused } = forked;
    if args.json {
        let pair = |(from, job): &(JobId, JobId)| json!({ "from": from, "job": job });
        let why = |(job, why): &(JobId, String)| json!({ "job": job, "why": why });
        out::print_json(&json!({
            "forked": made.iter().map(pair).collect::<Vec<Value>>(),
            "refused": refused.iter().map(why).collect::<Vec<Value>>(),
            "interrupted": interrupted,
        }))?;
    } else {
        let mut text: String = made.iter().map(|(from, job)| format!("{from} → {job}\n")).collect();
        text += &format!("{} forked", out::thousands(made.len() as u64));
        text += &match refused.len() {
            0 => "\n".to_owned(),
            refused => format!(", {} refused\n", out::thousands(refused as u64)),
        };
        for (job, why) in refused {
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
