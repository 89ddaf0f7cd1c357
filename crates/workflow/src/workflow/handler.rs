//! Runs a workflow's jobs: reads the journal, decodes the input, and drives the code.

use std::{
    future::ready,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use windlass_model::{ClaimedJob, Failure, Retry, Rev, failure::class};
use windlass_runtime::{Attempt, Handler, Policy, Started, StepResult};

use super::{
    Flow, Workflow,
    core::Core,
    driver::{Driver, Root, run_of},
    journal::Journal,
    step::encode_result,
};
use crate::{
    machine::Services,
    store_retry::{retry_unavailable, run_attempt},
};

/// Runs a workflow's jobs.
pub struct WorkflowHandler<W> {
    services: Arc<Services>,
    workflow: PhantomData<fn() -> W>,
}

impl<W: Workflow> WorkflowHandler<W> {
    /// Makes a handler.
    pub fn new(services: &Arc<Services>) -> WorkflowHandler<W> {
        WorkflowHandler { services: Arc::clone(services), workflow: PhantomData }
    }
}

impl<W: Workflow> Handler for WorkflowHandler<W> {
    fn start(&self, attempt: Arc<Attempt>) -> Started {
        let services = Arc::clone(&self.services);
        let started = |running| Started { running, timeout: None, stage: None, handles_own_end: true };
        let workflow = match input::<W>(&attempt.job) {
            Ok(workflow) => workflow,
            Err(failure) => return started(Box::pin(ready(Err(failure)))),
        };
        started(Box::pin(async move {
            run_attempt(&attempt, run(workflow, Arc::clone(&attempt), services)).await
        }))
    }

    fn retry(&self, attempt: &Attempt) -> Retry {
        let retry = || Some(input::<W>(&attempt.job).ok()?.retry());
        // A panic in there must not lose the failure that is to be retried.
        catch_unwind(AssertUnwindSafe(retry)).ok().flatten().unwrap_or_else(|| Policy::default().retry)
    }

    fn check_input(&self, input: &[u8]) -> Result<(), String> {
        serde_json::from_slice::<W>(input).map(drop).map_err(|error| error.to_string())
    }
}

async fn run<W: Workflow>(
    workflow: W,
    attempt: Arc<Attempt>,
    services: Arc<Services>,
) -> Result<StepResult, Failure> {
    let journal = if attempt.job.rev == Rev(0) {
        Journal::default()
    } else {
        let entries = retry_unavailable!(services.reader.read(&attempt.job))?;
        Journal::read(entries, &services.codecs, attempt.job.unwind.is_some())
    };
    let job = Arc::clone(&attempt.job);
    let core = Arc::new(Core::new(job, Some(attempt), services, (W::ONE_COMMIT, W::backoff), journal));
    driver(core, workflow).run().await
}

/// Makes a driver for a workflow's code.
pub(super) fn driver<W: Workflow>(core: Arc<Core>, workflow: W) -> Driver {
    let flow = Flow { core: Arc::clone(&core) };
    let root: Root = Box::pin(async move {
        match workflow.run(flow).await {
            Ok(output) => encode_result(&output),
            Err(error) => Err(error.into()),
        }
    });
    Driver::new(core, root)
}

/// Decodes the input of a job: that of the submit, or of its latest run.
pub(super) fn input<W: Workflow>(job: &ClaimedJob) -> Result<W, Failure> {
    if let Some(stage) = job.stage.as_deref().filter(|stage| run_of(stage).is_none()) {
        let text = format!(
            "the job is in the stage {stage:?} of a machine, and {:?} is a workflow here; serve it with the machine it was \
             submitted to, or give the workflow a kind of its own",
            W::KIND
        );
        return Err(Failure::stop(text).class(class::UNDECODABLE));
    }
    let input = job.data.as_ref().unwrap_or(&job.input);
    serde_json::from_slice(&input.bytes).map_err(|error| {
        Failure::stop(format!("the input does not decode as {:?} ({error})", W::KIND))
            .class(class::UNDECODABLE)
    })
}
