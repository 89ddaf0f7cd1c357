//! The state that all loops of one worker share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::{Notify, watch};
use windlass_env::{Env, IdSource};
use windlass_model::WorkerId;
use windlass_store::Store;

use crate::{
    Config, Pool, Registry, Stats, Submitter, Waiters, abort::Aborts, cancellations::Cancellations,
    committer::Committer, direct::DirectPools, gatekeeper::Gatekeeper, ledger::Ledger,
    liveness::LivenessFile, pool::QueuePool, releaser::Releaser, solo_lock::SoloLock, telemetry::Metrics,
    timekeeper::Timekeeper,
};

/// The state that all loops of a worker share.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) env: Env,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
    /// One for each queue that is served.
    pub(crate) pools: Vec<Arc<QueuePool>>,
    pub(crate) direct_pools: DirectPools,
    pub(crate) committer: Committer,
    pub(crate) ledger: Ledger,
    pub(crate) releaser: Arc<Releaser>,
    pub(crate) aborts: Aborts,
    pub(crate) solo_lock: SoloLock,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) timekeeper: Timekeeper,
    pub(crate) cancellations: Cancellations,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) metrics: Arc<Metrics>,
    /// The runtime that this worker's tasks run on, also if a call on another runtime spawns them.
    pub(crate) runtime: tokio::runtime::Handle,
    /// Notified when there may be suspects to claim.
    pub(crate) suspects_changed: Notify,
    /// Notified when branches may have to be polled.
    pub(crate) branches_changed: Notify,
    /// How often this process has committed for workers elsewhere.
    pub(crate) commits_elsewhere: AtomicU64,
    /// The number of suspects that run, or are about to.
    pub(crate) running_suspects: AtomicUsize,
    /// Notified when the lease must be renewed now.
    pub(crate) renew_now: Notify,
    /// Notified after each renewal.
    pub(crate) renewed: Notify,
    /// Makes the ids that this worker registers under.
    pub(crate) ids: IdSource,
    /// Written at registration and at the end.
    pub(crate) liveness_file: Mutex<Option<LivenessFile>>,
    /// Written at registration.
    id: AtomicI64,
    started: Instant,
    /// Until when the lease is known to hold, in microseconds after `started`.
    lease_until: AtomicU64,
    /// Written by [`Worker`](crate::Worker).
    phase: watch::Sender<Phase>,
    /// Set when attempts should end because the drain time is over.
    cancel: watch::Sender<bool>,
}

/// How far a worker is with stopping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    Running,
    /// It claims no more jobs, and waits for running attempts.
    Draining,
    Stopped,
}

impl Core {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        registry: Registry,
        pools: Vec<(String, Pool)>,
        waiters: Arc<Waiters>,
        max_in_flight: usize,
        config: Config,
        submitter: &Submitter,
    ) -> Core {
        let env = submitter.env().clone();
        let kinds: Arc<[_]> = registry.kinds().into();
        let pools = pools
            .into_iter()
            .map(|(queue, pool)| Arc::new(QueuePool::new(queue, pool, Arc::clone(&kinds), env.clone())))
            .collect();
        Core {
            committer: Committer::new(max_in_flight, config.max_uncommitted, submitter.turns.clone()),
            config,
            store,
            registry,
            pools,
            direct_pools: DirectPools::default(),
            ledger: Ledger::default(),
            releaser: Arc::new(Releaser::new(env.clone())),
            aborts: Aborts::default(),
            solo_lock: SoloLock::default(),
            gatekeeper: Gatekeeper::default(),
            timekeeper: Timekeeper::new(env.clone()),
            cancellations: Cancellations::default(),
            waiters,
            stats: Arc::new(Stats::default()),
            metrics: Arc::new(Metrics::new(&kinds)),
            runtime: env.runtime(),
            suspects_changed: Notify::new(),
            branches_changed: Notify::new(),
            commits_elsewhere: AtomicU64::new(0),
            running_suspects: AtomicUsize::new(0),
            renew_now: Notify::new(),
            renewed: Notify::new(),
            ids: IdSource::new(env.clone()),
            liveness_file: Mutex::default(),
            id: AtomicI64::new(0),
            started: env.instant(),
            lease_until: AtomicU64::new(0),
            phase: watch::channel(Phase::Running).0,
            cancel: watch::channel(false).0,
            env,
        }
    }

    /// The id that this worker last registered under.
    pub(crate) fn worker(&self) -> WorkerId {
        WorkerId(self.id.load(Ordering::Acquire))
    }

    pub(crate) fn set_worker(&self, id: WorkerId) {
        self.id.store(id.0, Ordering::Release);
    }

    /// Whether the lease is known to hold.
    pub(crate) fn lease_holds(&self) -> bool {
        (self.env.since(self.started).as_micros() as u64) < self.lease_until.load(Ordering::Acquire)
    }

    pub(crate) fn set_lease(&self, until: Instant) {
        self.lease_until.store((until - self.started).as_micros() as u64, Ordering::Release);
    }

    pub(crate) fn clear_lease(&self) {
        self.lease_until.store(0, Ordering::Release);
    }

    /// Whether this worker has not stopped and its lease is known to hold.
    pub(crate) fn is_healthy(&self) -> bool {
        self.lease_holds() && *self.phase.borrow() < Phase::Stopped
    }

    /// Sets the phase, and returns the one before.
    pub(crate) fn set_phase(&self, phase: Phase) -> Phase {
        self.phase.send_replace(phase)
    }

    /// Whether the worker has begun to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.phase.borrow() >= Phase::Draining
    }

    /// Returns when the worker begins to stop.
    pub(crate) async fn stopping(&self) {
        let mut phase = self.phase.subscribe();
        let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
    }

    /// Returns when the worker has stopped.
    pub(crate) async fn stopped(&self) {
        let mut phase = self.phase.subscribe();
        let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
    }

    /// Asks all running attempts to end.
    pub(crate) fn cancel_attempts(&self) {
        self.cancel.send_replace(true);
    }

    pub(crate) fn cancelled(&self) -> watch::Receiver<bool> {
        self.cancel.subscribe()
    }

    /// Lets the pool of a queue claim, if the queue is served.
    pub(crate) fn wake_queue(&self, queue: &str) {
        if let Some(pool) = self.pools.iter().find(|pool| pool.queue == queue) {
            pool.wake();
        }
    }

    /// Lets every pool claim, since jobs may have become ready in any queue.
    pub(crate) fn wake_pools(&self) {
        self.pools.iter().for_each(|pool| pool.wake());
    }
}
