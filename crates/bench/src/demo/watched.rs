//! A store that is watched: the real one, with every answer to a commit recorded, and a gate in front of it.
//!
//! The gate is what makes it possible to freeze a worker at a known point. A process that is stopped inside a SQLite
//! write would block every other; so the gate is shut first, which waits until no call is under way. Once the process is
//! woken, commits are let through before anything else, so that the zombie tries to write before it learns that it was
//! declared dead.

use std::{path::PathBuf, sync::Arc};

use tokio::sync::watch;
use windlass::{
    JobId, Time,
    model::{Change, ClaimNo, CommitOutcome, JobClaim, Limits, NewJob, NewSignal, SubmitOutcome, WorkerId},
    store::{
        CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Control, Fut, Inspect, JobEnd, NewWorker,
        Now, ReapReport, ReapRequest, RenewRequest, Renewal, SignalOutcome, Store, TimerReport,
    },
};

use super::record::Record;

/// Who may pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Shut,
    /// Woken: commits only.
    Zombie,
}

/// Counts who is inside, and lets nobody in while it is shut.
pub(super) struct Gate(watch::Sender<(Phase, usize)>);

struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|(_, inside)| *inside -= 1);
    }
}

impl Gate {
    pub(super) fn new() -> Arc<Gate> {
        Arc::new(Gate(watch::channel((Phase::Open, 0)).0))
    }

    async fn enter(&self, commit: bool) -> Inside<'_> {
        let may = |phase: Phase| phase == Phase::Open || (commit && phase == Phase::Zombie);
        let mut changes = self.0.subscribe();
        loop {
            let entered = self.0.send_if_modified(|(phase, inside)| {
                *inside += usize::from(may(*phase));
                may(*phase)
            });
            if entered {
                return Inside(self);
            }
            // The sender is part of this gate, so it is there.
            let _ = changes.wait_for(|(phase, _)| may(*phase)).await;
        }
    }

    /// Shuts the gate and returns when nobody is inside.
    pub(super) async fn shut(&self) {
        self.0.send_modify(|(phase, _)| *phase = Phase::Shut);
        let _ = self.0.subscribe().wait_for(|(_, inside)| *inside == 0).await;
    }

    pub(super) fn wake(&self) {
        self.0.send_modify(|(phase, _)| *phase = Phase::Zombie);
    }

    pub(super) fn open(&self) {
        self.0.send_modify(|(phase, _)| *phase = Phase::Open);
    }

    fn is_zombie(&self) -> bool {
        self.0.borrow().0 == Phase::Zombie
    }
}

/// The watched store.
pub(super) struct Watched {
    pub(super) store: Arc<dyn Store>,
    pub(super) gate: Arc<Gate>,
    pub(super) record: Arc<Record>,
    /// Told of answers: how many outcomes were final and committed, and how many were fenced.
    pub(super) told: fn(usize, usize),
    /// The job that is held, once it is.
    pub(super) held: Arc<std::sync::OnceLock<JobId>>,
}

impl Watched {
    fn answered(&self, changes: &[Change], verdicts: &[CommitOutcome]) {
        self.record.answers(changes, verdicts);
        let is_final = |change: &Change| !matches!(change.outcome, windlass::model::Outcome::Retry { .. });
        let pairs = || changes.iter().zip(verdicts);
        let done = pairs()
            .filter(|(change, verdict)| is_final(change) && **verdict == CommitOutcome::Committed)
            .count();
        let fenced = pairs().filter(|(_, verdict)| **verdict == CommitOutcome::Fenced).count();
        (self.told)(done, fenced);
        if self.gate.is_zombie() && changes.iter().any(|change| Some(&change.job) == self.held.get()) {
            self.gate.open();
        }
    }
}

/// A verb behind the gate.
macro_rules! behind {
    ($self:ident, $verb:ident($($argument:expr),*)) => {
        Box::pin(async move {
            let _inside = $self.gate.enter(false).await;
            $self.store.$verb($($argument),*).await
        })
    };
}

impl Store for Watched {
    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            let verdicts = {
                let _inside = self.gate.enter(true).await;
                self.store.commit(now, changes).await?
            };
            self.answered(changes, &verdicts);
            Ok(verdicts)
        })
    }

    fn transact<'a>(&'a self, now: Now, work: windlass::store::Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        behind!(self, transact(now, work))
    }

    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        behind!(self, register_worker(now, worker))
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        behind!(self, submit(now, jobs, born))
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        behind!(self, claim(now, ask))
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        behind!(self, signal(now, signals))
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a RenewRequest) -> Fut<'a, Renewal> {
        behind!(self, renew(now, beat))
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a ReapRequest) -> Fut<'a, ReapReport> {
        behind!(self, reap(now, sweep))
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        behind!(self, release(now, jobs))
    }

    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        behind!(self, release_claims(now, worker, numbers))
    }

    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        behind!(self, retire_worker(now, worker))
    }

    fn fire_timers(&self, now: Option<Time>, limit: usize) -> Fut<'_, TimerReport> {
        behind!(self, fire_timers(now, limit))
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        behind!(self, gates(queues))
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        behind!(self, job_ends(ids))
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let store = self.store.sibling().await?;
            let (gate, record, held) =
                (Arc::clone(&self.gate), Arc::clone(&self.record), Arc::clone(&self.held));
            let sibling: Arc<dyn Store> = Arc::new(Watched { store, gate, record, told: self.told, held });
            Ok(sibling)
        })
    }

    fn inspect(&self) -> &dyn Inspect {
        self.store.inspect()
    }

    fn control(&self) -> &dyn Control {
        self.store.control()
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        behind!(self, cancel_requests(worker))
    }

    fn repair(&self, now: Option<Time>) -> Fut<'_, usize> {
        behind!(self, repair(now))
    }

    fn poll_branches(&self, now: Option<Time>, limit: usize) -> Fut<'_, windlass::store::PollReport> {
        behind!(self, poll_branches(now, limit))
    }

    fn limits(&self) -> &Limits {
        self.store.limits()
    }

    fn liveness_dir(&self) -> Option<PathBuf> {
        self.store.liveness_dir()
    }

    fn statements(&self) -> u64 {
        self.store.statements()
    }
}
