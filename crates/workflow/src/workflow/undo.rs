//! Undoes steps, the last one first, when the workflow fails or is cancelled.

use std::{
    future::poll_fn,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use windlass_model::{
    Failure, JobId, Outcome, Payload, Reason, Wait, WaitCondition,
    failure::class,
    journal::{CallEvent, CallKind},
    retry::RetryDecision,
};
use windlass_runtime::{Policy, StepResult};

use super::{
    driver::{Driver, MAX_POLL},
    journal::{CallEnd, Ident, RetryState},
    state::Undo,
    step_id::undo_id,
    undo_record::undo_of,
};
use crate::{attempt_source::TestContext, machine::Services};

/// What a running undo can find out about its step and its attempt.
#[derive(Clone)]
pub struct UndoCx {
    data: UndoData,
    job: JobId,
    step_id: String,
    attempts: u32,
    fence: i32,
}

/// Where the context takes the program's data from.
#[derive(Clone)]
enum UndoData {
    Engine(Arc<Services>),
    Test(Arc<TestContext>),
}

impl UndoCx {
    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.job
    }

    /// The program's data of this type, which the engine's builder was given. If it was given none, the undo fails.
    #[track_caller]
    pub fn data<T: Send + Sync + 'static>(&self) -> &T {
        match &self.data {
            UndoData::Engine(services) => services.data.expect(),
            UndoData::Test(test) => test.expect_data(),
        }
    }

    /// The program's data of this type, if the engine's builder was given any.
    pub fn try_data<T: Send + Sync + 'static>(&self) -> Option<&T> {
        match &self.data {
            UndoData::Engine(services) => services.data.get(),
            UndoData::Test(test) => test.data.get(),
        }
    }

    /// The id that the undone step ran with: [`super::StepCx::step_id`] of all its attempts.
    pub fn step_id(&self) -> &str {
        &self.step_id
    }

    /// The id of this undo, the same for all attempts and different from all steps and other undos of all jobs: an idempotency key
    /// for what it does to the outside world.
    pub fn undo_id(&self) -> String {
        undo_id(&self.step_id)
    }

    /// The number of this attempt at the undo, from 1. Attempts that ended with the death of the worker do not count.
    pub fn attempt(&self) -> u32 {
        self.attempts + 1
    }

    /// A number that is larger in every later claim of this job.
    pub fn fence(&self) -> i32 {
        self.fence
    }
}

impl TestContext {
    /// The context of an undo.
    pub fn into_undo_cx(self) -> UndoCx {
        let (job, step_id) = (self.job.id, self.step_id.clone());
        let (attempts, fence) = (self.job.attempts, self.job.epoch.0);
        UndoCx { data: UndoData::Test(Arc::new(self)), job, step_id, attempts, fence }
    }
}

/// How an undo ended.
pub(super) enum UndoOutcome {
    /// It succeeded or has failed finally, and that is committed.
    Settled,
    /// The attempt ends here: the undo is retried later, or the claim is over.
    AttemptOver(StepResult),
}

impl Driver {
    /// Runs one undo, as a step of its own. If it fails finally, the others run all the same.
    pub(super) async fn undo(&mut self, mut undo: Undo) -> Result<UndoOutcome, Failure> {
        let attempts = undo_of(&undo.ident);
        let tried = self.core.lock().journal.calls.of(&attempts).and_then(|recorded| recorded.tried.clone());
        if let Some(tried) = &tried
            && let remaining = tried.next_at - self.core.now()
            && !remaining.is_zero()
        {
            return Ok(UndoOutcome::AttemptOver(self.park_for(remaining)?));
        }
        // Code before the first `await` may panic as well.
        let cx = UndoCx {
            data: UndoData::Engine(Arc::clone(&self.core.services)),
            job: self.core.job.id,
            step_id: undo.step_id,
            attempts: tried.as_ref().map_or(0, |tried| tried.attempts),
            fence: self.core.job.epoch.0,
        };
        let run = pin!(AssertUnwindSafe(async { (undo.run)(cx).await }).catch_unwind());
        let limit = Policy::default().timeout.unwrap_or(Duration::MAX);
        // An undo that blocks its thread for longer than it may run ends the attempt, as a step does.
        let poll_limit = limit.saturating_add(MAX_POLL);
        let run = with_poll_deadline(run, |polls| self.core.set_poll_deadline(polls.then_some(poll_limit)));
        let result = match self.core.services.env.timeout(limit, run).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(Failure::of_panic(&*panic)),
            Err(_) => {
                Err(Failure::retry(format!("the undo ran longer than {limit:?}")).class(class::TIMEOUT))
            }
        };
        let now = self.core.now();
        match result {
            Ok(()) => {
                let state = &mut *self.core.lock();
                let payload = Payload::json(b"null".to_vec());
                let entry =
                    state.entry_of(&undo.ident, undo.call_kind, CallEvent::Undone, None, payload, now);
                state.pending.push(entry);
            }
            Err(failure) => {
                let (retry_counts, before) =
                    tried.map_or((Vec::new(), 0), |tried| (tried.retry_counts, tried.attempts));
                match undo.retry.decide(&failure, &retry_counts, self.core.random()) {
                    RetryDecision::Retry { after, retry_counts } => {
                        let tried =
                            RetryState { attempts: before + 1, retry_counts, next_at: now + after, failure };
                        let payload = Payload::json(serde_json::to_vec(&tried).unwrap_or_default());
                        {
                            let state = &mut *self.core.lock();
                            let entry = state.entry_of(
                                &attempts,
                                undo.call_kind,
                                CallEvent::Tried,
                                None,
                                payload,
                                now,
                            );
                            state.pending.push(entry);
                        }
                        return Ok(UndoOutcome::AttemptOver(self.park_for(after)?));
                    }
                    _ => self.not_undone(undo.call_kind, undo.ident, failure),
                }
            }
        }
        match self.commit(None).await? {
            Some(result) => Ok(UndoOutcome::AttemptOver(result)),
            None => Ok(UndoOutcome::Settled),
        }
    }

    /// Records that a step was not undone, and why.
    pub(super) fn not_undone(&self, call_kind: CallKind, ident: Ident, failure: Failure) {
        let now = self.core.now();
        let ending = CallEnd::Failed { failure: failure.clone(), reason: Reason::Stopped };
        let state = &mut *self.core.lock();
        let entry =
            state.entry_of(&ident, call_kind, CallEvent::NotUndone, None, ending.failed_payload(), now);
        state.pending.push(entry);
        state.journal.undo.not_undone(ident, failure);
    }

    /// Parks the job for a time.
    fn park_for(&mut self, span: Duration) -> Result<StepResult, Failure> {
        let timeout = Some(span.max(Duration::from_micros(1)));
        let wait = Wait { condition: WaitCondition::Signals { names: Vec::new(), needs: 1 }, timeout };
        Ok(StepResult::Commit { step: Some(Box::new(self.take_step()?)), outcome: Outcome::Wait(wait) })
    }
}

/// Polls a future, and reports before and after each poll whether it holds the thread.
async fn with_poll_deadline<F: Future>(mut run: Pin<&mut F>, mut polls: impl FnMut(bool)) -> F::Output {
    poll_fn(|cx| {
        polls(true);
        let polled = run.as_mut().poll(cx);
        polls(false);
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn an_undo_has_a_poll_deadline_only_while_it_is_polled() {
        let seen = RefCell::new(Vec::new());
        let run = pin!(async {
            seen.borrow_mut().push("runs");
            tokio::task::yield_now().await;
            seen.borrow_mut().push("runs");
        });
        with_poll_deadline(run, |polls| {
            seen.borrow_mut().push(if polls { "watched" } else { "not watched" })
        })
        .await;
        let once = ["watched", "runs", "not watched"];
        assert_eq!(*seen.borrow(), [once, once].concat());
    }
}
