//! Calls that are committed part by part before they end: filling a branch, and reducing the results of its children.

use std::{
    panic::{AssertUnwindSafe, Location},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt, Stream, StreamExt};
use windlass_model::{
    BranchNo, BranchUpdate, Failure, NewJob, Payload,
    branch::BranchWatch,
    failure::class,
    journal::{CallEvent, CallKind},
};

use super::{
    body_call::BodyCall,
    call::{AfterCommit, CallStatus, CallWait},
    core::Core,
    driver::run_of,
    journal::CallEnd,
    state::RunState,
};

/// What a call wants committed before it continues.
pub(super) enum Part {
    /// Children of a branch, and the position of its sources after them.
    Children { children: Vec<NewJob>, spawns: Option<Vec<String>>, cursor: Payload },
    /// Nothing: it continues when this watch on its branch fires.
    Pause(BranchWatch),
    /// The state that a replay continues from.
    Save(Vec<u8>),
    /// Its end, with this result as JSON; a branch is sealed.
    End(Vec<u8>),
}

/// Why a call has no next part.
pub(crate) enum PartError {
    /// The call has failed.
    Failed(Failure),
    /// The code does not match what was committed before: the job fails, and the code does not see the error.
    Diverged(Failure),
    /// The store could not be read, which is not a fault of the call: the job continues from here later.
    Unread(Failure),
}

impl PartError {
    /// Classifies a failure where only the engine's code ran.
    pub(crate) fn of_engine(failure: Failure) -> PartError {
        match &*failure.class {
            class::STORE => PartError::Unread(failure),
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

/// Makes the parts of a call, from its last saved state.
pub(super) type MakeParts<'f> = Box<dyn FnMut(Option<Payload>) -> Parts<'f> + Send + 'f>;

/// A call that is committed part by part, whatever its type.
pub(super) struct RawParts<'f> {
    pub(super) call: BodyCall,
    make: MakeParts<'f>,
    running: Option<Parts<'f>>,
}

impl<'f> RawParts<'f> {
    pub(super) fn new(
        core: &Arc<Core>,
        call_kind: CallKind,
        name: &str,
        line: &'static Location<'static>,
        make: MakeParts<'f>,
    ) -> RawParts<'f> {
        RawParts { call: BodyCall::new(core, call_kind, name, line), make, running: None }
    }

    fn start(&mut self, id: usize) {
        let begun = {
            let state = self.call.core.lock();
            let call = state.calls.get(id);
            let recorded = call.and_then(|call| state.journal.calls.of(&call.ident));
            recorded.and_then(|recorded| recorded.begun.as_ref()).map(|(_, payload)| payload.clone())
        };
        let (core, make) = (Arc::clone(&self.call.core), &mut self.make);
        let made = core.run_as_body(&self.call.name, None, || {
            std::panic::catch_unwind(AssertUnwindSafe(|| make(begun)))
        });
        self.running = Some(match made {
            Ok(parts) => parts,
            Err(panic) => {
                let failure = Failure::of_panic(&*panic).without_retry();
                Box::pin(futures_util::stream::once(std::future::ready(Err(failure.into()))))
            }
        });
    }

    /// Polls for the next part. Ready if there was one, or the end.
    fn poll_part(&mut self, id: usize) -> Poll<()> {
        let running = self.running.as_mut().expect("started");
        let core = Arc::clone(&self.call.core);
        let polled = core.poll_body(id, &self.call.name, None, |cx| {
            AssertUnwindSafe(running.next()).catch_unwind().poll_unpin(cx)
        });
        let Poll::Ready(part) = polled else { return Poll::Pending };
        let part = match part {
            Ok(Some(part)) => part,
            Ok(None) => Err(Failure::stop("the call ended without an end").class(class::REFUSED).into()),
            Err(panic) => Err(Failure::of_panic(&*panic).without_retry().into()),
        };
        match part {
            Ok(part) => {
                if let Err(failure) = core.part(id, part) {
                    core.fail_call(id, failure);
                }
            }
            Err(PartError::Diverged(failure) | PartError::Unread(failure)) => {
                core.fault(failure);
                return Poll::Pending;
            }
            Err(PartError::Failed(failure)) => core.fail_call(id, failure),
        }
        Poll::Ready(())
    }
}

impl Future for RawParts<'_> {
    /// The sequence number of its end, and how it ended.
    type Output = (i32, CallEnd);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(i32, CallEnd)> {
        let this = self.get_mut();
        let Some(id) = this.call.register() else { return Poll::Pending };
        loop {
            match this.call.core.poll_call(id, cx) {
                CallStatus::Ready(seq, ending) => {
                    this.call.end();
                    return Poll::Ready((seq, ending));
                }
                // After a pause it continues with the same stream.
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
        // What runs is dropped first: it may still use the call.
        self.running = None;
    }
}

impl Core {
    /// Adds a part of a call to the pending writes.
    fn part(&self, id: usize, part: Part) -> Result<(), Failure> {
        let now = self.now();
        let mut state = self.lock();
        let state = &mut *state;
        if state.calls.get(id).is_none() {
            return Ok(());
        }
        match part {
            Part::Children { mut children, spawns, cursor } => {
                let update = self.branch_update(state, id);
                for child in &mut children {
                    child.branch_position.iter_mut().for_each(|position| position.branch = update.number);
                }
                // Usually there are no others, and these are many: avoid moving them again.
                match state.pending.children.is_empty() {
                    true => state.pending.children = children,
                    false => state.pending.children.extend(children),
                }
                state.pending.branches.push(BranchUpdate { spawns, cursor: Some(cursor), ..update });
                state.calls.mark_finished(id, AfterCommit::Part);
            }
            Part::Pause(watch) => {
                let update = self.branch_update(state, id);
                state.pending.branches.push(BranchUpdate { watch: Some(watch), ..update });
                let wait = CallWait { branch: true, runs_body: true, ..CallWait::default() };
                state.calls.mark_finished(id, AfterCommit::Wait(wait));
            }
            Part::Save(saved) => {
                let payload = self.check_size(self.encode(saved)?)?;
                // The state that was saved before is superfluous.
                let before = state.record_begun(id, payload, now);
                state.pending.forget_entries.extend(before.map(|(seq, _)| seq));
                state.calls.mark_finished(id, AfterCommit::Part);
            }
            Part::End(mut result) => {
                if state.calls.get(id).is_some_and(|call| call.call_kind == CallKind::Branch) {
                    let update = self.branch_update(state, id);
                    result = update.number.to_string().into_bytes();
                    state.pending.branches.push(BranchUpdate { seal: true, ..update });
                }
                let payload = self.check_size(self.encode(result)?)?;
                state.finish(id, CallEvent::Done, payload, now);
            }
        }
        Ok(())
    }

    /// Makes an update of the branch that a call fills, which opens the branch if it is the first.
    fn branch_update(&self, state: &mut RunState, id: usize) -> BranchUpdate {
        let name = state.calls.get(id).expect("an open call").ident.0.clone();
        let recorded = state.journal.calls.get(&name, None).and_then(|recorded| recorded.begun.as_ref());
        if let Some(number) = recorded.and_then(|(_, payload)| number_of(payload)) {
            return BranchUpdate::new(number);
        }
        // Unique: no other run of the job, and no other entry of this run, has this number.
        let run = self.job.stage.as_deref().and_then(run_of).unwrap_or(1);
        let number = BranchNo((i64::from(run) << 32) | i64::from(state.next_seq));
        state.record_begun(id, Payload::json(number.to_string().into_bytes()), self.now());
        BranchUpdate { opened_as: Some(name.into()), ..BranchUpdate::new(number) }
    }
}

/// Decodes the number of a branch from its journal entry.
pub(super) fn number_of(payload: &Payload) -> Option<BranchNo> {
    serde_json::from_slice(&payload.bytes).ok()
}
