//! What the driver of a workflow does next.
//!
//! [`RunState::decide`] is given what has just happened, changes the state, and returns one action, which the driver performs; what
//! comes of that is the next event. It neither waits nor reads: the time, the cancel request and the codecs come in as [`Inputs`].
//! `waiting` has the rules for calls that wait.

use windlass_model::{
    Failure, JobId, Signal, Time, Wait, WaitCondition, branch::BRANCH_SIGNAL, journal::CallKind,
};
use windlass_runtime::StepResult;
use windlass_store::JobEnd;

use super::{
    call::{Call, Phase},
    fault::{foreign_wait, misuse},
    state::{BranchState, RunState},
};
use crate::codec::Codecs;

/// How often the code may ask to be polled again before anything else is decided.
const MAX_REPOLLS: u32 = 10_000;

/// What decisions depend on besides the state.
pub(super) struct Inputs<'a> {
    pub(super) now: Time,
    /// Whether the job is being cancelled.
    pub(super) cancel_requested: bool,
    /// Whether recorded ends are delivered and nothing else is done.
    pub(super) replay: bool,
    /// Whether nothing is committed until the workflow ends or waits.
    pub(super) one_commit: bool,
    pub(super) job: JobId,
    /// The wait that the job was claimed with: its signals came with the claim.
    pub(super) claimed_wait: Option<&'a WaitCondition>,
    pub(super) codecs: &'a Codecs,
}

/// What has just happened.
#[derive(Debug)]
pub(super) enum Event {
    /// The code was polled.
    Polled {
        /// What it returned, if it did.
        returned: Option<Result<Vec<u8>, Failure>>,
        /// Whether something other than a durable call woke it.
        foreign_wake: bool,
        /// Whether it asked to be polled again.
        repoll: bool,
    },
    /// The pending writes were committed.
    Committed {
        /// Whether children were submitted.
        children: bool,
    },
    /// A body was woken.
    BodyWoken,
    /// The time of [`Action::Wait`] is over.
    TimeOver {
        /// Whether it is time to read the inbox.
        read_inbox: bool,
    },
    /// The grace period of a cancel is over.
    GracePeriodOver,
    /// The inbox was read.
    InboxRead(Vec<Signal>),
    /// The ends of children were read; `None` for those that have not ended.
    ChildrenRead(Vec<(JobId, Option<JobEnd>)>),
    /// The inbox or the ends of children could not be read.
    ReadFailed(Failure),
}

/// What the driver does next.
#[derive(Debug)]
pub(super) enum Action {
    /// Wake these calls and poll the code.
    Poll {
        wake: Vec<usize>,
    },
    /// Commit the pending writes.
    Commit,
    /// Wait until a body is woken, or until a time.
    Wait {
        until: Option<Time>,
        /// Whether the inbox is read from time to time meanwhile.
        reads_inbox: bool,
    },
    ReadInbox,
    ReadChildren(Vec<JobId>),
    /// Commit the pending writes and park the job.
    Park(Wait),
    /// Commit the pending writes and start a new run with this input.
    ContinueAsNew(Vec<u8>),
    /// End the job with what the code has returned.
    Finish(Result<Vec<u8>, Failure>),
    /// End the job: it is being cancelled.
    Cancel,
    /// End the replay: all recorded ends were delivered.
    EndReplay,
    /// End the attempt like this: its claim is over.
    EndAttempt(StepResult),
    /// Fail because of a fault of the code.
    Fail(Failure),
}

impl Action {
    const POLL: Action = Action::Poll { wake: Vec::new() };
}

impl RunState {
    /// Decides what the driver does after an event.
    pub(super) fn decide(&mut self, event: Event, inputs: &Inputs<'_>) -> Action {
        match event {
            Event::Polled { returned, foreign_wake, repoll } => {
                if let Some(fault) = self.code.fault.take() {
                    return Action::Fail(fault);
                }
                if foreign_wake {
                    return Action::Fail(foreign_wait(self.code.last_call_at));
                }
                let unawaited = self.code.unawaited.take();
                if let (Some(fault), None | Some(Ok(_))) = (unawaited, &returned) {
                    return Action::Fail(fault);
                }
                match returned {
                    Some(result) => {
                        self.begin_detached(inputs);
                        Action::Finish(result)
                    }
                    None => self.after_poll(repoll, inputs),
                }
            }
            Event::Committed { children } => {
                if children {
                    self.inbox.queried_children.clear();
                }
                self.record_finished();
                Action::POLL
            }
            Event::BodyWoken => Action::POLL,
            Event::TimeOver { read_inbox: true } => {
                self.inbox.queried_children.clear();
                Action::ReadInbox
            }
            Event::TimeOver { read_inbox: false } => Action::Poll { wake: self.complete_waits(inputs) },
            Event::GracePeriodOver => Action::Cancel,
            Event::InboxRead(signals) => {
                self.replace_inbox(signals);
                self.inbox.is_current = true;
                self.read_children(inputs)
            }
            Event::ChildrenRead(ends) => {
                self.complete_children(ends, inputs.now);
                self.after_reads(inputs)
            }
            // Running bodies are not affected: the inbox is read again soon.
            Event::ReadFailed(failure) if self.calls.any_runs() => {
                tracing::debug!(%failure, job = %inputs.job, "the inbox could not be read");
                Action::Poll { wake: self.complete_waits(inputs) }
            }
            Event::ReadFailed(failure) => Action::Fail(failure),
        }
    }

    /// The code was polled and has not returned.
    fn after_poll(&mut self, repoll: bool, inputs: &Inputs<'_>) -> Action {
        if let Some(result) = self.code.claim_ended.take() {
            return Action::EndAttempt(result);
        }
        if inputs.replay && self.code.continue_input.is_some() {
            return Action::EndReplay;
        }
        if let Some(input) = self.code.continue_input.take() {
            return self.continue_as_new(input).map_or_else(Action::Fail, Action::ContinueAsNew);
        }
        if repoll && self.code.repolls < MAX_REPOLLS {
            self.code.repolls += 1;
            return Action::POLL;
        }
        self.code.repolls = 0;
        if let Some(id) = self.deliver() {
            return Action::Poll { wake: vec![id] };
        }
        if inputs.replay {
            return Action::EndReplay;
        }
        if let Some(action) = self.begin_new(inputs) {
            return action;
        }
        if inputs.cancel_requested && !self.calls.any_runs() {
            return Action::Cancel;
        }
        if !self.calls.finished.is_empty() && self.calls.transacting.is_none() {
            return self.commit(false, inputs);
        }
        if self.calls.iter().any(|(_, call)| call.runs() || matches!(call.phase, Phase::Finished)) {
            // Children must not wait for the bodies.
            return match self.pending.children.is_empty() || self.calls.transacting.is_some() {
                true => self.wait_for_bodies(),
                false => self.commit(false, inputs),
            };
        }
        if !self.calls.any_ends() {
            return Action::Fail(foreign_wait(self.code.last_call_at));
        }
        // Another job may hold the key or unique name of a child: whether the child was submitted is known after the commit.
        if self.pending.children.iter().any(|child| child.key.is_some() || child.settings.unique.is_some()) {
            return self.commit(false, inputs);
        }
        let wake = self.complete_waits(inputs);
        if !wake.is_empty() {
            return Action::Poll { wake };
        }
        // Before the job parks: signals and ends of children that did not come with the claim.
        let came_with_claim = |name: &str| inputs.claimed_wait.is_some_and(|wait| wait.wants(name).is_some());
        if !self.inbox.is_current && self.awaited_names().any(|name| !came_with_claim(name)) {
            return Action::ReadInbox;
        }
        self.inbox.is_current = true;
        self.read_children(inputs)
    }

    /// Begins the detached calls that are not recorded: the code has returned, and their jobs are submitted with its end.
    fn begin_detached(&mut self, inputs: &Inputs<'_>) {
        if inputs.replay || inputs.cancel_requested {
            return;
        }
        let new = |(_, call): &(usize, &Call)| call.detached && matches!(call.phase, Phase::New);
        let new: Vec<usize> = self.calls.iter().filter(new).map(|(id, _)| id).collect();
        new.into_iter().for_each(|id| self.begin(id, inputs.now));
    }

    /// Begins the calls that are not recorded. `None` if there are none to begin.
    fn begin_new(&mut self, inputs: &Inputs<'_>) -> Option<Action> {
        let transacting = self.calls.transacting.is_some();
        let is_new = |call: &Call| {
            matches!(call.phase, Phase::New) && (call.call_kind != CallKind::Transaction || !transacting)
        };
        let mut new: Vec<(usize, CallKind)> = self
            .calls
            .iter()
            .filter(|(_, call)| is_new(call))
            .map(|(id, call)| (id, call.call_kind))
            .collect();
        if let Some(transaction) =
            new.iter().copied().find(|(_, call_kind)| *call_kind == CallKind::Transaction)
        {
            // A transaction is committed alone: everything before it is committed first.
            if !self.pending.is_empty() {
                return Some(self.commit(true, inputs));
            }
            new = vec![transaction];
        }
        if new.is_empty() || inputs.cancel_requested {
            return None;
        }
        self.inbox.is_current = false;
        self.code.is_live = true;
        let wake: Vec<usize> = new.into_iter().map(|(id, _)| id).collect();
        wake.iter().for_each(|id| self.begin(*id, inputs.now));
        Some(Action::Poll { wake })
    }

    /// Commits what has ended. With `one_commit` that waits, unless everything must be committed (`flush`).
    fn commit(&mut self, flush: bool, inputs: &Inputs<'_>) -> Action {
        let writes = !self.pending.is_empty() && (flush || !inputs.one_commit);
        if writes || self.pending.spawns() {
            return Action::Commit;
        }
        self.record_finished();
        Action::POLL
    }

    fn wait_for_bodies(&self) -> Action {
        let until = self.calls.waits().filter_map(|wait| wait.due_at).min();
        let reads_inbox =
            self.calls.waits().any(|wait| wait.signal.is_some() || wait.child.is_some() || wait.branch);
        Action::Wait { until, reads_inbox }
    }

    /// Returns the names of all signals that calls wait for.
    fn awaited_names(&self) -> impl Iterator<Item = &str> {
        self.calls.waits().flat_map(|wait| {
            let signal = wait.signal.as_ref().map(|awaited| awaited.name.as_str());
            signal.into_iter().chain(wait.branch.then_some(BRANCH_SIGNAL))
        })
    }

    /// Reads the ends of children, if any that calls wait for may have ended.
    fn read_children(&mut self, inputs: &Inputs<'_>) -> Action {
        let children = self.children_to_read();
        if children.is_empty() { self.after_reads(inputs) } else { Action::ReadChildren(children) }
    }

    /// The inbox and the ends of children were read: continues the calls that have what they wait for, or parks.
    fn after_reads(&mut self, inputs: &Inputs<'_>) -> Action {
        if self.calls.any_runs() {
            return Action::Poll { wake: self.complete_waits(inputs) };
        }
        let has_signal =
            self.awaited_names().any(|name| self.inbox.signals.iter().any(|signal| signal.name == name));
        if has_signal || !self.calls.finished.is_empty() {
            return Action::POLL;
        }
        self.park_wait(inputs.now).map_or_else(Action::Fail, Action::Park)
    }

    /// Checks that the workflow can continue as new with this input.
    fn continue_as_new(&self, input: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let open: Vec<String> =
            self.calls.iter().map(|(_, call)| format!("{} {:?}", call.call_kind, call.ident.0)).collect();
        let open = match open.as_slice() {
            [] => {
                self.check_all_merged("`continue_as_new` is called")?;
                return Ok(input);
            }
            [one] => format!("{one} is"),
            many => format!("{} are", many.join(", ")),
        };
        Err(misuse(format!(
            "`continue_as_new` is called while {open} under way; await it first, outside of any branch"
        )))
    }

    /// Refuses to end with a branch that was not merged: nobody would know how its children end.
    pub(super) fn check_all_merged(&self, when: &str) -> Result<(), Failure> {
        let open = self.branches.iter().filter(|(_, opened)| **opened != BranchState::Merged);
        let names: Vec<String> = open.map(|(name, _)| format!("{name:?}")).collect();
        match names.as_slice() {
            [] => Ok(()),
            [one] => Err(misuse(format!(
                "{when}, and the branch {one} was not merged: nobody would know how its children end. Merge it, with \
                 `Merge::settled()` if that does not matter"
            ))),
            many => Err(misuse(format!(
                "{when}, and the branches {} were not merged: nobody would know how their children end. Merge them, with \
                 `Merge::settled()` if that does not matter",
                many.join(", ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
