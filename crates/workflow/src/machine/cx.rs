//! What a running step knows of itself.

use std::sync::{Arc, Mutex, OnceLock, atomic::AtomicBool};

use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use windlass_model::{Failure, JobId, Time, UnreadableSignal, WaitCondition, failure::class};
use windlass_runtime::Attempt;

use super::Services;
use crate::{JobError, output::decode_output, signal, store_retry};

/// What a running step knows of itself.
pub struct StepCx {
    /// Whether machines of this kind open branches, as far as is known here.
    pub(super) branches: Arc<AtomicBool>,
    /// Told when the step is to be given up for now.
    pub(super) paused: Notify,
    /// Signals that the step was shown and could not read.
    pub(super) aside: Mutex<Vec<UnreadableSignal>>,
    /// How the code does not fit what a branch of it has spawned.
    pub(super) diverged: OnceLock<Failure>,
    pub(super) attempt: Arc<Attempt>,
    pub(super) bound: Arc<Services>,
}

/// How a child ended.
#[derive(Debug)]
pub struct ChildResult<O> {
    /// The child.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// The name it was given.
    pub key: Option<String>,
    /// Its output, or why it has none. A child that has not ended (after a timeout) has [`JobError::Unfinished`].
    pub result: Result<O, JobError>,
}

/// Why a signal cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignalError {
    /// The step did not wait for it.
    #[error("this step did not wait for the signal {0:?}; name it in `Next::wait` of the step before")]
    NotWaited(String),
    /// It says something else than the step expects.
    #[error(
        "the signal {name:?} of {at} cannot be read ({why}); whoever sent it sent another type, or the type has changed. It is \
         set aside, and the step is run again when another has come or the time of its wait is over"
    )]
    Undecodable {
        /// Its name.
        name: String,
        /// When it was delivered.
        at: Time,
        /// What is wrong with it.
        why: String,
    },
}

impl From<SignalError> for Failure {
    fn from(error: SignalError) -> Failure {
        let class = match error {
            SignalError::NotWaited(_) => class::REFUSED,
            SignalError::Undecodable { .. } => "signal",
        };
        Failure::stop(error).class(class)
    }
}

/// Why the children cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ChildrenError {
    /// The step did not wait for any.
    #[error("this step did not wait for children; submit them with `Next::children` in the step before")]
    NotWaited,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] windlass_store::Error),
}

impl From<&ChildrenError> for Failure {
    fn from(error: &ChildrenError) -> Failure {
        match error {
            ChildrenError::NotWaited => Failure::stop(error).class(class::REFUSED),
            ChildrenError::Store(error) => Failure::retry(error).class(store_retry::STORE),
        }
    }
}

impl From<ChildrenError> for Failure {
    fn from(error: ChildrenError) -> Failure {
        (&error).into()
    }
}

impl StepCx {
    /// The job.
    pub fn id(&self) -> JobId {
        self.attempt.job.id
    }

    /// The caller's name for the job.
    pub fn key(&self) -> Option<&str> {
        self.attempt.job.key.as_deref()
    }

    /// The tick of the schedule that submitted it: the moment it stands for, however late it runs.
    pub fn tick(&self) -> Option<Time> {
        self.attempt.job.settings.tick
    }

    /// Which attempt at this step it is, from 1: retries and deaths of workers count, and each new step begins anew.
    pub fn attempt(&self) -> u32 {
        self.attempt.job.attempts + u32::from(self.attempt.job.worker_deaths) + 1
    }

    /// The name of this step, the same for all attempts at it and different from all other steps of all jobs: an
    /// idempotency key for whatever the step does to the outside world once.
    pub fn step_id(&self) -> String {
        format!("{}/{}", self.attempt.job.id, self.attempt.job.stage_rev.0)
    }

    /// A number that is larger in every later claim of this job. Systems that refuse writes with an older number than
    /// they have seen are safe from attempts that were taken for dead and were not.
    pub fn fence(&self) -> i32 {
        self.attempt.job.epoch.0
    }

    /// The trace that this attempt is part of, as a W3C `traceparent` to be sent along with calls to other services.
    pub fn traceparent(&self) -> Option<String> {
        self.attempt.traceparent()
    }

    /// Whether the attempt should end soon: see [`crate::TaskCx::is_cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.attempt.is_cancelled()
    }

    /// Returns when [`StepCx::is_cancelled`] becomes true.
    pub async fn cancelled(&self) {
        self.attempt.cancelled().await;
    }

    /// Whether the time of the wait before this step was over before what it waited for had come.
    pub fn timed_out(&self) -> bool {
        !self.attempt.job.wait_is_met()
    }

    /// The oldest signal of a name that the step waited for; `None` if it has not come.
    ///
    /// One that cannot be read as `T` is set aside: whatever the step returns after this error is dropped, and it is run
    /// again once another signal has come, or the time of its wait is over, as if this one had not come.
    pub fn signal<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SignalError> {
        Ok(self.signals(name)?.into_iter().next())
    }

    /// The signals of a name that the step waited for and is shown, oldest first.
    pub fn signals<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, SignalError> {
        let job = &self.attempt.job;
        if !job.wait.as_ref().is_some_and(|wait| wait.names().any(|waited| waited == name)) {
            return Err(SignalError::NotWaited(name.to_owned()));
        }
        let shown = job.visible_signals().into_iter().filter(|signal| signal.name == name);
        let (mut all, mut error) = (Vec::new(), None);
        for shown in shown {
            match signal::read(&self.bound.codecs, &shown.payload) {
                Ok(read) => all.push(read),
                Err(why) => {
                    self.mark_unreadable(shown, &why);
                    let (name, at) = (name.to_owned(), shown.at);
                    error.get_or_insert(SignalError::Undecodable { name, at, why });
                }
            }
        }
        error.map_or(Ok(all), Err)
    }

    /// Has a signal set aside, and the step given up: it was woken for nothing.
    fn mark_unreadable(&self, shown: &windlass_model::Signal, why: &str) {
        let mut aside = self.aside.lock().unwrap_or_else(|e| e.into_inner());
        if !aside.iter().any(|known| known.number == shown.number) {
            aside.push(signal::mark_unreadable(self.id(), shown, why.to_owned()));
        }
        self.paused.notify_one();
    }

    /// Has the step given up, and the job failed, since its code does not fit what was spawned before.
    pub(super) async fn diverge<T>(&self, failure: Failure) -> T {
        let _ = self.diverged.set(failure);
        self.paused.notify_one();
        std::future::pending().await
    }

    /// How the children ended that the step waited for, in the order in which they were given. Read from the store now,
    /// not kept in the machine.
    pub async fn children<O: DeserializeOwned>(&self) -> Result<Vec<ChildResult<O>>, ChildrenError> {
        let Some(WaitCondition::Children { rev: round }) = self.attempt.job.wait else {
            return Err(ChildrenError::NotWaited);
        };
        let inspect = self.bound.store.inspect();
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = store_retry::read!(inspect.child_ends(self.id(), round, after, 500))?;
            let Some(last) = page.last() else { return Ok(all) };
            after = Some(last.id);
            all.extend(page.into_iter().map(|child| ChildResult {
                result: match child.ended {
                    Some(ended) => decode_output(child.id, ended, &self.bound.codecs),
                    None => Err(JobError::Unfinished(child.id)),
                },
                id: child.id,
                kind: child.kind,
                key: child.key,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AnyError;

    #[test]
    fn what_no_attempt_can_mend_is_not_tried_again_whatever_the_error_type() {
        let signal: AnyError = SignalError::NotWaited("go".into()).into();
        let children: AnyError = ChildrenError::NotWaited.into();
        for error in [signal, children] {
            let failure: Failure = error.into();
            assert_eq!(
                (&*failure.class, failure.then),
                (class::REFUSED, windlass_model::failure::OnFailure::Stop)
            );
        }
    }
}
