//! Runs one attempt: calls the handler of the job's kind, within its time limit, and turns whatever happens into a change.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use windlass_env::Env;
use windlass_model::{Change, CommitOutcome, Failure, Outcome, Retry, StepWrites};

use crate::{
    Attempt, AttemptInfo, Handler, Running, Started, StepResult, StepWriter,
    core::Core,
    layer,
    outcome::{self, AttemptEnd, ChangeBuilder},
    pool::{Job, QueuePool},
    releaser::ClaimGuard,
    telemetry::add,
    watchdog::AttemptWatch,
};

/// How long a job stays claimed, without a slot, after its attempt could not read from the store: other jobs use the slot
/// meanwhile, and after an outage the job is not late by much.
const UNREADABLE_STORE_DELAY: Duration = Duration::from_secs(10);

impl Core {
    /// Runs one attempt, or one step of a machine, to its end. `None` if nothing is to be committed for it.
    pub(crate) async fn execute(
        self: &Arc<Core>,
        job: &Job,
        pool: &Arc<QueuePool>,
        watch: &AttemptWatch,
    ) -> Option<Change> {
        let Some(handler) = self.registry.get(&job.claimed.kind) else {
            unreachable!("only kinds that are served are claimed");
        };
        let attempt = Arc::new(Attempt {
            job: Arc::clone(&job.claimed),
            worker: job.claim.worker,
            started_at: job.started_at.unwrap_or_else(|| self.env.now()),
            writer: Arc::new(StepWriter::new(self, pool, &job.claim, job.claimed.rev, job.clock_offset)),
            cancelled: self.cancelled(),
            cancel: Arc::clone(&job.cancel),
            progress: Arc::default(),
        });
        if let Some(fault) = &job.claimed.fault {
            return Some(outcome::change(&attempt, outcome::undecodable_row(fault), None));
        }
        if let Some(wait) = outcome::unmet_wait(&attempt, job.claimed_at) {
            return Some(outcome::change(&attempt, Outcome::Wait(wait), Some(StepWrites::default())));
        }
        let Started { running, timeout, stage, handles_own_end } = start(&**handler, &attempt);
        let layers = self.registry.layers();
        let running = layer::wrap(layers, || AttemptInfo::new(&attempt, None), running);
        let limit = TimeLimit::new(job, timeout, handles_own_end, self.env.instant());
        if limit.is_expired() {
            return Some(outcome::change(&attempt, outcome::expired(&attempt), None));
        }
        add(&self.stats.started, 1);
        let execution =
            Execution { core: self, attempt: &attempt, claim: &job.claim, watch, limit, handles_own_end };
        let end = execution.perform(running).await?;
        let end = execution.resolve_own_end(end).await?;
        let end = execution.with_change(end).await?;
        let builder = ChangeBuilder {
            core: self,
            handler: &**handler,
            attempt: &attempt,
            stage,
            unchanged_steps: job.unchanged_steps,
            is_deadline: limit.is_deadline,
            limit: limit.time,
        };
        let failure = match builder.after(end) {
            Ok(change) => return Some(change),
            Err(failure) => failure,
        };
        // The code may handle its failure. That runs like the attempt itself.
        let rescue = catch_unwind(AssertUnwindSafe(|| handler.rescue(Arc::clone(&attempt), &failure)));
        Some(match rescue {
            Ok(None) => builder.by_policy(failure),
            Ok(Some(running)) => {
                let running = layer::wrap(layers, || AttemptInfo::new(&attempt, Some(&failure)), running);
                let end = execution.perform(running).await?;
                builder.after_rescue(failure, execution.with_change(end).await?)
            }
            Err(panic) => builder.after_rescue(failure, AttemptEnd::Panic(Failure::of_panic(&*panic))),
        })
    }

    /// What follows from an attempt that panicked outside of the code that is guarded above: in a destructor, or in its
    /// retry policy. `None` if the watchdog has given it up, or the worker is stopping or was declared dead.
    pub(crate) fn after_panic(&self, watch: &AttemptWatch, panic: &(dyn Any + Send)) -> Option<Change> {
        let attempt = watch.attempt();
        if !self.end_watch(watch) {
            return None;
        }
        let attempt = attempt.filter(|attempt| !attempt.writer.is_stopping(attempt.worker))?;
        let failure = Failure::of_panic(panic);
        let outcome = match attempt.cancel.actor() {
            Some(actor) => Outcome::Cancelled(actor.failure()),
            None => self.outcome_of_failure(&attempt, None, failure),
        };
        Some(outcome::change(&attempt, outcome, None))
    }

    /// What follows from a failure: by the job's own retry policy, or else by that of its kind. Without a handler, as after a
    /// panic in the policy itself, the default policy decides.
    pub(crate) fn outcome_of_failure(
        &self,
        attempt: &Attempt,
        handler: Option<&dyn Handler>,
        failure: Failure,
    ) -> Outcome {
        let (job, random) = (&attempt.job, self.env.random());
        if let Some(own) = &job.settings.retry {
            return own.outcome(failure, &job.retry_counts, random);
        }
        let Some(handler) = handler else {
            return Retry::default().outcome(failure, &job.retry_counts, random);
        };
        let backoff = |failure: &Failure, nth: u32| {
            catch_unwind(AssertUnwindSafe(|| handler.backoff(attempt, failure, nth))).ok().flatten()
        };
        handler.retry(attempt).outcome_with(failure, &job.retry_counts, random, backoff)
    }
}

/// How long an attempt may run.
#[derive(Clone, Copy)]
struct TimeLimit {
    /// `None` is without a limit.
    time: Option<Duration>,
    /// Whether it is the job's deadline that limits the attempt, and not its timeout.
    is_deadline: bool,
}

impl TimeLimit {
    /// The attempt's timeout or the job's deadline, whichever is earlier. `timeout` is that of the handler.
    fn new(job: &Job, timeout: Option<Duration>, handles_own_end: bool, now: Instant) -> TimeLimit {
        let timeout = job.claimed.settings.timeout.filter(|_| !handles_own_end).or(timeout);
        let left = job.expires_at.filter(|_| !handles_own_end).map(|at| at.saturating_duration_since(now));
        let is_deadline = left.is_some_and(|left| timeout.is_none_or(|timeout| left <= timeout));
        TimeLimit { time: if is_deadline { left } else { timeout }, is_deadline }
    }

    /// Whether the deadline has passed.
    fn is_expired(&self) -> bool {
        self.is_deadline && self.time.is_some_and(|left| left.is_zero())
    }
}

/// One attempt while it runs.
struct Execution<'a> {
    core: &'a Arc<Core>,
    attempt: &'a Arc<Attempt>,
    claim: &'a Arc<ClaimGuard>,
    watch: &'a AttemptWatch,
    limit: TimeLimit,
    /// See [`Started::handles_own_end`].
    handles_own_end: bool,
}

impl Execution<'_> {
    /// Runs a future of the attempt, and waits for the commits that it began. `None` if the attempt was given up or its
    /// claim is over.
    async fn perform(&self, running: Running) -> Option<AttemptEnd> {
        let end = self.run_to_end(running).await?;
        if let Some(halted) = self.attempt.writer.settled().await {
            if halted {
                self.core.end_cancelled(self.attempt.job.id).await;
            }
            return None;
        }
        Some(end)
    }

    /// Runs a future until it ends, reaches its time limit or the deadline of a cancel request, or is given up (`None`).
    async fn run_to_end(&self, running: Running) -> Option<AttemptEnd> {
        let mut aborted = self.core.aborts.subscribe();
        if self.core.aborts.contains(self.claim) {
            return None;
        }
        self.watch.set(self.attempt, self.claim, self.limit.time);
        self.core.cancellations.apply_to(self.attempt);
        // The future is dropped in there as well, so that a panic of its destructor is caught too.
        let run = within(&self.core.env, self.limit.time, running);
        let end = tokio::select! {
            biased;
            end = AssertUnwindSafe(run).catch_unwind() => Some(match end {
                Ok(Ok(Ok(result))) => AttemptEnd::Returned(result),
                Ok(Ok(Err(failure))) => AttemptEnd::Failure(failure),
                Ok(Err(())) => AttemptEnd::Timeout,
                Err(panic) => AttemptEnd::Panic(Failure::of_panic(&*panic)),
            }),
            () = aborted.wait_for(self.claim) => None,
            () = self.attempt.cancel.deadline_passed(&self.core.env), if !self.handles_own_end => {
                Some(AttemptEnd::Failure(Failure::stop("it did not end within the grace period of its cancel request")))
            }
        };
        if !self.core.end_watch(self.watch) {
            return None;
        }
        end
    }

    /// For a handler that enforces deadlines and cancel requests itself: settles a transaction whose answer was lost, and
    /// leaves the end of a cancelled job to the store. `None` if there is nothing more to commit.
    async fn resolve_own_end(&self, end: AttemptEnd) -> Option<AttemptEnd> {
        if !self.handles_own_end {
            return Some(end);
        }
        let Attempt { writer, job, cancel, .. } = &**self.attempt;
        if writer.is_in_doubt() && writer.settle(self.attempt).await != CommitOutcome::Committed {
            return None;
        }
        if cancel.is_requested() && !matches!(end, AttemptEnd::Returned(_)) {
            // However it failed: the store ends the job, and unwinds it first if there is something to undo.
            if writer.commit(self.attempt, StepWrites::default()).await == CommitOutcome::Halted {
                self.core.end_cancelled(job.id).await;
            }
            return None;
        }
        Some(end)
    }

    /// Returns the end of an attempt if a change follows from it; otherwise does what follows instead.
    async fn with_change(&self, end: AttemptEnd) -> Option<AttemptEnd> {
        let is_unread = self.attempt.writer.is_unread();
        match end {
            AttemptEnd::Returned(StepResult::ClaimOver) if is_unread => self.release_later(),
            AttemptEnd::Timeout if is_unread && !self.limit.is_deadline => self.release_later(),
            AttemptEnd::Returned(StepResult::ClaimOver) => {}
            AttemptEnd::Returned(StepResult::Halted) => self.core.end_cancelled(self.attempt.job.id).await,
            end => return Some(end),
        }
        None
    }

    /// Nothing follows from an attempt that could not read from the store. Its job is released after a delay; until then it
    /// stays claimed, without a slot, so that other jobs can run.
    fn release_later(&self) {
        self.attempt.writer.close();
        let (core, claim) = (Arc::clone(self.core), Arc::clone(self.claim));
        self.core.runtime.spawn(async move {
            tokio::select! {
                () = core.env.sleep(UNREADABLE_STORE_DELAY) => {}
                () = core.stopping() => {}
            }
            drop(claim);
        });
    }
}

async fn within<F: Future>(env: &Env, limit: Option<Duration>, work: F) -> Result<F::Output, ()> {
    match limit {
        Some(limit) => env.timeout(limit, work).await.map_err(|_| ()),
        None => Ok(work.await),
    }
}

/// Starts an attempt. A panic of the handler is treated like one of the attempt.
fn start(handler: &dyn Handler, attempt: &Arc<Attempt>) -> Started {
    let started = catch_unwind(AssertUnwindSafe(|| handler.start(Arc::clone(attempt))));
    started.unwrap_or_else(|panic| {
        let failure = Failure::of_panic(&*panic);
        let running = Box::pin(std::future::ready(Err(failure)));
        Started { running, timeout: None, stage: attempt.job.stage.clone(), handles_own_end: false }
    })
}
