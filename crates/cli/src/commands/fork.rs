//! `windlass fork`: makes jobs that go on from somewhere in the journals of others.

use std::{process::ExitCode, sync::atomic::Ordering};

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{
    Engine, Fork, ForkProgress, JobId, Preview,
    store::{Filter, Inspect},
};

use crate::{
    act, ask,
    author::Author,
    commands::jobs,
    named, out,
    place::Place,
    progress::Progress,
    stop::{self, Stop},
    which::Which,
};

/// Make a job that goes on from somewhere in the journal of another
///
/// The new job has the input of the other and what its journal says before that place: those calls return what they
/// returned there, and the rest is run anew. The other stays as it is. Where nothing is said of the place, it is the end of
/// the journal. Many at once are said by filters; each is forked at its own place.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("place").args(["before", "before_entry", "from_beginning"])))]
pub(crate) struct Args {
    /// The job: its id, its key, or what it is called as a child of a branch; or say which by filters
    job: Option<String>,
    /// From the call of this name, which is run anew
    #[arg(long, value_name = "NAME")]
    before: Option<String>,
    /// With --before: the call with this key
    #[arg(long, value_name = "KEY", requires = "before")]
    step_key: Option<String>,
    /// From the entry at this place of the journal, which is not taken over; `show` lists places
    #[arg(long, value_name = "SEQ")]
    before_entry: Option<i32>,
    /// From the beginning: nothing of what the other did is taken over
    #[arg(long)]
    from_beginning: bool,
    /// The key of the new job; without, it has none
    #[arg(long, value_name = "KEY", requires = "job")]
    new_key: Option<String>,
    #[command(flatten)]
    author: Author,
    /// With filters: only show which jobs would be forked
    #[arg(long)]
    dry_run: bool,
    /// With filters: do it without asking
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Filters, instead of a job")]
    which: Which,
    /// Every job there is
    #[arg(long)]
    all: bool,
}

/// Up to how many matching jobs a preview counts.
const COUNTED: usize = 100_000;
/// How many of them it shows.
const SHOWN: usize = 10;

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let control = args.author.control(&engine);
    let fork = described(&args, control.fork());
    let filtered = args.all || !args.which.is_all();
    match &args.job {
        Some(_) if filtered || args.dry_run => {
            bail!("filters and --dry-run are for many jobs; name the job, or say which by filters, not both")
        }
        Some(job) => {
            let id = named::own(job, &engine, place).await?;
            one(&args, &fork, id, place, &engine).await
        }
        None if filtered => many(&args, &fork, &engine).await,
        None => bail!(
            "no job is given; name it, say which by filters like --kind or --state, or say --all for every job"
        ),
    }
}

fn described<'a>(args: &Args, fork: Fork<'a>) -> Fork<'a> {
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

async fn one(
    args: &Args,
    fork: &Fork<'_>,
    job: JobId,
    place: &Place,
    engine: &Engine,
) -> anyhow::Result<ExitCode> {
    if engine.inspect().job(job).await?.is_none() {
        bail!(place.no_job(job));
    }
    let new = fork.run(job).await?;
    if args.json {
        out::print_json(&json!({ "job": new, "from": job }))?;
    } else {
        out::print(&format!("{new}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn many(args: &Args, fork: &Fork<'_>, engine: &Engine) -> anyhow::Result<ExitCode> {
    if args.all && !args.which.is_all() {
        bail!("--all is every job, and filters say which; leave one of them out");
    }
    let preview = preview(engine.inspect(), args.which.filter()).await?;
    if args.dry_run && args.json {
        let Preview { matching, at_least, sample } = &preview;
        out::print_json(&json!({ "matching": matching, "at_least": at_least, "sample": sample }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = match preview.matching {
        0 => "no job matches; nothing to fork\n".to_owned(),
        _ => {
            let now = engine.inspect().clock().await?;
            let mut text =
                format!("{} to fork:\n\n{}", act::count(&preview), jobs::list(&preview.sample, now));
            if preview.matching > preview.sample.len() {
                let more = out::thousands((preview.matching - preview.sample.len()) as u64);
                text += &format!("… and {more} more\n");
            }
            text
        }
    };
    if args.dry_run {
        out::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::note(text.trim_end());
    if preview.matching > 0 && !ask::sure(args.yes, &format!("Fork {}?", act::count(&preview)))? {
        return Ok(ExitCode::FAILURE);
    }
    let told = Stop::flag()?;
    let mut progress = Progress::new(Some(preview.matching as u64));
    let seen = |forked: &ForkProgress| {
        let (made, refused) = (forked.made.len() as u64, forked.refused.len() as u64);
        progress.at(made + refused, &format!("{} forked", out::thousands(made)));
        !told.load(Ordering::Relaxed)
    };
    let forked = fork.each(args.which.filter(), seen).await;
    progress.close();
    account(args, &forked?, told.load(Ordering::Relaxed))
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

fn account(args: &Args, forked: &ForkProgress, cut_short: bool) -> anyhow::Result<ExitCode> {
    let ForkProgress { made, refused } = forked;
    if args.json {
        let pair = |(from, job): &(JobId, JobId)| json!({ "from": from, "job": job });
        let why = |(job, why): &(JobId, String)| json!({ "job": job, "why": why });
        out::print_json(&json!({
            "made": made.iter().map(pair).collect::<Vec<Value>>(),
            "refused": refused.iter().map(why).collect::<Vec<Value>>(),
            "cut_short": cut_short,
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
    Ok(match (cut_short, refused.is_empty()) {
        (true, _) => ExitCode::from(stop::INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}
