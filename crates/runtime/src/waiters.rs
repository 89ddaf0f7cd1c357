//! Callers that wait for a job to end.
//!
//! While a worker of this process holds the job, its end is passed on from the change that ends it, as soon as that is
//! committed: the store is not read. The ends of other jobs are read, by one poll that all callers share.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use foldhash::fast::RandomState;
use tokio::sync::{Notify, oneshot};
use windlass_env::Env;
use windlass_model::{JobId, Outcome};
use windlass_store::{Error, JobEnd, Store};

use crate::sync::lock;

/// The shortest and the longest interval between two polls: one read for all jobs that are waited for and held elsewhere, and
/// none while there are no such jobs.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_millis(500);
/// How often the jobs that are held here are read too: the store may have ended one whose attempt blocks its thread. It is also
/// how often a loop that has nothing to poll checks whether the engine is gone.
const HELD_INTERVAL: Duration = Duration::from_secs(5);

/// All callers of this process that wait for jobs.
pub struct Waiters {
    env: Env,
    store: Arc<dyn Store>,
    state: Mutex<State>,
    /// Notified when there may be a job to poll.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    waiting: HashMap<JobId, Vec<oneshot::Sender<JobEnd>>, RandomState>,
    /// The jobs that a worker of this process holds: each has an open `ClaimGuard`.
    held: HashSet<JobId, RandomState>,
}

impl Waiters {
    /// Without callers. [`Waiters::run`] must run for jobs that end in other processes.
    pub fn new(env: Env, store: Arc<dyn Store>) -> Arc<Waiters> {
        Arc::new(Waiters { env, store, state: Mutex::default(), changed: Arc::default() })
    }

    /// Polls the store while callers wait, for as long as something else holds `self`.
    pub async fn run(self: Arc<Waiters>) {
        let (weak, env) = (Arc::downgrade(&self), self.env.clone());
        drop(self);
        let mut wait = MIN_INTERVAL;
        let mut read_held_at = env.instant() + HELD_INTERVAL;
        loop {
            let Some(waiters) = weak.upgrade() else { return };
            if waiters.remove_closed() {
                env.sleep(wait).await;
            } else {
                wait = MIN_INTERVAL;
                // Holds nothing meanwhile, so that an engine that is dropped closes its connections.
                let changed = Arc::clone(&waiters.changed);
                drop(waiters);
                tokio::select! {
                    () = changed.notified() => continue,
                    () = env.sleep_until(read_held_at) => {}
                }
            }
            let Some(waiters) = weak.upgrade() else { return };
            let reads_held = env.instant() >= read_held_at;
            if reads_held {
                read_held_at = env.instant() + HELD_INTERVAL;
            }
            wait = if waiters.tick(reads_held).await { MIN_INTERVAL } else { (wait * 2).min(MAX_INTERVAL) };
        }
    }

    /// One poll, with or without the jobs that are held here; returns whether any job had ended.
    async fn tick(&self, reads_held: bool) -> bool {
        let ids: Vec<JobId> = {
            let state = lock(&self.state);
            let is_read = |id: &&JobId| reads_held || !state.held.contains(id);
            state.waiting.keys().filter(is_read).copied().collect()
        };
        if ids.is_empty() {
            return false;
        }
        let Ok(ends) = self.store.job_ends(&ids).await else { return false };
        let mut any = false;
        for (id, end) in ids.into_iter().zip(ends) {
            if let Some(end) = end {
                let callers = lock(&self.state).waiting.remove(&id).unwrap_or_default();
                answer(callers, end);
                any = true;
            }
        }
        any
    }

    /// Waits for a job to end.
    pub async fn wait_for_end(&self, id: JobId) -> Result<JobEnd, Error> {
        let (sender, receiver) = oneshot::channel();
        let is_held = {
            let mut state = lock(&self.state);
            state.waiting.entry(id).or_default().push(sender);
            state.held.contains(&id)
        };
        if !is_held {
            // Read after the caller was added, so that an end in between is either passed on or read.
            if let Ok(mut ends) = self.store.job_ends(&[id]).await
                && let Some(Some(end)) = ends.pop()
            {
                drop(receiver);
                self.remove_closed_of(id);
                return Ok(end);
            }
            self.changed.notify_one();
        }
        receiver.await.map_err(|_| Error::Unavailable("the engine has stopped".into()))
    }

    /// Notes that a worker of this process holds jobs, so that their ends are not read.
    pub(crate) fn hold(&self, ids: impl IntoIterator<Item = JobId>) {
        lock(&self.state).held.extend(ids);
    }

    /// Whether a worker of this process holds a job.
    pub(crate) fn is_held(&self, id: JobId) -> bool {
        lock(&self.state).held.contains(&id)
    }

    /// Notes that a job is no longer held in this process: if it has not ended, it is polled.
    pub(crate) fn unhold(&self, id: JobId) {
        let mut state = lock(&self.state);
        if state.held.remove(&id) && state.waiting.contains_key(&id) {
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Notes that jobs are no longer held in this process, by a commit: with the outcome that has ended a job, which is passed to
    /// all callers that wait for it, or `None` if it is polled. A caller that comes later reads.
    pub(crate) fn unhold_committed(&self, jobs: impl IntoIterator<Item = (JobId, Option<Outcome>)>) {
        let (mut answers, mut is_left) = (Vec::new(), false);
        {
            let State { waiting, held } = &mut *lock(&self.state);
            for (id, ending) in jobs {
                held.remove(&id);
                match ending {
                    _ if waiting.is_empty() => {}
                    Some(ending) => answers.extend(waiting.remove(&id).zip(JobEnd::of_committed(ending))),
                    None => is_left |= waiting.contains_key(&id),
                }
            }
        }
        answers.into_iter().for_each(|(callers, end)| answer(callers, end));
        if is_left {
            self.changed.notify_one();
        }
    }

    /// Removes callers that have given up; returns whether any is left whose job is held elsewhere.
    fn remove_closed(&self) -> bool {
        let State { waiting, held } = &mut *lock(&self.state);
        waiting.retain(|_, senders| senders.iter().any(|sender| !sender.is_closed()));
        waiting.keys().any(|id| !held.contains(id))
    }

    /// Removes callers of one job that have given up.
    fn remove_closed_of(&self, id: JobId) {
        let waiting = &mut lock(&self.state).waiting;
        if let Some(senders) = waiting.get_mut(&id) {
            senders.retain(|sender| !sender.is_closed());
            if senders.is_empty() {
                waiting.remove(&id);
            }
        }
    }
}

/// Passes an end to callers.
fn answer(mut callers: Vec<oneshot::Sender<JobEnd>>, end: JobEnd) {
    let last = callers.pop();
    for caller in callers {
        let _ = caller.send(end.clone());
    }
    if let Some(last) = last {
        let _ = last.send(end);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use windlass_env::VirtualClock;
    use windlass_model::{Payload, Time};
    use windlass_store::memory::Memory;

    use super::*;

    /// The store is empty, so a read answers that the job does not exist.
    fn waiters(env: Env) -> Arc<Waiters> {
        Waiters::new(env, Arc::new(Memory::new()))
    }

    fn job() -> JobId {
        JobId::from_parts(1, 1, 1)
    }

    fn output() -> Payload {
        Payload::json(b"7".to_vec())
    }

    #[tokio::test]
    async fn the_end_of_a_job_that_is_held_here_is_passed_on_and_not_read() {
        let waiters = waiters(Env::real());
        waiters.hold([job()]);
        let mut both =
            std::pin::pin!(async { tokio::join!(waiters.wait_for_end(job()), waiters.wait_for_end(job())) });
        assert!(both.as_mut().now_or_never().is_none(), "a read would have answered");
        waiters.unhold_committed([(job(), Some(Outcome::Done(output())))]);
        let (one, other) = both.await;
        let done = JobEnd::Done(output());
        assert_eq!((one.expect("answered"), other.expect("answered")), (done.clone(), done));
    }

    #[tokio::test]
    async fn a_caller_that_comes_after_the_end_reads_and_nothing_is_kept() {
        let waiters = waiters(Env::real());
        waiters.hold([job()]);
        waiters.unhold_committed([(job(), Some(Outcome::Done(output())))]);
        assert_eq!(waiters.wait_for_end(job()).await.expect("read"), JobEnd::Gone);
        let state = lock(&waiters.state);
        assert!(state.waiting.is_empty() && state.held.is_empty());
    }

    #[tokio::test]
    async fn of_the_jobs_of_a_commit_each_caller_gets_the_end_of_its_own() {
        let waiters = waiters(Env::real());
        waiters.env.spawn(Arc::clone(&waiters).run());
        let [ended, parked, alone] = [1, 2, 3].map(|n| JobId::from_parts(1, 1, n));
        waiters.hold([ended, parked, alone]);
        let mut of_ended = std::pin::pin!(waiters.wait_for_end(ended));
        let mut of_parked = std::pin::pin!(waiters.wait_for_end(parked));
        assert!(of_ended.as_mut().now_or_never().is_none() && of_parked.as_mut().now_or_never().is_none());
        let done = Outcome::Done(output());
        waiters.unhold_committed([(ended, Some(done.clone())), (parked, None), (alone, Some(done))]);
        assert_eq!(of_ended.await.expect("passed on"), JobEnd::Done(output()));
        assert_eq!(of_parked.await.expect("read"), JobEnd::Gone);
        assert!(lock(&waiters.state).held.is_empty());
    }

    #[tokio::test]
    async fn a_job_that_leaves_this_process_is_polled() {
        let waiters = waiters(Env::real());
        waiters.env.spawn(Arc::clone(&waiters).run());
        waiters.hold([job()]);
        let mut end = std::pin::pin!(waiters.wait_for_end(job()));
        assert!(end.as_mut().now_or_never().is_none());
        waiters.unhold(job());
        assert_eq!(end.await.expect("read"), JobEnd::Gone);
    }

    #[tokio::test]
    async fn a_job_that_the_store_has_ended_while_it_is_held_here_is_found() {
        let clock = Arc::new(VirtualClock::new(Time(0)));
        let waiters = waiters(Env::with_clock(Arc::clone(&clock)));
        waiters.env.spawn(Arc::clone(&waiters).run());
        waiters.hold([job()]);
        let mut end = std::pin::pin!(waiters.wait_for_end(job()));
        assert!(end.as_mut().now_or_never().is_none());
        // The loop must have computed its deadline before the clock moves.
        tokio::task::yield_now().await;
        clock.set(Time(0) + 2 * HELD_INTERVAL);
        assert_eq!(end.await.expect("read"), JobEnd::Gone);
    }
}
