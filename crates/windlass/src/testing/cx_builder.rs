//! Describes contexts for unit tests.

use std::marker::PhantomData;

use serde::Serialize;
use windlass_env::{Env, IdSource};
use windlass_model::{ClaimNo, Epoch, Failure, JobId, NewJob, Payload, Reason, Signal as Delivered, Time};
use windlass_store::{ChildEnd, JobEnd};
use windlass_workflow::{MachineCx, Signal, StepCx, TaskCx, UndoCx, WaitFor, engine::TestContext};

use super::contexts::CancelSwitch;
use crate::{Engine, engine::KeptEngine};

/// A context for a unit test that is being described; `build` makes it.
///
/// It has no engine, no store and no worker: whatever its code does, nothing is written. Calls that need a store (`branch`,
/// `merged`, `results`, `context_of`) return an error; test their code in a [`Lab`](super::Lab). `cx.engine()` returns the engine
/// that the builder was given ([`CxBuilder::engine`]).
#[must_use = "`.build()` makes the context"]
pub struct CxBuilder<Cx> {
    context: TestContext,
    cx: PhantomData<fn() -> Cx>,
}

impl<Cx> CxBuilder<Cx> {
    pub(super) fn new() -> CxBuilder<Cx> {
        let (env, null) = (Env::real(), Payload::json(b"null".to_vec()));
        let job = NewJob::new(IdSource::new(env.clone()).job(), "test", "default", null);
        let job = job.claimed_at_submit(ClaimNo(1), Epoch(1), env.now());
        CxBuilder { context: TestContext::new(job), cx: PhantomData }
    }

    /// The id of the job: by default a new one.
    pub fn id(mut self, id: JobId) -> Self {
        let default_step = format!("{}/step", self.context.job.id);
        if self.context.step_id == default_step {
            self.context.step_id = format!("{id}/step");
        }
        self.context.job.id = id;
        self
    }

    /// Adds data of the program, which `cx.data::<T>()` returns.
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.context.data.insert(value);
        self
    }

    /// The engine that `cx.engine()` returns, for example that of a [`Lab`](super::Lab).
    pub fn engine(self, engine: &Engine) -> Self {
        self.data(engine.downgrade()).data(KeptEngine(engine.clone()))
    }

    /// The number of the attempt: by default 1, the first.
    ///
    /// # Panics
    ///
    /// If it is 0.
    #[track_caller]
    pub fn attempt(mut self, number: u32) -> Self {
        assert!(number > 0, "attempts are counted from 1");
        self.context.job.attempts = number - 1;
        self
    }

    /// The fencing token: by default 1.
    pub fn fence(mut self, fence: i32) -> Self {
        self.context.job.epoch = Epoch(fence);
        self
    }
}

/// A macro because the contexts have no trait in common.
macro_rules! attempt_settings {
    ($($cx:ty),+) => {
        $(impl CxBuilder<$cx> {
            /// The caller's key for the job.
            pub fn key(mut self, key: impl Into<String>) -> Self {
                self.context.job.key = Some(key.into());
                self
            }

            /// The trace that the attempt is part of.
            pub fn traceparent(mut self, trace: impl Into<String>) -> Self {
                self.context.job.settings.trace = Some(trace.into());
                self
            }

            /// The attempt is cancelled from the start.
            pub fn cancelled(self) -> Self {
                let switch = CancelSwitch::new();
                switch.cancel();
                self.cancelled_by(&switch)
            }

            /// The attempt is cancelled when the switch is used.
            pub fn cancelled_by(mut self, switch: &CancelSwitch) -> Self {
                self.context.cancelled = switch.subscribe();
                self
            }
        })+
    };
}

attempt_settings!(TaskCx, MachineCx, StepCx);

impl CxBuilder<TaskCx> {
    /// The tick of the schedule that submitted the job.
    pub fn tick(mut self, tick: Time) -> Self {
        self.context.job.settings.tick = Some(tick);
        self
    }

    /// Makes the context.
    pub fn build(self) -> TaskCx {
        self.context.into_task_cx()
    }
}

impl CxBuilder<StepCx> {
    /// The id of the step.
    pub fn step_id(mut self, id: impl Into<String>) -> Self {
        self.context.step_id = id.into();
        self
    }

    /// Makes the context.
    pub fn build(self) -> StepCx {
        self.context.into_step_cx()
    }
}

impl CxBuilder<UndoCx> {
    /// The id of the step that is undone.
    pub fn step_id(mut self, id: impl Into<String>) -> Self {
        self.context.step_id = id.into();
        self
    }

    /// Makes the context.
    pub fn build(self) -> UndoCx {
        self.context.into_undo_cx()
    }
}

impl CxBuilder<MachineCx> {
    /// The tick of the schedule that submitted the job.
    pub fn tick(mut self, tick: Time) -> Self {
        self.context.job.settings.tick = Some(tick);
        self
    }

    /// A signal that the step waited for and that has arrived, after those that were added before.
    ///
    /// # Panics
    ///
    /// If the payload cannot be written as JSON.
    #[track_caller]
    pub fn signal<T: Serialize>(mut self, name: &str, payload: T) -> Self {
        let inbox = &mut self.context.job.inbox;
        inbox.push(Delivered {
            number: inbox.len() as i64 + 1,
            name: name.to_owned(),
            at: Env::real().now(),
            payload: json(&payload),
            unreadable: None,
        });
        self
    }

    /// The same, by its type.
    #[track_caller]
    pub fn send<S: Signal>(self, signal: S) -> Self {
        self.signal(S::NAME, signal)
    }

    /// What the step before waited for: by default all signals that were added, all of which the step sees. If the signals do
    /// not meet the wait, it has timed out.
    pub fn waited_for(mut self, signals: impl Into<WaitFor>) -> Self {
        self.context.wait = Some(signals.into());
        self
    }

    /// A child that the step waited for and that is done.
    ///
    /// # Panics
    ///
    /// If the output cannot be written as JSON.
    #[track_caller]
    pub fn child_done<T: Serialize>(self, kind: &str, key: Option<&str>, output: T) -> Self {
        self.child(kind, key, Some(JobEnd::Done(json(&output))))
    }

    /// A child that the step waited for and that has failed, after all its retries.
    pub fn child_failed(self, kind: &str, key: Option<&str>, failure: Failure) -> Self {
        self.child(kind, key, Some(JobEnd::Failed { reason: Reason::Exhausted, failure }))
    }

    /// A child that the step waited for and that has not ended: the wait has timed out.
    pub fn child_unfinished(mut self, kind: &str, key: Option<&str>) -> Self {
        self.context.job.pending_children += 1;
        self.child(kind, key, None)
    }

    fn child(mut self, kind: &str, key: Option<&str>, ended: Option<JobEnd>) -> Self {
        let id = IdSource::default().job();
        let (kind, key) = (kind.to_owned(), key.map(str::to_owned));
        self.context.children.push(ChildEnd { id, kind, key, ended });
        self
    }

    /// Makes the context.
    ///
    /// # Panics
    ///
    /// If it has both signals and children: a step waits for the one or the other.
    #[track_caller]
    pub fn build(self) -> MachineCx {
        self.context.into_machine_cx()
    }
}

#[track_caller]
fn json<T: Serialize>(value: &T) -> Payload {
    match serde_json::to_vec(value) {
        Ok(bytes) => Payload::json(bytes),
        Err(error) => panic!("a value of the context cannot be written as JSON: {error}"),
    }
}
