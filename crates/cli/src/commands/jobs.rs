//! `windlass jobs`: a page of jobs, newest first.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::bail;
use serde_json::json;
use windlass::{
    Engine, Error, JobId, State, Time,
    store::{BranchChildFilter, ChildStates, Filter, Inspect, StateCount, Summary},
};

use crate::{named, out, place::Place, span, table, which::Which};

/// List jobs, newest first, with how many there are in each state.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Only older than this one: the last of the page before
    #[arg(long, value_name = "ID")]
    before: Option<JobId>,
    /// Only children of this job, oldest first
    #[arg(long, value_name = "JOB", conflicts_with_all = ["before", "tag"])]
    parent: Option<String>,
    /// With --parent: only those of its branch of this name
    #[arg(long, value_name = "NAME", requires = "parent")]
    branch: Option<String>,
    /// With --parent: only younger than this one, the last of the page before
    #[arg(long, value_name = "ID", requires = "parent")]
    after: Option<JobId>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How far each state is counted: whether there are ten thousand or more is all that a glance wants to know.
const CAP: u64 = 10_000;
/// How many children are read at a time.
const PAGE: usize = 500;
/// How many children of a branch are read at a time, with all that they carry.
const ROWS: usize = 50;
/// The stage of a block: many children of a packed branch in one job.
pub(crate) const BLOCK: &str = "windlass.block";
/// Of how many blocks on a page it is looked up how many children they stand for.
const COUNTED: usize = 100;

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let inspect = engine.inspect();
    // One more than is shown says whether there is another page.
    let limit = args.limit as usize + 1;
    let (mut jobs, counts) = match &args.parent {
        Some(parent) => {
            let parent = named::job(parent, &engine, place).await?;
            if inspect.job(parent).await?.is_none() {
                bail!(place.no_job(parent));
            }
            let children = match &args.branch {
                Some(branch) => of_branch(&args, &engine, parent, branch, limit).await?,
                None => children(&args, inspect, parent, limit).await?,
            };
            (children, BTreeMap::new())
        }
        None => {
            let filter = Filter { before: args.before, limit, ..args.which.filter() };
            (inspect.jobs(&filter).await?, counts(&args, inspect.state_counts(CAP).await?))
        }
    };
    let more = jobs.len() > args.limit as usize;
    jobs.truncate(args.limit as usize);
    let next = jobs.last().filter(|_| more).map(|job| job.id);
    if args.json {
        out::print_json(&match &args.parent {
            Some(_) => json!({ "jobs": jobs, "next_after": next }),
            None => json!({ "counts": counts, "jobs": jobs, "next_before": next }),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = inspect.clock().await?;
    let mut text = total(&args, &counts);
    count_blocks(&mut jobs, inspect).await?;
    if jobs.is_empty() {
        text += &nothing(&args, place);
    } else {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &list(&jobs, now);
    }
    if let Some(next) = next {
        let which = if args.parent.is_some() { "younger" } else { "older" };
        text += &format!("\n{which} ones: {}\n", next_page(&args, place, next));
    }
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The children of a job that match, oldest first.
async fn children(
    args: &Args,
    inspect: &dyn Inspect,
    parent: JobId,
    limit: usize,
) -> anyhow::Result<Vec<Summary>> {
    let (mut found, mut after) = (Vec::new(), args.after);
    while found.len() < limit {
        let page = inspect.children(parent, after, PAGE).await?;
        after = page.last().map(|job| job.id);
        let last = page.len() < PAGE;
        found.extend(page.into_iter().filter(|job| args.which.matches(job)));
        if last {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The children in a branch of a job that match, oldest first.
async fn of_branch(
    args: &Args,
    engine: &Engine,
    parent: JobId,
    name: &str,
    limit: usize,
) -> anyhow::Result<Vec<Summary>> {
    let branches = engine.inspect().branches(parent).await?;
    if !branches.iter().any(|branch| branch.name == name) {
        let known = branches.into_iter().map(|branch| branch.name).collect();
        bail!(Error::NoSuchBranch { job: parent, branch: name.to_owned(), known });
    }
    let mut found = Vec::new();
    for branch in branches.iter().filter(|branch| branch.name == name) {
        let (only, after) = (ChildStates::All, args.after);
        let mut of = BranchChildFilter { job: parent, branch: branch.number, only, after, limit: ROWS };
        while found.len() < limit {
            let page = engine.inspect().branch_children(&of).await?;
            of.after = page.last().map(|leaf| leaf.summary.id);
            let last = page.len() < ROWS;
            found.extend(page.into_iter().map(|leaf| leaf.summary).filter(|job| args.which.matches(job)));
            if last {
                break;
            }
        }
    }
    // There are several of a name if the job has begun anew; a page goes on after an id, in whichever it is.
    found.sort_by_key(|job| job.id);
    found.truncate(limit);
    Ok(found)
}

/// Says of blocks how many children they stand for, where the stage is told.
pub(crate) async fn count_blocks(jobs: &mut [Summary], inspect: &dyn Inspect) -> anyhow::Result<()> {
    for job in jobs.iter_mut().filter(|job| job.stage.as_deref() == Some(BLOCK)).take(COUNTED) {
        let place = inspect.job(job.id).await?.and_then(|job| job.place);
        job.stage = place.map(|place| format!("block of {}", out::thousands(place.items.into())));
    }
    Ok(())
}

/// A stage as people read it.
fn stage(stage: &str) -> String {
    if stage == BLOCK { "block".to_owned() } else { out::plain(stage) }
}

/// How many jobs are in each state, among those of the kind and queue that were asked for.
fn counts(args: &Args, census: Vec<StateCount>) -> BTreeMap<State, u64> {
    let asked = |count: &StateCount| {
        args.which.kind.as_ref().is_none_or(|kind| *kind == count.kind)
            && args.which.queue.as_ref().is_none_or(|queue| *queue == count.queue)
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
        [of("kind", &args.which.kind), of("queue", &args.which.queue)].into_iter().flatten().collect();
    let scope = if scope.is_empty() { String::new() } else { format!("{}: ", scope.join(", ")) };
    format!("{scope}{}\n", counts.join(" · "))
}

fn nothing(args: &Args, place: &Place) -> String {
    if args.before.is_some() || args.after.is_some() || !args.which.is_all() {
        return "no job matches\n".to_owned();
    }
    if let Some(branch) = &args.branch {
        return format!("the branch {} has no children\n", out::plain(branch));
    }
    if let Some(parent) = &args.parent {
        return format!("job {} has no children\n", out::plain(parent));
    }
    format!("no jobs yet; put one in with `{} submit noop --wait`, and start a worker\n", place.program)
}

pub(crate) fn list(jobs: &[Summary], now: Time) -> String {
    let columns = [
        table::column("ID"),
        table::column("STATE"),
        table::Column { least: Some(8), expendable: 2, ..table::column("STAGE") },
        table::Column { least: Some(8), ..table::column("KIND") },
        table::Column { least: Some(7), expendable: 4, ..table::column("QUEUE") },
        table::Column { least: Some(6), expendable: 5, ..table::column("KEY") },
        table::Column { right: true, expendable: 6, ..table::column("FAILED") },
        table::Column { expendable: 3, ..table::column("SUBMITTED") },
        table::Column { least: Some(8), expendable: 1, ..table::column("NOTE") },
    ];
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            vec![
                job.id.to_string(),
                job.state.to_string(),
                job.stage.as_deref().map(stage).unwrap_or_default(),
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
    let mut command = format!("{} jobs{}", place.program, args.which.flags());
    if args.limit != 20 {
        command += &format!(" --limit {}", args.limit);
    }
    if let Some(branch) = &args.branch {
        command += &format!(" --branch {branch}");
    }
    match &args.parent {
        Some(parent) => command + &format!(" --parent {parent} --after {next}"),
        None => command + &format!(" --before {next}"),
    }
}
