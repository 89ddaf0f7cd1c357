//! Drives a workflow: polls its code, delivers recorded ends, begins calls that are not recorded, commits what has ended, and
//! parks the job when all its calls wait.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use windlass_model::{CommitOutcome, Failure, JobId, NewJob, Outcome, StepWrites, Unwind, journal::CallKind};
use windlass_runtime::{Attempt, StepResult};

use super::{
    Boxed,
    context::Value,
    core::{Core, RootWaker},
    differences::Differences,
    state::{AfterCommit, Phase, misuse, source_location},
};

/// How long the code may run between two durable calls: longer blocks the thread.
pub(super) const MAX_POLL: Duration = Duration::from_secs(10);
/// How many steps a workflow may commit without waiting: more is taken for an endless loop.
const MAX_STEPS: u32 = 1_000_000;
/// How often the code may ask to be polled again before the driver decides what else to do.
const MAX_REPOLLS: u32 = 10_000;

/// The code of a workflow, which returns its output as JSON.
pub(super) type Root = Boxed<'static, Result<Vec<u8>, Failure>>;

/// Drives a workflow's code.
pub(super) struct Driver {
    pub(super) core: Arc<Core>,
    /// `None` once the code has ended or must not be polled any more.
    root: Option<Root>,
    /// The waker that the code is polled with.
    waker: Waker,
    steps: u32,
    /// Whether the inbox was read since the set of waits last changed.
    pub(super) inbox_read: bool,
    /// When the inbox is read next while steps are running.
    pub(super) next_inbox_read: Option<Instant>,
    /// Children whose ends were queried.
    pub(super) queried_children: Vec<JobId>,
}

/// What the driver does after it has polled the code.
enum NextAction {
    /// Poll the code again.
    Poll,
    /// Commit what has ended.
    Commit,
    /// Commit everything that is pending.
    Flush,
    /// Wait until something happens.
    Wait,
    /// Park the job.
    Park,
    /// End the attempt: the job is being cancelled.
    Halt,
    /// Fail: the code waits, but no call of it is open.
    Stuck,
    /// End the replay: all recorded ends were delivered.
    Live,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, root: Root) -> Driver {
        let waker = Waker::from(Arc::new(RootWaker(Arc::clone(&core))));
        Driver {
            core,
            root: Some(root),
            waker,
            steps: 0,
            inbox_read: false,
            next_inbox_read: None,
            queried_children: Vec::new(),
        }
    }

    pub(super) fn attempt(&self) -> &Arc<Attempt> {
        self.core.attempt.as_ref().expect("only a replay has none, and it ends before it writes")
    }

    /// Runs the workflow until it ends or parks, or its claim is over.
    pub(super) async fn run(mut self) -> Result<StepResult, Failure> {
        let unwinding = self.core.job.unwind.clone();
        match self.run_code(unwinding.is_some()).await {
            Ok(CodeResult::Returned(result)) => {
                self.drop_root();
                match unwinding {
                    Some(unwind) => self.unwind(*unwind, false).await,
                    None => self.finish(result).await,
                }
            }
            Ok(CodeResult::Replayed) => {
                self.drop_root();
                self.unwind(*unwinding.expect("only replayed if it is being unwound"), false).await
            }
            Ok(CodeResult::AttemptOver(result)) => Ok(result),
            Ok(CodeResult::Halt) => {
                // This attempt commits what has ended and runs the undos: nothing else ends the job meanwhile.
                self.drop_root();
                let failure = self.attempt().cancel_requested_by().map(|actor| actor.failure());
                let undoes = self.has_undos();
                match failure.filter(|_| undoes) {
                    Some(failure) => self.unwind(Unwind { reason: None, failure }, true).await,
                    None => Ok(self.end_cancelled().await),
                }
            }
            Err(failure) => self.fault(failure),
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
        core.run_as_code(|| self.root = None);
    }

    /// Drives the code until it has returned; with `replay`, until all recorded ends were delivered.
    async fn run_code(&mut self, replay: bool) -> Result<CodeResult, Failure> {
        let mut repolls = 0;
        loop {
            if let Poll::Ready(result) = self.poll().await {
                self.check_fault()?;
                return Ok(CodeResult::Returned(result));
            }
            self.check_fault()?;
            let result = self.core.lock().claim_ended.take();
            if let Some(result) = result {
                return Ok(CodeResult::AttemptOver(result));
            }
            if replay && self.core.lock().continue_input.is_some() {
                return Ok(CodeResult::Replayed);
            }
            if let Some(result) = self.continue_as_new()? {
                return Ok(CodeResult::AttemptOver(result));
            }
            if self.core.take_repoll() && repolls < MAX_REPOLLS {
                repolls += 1;
                continue;
            }
            match self.next_action(replay)? {
                NextAction::Poll => {}
                NextAction::Live => return Ok(CodeResult::Replayed),
                flush @ (NextAction::Commit | NextAction::Flush) => {
                    let flush = matches!(flush, NextAction::Flush);
                    if let Some(result) = self.commit(None, flush).await? {
                        return Ok(CodeResult::AttemptOver(result));
                    }
                }
                NextAction::Wait => {
                    if self.wait().await? {
                        return Ok(CodeResult::Halt);
                    }
                }
                NextAction::Park => {
                    if self.refresh_waits().await? {
                        continue;
                    }
                    return Ok(CodeResult::AttemptOver(self.park()?));
                }
                NextAction::Halt => return Ok(CodeResult::Halt),
                NextAction::Stuck => return Err(self.foreign_wait()),
            }
            repolls = 0;
        }
    }

    /// Polls the code once.
    async fn poll(&mut self) -> Poll<Result<Vec<u8>, Failure>> {
        let (core, waker) = (Arc::clone(&self.core), self.waker.clone());
        poll_fn(|cx: &mut Context<'_>| {
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
            Poll::Ready(polled)
        })
        .await
    }

    /// Returns the fault of the code, if there is one.
    fn check_fault(&self) -> Result<(), Failure> {
        if let Some(fault) = self.core.lock().fault.take() {
            return Err(fault);
        }
        if self.core.has_foreign_wake() { Err(self.foreign_wait()) } else { Ok(()) }
    }

    fn foreign_wait(&self) -> Failure {
        let state = self.core.lock();
        let near = match &state.last_call_at {
            Some(line) => format!("after the durable call at {}", source_location(line)),
            None => "before its first durable call".to_owned(),
        };
        misuse(format!(
            "the workflow waits, {near}, for something that is not durable: a timer, channel, lock, socket or task that is \
             awaited in the workflow itself. It would be lost with the process and is not replayed. Put it into a step, or use \
             `flow.sleep`, `flow.signal` or `flow.child`."
        ))
    }

    /// Decides what to do after the code was polled.
    fn next_action(&mut self, replay: bool) -> Result<NextAction, Failure> {
        let mut state = self.core.lock();
        if let Some(id) = state.deliver() {
            drop(state);
            self.core.wake_call(id);
            return Ok(NextAction::Poll);
        }
        if replay {
            return Ok(NextAction::Live);
        }
        let new: Vec<usize> = state
            .under_way()
            .filter(|(_, call)| matches!(call.phase, Phase::New))
            .filter(|(_, call)| call.op != CallKind::Transaction || state.transacting.is_none())
            .map(|(id, _)| id)
            .collect();
        // A transaction is committed alone: everything before it is committed first.
        let transacts =
            |id: &&usize| state.calls[**id].as_ref().is_some_and(|call| call.op == CallKind::Transaction);
        let transaction = new.iter().find(transacts).copied();
        if transaction.is_some() && !state.pending.is_empty() {
            return Ok(NextAction::Flush);
        }
        let new = match transaction {
            Some(id) => vec![id],
            None => new,
        };
        drop(state);
        if !new.is_empty() && self.attempt().cancel_requested_by().is_none() {
            self.inbox_read = false;
            self.core.lock().live = true;
            for id in new {
                self.begin(id)?;
                self.core.wake_call(id);
            }
            return Ok(NextAction::Poll);
        }
        let state = self.core.lock();
        let runs = |call: &super::state::Call| matches!(call.phase, Phase::Running | Phase::CanStart);
        if self.attempt().cancel_requested_by().is_some() && !state.under_way().any(|(_, call)| runs(call)) {
            return Ok(NextAction::Halt);
        }
        if !state.finished.is_empty() && state.transacting.is_none() {
            return Ok(NextAction::Commit);
        }
        let running = state
            .under_way()
            .any(|(_, call)| matches!(call.phase, Phase::Running | Phase::CanStart | Phase::Finished));
        if running {
            return Ok(match state.pending.children.is_empty() || state.transacting.is_some() {
                true => NextAction::Wait,
                false => NextAction::Commit,
            });
        }
        if state.under_way().next().is_none() {
            return Ok(NextAction::Stuck);
        }
        // Another job may hold the key or unique name of a child: whether the child was submitted is known after the commit.
        let in_doubt = |child: &NewJob| child.key.is_some() || child.settings.unique.is_some();
        if state.pending.children.iter().any(in_doubt) {
            return Ok(NextAction::Commit);
        }
        drop(state);
        // A wait that is over must not park the job.
        Ok(if self.complete_waits() { NextAction::Poll } else { NextAction::Park })
    }

    /// Takes everything that is pending.
    pub(super) fn take_step(&self) -> Result<StepWrites, Failure> {
        let mut state = self.core.lock();
        let mut pending = std::mem::take(&mut state.pending);
        let mut values = std::mem::take(&mut state.unwritten_context);
        values.append(&mut pending.context);
        if std::mem::take(&mut state.journal.forked) {
            let all = state.context.clone();
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

    /// Commits what has ended, so that it can be delivered. Returns how the attempt ends, if it does.
    pub(super) async fn commit(
        &mut self,
        unwind: Option<Unwind>,
        flush: bool,
    ) -> Result<Option<StepResult>, Failure> {
        {
            let state = &mut *self.core.lock();
            let nothing = state.pending.is_empty() || (self.core.one_commit && !flush);
            let must_commit = !state.pending.children.is_empty() || !state.pending.branches.is_empty();
            if unwind.is_none() && !must_commit && nothing {
                record_finished(state);
                return Ok(None);
            }
        }
        self.steps += 1;
        if self.core.job.steps_since_wait.saturating_add(self.steps) > MAX_STEPS {
            return Err(endless());
        }
        let step = StepWrites { unwind: unwind.map(Box::new), ..self.take_step()? };
        let has_children = !step.children.is_empty();
        let attempt = Arc::clone(self.attempt());
        match attempt.writer.commit(&attempt, step).await {
            CommitOutcome::Committed => {}
            CommitOutcome::Halted => return Ok(Some(StepResult::Halted)),
            CommitOutcome::Fenced => return Ok(Some(StepResult::ClaimOver)),
            // If the store refused it, the job has failed with that.
            CommitOutcome::Refused(_) if attempt.writer.is_closed() => {
                return Ok(Some(StepResult::ClaimOver));
            }
            CommitOutcome::Refused(why) => {
                return Err(misuse(format!("what the workflow wants written is refused: {why}")));
            }
        }
        if has_children {
            self.queried_children.clear();
        }
        record_finished(&mut self.core.lock());
        // The worker is stopping: the job is released here, and the next worker continues.
        Ok(attempt.writer.is_stopping(attempt.worker).then_some(StepResult::ClaimOver))
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
        // An undo may hold the flow, and the flow holds the undos.
        let undos = std::mem::take(&mut self.core.lock().undos);
        drop(undos);
    }
}

/// How the code ended.
enum CodeResult {
    Returned(Result<Vec<u8>, Failure>),
    Replayed,
    /// The job is being cancelled.
    Halt,
    AttemptOver(StepResult),
}

/// Marks the calls that were committed: their ends can be delivered.
pub(super) fn record_finished(state: &mut super::state::RunState) {
    for finished in std::mem::take(&mut state.finished) {
        let Some(call) = state.calls[finished.call].as_mut() else { continue };
        match finished.then {
            AfterCommit::End(seq) => {
                call.phase = Phase::Recorded(seq);
                state.undelivered.insert(seq, finished.call);
            }
            AfterCommit::Wait(wait) => call.phase = Phase::Waiting(wait),
            AfterCommit::Part => call.phase = Phase::Running,
        }
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
