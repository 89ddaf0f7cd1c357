//! The store as plain maps: obviously right, forgetful, and the oracle for the other two.
//!
//! One lock, no cleverness: every verb does at once what the trait's contract says, so that reading this
//! file is the quickest way to learn what a verb means. Nothing survives the process.

mod branch;
mod control;
mod diagnose;
mod flow;
mod inspect;
mod schedule;
mod signal;
mod verbs;

pub(crate) use verbs::{expired, lease_ran_out, lost};

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use windlass_model::{
    BranchNo, Change, ClaimNo, CommitOutcome, Epoch, Event, Failure, JobClaim, JobId, JournalEntry, Limits,
    NewJob, NewSignal, Payload, RateLimit, Reason, Rev, Signal, State, SubmitOutcome, Time, Unwind,
    WaitCondition, WorkerId, rank::rank, rate::BucketLevel, state,
};

use crate::{
    Actor, Attempt, AuditEntry, Backend, CANCEL_GATE, CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest,
    Error, Execution, Fut, JobEnd, Maintenance, NewWorker, Now, Pause, PollReport, Prune, Pruned, ReapReport,
    ReapRequest, RenewRequest, Renewal, Serves, SignalOutcome, Store, TimerReport, Transition, Work, columns,
};

/// The store in memory.
#[derive(Clone, Default)]
pub struct Memory {
    inner: Arc<Mutex<Inner>>,
    limits: Limits,
}

/// A lane of the ready set: queue, kind, version, rate limit, and whether it holds suspects.
type Lane = (String, String, i32, Option<String>, bool);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    Wake,
    Deadline,
    /// Ends a job that was told to end and did not.
    Cancel,
}

/// What keeps a job from being claimed, beside its key and its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    None,
    /// It is to be set aside when it would next enter the ready set: it is paused, or told to end.
    Wanted,
    /// It was set aside: it would be in the ready set otherwise.
    Aside,
}

/// That a running job was told to end.
struct Asked {
    order: CancelRequest,
    worker: WorkerId,
}

struct Bucket {
    limit: RateLimit,
    lifted: bool,
    level: BucketLevel,
}

#[derive(Default)]
struct Inner {
    jobs: BTreeMap<JobId, Row>,
    keys: HashMap<(String, String), JobId>,
    ready: BTreeSet<(Lane, i64, JobId)>,
    timers: BTreeSet<(Time, JobId, Timer)>,
    claims: BTreeMap<(WorkerId, ClaimNo), Claim>,
    workers: BTreeMap<WorkerId, Worker>,
    gates: HashMap<String, u64>,
    /// Every queue that was ever named.
    queues: BTreeSet<String>,
    /// How many jobs of each serial key run at once.
    slots: BTreeMap<String, u32>,
    /// Who has a slot of a serial key.
    holders: BTreeSet<(String, JobId)>,
    /// Who waits for one, by place.
    line: BTreeSet<(String, Time, JobId)>,
    /// Keys whose slots or line a verb has changed.
    unsettled: BTreeSet<String>,
    /// The job that last took a unique name, by kind and name. Whether it has it still is seen when someone asks.
    scopes: HashMap<(String, String), JobId>,
    buckets: BTreeMap<String, Bucket>,
    pauses: BTreeMap<JobId, Pause>,
    queue_pauses: BTreeMap<String, Pause>,
    asked: BTreeMap<JobId, Asked>,
    audit: Vec<AuditEntry>,
    schedules: BTreeMap<String, schedule::Kept>,
    branches: BTreeMap<(JobId, BranchNo), branch::Kept>,
}

struct Row {
    new: NewJob,
    /// `None` while it is live: then the place it is in says the state.
    ended: Option<State>,
    reason: Option<Reason>,
    failure: Option<Failure>,
    output: Option<Payload>,
    epoch: Epoch,
    rev: Rev,
    /// The epoch that wrote `rev`.
    rev_epoch: Epoch,
    /// The claim under which it did; the worker is `worker`.
    rev_claim: ClaimNo,
    attempts: u32,
    spent: Vec<u32>,
    deaths: u16,
    crashes: u16,
    /// Set by reap, cleared by commit.
    suspect: bool,
    hold: Hold,
    /// Its place in the line of its serial key: when it first was due.
    place: Time,
    worker: Option<WorkerId>,
    submitted_at: Time,
    due_at: Time,
    started_at: Option<Time>,
    finished_at: Option<Time>,
    history: Vec<Attempt>,
    stage: Option<String>,
    /// The revision that led to it.
    since: Rev,
    /// The steps it has made since it last waited.
    run: u32,
    data: Option<Payload>,
    /// What it waits for, or waited for when it last made progress.
    wait: Option<WaitCondition>,
    until: Option<Time>,
    parked: bool,
    /// How many of the children of round `since` have not ended.
    pending: u32,
    steps: Vec<Transition>,
    inbox: Vec<Signal>,
    /// Names and dedup ids of all signals ever delivered.
    heard: BTreeSet<(String, String)>,
    /// Entries by place.
    journal: BTreeMap<i32, JournalEntry>,
    context: BTreeMap<String, Payload>,
    /// Whether there is something to undo.
    undo: bool,
    /// How it ends once that is done, if it is being unwound.
    unwind: Option<Box<Unwind>>,
    /// How many items of a block have ended well and were counted.
    tallied: u32,
}

struct Claim {
    jobs: Vec<(JobId, Epoch)>,
    alone: bool,
    claimed_at: Time,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Alive,
    Dead,
    Gone,
}

struct Worker {
    name: String,
    beacon: Option<String>,
    lease_until: Time,
    life: Life,
    serves: Vec<Serves>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// The same with other limits.
    pub fn with_limits(limits: Limits) -> Memory {
        Memory { limits, ..Memory::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn run<T: Send + 'static>(
        &self,
        now: Now,
        verb: impl FnOnce(&mut Inner, Time) -> Result<T, Error>,
    ) -> Fut<'_, T> {
        let now = now.unwrap_or_else(|| Time::from_system(SystemTime::now()));
        let mut inner = self.lock();
        let answer = verb(&mut inner, now);
        inner.settle_all();
        drop(inner);
        Box::pin(std::future::ready(answer))
    }
}

impl Row {
    fn lane(&self) -> Lane {
        let limit = self.new.settings.rate.as_ref().map(|charge| charge.limit.clone());
        (self.new.queue.clone(), self.new.kind.kind.clone(), self.new.kind.version, limit, self.suspect)
    }

    fn serial(&self) -> Option<&str> {
        self.new.settings.serial.as_ref().map(|serial| serial.key.as_str())
    }

    fn rank(&self) -> i64 {
        rank(self.due_at, self.new.priority)
    }
}

impl Inner {
    /// Where the job stands.
    fn state(&self, id: JobId) -> State {
        let row = &self.jobs[&id];
        if let Some(state) = row.ended {
            state
        } else if row.parked {
            State::Waiting
        } else if row.hold == Hold::Aside || self.is_ready(id) || self.in_line(id) {
            State::Ready
        } else if self.timers.contains(&(row.due_at, id, Timer::Wake)) {
            State::Scheduled
        } else {
            State::Running
        }
    }

    /// Every move of a job goes through here: the table is asked, and a move it does not know is a bug.
    fn moved(&mut self, id: JobId, event: Event) -> State {
        let from = self.state(id);
        state::next(from, event).unwrap_or_else(|| panic!("{id}: {from} has no {event:?}"))
    }

    fn set_timer(&mut self, at: Time, id: JobId, what: Timer) {
        *self.gates.entry(crate::TIMER_GATE.to_owned()).or_default() += 1;
        self.timers.insert((at, id, what));
    }

    /// Ends a job from outside, or has it unwound first if there is something to undo: the one routine for all doors.
    /// Whether it has ended.
    fn end_from_outside(&mut self, id: JobId, event: Event, unwind: Unwind, now: Time) -> bool {
        let row = self.jobs.get_mut(&id).expect("looked up before");
        if !row.undo || row.unwind.is_some() {
            row.epoch.0 += 1;
            let to = self.moved(id, event);
            self.end(id, to, unwind.reason, Some(unwind.failure), now);
            return true;
        }
        self.moved(id, Event::Unwind);
        self.forget(id);
        let row = self.jobs.get_mut(&id).expect("looked up before");
        row.unwind = Some(Box::new(columns::kept_unwind(&unwind)));
        row.epoch.0 += 1;
        (row.attempts, row.deaths, row.crashes, row.suspect) = (0, 0, 0, false);
        row.spent = Vec::new();
        (row.wait, row.until, row.due_at) = (None, None, now);
        self.enter(id);
        false
    }

    /// Forgets the deadline of a job, and all that is kept of orders and pauses.
    fn release_holds(&mut self, id: JobId) {
        if let Some(at) = self.jobs[&id].new.deadline_at {
            self.timers.remove(&(at, id, Timer::Deadline));
        }
        if let Some(asked) = self.asked.remove(&id) {
            self.timers.remove(&(asked.order.deadline_at, id, Timer::Cancel));
        }
        self.pauses.remove(&id);
        self.jobs.get_mut(&id).expect("looked up above").hold = Hold::None;
    }

    /// Takes a job from wherever it is, with all that is kept of orders and pauses.
    fn forget(&mut self, id: JobId) {
        let row = &self.jobs[&id];
        let place = (row.lane(), row.rank(), id);
        self.ready.remove(&place);
        self.timers.remove(&(row.due_at, id, Timer::Wake));
        self.release_holds(id);
        self.leave(id);
        self.jobs.get_mut(&id).expect("looked up above").parked = false;
    }

    /// Ends a job from wherever it is.
    fn end(&mut self, id: JobId, state: State, reason: Option<Reason>, failure: Option<Failure>, now: Time) {
        self.forget(id);
        let row = self.jobs.get_mut(&id).expect("looked up above");
        row.ended = Some(state);
        row.reason = reason;
        if failure.is_some() {
            row.failure = failure;
        }
        row.finished_at = Some(now);
        let made_to = state == State::Cancelled || reason == Some(Reason::Expired);
        self.child_ended(id, now);
        self.twig_ended(id, state, now);
        self.branches_ended(id, made_to, now);
    }

    /// Whether the pair is a live claim.
    fn is_claimed(&self, (id, epoch): (JobId, Epoch)) -> bool {
        self.jobs.get(&id).is_some_and(|row| row.ended.is_none() && row.epoch == epoch)
            && self.state(id) == State::Running
    }

    fn note(
        &mut self,
        id: JobId,
        worker: WorkerId,
        epoch: Epoch,
        started_at: Time,
        now: Time,
        failure: &Failure,
    ) {
        let failure = columns::failure(Some(&columns::failure_text(failure))).expect("there is text");
        let row = self.jobs.get_mut(&id).expect("noted of a job that is there");
        row.history.push(Attempt { epoch, worker, started_at, ended_at: now, failure: failure.clone() });
        row.failure = Some(failure);
    }
}

impl Execution for Memory {
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        self.run(now, |inner, now| Ok(inner.enlist(now, worker)))
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        self.run(now, |inner, now| {
            jobs.iter().try_for_each(|job| self.limits.check(job))?;
            jobs.iter().try_for_each(|job| inner.check_rate(job))?;
            Ok(inner.submit(now, jobs, born))
        })
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        self.run(now, |inner, now| inner.claim(now, ask))
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
            Ok(signals.iter().map(|signal| inner.signal(now, signal, self.limits.inbox)).collect())
        })
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        self.run(now, |inner, _| Ok(inner.release(jobs)))
    }

    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        self.run(now, |inner, _| Ok(numbers.iter().map(|number| inner.disown((worker, *number))).sum()))
    }

    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        self.run(now, |inner, _| Ok(inner.retire(worker)))
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        self.run(None, |inner, _| {
            let mine = inner.asked.values().filter(|asked| asked.worker == worker);
            Ok(mine.map(|asked| asked.order.clone()).collect())
        })
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        self.run(None, |inner, _| {
            Ok(queues.iter().map(|q| inner.gates.get(q).copied().unwrap_or(0)).collect())
        })
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        self.run(None, |inner, _| Ok(ids.iter().map(|id| inner.ended(*id)).collect()))
    }
}

impl Maintenance for Memory {
    fn renew<'a>(&'a self, now: Now, beat: &'a RenewRequest) -> Fut<'a, Renewal> {
        self.run(now, |inner, now| Ok(inner.renew(now, beat)))
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a ReapRequest) -> Fut<'a, ReapReport> {
        self.run(now, |inner, now| Ok(inner.reap(now, sweep)))
    }

    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport> {
        self.run(now, |inner, now| Ok(inner.due(now, limit)))
    }

    fn repair(&self, now: Now) -> Fut<'_, usize> {
        self.run(now, |inner, now| Ok(inner.sweep() + inner.sweep_waits(now)))
    }

    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport> {
        self.run(now, |inner, now| Ok(inner.poll(now, limit)))
    }

    fn prune<'a>(&'a self, now: Now, prune: &'a Prune) -> Fut<'a, Pruned> {
        self.run(now, |inner, now| {
            columns::check_prune(prune)?;
            Ok(inner.prune(now, prune))
        })
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
