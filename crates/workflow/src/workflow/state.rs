//! The state of a workflow's run: its journal, its open calls, and the writes that are pending.
//!
//! The code of the workflow changes it through its calls, and the driver through [`RunState::decide`]; `core` guards it.

use std::{
    collections::{BTreeMap, HashSet},
    panic::Location,
};

use windlass_model::{
    BranchNo, BranchUpdate, Failure, JobId, JournalEntry, NewJob, Payload, Reason, Signal, Time,
    UnreadableSignal,
    journal::{CallEvent, CallKind},
    limits::{MAX_KEY_BYTES, check_name, check_text},
};
use windlass_runtime::StepResult;

use super::{
    call::{AfterCommit, Call, OpenCalls, Phase, Start},
    call_retry::CallRetry,
    context::Value,
    fault::{display_ident, diverged, misuse, nested, reused, source_location},
    journal::{CallEnd, ContextSet, Ident, Journal, RecordedCall},
    undo::UndoCx,
};

/// The name of entries that record the time.
pub(super) const NOW: &str = "windlass.now";
/// The name of the entry that records that the job failed or was cancelled.
pub const ENDED: &str = "windlass.ended";
/// The name of the entry that records that the job continues after it had ended or was unwound.
pub const RESUMED: &str = "windlass.resumed";

/// The state of a workflow's run.
pub(super) struct RunState {
    pub(super) journal: Journal,
    /// The sequence number of the next entry.
    pub(super) next_seq: i32,
    pub(super) calls: OpenCalls,
    pub(super) delivered: Delivered,
    pub(super) pending: PendingWrites,
    pub(super) inbox: Inbox,
    pub(super) context: ContextValues,
    /// The undos of the steps that this run has reached.
    pub(super) undos: Vec<Undo>,
    /// The branches that were opened, by name.
    pub(super) branches: BTreeMap<String, BranchState>,
    /// The sequence number at which a scope of the code has caught that the job is cancelled.
    pub(super) caught_at: Option<i32>,
    pub(super) code: CodeState,
}

/// The ends that were delivered to the code: how far it has replayed.
pub(super) struct Delivered {
    /// Calls whose end is recorded and not delivered, by its sequence number.
    pub(super) next: BTreeMap<i32, usize>,
    /// The sequence number of the end that was delivered last.
    pub(super) last: i32,
    /// The sequence number of the last one that was a success.
    pub(super) last_success: i32,
    /// Those that were failures: their sequence numbers, errors and reasons.
    pub(super) failures: Vec<(i32, Failure, Reason)>,
    /// How many random numbers were drawn since the last one.
    pub(super) draws: u32,
}

/// What the code has done besides its calls.
#[derive(Default)]
pub(super) struct CodeState {
    /// Where it made its last call.
    pub(super) last_call_at: Option<&'static Location<'static>>,
    /// The step whose body is being polled.
    pub(super) polled_step: Option<String>,
    /// Its fault. It is not polled again.
    pub(super) fault: Option<Failure>,
    /// The fault that a call was dropped which was never awaited. It does not count if the code returns an error with that.
    pub(super) unawaited: Option<Failure>,
    /// Whether the code is over: the driver drops it, with the calls that it has not awaited.
    pub(super) is_over: bool,
    /// The input for the next run, if it continues as new.
    pub(super) continue_input: Option<Vec<u8>>,
    /// How the attempt ends, because a transaction of the code found that the claim is over.
    pub(super) claim_ended: Option<StepResult>,
    /// How often in a row it asked to be polled again.
    pub(super) repolls: u32,
    /// Whether it has begun a call that is not recorded.
    pub(super) is_live: bool,
}

/// Signals and ends of children, as far as they were read.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) signals: Vec<Signal>,
    /// Whether it was read since the code last began a call.
    pub(super) is_current: bool,
    /// Children whose ends were queried.
    pub(super) queried_children: Vec<JobId>,
}

impl Inbox {
    /// Returns the numbers of the signals of a name.
    pub(super) fn numbers(&self, name: &str) -> impl Iterator<Item = i64> {
        self.signals.iter().filter(move |signal| signal.name == name).map(|signal| signal.number)
    }
}

/// The context of the workflow.
#[derive(Default)]
pub(super) struct ContextValues {
    pub(super) values: BTreeMap<String, Value>,
    /// What the code has set since the last recorded end was delivered: earlier values were written then.
    pub(super) unwritten: BTreeMap<String, Value>,
}

/// The writes of the next commit.
#[derive(Default)]
pub(super) struct PendingWrites {
    pub(super) branches: Vec<BranchUpdate>,
    pub(super) entries: Vec<JournalEntry>,
    pub(super) forget_entries: Vec<i32>,
    pub(super) children: Vec<NewJob>,
    pub(super) consumed: Vec<i64>,
    /// Signals that none of the calls that wait for them can decode.
    pub(super) unreadable: Vec<UnreadableSignal>,
    /// Values of the context that steps have set.
    pub(super) context: BTreeMap<String, Value>,
    pub(super) has_undo: bool,
}

impl PendingWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.branches.is_empty()
            && self.forget_entries.is_empty()
            && self.children.is_empty()
            && self.consumed.is_empty()
            && self.unreadable.is_empty()
            && self.context.is_empty()
            && !self.has_undo
    }

    /// Adds an entry, and returns its sequence number.
    pub(super) fn push(&mut self, entry: JournalEntry) -> i32 {
        let seq = entry.seq;
        self.entries.push(entry);
        seq
    }

    /// Whether it has children or branches, which are never held back.
    pub(super) fn spawns(&self) -> bool {
        !self.children.is_empty() || !self.branches.is_empty()
    }
}

/// A branch of this run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BranchState {
    /// It is being filled.
    Filling,
    /// It was filled, completely or in part.
    Open {
        number: BranchNo,
    },
    /// A merge waits for it.
    Merging {
        number: BranchNo,
    },
    Merged,
}

/// The undo of a step or transaction that succeeded.
pub(super) struct Undo {
    pub(super) seq: i32,
    pub(super) call_kind: CallKind,
    pub(super) ident: Ident,
    /// The id that the step ran with.
    pub(super) step_id: String,
    pub(super) retry: CallRetry,
    pub(super) run: UndoFn,
}

/// A step that was recorded with an undo and for which this run has none.
pub(super) struct MissingUndo {
    pub(super) seq: i32,
    pub(super) call_kind: CallKind,
    pub(super) ident: Ident,
    /// Whether the code has reached the step, without an undo for it.
    pub(super) reached: bool,
}

pub(super) type UndoFn = Box<dyn FnMut(UndoCx) -> super::Boxed<'static, Result<(), Failure>> + Send>;

impl RunState {
    pub(super) fn new(mut journal: Journal, inbox: Vec<Signal>) -> RunState {
        // The context of the run before this one.
        let carried = journal.sets.remove(&-1).unwrap_or_default();
        let scopes =
            journal.calls.all().filter(|(_, _, recorded)| recorded.call_kind == CallKind::CancelScope);
        let caught_at = scopes.filter_map(|(_, _, recorded)| recorded.end_seq()).next();
        RunState {
            next_seq: journal.next_seq,
            journal,
            calls: OpenCalls::default(),
            delivered: Delivered {
                next: BTreeMap::new(),
                last: -1,
                last_success: -1,
                failures: Vec::new(),
                draws: 0,
            },
            pending: PendingWrites::default(),
            inbox: Inbox { signals: inbox, ..Inbox::default() },
            context: ContextValues {
                values: carried.into_iter().map(|set| (set.name, set.value)).collect(),
                unwritten: BTreeMap::new(),
            },
            undos: Vec::new(),
            branches: BTreeMap::new(),
            caught_at,
            code: CodeState::default(),
        }
    }

    /// Checks whether a call may be made under its name.
    pub(super) fn check_call(
        &mut self,
        call_kind: CallKind,
        name: &str,
        key: Option<&str>,
        line: &'static Location<'static>,
    ) -> Result<Ident, Failure> {
        if let Some(inside) = &self.code.polled_step {
            return Err(nested(&format!("{call_kind} {name:?} at {}", source_location(line)), inside));
        }
        check_name(call_kind.name(), name)
            .map_err(|error| misuse(format!("{error} ({})", source_location(line))))?;
        if let Some(key) = key {
            check_text("key of the call", key, MAX_KEY_BYTES)
                .map_err(|error| misuse(format!("{error} ({})", source_location(line))))?;
        }
        let recorded = self.journal.calls.entry(name, key, call_kind);
        if let Some((before, first)) = recorded.made_at.replace((call_kind, line)) {
            return Err(reused(&(name.into(), key.map(Into::into)), before, first, call_kind, line));
        }
        if recorded.call_kind != call_kind {
            return Err(diverged(&format!(
                "its journal says that {} is a {}, and the code makes it a {call_kind}\n  recorded:  {} at {}\n  attempted: {call_kind} at {}\n\
                 Give the new call another name, or have the job go on with code that fits (docs/changing-workflows.md).",
                display_ident(&(name.into(), key.map(Into::into))),
                recorded.call_kind,
                recorded.call_kind,
                recorded.line.as_deref().unwrap_or("an unknown place"),
                source_location(line),
            )));
        }
        Ok((name.into(), key.map(Into::into)))
    }

    pub(super) fn add(
        &mut self,
        ident: Ident,
        call_kind: CallKind,
        line: &'static Location<'static>,
        start: Start,
    ) -> usize {
        let id = self.calls.next_id();
        let end =
            self.journal.calls.of(&ident).and_then(|recorded| recorded.end.as_ref()).map(|(seq, _)| *seq);
        let phase = match end {
            Some(seq) => {
                self.delivered.next.insert(seq, id);
                Phase::Recorded(seq)
            }
            None => Phase::New,
        };
        self.code.last_call_at = Some(line);
        let context_sets = Vec::new();
        self.calls.made += 1;
        self.calls.insert(Call {
            ident,
            call_kind,
            line,
            made: self.calls.made,
            phase,
            start,
            waker: None,
            context_sets,
            signal: None,
            detached: false,
        });
        id
    }

    /// Delivers the next recorded end, and returns its call.
    pub(super) fn deliver(&mut self) -> Option<usize> {
        let (seq, id) = self.delivered.next.pop_first()?;
        let call = self.calls.get_mut(id)?;
        let recorded = self.journal.calls.get_mut(&call.ident.0, call.ident.1.as_deref())?;
        // A name is used once, so nothing reads it again.
        let (_, ending) = recorded.end.take()?;
        if let CallEnd::Failed { failure, reason } = &ending {
            self.delivered.failures.push((seq, failure.clone(), *reason));
        } else {
            self.delivered.last_success = self.delivered.last_success.max(seq);
        }
        let (is_repeat, detached) = (call.call_kind == CallKind::Repeat, call.detached);
        let repeat = is_repeat.then(|| call.ident.0.clone());
        call.phase = Phase::Ready(seq, ending);
        self.delivered.last = seq;
        self.delivered.draws = 0;
        if !std::mem::replace(&mut recorded.reached, true) {
            self.journal.undelivered -= 1;
            // Earlier values were written with this end, or before it.
            self.context.unwritten.clear();
        }
        if detached {
            self.calls.remove(id);
        }
        for set in self.journal.sets.remove(&seq).unwrap_or_default() {
            self.context.values.insert(set.name.clone(), set.value.clone());
            if let Some(name) = &repeat {
                self.journal.repeat_sets.entry(name.clone()).or_default().push(set);
            }
        }
        Some(id)
    }

    /// Adds an entry of a call to the pending writes. Returns its sequence number.
    fn push_call_entry(&mut self, id: usize, event: CallEvent, payload: Payload, at: Time) -> i32 {
        let entry = self.entry(id, event, payload, at);
        self.pending.push(entry)
    }

    /// Records that a call has begun, with what a replay needs to continue it. Returns what was recorded before.
    pub(super) fn record_begun(&mut self, id: usize, payload: Payload, at: Time) -> Option<(i32, Payload)> {
        let seq = self.push_call_entry(id, CallEvent::Begun, payload.clone(), at);
        let ident = self.calls.get(id).expect("an open call").ident.clone();
        self.journal.recorded_mut(&ident).begun.replace((seq, payload))
    }

    /// Makes an entry of a call.
    pub(super) fn entry(&mut self, id: usize, event: CallEvent, payload: Payload, at: Time) -> JournalEntry {
        let call = self.calls.get(id).expect("an open call");
        let (ident, call_kind, line) = (call.ident.clone(), call.call_kind, Some(source_location(call.line)));
        self.entry_of(&ident, call_kind, event, line, payload, at)
    }

    pub(super) fn entry_of(
        &mut self,
        ident: &Ident,
        call_kind: CallKind,
        event: CallEvent,
        line: Option<String>,
        payload: Payload,
        at: Time,
    ) -> JournalEntry {
        let seq = self.next_seq;
        self.next_seq += 1;
        let (name, key) = (ident.0.to_string(), ident.1.as_ref().map(|key| key.to_string()));
        JournalEntry { seq, call_kind, event, name, key, line, at, payload }
    }

    /// Ends a call with the next commit. Returns the sequence number of its end.
    pub(super) fn finish(&mut self, id: usize, event: CallEvent, payload: Payload, at: Time) -> i32 {
        if self.calls.get(id).is_none() {
            return -1;
        }
        self.consume_signal(id);
        let ending = CallEnd::Done(payload.clone());
        let seq = self.push_call_entry(id, event, payload, at);
        let ident = self.calls.get(id).map(|call| call.ident.clone());
        self.end(id, seq, ending);
        if event == CallEvent::DoneWithUndo {
            ident.iter().for_each(|ident| self.journal.recorded_mut(ident).undo = Some(seq));
        }
        seq
    }

    pub(super) fn fail(&mut self, id: usize, failure: Failure, reason: Reason, at: Time) {
        if self.calls.get(id).is_none() {
            return;
        }
        self.consume_signal(id);
        let ending = CallEnd::Failed { failure, reason };
        let seq = self.push_call_entry(id, CallEvent::Failed, ending.failed_payload(), at);
        self.end(id, seq, ending);
    }

    /// Ends a call whose entry has this sequence number.
    pub(super) fn end(&mut self, id: usize, seq: i32, ending: CallEnd) {
        let call = self.calls.get(id).expect("an open call");
        let (ident, call_kind) = (call.ident.clone(), call.call_kind);
        let recorded = self.journal.recorded_mut(&ident);
        (recorded.call_kind, recorded.reached) = (call_kind, true);
        recorded.end = Some((seq, ending));
        self.calls.mark_finished(id, AfterCommit::End(seq));
    }

    /// Records what the body of a step set in the context, after the step's end. What a tick has set outlives the tick: the key
    /// of the entry names its repeat.
    pub(super) fn write_sets(&mut self, id: usize, seq: i32, sets: Vec<(String, Value, Payload)>, at: Time) {
        let call = self.calls.get(id);
        let repeat = call.filter(|call| call.call_kind == CallKind::Repeat).map(|call| call.ident.0.clone());
        for (name, value, payload) in sets {
            let ident: Ident = (name.as_str().into(), repeat.clone());
            let entry = self.entry_of(&ident, CallKind::Context, CallEvent::Done, None, payload, at);
            let entry_seq = self.pending.push(entry);
            self.context.unwritten.remove(&name);
            self.pending.context.insert(name.clone(), value.clone());
            self.journal.sets.entry(seq).or_default().push(ContextSet { seq: entry_seq, name, value });
        }
    }

    /// Consumes the signal that a body was started with.
    pub(super) fn consume_signal(&mut self, id: usize) {
        if let Some(signal) = self.calls.get_mut(id).and_then(|call| call.signal.take()) {
            self.pending.consumed.push(signal.number);
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        if self.context.values.get(name) == Some(&value) {
            return;
        }
        self.context.values.insert(name.to_owned(), value.clone());
        self.pending.context.remove(name);
        self.context.unwritten.insert(name.to_owned(), value);
    }

    /// Whether the code has reached all recorded ends, or has begun something new.
    pub(super) fn is_live(&self) -> bool {
        self.journal.undelivered == 0 || self.code.is_live
    }

    /// The steps that were recorded with an undo and that this run cannot undo, for any reason, by sequence number.
    pub(super) fn missing_undos(&self) -> Vec<MissingUndo> {
        let with_undo: HashSet<&Ident> = self.undos.iter().map(|undo| &undo.ident).collect();
        let missing = |(name, key, recorded): (&str, Option<&str>, &RecordedCall)| {
            let (seq, ident) = (recorded.undo?, (name.into(), key.map(Into::into)));
            let is_missing = !with_undo.contains(&ident) && !self.journal.undo.is_settled(&ident);
            is_missing.then_some(MissingUndo {
                seq,
                call_kind: recorded.call_kind,
                ident,
                reached: recorded.reached,
            })
        };
        let mut all: Vec<MissingUndo> = self.journal.calls.all().filter_map(missing).collect();
        all.sort_by_key(|undo| undo.seq);
        all
    }

    /// Marks the calls whose changes were committed: their ends can be delivered.
    pub(super) fn record_finished(&mut self) {
        for finished in std::mem::take(&mut self.calls.finished) {
            let Some(call) = self.calls.get_mut(finished.call) else { continue };
            match finished.then {
                AfterCommit::End(seq) => {
                    call.phase = Phase::Recorded(seq);
                    self.delivered.next.insert(seq, finished.call);
                }
                AfterCommit::Wait(wait) => call.phase = Phase::Waiting(wait),
                AfterCommit::Part => call.phase = Phase::Running,
            }
        }
    }
}
