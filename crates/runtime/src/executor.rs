//! Running one attempt: whatever happens in it becomes an outcome.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use windlass_model::{
    Change, ClaimNo, Claimed, Failure, Outcome, Payload, Reason, Time, failure::class, retry::Decision,
};

use crate::{
    Attempt, Policy,
    pool::{Job, QueuePool},
    stats::add,
    worker::Core,
};

/// How long after its timeout an attempt that has not ended is taken to block its thread.
const GRACE: Duration = Duration::from_secs(1);

/// What a slot is running, for the watchdog on the renewer's thread.
#[derive(Default)]
pub(crate) struct Watch {
    running: Mutex<Option<Watched>>,
    /// Set by the watchdog: the attempt was given up, whatever it still returns.
    given_up: AtomicBool,
}

#[derive(Clone)]
struct Watched {
    attempt: Arc<Attempt>,
    number: ClaimNo,
    ends_by: Instant,
}

impl Core {
    /// A slot's life: one job after the other, until none waits.
    pub(crate) async fn slot(self: Arc<Core>, pool: Arc<QueuePool>) {
        let watch = Arc::new(Watch::default());
        pool.watch(Arc::clone(&watch));
        let mut finished = false;
        while let Some(job) = pool.next(finished) {
            self.committer.room().await;
            if !self.may_start(&job).await {
                finished = false;
                continue;
            }
            let seat = self.company.join().await;
            let number = job.number;
            let change = self.attempt(job, &watch).await;
            drop(seat);
            finished = true;
            if let Some(change) = change {
                self.committer.push(&self, change, number, &pool).await;
            }
            if watch.given_up.load(Ordering::Relaxed) {
                // The slot was counted lost; it is back.
                watch.given_up.store(false, Ordering::Relaxed);
                self.stats.lost_slots.fetch_sub(1, Ordering::Relaxed);
            }
        }
        pool.unwatch(&watch);
    }

    /// Waits until the lease is known to hold; `false` if the job's worker was declared dead meanwhile.
    async fn may_start(&self, job: &Job) -> bool {
        loop {
            if self.worker() != job.worker {
                return false;
            }
            if self.lease_holds() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs one attempt to its end. `None` if it was given up: then the job is, or will be, someone else's.
    pub(crate) async fn attempt(&self, job: Job, watch: &Watch) -> Option<Change> {
        let Some(handler) = self.registry.get(&job.claimed.kind) else {
            unreachable!("only kinds that are served are claimed");
        };
        add(&self.stats.started, 1);
        let (number, started_at) = (job.number, self.config.env.now());
        let limit = time_limit(&job.claimed, handler.policy(), started_at);
        let cancelled = self.cancelled();
        let attempt = Arc::new(Attempt { job: job.claimed, worker: job.worker, started_at, cancelled });
        watch.set(&attempt, number, limit);
        let run = AssertUnwindSafe(async { handler.run(Arc::clone(&attempt)).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = within(limit, run) => Some(ended),
            () = self.aborted() => None,
        };
        watch.clear();
        if watch.given_up.load(Ordering::Relaxed) {
            return None;
        }
        let outcome = match ended? {
            Ok(Ok(Ok(output))) => self.done(output),
            Ok(Ok(Err(failure))) => Err(failure),
            Ok(Err(panic)) => Err(Failure::retry(panic_text(&*panic)).class(class::PANIC)),
            Err(_) => Err(timed_out(limit)),
        };
        let outcome = outcome.unwrap_or_else(|failure| self.decide(&attempt.job, handler.policy(), failure));
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

    /// Gives up attempts that block their thread past their timeout: what follows is committed from here, so their
    /// own writes come too late, and their slot is counted lost until they return.
    pub(crate) async fn give_up_blocked(&self, store: &dyn windlass_store::Store) {
        for pool in &self.pools {
            for watch in pool.watches() {
                let Some(stuck) = watch.stuck() else { continue };
                let job = &stuck.attempt.job;
                let policy = self.registry.get(&job.kind).map(|h| h.policy().clone()).unwrap_or_default();
                let mut failure = timed_out(time_limit(job, &policy, stuck.attempt.started_at));
                failure.message += "; it blocks its thread, so its slot is lost until it returns";
                let change = change(&stuck.attempt, self.decide(job, &policy, failure));
                match store.commit(None, &[change]).await {
                    Ok(_) => {
                        watch.given_up.store(true, Ordering::Relaxed);
                        add(&self.stats.lost_slots, 1);
                        self.ledger.settle([stuck.number].into_iter());
                        tracing::error!(job = %job.id, kind = job.kind.kind, "an attempt blocks its thread past its timeout");
                    }
                    Err(error) => tracing::warn!(%error, "could not give up a blocked attempt yet"),
                }
            }
        }
    }
}

impl Watch {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Watched>> {
        self.running.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn set(&self, attempt: &Arc<Attempt>, number: ClaimNo, limit: Option<Duration>) {
        let Some(limit) = limit else { return };
        let Some(ends_by) = Instant::now().checked_add(limit.saturating_add(GRACE)) else { return };
        *self.lock() = Some(Watched { attempt: Arc::clone(attempt), number, ends_by });
    }

    fn clear(&self) {
        *self.lock() = None;
    }

    /// The attempt, if it should have ended. It is reported once.
    fn stuck(&self) -> Option<Watched> {
        if self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        self.lock().as_ref().filter(|watched| watched.ends_by < Instant::now()).cloned()
    }
}

async fn within<F: Future>(limit: Option<Duration>, work: F) -> Result<F::Output, ()> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.map_err(|_| ()),
        None => Ok(work.await),
    }
}

/// How long an attempt may run: the job's own limit or its kind's, and not past its deadline.
fn time_limit(job: &Claimed, policy: &Policy, now: Time) -> Option<Duration> {
    let limit = job.settings.timeout.or(policy.timeout);
    let left = job.deadline_at.map(|at| at.since(now));
    match (limit, left) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn change(attempt: &Attempt, outcome: Outcome) -> Change {
    let job = &attempt.job;
    let (worker, started_at) = (attempt.worker, attempt.started_at);
    let deadline_at = job.deadline_at;
    Change { job: job.id, epoch: job.epoch, rev: job.rev, worker, started_at, deadline_at, outcome }
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
