//! `windlass jobs`: lists jobs, newest first.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::bail;
use serde_json::json;
use windlass::{
    Engine, Error, JobId, State, Time,
    store::{BranchChildFilter, ChildStates, Filter, Inspect, StateCount, Summary},
};

use crate::{args::Filters, durations, out, program::Program, resolve, table};

/// List jobs, newest first, with the number of jobs in each state.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Only jobs older than this one, which the previous page printed
    #[arg(long, value_name = "ID")]
    before: Option<JobId>,
    /// Only children of this job, oldest first
    #[arg(long, value_name = "JOB", conflicts_with_all = ["before", "tag"])]
    parent: Option<String>,
    /// With --parent: only the children in its branch of this name
    #[arg(long, value_name = "NAME", requires = "parent")]
    branch: Option<String>,
    /// With --parent: only jobs newer than this one, which the previous page printed
    #[arg(long, value_name = "ID", requires = "parent")]
    after: Option<JobId>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Counting stops here: exact numbers would cost a scan, and an overview does not need them.
const CAP: u64 = 10_000;
/// How many children are read at a time.
const PAGE: usize = 500;
/// How many children of a branch are read at a time; few, because their payloads are read too.
const BRANCH_PAGE: usize = 50;
/// The stage of a block: many items of a packed branch in one job.
pub(crate) const BLOCK: &str = "windlass.block";
/// For how many blocks on a page the number of items is read: it takes one query each.
const COUNTED: usize = 100;

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let engine = program.reader().await?;
    let inspect = engine.inspect();
    // One more than is shown, to know whether there is another page.
    let limit = args.limit as usize + 1;
    let (mut jobs, counts) = match &args.parent {
        Some(parent) => {
            let parent = resolve::job_or_block(parent, &engine, program).await?;
            if inspect.job(parent).await?.is_none() {
                bail!(program.no_job(parent));
            }
            let children = match &args.branch {
                Some(branch) => children_in_branch(&args, &engine, parent, branch, limit).await?,
                None => children(&args, inspect, parent, limit).await?,
            };
            (children, BTreeMap::new())
        }
        None => {
            let filter = Filter { before: args.before, limit, ..args.filters.to_filter() };
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
    let mut text = totals(&args, &counts);
    count_blocks(&mut jobs, inspect).await?;
    if jobs.is_empty() {
        text += &no_jobs(&args, program);
    } else {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &list(&jobs, now);
    }
    if let Some(next) = next {
        let order = if args.parent.is_some() { "newer" } else { "older" };
        text += &format!("\n{order} jobs: {}\n", next_page(&args, program, next));
    }
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The matching children of a job, oldest first.
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
        found.extend(page.into_iter().filter(|job| args.filters.matches(job)));
        if last {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The matching children in a branch of a job, oldest first.
async fn children_in_branch(
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
        let mut filter =
            BranchChildFilter { job: parent, branch: branch.number, only, after, limit: BRANCH_PAGE };
        while found.len() < limit {
            let page = engine.inspect().branch_children(&filter).await?;
            filter.after = page.last().map(|child| child.summary.id);
            let last = page.len() < BRANCH_PAGE;
            found.extend(page.into_iter().map(|child| child.summary).filter(|job| args.filters.matches(job)));
            if last {
                break;
            }
        }
    }
    // A retried job may have opened several branches of one name. A page continues after an id, in any of them.
    found.sort_by_key(|job| job.id);
    found.truncate(limit);
    Ok(found)
}

/// Replaces the stage of blocks by the number of their items.
pub(crate) async fn count_blocks(jobs: &mut [Summary], inspect: &dyn Inspect) -> anyhow::Result<()> {
    for job in jobs.iter_mut().filter(|job| job.stage.as_deref() == Some(BLOCK)).take(COUNTED) {
        let position = inspect.job(job.id).await?.and_then(|job| job.place);
        job.stage = position.map(|position| format!("block of {}", out::thousands(position.items.into())));
    }
    Ok(())
}

/// A stage for people.
fn stage(stage: &str) -> String {
    if stage == BLOCK { "block".to_owned() } else { out::plain(stage) }
}

/// The number of jobs in each state, among those of the filtered kind and queue.
fn counts(args: &Args, state_counts: Vec<StateCount>) -> BTreeMap<State, u64> {
    let matches = |count: &StateCount| {
        args.filters.kind.as_ref().is_none_or(|kind| *kind == count.kind)
            && args.filters.queue.as_ref().is_none_or(|queue| *queue == count.queue)
    };
    let mut counts = BTreeMap::new();
    for count in state_counts.into_iter().filter(matches).filter(|count| count.jobs > 0) {
        *counts.entry(count.state).or_default() += count.jobs;
    }
    counts.values_mut().for_each(|count| *count = CAP.min(*count));
    counts
}

fn totals(args: &Args, counts: &BTreeMap<State, u64>) -> String {
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
        [of("kind", &args.filters.kind), of("queue", &args.filters.queue)].into_iter().flatten().collect();
    let scope = if scope.is_empty() { String::new() } else { format!("{}: ", scope.join(", ")) };
    format!("{scope}{}\n", counts.join(" · "))
}

fn no_jobs(args: &Args, program: &Program) -> String {
    if args.before.is_some() || args.after.is_some() || !args.filters.is_empty() {
        return "no job matches\n".to_owned();
    }
    if let Some(branch) = &args.branch {
        return format!("the branch {} has no children\n", out::plain(branch));
    }
    if let Some(parent) = &args.parent {
        return format!("job {} has no children\n", out::plain(parent));
    }
    format!("no jobs yet; submit one with `{} submit noop --wait`, and start a worker\n", program.name)
}

pub(crate) fn list(jobs: &[Summary], now: Time) -> String {
    let columns = [
        table::column("ID"),
        table::column("STATE"),
        table::Column { min_width: Some(8), expendable: 2, ..table::column("STAGE") },
        table::Column { min_width: Some(8), ..table::column("KIND") },
        table::Column { min_width: Some(7), expendable: 4, ..table::column("QUEUE") },
        table::Column { min_width: Some(6), expendable: 5, ..table::column("KEY") },
        table::Column { align_right: true, expendable: 6, ..table::column("FAILED") },
        table::Column { expendable: 3, ..table::column("SUBMITTED") },
        table::Column { min_width: Some(8), expendable: 1, ..table::column("NOTE") },
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
                durations::relative(job.submitted_at, now),
                note(job, now),
            ]
        })
        .collect();
    table::render(&columns, &rows, out::width())
}

/// The detail that matters in the job's state.
fn note(job: &Summary, now: Time) -> String {
    let took = |at: Time| format!("after {}", durations::format(at.since(job.submitted_at)));
    match (job.state, job.reason, job.finished_at) {
        (State::Scheduled, ..) => format!("due {}", durations::relative(job.due_at, now)),
        (State::Failed, Some(reason), _) => reason.to_string(),
        (State::Done, _, Some(at)) => took(at),
        _ => String::new(),
    }
}

/// The command that shows the next page.
fn next_page(args: &Args, program: &Program, next: JobId) -> String {
    let mut command = format!("{} jobs{}", program.name, args.filters.to_flags());
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
