//! The open calls of a workflow, and the writes that are pending.

use std::{
    collections::{BTreeMap, HashSet},
    panic::Location,
    task::Waker,
    time::Duration,
};

use windlass_model::{
    BranchNo, BranchUpdate, Failure, JobId, JournalEntry, NewJob, Payload, Reason, Retry, Signal, Time,
    UnreadableSignal,
    failure::class,
    journal::{CallEvent, CallKind},
    limits::{MAX_KEY_BYTES, check_name, check_text},
};

use super::{
    context::Value,
    journal::{CallEnd, ContextSet, Ident, Journal, RecordedCall},
    undo::UndoCx,
};
use crate::signal::CanRead;

/// The name of entries that record the time.
pub(super) const NOW: &str = "windlass.now";
/// The name of the entry that records that the job failed or was cancelled.
pub const ENDED: &str = "windlass.ended";
/// The name of the entry that records that the job continues after it had ended or was unwound.
pub const RESUMED: &str = "windlass.resumed";

pub(super) struct RunState {
    pub(super) journal: Journal,
    pub(super) calls: Vec<Option<Call>>,
    /// Free indexes in `calls`.
    free: Vec<usize>,
    /// Calls whose end is recorded and was not delivered, by its sequence number.
    pub(super) undelivered: BTreeMap<i32, usize>,
    /// The sequence number of the end that was delivered last.
    pub(super) last_delivered: i32,
    /// Where the last call was made.
    pub(super) last_call_at: Option<&'static Location<'static>>,
    /// How many random numbers were drawn since the last delivered end.
    pub(super) draws: u32,
    pub(super) next_seq: i32,
    /// The writes of the next commit.
    pub(super) pending: PendingWrites,
    /// Calls that have ended, or wait, or have a part committed, with the next commit.
    pub(super) finished: Vec<FinishedCall>,
    /// The inbox, as last read.
    pub(super) inbox: Vec<Signal>,
    pub(super) context: BTreeMap<String, Value>,
    /// What the code has set since the last recorded end was delivered: earlier values were written then.
    pub(super) unwritten_context: BTreeMap<String, Value>,
    pub(super) undos: Vec<Undo>,
    /// Delivered ends that were failures: their sequence numbers, errors and reasons.
    pub(super) failures: Vec<(i32, Failure, Reason)>,
    /// The sequence number of the last delivered end that was a success.
    pub(super) last_success: i32,
    /// Whether a call was begun that is not recorded.
    pub(super) live: bool,
    /// The fault of the code.
    pub(super) fault: Option<Failure>,
    /// The input for the next run, if the workflow continues as new.
    pub(super) continue_input: Option<Vec<u8>>,
    /// The step whose body is being polled.
    pub(super) polled_step: Option<String>,
    /// The transaction that is running: until it has ended nothing else is committed.
    pub(super) transacting: Option<usize>,
    /// The branches that were opened, by name.
    pub(super) branches: BTreeMap<String, BranchState>,
    /// How the attempt ends, once its claim is over.
    pub(super) claim_ended: Option<windlass_runtime::StepResult>,
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

/// A durable call that is open.
pub(super) struct Call {
    pub(super) ident: Ident,
    pub(super) op: CallKind,
    pub(super) line: &'static Location<'static>,
    pub(super) phase: Phase,
    pub(super) start: Start,
    pub(super) waker: Option<Waker>,
    /// Values of the context that its body has set.
    pub(super) context_sets: Vec<(String, Value)>,
    /// The signal that its body was started with.
    pub(super) signal: Option<Signal>,
}

pub(super) enum Phase {
    /// The driver has not seen it yet.
    New,
    /// Its end is recorded with this sequence number, and will be delivered.
    Recorded(i32),
    /// Its body may start.
    CanStart,
    /// Its body is running.
    Running,
    /// Its body has ended; that is not committed.
    Finished,
    /// It waits for a time, a signal or a child.
    Waiting(CallWait),
    /// Its end was delivered.
    Ready(i32, CallEnd),
}

/// The signal that a call waits for.
#[derive(Clone, Debug)]
pub(super) struct AwaitedSignal {
    pub(super) name: String,
    /// Checks whether the call can decode one.
    pub(super) can_read: CanRead,
}

/// What a call waits for.
#[derive(Clone, Default, Debug)]
pub(super) struct CallWait {
    pub(super) due_at: Option<Time>,
    pub(super) signal: Option<AwaitedSignal>,
    pub(super) child: Option<JobId>,
    /// Whether it waits for a watch on a branch.
    pub(super) branch: bool,
    /// Whether its body runs (again) when the wait is over; otherwise the call ends then.
    pub(super) runs_body: bool,
    /// Whether nothing is written when the wait is over.
    pub(super) unrecorded: bool,
}

/// How a call begins that is not recorded.
pub(super) enum Start {
    /// Runs its body. With a limit, the call fails if it has not succeeded by then.
    Body { within: Option<Duration> },
    /// Waits for a time.
    At(Moment),
    /// Waits for a time without recording that.
    Unrecorded(Time),
    /// Waits for a signal.
    Signal { awaited: AwaitedSignal, timeout: Option<Duration> },
    /// Submits a job.
    Child(Box<NewJob>),
}

#[derive(Clone, Copy)]
pub(super) enum Moment {
    In(Duration),
    At(Time),
}

/// A call that changes with the next commit.
pub(super) struct FinishedCall {
    pub(super) call: usize,
    pub(super) then: AfterCommit,
}

pub(super) enum AfterCommit {
    /// It has ended; its entry has this sequence number.
    End(i32),
    /// It waits.
    Wait(CallWait),
    /// It continues at once: a part of it is committed.
    Part,
}

/// The undo of a step that succeeded.
pub(super) struct Undo {
    pub(super) seq: i32,
    pub(super) ident: Ident,
    /// The id that the step ran with.
    pub(super) step_id: String,
    pub(super) retry: Retry,
    pub(super) run: UndoFn,
}

/// A step that was recorded with an undo and for which this run has none.
pub(super) struct MissingUndo {
    pub(super) seq: i32,
    pub(super) ident: Ident,
    /// Whether the code has reached the step, without an undo for it.
    pub(super) reached: bool,
}

pub(super) type UndoFn = Box<dyn FnMut(UndoCx) -> super::Boxed<'static, Result<(), Failure>> + Send>;

/// What a call's future does next.
pub(super) enum CallStatus {
    Ready(i32, CallEnd),
    Go,
    Running,
    Pending,
}

/// The description of a call that registers.
pub(super) struct CallSpec<'a> {
    pub(super) op: CallKind,
    pub(super) name: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) line: &'static Location<'static>,
    pub(super) start: Start,
}

impl RunState {
    pub(super) fn new(mut journal: Journal, inbox: Vec<Signal>) -> RunState {
        // The context of the run before this one.
        let carried = journal.sets.remove(&-1).unwrap_or_default();
        RunState {
            calls: Vec::new(),
            free: Vec::new(),
            undelivered: BTreeMap::new(),
            last_delivered: -1,
            last_call_at: None,
            draws: 0,
            next_seq: journal.next_seq,
            journal,
            pending: PendingWrites::default(),
            finished: Vec::new(),
            inbox,
            context: carried.into_iter().map(|set| (set.name, set.value)).collect(),
            unwritten_context: BTreeMap::new(),
            undos: Vec::new(),
            failures: Vec::new(),
            last_success: -1,
            live: false,
            fault: None,
            continue_input: None,
            polled_step: None,
            transacting: None,
            branches: BTreeMap::new(),
            claim_ended: None,
        }
    }

    /// Checks whether a call may be made under its name.
    pub(super) fn check_call(
        &mut self,
        op: CallKind,
        name: &str,
        key: Option<&str>,
        line: &'static Location<'static>,
    ) -> Result<Ident, Failure> {
        if let Some(inside) = &self.polled_step {
            return Err(nested(&format!("{op} {name:?} at {}", source_location(line)), inside));
        }
        check_name(op.name(), name)
            .map_err(|error| misuse(format!("{error} ({})", source_location(line))))?;
        if let Some(key) = key {
            check_text("key of the call", key, MAX_KEY_BYTES)
                .map_err(|error| misuse(format!("{error} ({})", source_location(line))))?;
        }
        let recorded = self.journal.calls.entry(name, key, op);
        if let Some((before, first)) = recorded.made_at.replace((op, line)) {
            return Err(reused(&(name.into(), key.map(Into::into)), before, first, op, line));
        }
        if recorded.op != op {
            return Err(diverged(&format!(
                "its journal says that {} is a {}, and the code makes it a {op}\n  recorded:  {} at {}\n  attempted: {op} at {}\n\
                 Give the new call another name, or have the job go on with code that fits (docs/changing-workflows.md).",
                display_ident(&(name.into(), key.map(Into::into))),
                recorded.op,
                recorded.op,
                recorded.line.as_deref().unwrap_or("an unknown place"),
                source_location(line),
            )));
        }
        Ok((name.into(), key.map(Into::into)))
    }

    pub(super) fn add(
        &mut self,
        ident: Ident,
        op: CallKind,
        line: &'static Location<'static>,
        start: Start,
    ) -> usize {
        let id = self.free.pop().unwrap_or(self.calls.len());
        let end =
            self.journal.calls.of(&ident).and_then(|recorded| recorded.end.as_ref()).map(|(seq, _)| *seq);
        let phase = match end {
            Some(seq) => {
                self.undelivered.insert(seq, id);
                Phase::Recorded(seq)
            }
            None => Phase::New,
        };
        self.last_call_at = Some(line);
        let call =
            Call { ident, op, line, phase, start, waker: None, context_sets: Vec::new(), signal: None };
        match self.calls.get_mut(id) {
            Some(free) => *free = Some(call),
            None => self.calls.push(Some(call)),
        }
        id
    }

    pub(super) fn remove(&mut self, id: usize) {
        if self.calls[id].take().is_some() {
            self.free.push(id);
        }
    }

    /// Delivers the next recorded end, and returns its call.
    pub(super) fn deliver(&mut self) -> Option<usize> {
        let (seq, id) = self.undelivered.pop_first()?;
        let call = self.calls[id].as_mut()?;
        let recorded = self.journal.calls.get_mut(&call.ident.0, call.ident.1.as_deref())?;
        // A name is used once, so nothing reads it again.
        let (_, ending) = recorded.end.take()?;
        if let CallEnd::Failed { failure, reason } = &ending {
            self.failures.push((seq, failure.clone(), *reason));
        } else {
            self.last_success = self.last_success.max(seq);
        }
        call.phase = Phase::Ready(seq, ending);
        self.last_delivered = seq;
        self.draws = 0;
        if !std::mem::replace(&mut recorded.reached, true) {
            self.journal.undelivered -= 1;
            // Earlier values were written with this end, or before it.
            self.unwritten_context.clear();
        }
        let repeat = (call.op == CallKind::Repeat).then(|| call.ident.0.clone());
        for set in self.journal.sets.remove(&seq).unwrap_or_default() {
            self.context.insert(set.name.clone(), set.value.clone());
            if let Some(name) = &repeat {
                self.journal.repeat_sets.entry(name.clone()).or_default().push(set);
            }
        }
        Some(id)
    }

    /// Makes an entry of a call.
    pub(super) fn entry(&mut self, id: usize, mark: CallEvent, payload: Payload, at: Time) -> JournalEntry {
        let call = self.calls[id].as_ref().expect("a call that is under way");
        let (ident, op, line) = (call.ident.clone(), call.op, Some(source_location(call.line)));
        self.entry_of(&ident, op, mark, line, payload, at)
    }

    pub(super) fn entry_of(
        &mut self,
        ident: &Ident,
        op: CallKind,
        mark: CallEvent,
        line: Option<String>,
        payload: Payload,
        at: Time,
    ) -> JournalEntry {
        let seq = self.next_seq;
        self.next_seq += 1;
        let (name, key) = (ident.0.to_string(), ident.1.as_ref().map(|key| key.to_string()));
        JournalEntry { seq, op, mark, name, key, line, at, payload }
    }

    /// Ends a call with the next commit.
    /// Returns the sequence number of its end.
    pub(super) fn finish(&mut self, id: usize, mark: CallEvent, payload: Payload, at: Time) -> i32 {
        if self.calls[id].is_none() {
            return -1;
        }
        self.consume_signal(id);
        let ending = CallEnd::Done(payload.clone());
        let entry = self.entry(id, mark, payload, at);
        let (seq, ident) = (entry.seq, self.calls[id].as_ref().map(|call| call.ident.clone()));
        self.pending.entries.push(entry);
        self.end(id, seq, ending);
        if mark == CallEvent::DoneWithUndo {
            ident.iter().for_each(|ident| self.journal.recorded_mut(ident).undo = Some(seq));
        }
        seq
    }

    pub(super) fn fail(&mut self, id: usize, failure: Failure, reason: Reason, at: Time) {
        if self.calls[id].is_none() {
            return;
        }
        self.consume_signal(id);
        let ending = CallEnd::Failed { failure, reason };
        let entry = self.entry(id, CallEvent::Failed, ending.failed_payload(), at);
        let seq = entry.seq;
        self.pending.entries.push(entry);
        self.end(id, seq, ending);
    }

    /// Ends a call whose entry has this sequence number.
    pub(super) fn end(&mut self, id: usize, seq: i32, ending: CallEnd) {
        let call = self.calls[id].as_ref().expect("a call that is under way");
        let (ident, op) = (call.ident.clone(), call.op);
        let recorded = self.journal.recorded_mut(&ident);
        (recorded.op, recorded.reached) = (op, true);
        recorded.end = Some((seq, ending));
        self.mark_finished(id, AfterCommit::End(seq));
    }

    pub(super) fn mark_finished(&mut self, id: usize, then: AfterCommit) {
        if let Some(call) = self.calls[id].as_mut() {
            call.phase = Phase::Finished;
            self.finished.push(FinishedCall { call: id, then });
        }
    }

    /// Records what the body of a step set in the context, after the step's end. What a tick has set outlives the tick: the key
    /// of the entry names its repeat.
    pub(super) fn write_sets(&mut self, id: usize, seq: i32, sets: Vec<(String, Value, Payload)>, at: Time) {
        let call = self.calls[id].as_ref();
        let repeat = call.filter(|call| call.op == CallKind::Repeat).map(|call| call.ident.0.clone());
        for (name, value, payload) in sets {
            let ident: Ident = (name.as_str().into(), repeat.clone());
            let entry = self.entry_of(&ident, CallKind::Context, CallEvent::Done, None, payload, at);
            let entry_seq = entry.seq;
            self.pending.entries.push(entry);
            self.unwritten_context.remove(&name);
            self.pending.context.insert(name.clone(), value.clone());
            self.journal.sets.entry(seq).or_default().push(ContextSet { seq: entry_seq, name, value });
        }
    }

    /// Consumes the signal that a body was started with.
    pub(super) fn consume_signal(&mut self, id: usize) {
        if let Some(signal) = self.calls[id].as_mut().and_then(|call| call.signal.take()) {
            self.pending.consumed.push(signal.number);
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        if self.context.get(name) == Some(&value) {
            return;
        }
        self.context.insert(name.to_owned(), value.clone());
        self.pending.context.remove(name);
        self.unwritten_context.insert(name.to_owned(), value);
    }

    /// Whether the code has reached all recorded ends, or has begun something new.
    pub(super) fn is_live(&self) -> bool {
        self.journal.undelivered == 0 || self.live
    }

    /// The steps that were recorded with an undo and that this run cannot undo, for any reason, by sequence number.
    pub(super) fn missing_undos(&self) -> Vec<MissingUndo> {
        let with_undo: HashSet<&Ident> = self.undos.iter().map(|undo| &undo.ident).collect();
        let missing = |(name, key, recorded): (&str, Option<&str>, &RecordedCall)| {
            let (seq, ident) = (recorded.undo?, (name.into(), key.map(Into::into)));
            let is_missing = !with_undo.contains(&ident) && !self.journal.undo.is_settled(&ident);
            is_missing.then_some(MissingUndo { seq, ident, reached: recorded.reached })
        };
        let mut all: Vec<MissingUndo> = self.journal.calls.all().filter_map(missing).collect();
        all.sort_by_key(|undo| undo.seq);
        all
    }

    /// All open calls, in the order of their indexes.
    pub(super) fn under_way(&self) -> impl Iterator<Item = (usize, &Call)> {
        self.calls.iter().enumerate().filter_map(|(id, call)| Some((id, call.as_ref()?)))
    }
}

/// The error for code that breaks a rule, whatever its journal says.
pub(super) fn misuse(text: impl std::fmt::Display) -> Failure {
    Failure::stop(text).class(class::REFUSED)
}

/// The error for code that does not match its journal.
pub(super) fn diverged(text: &str) -> Failure {
    Failure::stop(text).class(class::DIVERGED)
}

pub(super) fn nested(what: &str, inside: &str) -> Failure {
    misuse(format!(
        "{what} is called inside {inside:?}, and what runs inside a step is not durable: it is run again as a whole. \
         Make the call before or after it, in the workflow itself."
    ))
}

/// A location in the source as text.
pub(super) fn source_location(line: &Location<'_>) -> String {
    format!("{}:{}", line.file(), line.line())
}

fn reused(
    ident: &Ident,
    before: CallKind,
    first: &Location<'_>,
    op: CallKind,
    line: &Location<'_>,
) -> Failure {
    let hint = match &ident.1 {
        None => {
            "In a loop, tell them apart with `.key(…)`; otherwise give one of them another name with `.name(…)`."
        }
        Some(_) => "Choose keys that are different in each turn of a loop.",
    };
    misuse(format!(
        "{} is used twice: by a {before} at {} and by a {op} at {}. Replay finds a call by its name, so each needs its own. \
         {hint}",
        display_ident(ident),
        source_location(first),
        source_location(line),
    ))
}

/// A call as people see it.
pub(super) fn display_ident(ident: &Ident) -> String {
    match &ident.1 {
        Some(key) => format!("{:?} with key {key:?}", ident.0),
        None => format!("{:?}", ident.0),
    }
}
