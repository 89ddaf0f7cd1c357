//! A worker: all loops together, from enlisting to retiring.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};
use windlass_model::{Change, ClaimNo, Outcome, Step, Wait, WorkerId};
use windlass_store::{Error, IdSource, JobEnd, NewWorker, Serves, Store};

use crate::{
    Config, Pool, Registry, Stats, Submitter, Waiters, branches,
    cancellations::{self, Cancellations},
    committer::Committer,
    feeder,
    gatekeeper::{self, Gatekeeper},
    ledger::Ledger,
    liveness::LivenessFile,
    metrics::{Metrics, Verb},
    pool::QueuePool,
    pruner,
    releaser::{self, Claim, Releaser},
    renewer,
    retrying::Backoff,
    solo_lock::SoloLock,
    stats::add,
    suspects,
    timekeeper::{self, Timekeeper},
};

/// What all loops of a worker share.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
    pub(crate) pools: Vec<Arc<QueuePool>>,
    pub(crate) committer: Committer,
    pub(crate) ledger: Ledger,
    pub(crate) releaser: Arc<Releaser>,
    pub(crate) solo_lock: SoloLock,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) timekeeper: Timekeeper,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) metrics: Arc<Metrics>,
    /// The runtime that this worker's tasks run on, whoever's call starts them.
    pub(crate) runtime: tokio::runtime::Handle,
    /// Told when suspects wait.
    pub(crate) suspects: Notify,
    pub(crate) cancellations: Cancellations,
    /// Told when branches are to be looked at.
    pub(crate) branches: Notify,
    /// How many suspects are being run.
    pub(crate) alone: AtomicUsize,
    /// Told when the lease is to be renewed now.
    pub(crate) renew: Notify,
    /// Told when it was.
    pub(crate) renewed: Notify,
    id: AtomicI64,
    ids: IdSource,
    beacon: Mutex<Option<LivenessFile>>,
    started: Instant,
    /// Until when the lease is known to hold, in microseconds after `started`.
    lease_until: AtomicU64,
    stop: watch::Sender<Stop>,
    /// Told to attempts that should end.
    cancel: watch::Sender<bool>,
    /// Told to attempts that are given up: their worker was declared dead, its patience is over, or the store has lost their
    /// claim.
    abort: watch::Sender<Abort>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stop {
    No,
    /// Claim nothing more.
    Draining,
    /// All is over.
    Stopped,
}

/// Which attempts are given up: those of claims of another worker than the living one, of lost claims, or all.
#[derive(Default)]
struct Abort {
    /// This worker's name; `None` from when it was declared dead until it has another.
    living: Option<WorkerId>,
    /// Claims that the store has lost. Numbers are not used again, and few claims are ever lost.
    lost: HashSet<ClaimNo>,
    /// Whether the worker has stopped.
    all: bool,
}

impl Abort {
    fn has(&self, claim: &Claim) -> bool {
        self.all || self.living != Some(claim.worker) || self.lost.contains(&claim.number)
    }
}

/// Waits for the end of attempts from outside; see [`Core::aborted`].
pub(crate) struct Aborted(watch::Receiver<Abort>);

impl Aborted {
    /// Returns when the attempts under a claim are given up, or at once if they were before.
    pub(crate) async fn of(&mut self, claim: &Claim) {
        // Nobody is left to say so when the worker is gone.
        let _ = self.0.wait_for(|abort| abort.has(claim)).await;
    }
}

impl Core {
    pub(crate) fn worker(&self) -> WorkerId {
        WorkerId(self.id.load(Ordering::Acquire))
    }

    pub(crate) fn lease_holds(&self) -> bool {
        (self.started.elapsed().as_micros() as u64) < self.lease_until.load(Ordering::Acquire)
    }

    pub(crate) fn set_lease(&self, until: Instant) {
        self.lease_until.store((until - self.started).as_micros() as u64, Ordering::Release);
    }

    /// Whether this worker works and its lease is known to hold.
    pub(crate) fn is_healthy(&self) -> bool {
        self.lease_holds() && *self.stop.borrow() < Stop::Stopped
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow() >= Stop::Draining
    }

    /// Returns when the worker begins to stop.
    pub(crate) async fn stopping(&self) {
        let mut stop = self.stop.subscribe();
        let _ = stop.wait_for(|stop| *stop >= Stop::Draining).await;
    }

    /// Returns when the worker has stopped.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        let _ = stop.wait_for(|stop| *stop == Stop::Stopped).await;
    }

    pub(crate) fn cancelled(&self) -> watch::Receiver<bool> {
        self.cancel.subscribe()
    }

    /// What is told when attempts are given up.
    pub(crate) fn aborted(&self) -> Aborted {
        Aborted(self.abort.subscribe())
    }

    /// Whether attempts under a claim are given up.
    pub(crate) fn is_given_up(&self, claim: &Claim) -> bool {
        self.abort.borrow().has(claim)
    }

    /// Tells the store that a claim no longer runs alone, and returns when it has heard.
    pub(crate) async fn joined(&self, number: ClaimNo) {
        self.ledger.joined(number);
        while self.ledger.is_joining(number) {
            let renewed = self.renewed.notified();
            let mut renewed = std::pin::pin!(renewed);
            renewed.as_mut().enable();
            self.renew.notify_one();
            tokio::select! {
                () = renewed => {}
                () = self.stopping() => return,
            }
        }
    }

    /// What follows from a committed change: who waits is told, timers and feeders here are moved.
    pub(crate) fn committed(&self, change: Change, pool: &Arc<QueuePool>) {
        let counts = change.parent.is_some() || change.branch_member.is_some();
        if change.is_serial || (counts && change.outcome.ends()) {
            // A slot of its serial key may have been handed over, or its parent woken, in whichever queue.
            self.pools.iter().for_each(|pool| pool.wake());
        }
        match change.outcome {
            Outcome::Retry { after, .. } if after.is_zero() => pool.wake(),
            Outcome::Retry { after, .. } => self.timekeeper.set(after),
            Outcome::Next => self.note_children(change.step.as_deref()),
            Outcome::Wait(Wait { timeout, .. }) => {
                if let Some(timeout) = timeout {
                    self.timekeeper.set(timeout);
                }
                // It may be ready again already, or its children are.
                match change.step.is_some_and(|step| !step.children.is_empty()) {
                    true => self.pools.iter().for_each(|pool| pool.wake()),
                    false => pool.wake(),
                }
            }
            outcome if self.waiters.wants(change.job) => {
                let ended = match outcome {
                    Outcome::Done(output) => JobEnd::Done(output),
                    Outcome::Failed { reason, failure } => JobEnd::Failed { reason, failure },
                    Outcome::Cancelled(failure) => JobEnd::Cancelled(failure),
                    Outcome::Retry { .. } | Outcome::Next | Outcome::Wait(_) => unreachable!("handled above"),
                };
                self.waiters.notify(change.job, &ended);
            }
            _ => {}
        }
    }

    /// A step has put jobs in, perhaps, and done something to branches.
    fn note_children(&self, step: Option<&Step>) {
        let Some(step) = step else { return };
        if !step.children.is_empty() || !step.promoted.is_empty() {
            self.pools.iter().for_each(|pool| pool.wake());
        }
        if step.branches.iter().any(|grow| grow.cancel_children) {
            self.branches.notify_one();
        }
    }

    /// This worker was declared dead: what it holds is void. It drops all of it and goes on under a new name.
    pub(crate) async fn declared_dead(&self, worker: WorkerId, store: &dyn Store) {
        // One of those who find that out sees to it, and nobody does so late, under the next name.
        let is_living = |abort: &mut Abort| abort.living.take_if(|living| *living == worker).is_some();
        if !self.abort.send_if_modified(is_living) {
            return;
        }
        tracing::error!(%worker, "this worker was declared dead for not renewing in time: all it held is fenced");
        self.lease_until.store(0, Ordering::Release);
        self.ledger.forget();
        self.releaser.forget();
        for pool in &self.pools {
            add(&self.stats.fenced, pool.empty(false).len());
        }
        let mut backoff = Backoff::new("enlisting");
        while !self.is_stopping() {
            match self.enlist(store).await {
                Ok(()) => break,
                Err(error) => {
                    self.metrics.failed(Verb::Enlist);
                    backoff.wait(&error).await;
                }
            }
        }
        self.pools.iter().for_each(|pool| pool.wake());
    }

    /// The store does not know claims that it answered before: it was restored from a backup, or is a standby that had not got
    /// everything. Others may have the jobs, and whatever attempts at them write is fenced: they are dropped.
    pub(crate) fn claims_lost(&self, claims: &[ClaimNo]) {
        tracing::error!(
            claims = claims.len(),
            "the store has lost claims of this worker; the attempts under them are dropped"
        );
        // First of all, so that what is dropped is not handed back: the jobs may be another worker's by now.
        self.abort.send_modify(|abort| abort.lost.extend(claims));
        for pool in &self.pools {
            add(&self.stats.fenced, pool.remove(claims));
        }
    }

    /// Whether the store has lost a claim of this worker.
    pub(crate) fn is_lost(&self, claim: ClaimNo) -> bool {
        self.abort.borrow().lost.contains(&claim)
    }

    /// Takes a new name, lights its beacon and enlists.
    async fn enlist(&self, store: &dyn Store) -> Result<(), Error> {
        loop {
            let id = self.ids.worker();
            let beacon = store.liveness_dir().and_then(|dir| match LivenessFile::create(&dir, id) {
                Ok(beacon) => Some(beacon),
                Err(error) => {
                    tracing::debug!(%error, "no beacon: others will know of this worker's death by its lease alone");
                    None
                }
            });
            let path = beacon.as_ref().map(|beacon| beacon.path().display().to_string());
            let started = Instant::now();
            let serves = |pool: &Arc<QueuePool>| Serves {
                queue: pool.queue.clone(),
                slots: pool.config.slots,
                kinds: pool.kinds.to_vec(),
            };
            let new = NewWorker {
                id,
                name: self.config.name.clone(),
                liveness_file: path,
                lease: self.config.lease,
                serves: self.pools.iter().map(serves).collect(),
            };
            if store.register_worker(None, &new).await? {
                *self.beacon.lock().unwrap_or_else(|e| e.into_inner()) = beacon;
                // First, so that nothing is claimed under a name that does not live.
                self.abort.send_modify(|abort| abort.living = Some(id));
                self.id.store(id.0, Ordering::Release);
                self.set_lease(started + self.config.lease);
                return Ok(());
            }
        }
    }
}

/// One process working on a store.
pub struct Worker {
    core: Arc<Core>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    renewer: Option<std::thread::JoinHandle<()>>,
}

impl Worker {
    /// Enlists and starts all loops. Every pool serves all kinds of the registry.
    pub async fn start(
        store: Arc<dyn Store>,
        registry: Registry,
        pools: Vec<(String, Pool)>,
        submitter: &Arc<Submitter>,
        waiters: Arc<Waiters>,
        flights: usize,
        config: Config,
    ) -> Result<Worker, Error> {
        config.check().map_err(Error::Config)?;
        pools.iter().try_for_each(|(queue, pool)| pool.check(queue)).map_err(Error::Config)?;
        let kinds: Arc<[_]> = registry.kinds().into();
        let pools = pools
            .into_iter()
            .map(|(queue, pool)| Arc::new(QueuePool::new(queue, pool, Arc::clone(&kinds))))
            .collect();
        let metrics = Arc::new(Metrics::new(&kinds));
        let core = Arc::new(Core {
            committer: Committer::new(flights, config.backlog),
            config,
            store,
            registry,
            pools,
            ledger: Ledger::default(),
            releaser: Arc::default(),
            solo_lock: SoloLock::default(),
            gatekeeper: Gatekeeper::default(),
            timekeeper: Timekeeper::default(),
            waiters,
            stats: Arc::new(Stats::default()),
            metrics,
            runtime: tokio::runtime::Handle::current(),
            suspects: Notify::new(),
            cancellations: Cancellations::default(),
            branches: Notify::new(),
            alone: AtomicUsize::new(0),
            renew: Notify::new(),
            renewed: Notify::new(),
            id: AtomicI64::new(0),
            ids: IdSource::new(),
            beacon: Mutex::default(),
            started: Instant::now(),
            lease_until: AtomicU64::new(0),
            stop: watch::channel(Stop::No).0,
            cancel: watch::channel(false).0,
            abort: watch::channel(Abort::default()).0,
        });
        core.enlist(&*core.store).await?;
        // What a predecessor on this machine left when it died is returned before anything else.
        renewer::reap_local(&core, &*core.store, &mut Default::default()).await;
        let mut tasks = Vec::new();
        for _ in 0..flights.max(1) {
            tasks.push(tokio::spawn(Committer::run(Arc::clone(&core))));
        }
        for (place, pool) in core.pools.iter().enumerate() {
            tasks.push(tokio::spawn(feeder::run(Arc::clone(&core), Arc::clone(pool), place)));
        }
        tasks.push(tokio::spawn(gatekeeper::run(Arc::clone(&core))));
        tasks.push(tokio::spawn(timekeeper::run(Arc::clone(&core))));
        tasks.push(tokio::spawn(suspects::run(Arc::clone(&core))));
        tasks.push(tokio::spawn(cancellations::run(Arc::clone(&core))));
        tasks.push(tokio::spawn(branches::run(Arc::clone(&core))));
        tasks.push(tokio::spawn(releaser::run(Arc::clone(&core))));
        tasks.push(tokio::spawn(pruner::run(Arc::clone(&core))));
        let renewer =
            renewer::spawn(Arc::clone(&core)).map_err(|e| Error::Fault(format!("no thread: {e}")))?;
        submitter.attach(&core);
        Ok(Worker { core, tasks, renewer: Some(renewer) })
    }

    /// This worker's name now.
    pub fn id(&self) -> WorkerId {
        self.core.worker()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What it has done.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.core.stats
    }

    /// Stops: claims nothing more, hands back what has not started, waits for what runs up to the configured time,
    /// commits, and retires. Answers how many attempts had to be given up.
    pub async fn stop(&mut self) -> usize {
        let core = &self.core;
        core.stop.send_replace(Stop::Draining);
        // What has not started is handed back as it is dropped.
        core.pools.iter().for_each(|pool| drop(pool.empty(true)));
        let deadline = Instant::now() + core.config.drain;
        let left = self.drain(deadline).await;
        if left > 0 {
            tracing::warn!(
                left,
                "attempts did not end in time; they are given up and their jobs handed back"
            );
            core.cancel.send_replace(true);
            let left = self.drain(Instant::now() + Duration::from_millis(500)).await;
            if left > 0 {
                core.abort.send_modify(|abort| abort.all = true);
                self.drain(Instant::now() + Duration::from_millis(500)).await;
            }
        }
        let flushed = tokio::time::timeout(Duration::from_secs(10), core.committer.flushed()).await;
        if flushed.is_err() {
            tracing::warn!("the store is away; what could not be committed is left to the reaper");
        }
        let deadline = deadline.max(Instant::now() + Duration::from_millis(500));
        if tokio::time::timeout_at(deadline.into(), core.releaser.emptied()).await.is_err() {
            let jobs = core.releaser.waiting();
            tracing::warn!(jobs, "jobs could not be handed back in time; they are as the worker retires");
        }
        core.releaser.close();
        self.tasks.drain(..).for_each(|task| task.abort());
        core.committer.close();
        let retired =
            tokio::time::timeout(Duration::from_secs(5), core.store.retire_worker(None, core.worker())).await;
        match retired {
            Ok(Ok(released)) => add(&core.stats.released, released),
            Ok(Err(error)) => {
                core.metrics.failed(Verb::Retire);
                tracing::warn!(%error, "the worker could not retire; its lease will run out");
            }
            Err(_) => tracing::warn!("the worker could not retire in time; its lease will run out"),
        }
        core.stop.send_replace(Stop::Stopped);
        *core.beacon.lock().unwrap_or_else(|e| e.into_inner()) = None;
        if let Some(renewer) = self.renewer.take() {
            let _ = tokio::task::spawn_blocking(move || renewer.join()).await;
        }
        left
    }

    /// Waits until nothing runs, or the time is over; answers how many attempts still run.
    async fn drain(&self, deadline: Instant) -> usize {
        for pool in &self.core.pools {
            loop {
                let ended = pool.ended.notified();
                let mut ended = std::pin::pin!(ended);
                ended.as_mut().enable();
                if pool.running() == 0 || tokio::time::timeout_at(deadline.into(), ended).await.is_err() {
                    break;
                }
            }
        }
        while self.core.alone.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let alone = self.core.alone.load(Ordering::Acquire);
        self.core.pools.iter().map(|pool| pool.running()).sum::<usize>() + alone
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.core.releaser.close();
        self.tasks.iter().for_each(|task| task.abort());
        self.core.committer.close();
        let before = self.core.stop.send_replace(Stop::Stopped);
        if before != Stop::Stopped {
            // Dropped without having been stopped: others are to see at once that nobody works on its claims.
            for pool in &self.core.pools {
                pool.empty(true);
            }
            if let Some(beacon) = self.core.beacon.lock().unwrap_or_else(|e| e.into_inner()).take() {
                beacon.abandon();
            }
            self.core.abort.send_modify(|abort| abort.all = true);
        }
    }
}
