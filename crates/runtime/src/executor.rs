//! Running one attempt: whatever happens in it becomes an outcome.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::sync::OwnedRwLockReadGuard;
use windlass_model::{Change, ClaimedJob, Failure, Outcome, Retry, Rev, Step, Verdict, Wait};
use windlass_store::Store;

use crate::{
    Attempt, Handler, Running, Started, StepResult, StepWriter,
    metrics::Verb,
    pool::{Job, QueuePool},
    releaser::Claim,
    stats::add,
    step_result::{self, Ended, StepJudge},
    worker::Core,
};

/// After how many steps a machine lets others pass that wait for its slot.
const TURN: u32 = 100;

/// How long after its timeout an attempt that has not ended is taken to block its thread.
const GRACE: Duration = Duration::from_secs(1);

/// How long a job is set down whose attempt could not read from the store: those that can be run get the slot meanwhile, and
/// after an outage the job is not late by much.
const UNREAD: Duration = Duration::from_secs(10);

/// How often it is looked whether the lease is known to hold, by who waits for that.
const LEASE: Duration = Duration::from_millis(50);

/// What a slot is running, for the watchdog on the renewer's thread. Whoever changes the state first, the attempt that
/// ends or the watchdog that gives it up, decides what is committed; there is never a second outcome.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// Nothing.
    #[default]
    Idle,
    /// Nothing, but what follows from this attempt is being committed and may go on.
    Between(Arc<Attempt>),
    Running(Watched),
    /// The watchdog has taken it: whatever the attempt still returns is dropped.
    GivenUp,
}

struct Watched {
    attempt: Arc<Attempt>,
    claim: Arc<Claim>,
    /// How long it may run; `None` for as long as it likes.
    limit: Option<Duration>,
    ends_by: Option<Instant>,
}

/// An attempt that was given up, until what follows from it is committed.
pub(crate) struct GivenUp {
    change: Change,
    claim: Arc<Claim>,
    pool: Arc<QueuePool>,
}

impl Core {
    /// A slot's life: one job after the other, until none waits.
    pub(crate) async fn slot(self: Arc<Core>, pool: Arc<QueuePool>) {
        let watch = Arc::new(Watch::default());
        pool.watch(Arc::clone(&watch));
        let mut finished = false;
        while let Some(job) = pool.next(finished) {
            finished = self.job(job, &pool, &watch).await;
            watch.clear();
        }
        pool.unwatch(&watch);
    }

    /// Runs a job until it has ended, waits, or lets others pass: an attempt, and as many steps as follow from it. `false`
    /// if it did not start.
    async fn job(self: &Arc<Core>, mut job: Job, pool: &Arc<QueuePool>, watch: &Watch) -> bool {
        let mut steps = 0;
        loop {
            self.committer.room().await;
            let Some(seat) = self.seat(&job).await else { return steps > 0 };
            steps += 1;
            // A panic that is not caught within (in a destructor of a future that is given up) must not end the slot.
            let attempt = AssertUnwindSafe(self.attempt(&job, pool, watch)).catch_unwind().await;
            drop(seat);
            let change = match attempt {
                Ok(change) => change,
                Err(panic) => self.after_panic(watch, &*panic),
            };
            // Given up: whatever of the claim is left is handed back with the job.
            let Some(mut change) = change else { return true };
            if change.outcome == Outcome::Next && steps >= TURN && pool.is_wanted() {
                change.outcome = Outcome::Wait(Wait::YIELD);
            }
            let next = match (&change.outcome, &change.step) {
                (Outcome::Next, Some(step)) => step.stage.clone().map(|stage| (stage, step.unchanged)),
                _ => None,
            };
            let Some(((stage, data), unchanged)) = next else {
                self.committer.push(self, change, &job.claim, pool).await;
                return true;
            };
            let rev = Rev(change.rev.0 + 1);
            match self.committer.commit_step(self, change, &job.claim, pool).await {
                Verdict::Committed => {
                    job.steps_before_yield = if unchanged { job.steps_before_yield + 1 } else { 0 };
                    job.claimed = Arc::new(job.claimed.after_step(rev, stage, data, unchanged));
                }
                Verdict::Halted => {
                    self.end_cancelled(job.claimed.id).await;
                    return true;
                }
                _ => return true,
            }
        }
    }

    /// Waits for a seat in company and until the job may start; `None` if it may not, and is not run here.
    pub(crate) async fn seat(&self, job: &Job) -> Option<OwnedRwLockReadGuard<()>> {
        loop {
            let seat = self.solo_lock.shared().await;
            match self.permits(job) {
                Some(true) => return Some(seat),
                Some(false) => return None,
                None => drop(seat),
            }
            tokio::time::sleep(LEASE).await;
        }
    }

    /// Waits until it is known whether a job may start that has its seat.
    pub(crate) async fn may_start(&self, job: &Job) -> bool {
        loop {
            if let Some(may) = self.permits(job) {
                return may;
            }
            tokio::time::sleep(LEASE).await;
        }
    }

    /// Whether a job may start: not if its worker was declared dead since it was claimed, or is stopping. `None` while the
    /// lease is not known to hold.
    fn permits(&self, job: &Job) -> Option<bool> {
        if self.worker() != job.claim.worker || self.is_stopping() {
            return Some(false);
        }
        self.lease_holds().then_some(true)
    }

    /// Runs one attempt to its end. `None` if it was given up.
    pub(crate) async fn run(
        self: &Arc<Core>,
        job: &Job,
        pool: &Arc<QueuePool>,
        watch: &Watch,
    ) -> Option<Change> {
        let Some(handler) = self.registry.get(&job.claimed.kind) else {
            unreachable!("only kinds that are served are claimed");
        };
        let attempt = Arc::new(Attempt {
            job: Arc::clone(&job.claimed),
            worker: job.claim.worker,
            started_at: self.config.env.now(),
            writer: Arc::new(StepWriter::new(self, pool, &job.claim, job.claimed.rev, job.offset)),
            cancelled: self.cancelled(),
            cancel: Arc::clone(&job.cancel),
        });
        if let Some(wait) = step_result::unmet(&attempt, job.now) {
            return Some(step_result::change(&attempt, Outcome::Wait(wait), Some(Step::default())));
        }
        let Started { running, timeout, stage, times_all_steps: whole } = start(&**handler, &attempt);
        let limit = job.claimed.settings.timeout.filter(|_| !whole).or(timeout);
        let left = job.expires.filter(|_| !whole).map(|at| at.saturating_duration_since(Instant::now()));
        // Whichever comes first ends the attempt: its time limit, or the job's deadline.
        let expiring = left.is_some_and(|left| limit.is_none_or(|limit| left <= limit));
        let limit = if expiring { left } else { limit };
        if expiring && limit.is_some_and(|left| left.is_zero()) {
            return Some(step_result::change(&attempt, step_result::expired(&attempt), None));
        }
        add(&self.stats.started, 1);
        let first = self.perform(&attempt, &job.claim, watch, limit, running, whole).await?;
        if let Some(halted) = attempt.writer.settled().await {
            if halted {
                self.end_cancelled(job.claimed.id).await;
            }
            return None;
        }
        if whole
            && attempt.writer.is_in_doubt()
            && attempt.writer.settle(&attempt).await != Verdict::Committed
        {
            return None;
        }
        if whole && attempt.cancel.is_requested() && !matches!(first, Ended::Turn(_)) {
            // Whatever went wrong: the store ends it, and has it unwound first if there is something to undo.
            if attempt.writer.commit(&attempt, Step::default()).await == Verdict::Halted {
                self.end_cancelled(job.claimed.id).await;
            }
            return None;
        }
        let unread = |ended: &Ended| match ended {
            Ended::Turn(StepResult::Over) => attempt.writer.is_unread(),
            Ended::Timeout => attempt.writer.is_unread() && !expiring,
            _ => false,
        };
        match first {
            first if unread(&first) => return self.record_end(&attempt, &job.claim),
            Ended::Turn(StepResult::Over) => return None,
            Ended::Turn(StepResult::Halted) => {
                self.end_cancelled(job.claimed.id).await;
                return None;
            }
            _ => {}
        }
        let standing = job.steps_before_yield;
        let judge = StepJudge {
            core: self,
            handler: &**handler,
            attempt: &attempt,
            stage,
            standing,
            expiring,
            limit,
        };
        let failure = match judge.after(first) {
            Ok(change) => return Some(change),
            Err(failure) => failure,
        };
        // The code may know what to do about it; what it does is an attempt like the first.
        let rescue =
            std::panic::catch_unwind(AssertUnwindSafe(|| handler.rescue(Arc::clone(&attempt), &failure)));
        Some(match rescue {
            Ok(None) => judge.by_policy(failure),
            Ok(Some(running)) => {
                let second = self.perform(&attempt, &job.claim, watch, limit, running, whole).await?;
                if let Some(halted) = attempt.writer.settled().await {
                    if halted {
                        self.end_cancelled(job.claimed.id).await;
                    }
                    return None;
                }
                match second {
                    second if unread(&second) => return self.record_end(&attempt, &job.claim),
                    Ended::Turn(StepResult::Over) => return None,
                    second => judge.after_rescue(failure, second),
                }
            }
            Err(panic) => judge.after_rescue(failure, Ended::Panic(panic_text(&*panic))),
        })
    }

    /// Nothing follows from an attempt that could not read from the store: its job is handed back after a while. Until then it
    /// stays claimed, without a slot, so that others pass.
    fn record_end(self: &Arc<Core>, attempt: &Attempt, claim: &Arc<Claim>) -> Option<Change> {
        attempt.writer.close();
        let (core, claim) = (Arc::clone(self), Arc::clone(claim));
        self.runtime.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(UNREAD) => {}
                () = core.stopping() => {}
            }
            drop(claim);
        });
        None
    }

    /// Runs a future within its limit, until it has ended, is told to, or is given up (`None`).
    async fn perform(
        &self,
        attempt: &Arc<Attempt>,
        claim: &Arc<Claim>,
        watch: &Watch,
        limit: Option<Duration>,
        running: Running,
        whole: bool,
    ) -> Option<Ended> {
        let mut aborted = self.aborted();
        if self.is_given_up(claim) {
            return None;
        }
        watch.set(attempt, claim, limit);
        self.cancellations.apply_to(attempt);
        // The future is also dropped in there, so a destructor that panics is caught like the rest.
        let run = within(limit, running);
        let ended = tokio::select! {
            biased;
            ended = AssertUnwindSafe(run).catch_unwind() => Some(ended),
            () = aborted.of(claim) => None,
            // Ended from outside: what it would have returned is not waited for.
            () = attempt.cancel.deadline_passed(), if !whole => Some(Ok(Ok(Err(Failure::stop("it did not end when it was told to"))))),
        };
        if !watch.ended() {
            self.stats.lost_slots.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(match ended? {
            Ok(Ok(Ok(turn))) => Ended::Turn(turn),
            Ok(Ok(Err(failure))) => Ended::Failure(failure),
            Ok(Err(())) => Ended::Timeout,
            Err(panic) => Ended::Panic(panic_text(&*panic)),
        })
    }

    /// What follows from an attempt that panicked where its code is not expected to: in a destructor, or in its retry
    /// policy. `None` if the watchdog has given it up, or the worker does not want it any more.
    pub(crate) fn after_panic(&self, watch: &Watch, panic: &(dyn std::any::Any + Send)) -> Option<Change> {
        let attempt = watch.attempt();
        if !watch.ended() {
            self.stats.lost_slots.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let attempt = attempt.filter(|attempt| !attempt.writer.is_stopping(attempt.worker))?;
        let failure = step_result::panicked(&panic_text(panic));
        let outcome = match attempt.cancel.actor() {
            Some(by) => Outcome::Cancelled(by.failure()),
            None => self.decide(&attempt.job, &Retry::default(), failure),
        };
        Some(step_result::change(&attempt, outcome, None))
    }

    /// What follows from a failed attempt.
    pub(crate) fn decide(&self, job: &ClaimedJob, retry: &Retry, failure: Failure) -> Outcome {
        let retry = job.settings.retry.as_ref().unwrap_or(retry);
        retry.outcome(failure, &job.retry_counts, self.config.env.random())
    }

    /// The attempts that run here.
    pub(crate) fn attempts(&self) -> Vec<Arc<Attempt>> {
        self.pools.iter().flat_map(|pool| pool.watches()).filter_map(|watch| watch.attempt()).collect()
    }

    /// Gives up attempts that block their thread past their timeout: what follows is committed from here, their own
    /// outcome is dropped, and their slot is counted lost until they return. `pending` holds those whose commit the
    /// store has not answered yet.
    pub(crate) async fn give_up_blocked(&self, store: &dyn Store, pending: &mut Vec<GivenUp>) {
        let all =
            self.pools.iter().flat_map(|pool| pool.watches().into_iter().map(move |watch| (pool, watch)));
        for (pool, watch) in all {
            let Some(Watched { attempt, claim, limit, .. }) = watch.give_up() else { continue };
            attempt.writer.close();
            let job = &attempt.job;
            add(&self.stats.lost_slots, 1);
            tracing::error!(job = %job.id, kind = job.kind.kind, "an attempt blocks its thread past its timeout");
            let retry =
                self.registry.get(&job.kind).map(|handler| handler.retry(&attempt)).unwrap_or_default();
            let failure = match attempt.writer.is_stuck() {
                true => step_result::stuck(),
                false => step_result::timed_out(limit),
            };
            let message =
                format!("{}; it blocks its thread, so its slot is lost until it returns", failure.message);
            let failure = Failure { message, ..failure };
            let change = step_result::change(&attempt, self.decide(job, &retry, failure), None);
            pending.push(GivenUp { change, claim, pool: Arc::clone(pool) });
        }
        if pending.is_empty() {
            return;
        }
        let changes: Vec<Change> = pending.iter().map(|given_up| given_up.change.clone()).collect();
        match store.commit(None, &changes).await {
            Ok(verdicts) => {
                for (GivenUp { change, claim, pool }, verdict) in pending.drain(..).zip(verdicts) {
                    match verdict {
                        Verdict::Committed | Verdict::Halted => self.ledger.settle(claim.end().into_iter()),
                        // If it was a transaction of the attempt that took its revision, the claim is still there.
                        Verdict::Fenced | Verdict::Refused(_) => claim.release(),
                    }
                    if verdict == Verdict::Committed {
                        add(&self.stats.committed, 1);
                        self.committed(change, &pool);
                    }
                }
            }
            Err(error) => {
                self.metrics.failed(Verb::Commit);
                tracing::warn!(%error, "what follows from a blocked attempt could not be committed yet")
            }
        }
    }
}

impl Watch {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn set(&self, attempt: &Arc<Attempt>, claim: &Arc<Claim>, limit: Option<Duration>) {
        let ends_by = limit.and_then(|limit| Instant::now().checked_add(limit.saturating_add(GRACE)));
        let (attempt, claim) = (Arc::clone(attempt), Arc::clone(claim));
        *self.lock() = State::Running(Watched { attempt, claim, limit, ends_by });
    }

    fn attempt(&self) -> Option<Arc<Attempt>> {
        match &*self.lock() {
            State::Running(Watched { attempt, .. }) | State::Between(attempt) => Some(Arc::clone(attempt)),
            _ => None,
        }
    }

    /// Notes that the attempt has ended; `false` if it was given up before.
    fn ended(&self) -> bool {
        let mut state = self.lock();
        match std::mem::take(&mut *state) {
            State::GivenUp => false,
            State::Running(watched) => {
                *state = State::Between(watched.attempt);
                true
            }
            State::Idle | State::Between(_) => true,
        }
    }

    /// Nothing is run here any more.
    fn clear(&self) {
        *self.lock() = State::Idle;
    }

    /// Whether the attempt was given up and has not returned.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(*self.lock(), State::GivenUp)
    }

    /// Takes the attempt, if it should have ended.
    fn give_up(&self) -> Option<Watched> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::GivenUp) {
            State::Running(watched)
                if watched.attempt.writer.is_stuck()
                    || watched.ends_by.is_some_and(|at| at < Instant::now()) =>
            {
                Some(watched)
            }
            other => {
                *state = other;
                None
            }
        }
    }
}

async fn within<F: Future>(limit: Option<Duration>, work: F) -> Result<F::Output, ()> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.map_err(|_| ()),
        None => Ok(work.await),
    }
}

/// Starts an attempt. A panic in there is like one in the attempt itself.
fn start(handler: &dyn Handler, attempt: &Arc<Attempt>) -> Started {
    let started = std::panic::catch_unwind(AssertUnwindSafe(|| handler.start(Arc::clone(attempt))));
    started.unwrap_or_else(|panic| {
        let failure = step_result::panicked(&panic_text(&*panic));
        let running = Box::pin(std::future::ready(Err(failure)));
        Started { running, timeout: None, stage: attempt.job.stage.clone(), times_all_steps: false }
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
