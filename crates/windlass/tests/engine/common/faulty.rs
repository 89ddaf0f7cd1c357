//! A store between an engine and the real one, in which a test delays, fails or watches calls.

use std::{future::Future, sync::Arc};

use tokio::sync::RwLock;
use windlass::{
    Builder, Engine, JobId,
    model::{
        Change, CommitOutcome, JournalEntry, NewJob, NewSignal, Payload, Rev, Signal, SubmitOutcome, Time,
        WorkerId,
    },
    store::{self, *},
};

/// A point of a call at which a test can interfere. The present tense is before the call reaches the store; the past tense
/// is after the store has done it and before the engine receives the answer.
pub(crate) enum Call<'a> {
    Submit(&'a [NewJob], Option<ClaimOnSubmit>),
    Claim,
    Claimed(&'a ClaimRequest, &'a ClaimBatch),
    Commit,
    Committed,
    Transacted,
    Signal(&'a [NewSignal]),
    Renew(&'a RenewRequest),
    Renewed,
    Reap,
    Release,
    ReadCancelRequests(&'a [CancelRequest]),
    ReadGates,
    /// Anything else that only reads.
    Read,
}

/// What a test does to the calls of an engine.
pub(crate) trait Faults: Send + Sync + 'static {
    /// Called at each point. The call waits for it. An error is the engine's answer; before the call it keeps the call from
    /// the store.
    fn at(&self, call: Call<'_>) -> impl Future<Output = Result<(), Error>> + Send;

    /// A lock that each claim holds for reading: a test that holds it for writing knows that no claim is under way.
    fn claim_lock(&self) -> Option<&RwLock<()>> {
        None
    }
}

/// Describes an engine on the store at `url` with these faults.
pub(crate) async fn faulty<F: Faults>(url: &str, faults: &Arc<F>) -> Builder {
    let store = Engine::open(url).await.expect("opened").store().clone();
    Engine::builder(url).store(Arc::new(FaultyStore { store, faults: Arc::clone(faults) }))
}

struct FaultyStore<F> {
    store: Arc<dyn Store>,
    faults: Arc<F>,
}

/// Reads that a test can interfere with.
macro_rules! reads {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name<'a>(&'a self, $($arg: $type),*) -> Fut<'a, $out> {
            Box::pin(async move {
                self.faults.at(Call::Read).await?;
                self.store.$name($($arg),*).await
            })
        })*
    };
}

impl<F: Faults> Wrapper for FaultyStore<F> {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        claim: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        Box::pin(async move {
            self.faults.at(Call::Submit(jobs, claim)).await?;
            self.store.submit(now, jobs, claim).await
        })
    }

    fn claim<'a>(&'a self, now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            self.faults.at(Call::Claim).await?;
            let _claiming = match self.faults.claim_lock() {
                Some(lock) => Some(lock.read().await),
                None => None,
            };
            let batch = self.store.claim(now, request).await?;
            self.faults.at(Call::Claimed(request, &batch)).await?;
            Ok(batch)
        })
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(async move {
            self.faults.at(Call::Commit).await?;
            let outcomes = self.store.commit(now, changes).await?;
            self.faults.at(Call::Committed).await?;
            Ok(outcomes)
        })
    }

    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        Box::pin(async move {
            let outcome = self.store.transact(now, work).await?;
            self.faults.at(Call::Transacted).await?;
            Ok(outcome)
        })
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        Box::pin(async move {
            self.faults.at(Call::Signal(signals)).await?;
            self.store.signal(now, signals).await
        })
    }

    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(async move {
            self.faults.at(Call::Renew(request)).await?;
            let renewal = self.store.renew(now, request).await?;
            self.faults.at(Call::Renewed).await?;
            Ok(renewal)
        })
    }

    fn reap<'a>(&'a self, now: Now, request: &'a ReapRequest) -> Fut<'a, ReapReport> {
        Box::pin(async move {
            self.faults.at(Call::Reap).await?;
            self.store.reap(now, request).await
        })
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [windlass::model::JobClaim]) -> Fut<'a, usize> {
        Box::pin(async move {
            self.faults.at(Call::Release).await?;
            self.store.release(now, jobs).await
        })
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        Box::pin(async move {
            let requests = self.store.cancel_requests(worker).await?;
            self.faults.at(Call::ReadCancelRequests(&requests)).await?;
            Ok(requests)
        })
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        Box::pin(async move {
            self.faults.at(Call::ReadGates).await?;
            self.store.gates(queues).await
        })
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        Box::pin(async move {
            self.faults.at(Call::Read).await?;
            self.store.job_ends(ids).await
        })
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async move {
            let (store, faults) = (self.store.sibling().await?, Arc::clone(&self.faults));
            Ok(Arc::new(FaultyStore { store, faults }) as Arc<dyn Store>)
        })
    }

    reads! {
        job(id: JobId) -> Option<store::Job>;
        jobs(filter: &'a store::Filter) -> store::JobPage;
        history(id: JobId) -> Vec<store::Attempt>;
        state_counts() -> Vec<store::StateCount>;
        backlog(cap: u64) -> Vec<store::Backlog>;
        workers() -> Vec<store::WorkerView>;
        schema() -> store::SchemaState;
        holds(id: JobId) -> Option<store::Holds>;
        queues() -> Vec<store::QueueView>;
        rate_limits() -> Vec<store::LimitView>;
        serial_keys(key: Option<&'a str>, limit: usize) -> Vec<store::SerialView>;
        audit(filter: &'a store::AuditFilter) -> Vec<store::AuditEntry>;
        schedules() -> Vec<store::ScheduleView>;
        firings(schedule: &'a str, limit: usize) -> Vec<store::Firing>;
        misses(schedule: &'a str, limit: usize) -> Vec<store::Miss>;
        children(parent: JobId, after: Option<JobId>, limit: usize) -> Vec<store::Summary>;
        child_ends(parent: JobId, parent_rev: Rev, after: Option<JobId>, limit: usize) -> Vec<store::ChildEnd>;
        branches(job: JobId) -> Vec<store::Branch>;
        branch_children(of: &'a store::BranchChildFilter) -> Vec<store::BranchChild>;
        source_rows(rows: &'a store::TableSource, after: Option<&'a str>, limit: usize) -> Vec<store::SourceRow>;
        inbox(id: JobId, limit: usize) -> Vec<Signal>;
        transitions(id: JobId, after: Option<Rev>, limit: usize) -> Vec<store::Transition>;
        journal(id: JobId, after: Option<i32>, limit: usize) -> Vec<JournalEntry>;
        journals(ids: &'a [JobId]) -> Vec<Vec<JournalEntry>>;
        context(id: JobId) -> Vec<(String, Payload)>;
        transition_counts(kind: &'a str, limit: usize) -> Vec<store::TransitionCount>;
        bytes() -> u64;
        clock() -> Time;
    }
}
