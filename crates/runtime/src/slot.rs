//! A slot: runs one claimed job after the other.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use windlass_model::{CommitOutcome, Outcome, Rev, Wait};

use crate::{
    core::Core,
    pool::{Job, QueuePool},
    solo_lock::SharedGuard,
    watchdog::AttemptWatch,
};

/// After how many steps a machine yields its slot, if other jobs wait for it.
const STEPS_BEFORE_YIELD: u32 = 100;

/// How often a job that waits for the renewal of the lease checks it.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Core {
    /// Runs one job after the other until none is buffered.
    pub(crate) async fn run_slot(self: Arc<Core>, pool: Arc<QueuePool>) {
        let watch = Arc::new(AttemptWatch::default());
        pool.add_watch(Arc::clone(&watch));
        let mut finished = false;
        while let Some(job) = pool.next_job(finished) {
            finished = self.run_job(job, &pool, &watch).await;
            watch.clear();
        }
        pool.remove_watch(&watch);
    }

    /// Runs a job until it has ended, parks or yields: one attempt, and the steps that follow from it. Returns whether it
    /// was started.
    async fn run_job(self: &Arc<Core>, mut job: Job, pool: &Arc<QueuePool>, watch: &AttemptWatch) -> bool {
        let mut steps = 0;
        loop {
            self.committer.wait_for_room().await;
            let Some(guard) = self.start_shared(&job).await else { return steps > 0 };
            steps += 1;
            // A panic that is not caught further in (in the destructor of a future that was given up) must not end the slot.
            let attempt = AssertUnwindSafe(self.run_attempt(&job, pool, watch)).catch_unwind().await;
            drop(guard);
            let change = match attempt {
                Ok(change) => change,
                Err(panic) => self.after_panic(watch, &*panic),
            };
            // Without a change, dropping the job releases it if it is still claimed.
            let Some(mut change) = change else { return true };
            if change.outcome == Outcome::Next && steps >= STEPS_BEFORE_YIELD && pool.is_contended() {
                change.outcome = Outcome::Wait(Wait::YIELD);
            }
            let next = match (&change.outcome, &change.writes) {
                (Outcome::Next, Some(step)) => step.stage.clone().map(|stage| (stage, step.unchanged)),
                _ => None,
            };
            let Some(((stage, data), unchanged)) = next else {
                self.committer.push(self, change, &job.claim, pool).await;
                return true;
            };
            let (rev, started_at) = (Rev(change.rev.0 + 1), change.started_at);
            match self.committer.commit_step(self, change, &job.claim, pool).await {
                CommitOutcome::Committed => {
                    job.started_at = Some(started_at);
                    job.unchanged_steps = if unchanged { job.unchanged_steps + 1 } else { 0 };
                    job.claimed = Arc::new(job.claimed.after_step(rev, stage, data, unchanged));
                }
                CommitOutcome::Halted => {
                    self.end_cancelled(job.claimed.id).await;
                    return true;
                }
                _ => return true,
            }
        }
    }

    /// Waits until a job may start and no suspect runs alone; `None` if the job must not start in this worker.
    pub(crate) async fn start_shared(&self, job: &Job) -> Option<SharedGuard> {
        loop {
            let guard = self.solo_lock.shared().await;
            match self.may_start(job) {
                Some(true) => return Some(guard),
                Some(false) => return None,
                None => drop(guard),
            }
            self.env.sleep(LEASE_CHECK_INTERVAL).await;
        }
    }

    /// Waits until it is known whether a suspect that holds the solo lock may start.
    pub(crate) async fn wait_may_start(&self, job: &Job) -> bool {
        loop {
            if let Some(may_start) = self.may_start(job) {
                return may_start;
            }
            self.env.sleep(LEASE_CHECK_INTERVAL).await;
        }
    }

    /// Whether a job may start: not if this worker was declared dead since the claim, or is stopping. `None` while the
    /// lease is not known to hold.
    fn may_start(&self, job: &Job) -> Option<bool> {
        if self.worker() != job.claim.worker || self.is_stopping() {
            return Some(false);
        }
        self.lease_holds().then_some(true)
    }
}
