//! A store that records the outcome of every commit, with a gate in front of it.
//!
//! The gate makes it possible to freeze a worker at a known point. A process that is stopped inside a SQLite write would block every
//! other; so the gate is shut first, which waits until no call is in progress. Once the process is woken, the gate admits commits
//! first, so that the zombie tries to write before it learns that it was declared dead.

use std::sync::Arc;

use tokio::sync::watch;
use windlass::{
    JobId, Time,
    model::{Change, ClaimNo, CommitOutcome, JobClaim, NewJob, NewSignal, SubmitOutcome, WorkerId},
    store::{
        CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Fut, JobEnd, NewWorker, Now, ReapReport,
        ReapRequest, RenewRequest, Renewal, SignalOutcome, Store, TimerReport, Wrapper,
    },
};

use super::record::Record;

/// Which calls may enter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Shut,
    /// Woken: commits only.
    Zombie,
}

/// Counts the calls in progress, and admits none while it is shut.
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
            // The sender is part of this gate, so the channel is open.
            let _ = changes.wait_for(|(phase, _)| may(*phase)).await;
        }
    }

    /// Shuts the gate, and returns when no call is in progress.
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

/// A store whose commits are recorded.
pub(super) struct RecordingStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) gate: Arc<Gate>,
    pub(super) record: Arc<Record>,
    /// Called after each commit: how many outcomes were final and committed, and how many were fenced.
    pub(super) on_commit: fn(usize, usize),
    /// The job that is held, once there is one.
    pub(super) held: Arc<std::sync::OnceLock<JobId>>,
}

impl RecordingStore {
    fn answered(&self, changes: &[Change], outcomes: &[CommitOutcome]) {
        self.record.answers(changes, outcomes);
        let is_final = |change: &Change| !matches!(change.outcome, windlass::model::Outcome::Retry { .. });
        let pairs = || changes.iter().zip(outcomes);
        let done = pairs()
            .filter(|(change, outcome)| is_final(change) && **outcome == CommitOutcome::Committed)
            .count();
        let fenced = pairs().filter(|(_, outcome)| **outcome == CommitOutcome::Fenced).count();
        (self.on_commit)(done, fenced);
        if self.gate.is_zombie() && changes.iter().any(|change| Some(&change.job) == self.held.get()) {
            self.gate.open();
        }
    }
}

/// Calls a verb behind the gate.
macro_rules! gated {
    ($self:ident, $verb:ident($($argument:expr),*)) => {
        Box::pin(async move {
            let _inside = $self.gate.enter(false).await;
            $self.store.$verb($($argument),*).await
        })
    };
}

impl Wrapper for RecordingStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            let outcomes = {
                let _inside = self.gate.enter(true).await;
                self.store.commit(now, changes).await?
            };
            self.answered(changes, &outcomes);
            Ok(outcomes)
        })
    }

    fn transact<'a>(&'a self, now: Now, work: windlass::store::Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        gated!(self, transact(now, work))
    }

    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        gated!(self, register_worker(now, worker))
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        claim_on_submit: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        gated!(self, submit(now, jobs, claim_on_submit))
    }

    fn claim<'a>(&'a self, now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        gated!(self, claim(now, request))
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        gated!(self, signal(now, signals))
    }

    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal> {
        gated!(self, renew(now, request))
    }

    fn reap<'a>(&'a self, now: Now, request: &'a ReapRequest) -> Fut<'a, ReapReport> {
        gated!(self, reap(now, request))
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        gated!(self, release(now, jobs))
    }

    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        gated!(self, release_claims(now, worker, numbers))
    }

    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        gated!(self, retire_worker(now, worker))
    }

    fn fire_timers(&self, now: Option<Time>, limit: usize) -> Fut<'_, TimerReport> {
        gated!(self, fire_timers(now, limit))
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        gated!(self, gates(queues))
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        gated!(self, job_ends(ids))
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let store = self.store.sibling().await?;
            let (gate, record, held) =
                (Arc::clone(&self.gate), Arc::clone(&self.record), Arc::clone(&self.held));
            let sibling: Arc<dyn Store> =
                Arc::new(RecordingStore { store, gate, record, on_commit: self.on_commit, held });
            Ok(sibling)
        })
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        gated!(self, cancel_requests(worker))
    }

    fn repair(&self, now: Option<Time>) -> Fut<'_, usize> {
        gated!(self, repair(now))
    }

    fn poll_branches(&self, now: Option<Time>, limit: usize) -> Fut<'_, windlass::store::PollReport> {
        gated!(self, poll_branches(now, limit))
    }
}
