//! One queue's slots in this worker, and the claimed jobs that wait for a slot.
//!
//! A slot is a task that runs one job after the other and ends when no job is buffered. So a job starts when another
//! completes, not at the next poll. The claimer is notified when there is enough room for a claim.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_env::Env;
use windlass_model::{ClaimNo, ClaimedJob, KindVersion, Time};

use crate::{
    Pool,
    cancellations::CancelFlag,
    core::Core,
    releaser::ClaimGuard,
    sync::lock,
    telemetry::histogram::{Histogram, WORK_SECONDS},
    watchdog::AttemptWatch,
};

/// How much work is claimed ahead of free slots, in seconds of the pool's throughput: enough to cover the next claim, and
/// so little that a worker with a free slot loses nothing by it.
const PREFETCH_SECONDS: f64 = 0.05;

/// How long jobs that were claimed ahead may wait before they are released.
pub(crate) const MAX_BUFFER_AGE: Duration = Duration::from_secs(1);

/// A claimed job, from its claim to its last step in this worker.
pub(crate) struct Job {
    pub(crate) claimed: Arc<ClaimedJob>,
    /// Releases the job if it is dropped before the store has ended the claim.
    pub(crate) claim: Arc<ClaimGuard>,
    /// When the job's deadline passes, by the store's clock at the claim.
    pub(crate) expires_at: Option<Instant>,
    /// The time of the claim, by the store's clock.
    pub(crate) claimed_at: Time,
    /// The store's clock less the worker's, in microseconds.
    pub(crate) clock_offset: i64,
    /// The number of steps in a row, within this claim, that left the stage unchanged.
    pub(crate) unchanged_steps: u32,
    /// When the first step of this claim started, by the worker's clock, once another one follows.
    pub(crate) started_at: Option<Time>,
    /// Shared by the attempts of all steps of one claim.
    pub(crate) cancel: Arc<CancelFlag>,
}

pub(crate) struct QueuePool {
    pub(crate) queue: String,
    pub(crate) config: Pool,
    pub(crate) kinds: Arc<[KindVersion]>,
    env: Env,
    /// How long jobs had been due when they were claimed.
    pub(crate) queue_wait: Histogram,
    state: Mutex<State>,
    /// Notified when the claimer should check for work.
    pub(crate) changed: Notify,
    /// Notified when no slot runs any more.
    pub(crate) idle: Notify,
    /// What each slot runs, for the watchdog.
    watches: Mutex<Vec<Arc<AttemptWatch>>>,
}

struct State {
    /// Claimed jobs that wait for a slot.
    buffer: VecDeque<Job>,
    /// Slots that run.
    running: usize,
    /// How many jobs that are being submitted have a reservation.
    reserved: usize,
    /// Whether there may be more ready jobs than the last claim took.
    has_more: bool,
    /// Whether the queue may have changed since the last claim, by more than `own_ready`.
    is_changed: bool,
    /// Jobs that this process has made ready since the last claim.
    own_ready: usize,
    /// When a rate limit that jobs wait for has tokens again.
    refill_at: Option<Instant>,
    is_open: bool,
    /// Jobs that slots have finished.
    finished: u64,
    throughput: Throughput,
    /// When claimed jobs were last added.
    accepted_at: Instant,
}

/// How fast this pool finishes jobs, smoothed.
struct Throughput {
    per_second: f64,
    measured_at: Instant,
    finished: u64,
}

impl QueuePool {
    pub(crate) fn new(queue: String, config: Pool, kinds: Arc<[KindVersion]>, env: Env) -> QueuePool {
        let now = env.instant();
        let state = State {
            buffer: VecDeque::new(),
            running: 0,
            reserved: 0,
            has_more: false,
            is_changed: true,
            own_ready: 0,
            refill_at: None,
            is_open: true,
            finished: 0,
            throughput: Throughput { per_second: 0.0, measured_at: now, finished: 0 },
            accepted_at: now,
        };
        QueuePool {
            queue,
            config,
            kinds,
            env,
            queue_wait: Histogram::new(WORK_SECONDS),
            state: Mutex::new(state),
            changed: Notify::new(),
            idle: Notify::new(),
            watches: Mutex::default(),
        }
    }

    /// A pool that nothing is claimed for: it runs only jobs that were claimed for it before.
    pub(crate) fn unclaimed(queue: String, config: Pool, kinds: Arc<[KindVersion]>, env: Env) -> QueuePool {
        let pool = QueuePool::new(queue, config, kinds, env);
        lock(&pool.state).is_changed = false;
        pool
    }

    /// Notes that the queue may have changed, and wakes the claimer.
    pub(crate) fn wake(&self) {
        lock(&self.state).is_changed = true;
        self.changed.notify_one();
    }

    /// Notes that this process has submitted a job that is ready, and wakes the claimer.
    pub(crate) fn wake_for_own(&self) {
        lock(&self.state).own_ready += 1;
        self.changed.notify_one();
    }

    /// How many jobs to claim now; `None` if there is no reason or not enough room for a claim.
    pub(crate) fn next_claim_size(&self) -> Option<usize> {
        let mut state = lock(&self.state);
        let (demand, least) = state.demand(&self.config, self.env.instant());
        if !state.is_open || !state.may_claim() || demand < least {
            return None;
        }
        state.is_changed = false;
        state.own_ready = 0;
        state.refill_at = None;
        Some(demand)
    }

    /// Records whether there may be more jobs after a claim, and when a rate limit will have tokens for some.
    pub(crate) fn set_claim_result(&self, has_more: bool, refill_at: Option<Instant>) {
        let mut state = lock(&self.state);
        (state.has_more, state.refill_at) = (has_more, refill_at);
    }

    /// Notes that a rate limit has tokens again: the claimer claims once there is room.
    pub(crate) fn on_refill(&self) {
        let mut state = lock(&self.state);
        (state.is_changed, state.refill_at) = (true, None);
        drop(state);
        self.changed.notify_one();
    }

    /// When a rate limit that jobs wait for has tokens again.
    pub(crate) fn refill_at(&self) -> Option<Instant> {
        lock(&self.state).refill_at
    }

    /// Adds claimed jobs, and starts slots for them.
    pub(crate) fn accept(self: &Arc<Self>, core: &Arc<Core>, jobs: Vec<Job>) {
        let starts = {
            let mut state = lock(&self.state);
            if !state.is_open {
                // The claim was answered after the pool was closed: the jobs are dropped, and so released.
                return;
            }
            state.accepted_at = self.env.instant();
            state.buffer.extend(jobs);
            let starts = state.buffer.len().min(self.config.slots.saturating_sub(state.running));
            state.running += starts;
            starts
        };
        for _ in 0..starts {
            core.runtime.spawn(Arc::clone(core).run_slot(Arc::clone(self)));
        }
    }

    /// Reserves room for a job that is about to be submitted, if there is some beside all jobs that are known to wait: a slot, or
    /// a place among the jobs that are claimed ahead.
    pub(crate) fn reserve(&self, kind: &KindVersion) -> bool {
        let mut state = lock(&self.state);
        // Jobs of others may be more urgent, and there may be any number of them.
        let others_wait = state.is_changed || state.has_more;
        let (room, _) = state.demand(&self.config, self.env.instant());
        let is_free = state.is_open && !others_wait && state.own_ready < room && self.kinds.contains(kind);
        state.reserved += usize::from(is_free);
        is_free
    }

    /// Ends a reservation, whether or not its job was claimed.
    pub(crate) fn unreserve(&self) {
        lock(&self.state).reserved -= 1;
    }

    /// The next job for a slot; `None` ends the slot. `finished` says whether the slot has just finished another job.
    pub(crate) fn next_job(&self, finished: bool) -> Option<Job> {
        let mut state = lock(&self.state);
        state.finished += u64::from(finished);
        let job = state.buffer.pop_front();
        if job.is_none() {
            state.running -= 1;
        }
        let (demand, least) = state.demand(&self.config, self.env.instant());
        let claim = state.may_claim() && demand >= least;
        let is_idle = state.running == 0;
        drop(state);
        if claim {
            self.changed.notify_one();
        }
        if is_idle {
            self.idle.notify_waiters();
        }
        job
    }

    /// Takes jobs back that were claimed ahead and have waited too long: the jobs before them turned out to be slow, and
    /// another worker may have a free slot.
    pub(crate) fn take_surplus(&self) -> Vec<Job> {
        let mut state = lock(&self.state);
        if state.buffer.is_empty() || self.env.since(state.accepted_at) < MAX_BUFFER_AGE {
            return Vec::new();
        }
        let prefetch = state.prefetch(&self.config, self.env.instant());
        if state.buffer.len() <= prefetch {
            return Vec::new();
        }
        state.has_more = true;
        state.buffer.split_off(prefetch).into()
    }

    /// Takes all jobs that have not started; with `close`, no further jobs are accepted.
    pub(crate) fn take_buffered(&self, close: bool) -> Vec<Job> {
        let mut state = lock(&self.state);
        state.is_open &= !close;
        state.buffer.drain(..).collect()
    }

    /// Drops the jobs of these claims that have not started; returns how many there were.
    pub(crate) fn remove_claims(&self, claims: &[ClaimNo]) -> usize {
        let mut state = lock(&self.state);
        let before = state.buffer.len();
        state.buffer.retain(|job| !claims.contains(&job.claim.number));
        before - state.buffer.len()
    }

    /// Whether other jobs may wait for a slot here: then a machine yields after a number of steps.
    pub(crate) fn is_contended(&self) -> bool {
        let state = lock(&self.state);
        state.may_claim() || !state.buffer.is_empty()
    }

    /// Whether claimed jobs wait for a slot.
    pub(crate) fn has_buffered(&self) -> bool {
        !lock(&self.state).buffer.is_empty()
    }

    /// The number of claimed jobs that wait for a slot.
    pub(crate) fn buffered(&self) -> usize {
        lock(&self.state).buffer.len()
    }

    /// The number of slots held by attempts that were given up and have not returned.
    pub(crate) fn lost_slots(&self) -> usize {
        self.watches().iter().filter(|watch| watch.is_given_up()).count()
    }

    /// The number of slots that run.
    pub(crate) fn running(&self) -> usize {
        lock(&self.state).running
    }

    pub(crate) fn add_watch(&self, watch: Arc<AttemptWatch>) {
        lock(&self.watches).push(watch);
    }

    pub(crate) fn remove_watch(&self, watch: &Arc<AttemptWatch>) {
        lock(&self.watches).retain(|other| !Arc::ptr_eq(other, watch));
    }

    pub(crate) fn watches(&self) -> Vec<Arc<AttemptWatch>> {
        lock(&self.watches).clone()
    }
}

impl State {
    /// Whether a claim may find jobs.
    fn may_claim(&self) -> bool {
        self.is_changed || self.own_ready > 0 || self.has_more
    }

    /// How many jobs to hold ahead of free slots.
    fn prefetch(&mut self, config: &Pool, now: Instant) -> usize {
        ((self.throughput.per_second(self.finished, now) * PREFETCH_SECONDS) as usize).min(config.prefetch)
    }

    /// How many jobs there is room for, and for how many a claim is worthwhile.
    fn demand(&mut self, config: &Pool, now: Instant) -> (usize, usize) {
        let prefetch = self.prefetch(config, now);
        let held = self.running + self.reserved + self.buffer.len();
        let demand = (config.slots + prefetch).saturating_sub(held);
        // While jobs are buffered, it is soon enough to claim when half of them are used up; an idle pool claims any number.
        let least = if held == 0 { 1 } else { config.min_demand.max(prefetch / 2).max(1) };
        (demand, least)
    }
}

impl Throughput {
    /// Measured over intervals of at least 5 ms; the longer the interval, the more weight its rate has.
    fn per_second(&mut self, finished: u64, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.measured_at);
        if elapsed >= Duration::from_millis(5) {
            let rate = (finished - self.finished) as f64 / elapsed.as_secs_f64();
            let weight = elapsed.as_secs_f64() / (elapsed.as_secs_f64() + 0.005);
            self.per_second += (rate - self.per_second) * weight;
            self.measured_at = now;
            self.finished = finished;
        }
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submit_is_claimed_while_there_is_room_for_it_and_for_the_jobs_that_wait() {
        let kind = KindVersion { kind: "greet".into(), version: 1 };
        let pool = QueuePool::new("default".into(), Pool::slots(3), vec![kind.clone()].into(), Env::real());
        assert!(!pool.reserve(&kind), "jobs of others may wait");
        pool.next_claim_size().expect("a claim");
        pool.wake_for_own();
        assert!(pool.reserve(&kind) && pool.reserve(&kind), "three slots, and one job waits");
        assert!(!pool.reserve(&kind), "the third slot is for the job that waits");
        assert_eq!(pool.next_claim_size(), Some(1), "and the claim takes it");
        pool.unreserve();
        pool.unreserve();
        pool.wake();
        assert!(!pool.reserve(&kind), "jobs of others may wait again");
        pool.next_claim_size().expect("a claim");
        pool.set_claim_result(true, None);
        assert!(!pool.reserve(&kind), "the claim has left some");
        pool.set_claim_result(false, None);
        assert!(!pool.reserve(&KindVersion { kind: "other".into(), version: 1 }), "it is not served here");
    }

    #[test]
    fn a_refill_makes_a_full_pool_claim_once_it_has_room() {
        let pool = QueuePool::new("default".into(), Pool::slots(1), Vec::new().into(), Env::real());
        assert_eq!(pool.next_claim_size(), Some(1), "an idle pool claims");
        pool.set_claim_result(false, Some(Env::real().instant()));
        lock(&pool.state).running = 1;
        assert_eq!(pool.next_claim_size(), None, "there is no room");
        pool.on_refill();
        assert_eq!(pool.refill_at(), None, "it is not waited for again while there is no room");
        assert_eq!(pool.next_claim_size(), None);
        lock(&pool.state).running = 0;
        assert_eq!(pool.next_claim_size(), Some(1), "but it is not forgotten");
    }
}
