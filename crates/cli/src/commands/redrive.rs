//! `windlass redrive`: retries the unsuccessful children of a job's branches.

use std::{process::ExitCode, sync::atomic::Ordering};

use anyhow::bail;
use serde_json::{Value, json};
use windlass::{
    Error,
    operate::{RedriveProgress, SkipReason},
};

use crate::{
    args::Actor,
    out,
    program::Program,
    progress::Progress,
    resolve,
    stop::{self, StopSignals},
};

/// Retry all failed and cancelled children of a job's branches
///
/// Each is retried once, as `retry` does, in batches; an interrupt keeps what was done. Merged branches are skipped unless
/// --branch names one, because nothing waits for their children.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job that opened the branches: its id, kind/key, its key, or its name as a child of a branch
    job: String,
    /// Only the branch of this name
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// At most this many children per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    actor: Actor,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let engine = program.reader().await?;
    let job = resolve::job_or_block(&args.job, &engine, program).await?;
    let redrive = args.actor.control(&engine).redrive(job, args.branch.as_deref());
    let redrive = match args.rate {
        Some(rate) => redrive.per_second(rate),
        None => redrive,
    };
    let stop = StopSignals::flag()?;
    let mut progress: Option<Progress> = None;
    let on_batch = |so_far: &RedriveProgress| {
        let progress = progress.get_or_insert_with(|| Progress::new(Some(so_far.unsuccessful), "children"));
        progress.update(so_far.seen(), &summary(so_far));
        !stop.load(Ordering::Relaxed)
    };
    let redriven = redrive.run(on_batch).await;
    if let Some(progress) = progress {
        progress.close();
    }
    let redriven = match redriven {
        Ok(redriven) => redriven,
        Err(Error::NoSuchJob(id)) => bail!(program.no_job(id)),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        out::print_json(&to_json(&redriven))?;
    } else {
        out::print(&format!("{}\n", summary(&redriven)))?;
        for note in notes(&redriven, &args, program) {
            out::note(&note);
        }
    }
    Ok(match redriven {
        RedriveProgress { interrupted: true, .. } => ExitCode::from(stop::INTERRUPTED),
        RedriveProgress { refused: 1.., .. } => ExitCode::FAILURE,
        RedriveProgress { skipped, .. }
            if skipped.iter().any(|(_, why)| *why == SkipReason::CancelsChildren) =>
        {
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    })
}

/// The result on one line.
fn summary(redriven: &RedriveProgress) -> String {
    let mut text = out::counted(redriven.retried, "child retried", "children retried");
    for (count, what) in [(redriven.already, "already retried by others"), (redriven.refused, "refused")] {
        if count > 0 {
            text += &format!(", {} {what}", out::thousands(count));
        }
    }
    text
}

/// Refusals, skipped branches, and what to do about them.
fn notes(redriven: &RedriveProgress, args: &Args, program: &Program) -> Vec<String> {
    let (program, job) = (&program.name, &args.job);
    let mut notes = Vec::new();
    for (id, why) in &redriven.refusals {
        notes.push(format!("error: {id} cannot be retried: {}", out::plain(why)));
    }
    for (branch, why) in &redriven.skipped {
        let branch = out::plain(branch);
        notes.push(match why {
            SkipReason::Merged => format!(
                "branch {branch} is merged, so nothing waits for its unsuccessful children; to retry them anyway: \
                 `{program} redrive {job} --branch {branch}`"
            ),
            SkipReason::CancelsChildren => format!(
                "the children of branch {branch} are being cancelled; wait until that has finished (`{program} branches {job}` \
                 shows it), then try again"
            ),
        });
    }
    if redriven.interrupted {
        notes.push("interrupted; run it again for the rest".to_owned());
    } else if redriven.unsuccessful == 0 && redriven.skipped.is_empty() {
        notes.push("no child of these branches has failed or been cancelled".to_owned());
    }
    notes
}

fn to_json(redriven: &RedriveProgress) -> Value {
    let RedriveProgress { unsuccessful, retried, already, refused, refusals, skipped, interrupted } =
        redriven;
    let refusals: Vec<Value> = refusals.iter().map(|(job, why)| json!({ "job": job, "why": why })).collect();
    let skipped = skipped.iter().map(|(branch, why)| {
        let why = match why {
            SkipReason::Merged => "merged",
            SkipReason::CancelsChildren => "cancelling",
        };
        json!({ "branch": branch, "why": why })
    });
    json!({
        "unsuccessful": unsuccessful, "retried": retried, "already_retried": already, "refused": refused, "refusals": refusals,
        "skipped": skipped.collect::<Vec<Value>>(), "interrupted": interrupted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_one_line() {
        let one = RedriveProgress { retried: 1, ..RedriveProgress::default() };
        assert_eq!(summary(&one), "1 child retried");
        let many = RedriveProgress { retried: 12_000, already: 3, refused: 1, ..RedriveProgress::default() };
        assert_eq!(summary(&many), "12,000 children retried, 3 already retried by others, 1 refused");
    }
}
