//! A store whose clock is virtual, and whose worker dies at a commit if a crash is planned there.

use std::{future::Future, sync::Arc, time::Duration};

use windlass_model::{
    Change, ClaimNo, CommitOutcome, JobClaim, JobId, NewJob, NewSignal, Outcome, SubmitOutcome, Time,
    WorkerId,
};
use windlass_store::{
    Actor, AdminAction, AsyncWork, ClaimBatch, ClaimOnSubmit, ClaimRequest, ControlOutcome, Error, Fork, Fut,
    JobAction, NewSession, NewWorker, Now, PollReport, Prune, Pruned, ReapReport, ReapRequest, RenewRequest,
    Renewal, SessionUse, SignalOutcome, StageUpdate, Store, TimerReport, Work, Wrapper,
};

use super::{
    shared::{Lifetime, Shared},
    timeouts::waits_for_sent_signal,
};

/// Long enough that no lease lapses when the clock is set forward.
const LEASE: Duration = Duration::from_secs(90 * 365 * 86_400);

/// A handle of a store whose clock is virtual. It belongs to one worker: after that worker has died, its calls reach the store
/// no more.
pub(super) struct VirtualStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) shared: Arc<Shared>,
    /// The lifetime of this handle's worker.
    pub(super) lifetime: Arc<Lifetime>,
}

impl VirtualStore {
    pub(super) fn now(&self, now: Now) -> Now {
        now.or_else(|| Some(self.shared.now()))
    }

    /// A call from outside, such as a submit: it reaches the store whether the worker lives or not.
    pub(super) async fn outside_call<T>(&self, call: impl Future<Output = T>) -> T {
        let _call = self.shared.begin_call().await;
        call.await
    }

    /// Returns at once while the worker lives. The calls of a dead worker get no answer until its engine was dropped, and
    /// then an error, so that its tasks end.
    async fn alive(&self) -> Result<(), Error> {
        if !self.lifetime.has_ended() {
            return Ok(());
        }
        self.lifetime.engine_dropped().await;
        Err(Error::Unavailable("the worker has died".into()))
    }

    /// The worker dies here.
    async fn die<T>(&self) -> Result<T, Error> {
        self.lifetime.end();
        self.shared.die();
        self.alive().await?;
        Err(Error::Dead)
    }
}

/// A call of the worker, at the virtual time.
macro_rules! worker_call {
    ($self:ident, $now:ident, $call:ident($($argument:expr),*)) => {
        Box::pin(async move {
            $self.alive().await?;
            let _call = $self.shared.begin_call().await;
            $self.store.$call($self.now($now), $($argument),*).await
        })
    };
}

impl Wrapper for VirtualStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

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
        claim: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        Box::pin(self.outside_call(async move { self.store.submit(self.now(now), jobs, claim).await }))
    }

    fn claim<'a>(&'a self, now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            self.alive().await?;
            let call = self.shared.begin_call().await;
            let batch = self.store.claim(self.now(now), request).await?;
            call.end_claim(request, &batch);
            Ok(batch)
        })
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            self.alive().await?;
            for change in changes {
                if let Outcome::Wait(wait) = &change.outcome
                    && waits_for_sent_signal(&wait.condition)
                {
                    self.shared.add_signal_wait(change.job);
                }
            }
            if let Some(crash) = self.shared.next_crash(changes.len()) {
                if crash.applied {
                    let _call = self.shared.begin_call().await;
                    self.store.commit(self.now(now), changes).await?;
                }
                return self.die().await;
            }
            let _call = self.shared.begin_call().await;
            self.store.commit(self.now(now), changes).await
        })
    }

    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        Box::pin(async move {
            self.alive().await?;
            if let Some(crash) = self.shared.next_crash(1) {
                let call = self.shared.begin_call().await;
                if crash.applied {
                    self.store.transact(self.now(now), work).await?;
                } else {
                    // The user's writes are made and never committed.
                    self.store.transact(self.now(now), rolled_back(work)).await?;
                }
                drop(call);
                return self.die().await;
            }
            let _call = self.shared.begin_call().await;
            self.store.transact(self.now(now), work).await
        })
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        Box::pin(self.outside_call(async move { self.store.signal(self.now(now), signals).await }))
    }

    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(async move {
            self.alive().await?;
            let request = RenewRequest { lease: LEASE, ..request.clone() };
            self.store.renew(self.now(now), &request).await
        })
    }

    fn reap<'a>(&'a self, now: Now, request: &'a ReapRequest) -> Fut<'a, ReapReport> {
        worker_call!(self, now, reap(request))
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        worker_call!(self, now, release(jobs))
    }

    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        worker_call!(self, now, release_claims(worker, numbers))
    }

    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        worker_call!(self, now, retire_worker(worker))
    }

    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport> {
        Box::pin(async move {
            self.alive().await?;
            let call = self.shared.begin_call().await;
            let report = self.store.fire_timers(self.now(now), limit).await?;
            if !has_fired(&report) {
                call.end_without_change();
            }
            Ok(report)
        })
    }

    fn repair(&self, now: Now) -> Fut<'_, usize> {
        Box::pin(async move {
            self.alive().await?;
            let call = self.shared.begin_call().await;
            let repaired = self.store.repair(self.now(now)).await?;
            if repaired == 0 {
                call.end_without_change();
            }
            Ok(repaired)
        })
    }

    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport> {
        worker_call!(self, now, poll_branches(limit))
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let store = self.store.sibling().await?;
            let (shared, lifetime) = (Arc::clone(&self.shared), Arc::clone(&self.lifetime));
            Ok(Arc::new(VirtualStore { store, shared, lifetime }) as Arc<dyn Store>)
        })
    }

    /// None: a worker dies here without its process.
    /// A worker that crashes in a commit keeps its turn for ever; submits of the scenario must not wait for it.
    fn writes_in_turn(&self) -> bool {
        false
    }

    fn liveness_dir(&self) -> Option<std::path::PathBuf> {
        None
    }

    fn clock(&self) -> Fut<'_, Time> {
        Box::pin(std::future::ready(Ok(self.shared.now())))
    }

    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        act: JobAction,
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(
            self.outside_call(async move { self.store.act_on_jobs(self.now(now), jobs, act, actor).await }),
        )
    }

    fn administer<'a>(
        &'a self,
        now: Now,
        rule: &'a AdminAction,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        Box::pin(self.outside_call(async move { self.store.administer(self.now(now), rule, actor).await }))
    }

    fn update_stages<'a>(
        &'a self,
        now: Now,
        jobs: &'a [StageUpdate],
        actor: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(self.outside_call(async move { self.store.update_stages(self.now(now), jobs, actor).await }))
    }

    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], actor: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        Box::pin(self.outside_call(async move { self.store.fork(self.now(now), forks, actor).await }))
    }

    fn record_audit<'a>(
        &'a self,
        now: Now,
        action: &'a str,
        subject: &'a str,
        actor: &'a Actor,
    ) -> Fut<'a, ()> {
        Box::pin(self.outside_call(async move {
            self.store.record_audit(self.now(now), action, subject, actor).await
        }))
    }

    fn prune<'a>(&'a self, now: Now, prune: &'a Prune) -> Fut<'a, Pruned> {
        Box::pin(self.outside_call(async move { self.store.prune(self.now(now), prune).await }))
    }

    fn prune_sessions<'a>(&'a self, now: Now, limit: usize) -> Fut<'a, usize> {
        Box::pin(self.outside_call(async move { self.store.prune_sessions(self.now(now), limit).await }))
    }

    fn add_session<'a>(&'a self, now: Now, session: &'a NewSession) -> Fut<'a, bool> {
        Box::pin(self.outside_call(async move { self.store.add_session(self.now(now), session).await }))
    }

    fn touch_session<'a>(&'a self, now: Now, used: &'a SessionUse) -> Fut<'a, bool> {
        Box::pin(self.outside_call(async move { self.store.touch_session(self.now(now), used).await }))
    }
}

/// The same work, rolled back in the end.
fn rolled_back(work: Work<'_>) -> Work<'_> {
    match work {
        Work::Tx(work) => Work::Tx(without_change(work)),
        #[cfg(feature = "postgres")]
        Work::Postgres(work) => Work::Postgres(without_change(work)),
        #[cfg(feature = "sqlite")]
        Work::Sqlite(work) => Work::Sqlite(Box::new(move |connection| {
            work(connection);
            None
        })),
    }
}

fn without_change<'a, T: Send + 'a>(work: AsyncWork<'a, T>) -> AsyncWork<'a, T> {
    AsyncWork::new(async move |tx| {
        work.run(tx).await;
        None
    })
}

/// Whether a call has fired timers, or admitted jobs.
pub(super) fn has_fired(report: &TimerReport) -> bool {
    report.woken + report.admitted + report.fired + report.expired + report.cancelled > 0
}

/// The answer of the store; panics if it has failed.
pub(super) fn expect_store<T>(answer: Result<T, Error>, url: &str) -> T {
    answer.unwrap_or_else(|error| panic!("the store {url} of the lab: {error}"))
}
