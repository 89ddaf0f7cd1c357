//! Runs a machine's jobs: decodes the stage, calls `step`, and returns what is to be committed.

use std::{
    future::ready,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use windlass_env::{Env, IdSource};
use windlass_model::{Failure, Outcome, Reason, Retry, failure::class};
use windlass_runtime::{Attempt, Handler, Policy, Running, Started, StepResult};
use windlass_store::Store;

use super::{Machine, MachineCx, Next, branch, stage};
use crate::{
    Data,
    attempt_source::{AttemptSource, LiveAttempt},
    codec::Codecs,
    heartbeat,
    store_retry::run_attempt,
    workflow::Reader,
};

/// What the code of machines and workflows needs of its engine.
pub struct Services {
    /// The clock, the timers and the tasks.
    pub env: Env,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Encodes and decodes payloads.
    pub codecs: Arc<Codecs>,
    /// Draws the ids of children.
    pub ids: IdSource,
    /// Reads journals, several in one query.
    pub reader: Arc<Reader>,
    /// The program's own data.
    pub data: Data,
}

/// Runs a machine's jobs.
pub struct MachineHandler<M> {
    services: Arc<Services>,
    /// Whether a machine of this kind has opened a branch in this process.
    branches: Arc<AtomicBool>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> MachineHandler<M> {
    /// Makes a handler.
    pub fn new(services: &Arc<Services>) -> MachineHandler<M> {
        MachineHandler { services: Arc::clone(services), branches: Arc::default(), machine: PhantomData }
    }

    fn cx(&self, attempt: Arc<Attempt>, heartbeat_timeout: Option<Duration>) -> MachineCx {
        let services = Arc::clone(&self.services);
        let source = AttemptSource::live_with_heartbeat(attempt, services, heartbeat_timeout);
        MachineCx::new(Arc::clone(&self.branches), source)
    }
}

impl<M: Machine> Handler for MachineHandler<M> {
    fn start(&self, attempt: Arc<Attempt>) -> Started {
        let (name, stage) = match decode_stage::<M>(&attempt) {
            Ok(stage) => stage,
            Err(failure) => {
                let stage = attempt.job.stage.clone();
                return Started {
                    running: Box::pin(ready(Err(failure))),
                    timeout: None,
                    stage,
                    handles_own_end: false,
                };
            }
        };
        let timeout = stage.timeout();
        let running: Running = if timeout == Some(Duration::ZERO) {
            let text = format!(
                "the timeout of the stage {name:?} is zero; give the step time, or `None` for as long as it likes"
            );
            Box::pin(ready(Err(Failure::stop(text).class(class::REFUSED))))
        } else {
            let cx = self.cx(attempt, stage.heartbeat_timeout());
            Box::pin(async move {
                let live = cx.source.require_live("step")?;
                run_attempt(&live.attempt, step(&cx, live, stage)).await
            })
        };
        Started {
            running,
            timeout: timeout.filter(|limit| !limit.is_zero()),
            stage: Some(name),
            handles_own_end: false,
        }
    }

    fn retry(&self, attempt: &Attempt) -> Retry {
        let retry = || Some(decode_stage::<M>(attempt).ok()?.1.retry());
        // A panic in there must not lose the failure that is to be retried.
        catch_unwind(AssertUnwindSafe(retry)).ok().flatten().unwrap_or_else(|| Policy::default().retry)
    }

    fn backoff(&self, attempt: &Attempt, failure: &Failure, nth: u32) -> Option<Duration> {
        decode_stage::<M>(attempt).ok()?.1.backoff(failure, nth)
    }

    fn check_input(&self, input: &[u8]) -> Result<(), String> {
        let known = || stage::variants::<M>().unwrap_or_default().join(", ");
        match stage::split(input) {
            Some((name, data)) => match stage::decode::<M>(&name, data) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{error}; its stages are {}", known())),
            },
            None => Err(format!("it is not a stage, {{\"Variant\": data}}; its stages are {}", known())),
        }
    }

    fn rescue(&self, attempt: Arc<Attempt>, failure: &Failure) -> Option<Running> {
        let (_, stage) = decode_stage::<M>(&attempt).ok()?;
        let (cx, failure) = (self.cx(attempt, None), failure.clone());
        Some(Box::pin(async move {
            let live = cx.source.require_live("on_error")?;
            run_attempt(&live.attempt, run(&cx, live, stage.on_error(failure, &cx))).await
        }))
    }
}

/// Runs a step, unless the machine must continue to wait for its branches.
async fn step<M: Machine>(cx: &MachineCx, live: &LiveAttempt, stage: M) -> Result<StepResult, Failure> {
    if branch::is_merging(&live.attempt)
        && let Some(result) = branch::poll_merge(live).await?
    {
        return Ok(result);
    }
    heartbeat::watch(Some(live), run(cx, live, stage.step(cx))).await
}

/// Runs the code of a machine until it returns or the step is interrupted.
async fn run<M: Machine>(
    cx: &MachineCx,
    live: &LiveAttempt,
    code: impl Future<Output = Result<Next<M>, M::Error>>,
) -> Result<StepResult, Failure> {
    let next = tokio::select! {
        biased;
        next = code => Some(next),
        () = cx.interrupted.notified() => None,
    };
    let unreadable = std::mem::take(&mut *cx.unreadable.lock().unwrap_or_else(|e| e.into_inner()));
    if let Some(failure) = cx.diverged.get() {
        let outcome = Outcome::Failed { reason: Reason::Diverged, failure: failure.clone() };
        return Ok(StepResult::Commit { step: None, outcome });
    }
    match next {
        _ if !unreadable.is_empty() => Ok(StepResult::MarkUnreadable(unreadable)),
        Some(next) => next.map_err(Into::into)?.into_step_result(cx, live).await,
        None => Ok(branch::retry_later(&live.attempt)),
    }
}

/// Decodes the stage that a job is in, and returns it with its name.
fn decode_stage<M: Machine>(attempt: &Attempt) -> Result<(String, M), Failure> {
    let job = &attempt.job;
    let (name, data) = match (&job.stage, &job.data) {
        (Some(name), Some(data)) => (name.clone(), data.bytes.as_slice()),
        _ => stage::split(&job.input.bytes).ok_or_else(|| {
            let text = format!("the input of a {:?} machine is not a stage, {{\"Variant\": data}}", M::KIND);
            Failure::stop(text).class(class::UNDECODABLE)
        })?,
    };
    match stage::decode(&name, data) {
        Ok(stage) => Ok((name, stage)),
        Err(error) => {
            let known = stage::variants::<M>().unwrap_or_default().join(", ");
            let text = format!(
                "the stage {name:?} does not decode as version {} of {:?} ({error}), whose stages are {known}; give the \
                 variant back its name or an alias, or migrate the job's stage (docs/machines.md), then retry it",
                M::VERSION,
                M::KIND,
            );
            Err(Failure::stop(text).class(class::UNDECODABLE))
        }
    }
}
