//! The store as plain maps: obviously right, forgetful, and the oracle for the other two.
//!
//! One lock, no cleverness: every verb does at once what the trait's contract says, so that reading this
//! file is the quickest way to learn what a verb means. Nothing survives the process.

mod inspect;
mod verbs;

pub(crate) use verbs::{expired, lease_ran_out, lost};

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use windlass_model::{
    Change, ClaimNo, Epoch, Event, Failure, JobId, Limits, NewJob, Payload, Reason, Rev, State, Submitted,
    Time, Verdict, WorkerId, rank::rank, state,
};

use crate::{
    Ask, Attempt, Beat, Born, Due, Ended, Error, Fut, Haul, Inspect, NewWorker, Now, Reaped, Renewal, Store,
    Sweep, pick,
};

/// The store in memory.
#[derive(Clone, Default)]
pub struct Memory {
    inner: Arc<Mutex<Inner>>,
    limits: Limits,
}

/// A lane of the ready set: queue, kind, version, and whether it holds suspects.
type Lane = (String, String, i32, bool);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    Wake,
    Deadline,
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
    attempts: u32,
    spent: Vec<u32>,
    deaths: u16,
    crashes: u16,
    /// Set by reap, cleared by commit.
    suspect: bool,
    worker: Option<WorkerId>,
    submitted_at: Time,
    due_at: Time,
    started_at: Option<Time>,
    finished_at: Option<Time>,
    history: Vec<Attempt>,
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
        let answer = verb(&mut self.lock(), now);
        Box::pin(std::future::ready(answer))
    }
}

impl Row {
    fn lane(&self) -> Lane {
        (self.new.queue.clone(), self.new.kind.kind.clone(), self.new.kind.version, self.suspect)
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
        } else if self.ready.contains(&(row.lane(), row.rank(), id)) {
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

    fn make_ready(&mut self, id: JobId) {
        let row = &self.jobs[&id];
        let place = (row.lane(), row.rank(), id);
        *self.gates.entry(row.new.queue.clone()).or_default() += 1;
        self.ready.insert(place);
    }

    fn set_timer(&mut self, at: Time, id: JobId, what: Timer) {
        *self.gates.entry(crate::TIMER_GATE.to_owned()).or_default() += 1;
        self.timers.insert((at, id, what));
    }

    /// Ends a job from wherever it is: the one routine for all doors.
    fn end(&mut self, id: JobId, state: State, reason: Option<Reason>, failure: Option<Failure>, now: Time) {
        let row = &self.jobs[&id];
        let place = (row.lane(), row.rank(), id);
        self.ready.remove(&place);
        self.timers.remove(&(row.due_at, id, Timer::Wake));
        if let Some(at) = row.new.deadline_at {
            self.timers.remove(&(at, id, Timer::Deadline));
        }
        let row = self.jobs.get_mut(&id).expect("looked up above");
        row.ended = Some(state);
        row.reason = reason;
        if failure.is_some() {
            row.failure = failure;
        }
        row.finished_at = Some(now);
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
        let failure = pick::failure(Some(&pick::failure_text(failure))).expect("there is text");
        let row = self.jobs.get_mut(&id).expect("noted of a job that is there");
        row.history.push(Attempt { epoch, worker, started_at, ended_at: now, failure: failure.clone() });
        row.failure = Some(failure);
    }
}

impl Store for Memory {
    fn enlist<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        self.run(now, |inner, now| Ok(inner.enlist(now, worker)))
    }

    fn submit<'a>(&'a self, now: Now, jobs: &'a [NewJob], born: Option<Born>) -> Fut<'a, Vec<Submitted>> {
        self.run(now, |inner, now| {
            jobs.iter().try_for_each(|job| self.limits.check(job))?;
            Ok(inner.submit(now, jobs, born))
        })
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a Ask) -> Fut<'a, Haul> {
        self.run(now, |inner, now| inner.claim(now, ask))
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<Verdict>> {
        self.run(now, |inner, now| {
            Ok(changes.iter().map(|change| inner.commit(now, change, &self.limits)).collect())
        })
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a Beat) -> Fut<'a, Renewal> {
        self.run(now, |inner, now| Ok(inner.renew(now, beat)))
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a Sweep) -> Fut<'a, Reaped> {
        self.run(now, |inner, now| Ok(inner.reap(now, sweep)))
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [(JobId, Epoch)]) -> Fut<'a, usize> {
        self.run(now, |inner, _| Ok(inner.release(jobs)))
    }

    fn disown<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        self.run(now, |inner, _| Ok(numbers.iter().map(|number| inner.disown((worker, *number))).sum()))
    }

    fn retire<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        self.run(now, |inner, _| Ok(inner.retire(worker)))
    }

    fn due(&self, now: Now, limit: usize) -> Fut<'_, Due> {
        self.run(now, |inner, now| Ok(inner.due(now, limit)))
    }

    fn gate<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        self.run(None, |inner, _| {
            Ok(queues.iter().map(|q| inner.gates.get(q).copied().unwrap_or(0)).collect())
        })
    }

    fn ended<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<Ended>>> {
        self.run(None, |inner, _| Ok(ids.iter().map(|id| inner.ended(*id)).collect()))
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        let same: Arc<dyn Store> = Arc::new(self.clone());
        Box::pin(std::future::ready(Ok(same)))
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn beacon_dir(&self) -> Option<std::path::PathBuf> {
        None
    }

    fn statements(&self) -> u64 {
        0
    }
}
