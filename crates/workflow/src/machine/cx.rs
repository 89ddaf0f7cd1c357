//! The context of a running step.

use std::sync::{Arc, Mutex, OnceLock, atomic::AtomicBool};

use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use windlass_model::{Failure, JobId, Rev, Time, UnreadableSignal, WaitCondition, failure::class};
use windlass_store::ChildEnd;

use crate::{
    JobError, Signal, WaitFor,
    attempt_source::{AttemptSource, TestContext},
    output::decode_output,
    signal, store_retry,
};

/// What a running step can find out about its job and its attempt.
pub struct MachineCx {
    /// Whether a machine of this kind has opened a branch in this process.
    pub(super) branches: Arc<AtomicBool>,
    /// Notified when the step must end before its code returns.
    pub(super) interrupted: Notify,
    /// Visible signals that the step could not decode.
    pub(super) unreadable: Mutex<Vec<UnreadableSignal>>,
    /// Why the code does not match what a branch of it has spawned.
    pub(super) diverged: OnceLock<Failure>,
    pub(super) source: AttemptSource,
}

/// How a child ended.
#[derive(Debug)]
pub struct ChildResult<O> {
    /// The child.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// Its key.
    pub key: Option<String>,
    /// Its output, or why it has none. A child that has not ended (after a timeout) has [`JobError::Unfinished`].
    pub result: Result<O, JobError>,
}

/// Why a signal is not returned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignalError {
    /// The step did not wait for it.
    #[error("this step did not wait for the signal {0:?}; name it in `Next::wait` of the step before")]
    NotWaited(String),
    /// It was sent as another type than the step expects.
    #[error(
        "the signal {name:?} of {at} cannot be read ({why}); it was sent as another type, or the type has changed. It is \
         marked unreadable, and the step runs again when another one arrives or its wait times out"
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

/// Why children are not returned.
#[derive(Debug, thiserror::Error)]
pub enum ChildrenError {
    /// The step did not wait for any.
    #[error("this step did not wait for children; submit them with `Next::children` in the step before")]
    NotWaited,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] windlass_store::Error),
}

impl From<ChildrenError> for Failure {
    fn from(error: ChildrenError) -> Failure {
        match error {
            ChildrenError::NotWaited => Failure::stop(error).class(class::REFUSED),
            ChildrenError::Store(error) => error.into(),
        }
    }
}

impl MachineCx {
    pub(super) fn new(branches: Arc<AtomicBool>, source: AttemptSource) -> MachineCx {
        let (interrupted, unreadable, diverged) = (Notify::new(), Mutex::default(), OnceLock::new());
        MachineCx { branches, interrupted, unreadable, diverged, source }
    }

    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.source.job().id
    }

    /// The caller's key for the job.
    pub fn key(&self) -> Option<&str> {
        self.source.job().key.as_deref()
    }

    /// The tick of the schedule that submitted it: the time it was scheduled for, however late it runs.
    pub fn tick(&self) -> Option<Time> {
        self.source.job().settings.tick
    }

    /// The number of this attempt at the step, from 1: retries and deaths of workers count, and each step starts at 1.
    pub fn attempt(&self) -> u32 {
        self.source.job().attempts + u32::from(self.source.job().worker_deaths) + 1
    }

    /// The id of this step, the same for all attempts at it and different from all other steps of all jobs: an idempotency key
    /// for what the step does to the outside world.
    pub fn step_id(&self) -> String {
        format!("{}/{}", self.source.job().id, self.source.job().stage_rev.0)
    }

    /// A number that is larger in every later claim of this job. Systems that refuse writes with an older number than they have
    /// seen are safe from attempts that were declared dead and still run.
    pub fn fence(&self) -> i32 {
        self.source.job().epoch.0
    }

    /// The program's data of this type, which the engine's builder was given. If it was given none, the attempt ends here and the
    /// job fails.
    #[track_caller]
    pub fn data<T: Send + Sync + 'static>(&self) -> &T {
        self.source.data()
    }

    /// The program's data of this type, if the engine's builder was given any.
    pub fn try_data<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.source.try_data()
    }

    /// Reports how far the step has come: see [`crate::TaskCx::progress`]. It restarts the time of
    /// [`Machine::heartbeat_timeout`](super::Machine::heartbeat_timeout).
    pub fn progress(&self, done: u64, total: impl Into<Option<u64>>, note: &str) {
        self.source.report(done, total.into(), note);
    }

    /// The trace that this attempt is part of, as a W3C `traceparent` to be sent along with calls to other services.
    pub fn traceparent(&self) -> Option<String> {
        self.source.traceparent()
    }

    /// Whether the attempt should end soon: see [`crate::TaskCx::is_cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.source.is_cancelled()
    }

    /// Returns when [`MachineCx::is_cancelled`] becomes true.
    pub async fn cancelled(&self) {
        self.source.cancelled().await;
    }

    /// Whether the wait before this step timed out before its condition was met.
    pub fn timed_out(&self) -> bool {
        !self.source.job().wait_is_met()
    }

    /// Returns the oldest signal of a name that the step waited for; `None` if none has arrived.
    ///
    /// A signal that cannot be decoded as `T` is marked unreadable: what the step returns after this error is dropped, and the
    /// step runs again when another signal arrives or its wait times out, as if this one had not arrived.
    pub fn signal<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SignalError> {
        Ok(self.signals(name)?.into_iter().next())
    }

    /// Returns the oldest signal of a type that the step waited for, by its name ([`Signal::NAME`]); `None` if none has arrived.
    pub fn receive<S: Signal>(&self) -> Result<Option<S>, SignalError> {
        self.signal(S::NAME)
    }

    /// Returns the visible signals of a type that the step waited for, by its name, oldest first.
    pub fn receive_all<S: Signal>(&self) -> Result<Vec<S>, SignalError> {
        self.signals(S::NAME)
    }

    /// Returns the visible signals of a name that the step waited for, oldest first.
    pub fn signals<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, SignalError> {
        let job = self.source.job();
        if !job.wait.as_ref().is_some_and(|wait| wait.names().any(|awaited| awaited == name)) {
            return Err(SignalError::NotWaited(name.to_owned()));
        }
        let shown = job.visible_signals().into_iter().filter(|signal| signal.name == name);
        let (mut all, mut error) = (Vec::new(), None);
        for shown in shown {
            match signal::read(self.source.codecs(), &shown.payload) {
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

    /// Marks a signal unreadable and ends the step: it was woken for nothing.
    fn mark_unreadable(&self, shown: &windlass_model::Signal, why: &str) {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(|e| e.into_inner());
        if !unreadable.iter().any(|known| known.number == shown.number) {
            unreadable.push(signal::mark_unreadable(self.id(), shown, why.to_owned()));
        }
        self.interrupted.notify_one();
    }

    /// Ends the step and fails the job: the code does not match what was spawned before.
    pub(super) async fn diverge<T>(&self, failure: Failure) -> T {
        let _ = self.diverged.set(failure);
        self.interrupted.notify_one();
        std::future::pending().await
    }

    /// Returns how the children ended that the step waited for, in the order in which they were submitted. They are read from
    /// the store now and not kept in the machine.
    pub async fn children<O: DeserializeOwned>(&self) -> Result<Vec<ChildResult<O>>, ChildrenError> {
        let Some(WaitCondition::Children { rev: parent_rev }) = self.source.job().wait else {
            return Err(ChildrenError::NotWaited);
        };
        let mut all = Vec::new();
        let live = match &self.source {
            AttemptSource::Live(live) => live,
            AttemptSource::Test(test) => {
                all.extend(test.children.iter().map(|child| self.child_result(child.clone())));
                return Ok(all);
            }
        };
        let inspect = live.services.store.inspect();
        let mut after = None;
        loop {
            let page = store_retry::read!(inspect.child_ends(self.id(), parent_rev, after, 500))?;
            let Some(last) = page.last() else { return Ok(all) };
            after = Some(last.id);
            all.extend(page.into_iter().map(|child| self.child_result(child)));
        }
    }

    fn child_result<O: DeserializeOwned>(&self, child: ChildEnd) -> ChildResult<O> {
        let result = match child.ended {
            Some(ended) => decode_output(child.id, ended, self.source.codecs()),
            None => Err(JobError::Unfinished(child.id)),
        };
        ChildResult { id: child.id, kind: child.kind, key: child.key, result }
    }
}

impl TestContext {
    /// The context of a step of a machine.
    ///
    /// # Panics
    ///
    /// If it has both signals and children: a step waits for the ones or the others.
    #[track_caller]
    pub fn into_machine_cx(mut self) -> MachineCx {
        let (job, wait) = (&mut self.job, self.wait.take());
        let has_signals = wait.is_some() || !job.inbox.is_empty();
        job.wait = match (self.children.is_empty(), has_signals) {
            (true, false) => None,
            (true, true) => {
                let names = || job.inbox.iter().map(|signal| signal.name.clone()).collect();
                Some(wait.unwrap_or_else(|| WaitFor::every(names())).into_condition())
            }
            (false, false) => Some(WaitCondition::Children { rev: Rev(1) }),
            (false, true) => panic!("a step waits for signals or for children, not for both"),
        };
        MachineCx::new(Arc::default(), AttemptSource::Test(Arc::new(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_no_retry_can_fix_stop_the_job() {
        for failure in [SignalError::NotWaited("go".into()).into(), Failure::from(ChildrenError::NotWaited)] {
            assert_eq!(
                (&*failure.class, failure.then),
                (class::REFUSED, windlass_model::failure::OnFailure::Stop)
            );
        }
    }
}
