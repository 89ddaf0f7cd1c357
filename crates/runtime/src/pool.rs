//! One queue's slots in this worker, and the jobs that wait for one.
//!
//! A slot is a task that runs one job after the other and ends when none waits; the next job is started by the
//! completion of the last, not by a poll. The feeder is told when there is room for a claim that is worth it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_model::{ClaimNo, ClaimedJob, KindVersion, Time};

use crate::{
    Pool,
    cancellations::CancelFlag,
    executor::Watch,
    histogram::{Histogram, WORK},
    releaser::Claim,
    worker::Core,
};

/// A claimed job on its way to a slot.
pub(crate) struct Job {
    pub(crate) claimed: Arc<ClaimedJob>,
    /// Its part in the claim it came with: it is handed back if that is dropped before it is over.
    pub(crate) claim: Arc<Claim>,
    /// When its deadline passes, by the store's clock as it was at the claim.
    pub(crate) expires: Option<Instant>,
    /// The store's clock at the claim.
    pub(crate) now: Time,
    /// That clock less the worker's.
    pub(crate) offset: i64,
    /// How often in a row, within this claim, a step led to the very state it came from.
    pub(crate) steps_before_yield: u32,
    /// What its attempts were told; the same for all steps of one claim.
    pub(crate) cancel: Arc<CancelFlag>,
}

pub(crate) struct QueuePool {
    pub(crate) queue: String,
    pub(crate) config: Pool,
    pub(crate) kinds: Arc<[KindVersion]>,
    /// How long jobs had been due when they were claimed.
    pub(crate) waits: Histogram,
    state: Mutex<State>,
    /// Told when the feeder should look.
    pub(crate) feed: Notify,
    /// Told when a slot has ended.
    pub(crate) ended: Notify,
    /// What each slot is running, for the watchdog.
    watches: Mutex<Vec<Arc<Watch>>>,
}

struct State {
    buffer: VecDeque<Job>,
    running: usize,
    /// Room promised to jobs that are being submitted.
    reserved: usize,
    /// Whether the last claim said that there may be more.
    more: bool,
    /// Whether something said that the queue changed.
    look: bool,
    /// When there is something in a bucket again for jobs that wait for it.
    refill: Option<Instant>,
    open: bool,
    finished: u64,
    rate: Rate,
    /// When jobs were last taken.
    accepted: Instant,
}

/// How fast this pool finishes jobs, smoothed.
struct Rate {
    per_second: f64,
    since: Instant,
    finished: u64,
}

/// How much work is kept waiting for a slot, in time: enough to cover the next claim and little enough that another
/// worker loses nothing by it.
const AHEAD: f64 = 0.05;

/// How long jobs that were claimed ahead may wait before they are handed back.
pub(crate) const MAX_BUFFER_AGE: Duration = Duration::from_secs(1);

impl QueuePool {
    pub(crate) fn new(queue: String, config: Pool, kinds: Arc<[KindVersion]>) -> QueuePool {
        let state = State {
            buffer: VecDeque::new(),
            running: 0,
            reserved: 0,
            more: false,
            look: true,
            refill: None,
            open: true,
            finished: 0,
            rate: Rate { per_second: 0.0, since: Instant::now(), finished: 0 },
            accepted: Instant::now(),
        };
        QueuePool {
            queue,
            config,
            kinds,
            waits: Histogram::new(WORK),
            state: Mutex::new(state),
            feed: Notify::new(),
            ended: Notify::new(),
            watches: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Says that the queue may have changed.
    pub(crate) fn wake(&self) {
        self.lock().look = true;
        self.feed.notify_one();
    }

    /// How many jobs to claim now, if a claim is due and worth it.
    pub(crate) fn wanted(&self) -> Option<usize> {
        let mut state = self.lock();
        let (demand, least) = state.demand(&self.config);
        if !state.open || !(state.look || state.more) || demand < least {
            return None;
        }
        state.look = false;
        state.refill = None;
        Some(demand)
    }

    /// Notes whether the last claim said that there may be more, and when there will be for a rate limit.
    pub(crate) fn set_more(&self, more: bool, refill: Option<Instant>) {
        let mut state = self.lock();
        (state.more, state.refill) = (more, refill);
    }

    /// There is something in a bucket again: look, once there is room.
    pub(crate) fn refilled(&self) {
        let mut state = self.lock();
        (state.look, state.refill) = (true, None);
        drop(state);
        self.feed.notify_one();
    }

    /// When to look again for jobs that wait for a rate limit.
    pub(crate) fn refill(&self) -> Option<Instant> {
        self.lock().refill
    }

    /// Takes claimed jobs, and starts slots for them.
    pub(crate) fn accept(self: &Arc<Self>, core: &Arc<Core>, jobs: Vec<Job>) {
        let starts = {
            let mut state = self.lock();
            if !state.open {
                // Answered after the pool was closed: they are handed back.
                return;
            }
            state.accepted = Instant::now();
            state.buffer.extend(jobs);
            let starts = state.buffer.len().min(self.config.slots.saturating_sub(state.running));
            state.running += starts;
            starts
        };
        for _ in 0..starts {
            core.runtime.spawn(Arc::clone(core).slot(Arc::clone(self)));
        }
    }

    /// Promises room to a job that is about to be submitted, if there is some and nothing waits for it.
    pub(crate) fn reserve(&self, kind: &KindVersion) -> bool {
        let mut state = self.lock();
        let free = state.open
            && !state.more
            && !state.look
            && state.buffer.is_empty()
            && state.running + state.reserved < self.config.slots
            && self.kinds.contains(kind);
        state.reserved += usize::from(free);
        free
    }

    /// Takes a promise back, or gives what was promised.
    pub(crate) fn unreserve(&self) {
        self.lock().reserved -= 1;
    }

    /// The next job for a slot; `None` ends the slot.
    pub(crate) fn next(&self, finished: bool) -> Option<Job> {
        let mut state = self.lock();
        state.finished += u64::from(finished);
        let job = state.buffer.pop_front();
        if job.is_none() {
            state.running -= 1;
        }
        let (demand, least) = state.demand(&self.config);
        let feed = (state.more || state.look) && demand >= least;
        let over = state.running == 0;
        drop(state);
        if feed {
            self.feed.notify_one();
        }
        if over {
            self.ended.notify_waiters();
        }
        job
    }

    /// Takes back what was claimed ahead and waits although it should have started long ago: the jobs turned out to be
    /// slow, and another worker may have a free slot.
    pub(crate) fn surplus(&self) -> Vec<Job> {
        let mut state = self.lock();
        if state.buffer.is_empty() || state.accepted.elapsed() < MAX_BUFFER_AGE {
            return Vec::new();
        }
        let ahead = state.ahead(&self.config);
        if state.buffer.len() <= ahead {
            return Vec::new();
        }
        state.more = true;
        state.buffer.split_off(ahead).into()
    }

    /// Takes everything that has not started; with `close`, nothing starts any more.
    pub(crate) fn empty(&self, close: bool) -> Vec<Job> {
        let mut state = self.lock();
        state.open &= !close;
        state.buffer.drain(..).collect()
    }

    /// Drops what has not started of these claims; answers how many jobs that were.
    pub(crate) fn remove(&self, claims: &[ClaimNo]) -> usize {
        let mut state = self.lock();
        let before = state.buffer.len();
        state.buffer.retain(|job| !claims.contains(&job.claim.number));
        before - state.buffer.len()
    }

    /// Whether others wait, as far as is known: then a machine that has had its turn lets them pass.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = self.lock();
        state.more || state.look || !state.buffer.is_empty()
    }

    /// Whether jobs wait for a slot.
    pub(crate) fn waits(&self) -> bool {
        !self.lock().buffer.is_empty()
    }

    /// How many jobs wait for a slot.
    pub(crate) fn buffered(&self) -> usize {
        self.lock().buffer.len()
    }

    /// How many slots are held by attempts that were given up and have not returned.
    pub(crate) fn lost(&self) -> usize {
        self.watches().iter().filter(|watch| watch.is_given_up()).count()
    }

    pub(crate) fn running(&self) -> usize {
        self.lock().running
    }

    pub(crate) fn watch(&self, watch: Arc<Watch>) {
        self.watches.lock().unwrap_or_else(|e| e.into_inner()).push(watch);
    }

    pub(crate) fn unwatch(&self, watch: &Arc<Watch>) {
        self.watches.lock().unwrap_or_else(|e| e.into_inner()).retain(|w| !Arc::ptr_eq(w, watch));
    }

    pub(crate) fn watches(&self) -> Vec<Arc<Watch>> {
        self.watches.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl State {
    /// How many jobs are worth having claimed before there is a slot for them.
    fn ahead(&mut self, config: &Pool) -> usize {
        ((self.rate.per_second(self.finished) * AHEAD) as usize).min(config.prefetch)
    }

    /// How many jobs there is room for, and how many make a claim worth it.
    fn demand(&mut self, config: &Pool) -> (usize, usize) {
        let ahead = self.ahead(config);
        let held = self.running + self.reserved + self.buffer.len();
        let demand = (config.slots + ahead).saturating_sub(held);
        // With work kept ahead, a claim that fills half of it is soon enough; an idle pool takes what there is.
        let least = if held == 0 { 1 } else { config.min_demand.max(ahead / 2).max(1) };
        (demand, least)
    }
}

impl Rate {
    /// Measured over spans of at least 5 ms; the longer the span, the more of it is new.
    fn per_second(&mut self, finished: u64) -> f64 {
        let elapsed = self.since.elapsed();
        if elapsed >= Duration::from_millis(5) {
            let now = (finished - self.finished) as f64 / elapsed.as_secs_f64();
            let new = elapsed.as_secs_f64() / (elapsed.as_secs_f64() + 0.005);
            self.per_second += (now - self.per_second) * new;
            self.since = Instant::now();
            self.finished = finished;
        }
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refill_wakes_a_full_pool_once() {
        let pool = QueuePool::new("default".into(), Pool::slots(1), Vec::new().into());
        assert_eq!(pool.wanted(), Some(1), "an idle pool looks");
        pool.set_more(false, Some(Instant::now()));
        pool.lock().running = 1;
        assert_eq!(pool.wanted(), None, "there is no room");
        pool.refilled();
        assert_eq!(pool.refill(), None, "it is not waited for again while there is no room");
        assert_eq!(pool.wanted(), None);
        pool.lock().running = 0;
        assert_eq!(pool.wanted(), Some(1), "but it is not forgotten");
    }
}
