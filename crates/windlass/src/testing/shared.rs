//! What the handles of one store in a lab share: the clock, the planned crash, and what the lab waits for.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, RwLock, RwLockReadGuard, watch};
use windlass_env::VirtualClock;
use windlass_model::{JobId, Time};
use windlass_store::{ClaimBatch, ClaimRequest};

/// Where a worker dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Crash {
    /// The number of the commit, from 0.
    pub(super) commit: usize,
    /// Whether that commit is applied.
    pub(super) applied: bool,
}

/// The state that all handles of one store in a lab share.
pub(super) struct Shared {
    /// The time of the store and of its workers.
    pub(super) clock: Arc<VirtualClock>,
    /// The number of changes that workers wanted to commit.
    pub(super) commits: AtomicUsize,
    /// The crash that is still to happen.
    pub(super) crash: Mutex<Option<Crash>>,
    /// Notified when the worker has died.
    pub(super) died: Notify,
    pub(super) is_dead: AtomicBool,
    /// Notified after every call that may have changed a job.
    pub(super) changed: Notify,
    /// The number of such calls.
    calls: AtomicUsize,
    /// Held for reading by calls and for writing while the clock is set: the clock does not move during a call.
    gate: RwLock<()>,
    empty_claims: Mutex<EmptyClaims>,
    /// The jobs that were parked for signals that somebody sends. They may have continued since.
    signal_waits: Mutex<BTreeSet<JobId>>,
}

/// The claims that found no job to take, by queue and by whether they were for a suspect.
#[derive(Default)]
struct EmptyClaims {
    /// The latest of each, since the last change.
    claims: HashMap<(String, bool), EmptyClaim>,
    /// The number of changes: of calls that may have made jobs ready, and of times that the clock was set.
    changes: usize,
}

/// The answer to a claim that found no job to take.
#[derive(Clone, Copy)]
struct EmptyClaim {
    /// When a rate limit has tokens for the first job that waits for it.
    refill_at: Option<Time>,
    /// Whether suspects wait in the queue.
    has_suspects: bool,
}

impl Shared {
    pub(super) fn new(clock: VirtualClock, crash: Option<Crash>) -> Shared {
        Shared {
            clock: Arc::new(clock),
            commits: AtomicUsize::new(0),
            crash: Mutex::new(crash),
            died: Notify::new(),
            is_dead: AtomicBool::new(false),
            changed: Notify::new(),
            calls: AtomicUsize::new(0),
            gate: RwLock::new(()),
            empty_claims: Mutex::default(),
            signal_waits: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn set(&self, now: Time) {
        self.clock.set(now);
        self.forget_empty_claims();
    }

    /// Whether the worker dies at one of the next `changes` commits, and if so how.
    pub(super) fn next_crash(&self, changes: usize) -> Option<Crash> {
        let first = self.commits.fetch_add(changes, Ordering::SeqCst);
        lock(&self.crash).take_if(|crash| (first..first + changes).contains(&crash.commit))
    }

    /// The number of calls so far. Waits until none is in flight.
    pub(super) async fn calls(&self) -> usize {
        let _gate = self.gate.write().await;
        self.calls.load(Ordering::SeqCst)
    }

    /// Sets the clock, unless there were more calls meanwhile. Returns whether there were none.
    pub(super) async fn set_if_unchanged(&self, calls: usize, now: Option<Time>) -> bool {
        let _gate = self.gate.write().await;
        let is_unchanged = self.calls.load(Ordering::SeqCst) == calls;
        if let Some(now) = now.filter(|_| is_unchanged) {
            self.set(now);
        }
        is_unchanged
    }

    /// Begins a call that may change jobs; it ends when the guard is dropped.
    pub(super) async fn begin_call(&self) -> CallGuard<'_> {
        let gate = self.gate.read().await;
        let changes = lock(&self.empty_claims).changes;
        CallGuard { shared: self, changes, changes_jobs: true, _gate: gate }
    }

    /// Forgets what claims have found: jobs may be ready now.
    pub(super) fn forget_empty_claims(&self) {
        let mut empty = lock(&self.empty_claims);
        empty.claims.clear();
        empty.changes += 1;
    }

    /// When a rate limit has tokens for jobs of this queue, if the worker has found that all its ready jobs wait for rate
    /// limits.
    pub(super) fn refill_at(&self, queue: &str) -> Option<Time> {
        let claims = &lock(&self.empty_claims).claims;
        let ordinary = claims.get(&(queue.to_owned(), false))?;
        let solo = match ordinary.has_suspects {
            true => claims.get(&(queue.to_owned(), true))?.refill_at,
            false => None,
        };
        ordinary.refill_at.into_iter().chain(solo).min()
    }

    /// Notes that a job may wait for signals that somebody sends.
    pub(super) fn add_signal_wait(&self, job: JobId) {
        lock(&self.signal_waits).insert(job);
    }

    /// Notes that a job does not wait for such signals.
    pub(super) fn remove_signal_wait(&self, job: JobId) {
        lock(&self.signal_waits).remove(&job);
    }

    /// The jobs that may wait for signals that somebody sends.
    pub(super) fn signal_waits(&self) -> Vec<JobId> {
        lock(&self.signal_waits).iter().copied().collect()
    }

    /// Notifies the lab that the worker has died.
    pub(super) fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// A call in flight.
pub(super) struct CallGuard<'a> {
    shared: &'a Shared,
    /// The number of changes when it began.
    changes: usize,
    changes_jobs: bool,
    _gate: RwLockReadGuard<'a, ()>,
}

impl CallGuard<'_> {
    /// Ends a call that has made no job ready: what earlier claims found is still so.
    pub(super) fn end_without_change(mut self) {
        self.changes_jobs = false;
    }

    /// Ends a claim and records what it found, unless something changed meanwhile that it may not have seen.
    pub(super) fn end_claim(self, request: &ClaimRequest, batch: &ClaimBatch) {
        let mut empty = lock(&self.shared.empty_claims);
        let key = (request.queue.clone(), request.solo);
        if batch.jobs.is_empty() && !batch.more && empty.changes == self.changes {
            let claim = EmptyClaim { refill_at: batch.refill_at, has_suspects: batch.suspects };
            empty.claims.insert(key, claim);
        } else {
            empty.claims.remove(&key);
        }
        drop(empty);
        self.end_without_change();
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.changes_jobs {
            self.shared.forget_empty_claims();
        }
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        self.shared.changed.notify_one();
    }
}

/// The lifetime of one worker of a lab.
#[derive(Default)]
pub(super) struct Lifetime {
    has_ended: AtomicBool,
    /// Whether its engine was dropped.
    engine_dropped: watch::Sender<bool>,
}

impl Lifetime {
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    pub(super) fn mark_engine_dropped(&self) {
        self.engine_dropped.send_replace(true);
    }

    /// Returns once the engine was dropped.
    pub(super) async fn engine_dropped(&self) {
        let _ = self.engine_dropped.subscribe().wait_for(|dropped| *dropped).await;
    }
}
