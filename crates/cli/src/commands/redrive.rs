//! `windlass redrive`: retries the children of a job's branches that have not ended well.

use std::{process::ExitCode, sync::atomic::Ordering};

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{Error, RedriveProgress, Skipped};

use crate::{
    author::Author,
    commands::branches::counted,
    named, out,
    place::Place,
    progress::Progress,
    stop::{self, Stop},
};

/// Retry all failed and cancelled children of a job's branches
///
/// Each is retried once, as by `retry`, in batches; what was done stays done if it is ended on the way. Branches that are
/// merged are left alone unless one is named by --branch: nobody waits for their children.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job whose branches they are: its id, its key, or what it is called as a child of a branch
    job: String,
    /// Only those of the branch of this name
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// At most so many children a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    author: Author,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let job = named::job(&args.job, &engine, place).await?;
    let redrive = args.author.control(&engine).redrive(job, args.branch.as_deref());
    let redrive = match args.rate {
        Some(rate) => redrive.per_second(rate),
        None => redrive,
    };
    let told = Stop::flag()?;
    let mut progress: Option<Progress> = None;
    let seen = |so_far: &RedriveProgress| {
        let progress = progress.get_or_insert_with(|| Progress::of(Some(so_far.bad), "children"));
        progress.at(so_far.seen(), &detail(so_far));
        !told.load(Ordering::Relaxed)
    };
    let redriven = redrive.run(seen).await;
    if let Some(progress) = progress {
        progress.close();
    }
    let redriven = match redriven {
        Ok(redriven) => redriven,
        Err(Error::NoSuchJob(id)) => bail!(place.no_job(id)),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        out::print_json(&answer(&redriven))?;
    } else {
        out::print(&format!("{}\n", detail(&redriven)))?;
        for note in notes(&redriven, &args, place) {
            out::note(&note);
        }
    }
    Ok(match redriven {
        RedriveProgress { cut_short: true, .. } => ExitCode::from(stop::INTERRUPTED),
        RedriveProgress { refused: 1.., .. } => ExitCode::FAILURE,
        RedriveProgress { passed, .. } if passed.iter().any(|(_, why)| *why == Skipped::Cut) => {
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    })
}

/// What came of it, on a line.
fn detail(redriven: &RedriveProgress) -> String {
    let mut text = counted(redriven.retried, "retried", "retried");
    for (count, what) in
        [(redriven.already, "retried by others meanwhile"), (redriven.refused, "not retried")]
    {
        if count > 0 {
            text += &format!(", {} {what}", out::thousands(count));
        }
    }
    text
}

/// What else there is to say.
fn notes(redriven: &RedriveProgress, args: &Args, place: &Place) -> Vec<String> {
    let (program, job) = (&place.program, &args.job);
    let mut notes = Vec::new();
    for (id, why) in &redriven.because {
        notes.push(format!("error: {id} cannot be retried: {}", out::plain(why)));
    }
    for (branch, why) in &redriven.passed {
        let branch = out::plain(branch);
        notes.push(match why {
            Skipped::Merged => format!(
                "branch {branch} is merged, so nobody waits for its children that have not ended well; if they are wanted all \
                 the same: `{program} redrive {job} --branch {branch}`"
            ),
            Skipped::Cut => format!(
                "what is left of branch {branch} is being cancelled; wait until that is through (`{program} branches {job}` \
                 shows it), then try again"
            ),
        });
    }
    if redriven.cut_short {
        notes.push("ended on the way; repeat it for the rest".to_owned());
    } else if redriven.bad == 0 && redriven.passed.is_empty() {
        notes.push("no child of these branches has failed or was cancelled".to_owned());
    }
    notes
}

fn answer(redriven: &RedriveProgress) -> Value {
    let RedriveProgress { bad, retried, already, refused, because, passed, cut_short } = redriven;
    let because: Vec<Value> = because.iter().map(|(job, why)| json!({ "job": job, "why": why })).collect();
    let passed = passed.iter().map(|(branch, why)| {
        let why = match why {
            Skipped::Merged => "merged",
            Skipped::Cut => "cut",
        };
        json!({ "branch": branch, "why": why })
    });
    json!({
        "bad": bad, "retried": retried, "already": already, "refused": refused, "because": because,
        "passed": passed.collect::<Vec<Value>>(), "cut_short": cut_short,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_it_is_one_line() {
        let one = RedriveProgress { retried: 1, ..RedriveProgress::default() };
        assert_eq!(detail(&one), "1 child retried");
        let many = RedriveProgress { retried: 12_000, already: 3, refused: 1, ..RedriveProgress::default() };
        assert_eq!(detail(&many), "12,000 children retried, 3 retried by others meanwhile, 1 not retried");
    }
}
