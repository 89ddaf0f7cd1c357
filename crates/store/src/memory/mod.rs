//! The store as plain maps: the reference that the databases must agree with.
//!
//! One lock, no cleverness: every verb does at once what the contract of its trait says, so that reading these files is
//! the quickest way to learn what a verb means. A file has the same name as the file of the databases that does the same.
//! Nothing survives the process.

mod admin;
mod alerts;
mod branch;
mod branch_update;
mod children;
mod claim;
mod commit;
mod consequences;
mod control;
mod details;
mod diagnose;
mod fork;
mod inspect;
mod job_actions;
mod lease;
mod operations;
mod poll;
mod prune;
mod pulse;
mod rate;
mod reap;
mod rollups;
mod rows;
mod schedule;
mod serial;
mod signal;
mod stage_update;
mod step;
mod submit;
mod timers;
mod tokens;
mod unique;
mod unwind;
mod users;
mod views;
mod wait;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use windlass_model::{
    Change, ClaimNo, ClaimedJob, CommitOutcome, Epoch, Event, Failure, JobClaim, JobId, Lease, Limits,
    NewJob, NewSignal, Payload, Reason, Rev, Signal, State, SubmitOutcome, Time, Unwind, WaitCondition,
    WorkerId, WorkerStatus,
};

use self::rows::{Bucket, Claim, Hold, Inner, Lane, PendingCancel, Row, Timer, Worker};
use crate::{
    Actor, Attempt, AuditEntry, Backend, CANCEL_GATE, CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest,
    Error, Execution, Fut, JobEnd, Maintenance, NewWorker, Now, Pause, PollReport, Prune, Pruned, ReapReport,
    ReapRequest, RenewRequest, Renewal, RollUpReport, RollUpRequest, SignalOutcome, Store, TIMER_GATE,
    TimerReport, Transition, Work, columns,
};

/// The store in memory; cloning shares it.
#[derive(Clone, Default)]
pub struct Memory {
    inner: Arc<Mutex<Inner>>,
    limits: Limits,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// An empty store with other limits.
    pub fn with_limits(limits: Limits) -> Memory {
        Memory { limits, ..Memory::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Runs a verb under the lock. At its end free serial slots are filled, when all of its jobs are where it leaves them.
    fn run<T: Send + 'static>(
        &self,
        now: Now,
        verb: impl FnOnce(&mut Inner, Time) -> Result<T, Error>,
    ) -> Fut<'_, T> {
        let now = now.unwrap_or_else(|| Time::from_system(SystemTime::now()));
        let mut inner = self.lock();
        let result = verb(&mut inner, now);
        inner.fill_serial_slots();
        drop(inner);
        Box::pin(std::future::ready(result))
    }
}

impl Execution for Memory {
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        self.run(now, |inner, now| Ok(inner.register(now, worker)))
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        claim_on_submit: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        self.run(now, |inner, now| {
            jobs.iter().try_for_each(|job| self.limits.check(job))?;
            jobs.iter().try_for_each(|job| inner.check_rate(job))?;
            Ok(inner.insert_jobs(now, jobs, claim_on_submit))
        })
    }

    fn claim<'a>(&'a self, now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        self.run(now, |inner, now| inner.claim(now, request))
    }

    fn claimed_jobs(&self, worker: WorkerId, number: ClaimNo) -> Fut<'_, Vec<ClaimedJob>> {
        self.run(None, move |inner, _| Ok(inner.jobs_of_claim(worker, number)))
    }

    fn claims_with_jobs<'a>(&'a self, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, Vec<ClaimNo>> {
        self.run(None, move |inner, _| {
            let has_jobs = |number: &&ClaimNo| !inner.jobs_of_claim(worker, **number).is_empty();
            Ok(numbers.iter().filter(has_jobs).copied().collect())
        })
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        self.run(now, |inner, now| {
            Ok(changes.iter().map(|change| inner.commit(now, change, &self.limits)).collect())
        })
    }

    fn transact<'a>(&'a self, _now: Now, _work: Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        Box::pin(std::future::ready(Err(Error::Config(
            "the memory store has no transactions; use SQLite or PostgreSQL".into(),
        ))))
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        self.run(now, |inner, now| {
            signals.iter().try_for_each(|signal| self.limits.check_signal(signal))?;
            Ok(signals.iter().map(|signal| inner.deliver(now, signal, self.limits.inbox)).collect())
        })
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        self.run(now, |inner, _| Ok(inner.release(jobs)))
    }

    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        self.run(now, |inner, _| {
            Ok(numbers.iter().map(|number| inner.release_claim((worker, *number))).sum())
        })
    }

    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        self.run(now, |inner, _| Ok(inner.retire(worker)))
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        self.run(None, |inner, _| Ok(inner.cancel_requests(worker)))
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        self.run(None, |inner, _| {
            Ok(queues.iter().map(|queue| inner.gates.get(queue).copied().unwrap_or(0)).collect())
        })
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        self.run(None, |inner, _| Ok(ids.iter().map(|id| inner.job_end(*id)).collect()))
    }
}

impl Maintenance for Memory {
    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal> {
        self.run(now, |inner, now| Ok(inner.renew(now, request)))
    }

    fn reap<'a>(&'a self, now: Now, request: &'a ReapRequest) -> Fut<'a, ReapReport> {
        self.run(now, |inner, now| Ok(inner.reap(now, request)))
    }

    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport> {
        self.run(now, |inner, now| Ok(inner.fire_timers(now, limit)))
    }

    fn repair(&self, now: Now) -> Fut<'_, usize> {
        self.run(now, |inner, now| Ok(inner.repair_serial_keys() + inner.repair_waits(now)))
    }

    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport> {
        self.run(now, |inner, now| Ok(inner.poll_branches(now, limit)))
    }

    fn prune<'a>(&'a self, now: Now, prune: &'a Prune) -> Fut<'a, Pruned> {
        self.run(now, |inner, now| {
            columns::check_prune(prune)?;
            Ok(inner.prune(now, prune))
        })
    }

    fn roll_up<'a>(&'a self, request: &'a RollUpRequest) -> Fut<'a, RollUpReport> {
        self.run(None, |inner, _| Ok(inner.rollups.roll_up(request)))
    }

    fn prune_sessions(&self, now: Now, limit: usize) -> Fut<'_, usize> {
        self.run(now, |inner, now| Ok(inner.prune_sessions(now, limit)))
    }
}

impl Backend for Memory {
    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        let same: Arc<dyn Store> = Arc::new(self.clone());
        Box::pin(std::future::ready(Ok(same)))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// One: there is one lock.
    fn concurrent_commits(&self) -> usize {
        1
    }

    fn liveness_dir(&self) -> Option<std::path::PathBuf> {
        None
    }

    fn statements(&self) -> u64 {
        0
    }
}
