//! Jobs, steps and branches that are written to the store as a worker does, without running one.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use windlass::{
    Engine, JobId,
    model::{
        BranchNo, BranchPosition, BranchUpdate, Change, ClaimNo, ClaimedJob, CommitOutcome, JournalEntry,
        NewJob, Outcome, Payload, StepWrites, SubmitOutcome, Time, WorkerId,
        journal::{CallEvent, CallKind},
    },
    store::{ClaimOnSubmit, NewWorker},
};

/// The branch of [`Running::open_branch`].
pub(crate) const BRANCH: BranchNo = BranchNo(7);

/// A job that a worker has claimed, with its revision.
pub(crate) struct Claimed {
    pub(crate) worker: WorkerId,
    pub(crate) job: ClaimedJob,
}

/// A payload of this many bytes.
pub(crate) fn bytes(count: usize) -> Payload {
    Payload::json(format!("\"{}\"", "x".repeat(count - 2)).into_bytes())
}

/// A job of the kind `echo` in the queue `default`.
pub(crate) fn echo(engine: &Engine) -> NewJob {
    NewJob::new(engine.new_id(), "echo", "default", Payload::json(b"1".to_vec()))
}

/// The children of a branch: jobs of the kind `echo`, for these items.
pub(crate) fn children(engine: &Engine, items: impl IntoIterator<Item = u32>) -> Vec<NewJob> {
    let child = |item: u32| {
        let position = BranchPosition { branch: BRANCH, spawn: 0, item: item.to_string(), items: 1 };
        NewJob { branch_position: Some(Box::new(position)), ..echo(engine) }
    };
    items.into_iter().map(child).collect()
}

impl Claimed {
    /// Submits a job and claims it for a new worker.
    pub(crate) async fn submit(engine: &Engine, job: NewJob) -> Claimed {
        static WORKERS: AtomicI64 = AtomicI64::new(1);
        let worker = WorkerId(WORKERS.fetch_add(1, Ordering::Relaxed));
        let new = NewWorker {
            id: worker,
            name: "test".into(),
            liveness_file: None,
            lease: Duration::from_secs(600),
            serves: Vec::new(),
            token: None,
        };
        assert!(engine.store().register_worker(None, &new).await.expect("registered"));
        let claim = ClaimOnSubmit { worker, number: ClaimNo(1) };
        let outcomes = engine.store().submit(None, std::slice::from_ref(&job), Some(claim)).await;
        let Some(SubmitOutcome::New { claimed: Some(epoch) }) = outcomes.expect("submitted").pop() else {
            panic!("it is claimed")
        };
        Claimed { worker, job: job.claimed_at_submit(ClaimNo(1), epoch, Time(0)) }
    }

    /// Commits a step, and another outcome than to go on.
    pub(crate) async fn commit(&mut self, engine: &Engine, writes: StepWrites, outcome: Outcome) {
        let change = Change::new(&self.job, self.worker, engine.env().now(), outcome);
        let change = Change { writes: Some(Box::new(writes)), ..change };
        let outcomes = engine.store().commit(None, &[change]).await.expect("committed");
        assert_eq!(outcomes, [CommitOutcome::Committed]);
        self.job.rev.0 += 1;
    }

    /// Opens a branch with the spawn `each` and these children.
    pub(crate) async fn open_branch(&mut self, engine: &Engine, name: &str, children: Vec<NewJob>) {
        let spawns = Some(vec!["each".to_owned()]);
        let open = BranchUpdate { opened_as: Some(name.into()), spawns, ..BranchUpdate::new(BRANCH) };
        let writes = StepWrites { branches: vec![open], children, ..StepWrites::default() };
        self.commit(engine, writes, Outcome::Next).await;
    }

    /// Spawns more children in that branch.
    pub(crate) async fn spawn(&mut self, engine: &Engine, children: Vec<NewJob>) {
        self.commit(engine, StepWrites { children, ..StepWrites::default() }, Outcome::Next).await;
    }

    /// Adds entries of this size to the journal, numbered from `from`.
    pub(crate) async fn add_entries(&mut self, engine: &Engine, from: i32, count: i32, size: usize) {
        let entry = |seq: i32| JournalEntry {
            seq,
            call_kind: CallKind::Step,
            event: CallEvent::Done,
            name: format!("step {seq}"),
            key: None,
            line: None,
            at: engine.env().now(),
            payload: bytes(size),
        };
        let entries = (from..from + count).map(entry).collect();
        self.commit(engine, StepWrites { entries, ..StepWrites::default() }, Outcome::Next).await;
    }

    pub(crate) fn id(&self) -> JobId {
        self.job.id
    }
}
