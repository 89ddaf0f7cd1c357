//! Drives a workflow: performs what [`RunState::decide`] decides.
//!
//! The driver polls the code, commits the pending writes, waits, and reads the inbox and the ends of children. It reports what came
//! of that as the next event, until the workflow ends or parks, or its claim is over.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use windlass_model::{CommitOutcome, Failure, JobId, Outcome, Signal, StepWrites, Time, Unwind};
use windlass_runtime::{Attempt, StepResult};
use windlass_store::JobEnd;

#[cfg(doc)]
use super::state::RunState;
use super::{
    Boxed,
    context::Value,
    core::{Core, RootWaker},
    decide::{Action, Event, Inputs},
    differences::Differences,
    fault::misuse,
};
use crate::store_retry::retry_unavailable;

/// How long the code may run between two durable calls: longer blocks the thread.
pub(super) const MAX_POLL: Duration = Duration::from_secs(10);
/// How many steps a workflow may commit without waiting: more is taken for an endless loop.
const MAX_STEPS: u32 = 1_000_000;
/// How often the inbox is read while bodies are running.
const INBOX_INTERVAL: Duration = Duration::from_millis(500);

/// The code of a workflow, which returns its output as JSON.
pub(super) type Root = Boxed<'static, Result<Vec<u8>, Failure>>;

/// Drives a workflow's code.
pub(super) struct Driver {
    pub(super) core: Arc<Core>,
    /// `None` once the code has ended or must not be polled any more.
    root: Option<Root>,
    /// The waker that the code is polled with.
    waker: Waker,
    /// The number of steps that this attempt has committed.
    steps: u32,
    /// When the inbox is read next while bodies are running.
    next_inbox_read: Option<Instant>,
}

/// How driving the code ended.
enum CodeEnd {
    Returned(Result<Vec<u8>, Failure>),
    /// All recorded ends were delivered.
    Replayed,
    /// The job is being cancelled.
    Cancelled,
    /// The attempt ends like this.
    AttemptOver(StepResult),
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, root: Root) -> Driver {
        let waker = Waker::from(Arc::new(RootWaker(Arc::clone(&core))));
        Driver { core, root: Some(root), waker, steps: 0, next_inbox_read: None }
    }

    pub(super) fn attempt(&self) -> &Arc<Attempt> {
        self.core.attempt.as_ref().expect("only a replay has none, and it ends before it writes")
    }

    /// Runs the workflow until it ends or parks, or its claim is over.
    pub(super) async fn run(mut self) -> Result<StepResult, Failure> {
        let mut unwinding = self.core.job.unwind.as_deref().cloned();
        loop {
            // Code that has caught its cancel runs on while the job is being unwound.
            let catches = self.core.has_caught_cancel();
            let end = match self.run_code(unwinding.is_some() && !catches).await {
                Ok(end) => end,
                Err(failure) => return self.fault(failure),
            };
            let unwind = match end {
                CodeEnd::AttemptOver(result) => return Ok(result),
                CodeEnd::Returned(result) => {
                    self.drop_root();
                    return match unwinding {
                        Some(unwind) => self.unwind(unwind, catches).await,
                        None => self.finish(result).await,
                    };
                }
                CodeEnd::Replayed => unwinding.take().expect("only replayed if it is being unwound"),
                // This attempt commits what has ended and runs the undos: nothing else ends the job meanwhile.
                CodeEnd::Cancelled => match self.attempt().cancel_requested_by() {
                    Some(actor) => Unwind { reason: None, failure: actor.failure() },
                    None => return Ok(self.end_cancelled().await),
                },
            };
            let is_new = self.core.job.unwind.is_none();
            if unwind.reason.is_none() && self.core.lock().catch_cancel(&unwind.failure, self.core.now()) {
                if let Some(result) = self.commit(Some(unwind.clone())).await? {
                    return Ok(result);
                }
                self.core.lock().record_finished();
                unwinding = Some(unwind);
                continue;
            }
            self.drop_root();
            if is_new && !self.has_undos() {
                return Ok(self.end_cancelled().await);
            }
            return self.unwind(unwind, is_new).await;
        }
    }

    /// Replays the workflow as far as its journal goes, and writes nothing. Returns how the code differs from the journal.
    pub(super) async fn replay(mut self) -> Result<Differences, Failure> {
        self.run_code(true).await?;
        // Before the code is dropped: its last calls are still open.
        let mut differences = Differences::of(&self.core.lock());
        self.drop_root();
        differences.add_undo_removed(&self.core.lock());
        Ok(differences)
    }

    /// Drops the code before its undos run, so that nothing of it runs any more.
    pub(super) fn drop_root(&mut self) {
        let core = Arc::clone(&self.core);
        core.lock().code.is_over = true;
        core.run_as_code(|| self.root = None);
    }

    /// Drives the code until it has returned; with `replay`, until all recorded ends were delivered.
    async fn run_code(&mut self, replay: bool) -> Result<CodeEnd, Failure> {
        let mut event = self.poll().await;
        loop {
            event = match self.decide(event, replay) {
                Action::Poll { wake } => {
                    wake.into_iter().for_each(|id| self.core.wake_call(id));
                    self.poll().await
                }
                Action::Commit => {
                    let children = !self.core.lock().pending.children.is_empty();
                    if let Some(result) = self.commit(None).await? {
                        return Ok(CodeEnd::AttemptOver(result));
                    }
                    Event::Committed { children }
                }
                Action::Wait { until, reads_inbox } => self.wait(until, reads_inbox).await,
                Action::ReadInbox => self.read_inbox().await.map_or_else(Event::ReadFailed, Event::InboxRead),
                Action::ReadChildren(ids) => {
                    self.read_children(ids).await.map_or_else(Event::ReadFailed, Event::ChildrenRead)
                }
                Action::Park(wait) => {
                    let (step, outcome) = (Some(Box::new(self.take_step()?)), Outcome::Wait(wait));
                    return Ok(CodeEnd::AttemptOver(StepResult::Commit { step, outcome }));
                }
                Action::ContinueAsNew(input) => return self.continue_as_new(input).map(CodeEnd::AttemptOver),
                Action::Finish(result) => return Ok(CodeEnd::Returned(result)),
                Action::Cancel => return Ok(CodeEnd::Cancelled),
                Action::EndReplay => return Ok(CodeEnd::Replayed),
                Action::EndAttempt(result) => return Ok(CodeEnd::AttemptOver(result)),
                Action::Fail(failure) => return Err(failure),
            };
        }
    }

    fn decide(&self, event: Event, replay: bool) -> Action {
        let core = &*self.core;
        let inputs = Inputs {
            now: core.now(),
            cancel_requested: core
                .attempt
                .as_ref()
                .is_some_and(|attempt| attempt.cancel_requested_by().is_some() && !core.has_caught_cancel()),
            replay,
            one_commit: core.one_commit,
            job: core.job.id,
            claimed_wait: core.job.wait.as_ref(),
            codecs: &core.services.codecs,
        };
        core.lock().decide(event, &inputs)
    }

    /// Polls the code once.
    async fn poll(&mut self) -> Event {
        let (core, waker) = (Arc::clone(&self.core), self.waker.clone());
        let polled = poll_fn(|cx: &mut Context<'_>| {
            core.register_driver(cx);
            // This poll serves all earlier requests to poll again.
            core.take_repoll();
            let Some(root) = self.root.as_mut() else { return Poll::Ready(Poll::Pending) };
            core.set_poll_deadline(Some(MAX_POLL));
            let mut inner = Context::from_waker(&waker);
            let polled = {
                let mut root = tokio::task::coop::unconstrained(Polled(root.as_mut()));
                core.run_as_code(|| Pin::new(&mut root).poll(&mut inner))
            };
            core.set_poll_deadline(None);
            core.start_made();
            Poll::Ready(polled)
        })
        .await;
        let returned = match polled {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        };
        let (foreign_wake, repoll) = (core.has_foreign_wake(), core.take_repoll());
        Event::Polled { returned, foreign_wake, repoll }
    }

    /// Waits until a body is woken, until a time, or until the grace period of a cancel is over.
    async fn wait(&mut self, until: Option<Time>, reads_inbox: bool) -> Event {
        let attempt = Arc::clone(self.attempt());
        let (now, env) = (self.core.now(), self.core.services.env.clone());
        let mut sleep_for = until.map(|until| until - now);
        if reads_inbox {
            // A fixed time, so that bodies that wake often cannot postpone it.
            let read_at = *self.next_inbox_read.get_or_insert_with(|| env.instant() + INBOX_INTERVAL);
            let remaining = read_at.saturating_duration_since(env.instant());
            sleep_for = Some(sleep_for.map_or(remaining, |sleep_for| sleep_for.min(remaining)));
        }
        let core = Arc::clone(&self.core);
        let mut first = true;
        let woken = poll_fn(move |cx: &mut Context<'_>| {
            core.register_driver(cx);
            // Wakes between the last poll and this one are served by polling the code once more.
            if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
        });
        let sleep = async {
            match sleep_for {
                Some(sleep_for) => env.sleep(sleep_for).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = attempt.cancel_deadline(), if !self.core.has_caught_cancel() => Event::GracePeriodOver,
            () = sleep => {
                let read_inbox = self.next_inbox_read.take_if(|at| *at <= env.instant()).is_some();
                Event::TimeOver { read_inbox }
            }
            () = woken => Event::BodyWoken,
        }
    }

    async fn read_inbox(&mut self) -> Result<Vec<Signal>, Failure> {
        let store = Arc::clone(&self.core.services.store);
        retry_unavailable!(store.inspect().inbox(self.core.job.id, usize::MAX))
    }

    async fn read_children(&mut self, ids: Vec<JobId>) -> Result<Vec<(JobId, Option<JobEnd>)>, Failure> {
        let store = Arc::clone(&self.core.services.store);
        let ends = retry_unavailable!(store.job_ends(&ids))?;
        Ok(ids.into_iter().zip(ends).collect())
    }

    /// Takes the pending writes.
    pub(super) fn take_step(&self) -> Result<StepWrites, Failure> {
        let mut state = self.core.lock();
        let mut pending = std::mem::take(&mut state.pending);
        let mut values = std::mem::take(&mut state.context.unwritten);
        values.append(&mut pending.context);
        if std::mem::take(&mut state.journal.forked) {
            let all = state.context.values.clone();
            values = all.into_iter().chain(values).collect();
        }
        let encode = |(name, value): (String, Value)| {
            let payload = value.payload(&self.core)?;
            Ok((name, payload))
        };
        let context = values.into_iter().map(encode).collect::<Result<Vec<_>, Failure>>()?;
        drop(state);
        Ok(StepWrites {
            consumed: pending.consumed,
            unreadable: pending.unreadable,
            children: pending.children,
            branches: pending.branches,
            signal_child_ends: true,
            entries: pending.entries,
            forget_entries: pending.forget_entries,
            context,
            has_undo: pending.has_undo,
            ..StepWrites::default()
        })
    }

    /// Commits the pending writes. Returns how the attempt ends, if it does.
    pub(super) async fn commit(&mut self, unwind: Option<Unwind>) -> Result<Option<StepResult>, Failure> {
        self.steps += 1;
        if self.core.job.steps_since_wait.saturating_add(self.steps) > MAX_STEPS {
            return Err(endless());
        }
        let step = StepWrites { unwind: unwind.map(Box::new), ..self.take_step()? };
        let attempt = Arc::clone(self.attempt());
        match attempt.writer.commit(&attempt, step).await {
            // A worker that is stopping releases the job here, and the next one continues.
            CommitOutcome::Committed => {
                Ok(attempt.writer.is_stopping(attempt.worker).then_some(StepResult::ClaimOver))
            }
            CommitOutcome::Halted => Ok(Some(StepResult::Halted)),
            CommitOutcome::Fenced => Ok(Some(StepResult::ClaimOver)),
            // If the store refused it, the job has failed with that.
            CommitOutcome::Refused(_) if attempt.writer.is_closed() => Ok(Some(StepResult::ClaimOver)),
            CommitOutcome::Refused(why) => {
                Err(misuse(format!("what the workflow wants written is refused: {why}")))
            }
        }
    }

    /// Ends the claim because the job is being cancelled: the store unwinds the job or ends it.
    pub(super) async fn end_cancelled(&mut self) -> StepResult {
        let attempt = Arc::clone(self.attempt());
        let step = self.take_step().unwrap_or_default();
        match (attempt.writer.commit(&attempt, step).await, attempt.cancel_requested_by()) {
            (CommitOutcome::Halted, _) => StepResult::Halted,
            (CommitOutcome::Committed, Some(actor)) => {
                StepResult::Commit { step: None, outcome: Outcome::Cancelled(actor.failure()) }
            }
            _ => StepResult::ClaimOver,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.drop_root();
        // An undo may hold the flow, and the flow holds the undos.
        let undos = std::mem::take(&mut self.core.lock().undos);
        drop(undos);
    }
}

/// The name of a workflow's run, which is the job's stage from the second run on.
pub(super) fn run_name(run: u32) -> String {
    format!("run-{run}")
}

/// The number of the run that a stage is.
pub(super) fn run_of(stage: &str) -> Option<u32> {
    stage.strip_prefix("run-")?.parse().ok()
}

fn endless() -> Failure {
    misuse(format!(
        "the workflow made {MAX_STEPS} steps without waiting for anything: it seems to run in circles; if it does not, let it \
         `continue_as_new` from time to time"
    ))
}

/// A future by reference.
struct Polled<'a, F: ?Sized>(Pin<&'a mut F>);

impl<F: Future + ?Sized> Future for Polled<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}
