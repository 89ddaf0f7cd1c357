//! Running one attempt: whatever happens in it becomes an outcome.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::sync::OwnedRwLockReadGuard;
use windlass_model::{
    Change, ClaimNo, Claimed, Failure, Outcome, Payload, Reason, Verdict, failure::class, retry::Decision,
};
use windlass_store::Store;

use crate::{
    Attempt, Policy,
    metrics::Verb,
    pool::{Job, QueuePool},
    stats::add,
    worker::Core,
};

/// How long after its timeout an attempt that has not ended is taken to block its thread.
const GRACE: Duration = Duration::from_secs(1);

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
    Running(Watched),
    /// The watchdog has taken it: whatever the attempt still returns is dropped.
    GivenUp,
}

struct Watched {
    attempt: Arc<Attempt>,
    number: ClaimNo,
    /// `None` for as long as it likes.
    ends_by: Option<Instant>,
}

/// An attempt that was given up, until what follows from it is committed.
pub(crate) struct GivenUp {
    change: Change,
    number: ClaimNo,
    pool: Arc<QueuePool>,
}

impl Core {
    /// A slot's life: one job after the other, until none waits.
    pub(crate) async fn slot(self: Arc<Core>, pool: Arc<QueuePool>) {
        let watch = Arc::new(Watch::default());
        pool.watch(Arc::clone(&watch));
        let mut finished = false;
        while let Some(job) = pool.next(finished) {
            self.committer.room().await;
            let number = job.number;
            let seat = self.seat(&job).await;
            finished = seat.is_some();
            let Some(seat) = seat else { continue };
            // A panic that is not caught within (in a destructor of a future that is given up) must not end the slot.
            let attempt = AssertUnwindSafe(self.attempt(job, &pool, &watch)).catch_unwind().await;
            drop(seat);
            if let Ok(Some(change)) = attempt {
                self.committer.push(&self, change, number, &pool).await;
            }
        }
        pool.unwatch(&watch);
    }

    /// Waits for a seat in company and until the lease is known to hold; `None` if the job's worker was declared dead
    /// meanwhile, or is stopping: then the job is in its claims still, and is handed back with them.
    async fn seat(&self, job: &Job) -> Option<OwnedRwLockReadGuard<()>> {
        loop {
            let seat = self.company.join().await;
            if self.worker() != job.worker || self.is_stopping() {
                return None;
            }
            if self.lease_holds() {
                return Some(seat);
            }
            drop(seat);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs one attempt to its end. `None` if it was given up.
    pub(crate) async fn run(&self, job: Job, watch: &Watch) -> Option<Change> {
        let Some(handler) = self.registry.get(&job.claimed.kind) else {
            unreachable!("only kinds that are served are claimed");
        };
        let mut aborted = self.aborted();
        let (number, started_at) = (job.number, self.config.env.now());
        let limit = job.claimed.settings.timeout.or(handler.policy().timeout);
        let left = job.expires.map(|at| at.saturating_duration_since(Instant::now()));
        // Whichever comes first ends the attempt: its time limit, or the job's deadline.
        let expiring = left.is_some_and(|left| limit.is_none_or(|limit| left <= limit));
        let limit = if expiring { left } else { limit };
        let (cancelled, told) = (self.cancelled(), Arc::default());
        let attempt = Arc::new(Attempt { job: job.claimed, worker: job.worker, started_at, cancelled, told });
        if expiring && limit.is_some_and(|left| left.is_zero()) {
            return Some(change(&attempt, expired(&attempt)));
        }
        add(&self.stats.started, 1);
        watch.set(&attempt, number, limit);
        // The future is also dropped in there, so a destructor that panics is caught like the rest.
        let run = within(limit, async { handler.run(Arc::clone(&attempt)).await });
        let ended = tokio::select! {
            biased;
            ended = AssertUnwindSafe(run).catch_unwind() => Some(ended),
            _ = aborted.changed() => None,
            // Ended from outside: what it would have returned is not waited for.
            () = attempt.told.over() => Some(Ok(Ok(Err(Failure::stop("it did not end when it was told to"))))),
        };
        if !watch.ended() {
            self.stats.lost_slots.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let outcome = match ended? {
            Ok(Ok(Ok(output))) => self.done(output),
            Ok(Ok(Err(failure))) => Err(failure),
            Ok(Err(())) if expiring => Ok(expired(&attempt)),
            Ok(Err(())) => Err(timed_out(limit)),
            Err(panic) => Err(Failure::retry(panic_text(&*panic)).class(class::PANIC)),
        };
        let outcome = outcome.unwrap_or_else(|failure| match attempt.told.by() {
            // Whatever it says: it is not tried again.
            Some(by) => Outcome::Cancelled(by.failure()),
            None => self.decide(&attempt.job, handler.policy(), failure),
        });
        Some(change(&attempt, outcome))
    }

    fn done(&self, output: Payload) -> Result<Outcome, Failure> {
        match self.store.limits().check_payload("output", &output.bytes) {
            Ok(()) => Ok(Outcome::Done(output)),
            Err(invalid) => Err(Failure::stop(invalid).class(class::REFUSED)),
        }
    }

    /// What follows from a failed attempt.
    fn decide(&self, job: &Claimed, policy: &Policy, failure: Failure) -> Outcome {
        match &*failure.class {
            class::UNDECODABLE => return Outcome::Failed { reason: Reason::Undecodable, failure },
            class::REFUSED => return Outcome::Failed { reason: Reason::Refused, failure },
            _ => {}
        }
        let retry = job.settings.retry.as_ref().unwrap_or(&policy.retry);
        match retry.decide(&failure, &job.spent, self.config.env.chance()) {
            Decision::Again { after, spent } => Outcome::Retry { after, spent, failure },
            Decision::Fail(reason) => Outcome::Failed { reason, failure },
            Decision::Cancel => Outcome::Cancelled(failure),
        }
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
            let Some(Watched { attempt, number, .. }) = watch.give_up() else { continue };
            let job = &attempt.job;
            add(&self.stats.lost_slots, 1);
            tracing::error!(job = %job.id, kind = job.kind.kind, "an attempt blocks its thread past its timeout");
            let policy = self.registry.get(&job.kind).map(|h| h.policy().clone()).unwrap_or_default();
            let mut failure = timed_out(job.settings.timeout.or(policy.timeout));
            failure.message += "; it blocks its thread, so its slot is lost until it returns";
            let change = change(&attempt, self.decide(job, &policy, failure));
            pending.push(GivenUp { change, number, pool: Arc::clone(pool) });
        }
        if pending.is_empty() {
            return;
        }
        let changes: Vec<Change> = pending.iter().map(|given_up| given_up.change.clone()).collect();
        match store.commit(None, &changes).await {
            Ok(verdicts) => {
                for (GivenUp { change, number, pool }, verdict) in pending.drain(..).zip(verdicts) {
                    self.ledger.settle([number].into_iter());
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

    fn set(&self, attempt: &Arc<Attempt>, number: ClaimNo, limit: Option<Duration>) {
        let ends_by = limit.and_then(|limit| Instant::now().checked_add(limit.saturating_add(GRACE)));
        *self.lock() = State::Running(Watched { attempt: Arc::clone(attempt), number, ends_by });
    }

    fn attempt(&self) -> Option<Arc<Attempt>> {
        match &*self.lock() {
            State::Running(watched) => Some(Arc::clone(&watched.attempt)),
            _ => None,
        }
    }

    /// Notes that the attempt has ended; `false` if it was given up before.
    fn ended(&self) -> bool {
        !matches!(std::mem::take(&mut *self.lock()), State::GivenUp)
    }

    /// Whether the attempt was given up and has not returned.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(*self.lock(), State::GivenUp)
    }

    /// Takes the attempt, if it should have ended.
    fn give_up(&self) -> Option<Watched> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::GivenUp) {
            State::Running(watched) if watched.ends_by.is_some_and(|at| at < Instant::now()) => Some(watched),
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

/// What follows when the deadline passes under an attempt.
fn expired(attempt: &Attempt) -> Outcome {
    let at = attempt.job.deadline_at.unwrap_or_default();
    let text = format!("the deadline {at} passed before the job had ended");
    Outcome::Failed { reason: Reason::Expired, failure: Failure::stop(text).class(class::EXPIRED) }
}

fn change(attempt: &Attempt, outcome: Outcome) -> Change {
    let job = &attempt.job;
    let (worker, started_at) = (attempt.worker, attempt.started_at);
    let (deadline_at, tied) = (job.deadline_at, job.settings.ties());
    Change { job: job.id, epoch: job.epoch, rev: job.rev, worker, started_at, deadline_at, tied, outcome }
}

fn timed_out(limit: Option<Duration>) -> Failure {
    Failure::retry(format!("the attempt ran longer than {:?}", limit.unwrap_or_default()))
        .class(class::TIMEOUT)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
