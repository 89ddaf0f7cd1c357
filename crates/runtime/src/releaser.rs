//! Handing claimed jobs back that do not run here.
//!
//! Every claimed job has a [`Claim`], which goes with it from the pool to the committer. Whoever learns that the store has
//! ended the claim (by a committed outcome, a pause, a cancel) ends it here too. A claim that is dropped without that is
//! put on the list of the [`Releaser`], and one task hands back what is on the list until the store has answered. So a
//! worker that goes on working never forgets a job while it keeps the job's claim.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_model::{ClaimNo, ClaimedJob, Epoch, JobClaim, JobId, WorkerId};
use windlass_store::{Error, Store};

use crate::{metrics::Verb, retrying::Backoff, stats::add, worker::Core};

/// The most jobs in one transaction: others wait for it.
const BATCH: usize = 1_000;
/// How long the list may lie there before the renewer's thread takes it on: then all other threads are blocked.
const LATE: Duration = Duration::from_secs(1);

/// One job of a claim, for as long as this worker holds it.
pub(crate) struct Claim {
    job: JobId,
    epoch: Epoch,
    pub(crate) number: ClaimNo,
    /// Who claimed it: a worker that was declared dead goes on under another name.
    pub(crate) worker: WorkerId,
    /// Whether the store has ended it, or it is on the list.
    over: AtomicBool,
    releaser: Arc<Releaser>,
}

impl Claim {
    pub(crate) fn new(core: &Core, claimed: &ClaimedJob, number: ClaimNo, worker: WorkerId) -> Arc<Claim> {
        let (over, releaser) = (AtomicBool::new(false), Arc::clone(&core.releaser));
        Arc::new(Claim { job: claimed.id, epoch: claimed.epoch, number, worker, over, releaser })
    }

    /// Notes that the store has ended it. Answers its number for the ledger, the first time.
    pub(crate) fn end(&self) -> Option<ClaimNo> {
        (!self.over.swap(true, Ordering::AcqRel)).then_some(self.number)
    }

    /// Has it handed back, whoever still holds it here.
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

impl Drop for Claim {
    fn drop(&mut self) {
        self.release();
    }
}

/// What is to be handed back.
#[derive(Default)]
pub(crate) struct Releaser {
    state: Mutex<State>,
    /// Told when there is something to hand back.
    work: Notify,
    /// Told when nothing is.
    emptied: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<JobClaim>,
    /// How many are being handed back.
    sent: usize,
    /// Since when something lies there that nobody has taken on; `None` while somebody is at work.
    unseen: Option<Instant>,
    /// Whether nothing is handed back any more: the worker has stopped.
    closed: bool,
}

impl Releaser {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn push(&self, entry: JobClaim) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        if state.waiting.is_empty() && state.sent == 0 {
            state.unseen = Some(Instant::now());
        }
        state.waiting.push_back(entry);
        drop(state);
        self.work.notify_one();
    }

    fn take(&self, size: usize) -> Option<Vec<JobClaim>> {
        let mut state = self.lock();
        let count = state.waiting.len().min(size);
        let batch: Vec<JobClaim> = state.waiting.drain(..count).collect();
        state.sent += count;
        state.unseen = None;
        (!batch.is_empty()).then_some(batch)
    }

    /// Notes that so many were answered; those that were not go to the end of the list.
    fn answered(&self, count: usize, back: impl Iterator<Item = JobClaim>) {
        let mut state = self.lock();
        state.sent -= count;
        if !state.closed {
            state.waiting.extend(back);
        }
        if !state.waiting.is_empty() {
            // The task comes back to it after a pause at most. Only if it does not, the renewer does: a row that somebody
            // has locked must not hold up the lease.
            state.unseen = Some(Instant::now() + Backoff::LONGEST);
        }
        let empty = state.waiting.is_empty() && state.sent == 0;
        drop(state);
        if empty {
            self.emptied.notify_waiters();
        }
    }

    /// How many jobs are to be handed back.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + state.sent
    }

    /// Whether something lies there and nobody has taken it on.
    pub(crate) fn is_late(&self) -> bool {
        self.lock().unseen.is_some_and(|since| since.elapsed() > LATE)
    }

    /// Returns when all was handed back.
    pub(crate) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            let mut emptied = std::pin::pin!(emptied);
            emptied.as_mut().enable();
            if self.waiting() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Forgets everything: this worker was declared dead, and its claims are void.
    pub(crate) fn forget(&self) {
        self.lock().waiting.clear();
        self.emptied.notify_waiters();
    }

    /// Nothing is handed back any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.forget();
    }
}

/// Runs for as long as the worker does. After a failure half as many are sent, and those that failed last: a job whose row
/// somebody has locked does not keep the others.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new("handing jobs back");
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

/// Hands back one batch; answers how many jobs were in it.
pub(crate) async fn tick(core: &Core, store: &dyn Store, size: usize) -> Result<usize, Error> {
    let Some(batch) = core.releaser.take(size) else { return Ok(0) };
    let count = batch.len();
    let valid = |entry: &JobClaim| entry.worker == core.worker() && !core.is_lost(entry.claim);
    let held: Vec<JobClaim> = batch.iter().filter(|entry| valid(entry)).copied().collect();
    // Those of a worker that was declared dead, or whose claim the store has lost, are void.
    let released = if held.is_empty() { Ok(0) } else { store.release(None, &held).await };
    match released {
        Ok(released) => {
            add(&core.stats.released, released);
            core.ledger.settle(batch.iter().map(|entry| entry.claim));
            core.releaser.answered(count, std::iter::empty());
            Ok(count)
        }
        Err(error) => {
            core.metrics.failed(Verb::Release);
            core.releaser.answered(count, batch.into_iter().filter(valid));
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_model::{ClaimNo, Epoch, JobId, WorkerId};

    use super::*;

    #[test]
    fn what_could_not_be_handed_back_is_late_again() {
        let releaser = Releaser::default();
        let is_seen = |releaser: &Releaser| releaser.lock().unseen.is_none();
        let entry = JobClaim {
            worker: WorkerId(1),
            claim: ClaimNo(1),
            job: JobId::from_bytes([0; 16]),
            epoch: Epoch(0),
        };
        releaser.push(entry);
        assert!(!is_seen(&releaser));
        let batch = releaser.take(10).expect("there is one");
        assert!(is_seen(&releaser), "somebody is at work");
        releaser.answered(batch.len(), batch.into_iter());
        assert!(!is_seen(&releaser), "should nobody come back to it, the renewer does");
        let batch = releaser.take(10).expect("it is there still");
        releaser.answered(batch.len(), std::iter::empty());
        assert!(is_seen(&releaser), "there is nothing left");
    }
}
