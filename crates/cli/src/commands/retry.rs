//! `windlass retry`: runs failed and cancelled jobs again.

use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};
use windlass::{Engine, JobId, RunError, operate::JobAction};

use crate::{
    actions::{self, Target, Verb},
    client::Ended,
    commands::submit::print_end,
    out,
    program::Program,
    stop::{self, StopSignals},
};

/// Retry failed or cancelled jobs
///
/// Attempts, retry budgets and deaths of workers are counted from zero again. A deadline is as far away as it was at the
/// submit.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Run the job in this process, ahead of its queue, and print its output; exit code 1 if it fails again. For one job, of a kind
    /// that this program serves
    #[arg(long)]
    here: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    if args.here {
        program.need_store("retry --here")?;
        return run_here(&args.target, program).await;
    }
    let verb = Verb { infinitive: "retry", participle: "retried" };
    actions::run(args.target, JobAction::Retry, verb, program).await
}

async fn run_here(target: &Target, program: &Program) -> anyhow::Result<ExitCode> {
    let mut stop = StopSignals::listen()?;
    let (engine, id) = target.one_to_run(program).await.context("--here")?;
    engine.start().await?;
    let ended = tokio::select! {
        ended = retry(&engine, id, target) => Some(ended),
        () = stop.received() => None,
    };
    engine.stop().await;
    let Some(ended) = ended else {
        out::note(&format!("interrupted: other workers run job {id}, if it had not ended"));
        return Ok(stop::INTERRUPTED.into());
    };
    let ended = match ended {
        Ok(output) => Ended::Done(output),
        Err(RunError::Job(error)) => Ended::error(error)?,
        Err(RunError::Submit(error)) => return Err(program.explain(error)),
    };
    print_end(ended, json!({ "id": id }), id, target.is_json(), program)
}

async fn retry(engine: &Engine, id: JobId, target: &Target) -> Result<Value, RunError> {
    out::note(&format!("retrying job {id} here"));
    engine.retry_here(id, &target.control(engine)).await
}
