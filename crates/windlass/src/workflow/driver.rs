//! Driving a workflow: polls its code, delivers what its journal knows, begins what it does not, commits what ends, and
//! parks it when there is nothing left to do but wait.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use windlass_model::{Failure, JobId, NewJob, Outcome, Step, Unwind, Verdict, journal::Op};
use windlass_runtime::{Attempt, Turn};

use super::{
    Boxed,
    context::Value,
    core::{Core, RootWaker},
    differences::Differences,
    state::{Phase, Then, misuse, place_of},
};

/// How long the code may run between two durable calls.
pub(super) const POLL: Duration = Duration::from_secs(10);
/// How many steps a workflow may make without waiting for anything.
const STEPS: u32 = 1_000_000;
/// How often the code may ask to be polled again, without getting anywhere.
const SPINS: u32 = 10_000;

/// The code of a workflow, with what it returns as JSON.
pub(super) type Root = Boxed<'static, Result<Vec<u8>, Failure>>;

/// Drives a workflow's code.
pub(super) struct Driver {
    pub(super) core: Arc<Core>,
    /// `None` once it has ended, or is not to be polled any more.
    root: Option<Root>,
    /// What the code is polled with.
    waker: Waker,
    steps: u32,
    /// Whether the inbox was read since the last change of what is waited for.
    pub(super) looked: bool,
    /// When signals are looked for next while steps are under way.
    pub(super) look_at: Option<Instant>,
    /// Children whose end was asked for.
    pub(super) asked: Vec<JobId>,
}

/// What is to be done after the code was polled.
enum Next {
    /// Poll it again.
    Poll,
    /// Commit what has ended.
    Commit,
    /// Commit all there is.
    Flush,
    /// Wait until something happens.
    Wait,
    /// Give the slot up.
    Park,
    /// Someone wants the job to end.
    Halt,
    /// Nothing is under way, and yet the code waits.
    Stuck,
    /// All that the journal says was delivered.
    Live,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, root: Root) -> Driver {
        let waker = Waker::from(Arc::new(RootWaker(Arc::clone(&core))));
        Driver { core, root: Some(root), waker, steps: 0, looked: false, look_at: None, asked: Vec::new() }
    }

    pub(super) fn attempt(&self) -> &Arc<Attempt> {
        self.core.attempt.as_ref().expect("only a replay has none, and it ends before it writes")
    }

    /// Runs the workflow until it ends, is parked, or its claim is over.
    pub(super) async fn run(mut self) -> Result<Turn, Failure> {
        let unwinding = self.core.job.unwind.clone();
        match self.code(unwinding.is_some()).await {
            Ok(Coded::Returned(result)) => {
                self.drop_root();
                match unwinding {
                    Some(unwind) => self.unwind(*unwind, false).await,
                    None => self.finish(result).await,
                }
            }
            Ok(Coded::Replayed) => {
                self.drop_root();
                self.unwind(*unwinding.expect("only replayed if it is being unwound"), false).await
            }
            Ok(Coded::Turn(turn)) => Ok(turn),
            Ok(Coded::Halt) => {
                // What has ended is written, and what it did is undone, by this very attempt: nobody else ends it meanwhile.
                self.drop_root();
                let by = self.attempt().told_by().map(|by| by.failure());
                let undoes = self.has_undos();
                match by.filter(|_| undoes) {
                    Some(failure) => self.unwind(Unwind { reason: None, failure }, true).await,
                    None => Ok(self.halt().await),
                }
            }
            Err(failure) => self.fault(failure),
        }
    }

    /// Replays the workflow as far as its journal goes, and writes nothing. Answers how the code differs from it.
    pub(super) async fn replay(mut self) -> Result<Differences, Failure> {
        self.code(true).await?;
        // Before the code is dropped: what it came to last is under way.
        let mut differences = Differences::of(&self.core.lock());
        self.drop_root();
        differences.add_undo_removed(&self.core.lock());
        Ok(differences)
    }

    /// The code is dropped before its undos run: nothing in it goes on.
    pub(super) fn drop_root(&mut self) {
        let core = Arc::clone(&self.core);
        core.within(|| self.root = None);
    }

    /// Drives the code until it has returned; with `replay`, until its journal says nothing more.
    async fn code(&mut self, replay: bool) -> Result<Coded, Failure> {
        let mut spins = 0;
        loop {
            if let Poll::Ready(result) = self.poll().await {
                self.check()?;
                return Ok(Coded::Returned(result));
            }
            self.check()?;
            let over = self.core.lock().over.take();
            if let Some(turn) = over {
                return Ok(Coded::Turn(turn));
            }
            if replay && self.core.lock().anew.is_some() {
                return Ok(Coded::Replayed);
            }
            if let Some(turn) = self.anew()? {
                return Ok(Coded::Turn(turn));
            }
            if self.core.asks_again() && spins < SPINS {
                spins += 1;
                continue;
            }
            match self.next(replay)? {
                Next::Poll => {}
                Next::Live => return Ok(Coded::Replayed),
                flush @ (Next::Commit | Next::Flush) => {
                    let flush = matches!(flush, Next::Flush);
                    if let Some(turn) = self.commit(None, flush).await? {
                        return Ok(Coded::Turn(turn));
                    }
                }
                Next::Wait => {
                    if self.wait().await? {
                        return Ok(Coded::Halt);
                    }
                }
                Next::Park => {
                    if self.look().await? {
                        continue;
                    }
                    return Ok(Coded::Turn(self.park()?));
                }
                Next::Halt => return Ok(Coded::Halt),
                Next::Stuck => return Err(self.foreign()),
            }
            spins = 0;
        }
    }

    /// Polls the code once.
    async fn poll(&mut self) -> Poll<Result<Vec<u8>, Failure>> {
        let (core, waker) = (Arc::clone(&self.core), self.waker.clone());
        poll_fn(|cx: &mut Context<'_>| {
            core.drives(cx);
            // Whatever asked for it before is answered by this.
            core.asks_again();
            let Some(root) = self.root.as_mut() else { return Poll::Ready(Poll::Pending) };
            core.pulse(Some(POLL));
            let mut inner = Context::from_waker(&waker);
            let polled = {
                let mut root = tokio::task::coop::unconstrained(Polled(root.as_mut()));
                core.within(|| Pin::new(&mut root).poll(&mut inner))
            };
            core.pulse(None);
            Poll::Ready(polled)
        })
        .await
    }

    /// What the code did wrong, if it did.
    fn check(&self) -> Result<(), Failure> {
        if let Some(fault) = self.core.lock().fault.take() {
            return Err(fault);
        }
        if self.core.is_foreign() { Err(self.foreign()) } else { Ok(()) }
    }

    fn foreign(&self) -> Failure {
        let state = self.core.lock();
        let near = match &state.line {
            Some(line) => format!("after the durable call at {}", place_of(line)),
            None => "before its first durable call".to_owned(),
        };
        misuse(format!(
            "the workflow waits, {near}, for something that is not durable: a timer, channel, lock, socket or task that is \
             awaited in the workflow itself. It would be lost with the process and is not replayed. Put it into a step, or use \
             `flow.sleep`, `flow.signal` or `flow.child`."
        ))
    }

    /// What is to be done after the code was polled.
    fn next(&mut self, replay: bool) -> Result<Next, Failure> {
        let mut state = self.core.lock();
        if let Some(id) = state.deliver() {
            drop(state);
            self.core.wake_call(id);
            return Ok(Next::Poll);
        }
        if replay {
            return Ok(Next::Live);
        }
        let new: Vec<usize> = state
            .under_way()
            .filter(|(_, call)| matches!(call.phase, Phase::New))
            .filter(|(_, call)| call.op != Op::Transaction || state.transacting.is_none())
            .map(|(id, _)| id)
            .collect();
        // What a transaction is committed with is itself alone: all before it is committed before.
        let transacts =
            |id: &&usize| state.calls[**id].as_ref().is_some_and(|call| call.op == Op::Transaction);
        let transaction = new.iter().find(transacts).copied();
        if transaction.is_some() && !state.out.is_empty() {
            return Ok(Next::Flush);
        }
        let new = match transaction {
            Some(id) => vec![id],
            None => new,
        };
        drop(state);
        if !new.is_empty() && self.attempt().told_by().is_none() {
            self.looked = false;
            self.core.lock().live = true;
            for id in new {
                self.begin(id)?;
                self.core.wake_call(id);
            }
            return Ok(Next::Poll);
        }
        let state = self.core.lock();
        let runs = |call: &super::state::Call| matches!(call.phase, Phase::Running | Phase::Go);
        if self.attempt().told_by().is_some() && !state.under_way().any(|(_, call)| runs(call)) {
            return Ok(Next::Halt);
        }
        if !state.finished.is_empty() && state.transacting.is_none() {
            return Ok(Next::Commit);
        }
        let running = state
            .under_way()
            .any(|(_, call)| matches!(call.phase, Phase::Running | Phase::Go | Phase::Finished));
        if running {
            return Ok(match state.out.children.is_empty() || state.transacting.is_some() {
                true => Next::Wait,
                false => Next::Commit,
            });
        }
        if state.under_way().next().is_none() {
            return Ok(Next::Stuck);
        }
        // Whether a child was put in at all that another job may be in the way of is seen once it is committed.
        let in_doubt = |child: &NewJob| child.key.is_some() || child.settings.unique.is_some();
        if state.out.children.iter().any(in_doubt) {
            return Ok(Next::Commit);
        }
        drop(state);
        // What has come already is not waited for.
        Ok(if self.satisfy() { Next::Poll } else { Next::Park })
    }

    /// Takes what is to be written.
    pub(super) fn step(&self) -> Result<Step, Failure> {
        let mut state = self.core.lock();
        let mut out = std::mem::take(&mut state.out);
        let mut values = std::mem::take(&mut state.recent);
        values.append(&mut out.context);
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
        Ok(Step {
            consumed: out.consumed,
            aside: out.aside,
            children: out.children,
            branches: out.branches,
            told: true,
            entries: out.entries,
            forget: out.forget,
            context,
            undo: out.undo,
            ..Step::default()
        })
    }

    /// Commits what has ended; then it can be delivered. Answers how the attempt ends, if it does.
    pub(super) async fn commit(
        &mut self,
        unwind: Option<Unwind>,
        flush: bool,
    ) -> Result<Option<Turn>, Failure> {
        {
            let state = &mut *self.core.lock();
            let nothing = state.out.is_empty() || (self.core.one_commit && !flush);
            let bears = !state.out.children.is_empty() || !state.out.branches.is_empty();
            if unwind.is_none() && !bears && nothing {
                land(state);
                return Ok(None);
            }
        }
        self.steps += 1;
        if self.core.job.run.saturating_add(self.steps) > STEPS {
            return Err(endless());
        }
        let step = Step { unwind: unwind.map(Box::new), ..self.step()? };
        let asks = !step.children.is_empty();
        let attempt = Arc::clone(self.attempt());
        match attempt.pen.commit(&attempt, step).await {
            Verdict::Committed => {}
            Verdict::Halted => return Ok(Some(Turn::Halted)),
            Verdict::Fenced => return Ok(Some(Turn::Over)),
            // If it was the store that refused it, the job has failed by that.
            Verdict::Refused(_) if attempt.pen.is_over() => return Ok(Some(Turn::Over)),
            Verdict::Refused(why) => {
                return Err(misuse(format!("what the workflow wants written is refused: {why}")));
            }
        }
        if asks {
            self.asked.clear();
        }
        land(&mut self.core.lock());
        // Handed back where it stands: the next worker goes on from here.
        Ok(attempt.pen.is_stopping(attempt.worker).then_some(Turn::Over))
    }

    /// Ends the claim because someone wants the job to end: the store has it unwound, or ends it.
    pub(super) async fn halt(&mut self) -> Turn {
        let attempt = Arc::clone(self.attempt());
        let step = self.step().unwrap_or_default();
        match (attempt.pen.commit(&attempt, step).await, attempt.told_by()) {
            (Verdict::Halted, _) => Turn::Halted,
            (Verdict::Committed, Some(by)) => {
                Turn::Commit { step: None, outcome: Outcome::Cancelled(by.failure()) }
            }
            _ => Turn::Over,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // An undo may hold the flow, which holds them.
        let undos = std::mem::take(&mut self.core.lock().undos);
        drop(undos);
    }
}

/// How the code ended.
enum Coded {
    Returned(Result<Vec<u8>, Failure>),
    Replayed,
    /// Someone wants the job to end.
    Halt,
    Turn(Turn),
}

/// What has ended is in the journal from now on, and can be delivered.
pub(super) fn land(state: &mut super::state::State) {
    for finished in std::mem::take(&mut state.finished) {
        let Some(call) = state.calls[finished.call].as_mut() else { continue };
        match finished.then {
            Then::End(seq) => {
                call.phase = Phase::Recorded(seq);
                state.recorded.insert(seq, finished.call);
            }
            Then::Wait(wait) => call.phase = Phase::Waiting(wait),
            Then::Part => call.phase = Phase::Running,
        }
    }
}

/// The name of a workflow's run, which is its stage from the second on.
pub(super) fn run_name(run: u32) -> String {
    format!("run-{run}")
}

/// Which run a stage is.
pub(super) fn run_of(stage: &str) -> Option<u32> {
    stage.strip_prefix("run-")?.parse().ok()
}

fn endless() -> Failure {
    misuse(format!(
        "the workflow made {STEPS} steps without waiting for anything: it seems to run in circles; if it does not, let it \
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
