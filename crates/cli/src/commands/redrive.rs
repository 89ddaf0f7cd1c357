//! `windlass redrive`: retries the unsuccessful children of a job's branches.

use std::{process::ExitCode, sync::atomic::Ordering};

use windlass::operate::{RedriveProgress, Refusal, SkipReason, SkippedBranch};

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
    let client = program.client().await?;
    let job = resolve::job_or_block(&args.job, &client, program).await?;
    let stop = StopSignals::flag()?;
    let mut progress: Option<Progress> = None;
    let mut on_batch = |so_far: &RedriveProgress| {
        let progress = progress.get_or_insert_with(|| Progress::new(Some(so_far.unsuccessful), "children"));
        progress.update(so_far.seen(), &summary(so_far));
        !stop.load(Ordering::Relaxed)
    };
    let redriven = client.redrive(job, args.branch.as_deref(), args.rate, &args.actor, &mut on_batch).await;
    if let Some(progress) = progress {
        progress.close();
    }
    let redriven = redriven?;
    if args.json {
        out::print_json(&redriven)?;
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
            if skipped.iter().any(|skipped| skipped.why == SkipReason::CancelsChildren) =>
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
    for Refusal { job, why } in &redriven.refusals {
        notes.push(format!("error: {job} cannot be retried: {}", out::plain(why)));
    }
    for SkippedBranch { branch, why } in &redriven.skipped {
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
