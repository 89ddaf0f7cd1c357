//! Calls that are committed part by part before they end: the children of a branch, and what their results are reduced to.

use std::{
    panic::{AssertUnwindSafe, Location},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt, Stream, StreamExt};
use windlass_model::{
    BranchNo, BranchUpdate, Failure, NewJob, Payload, Retry,
    branch::BranchWatch,
    failure::class,
    journal::{Mark, Op},
};

use super::{
    core::Core,
    driver::run_of,
    journal::CallEnd,
    state::{AfterCommit, CallSpec, CallStatus, CallWait, RunState, Start},
    step::panic_text,
};
use crate::store_retry;

/// What a call wants committed before it goes on.
pub(super) enum Part {
    /// Children of a branch, and where its sources stand after them.
    Children { children: Vec<NewJob>, spawns: Option<Vec<String>>, cursor: Payload },
    /// It goes on when this is told of its branch.
    Pause(BranchWatch),
    /// What is to be known to go on from here.
    Keep(Vec<u8>),
    /// It has ended, with this result as JSON; a branch is sealed.
    End(Vec<u8>),
}

/// Why a call has no next part.
pub(crate) enum PartError {
    /// It has failed, which is its end.
    Failed(Failure),
    /// The code does not fit what was committed before: the job fails, and no code is told.
    Diverged(Failure),
    /// The store could not be read, which is nothing that the call has done wrong: the job goes on from here later.
    Unread(Failure),
}

impl PartError {
    /// What went wrong where nobody's code but the engine's was run.
    pub(crate) fn of_engine(failure: Failure) -> PartError {
        match &*failure.class {
            store_retry::STORE => PartError::Unread(failure),
            _ => PartError::Failed(failure),
        }
    }
}

impl From<Failure> for PartError {
    fn from(failure: Failure) -> PartError {
        PartError::Failed(failure)
    }
}

pub(super) type Parts<'f> = Pin<Box<dyn Stream<Item = Result<Part, PartError>> + Send + 'f>>;

/// Makes the parts of a call, from what was kept of it.
pub(super) type Make<'f> = Box<dyn FnMut(Option<Payload>) -> Parts<'f> + Send + 'f>;

/// A call that is committed part by part, whatever its type.
pub(super) struct RawParts<'f> {
    pub(super) core: Arc<Core>,
    pub(super) op: Op,
    pub(super) name: String,
    pub(super) key: Option<String>,
    pub(super) line: &'static Location<'static>,
    make: Make<'f>,
    running: Option<Parts<'f>>,
    call: Option<usize>,
    registered: bool,
}

impl<'f> RawParts<'f> {
    pub(super) fn new(
        core: &Arc<Core>,
        op: Op,
        name: &str,
        line: &'static Location<'static>,
        make: Make<'f>,
    ) -> RawParts<'f> {
        let (core, name) = (Arc::clone(core), name.to_owned());
        RawParts { core, op, name, key: None, line, make, running: None, call: None, registered: false }
    }

    fn start(&mut self, id: usize) {
        let begun = {
            let state = self.core.lock();
            let call = state.calls[id].as_ref();
            let known = call.and_then(|call| state.journal.calls.of(&call.ident));
            known.and_then(|known| known.begun.as_ref()).map(|(_, payload)| payload.clone())
        };
        let (core, make) = (Arc::clone(&self.core), &mut self.make);
        let made =
            core.run_as_body(&self.name, None, || std::panic::catch_unwind(AssertUnwindSafe(|| make(begun))));
        self.running = Some(match made {
            Ok(parts) => parts,
            Err(panic) => {
                let failure = Failure::stop(panic_text(&*panic)).class(class::PANIC);
                Box::pin(futures_util::stream::once(std::future::ready(Err(failure.into()))))
            }
        });
    }

    /// Polls for the next part. Whether there was one, or the end.
    fn poll_part(&mut self, id: usize) -> Poll<()> {
        let running = self.running.as_mut().expect("started");
        let core = Arc::clone(&self.core);
        let polled = core.poll_body(id, &self.name, None, |cx| {
            AssertUnwindSafe(running.next()).catch_unwind().poll_unpin(cx)
        });
        let Poll::Ready(part) = polled else { return Poll::Pending };
        let part = match part {
            Ok(Some(part)) => part,
            Ok(None) => Err(Failure::stop("the call ended without an end").class(class::REFUSED).into()),
            Err(panic) => Err(Failure::stop(panic_text(&*panic)).class(class::PANIC).into()),
        };
        match part {
            Ok(part) => {
                if let Err(failure) = self.core.part(id, part) {
                    self.core.fail_or_retry_call(id, failure, &Retry::never());
                }
            }
            Err(PartError::Diverged(failure) | PartError::Unread(failure)) => {
                self.core.fault(failure);
                return Poll::Pending;
            }
            Err(PartError::Failed(failure)) => self.core.fail_or_retry_call(id, failure, &Retry::never()),
        }
        Poll::Ready(())
    }
}

impl Future for RawParts<'_> {
    /// Where its end stands in the journal, and how it ended.
    type Output = (i32, CallEnd);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(i32, CallEnd)> {
        let this = self.get_mut();
        if !this.registered {
            this.registered = true;
            this.call = this.core.register(CallSpec {
                op: this.op,
                name: &this.name,
                key: this.key.as_deref(),
                line: this.line,
                start: Start::Body { within: None },
            });
        }
        let Some(id) = this.call else { return Poll::Pending };
        loop {
            match this.core.poll_call(id, cx) {
                CallStatus::Ready(seq, ending) => {
                    this.call = None;
                    return Poll::Ready((seq, ending));
                }
                // After a pause it goes on with what it has.
                CallStatus::Go if this.running.is_some() => {}
                CallStatus::Go => this.start(id),
                CallStatus::Running => {
                    if this.running.is_none() {
                        this.start(id);
                    }
                    if this.poll_part(id).is_pending() {
                        return Poll::Pending;
                    }
                }
                CallStatus::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for RawParts<'_> {
    fn drop(&mut self) {
        self.running = None;
        if let Some(id) = self.call.take() {
            self.core.abandon_call(id);
        }
    }
}

impl Core {
    /// A call wants a part of it committed.
    fn part(&self, id: usize, part: Part) -> Result<(), Failure> {
        let now = self.now();
        let mut state = self.lock();
        let state = &mut *state;
        if state.calls[id].is_none() {
            return Ok(());
        }
        match part {
            Part::Children { mut children, spawns, cursor } => {
                let (number, opened) = self.branch_number(state, id);
                let name = &state.calls[id].as_ref().expect("looked up above").ident.0;
                let open = opened.then(|| name.to_string());
                for child in &mut children {
                    child.branch_position.iter_mut().for_each(|twig| twig.branch = number);
                }
                // Mostly there are no others, and they are many: they are not moved again.
                match state.pending.children.is_empty() {
                    true => state.pending.children = children,
                    false => state.pending.children.extend(children),
                }
                state.pending.branches.push(BranchUpdate {
                    opened_as: open,
                    spawns,
                    cursor: Some(cursor),
                    ..BranchUpdate::new(number)
                });
                state.mark_finished(id, AfterCommit::Part);
            }
            Part::Pause(watch) => {
                let (number, opened) = self.branch_number(state, id);
                let name = &state.calls[id].as_ref().expect("looked up above").ident.0;
                let open = opened.then(|| name.to_string());
                state.pending.branches.push(BranchUpdate {
                    opened_as: open,
                    watch: Some(watch),
                    ..BranchUpdate::new(number)
                });
                state.mark_finished(
                    id,
                    AfterCommit::Wait(CallWait { branch: true, runs_body: true, ..CallWait::default() }),
                );
            }
            Part::Keep(kept) => {
                let payload = self.check_size(self.encode(kept)?)?;
                let call = state.calls[id].as_ref().expect("looked up above");
                let (ident, op) = (call.ident.clone(), call.op);
                let entry = state.entry(id, Mark::Begun, payload.clone(), now);
                let known = state.journal.recorded_mut(&ident);
                let before = known.begun.replace((entry.seq, payload));
                known.op = op;
                // Of what was kept before, nothing is needed any more.
                state.pending.forget_entries.extend(before.map(|(seq, _)| seq));
                state.pending.entries.push(entry);
                state.mark_finished(id, AfterCommit::Part);
            }
            Part::End(result) => {
                let call = state.calls[id].as_ref().expect("looked up above");
                let mut result = result;
                if call.op == Op::Branch {
                    let (number, opened) = self.branch_number(state, id);
                    let name = &state.calls[id].as_ref().expect("looked up above").ident.0;
                    let open = opened.then(|| name.to_string());
                    state.pending.branches.push(BranchUpdate {
                        opened_as: open,
                        seal: true,
                        ..BranchUpdate::new(number)
                    });
                    result = number.to_string().into_bytes();
                }
                let payload = self.check_size(self.encode(result)?)?;
                state.finish(id, Mark::Done, payload, now);
            }
        }
        Ok(())
    }

    /// The number of the branch that a call fills, and whether it is opened by that.
    fn branch_number(&self, state: &mut RunState, id: usize) -> (BranchNo, bool) {
        let call = state.calls[id].as_ref().expect("under way");
        let ident = call.ident.clone();
        let known = state.journal.calls.of(&ident).and_then(|known| known.begun.as_ref());
        if let Some(number) = known.and_then(|(_, payload)| number_of(payload)) {
            return (number, false);
        }
        // No other run of the job, and nothing else of this one, has the same.
        let run = self.job.stage.as_deref().and_then(run_of).unwrap_or(1);
        let number = BranchNo((i64::from(run) << 32) | i64::from(state.next_seq));
        let payload = Payload::json(number.to_string().into_bytes());
        let entry = state.entry(id, Mark::Begun, payload.clone(), self.now());
        let known = state.journal.recorded_mut(&ident);
        (known.op, known.begun) = (Op::Branch, Some((entry.seq, payload)));
        state.pending.entries.push(entry);
        (number, true)
    }
}

/// The number of a branch, as the journal keeps it.
pub(super) fn number_of(payload: &Payload) -> Option<BranchNo> {
    serde_json::from_slice(&payload.bytes).ok()
}
