//! The context of a running step.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{ClaimedJob, Failure, JobId, Limits, Payload, Progress};

use super::{context::Value, core::Core, journal::Ident};
use crate::{
    attempt_source::{TestContext, needs_engine},
    branch::{Merged, Results},
    heartbeat::Heartbeat,
    store_retry::retry_unavailable,
};

/// What a running step can find out about its job and its attempt. It makes no durable calls: a step runs again as a whole.
#[derive(Clone)]
pub struct StepCx {
    source: StepSource,
    attempts: u32,
    signal_payload: Option<Payload>,
    id: String,
    heartbeat: Option<Arc<Heartbeat>>,
}

/// Where the context takes its answers from.
#[derive(Clone)]
enum StepSource {
    /// A running workflow, and the step's call in it.
    Live { core: Arc<Core>, call: usize, ident: Ident },
    /// Values that a unit test has set.
    Test(Arc<TestContext>),
}

impl StepCx {
    pub(super) fn new(
        core: Arc<Core>,
        (call, ident): (usize, Ident),
        attempts: u32,
        signal_payload: Option<Payload>,
        id: String,
    ) -> StepCx {
        let source = StepSource::Live { core, call, ident };
        StepCx { source, attempts, signal_payload, id, heartbeat: None }
    }

    /// With a heartbeat, for a step that must report its progress.
    pub(super) fn with_heartbeat(self, heartbeat: Option<Arc<Heartbeat>>) -> StepCx {
        StepCx { heartbeat, ..self }
    }

    fn job(&self) -> &ClaimedJob {
        match &self.source {
            StepSource::Live { core, .. } => &core.job,
            StepSource::Test(test) => &test.job,
        }
    }

    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.job().id
    }

    /// The caller's key for the job.
    pub fn key(&self) -> Option<&str> {
        self.job().key.as_deref()
    }

    /// The number of this attempt at the step, from 1. Attempts that ended with the death of the worker do not count.
    pub fn attempt(&self) -> u32 {
        self.attempts + 1
    }

    /// The id of this step, the same for all attempts and different from all other steps of all jobs: an idempotency key for what
    /// it does to the outside world. A step that runs again after it was undone has another id, because it must be done once
    /// more.
    pub fn step_id(&self) -> &str {
        &self.id
    }

    /// A number that is larger in every later claim of this job. Systems that refuse writes with an older number than they have
    /// seen are safe from attempts that were declared dead and still run.
    pub fn fence(&self) -> i32 {
        self.job().epoch.0
    }

    /// The program's data of this type, which the engine's builder was given. If it was given none, the step fails here, with the
    /// class `refused`, and is not retried.
    #[track_caller]
    pub fn data<T: Send + Sync + 'static>(&self) -> &T {
        match &self.source {
            StepSource::Live { core, .. } => core.services.data.expect(),
            StepSource::Test(test) => test.expect_data(),
        }
    }

    /// The program's data of this type, if the engine's builder was given any.
    pub fn try_data<T: Send + Sync + 'static>(&self) -> Option<&T> {
        match &self.source {
            StepSource::Live { core, .. } => core.services.data.get(),
            StepSource::Test(test) => test.data.get(),
        }
    }

    /// Reports how far the step has come: see [`crate::TaskCx::progress`]. It restarts the time of
    /// [`Step::heartbeat_timeout`](super::Step::heartbeat_timeout). Of several steps that run at the same time, people see the last
    /// report.
    pub fn progress(&self, done: u64, total: impl Into<Option<u64>>, note: &str) {
        let StepSource::Live { core, ident, .. } = &self.source else { return };
        let env = &core.services.env;
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.beat(env);
        }
        if let Some(attempt) = &core.attempt {
            let step = Some(ident.0.to_string());
            attempt.report(Progress { step, ..Progress::new(done, total.into(), note, env.now()) });
        }
    }

    /// The trace that this attempt is part of, as a W3C `traceparent` to be sent along with calls to other services.
    pub fn traceparent(&self) -> Option<String> {
        match &self.source {
            StepSource::Live { core, .. } => core.attempt.as_ref()?.traceparent(),
            StepSource::Test(test) => test.job.settings.trace.clone(),
        }
    }

    /// Whether the step should end soon: the job is being cancelled, or the worker is stopping.
    pub fn is_cancelled(&self) -> bool {
        match &self.source {
            StepSource::Live { core, .. } => {
                core.attempt.as_ref().is_some_and(|attempt| match core.has_caught_cancel() {
                    true => attempt.is_worker_stopping(),
                    false => attempt.is_cancelled(),
                })
            }
            StepSource::Test(test) => test.is_cancelled(),
        }
    }

    /// Returns when [`StepCx::is_cancelled`] becomes true.
    pub async fn cancelled(&self) {
        match &self.source {
            StepSource::Live { core, .. } => match &core.attempt {
                Some(attempt) if core.has_caught_cancel() => attempt.worker_stopping().await,
                Some(attempt) => attempt.cancelled().await,
                None => std::future::pending().await,
            },
            StepSource::Test(test) => test.cancelled().await,
        }
    }

    /// The context of another workflow, e.g. of a child ([`crate::Flow::child_id`]): its values by name.
    pub async fn context_of(&self, job: JobId) -> Result<BTreeMap<String, serde_json::Value>, Failure> {
        let services = match &self.source {
            StepSource::Live { core, .. } => &core.services,
            StepSource::Test(_) => return Err(needs_engine("context_of")),
        };
        let kept = retry_unavailable!(services.store.inspect().context(job))?;
        let value = |(name, value): (String, Payload)| {
            let plain = services.codecs.decode(&value).map_err(Failure::stop)?;
            Ok((name, serde_json::from_slice(&plain).map_err(Failure::stop)?))
        };
        kept.into_iter().map(value).collect()
    }

    /// Returns how the children of merged branches ended, read from the store a page at a time.
    pub fn results<T: DeserializeOwned>(&self, merged: &Merged) -> Results<T> {
        merged.results(match &self.source {
            StepSource::Live { core, .. } => Ok(&core.services),
            StepSource::Test(_) => Err(needs_engine("results")),
        })
    }

    /// Sets a value of the workflow's context. It is committed with this step, if the step succeeds.
    pub fn set<T: Serialize>(&self, name: &str, value: T) -> Result<(), Failure> {
        match &self.source {
            StepSource::Live { core, call, ident } => {
                let value = Value::new(core.services.store.limits(), name, &value)?;
                core.set(Some((*call, ident)), name, value);
            }
            StepSource::Test(test) => {
                let value = Value::new(&Limits::default(), name, &value)?;
                test.values().insert(name.to_owned(), value.into_json());
            }
        }
        Ok(())
    }

    /// Decodes the payload of the signal that caused this check; `None` on the first check, or if the signal has none.
    pub(super) fn decode_signal<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        let (Some(payload), StepSource::Live { core, .. }) = (&self.signal_payload, &self.source) else {
            return Ok(None);
        };
        let plain = core.services.codecs.decode(payload).map_err(Failure::stop)?;
        serde_json::from_slice(&plain).map_err(|error| {
            Failure::stop(format!("the payload of the signal does not decode ({error})")).class("signal")
        })
    }
}

impl TestContext {
    /// The context of a step of a workflow.
    pub fn into_step_cx(self) -> StepCx {
        let (attempts, id) = (self.job.attempts, self.step_id.clone());
        StepCx {
            source: StepSource::Test(Arc::new(self)),
            attempts,
            signal_payload: None,
            id,
            heartbeat: None,
        }
    }

    /// The values that code has set through a context of a unit test; `None` if it is the context of a running workflow.
    pub fn values_set(cx: &StepCx) -> Option<BTreeMap<String, serde_json::Value>> {
        match &cx.source {
            StepSource::Live { .. } => None,
            StepSource::Test(test) => Some(test.values().clone()),
        }
    }
}
