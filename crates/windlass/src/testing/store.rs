//! A store whose clock is virtual, and which dies at a commit if it is told to.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, RwLock, RwLockReadGuard, watch};
use windlass_env::VirtualClock;
use windlass_model::{
    Change, ClaimNo, CommitOutcome, JobClaim, JobId, Limits, NewJob, NewSignal, SubmitOutcome, Time, WorkerId,
};
use windlass_store::{
    Actor, AdminAction, CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Control, ControlOutcome,
    Error, Fork, Fut, Inspect, JobAction, JobEnd, NewWorker, Now, PollReport, Prune, Pruned, ReapReport,
    ReapRequest, RenewRequest, Renewal, SignalOutcome, StageUpdate, Store, TimerReport, Work,
};

/// So long that no lease runs out when the clock is set forward.
const LEASE: Duration = Duration::from_secs(90 * 365 * 86_400);

/// Where, and how, a worker dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Crash {
    /// At which commit, counted from 0.
    pub(super) at: usize,
    /// Whether that commit is applied.
    pub(super) applied: bool,
}

/// What all handles of one store in a lab share.
pub(super) struct Shared {
    /// The date of the store and of its workers.
    pub(super) clock: Arc<VirtualClock>,
    /// How many changes were brought to the store.
    pub(super) commits: AtomicUsize,
    pub(super) crash: Mutex<Option<Crash>>,
    /// Told when the worker has died.
    pub(super) died: Notify,
    pub(super) is_dead: AtomicBool,
    /// Told of every verb that may have moved a job.
    pub(super) moved: Notify,
    /// How many such verbs there were.
    verbs: AtomicUsize,
    /// JobClaim by verbs that are under way, and by whoever sets the clock: a verb sees one time.
    gate: RwLock<()>,
}

impl Shared {
    pub(super) fn new(clock: VirtualClock, crash: Option<Crash>) -> Shared {
        Shared {
            clock: Arc::new(clock),
            commits: AtomicUsize::new(0),
            crash: Mutex::new(crash),
            died: Notify::new(),
            is_dead: AtomicBool::new(false),
            moved: Notify::new(),
            verbs: AtomicUsize::new(0),
            gate: RwLock::new(()),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn set(&self, now: Time) {
        self.clock.set(now);
    }

    /// Whether the worker dies at the next of `changes` commits, and if so how.
    fn crashes_now(&self, changes: usize) -> Option<Crash> {
        let first = self.commits.fetch_add(changes, Ordering::SeqCst);
        let mut crash = self.crash.lock().unwrap_or_else(|e| e.into_inner());
        crash.take_if(|crash| (first..first + changes).contains(&crash.at))
    }

    /// How many verbs there were, when none was under way.
    pub(super) async fn verbs(&self) -> usize {
        let _gate = self.gate.write().await;
        self.verbs.load(Ordering::SeqCst)
    }

    /// Sets the clock, unless there were more verbs meanwhile. Whether there were none.
    pub(super) async fn set_if_still(&self, verbs: usize, now: Option<Time>) -> bool {
        let _gate = self.gate.write().await;
        let still = self.verbs.load(Ordering::SeqCst) == verbs;
        if let Some(now) = now.filter(|_| still) {
            self.set(now);
        }
        still
    }

    /// Counts a verb for as long as the answer lives.
    async fn moving(&self) -> Moving<'_> {
        Moving { shared: self, _gate: self.gate.read().await }
    }

    /// Tells the lab that the worker has died.
    fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
    }
}

/// A verb under way.
struct Moving<'a> {
    shared: &'a Shared,
    _gate: RwLockReadGuard<'a, ()>,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.shared.verbs.fetch_add(1, Ordering::SeqCst);
        self.shared.moved.notify_one();
    }
}

/// The life of one worker.
#[derive(Default)]
pub(super) struct Life {
    over: AtomicBool,
    /// Told when its engine is gone.
    grave: watch::Sender<bool>,
}

impl Life {
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(super) fn mark_dead(&self) {
        self.grave.send_replace(true);
    }

    async fn buried(&self) {
        let _ = self.grave.subscribe().wait_for(|buried| *buried).await;
    }
}

/// A store whose clock is virtual. One handle is one life of a worker: after a crash nothing goes through it any more.
pub(super) struct VirtualStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) shared: Arc<Shared>,
    /// The life of this handle's worker.
    pub(super) life: Arc<Life>,
}

impl VirtualStore {
    fn now(&self, now: Now) -> Now {
        now.or_else(|| Some(self.shared.now()))
    }

    /// What comes from outside goes through whether the worker lives or not.
    async fn store_moved<T>(&self, verb: impl Future<Output = T>) -> T {
        let _moving = self.shared.moving().await;
        verb.await
    }

    /// Nothing goes through a handle whose worker has died: whoever asks hears nothing until the engine is gone, and then
    /// an error, so that it ends.
    async fn alive(&self) -> Result<(), Error> {
        if !self.life.is_over() {
            return Ok(());
        }
        self.life.buried().await;
        Err(Error::Unavailable("the worker has died".into()))
    }

    /// The worker dies here.
    async fn die<T>(&self) -> Result<T, Error> {
        self.life.end();
        self.shared.die();
        self.alive().await?;
        Err(Error::Dead)
    }
}

/// A verb that is told the virtual time.
macro_rules! verb {
    ($self:ident, $now:ident, $verb:ident($($argument:expr),*)) => {
        Box::pin(async move {
            $self.alive().await?;
            let _moving = $self.shared.moving().await;
            $self.store.$verb($self.now($now), $($argument),*).await
        })
    };
}

impl Store for VirtualStore {
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        Box::pin(async move {
            let worker = NewWorker { lease: LEASE, ..worker.clone() };
            self.store.register_worker(self.now(now), &worker).await
        })
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        Box::pin(self.store_moved(async move { self.store.submit(self.now(now), jobs, born).await }))
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        verb!(self, now, claim(ask))
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            self.alive().await?;
            if let Some(crash) = self.shared.crashes_now(changes.len()) {
                if crash.applied {
                    let _moving = self.shared.moving().await;
                    self.store.commit(self.now(now), changes).await?;
                }
                return self.die().await;
            }
            let _moving = self.shared.moving().await;
            self.store.commit(self.now(now), changes).await
        })
    }

    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        Box::pin(async move {
            self.alive().await?;
            if let Some(crash) = self.shared.crashes_now(1) {
                let moving = self.shared.moving().await;
                if crash.applied {
                    self.store.transact(self.now(now), work).await?;
                } else {
                    // The user's writes are made and never committed.
                    self.store.transact(self.now(now), undone(work)).await?;
                }
                drop(moving);
                return self.die().await;
            }
            let _moving = self.shared.moving().await;
            self.store.transact(self.now(now), work).await
        })
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        Box::pin(self.store_moved(async move { self.store.signal(self.now(now), signals).await }))
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(async move {
            self.alive().await?;
            let beat = RenewRequest { lease: LEASE, ..beat.clone() };
            self.store.renew(self.now(now), &beat).await
        })
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a ReapRequest) -> Fut<'a, ReapReport> {
        verb!(self, now, reap(sweep))
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        verb!(self, now, release(jobs))
    }

    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        verb!(self, now, release_claims(worker, numbers))
    }

    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        verb!(self, now, retire_worker(worker))
    }

    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport> {
        verb!(self, now, fire_timers(limit))
    }

    fn repair(&self, now: Now) -> Fut<'_, usize> {
        verb!(self, now, repair())
    }

    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport> {
        verb!(self, now, poll_branches(limit))
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        self.store.cancel_requests(worker)
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        self.store.gates(queues)
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        self.store.job_ends(ids)
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let store = self.store.sibling().await?;
            let (shared, life) = (Arc::clone(&self.shared), Arc::clone(&self.life));
            Ok(Arc::new(VirtualStore { store, shared, life }) as Arc<dyn Store>)
        })
    }

    fn inspect(&self) -> &dyn Inspect {
        self.store.inspect()
    }

    fn control(&self) -> &dyn Control {
        self
    }

    fn limits(&self) -> &Limits {
        self.store.limits()
    }

    /// None: a worker that dies here does so in a process that lives on.
    fn liveness_dir(&self) -> Option<std::path::PathBuf> {
        None
    }

    fn statements(&self) -> u64 {
        self.store.statements()
    }
}

/// The same work, rolled back at its end.
fn undone(work: Work<'_>) -> Work<'_> {
    match work {
        #[cfg(feature = "postgres")]
        Work::Postgres(work) => Work::Postgres(Box::new(move |tx| {
            let work = work(tx);
            Box::pin(async move {
                work.await;
                None
            })
        })),
        #[cfg(feature = "sqlite")]
        Work::Sqlite(work) => Work::Sqlite(Box::new(move |connection| {
            work(connection);
            None
        })),
    }
}

impl Control for VirtualStore {
    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        act: JobAction,
        by: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(
            self.store_moved(
                async move { self.store.control().act_on_jobs(self.now(now), jobs, act, by).await },
            ),
        )
    }

    fn administer<'a>(&'a self, now: Now, rule: &'a AdminAction, by: &'a Actor) -> Fut<'a, ControlOutcome> {
        Box::pin(
            self.store_moved(async move { self.store.control().administer(self.now(now), rule, by).await }),
        )
    }

    fn update_stages<'a>(
        &'a self,
        now: Now,
        jobs: &'a [StageUpdate],
        by: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(
            self.store_moved(
                async move { self.store.control().update_stages(self.now(now), jobs, by).await },
            ),
        )
    }

    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], by: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(self.store_moved(async move { self.store.control().fork(self.now(now), forks, by).await }))
    }

    fn record_audit<'a>(&'a self, now: Now, action: &'a str, subject: &'a str, by: &'a Actor) -> Fut<'a, ()> {
        Box::pin(self.store_moved(async move {
            self.store.control().record_audit(self.now(now), action, subject, by).await
        }))
    }

    fn prune<'a>(&'a self, now: Now, prune: &'a Prune) -> Fut<'a, Pruned> {
        Box::pin(self.store_moved(async move { self.store.control().prune(self.now(now), prune).await }))
    }
}

/// What a store in a lab says when it cannot be opened.
pub(super) fn opened<T>(answer: Result<T, Error>, url: &str) -> T {
    answer.unwrap_or_else(|error| panic!("the store {url} of the lab: {error}"))
}
