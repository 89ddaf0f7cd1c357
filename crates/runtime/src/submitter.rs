//! Submits jobs from this process, in batches, and claims them at once where there is room.
//!
//! Submits that come while a transaction is in flight share the next one. A job for a queue with room in
//! this worker, for it and for all jobs that are known to wait, is inserted already claimed: one write less, and no wait.
//!
//! A batch is sent by a task of its own, so a caller that gives up does not harm others. It is repeated blindly until the
//! store answers. A caller that has waited too long gets an error and may repeat the call: the ids are the same. A batch
//! that the store refuses is split until the bad job fails only the call that it came with.

use std::{
    sync::{Arc, Mutex, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use windlass_env::Env;
use windlass_model::{Epoch, NewJob, SubmitOutcome, When, limits::MAX_BATCH_BYTES};
use windlass_store::{ClaimOnSubmit, Error, Store};

use crate::{
    backoff::Backoff,
    core::Core,
    pool::{Job, QueuePool},
    releaser::ClaimGuard,
    sync::lock,
    telemetry::{StoreCall, add, trace},
    write_turns::{WriteTurn, WriteTurns},
};

/// The most jobs in one transaction, unless a single call has more.
const BATCH_JOBS: usize = 1_000;

/// Submits jobs for all callers of this process.
pub struct Submitter {
    env: Env,
    pub(crate) store: Arc<dyn Store>,
    state: Mutex<State>,
    /// How many transactions may be in flight.
    max_in_flight: usize,
    /// Shared with the committer of this process's worker.
    pub(crate) turns: WriteTurns,
    /// How long a caller waits for a store that does not answer.
    max_wait: Duration,
    pub(crate) runtime: tokio::runtime::Handle,
    /// The worker of this process that started last.
    worker: Mutex<Weak<Core>>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Call>,
    in_flight: usize,
}

pub(crate) type Reply = Result<Vec<SubmitOutcome>, Error>;

/// One call of [`Submitter::submit`].
pub(crate) struct Call {
    pub(crate) jobs: Vec<NewJob>,
    pub(crate) since: Instant,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// The jobs of several calls, sent together.
pub(crate) struct Batch {
    pub(crate) jobs: Vec<NewJob>,
    callers: Vec<Caller>,
    /// Whether they were sent before without an answer: they may have been inserted.
    is_repeat: bool,
}

/// The caller of the next jobs of a batch.
struct Caller {
    /// How many jobs of the batch are its own.
    jobs: usize,
    since: Instant,
    /// `None` once it was answered.
    reply: Option<oneshot::Sender<Reply>>,
}

impl Submitter {
    /// A submitter on the current runtime, with up to `max_in_flight` transactions in flight. A caller gets an error if the
    /// store has not answered after `max_wait`.
    pub fn new(env: Env, store: Arc<dyn Store>, max_in_flight: usize, max_wait: Duration) -> Arc<Submitter> {
        let runtime = env.runtime();
        let (state, worker) = (Mutex::default(), Mutex::default());
        let max_in_flight = max_in_flight.max(1);
        let turns = WriteTurns::new(store.writes_in_turn());
        Arc::new(Submitter { env, store, state, max_in_flight, turns, max_wait, runtime, worker })
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn attach(&self, core: &Arc<Core>) {
        *lock(&self.worker) = Arc::downgrade(core);
    }

    pub(crate) fn core(&self) -> Option<Arc<Core>> {
        lock(&self.worker).upgrade()
    }

    /// Makes this process's worker check now for ready jobs, timers and cancel requests.
    pub fn poke(&self) {
        if let Some(core) = self.core() {
            core.wake_pools();
            core.timekeeper.poke();
            core.cancellations.poke();
        }
    }

    /// Notes that this process has committed for a worker elsewhere: this process's worker sums up what has ended.
    pub fn note_commit_elsewhere(&self) {
        if let Some(core) = self.core() {
            core.commits_elsewhere.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes this process's worker check now for ready jobs.
    pub(crate) fn wake_pools(&self) {
        if let Some(core) = self.core() {
            core.wake_pools();
        }
    }

    /// Counts a failed call in the metrics of this process's worker.
    pub(crate) fn count_error(&self, call: StoreCall) {
        if let Some(core) = self.core() {
            core.metrics.count_error(call);
        }
    }

    /// Submits jobs, and returns the outcome of each. After [`Error::Invalid`] none of them was inserted; after
    /// [`Error::Unavailable`] call again with the same jobs.
    pub async fn submit(self: &Arc<Self>, mut jobs: Vec<NewJob>) -> Reply {
        trace::pass_on(&mut jobs);
        jobs.iter().try_for_each(|job| self.store.limits().check(job))?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let starts_task = {
            let mut state = lock(&self.state);
            state.waiting.push(Call { jobs, since: self.env.instant(), reply });
            let starts_task = state.in_flight < self.max_in_flight;
            state.in_flight += usize::from(starts_task);
            starts_task
        };
        if starts_task {
            // On the engine's runtime: the caller's may end before the answer comes.
            self.runtime.spawn(Arc::clone(self).run());
        }
        answer
            .await
            .unwrap_or_else(|_| Err(Error::Unavailable("the engine has stopped; submit again".into())))
    }

    /// Sends batches until no call waits.
    async fn run(self: Arc<Self>) {
        loop {
            let mut turn = Some(self.turns.next().await);
            self.turns.gather().await;
            let Some(calls) = self.next_calls() else { return };
            self.tick(calls, &mut turn).await;
        }
    }

    /// Takes the calls of the next batch; `None`, and one less in flight, if none waits.
    fn next_calls(&self) -> Option<Vec<Call>> {
        let mut state = lock(&self.state);
        let (mut size, mut bytes) = (0, 0);
        let fits = |call: &Call| {
            size += call.jobs.len();
            bytes += call.jobs.iter().map(NewJob::bytes).sum::<usize>();
            size <= BATCH_JOBS && bytes <= MAX_BATCH_BYTES
        };
        let count = state.waiting.iter().map(fits).take_while(|fits| *fits).count().max(1);
        let count = count.min(state.waiting.len());
        if count == 0 {
            state.in_flight -= 1;
            return None;
        }
        Some(state.waiting.drain(..count).collect())
    }

    /// Sends the calls: those with a reservation in one batch, the others in another.
    async fn tick(&self, calls: Vec<Call>, turn: &mut Option<WriteTurn>) {
        let core = self.core();
        let (reserved, plain): (Vec<Call>, Vec<Call>) = match &core {
            Some(core) => calls.into_iter().partition(|call| reserve_room(core, call)),
            None => (Vec::new(), calls),
        };
        if !reserved.is_empty() {
            self.send(core.as_ref(), Batch::new(reserved), true, turn).await;
        }
        if !plain.is_empty() {
            self.send(core.as_ref(), Batch::new(plain), false, turn).await;
        }
    }

    /// Sends a batch, to be claimed at once if room is reserved for it. If the store refuses it, each half is sent by
    /// itself, and so on, until only the caller of the invalid job gets the error.
    async fn send(
        &self,
        core: Option<&Arc<Core>>,
        batch: Batch,
        is_reserved: bool,
        turn: &mut Option<WriteTurn>,
    ) {
        let mut batches = vec![batch];
        while let Some(mut batch) = batches.pop() {
            // Each try has its own claim number: nothing was claimed under that of a batch that was refused.
            let claim = core.filter(|_| is_reserved).map(|core| {
                (core, ClaimOnSubmit { worker: core.worker(), number: core.ledger.next_number() })
            });
            let outcomes =
                self.send_until_answered(&mut batch, claim.map(|(_, claim)| claim), turn.take()).await;
            if let Err(error) = &outcomes
                && !error.is_retryable()
                && batch.callers.len() > 1
            {
                if let Some((core, claim)) = claim {
                    core.ledger.open(claim.number, 0);
                }
                let second_half = batch.split();
                batches.extend([second_half, batch]);
                continue;
            }
            let known = outcomes.as_deref().unwrap_or_default();
            match claim {
                Some((core, claim)) => start_claimed(core, claim, &batch.jobs, known),
                None => wake_for_new(core.map(|core| &**core), &batch.jobs, known),
            }
            batch.reply(outcomes);
        }
    }

    /// Sends a batch until the store answers, the first time in `turn`, if the caller has one. Callers that have waited too long get the error meanwhile; a retryable error is
    /// returned once no caller waits any more.
    pub(crate) async fn send_until_answered(
        &self,
        batch: &mut Batch,
        claim: Option<ClaimOnSubmit>,
        mut turn: Option<WriteTurn>,
    ) -> Reply {
        let mut backoff = Backoff::new(&self.env, "submitting");
        loop {
            let turn = match turn.take() {
                Some(turn) => turn,
                None => self.turns.next().await,
            };
            let submitted = self.store.submit(None, &batch.jobs, claim).await;
            // Others write while this one waits to try again.
            drop(turn);
            match submitted {
                Ok(mut outcomes) => {
                    backoff.reset();
                    if batch.is_repeat {
                        // A job that exists was inserted by an earlier send of this call, whose answer was lost.
                        let repeated =
                            outcomes.iter_mut().filter(|outcome| **outcome == SubmitOutcome::Repeated);
                        repeated.for_each(|outcome| *outcome = SubmitOutcome::New { claimed: None });
                    }
                    return Ok(outcomes);
                }
                Err(error) => {
                    self.count_error(StoreCall::Submit);
                    if !error.is_retryable() {
                        return Err(error);
                    }
                    batch.is_repeat = true;
                    // Jobs that may have been inserted claimed must not be forgotten before that is known.
                    if !batch.is_waited_for(&error, &self.env, self.max_wait) && claim.is_none() {
                        return Err(error);
                    }
                    backoff.wait(&error).await;
                }
            }
        }
    }
}

impl Batch {
    pub(crate) fn new(calls: Vec<Call>) -> Batch {
        let (mut jobs, mut callers) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
        for Call { jobs: own, since, reply } in calls {
            callers.push(Caller { jobs: own.len(), since, reply: Some(reply) });
            jobs.extend(own);
        }
        Batch { jobs, callers, is_repeat: false }
    }

    /// Splits off the second half of the callers, with their jobs.
    fn split(&mut self) -> Batch {
        let callers = self.callers.split_off(self.callers.len() / 2);
        let first = self.callers.iter().map(|caller| caller.jobs).sum();
        Batch { jobs: self.jobs.split_off(first), callers, is_repeat: self.is_repeat }
    }

    /// Answers callers that have waited too long; returns whether others still wait.
    fn is_waited_for(&mut self, error: &Error, env: &Env, max_wait: Duration) -> bool {
        for caller in self.callers.iter_mut().filter(|caller| env.since(caller.since) > max_wait) {
            if let Some(reply) = caller.reply.take() {
                let _ = reply.send(Err(error.again()));
            }
        }
        self.callers.iter().any(|caller| caller.reply.is_some())
    }

    /// Answers all callers that wait.
    pub(crate) fn reply(self, outcomes: Reply) {
        let mut outcomes = outcomes.map(Vec::into_iter);
        for Caller { jobs, reply, .. } in self.callers {
            let own = match &mut outcomes {
                Ok(outcomes) => Ok(outcomes.by_ref().take(jobs).collect()),
                Err(error) => Err(error.again()),
            };
            if let Some(reply) = reply {
                let _ = reply.send(own);
            }
        }
    }
}

/// The pool of this worker that serves a queue.
fn pool_of<'a>(core: &'a Core, queue: &str) -> Option<&'a Arc<QueuePool>> {
    core.pools.iter().find(|pool| pool.queue == queue)
}

/// Reserves room for a call with a single job that is due now, if there is some.
fn reserve_room(core: &Core, call: &Call) -> bool {
    let [job] = call.jobs.as_slice() else { return false };
    can_claim_at_submit(job)
        && !core.is_stopping()
        && core.lease_holds()
        && pool_of(core, &job.queue).is_some_and(|pool| pool.reserve(&job.kind))
}

/// Whether a job can be claimed by its submit.
pub(crate) fn can_claim_at_submit(job: &NewJob) -> bool {
    // Not with a deadline: it is judged by the store's clock, which only a claim returns.
    job.when == When::Now && !job.needs_slow_path() && job.deadline_at.is_none()
}

/// A job that its submit has claimed, as the pools take it.
pub(crate) fn claimed_at_submit(core: &Core, claim: ClaimOnSubmit, job: &NewJob) -> Job {
    // Due when it was submitted, by this process's clock: it is not compared with the store's.
    let now = core.env.now();
    let claimed = Arc::new(job.claimed_at_submit(claim.number, Epoch(0), now));
    core.waiters.hold([claimed.id]);
    Job {
        claim: ClaimGuard::new(core, &claimed, claim.number, claim.worker),
        claimed,
        expires_at: None,
        claimed_at: now,
        clock_offset: 0,
        unchanged_steps: 0,
        started_at: None,
        cancel: Arc::default(),
    }
}

/// Starts jobs that were claimed at submit, and ends the reservations of all. Without outcomes it only does the latter.
fn start_claimed(core: &Arc<Core>, claim: ClaimOnSubmit, jobs: &[NewJob], outcomes: &[SubmitOutcome]) {
    let claimed: Vec<&NewJob> = jobs
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| matches!(outcome, SubmitOutcome::New { claimed: Some(_) }))
        .map(|(job, _)| job)
        .collect();
    core.ledger.open(claim.number, claimed.len());
    add(&core.stats.claimed, claimed.len());
    for job in jobs {
        pool_of(core, &job.queue).expect("reserved there").unreserve();
    }
    for job in claimed {
        let pool = pool_of(core, &job.queue).expect("reserved there");
        pool.queue_wait.record(0);
        pool.accept(core, vec![claimed_at_submit(core, claim, job)]);
    }
    let is_ready = |outcome: &SubmitOutcome| matches!(outcome, SubmitOutcome::New { claimed: None });
    let ready = jobs.iter().zip(outcomes).filter(|(_, outcome)| is_ready(outcome));
    ready.for_each(|(job, _)| wake_for(core, job));
}

/// Wakes the loops that jobs concern which were inserted.
fn wake_for_new(core: Option<&Core>, jobs: &[NewJob], outcomes: &[SubmitOutcome]) {
    let Some(core) = core else { return };
    let is_new = |outcome: &SubmitOutcome| {
        matches!(outcome, SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. })
    };
    let new = jobs.iter().zip(outcomes).filter(|(_, outcome)| is_new(outcome));
    new.for_each(|(job, _)| wake_for(core, job));
}

/// Wakes the loops that a job concerns which was inserted.
pub(crate) fn wake_for(core: &Core, job: &NewJob) {
    let now = core.env.now();
    if let Some(at) = job.deadline_at {
        core.timekeeper.set(at - now);
    }
    match job.when {
        When::Now => {
            if let Some(pool) = pool_of(core, &job.queue) {
                pool.wake_for_own();
            }
        }
        When::After(delay) => core.timekeeper.set(delay),
        When::At(at) => core.timekeeper.set(at - now),
    }
}
