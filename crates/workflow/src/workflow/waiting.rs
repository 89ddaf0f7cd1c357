//! The rules for calls that wait: how they begin, when they end, and what the job parks for.

use std::time::Duration;

use windlass_model::{
    Failure, JobId, NewJob, Payload, Reason, Rev, Signal, Time, Wait, WaitCondition,
    branch::BRANCH_SIGNAL,
    failure::{OnFailure, class},
    journal::{CallEvent, CallKind},
    wait::{CHILD_SIGNAL, MAX_NAMES, SignalName},
};
use windlass_store::JobEnd;

use super::{
    call::{AwaitedSignal, Call, CallWait, Moment, Phase, Start},
    core::encode_payload,
    decide::Inputs,
    fault::misuse,
    journal::CallEnd,
    state::RunState,
};
use crate::signal::mark_unreadable;

impl RunState {
    /// Begins a call that is not recorded, or continues one of which only the beginning is.
    pub(super) fn begin(&mut self, id: usize, now: Time) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let recorded = self.journal.calls.of(&call.ident);
        let begun = recorded.and_then(|recorded| recorded.begun.as_ref()).map(|(_, payload)| &payload.bytes);
        let due = begun.and_then(|bytes| serde_json::from_slice::<Time>(bytes).ok());
        let retry_at = recorded.and_then(|recorded| recorded.tried.as_ref()).map(|tried| tried.next_at);
        // When the call is due, or its child: recorded when it begins, so that a replay finds the same.
        let mut begins: Option<Vec<u8>> = None;
        let mut begins_due = |due: Time| {
            begins = Some(serde_json::to_vec(&due).unwrap_or_default());
            due
        };
        let wait = match &call.start {
            Start::Body { within } => {
                if let (Some(within), None) = (within, begun) {
                    begins_due(now + *within);
                }
                retry_at.filter(|at| *at > now).map(|at| CallWait {
                    due_at: Some(at),
                    runs_body: true,
                    ..CallWait::default()
                })
            }
            Start::At(moment) => {
                let due = due.unwrap_or_else(|| {
                    begins_due(match *moment {
                        Moment::In(span) => now + span,
                        Moment::At(at) => at,
                    })
                });
                Some(CallWait { due_at: Some(due), ..CallWait::default() })
            }
            Start::Unrecorded(due) => {
                Some(CallWait { due_at: Some(*due), unrecorded: true, ..CallWait::default() })
            }
            Start::Signal { awaited, timeout } => {
                let due_at = timeout.map(|timeout| due.unwrap_or_else(|| begins_due(now + timeout)));
                Some(CallWait { due_at, signal: Some(awaited.clone()), ..CallWait::default() })
            }
            Start::CancelScope => {
                // A cancel request must not end the job without its code.
                self.pending.has_undo = true;
                Some(CallWait::default())
            }
            Start::Child(job) if call.detached => {
                let child = NewJob { parent_rev: Some(Rev::DETACHED), ..(**job).clone() };
                let payload = Payload::json(serde_json::to_vec(&job.id).unwrap_or_default());
                self.pending.children.push(child);
                self.record_begun(id, payload.clone(), now);
                self.finish(id, CallEvent::Done, payload, now);
                return;
            }
            Start::Child(job) => {
                let before = begun.and_then(|bytes| serde_json::from_slice::<JobId>(bytes).ok());
                if before.is_none() {
                    self.pending.children.push((**job).clone());
                    begins = Some(serde_json::to_vec(&job.id).unwrap_or_default());
                }
                Some(CallWait { child: Some(before.unwrap_or(job.id)), ..CallWait::default() })
            }
        };
        let starts_transaction = wait.is_none() && call.call_kind == CallKind::Transaction;
        call.phase = wait.map_or(Phase::CanStart, Phase::Waiting);
        if starts_transaction {
            self.calls.transacting = Some(id);
        }
        if let Some(payload) = begins {
            self.record_begun(id, Payload::json(payload), now);
        }
    }

    /// Ends the waits that are over, and returns their calls.
    pub(super) fn complete_waits(&mut self, inputs: &Inputs<'_>) -> Vec<usize> {
        let open = self.calls.iter().filter(|(_, call)| call.call_kind != CallKind::CancelScope);
        let alone = open.count() == 1;
        let waits: Vec<(usize, CallWait)> =
            self.calls.iter().filter_map(|(id, call)| Some((id, call.wait()?.clone()))).collect();
        // A signal of a branch only says that the branch must be read again.
        let branch_signals: Vec<i64> = self.inbox.numbers(BRANCH_SIGNAL).collect();
        if waits.iter().any(|(_, wait)| wait.branch) {
            self.inbox.signals.retain(|signal| signal.name != BRANCH_SIGNAL);
            self.pending.consumed.extend(&branch_signals);
        }
        let awaited: Vec<AwaitedSignal> = waits.iter().filter_map(|(_, wait)| wait.signal.clone()).collect();
        // Only the next end is taken: if the code then drops other calls, their signals must stay in the inbox.
        let mut ended = !self.calls.finished.is_empty();
        let mut woken = Vec::new();
        for (id, wait) in waits {
            if ended && !wait.runs_body {
                continue;
            }
            let signal = wait.signal.as_ref().and_then(|signal| self.take_signal(signal, &awaited, inputs));
            let is_due = wait.due_at.is_some_and(|due| due <= inputs.now)
                || (wait.branch && !branch_signals.is_empty());
            if signal.is_none() && !is_due {
                continue;
            }
            if wait.runs_body {
                let call = self.calls.get_mut(id).expect("it waits");
                // Transactions run one after the other: it begins again when it is its turn.
                call.phase =
                    if call.call_kind == CallKind::Transaction { Phase::New } else { Phase::CanStart };
                if signal.is_some() {
                    call.signal = signal;
                }
            } else {
                self.end_wait(id, wait, signal, alone, inputs);
                ended = true;
            }
            woken.push(id);
        }
        woken
    }

    /// Ends a call whose wait is over: with its signal, or because of its time.
    fn end_wait(
        &mut self,
        id: usize,
        wait: CallWait,
        signal: Option<Signal>,
        alone: bool,
        inputs: &Inputs<'_>,
    ) {
        let null = || Payload::json(b"null".to_vec());
        let now = inputs.now;
        if let Some(signal) = signal {
            self.pending.consumed.push(signal.number);
            // The payload of a signal that came with the claim was decoded with it.
            let encoded = match signal.payload {
                Payload { codec: 0, bytes } => encode_payload(inputs.codecs, bytes),
                encoded => Ok(encoded),
            };
            match encoded {
                Ok(payload) => _ = self.finish(id, CallEvent::Done, payload, now),
                Err(failure) => self.fail(id, failure, Reason::Refused, now),
            }
        } else if wait.unrecorded {
            let phase = Phase::Ready(self.delivered.last, CallEnd::Done(null()));
            self.calls.get_mut(id).expect("it waits").phase = phase;
        } else if let Some(AwaitedSignal { name, .. }) = wait.signal {
            let text = format!("no signal {name:?} arrived in time");
            self.fail(id, Failure::stop(text).class(class::TIMEOUT), Reason::Timeout, now);
        } else {
            self.finish(id, CallEvent::Done, null(), now);
            if alone {
                // No other call can end before it: its end is written with whatever follows.
                self.record_finished();
            }
        }
    }

    /// Takes the oldest signal out of the inbox that a call waits for and can decode. A signal that none of the calls waiting
    /// for its name can decode is marked unreadable.
    fn take_signal(
        &mut self,
        wanted: &AwaitedSignal,
        all_awaited: &[AwaitedSignal],
        inputs: &Inputs<'_>,
    ) -> Option<Signal> {
        let signals = &mut self.inbox.signals;
        let mut index = 0;
        while let Some(signal) = signals.get(index) {
            if signal.name != wanted.name {
                index += 1;
                continue;
            }
            let why = match (wanted.can_read)(inputs.codecs, &signal.payload) {
                Ok(()) => return Some(signals.remove(index)),
                Err(why) => why,
            };
            let mut others = all_awaited.iter().filter(|other| other.name == wanted.name);
            if others.any(|other| (other.can_read)(inputs.codecs, &signal.payload).is_ok()) {
                index += 1;
                continue;
            }
            let signal = signals.remove(index);
            self.pending.unreadable.push(mark_unreadable(inputs.job, &signal, why));
        }
        None
    }

    /// Replaces the inbox by one that was just read, without the signals that the next commit consumes or marks and those
    /// that bodies have.
    pub(super) fn replace_inbox(&mut self, signals: Vec<Signal>) {
        let (pending, calls) = (&self.pending, &self.calls);
        let is_taken = |number: i64| {
            pending.consumed.contains(&number)
                || pending.unreadable.iter().any(|signal| signal.number == number)
                || calls
                    .iter()
                    .any(|(_, call)| call.signal.as_ref().is_some_and(|held| held.number == number))
        };
        let is_open = |signal: &Signal| signal.unreadable.is_none() && !is_taken(signal.number);
        self.inbox.signals = signals.into_iter().filter(is_open).collect();
    }

    /// Returns the children that calls wait for and that may have ended. Consumes the signals that say so.
    pub(super) fn children_to_read(&mut self) -> Vec<JobId> {
        let signals: Vec<i64> = self.inbox.numbers(CHILD_SIGNAL).collect();
        self.inbox.signals.retain(|signal| signal.name != CHILD_SIGNAL);
        self.pending.consumed.extend(&signals);
        let may_have_ended = |id: &JobId| {
            let is_submitted = !self.pending.children.iter().any(|child| child.id == *id);
            is_submitted && (!signals.is_empty() || !self.inbox.queried_children.contains(id))
        };
        self.calls.waits().filter_map(|wait| wait.child).filter(may_have_ended).collect()
    }

    /// Ends the calls whose children have ended.
    pub(super) fn complete_children(&mut self, ends: Vec<(JobId, Option<JobEnd>)>, now: Time) {
        self.inbox.queried_children.extend(ends.iter().map(|(child, _)| *child));
        for (child, end) in ends {
            let Some(end) = end else { continue };
            let waits_for = |call: &Call| call.wait().is_some_and(|wait| wait.child == Some(child));
            let Some((id, _)) = self.calls.iter().find(|(_, call)| waits_for(call)) else { continue };
            match end {
                JobEnd::Done(output) => _ = self.finish(id, CallEvent::Done, output, now),
                JobEnd::Failed { reason, failure } => {
                    let message = format!("the child {child} failed ({reason}): {}", failure.message);
                    let failure = Failure { message, then: OnFailure::Stop, ..failure };
                    self.fail(id, failure, reason, now);
                }
                JobEnd::Cancelled(failure) => {
                    let message = format!("the child {child} was cancelled: {}", failure.message);
                    let failure = Failure { message, then: OnFailure::Stop, ..failure };
                    self.fail(id, failure.class(class::CANCELLED), Reason::Stopped, now);
                }
                JobEnd::Gone => {
                    let text = format!(
                        "the child {child} does not exist: another job has its key or its unique name, or it was pruned"
                    );
                    self.fail(id, Failure::stop(text).class(class::CHILD), Reason::Stopped, now);
                }
            }
        }
    }

    /// Returns what the job parks for: any of its waits.
    pub(super) fn park_wait(&self, now: Time) -> Result<Wait, Failure> {
        let mut names: Vec<SignalName> = Vec::new();
        for wait in self.calls.waits() {
            let child = wait.child.map(|_| SignalName { name: CHILD_SIGNAL.into(), every: true });
            let branch = wait.branch.then(|| SignalName { name: BRANCH_SIGNAL.into(), every: true });
            let signal = wait.signal.as_ref();
            let signal = signal.map(|awaited| SignalName { name: awaited.name.clone(), every: false });
            names.extend(child.into_iter().chain(branch).chain(signal));
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        names.dedup_by(|a, b| a.name == b.name);
        if names.len() > MAX_NAMES {
            return Err(misuse(format!(
                "the workflow waits for {} signals at once, more than the {MAX_NAMES} allowed; use one name and distinguish them by \
                 their payload",
                names.len()
            )));
        }
        let due = self.calls.waits().filter_map(|wait| wait.due_at).min();
        let timeout = due.map(|due| (due - now).max(Duration::from_micros(1)));
        Ok(Wait { condition: WaitCondition::Signals { names, needs: 1 }, timeout })
    }
}
