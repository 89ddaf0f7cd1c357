//! What an attempt writes with while it goes on: the steps of a workflow.
//!
//! One change of a job is under way at a time: whoever holds the pen writes, and each change follows the revision that the
//! last one made.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, Notify, watch};
use windlass_model::{BranchNo, Change, Outcome, Rev, Step, Time, Verdict, WorkerId};
use windlass_store::{Error, Work};

use crate::{Attempt, pool::QueuePool, releaser::Claim, worker::Core};

/// What an attempt writes with while it goes on.
pub struct StepWriter {
    core: Arc<Core>,
    pool: Arc<QueuePool>,
    /// Whoever runs the attempt holds it; once nobody does, nothing is written.
    claim: Weak<Claim>,
    rev: AtomicI32,
    /// How many items of a block were accounted for under this claim.
    items: AtomicU32,
    /// Whether the claim is over: nothing is written any more.
    over: AtomicBool,
    /// Whether it is over because the job was paused, or told to end.
    halted: AtomicBool,
    /// Held while something is committed: each change follows the one before.
    turn: Mutex<()>,
    /// How many steps are being committed that are committed whatever becomes of who asked for it.
    writing: watch::Sender<u32>,
    /// How many branches were given a number.
    branches: AtomicU32,
    /// Whether the answer to a transaction has not come.
    doubt: AtomicBool,
    /// Whether the code waits for something that the store could not be asked when it was last tried.
    unread: AtomicBool,
    /// Told when the job is to be handed back.
    back: Notify,
    /// The store's clock, less the worker's.
    offset: i64,
    /// When code that is being polled is taken to block its thread, in microseconds after `since`; 0 if none is.
    pulse: AtomicU64,
    since: Instant,
}

/// Something that is committed whatever becomes of who asked for it.
struct Writing(watch::Sender<u32>);

impl Writing {
    fn of(count: &watch::Sender<u32>) -> Writing {
        count.send_modify(|count| *count += 1);
        Writing(count.clone())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl StepWriter {
    pub(crate) fn new(
        core: &Arc<Core>,
        pool: &Arc<QueuePool>,
        claim: &Arc<Claim>,
        rev: Rev,
        offset: i64,
    ) -> StepWriter {
        StepWriter {
            core: Arc::clone(core),
            pool: Arc::clone(pool),
            claim: Arc::downgrade(claim),
            rev: AtomicI32::new(rev.0),
            items: AtomicU32::new(0),
            over: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            turn: Mutex::new(()),
            writing: watch::channel(0).0,
            branches: AtomicU32::new(0),
            doubt: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            back: Notify::new(),
            offset,
            pulse: AtomicU64::new(0),
            since: Instant::now(),
        }
    }

    /// The revision that the next change follows.
    pub fn rev(&self) -> Rev {
        Rev(self.rev.load(Ordering::Acquire))
    }

    /// A number for a branch that the job opens: no other of its branches has it.
    pub fn branch(&self) -> BranchNo {
        let place = self.branches.fetch_add(1, Ordering::Relaxed);
        BranchNo(((i64::from(self.rev().0) + 1) << 16) | i64::from(place & 0xffff))
    }

    /// The queue that the job was claimed from.
    pub fn queue(&self) -> &str {
        &self.pool.queue
    }

    /// How many items of a block were accounted for under this claim.
    pub(crate) fn items(&self) -> u32 {
        self.items.load(Ordering::Acquire)
    }

    /// Commits a step after which the attempt goes on. After anything but `Committed` the claim is over.
    pub async fn commit(&self, attempt: &Attempt, step: Step) -> Verdict {
        if self.is_in_doubt() {
            match self.settle(attempt).await {
                Verdict::Committed => {}
                verdict => return verdict,
            }
        }
        self.write(attempt, step).await
    }

    /// The same for an attempt that may be cut off in the middle: the step is committed all the same, and nothing else of the
    /// attempt before it.
    pub async fn commit_through(attempt: &Arc<Attempt>, step: Step) -> Verdict {
        let writer = Arc::clone(attempt);
        attempt.writer.through(async move { writer.writer.commit(&writer, step).await }).await
    }

    /// Writes in a task of its own: whoever brings a change may have to commit those of others with it, and must not share its
    /// task with code that blocks.
    async fn through(&self, write: impl Future<Output = Verdict> + Send + 'static) -> Verdict {
        let writing = Writing::of(&self.writing);
        let write = self.core.runtime.spawn(async move {
            let _writing = writing;
            write.await
        });
        write.await.unwrap_or(Verdict::Fenced)
    }

    /// Returns when nothing is being committed any more. Whether the claim is over by that, and if so whether the job was
    /// paused or told to end.
    pub(crate) async fn settled(&self) -> Option<bool> {
        let mut writing = self.writing.subscribe();
        let _ = writing.wait_for(|writing| *writing == 0).await;
        self.is_over().then(|| self.halted.load(Ordering::Acquire))
    }

    /// Whether nobody knows if a transaction was committed: it was given up before its answer came.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.load(Ordering::Acquire)
    }

    /// Settles whether it was, for an attempt that may be cut off in the middle or goes on with other code meanwhile; see
    /// `settle`.
    pub async fn settle_through(attempt: &Arc<Attempt>) -> Verdict {
        let writer = Arc::clone(attempt);
        attempt.writer.through(async move { writer.writer.settle(&writer).await }).await
    }

    /// Settles whether it was: another change under the same revision is applied only if the transaction was not, which can
    /// then never be.
    pub(crate) async fn settle(&self, attempt: &Attempt) -> Verdict {
        let verdict = self.write(attempt, Step::default()).await;
        self.doubt.store(false, Ordering::Release);
        verdict
    }

    async fn write(&self, attempt: &Attempt, step: Step) -> Verdict {
        let _turn = self.turn.lock().await;
        let Some(claim) = self.claim.upgrade().filter(|_| !self.is_over()) else { return Verdict::Fenced };
        let promoted = step.promoted.iter().filter_map(|job| Some(job.branch_position.as_ref()?.items));
        let items = step.items + promoted.sum::<u32>();
        let change = crate::step_result::change(attempt, Outcome::Next, Some(step));
        if let Err(invalid) = self.core.store.limits().check_change(&change) {
            return Verdict::Refused(invalid.to_string());
        }
        self.core.committer.room().await;
        let verdict = self.core.committer.commit_step(&self.core, change, &claim, &self.pool).await;
        if verdict == Verdict::Committed {
            self.items.fetch_add(items, Ordering::AcqRel);
        }
        self.note(&verdict);
        verdict
    }

    /// Runs writes of the user's own and commits a step with them; see [`windlass_store::Store::transact`]. The error is
    /// to be settled by [`StepWriter::settle_through`].
    pub async fn transact(&self, work: Work<'_>) -> Result<Option<Verdict>, Error> {
        if self.is_over() {
            return Ok(Some(Verdict::Fenced));
        }
        self.doubt.store(true, Ordering::Release);
        let verdict = self.core.store.transact(None, work).await?;
        self.doubt.store(false, Ordering::Release);
        match &verdict {
            // Rolled back, and the claim is as it was.
            None | Some(Verdict::Refused(_)) => {}
            Some(verdict) => {
                self.note(verdict);
                if *verdict == Verdict::Halted {
                    self.core.ledger.settle(self.claim.upgrade().and_then(|claim| claim.end()).into_iter());
                }
            }
        }
        Ok(verdict)
    }

    fn note(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Committed => self.rev.fetch_add(1, Ordering::AcqRel),
            verdict => {
                self.halted.fetch_or(*verdict == Verdict::Halted, Ordering::AcqRel);
                self.over.swap(true, Ordering::AcqRel).into()
            }
        };
    }

    /// Whether the claim is over: nothing is written any more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Says whether the code waits for a store that cannot be read. If its time is over meanwhile that is not its fault, and
    /// the job is handed back.
    pub fn set_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Release);
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire)
    }

    /// Asks whoever runs the code to end it with [`crate::StepResult::Over`].
    pub fn give_back(&self) {
        self.back.notify_one();
    }

    /// Returns when somebody has asked for that.
    pub async fn given_back(&self) {
        self.back.notified().await;
    }

    /// The attempt was given up: whatever it still does, nothing is written.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// The store's clock, as well as it is known here.
    pub fn now(&self) -> Time {
        Time(self.core.config.env.now().micros() + self.offset)
    }

    /// A number from 0 to 1.
    pub fn random(&self) -> f64 {
        self.core.config.env.random()
    }

    /// Whether the worker is stopping, or was declared dead: the attempt should end where it is, and the job goes on
    /// elsewhere.
    pub fn is_stopping(&self, worker: WorkerId) -> bool {
        self.core.is_stopping() || self.core.worker() != worker
    }

    /// Says that code is polled from now on that must give its thread back in time, or (`None`) that it has.
    pub fn pulse(&self, limit: Option<Duration>) {
        let deadline = match limit {
            Some(limit) => (self.since.elapsed() + limit).as_micros() as u64 + 1,
            None => 0,
        };
        self.pulse.store(deadline, Ordering::Release);
    }

    /// Whether code holds its thread for too long.
    pub(crate) fn is_stuck(&self) -> bool {
        let deadline = self.pulse.load(Ordering::Acquire);
        deadline != 0 && self.since.elapsed().as_micros() as u64 > deadline
    }

    /// The store's clock at a claim, less the worker's.
    pub(crate) fn offset(store: Time, worker: Time) -> i64 {
        store.micros() - worker.micros()
    }
}

impl Attempt {
    /// A change that follows what was committed so far.
    pub fn change(&self, outcome: Outcome, step: Option<Step>) -> Change {
        crate::step_result::change(self, outcome, step)
    }
}
