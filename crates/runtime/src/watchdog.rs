//! Gives up attempts that block their thread past their timeout.
//!
//! A timeout cannot end a future that never returns from its poll. So each slot records what it runs in an
//! [`AttemptWatch`], and the renewer's thread checks all of them: it commits the timeout of a blocked attempt itself.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use windlass_model::{Change, CommitOutcome, Failure};
use windlass_store::Store;

use crate::{
    Attempt,
    core::Core,
    outcome,
    pool::QueuePool,
    releaser::ClaimGuard,
    sync::lock,
    telemetry::{StoreCall, add},
};

/// How long after its time limit an attempt that has not ended counts as blocking its thread.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// What a slot runs. Either the attempt that ends or the watchdog that gives it up changes the state first, and that one
/// decides what is committed: there is never a second outcome.
#[derive(Default)]
pub(crate) struct AttemptWatch {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// No attempt runs.
    #[default]
    Idle,
    /// This attempt has ended; its change is being committed, and a further step may follow.
    Between(Arc<Attempt>),
    Running(WatchedAttempt),
    /// The watchdog has given the attempt up: whatever it still returns is dropped.
    GivenUp,
}

struct WatchedAttempt {
    attempt: Arc<Attempt>,
    claim: Arc<ClaimGuard>,
    /// How long it may run; `None` is without a limit.
    limit: Option<Duration>,
    /// When it counts as blocking its thread.
    blocked_at: Option<Instant>,
}

impl AttemptWatch {
    /// Records that an attempt runs.
    pub(crate) fn set(&self, attempt: &Arc<Attempt>, claim: &Arc<ClaimGuard>, limit: Option<Duration>) {
        let now = attempt.writer.env().instant();
        let blocked_at = limit.and_then(|limit| now.checked_add(limit.saturating_add(BLOCKED_AFTER)));
        let (attempt, claim) = (Arc::clone(attempt), Arc::clone(claim));
        *lock(&self.state) = State::Running(WatchedAttempt { attempt, claim, limit, blocked_at });
    }

    /// The attempt that runs, or whose change is being committed.
    pub(crate) fn attempt(&self) -> Option<Arc<Attempt>> {
        match &*lock(&self.state) {
            State::Running(WatchedAttempt { attempt, .. }) | State::Between(attempt) => {
                Some(Arc::clone(attempt))
            }
            _ => None,
        }
    }

    /// Records that the attempt has ended; `false` if it was given up before.
    pub(crate) fn end(&self) -> bool {
        let mut state = lock(&self.state);
        match std::mem::take(&mut *state) {
            State::GivenUp => false,
            State::Running(watched) => {
                *state = State::Between(watched.attempt);
                true
            }
            State::Idle | State::Between(_) => true,
        }
    }

    /// Records that the slot runs nothing.
    pub(crate) fn clear(&self) {
        *lock(&self.state) = State::Idle;
    }

    /// Whether the attempt was given up and has not returned.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(*lock(&self.state), State::GivenUp)
    }

    /// Takes the attempt if it blocks its thread.
    fn give_up(&self, now: Instant) -> Option<WatchedAttempt> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::GivenUp) {
            State::Running(watched)
                if watched.attempt.writer.is_stuck() || watched.blocked_at.is_some_and(|at| at < now) =>
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

/// An attempt that was given up, until its change is committed.
pub(crate) struct GivenUp {
    change: Change,
    claim: Arc<ClaimGuard>,
    pool: Arc<QueuePool>,
}

impl Core {
    /// The attempts that run in this worker.
    pub(crate) fn attempts(&self) -> Vec<Arc<Attempt>> {
        self.all_pools().iter().flat_map(|pool| pool.watches()).filter_map(|watch| watch.attempt()).collect()
    }

    /// Records that a watched attempt has ended. `false` if it was given up before: then its slot is no longer lost.
    pub(crate) fn end_watch(&self, watch: &AttemptWatch) -> bool {
        let ended = watch.end();
        if !ended {
            self.stats.lost_slots.fetch_sub(1, Ordering::Relaxed);
        }
        ended
    }

    /// One pass of the watchdog: gives up attempts that block their thread past their time limit, and commits what follows.
    /// Their own outcomes are dropped, and their slots count as lost until they return. `pending` holds those whose
    /// commit the store has not answered yet.
    pub(crate) async fn give_up_blocked(&self, store: &dyn Store, pending: &mut Vec<GivenUp>) {
        for pool in self.all_pools() {
            for watch in pool.watches() {
                if let Some(blocked) = watch.give_up(self.env.instant()) {
                    pending.push(self.time_out(blocked, &pool));
                }
            }
        }
        if pending.is_empty() {
            return;
        }
        self.wake_runtime();
        let changes: Vec<Change> = pending.iter().map(|given_up| given_up.change.clone()).collect();
        match store.commit(None, &changes).await {
            Ok(outcomes) => {
                for (GivenUp { change, claim, pool }, outcome) in pending.drain(..).zip(outcomes) {
                    let job = change.job;
                    let ending = match outcome {
                        CommitOutcome::Committed => {
                            add(&self.stats.committed, 1);
                            self.after_commit(change, &pool)
                        }
                        CommitOutcome::Halted => None,
                        // If a transaction of the attempt took its revision, the job is still claimed.
                        CommitOutcome::Fenced | CommitOutcome::Refused(_) => {
                            claim.release();
                            continue;
                        }
                    };
                    self.ledger.settle(claim.close().into_iter());
                    self.waiters.unhold_committed([(job, ending)]);
                }
            }
            Err(error) => {
                self.metrics.count_error(StoreCall::Commit);
                tracing::warn!(%error, "the timeouts of blocked attempts could not be committed yet")
            }
        }
    }

    /// Wakes a thread of the runtime. The blocked thread may be the one that waited for sockets and timers, and tokio does not
    /// replace it until a task is spawned from outside.
    fn wake_runtime(&self) {
        self.runtime.spawn(async {});
    }

    /// What follows from an attempt that blocks its thread.
    fn time_out(&self, blocked: WatchedAttempt, pool: &Arc<QueuePool>) -> GivenUp {
        let WatchedAttempt { attempt, claim, limit, .. } = blocked;
        attempt.writer.close();
        let job = &attempt.job;
        add(&self.stats.lost_slots, 1);
        tracing::error!(job = %job.id, kind = job.kind.kind, "an attempt blocks its thread past its timeout");
        let handler = self.registry.get(&job.kind).map(|handler| &**handler);
        let failure = match attempt.writer.is_stuck() {
            true => outcome::stuck(),
            false => outcome::timed_out(limit),
        };
        let message =
            format!("{}; it blocks its thread, so its slot is lost until it returns", failure.message);
        let failure = Failure { message, ..failure };
        let change = outcome::change(&attempt, self.outcome_of_failure(&attempt, handler, failure), None);
        GivenUp { change, claim, pool: Arc::clone(pool) }
    }
}
