//! `windlass jobs`: lists jobs, newest first.

use std::{collections::BTreeMap, process::ExitCode};

use windlass::{
    JobId, State, Time,
    operate::views,
    store::{Filter, Summary},
};

use crate::{args::Filters, durations, out, program::Program, resolve, table};

/// List jobs, newest first, with the number of matching jobs in each state.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Only jobs older than this one, which the previous page printed
    #[arg(long, value_name = "ID")]
    before: Option<JobId>,
    /// Only children of this job, named as for `show`, oldest first
    #[arg(long, value_name = "JOB", conflicts_with_all = ["before", "tag", "top"])]
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

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    let filter = Filter { before: args.before, limit: args.limit as usize, ..args.filters.to_filter() };
    let (head, jobs, block_items, next, now) = match &args.parent {
        Some(parent) => {
            let parent = resolve::job_or_block(parent, &client, program).await?;
            let view = client.children(parent, args.branch.as_deref(), &filter, args.after).await?;
            if args.json {
                out::print_json(&view)?;
                return Ok(ExitCode::SUCCESS);
            }
            (String::new(), view.jobs, view.block_items, view.next_after, view.now)
        }
        None => {
            let view = client.jobs(&filter).await?;
            if args.json {
                out::print_json(&view)?;
                return Ok(ExitCode::SUCCESS);
            }
            let totals = totals(&args, &view.counts, view.is_capped);
            (totals, view.jobs, view.block_items, view.next_before, view.now)
        }
    };
    let mut text = head;
    if jobs.is_empty() && next.is_some() {
        text += "no job matches among those that were examined\n";
    } else if jobs.is_empty() {
        text += &no_jobs(&args, program);
    } else {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &list(&jobs, &block_items, now);
    }
    if let Some(next) = next {
        let order = if args.parent.is_some() { "newer" } else { "older" };
        text += &format!("\n{order} jobs: {}\n", next_page(&args, program, next));
    }
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The stage of a job, or how many items a block has.
fn stage(job: &Summary, block_items: &BTreeMap<JobId, u32>) -> String {
    match (views::is_block(job), block_items.get(&job.id)) {
        (true, Some(items)) => format!("block of {}", out::thousands((*items).into())),
        (true, None) => "block".to_owned(),
        (false, _) => job.stage.as_deref().map(out::plain).unwrap_or_default(),
    }
}

fn totals(args: &Args, counts: &BTreeMap<State, u64>, is_capped: bool) -> String {
    let more = if is_capped { "+" } else { "" };
    let count = |(state, count): (&State, &u64)| format!("{}{more} {state}", out::thousands(*count));
    let counts: Vec<String> = counts.iter().map(count).collect();
    if counts.is_empty() {
        return String::new();
    }
    let scope = args.filters.to_words();
    let scope = if scope.is_empty() { scope } else { format!("{scope}: ") };
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

/// A table of jobs. `block_items` has the number of items of the blocks among them.
pub(crate) fn list(jobs: &[Summary], block_items: &BTreeMap<JobId, u32>, now: Time) -> String {
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
                stage(job, block_items),
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
    let took = |at: Time| format!("after {}", durations::format(at - job.submitted_at));
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
