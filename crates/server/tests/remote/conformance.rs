//! The cases that every store passes, through HTTP: what a worker does goes to the server, on its own connections; what people and the
//! server do goes to the database at once.
//!
//! All cases of `conformance!` run. Those of `conformance_of_transactions!` do not apply: a worker of a server has no access to the
//! database, so a transaction is refused, which `engine` tests. What the suite does on behalf of others than such a worker is done on the
//! database: registering a process with a lock file or a worker for a token (both of which a server decides itself), and everything of
//! `Maintenance` but the renewal, which a server's own worker does.

use std::sync::Arc;

use tokio::{sync::oneshot, task::JoinHandle};
use windlass::{
    Engine,
    model::{
        Change, ClaimNo, CommitOutcome, JobClaim, JobId, JournalEntry, NewJob, NewSignal, Payload, Rev,
        Signal, SubmitOutcome, Time, WorkerId,
    },
};
use windlass_remote::{Options, RemoteStore};
use windlass_server::{Server, Settings};
use windlass_store::{
    Branch, BranchChild, BranchChildFilter, CancelRequest, ChildEnd, ClaimBatch, ClaimOnSubmit, ClaimRequest,
    Execution, Fut, JobEnd, Maintenance, NewWorker, Now, Registrant, RenewRequest, Renewal, Replay,
    SignalOutcome, Store, Tokens, Wrapper,
};

use crate::kit::{self, Database, settings};

/// A store that workers reach through a server, and everybody else directly.
struct Split {
    local: Arc<dyn Store>,
    remote: Arc<dyn Store>,
}

/// Sends a call to the server.
macro_rules! remotely {
    ($($part:ident::$method:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        $(fn $method<'a>(&'a self, $($argument: $type),*) -> Fut<'a, $output> {
            $part::$method(&*self.remote, $($argument),*)
        })*
    };
}

impl Wrapper for Split {
    fn inner(&self) -> &dyn Store {
        &*self.local
    }

    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        let is_remote = worker.liveness_file.is_none() && worker.token.is_none();
        let store = if is_remote { &self.remote } else { &self.local };
        Execution::register_worker(&**store, now, worker)
    }

    /// What the suite registers as a process is here a worker of the server, and belongs to its token.
    fn registrant<'a>(&'a self, worker: WorkerId) -> Fut<'a, Registrant> {
        Box::pin(async move {
            Ok(match Tokens::registrant(&*self.local, worker).await? {
                Registrant::Token(token) if token == "loopback" => Registrant::Process,
                other => other,
            })
        })
    }

    remotely! {
        Execution::submit(now: Now, jobs: &'a [NewJob], claim: Option<ClaimOnSubmit>) -> Vec<SubmitOutcome>;
        Execution::claim(now: Now, request: &'a ClaimRequest) -> ClaimBatch;
        Execution::commit(now: Now, changes: &'a [Change]) -> Vec<CommitOutcome>;
        Execution::signal(now: Now, signals: &'a [NewSignal]) -> Vec<SignalOutcome>;
        Execution::release(now: Now, jobs: &'a [JobClaim]) -> usize;
        Execution::release_claims(now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> usize;
        Execution::retire_worker(now: Now, worker: WorkerId) -> usize;
        Execution::cancel_requests(worker: WorkerId) -> Vec<CancelRequest>;
        Execution::gates(queues: &'a [String]) -> Vec<u64>;
        Execution::job_ends(ids: &'a [JobId]) -> Vec<Option<JobEnd>>;
        Maintenance::renew(now: Now, request: &'a RenewRequest) -> Renewal;
        Replay::journal(id: JobId, after: Option<i32>, limit: usize) -> Vec<JournalEntry>;
        Replay::journals(ids: &'a [JobId]) -> Vec<Vec<JournalEntry>>;
        Replay::context(id: JobId) -> Vec<(String, Payload)>;
        Replay::inbox(id: JobId, limit: usize) -> Vec<Signal>;
        Replay::child_ends(parent: JobId, rev: Rev, after: Option<JobId>, limit: usize) -> Vec<ChildEnd>;
        Replay::branches(job: JobId) -> Vec<Branch>;
        Replay::branch_children(filter: &'a BranchChildFilter) -> Vec<BranchChild>;
        Replay::clock() -> Time;
    }

    fn sibling<'a>(&'a self) -> Fut<'a, Arc<dyn Store>> {
        Box::pin(async {
            let (local, remote) = (self.local.sibling().await?, self.remote.sibling().await?);
            Ok(Arc::new(Split { local, remote }) as Arc<dyn Store>)
        })
    }
}

/// Keeps a store and its server.
struct Guard {
    stop: Option<oneshot::Sender<()>>,
    _serving: JoinHandle<()>,
    _engine: Engine,
    _dir: tempfile::TempDir,
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

async fn open(database: Database) -> (Guard, Arc<dyn Store>) {
    let (dir, engine) = kit::engine(database).await;
    // The cases make calls in the names of many workers.
    let settings = Settings { accepts_times: true, ..settings() };
    let server = Server::bind(engine.clone(), settings).await.expect("a server");
    let url = format!("http://{}", server.address());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    let remote = RemoteStore::open(&url, Options::default()).await.expect("the server answers");
    let split = Split { local: Arc::clone(engine.store()), remote: Arc::new(remote) };
    (Guard { stop: Some(stop), _serving: serving, _engine: engine, _dir: dir }, Arc::new(split))
}

mod sqlite {
    use super::*;

    async fn open() -> (Guard, Arc<dyn Store>) {
        super::open(Database::Sqlite).await
    }

    windlass_store::conformance!(open);
}

mod postgres {
    use super::*;

    async fn open() -> (Guard, Arc<dyn Store>) {
        super::open(Database::Postgres).await
    }

    windlass_store::conformance!(open);
}
