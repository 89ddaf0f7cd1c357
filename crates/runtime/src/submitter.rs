//! Putting jobs in from this process: group commit for submits, and jobs born claimed.
//!
//! Submits that come while one is under way go together in the next. A job for a queue with a free slot here, and
//! nothing more urgent known to wait, is inserted already claimed by this worker: one write less, and no wait.
//!
//! A group is sent by a task of its own, so a caller that gives up harms nobody else. It is repeated blindly until
//! the store answers; who has waited long enough is told so, and may repeat it too: the ids are the same. A group that the
//! store refuses is sent in ever smaller parts: a bad job fails the call it came with, and no other.

use std::{
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use windlass_model::{NewJob, SubmitOutcome, When, limits::MAX_BATCH_BYTES};
use windlass_store::{ClaimOnSubmit, Error, Store};

use crate::{
    metrics::Verb,
    pool::{Job, QueuePool},
    releaser::Claim,
    retrying::Backoff,
    stats::add,
    trace,
    worker::Core,
};

/// The most jobs in one transaction.
const CHUNK: usize = 1_000;

/// Puts jobs in, for all callers of this process.
pub struct Submitter {
    store: Arc<dyn Store>,
    state: Mutex<State>,
    /// How many transactions may be in flight.
    flights: usize,
    patience: Duration,
    runtime: tokio::runtime::Handle,
    /// The worker of this process that started last.
    worker: Mutex<Weak<Core>>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Item>,
    flying: usize,
}

type Answer = Result<Vec<SubmitOutcome>, Error>;

struct Item {
    jobs: Vec<NewJob>,
    since: Instant,
    reply: oneshot::Sender<Answer>,
}

/// Jobs that are sent together, and who waits for them.
struct Group {
    jobs: Vec<NewJob>,
    callers: Vec<Caller>,
    /// Whether they were sent before and no answer came: they may be in.
    again: bool,
}

/// Who has put so many jobs of a group in.
struct Caller {
    jobs: usize,
    since: Instant,
    /// `None` once an answer was given.
    reply: Option<oneshot::Sender<Answer>>,
}

impl Submitter {
    /// A submitter on the current runtime that keeps up to `flights` transactions in flight and tells callers after `patience` that the
    /// store is away.
    pub fn new(store: Arc<dyn Store>, flights: usize, patience: Duration) -> Arc<Submitter> {
        let runtime = tokio::runtime::Handle::current();
        let (state, worker) = (Mutex::default(), Mutex::default());
        Arc::new(Submitter { store, state, flights: flights.max(1), patience, runtime, worker })
    }

    pub(crate) fn attach(&self, core: &Arc<Core>) {
        *self.worker.lock().unwrap_or_else(|e| e.into_inner()) = Arc::downgrade(core);
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.worker.lock().unwrap_or_else(|e| e.into_inner()).upgrade()
    }

    /// Has this process's worker look whether there is something to do.
    pub fn poke(&self) {
        let core = self.worker.lock().unwrap_or_else(|e| e.into_inner()).upgrade();
        if let Some(core) = core {
            core.pools.iter().for_each(|pool| pool.wake());
            core.timekeeper.poke();
            core.cancellations.poke();
        }
    }

    /// Has this process's worker look for jobs that have become ready.
    pub(crate) fn wake(&self) {
        if let Some(core) = self.core() {
            core.pools.iter().for_each(|pool| pool.wake());
        }
    }

    /// Notes that signals could not be delivered.
    pub(crate) fn failed_to_signal(&self) {
        if let Some(core) = self.core() {
            core.metrics.failed(Verb::Signal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Puts jobs in and says of each what became of it. All of them are in, or none is, when this fails with
    /// [`Error::Invalid`]; after [`Error::Unavailable`] call again with the same jobs.
    pub async fn submit(self: &Arc<Self>, mut jobs: Vec<NewJob>) -> Answer {
        trace::stamp(&mut jobs);
        jobs.iter().try_for_each(|job| self.store.limits().check(job))?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let lead = {
            let mut state = self.lock();
            state.waiting.push(Item { jobs, since: Instant::now(), reply });
            let lead = state.flying < self.flights;
            state.flying += usize::from(lead);
            lead
        };
        if lead {
            // On the engine's runtime: the caller's may end before the answer comes.
            self.runtime.spawn(Arc::clone(self).fly());
        }
        answer
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("the engine has stopped; submit again".into())))
    }

    /// Sends groups until none waits.
    async fn fly(self: Arc<Self>) {
        loop {
            let group = {
                let mut state = self.lock();
                let (mut size, mut bytes) = (0, 0);
                let fits = |item: &Item| {
                    size += item.jobs.len();
                    bytes += item.jobs.iter().map(NewJob::bytes).sum::<usize>();
                    size <= CHUNK && bytes <= MAX_BATCH_BYTES
                };
                let count = state.waiting.iter().map(fits).take_while(|fits| *fits).count().max(1);
                let count = count.min(state.waiting.len());
                if count == 0 {
                    state.flying -= 1;
                    return;
                }
                state.waiting.drain(..count).collect::<Vec<Item>>()
            };
            self.send(group).await;
        }
    }

    async fn send(&self, items: Vec<Item>) {
        let core = self.core();
        let (born, plain): (Vec<Item>, Vec<Item>) = match &core {
            Some(core) => items.into_iter().partition(|item| reserve(core, item)),
            None => (Vec::new(), items),
        };
        if !born.is_empty() {
            self.settle(core.as_ref(), Group::of(born), true).await;
        }
        if !plain.is_empty() {
            self.settle(core.as_ref(), Group::of(plain), false).await;
        }
    }

    /// Sends a group, to be born claimed if slots are reserved for it. If the store refuses it, its halves are sent by
    /// themselves, and theirs, until what is wrong with a job is said to the caller whose job it is.
    async fn settle(&self, core: Option<&Arc<Core>>, group: Group, reserved: bool) {
        let mut groups = vec![group];
        while let Some(mut group) = groups.pop() {
            // Numbers are not used again: nothing was claimed under that of a group which was refused.
            let number =
                |core: &Arc<Core>| ClaimOnSubmit { worker: core.worker(), number: core.ledger.number() };
            let born = core.filter(|_| reserved).map(|core| (core, number(core)));
            let answers = self.answer(&mut group, born.map(|(_, born)| born)).await;
            if let Err(error) = &answers
                && !error.is_retryable()
                && group.callers.len() > 1
            {
                if let Some((core, born)) = born {
                    core.ledger.open(born.number, 0);
                }
                let rest = group.split();
                groups.extend([rest, group]);
                continue;
            }
            let known = answers.as_deref().unwrap_or_default();
            match born {
                Some((core, born)) => take_up(core, born, &group.jobs, known),
                None => wake(core.map(|core| &**core), &group.jobs, known),
            }
            group.reply(answers);
        }
    }

    /// Sends a group until the store answers; callers who have waited long enough are told before. An error that may pass is
    /// answered if nobody waits any more.
    async fn answer(&self, group: &mut Group, born: Option<ClaimOnSubmit>) -> Answer {
        let mut backoff = Backoff::new("submitting");
        loop {
            match self.store.submit(None, &group.jobs, born).await {
                Ok(mut answers) => {
                    backoff.reset();
                    if group.again {
                        // What is there now was put in by an earlier send of this call, whose answer was lost.
                        for answer in answers.iter_mut().filter(|answer| **answer == SubmitOutcome::Repeated)
                        {
                            *answer = SubmitOutcome::New { claimed: None };
                        }
                    }
                    return Ok(answers);
                }
                Err(error) => {
                    if let Some(core) = self.core() {
                        core.metrics.failed(Verb::Submit);
                    }
                    if !error.is_retryable() {
                        return Err(error);
                    }
                    group.again = true;
                    // A born-claimed group may be in and claimed: it must be known before it is forgotten.
                    if !group.is_waited_for(&error, self.patience) && born.is_none() {
                        return Err(error);
                    }
                    backoff.wait(&error).await;
                }
            }
        }
    }
}

impl Group {
    fn of(items: Vec<Item>) -> Group {
        let (mut jobs, mut callers) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
        for Item { jobs: own, since, reply } in items {
            callers.push(Caller { jobs: own.len(), since, reply: Some(reply) });
            jobs.extend(own);
        }
        Group { jobs, callers, again: false }
    }

    /// Takes the second half of the callers, with their jobs, away.
    fn split(&mut self) -> Group {
        let callers = self.callers.split_off(self.callers.len() / 2);
        let first = self.callers.iter().map(|caller| caller.jobs).sum();
        Group { jobs: self.jobs.split_off(first), callers, again: self.again }
    }

    /// Tells those who have waited long enough; whether others still wait.
    fn is_waited_for(&mut self, error: &Error, patience: Duration) -> bool {
        for caller in self.callers.iter_mut().filter(|caller| caller.since.elapsed() > patience) {
            if let Some(reply) = caller.reply.take() {
                let _ = reply.send(Err(error.again()));
            }
        }
        self.callers.iter().any(|caller| caller.reply.is_some())
    }

    /// Tells everybody who waits.
    fn reply(self, answers: Answer) {
        let mut answers = answers.map(Vec::into_iter);
        for Caller { jobs, reply, .. } in self.callers {
            let mine = match &mut answers {
                Ok(answers) => Ok(answers.by_ref().take(jobs).collect()),
                Err(error) => Err(error.again()),
            };
            if let Some(reply) = reply {
                let _ = reply.send(mine);
            }
        }
    }
}

/// The pool here that serves a queue.
fn pool_of<'a>(core: &'a Core, queue: &str) -> Option<&'a Arc<QueuePool>> {
    core.pools.iter().find(|pool| pool.queue == queue)
}

/// Reserves a slot for an item that is one job, due now, if there is a free one here.
fn reserve(core: &Core, item: &Item) -> bool {
    let [job] = item.jobs.as_slice() else { return false };
    // A deadline is judged by the store's clock, which only a claim tells.
    job.when == When::Now
        && !job.needs_slow_path()
        && job.deadline_at.is_none()
        && !core.is_stopping()
        && core.lease_holds()
        && pool_of(core, &job.queue).is_some_and(|pool| pool.reserve(&job.kind))
}

/// Starts jobs that were born claimed. Without answers, only gives the reserved slots back.
fn take_up(core: &Arc<Core>, born: ClaimOnSubmit, jobs: &[NewJob], answers: &[SubmitOutcome]) {
    let claimed: Vec<&NewJob> = jobs
        .iter()
        .zip(answers)
        .filter(|(_, answer)| matches!(answer, SubmitOutcome::New { claimed: Some(_) }))
        .map(|(job, _)| job)
        .collect();
    core.ledger.open(born.number, claimed.len());
    add(&core.stats.claimed, claimed.len());
    for job in jobs {
        pool_of(core, &job.queue).expect("reserved there").unreserve();
    }
    for job in claimed {
        let pool = pool_of(core, &job.queue).expect("reserved there");
        pool.waits.note(0);
        // Due as it was submitted, by this process's clock: nobody compares it with the store's.
        let now = core.config.env.now();
        let claimed = Arc::new(job.claimed_at_submit(born.number, windlass_model::Epoch(0), now));
        let claim = Claim::new(core, &claimed, born.number, born.worker);
        let cancel = Arc::default();
        pool.accept(
            core,
            vec![Job { claimed, claim, expires: None, now, offset: 0, steps_before_yield: 0, cancel }],
        );
    }
    let ready = jobs.iter().zip(answers).filter(|(_, a)| matches!(a, SubmitOutcome::New { claimed: None }));
    ready.for_each(|(job, _)| wake_one(core, job));
}

/// Tells the loops here of jobs that were put in.
fn wake(core: Option<&Core>, jobs: &[NewJob], answers: &[SubmitOutcome]) {
    let Some(core) = core else { return };
    let is_new =
        |answer: &SubmitOutcome| matches!(answer, SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. });
    let new = jobs.iter().zip(answers).filter(|(_, answer)| is_new(answer));
    new.for_each(|(job, _)| wake_one(core, job));
}

fn wake_one(core: &Core, job: &NewJob) {
    let now = core.config.env.now();
    if let Some(at) = job.deadline_at {
        core.timekeeper.set(at.since(now));
    }
    match job.when {
        When::Now => {
            if let Some(pool) = pool_of(core, &job.queue) {
                pool.wake();
            }
        }
        When::After(delay) => core.timekeeper.set(delay),
        When::At(at) => core.timekeeper.set(at.since(now)),
    }
}
