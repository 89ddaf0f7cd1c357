//! Releases claimed jobs that do not run in this worker.
//!
//! Every claimed job has a [`ClaimGuard`], which moves with it from the pool to the committer. Code that learns that the
//! store has ended the claim (by a committed outcome, a pause, a cancel) ends the guard. A guard that is dropped before
//! that is put on the list of the [`Releaser`], and one task releases the jobs on that list until the store has answered.
//! So a running worker never forgets a job that the store has recorded as claimed by it.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_env::Env;
use windlass_model::{ClaimNo, ClaimedJob, Epoch, JobClaim, JobId, WorkerId};
use windlass_store::{Error, Store};

use crate::{
    Waiters,
    backoff::Backoff,
    core::Core,
    sync::{lock, wait_until},
    telemetry::{StoreCall, add},
};

/// The most jobs in one transaction, because other transactions wait for it.
const BATCH: usize = 1_000;
/// How long the list may be left alone before the renewer's thread works on it: then all other threads are blocked.
const LATE: Duration = Duration::from_secs(1);

/// One job of a claim, for as long as this worker holds it.
pub(crate) struct ClaimGuard {
    job: JobId,
    epoch: Epoch,
    pub(crate) number: ClaimNo,
    /// The id under which it was claimed: a worker that was declared dead continues under another.
    pub(crate) worker: WorkerId,
    /// Whether the store has ended the claim, or the job is on the list to be released.
    ended: AtomicBool,
    releaser: Arc<Releaser>,
    /// Callers of this process that wait for the job: its end is passed to them while the guard is open.
    waiters: Arc<Waiters>,
}

impl ClaimGuard {
    /// The guard of a job that the waiters know as held.
    pub(crate) fn new(
        core: &Core,
        claimed: &ClaimedJob,
        number: ClaimNo,
        worker: WorkerId,
    ) -> Arc<ClaimGuard> {
        let (ended, releaser) = (AtomicBool::new(false), Arc::clone(&core.releaser));
        let waiters = Arc::clone(&core.waiters);
        Arc::new(ClaimGuard {
            job: claimed.id,
            epoch: claimed.epoch,
            number,
            worker,
            ended,
            releaser,
            waiters,
        })
    }

    /// Records that the store has ended the claim on this job. Returns the claim's number for the ledger, the first time.
    pub(crate) fn end(&self) -> Option<ClaimNo> {
        let number = self.close();
        if number.is_some() {
            self.waiters.unhold(self.job);
        }
        number
    }

    /// The same for a caller that tells the waiters itself.
    pub(crate) fn close(&self) -> Option<ClaimNo> {
        (!self.ended.swap(true, Ordering::AcqRel)).then_some(self.number)
    }

    /// Releases the job, also if the guard is still held somewhere.
    pub(crate) fn release(&self) {
        if let Some(number) = self.end() {
            self.releaser.push(JobClaim {
                worker: self.worker,
                claim: number,
                job: self.job,
                epoch: self.epoch,
            });
        }
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.release();
    }
}

/// The list of jobs to release.
pub(crate) struct Releaser {
    env: Env,
    state: Mutex<State>,
    /// Notified when there are jobs to release.
    work: Notify,
    /// Notified when there are none.
    emptied: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<JobClaim>,
    /// The number of jobs that are being released.
    in_flight: usize,
    /// Since when jobs wait without being taken; `None` while a batch is in flight.
    neglected_since: Option<Instant>,
    /// Whether the worker has stopped, and nothing is released any more.
    closed: bool,
}

impl Releaser {
    pub(crate) fn new(env: Env) -> Releaser {
        Releaser { env, state: Mutex::default(), work: Notify::new(), emptied: Notify::new() }
    }

    fn push(&self, claim: JobClaim) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        if state.waiting.is_empty() && state.in_flight == 0 {
            state.neglected_since = Some(self.env.instant());
        }
        state.waiting.push_back(claim);
        drop(state);
        self.work.notify_one();
    }

    fn take(&self, size: usize) -> Option<Vec<JobClaim>> {
        let mut state = lock(&self.state);
        let count = state.waiting.len().min(size);
        let batch: Vec<JobClaim> = state.waiting.drain(..count).collect();
        state.in_flight += count;
        state.neglected_since = None;
        (!batch.is_empty()).then_some(batch)
    }

    /// Records the end of a batch of `count` jobs. Those that were not released, `failed`, go to the end of the list.
    fn finish(&self, count: usize, failed: impl Iterator<Item = JobClaim>) {
        let mut state = lock(&self.state);
        state.in_flight -= count;
        if !state.closed {
            state.waiting.extend(failed);
        }
        if !state.waiting.is_empty() {
            // The releasing task tries again after its backoff at the latest. The renewer does only if that task does not: a
            // row that is locked must not delay the lease.
            state.neglected_since = Some(self.env.instant() + Backoff::LONGEST);
        }
        let is_empty = state.waiting.is_empty() && state.in_flight == 0;
        drop(state);
        if is_empty {
            self.emptied.notify_waiters();
        }
    }

    /// The number of jobs to release, including those in flight.
    pub(crate) fn waiting(&self) -> usize {
        let state = lock(&self.state);
        state.waiting.len() + state.in_flight
    }

    /// Whether jobs have waited too long without being taken.
    pub(crate) fn is_late(&self) -> bool {
        lock(&self.state).neglected_since.is_some_and(|since| self.env.since(since) > LATE)
    }

    /// Returns when all jobs are released.
    pub(crate) async fn emptied(&self) {
        wait_until(&self.emptied, || self.waiting() == 0).await;
    }

    /// Forgets all jobs, because this worker was declared dead and its claims are void.
    pub(crate) fn clear(&self) {
        lock(&self.state).waiting.clear();
        self.emptied.notify_waiters();
    }

    /// Releases nothing any more.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.clear();
    }
}

/// Runs for as long as the worker does. After an error half as many jobs are sent, and those that failed go last: so a job
/// whose row is locked does not hold up the others.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new(&core.env, "releasing jobs");
    let mut size = BATCH;
    loop {
        let work = core.releaser.work.notified();
        match tick(&core, &*core.store, size).await {
            Ok(0) => work.await,
            Ok(_) => {
                backoff.reset();
                size = (size * 2).min(BATCH);
            }
            Err(error) => {
                size = (size / 2).max(1);
                backoff.wait(&error).await;
            }
        }
    }
}

/// Releases one batch; returns how many jobs were in it.
pub(crate) async fn tick(core: &Core, store: &dyn Store, size: usize) -> Result<usize, Error> {
    let Some(batch) = core.releaser.take(size) else { return Ok(0) };
    let count = batch.len();
    // Claims under an id that was declared dead, and claims that the store has lost, are void.
    let is_valid = |claim: &JobClaim| claim.worker == core.worker() && !core.aborts.is_lost(claim.claim);
    let valid: Vec<JobClaim> = batch.iter().filter(|claim| is_valid(claim)).copied().collect();
    let released = if valid.is_empty() { Ok(0) } else { store.release(None, &valid).await };
    match released {
        Ok(released) => {
            add(&core.stats.released, released);
            core.ledger.settle(batch.iter().map(|claim| claim.claim));
            core.releaser.finish(count, std::iter::empty());
            Ok(count)
        }
        Err(error) => {
            core.metrics.count_error(StoreCall::Release);
            core.releaser.finish(count, batch.into_iter().filter(is_valid));
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_whose_release_failed_count_as_neglected_again() {
        let releaser = Releaser::new(Env::real());
        let is_neglected = |releaser: &Releaser| lock(&releaser.state).neglected_since.is_some();
        let claim = JobClaim {
            worker: WorkerId(1),
            claim: ClaimNo(1),
            job: JobId::from_bytes([0; 16]),
            epoch: Epoch(0),
        };
        releaser.push(claim);
        assert!(is_neglected(&releaser));
        let batch = releaser.take(10).expect("one job waits");
        assert!(!is_neglected(&releaser), "a batch is in flight");
        releaser.finish(batch.len(), batch.into_iter());
        assert!(is_neglected(&releaser), "if the task does not try again, the renewer does");
        let batch = releaser.take(10).expect("the job waits again");
        releaser.finish(batch.len(), std::iter::empty());
        assert!(!is_neglected(&releaser), "no job waits");
    }
}
