//! Commits the steps of an attempt while the attempt continues: those of workflows, branches and blocks.
//!
//! One change of a job is written at a time, and each change follows the revision that the last one made.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, Notify, watch};
use windlass_env::Env;
use windlass_model::{BranchNo, Change, CommitOutcome, Outcome, Rev, StepWrites, Time, WorkerId};
use windlass_store::{Error, Work};

use crate::{Attempt, core::Core, outcome, pool::QueuePool, releaser::ClaimGuard};

/// Commits the steps of one attempt.
pub struct StepWriter {
    core: Arc<Core>,
    pool: Arc<QueuePool>,
    /// Held by the code that runs the attempt. Once it is dropped, nothing is written.
    claim: Weak<ClaimGuard>,
    /// The revision that the next change follows.
    rev: AtomicI32,
    /// The number of items of a block that were committed under this claim.
    items: AtomicU32,
    /// Whether the claim is over: nothing is written any more.
    over: AtomicBool,
    /// Whether it is over because the job was paused or cancelled.
    halted: AtomicBool,
    /// Held during a commit.
    commit_lock: Mutex<()>,
    /// The number of detached commits: they complete also if their caller is dropped.
    detached: watch::Sender<u32>,
    /// The number of branches that were given a number.
    branches: AtomicU32,
    /// Whether the answer to a transaction is outstanding or was lost.
    in_doubt: AtomicBool,
    /// Whether the code waits for a read that the store did not answer when it was last tried.
    unread: AtomicBool,
    /// Notified when the job is to be released.
    release: Notify,
    /// The store's clock less the worker's, in microseconds.
    clock_offset: i64,
    /// When the code that is being polled counts as blocking its thread, in microseconds after `created`; 0 if no code is
    /// being polled.
    poll_deadline: AtomicU64,
    created: Instant,
}

/// Counts one detached commit until it is dropped.
struct DetachedCommit(watch::Sender<u32>);

impl DetachedCommit {
    fn new(count: &watch::Sender<u32>) -> DetachedCommit {
        count.send_modify(|count| *count += 1);
        DetachedCommit(count.clone())
    }
}

impl Drop for DetachedCommit {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl StepWriter {
    pub(crate) fn new(
        core: &Arc<Core>,
        pool: &Arc<QueuePool>,
        claim: &Arc<ClaimGuard>,
        rev: Rev,
        clock_offset: i64,
    ) -> StepWriter {
        StepWriter {
            core: Arc::clone(core),
            pool: Arc::clone(pool),
            claim: Arc::downgrade(claim),
            rev: AtomicI32::new(rev.0),
            items: AtomicU32::new(0),
            over: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            commit_lock: Mutex::new(()),
            detached: watch::channel(0).0,
            branches: AtomicU32::new(0),
            in_doubt: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            release: Notify::new(),
            clock_offset,
            poll_deadline: AtomicU64::new(0),
            created: core.env.instant(),
        }
    }

    /// The revision that the next change follows.
    pub fn rev(&self) -> Rev {
        Rev(self.rev.load(Ordering::Acquire))
    }

    /// A new number for a branch that the job opens. No other branch of the job has it.
    pub fn branch(&self) -> BranchNo {
        let index = self.branches.fetch_add(1, Ordering::Relaxed);
        BranchNo(((i64::from(self.rev().0) + 1) << 16) | i64::from(index & 0xffff))
    }

    /// The queue that the job was claimed from.
    pub fn queue(&self) -> &str {
        &self.pool.queue
    }

    /// The number of items of a block that were committed under this claim.
    pub(crate) fn items(&self) -> u32 {
        self.items.load(Ordering::Acquire)
    }

    /// Commits a step after which the attempt continues. After any outcome but `Committed` the claim is over.
    pub async fn commit(&self, attempt: &Attempt, step: StepWrites) -> CommitOutcome {
        if self.is_in_doubt() {
            match self.settle(attempt).await {
                CommitOutcome::Committed => {}
                outcome => return outcome,
            }
        }
        self.write(attempt, step).await
    }

    /// Like [`StepWriter::commit`], for an attempt whose future may be dropped meanwhile: the step is committed all the same,
    /// and before anything else of the attempt.
    pub async fn commit_detached(attempt: &Arc<Attempt>, step: StepWrites) -> CommitOutcome {
        let owned = Arc::clone(attempt);
        attempt.writer.detach(async move { owned.writer.commit(&owned, step).await }).await
    }

    /// Runs a commit in a task of its own. A caller that commits may have to write the changes of others with its own, so it
    /// must not share its task with user code that blocks.
    async fn detach(&self, commit: impl Future<Output = CommitOutcome> + Send + 'static) -> CommitOutcome {
        let detached = DetachedCommit::new(&self.detached);
        let commit = self.core.runtime.spawn(async move {
            let _detached = detached;
            commit.await
        });
        commit.await.unwrap_or(CommitOutcome::Fenced)
    }

    /// Waits for detached commits. If the claim is over, returns whether that is because the job was paused or cancelled.
    pub(crate) async fn settled(&self) -> Option<bool> {
        let mut detached = self.detached.subscribe();
        let _ = detached.wait_for(|detached| *detached == 0).await;
        self.is_closed().then(|| self.halted.load(Ordering::Acquire))
    }

    /// Whether it is unknown if a transaction was committed, because it was given up before its answer came.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// Settles whether a transaction in doubt was committed, for an attempt whose future may be dropped, or continues with
    /// other code, meanwhile. After `Committed` the journal shows which it was.
    pub async fn settle_detached(attempt: &Arc<Attempt>) -> CommitOutcome {
        let owned = Arc::clone(attempt);
        attempt.writer.detach(async move { owned.writer.settle(&owned).await }).await
    }

    /// Settles whether a transaction in doubt was committed: another change under the same revision is applied only if the
    /// transaction was not, and then the transaction never can be. `Committed` is returned in both cases.
    pub(crate) async fn settle(&self, attempt: &Attempt) -> CommitOutcome {
        let outcome = self.write(attempt, StepWrites::default()).await;
        self.in_doubt.store(false, Ordering::Release);
        outcome
    }

    async fn write(&self, attempt: &Attempt, step: StepWrites) -> CommitOutcome {
        let _guard = self.commit_lock.lock().await;
        let Some(claim) = self.claim.upgrade().filter(|_| !self.is_closed()) else {
            return CommitOutcome::Fenced;
        };
        let promoted = step.promoted.iter().filter_map(|job| Some(job.branch_position.as_ref()?.items));
        let items = step.items + promoted.sum::<u32>();
        let change = outcome::change(attempt, Outcome::Next, Some(step));
        if let Err(invalid) = self.core.store.limits().check_change(&change) {
            return CommitOutcome::Refused(invalid.to_string());
        }
        self.core.committer.wait_for_room().await;
        let outcome = self.core.committer.commit_step(&self.core, change, &claim, &self.pool).await;
        if outcome == CommitOutcome::Committed {
            self.items.fetch_add(items, Ordering::AcqRel);
        }
        self.record(&outcome);
        outcome
    }

    /// Runs writes of the user's own and commits a step with them, in one transaction; see
    /// [`windlass_store::Execution::transact`]. After an error the transaction is in doubt: call [`StepWriter::settle_detached`].
    pub async fn transact(&self, work: Work<'_>) -> Result<Option<CommitOutcome>, Error> {
        if self.is_closed() {
            return Ok(Some(CommitOutcome::Fenced));
        }
        self.in_doubt.store(true, Ordering::Release);
        let outcome = self.core.store.transact(None, work).await?;
        self.in_doubt.store(false, Ordering::Release);
        match &outcome {
            // Rolled back; the claim continues.
            None | Some(CommitOutcome::Refused(_)) => {}
            Some(outcome) => {
                self.record(outcome);
                if *outcome == CommitOutcome::Halted {
                    self.core.ledger.settle(self.claim.upgrade().and_then(|claim| claim.end()).into_iter());
                }
            }
        }
        Ok(outcome)
    }

    /// Moves to the next revision, or ends the claim.
    fn record(&self, outcome: &CommitOutcome) {
        match outcome {
            CommitOutcome::Committed => {
                self.rev.fetch_add(1, Ordering::AcqRel);
            }
            outcome => {
                self.halted.fetch_or(*outcome == CommitOutcome::Halted, Ordering::AcqRel);
                self.over.store(true, Ordering::Release);
            }
        }
    }

    /// Whether the claim is over: nothing is written any more.
    pub fn is_closed(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Sets whether the code waits for a store that cannot be read. If the attempt times out meanwhile, that is not its
    /// fault: the job is released.
    pub fn set_store_unreadable(&self, unread: bool) {
        self.unread.store(unread, Ordering::Release);
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire)
    }

    /// Asks the driver of the code to end it with [`crate::StepResult::ClaimOver`], so that the job is released.
    pub fn request_release(&self) {
        self.release.notify_one();
    }

    /// Returns after [`StepWriter::request_release`] was called.
    pub async fn release_requested(&self) {
        self.release.notified().await;
    }

    /// Ends the claim for an attempt that was given up: whatever it still does, nothing is written.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// The store's clock, as well as it is known here.
    pub fn now(&self) -> Time {
        Time(self.core.env.now().micros() + self.clock_offset)
    }

    /// The clock, the timers and the tasks of the worker.
    pub fn env(&self) -> &Env {
        &self.core.env
    }

    /// A random number from 0 to 1.
    pub fn random(&self) -> f64 {
        self.core.env.random()
    }

    /// Whether the worker is stopping or was declared dead: the attempt should end where it is, and the job continues in
    /// another worker.
    pub fn is_stopping(&self, worker: WorkerId) -> bool {
        self.core.is_stopping() || self.core.worker() != worker
    }

    /// Notes that code is polled from now on that must return within `limit`, or (`None`) that it has returned.
    pub fn set_poll_deadline(&self, limit: Option<Duration>) {
        let deadline = match limit {
            Some(limit) => (self.core.env.since(self.created) + limit).as_micros() as u64 + 1,
            None => 0,
        };
        self.poll_deadline.store(deadline, Ordering::Release);
    }

    /// Whether code that is being polled has not returned in time.
    pub(crate) fn is_stuck(&self) -> bool {
        let deadline = self.poll_deadline.load(Ordering::Acquire);
        deadline != 0 && self.core.env.since(self.created).as_micros() as u64 > deadline
    }

    /// The store's clock less the worker's, in microseconds.
    pub(crate) fn clock_offset(store: Time, worker: Time) -> i64 {
        store.micros() - worker.micros()
    }
}

impl Attempt {
    /// A change that follows what the attempt has committed so far.
    pub fn change(&self, outcome: Outcome, step: Option<StepWrites>) -> Change {
        outcome::change(self, outcome, step)
    }
}
