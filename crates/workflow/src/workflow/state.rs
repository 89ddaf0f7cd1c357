//! The calls of a workflow that are under way, and what is to be written of them.

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
    journal::{Mark, Op},
    limits::{MAX_KEY_BYTES, check_name, check_text},
};

use super::{
    context::Value,
    journal::{CallEnd, ContextSet, Ident, Journal, RecordedCall},
    undo::UndoCx,
};
use crate::signal::Reads;

/// The names of what the engine itself keeps in a journal.
pub(super) const NOW: &str = "windlass.now";
/// That the job ended badly.
pub const ENDED: &str = "windlass.ended";
/// That the job goes on after it had ended or was unwound.
pub const RESUMED: &str = "windlass.resumed";

pub(super) struct RunState {
    pub(super) journal: Journal,
    pub(super) calls: Vec<Option<Call>>,
    /// Places among them that are free.
    free: Vec<usize>,
    /// Calls whose end is in the journal and was not delivered, by place.
    pub(super) recorded: BTreeMap<i32, usize>,
    /// The place of the end that was delivered last.
    pub(super) last_delivered: i32,
    /// Where the last call was made.
    pub(super) last_call_at: Option<&'static Location<'static>>,
    /// Numbers drawn since then.
    pub(super) draws: u32,
    pub(super) next_seq: i32,
    /// What is to be written with the next commit.
    pub(super) pending: PendingWrites,
    /// Calls whose body has ended, or that have what they wait for, and whose end is not committed.
    pub(super) finished: Vec<FinishedCall>,
    /// What is in the inbox, as far as is known.
    pub(super) inbox: Vec<Signal>,
    pub(super) context: BTreeMap<String, Value>,
    /// What the code has set since an end was delivered that was in the journal: before that, it was written then.
    pub(super) unwritten_context: BTreeMap<String, Value>,
    pub(super) undos: Vec<Undo>,
    /// Ends that were delivered and were failures: where, and why.
    pub(super) failures: Vec<(i32, Failure, Reason)>,
    /// The last end that was delivered and was none.
    pub(super) last_success: i32,
    /// Whether something was begun that is not in the journal.
    pub(super) live: bool,
    /// What the code did wrong.
    pub(super) fault: Option<Failure>,
    /// The input with which the workflow wants to start anew.
    pub(super) continue_input: Option<Vec<u8>>,
    /// The step whose body is being polled.
    pub(super) polled_step: Option<String>,
    /// The transaction that is under way: until it has ended nothing else is committed.
    pub(super) transacting: Option<usize>,
    /// The branches that were opened, by name.
    pub(super) branches: BTreeMap<String, BranchState>,
    /// How the attempt ends, once its claim is over.
    pub(super) claim_ended: Option<windlass_runtime::StepResult>,
}

/// What is to be written with the next commit.
#[derive(Default)]
pub(super) struct PendingWrites {
    pub(super) branches: Vec<BranchUpdate>,
    pub(super) entries: Vec<JournalEntry>,
    pub(super) forget_entries: Vec<i32>,
    pub(super) children: Vec<NewJob>,
    pub(super) consumed: Vec<i64>,
    /// Signals that no call can read which waits for them.
    pub(super) unreadable: Vec<UnreadableSignal>,
    /// Values of the context, as they were set by code and by steps.
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
    /// It was filled, or as much of it as there is.
    Open {
        number: BranchNo,
    },
    /// A merge waits for it.
    Merging {
        number: BranchNo,
    },
    Merged,
}

/// A durable call that is under way.
pub(super) struct Call {
    pub(super) ident: Ident,
    pub(super) op: Op,
    pub(super) line: &'static Location<'static>,
    pub(super) phase: Phase,
    pub(super) start: Start,
    pub(super) waker: Option<Waker>,
    /// Values of the context that its body has set.
    pub(super) context_sets: Vec<(String, Value)>,
    /// The signal that its body is given.
    pub(super) signal: Option<Signal>,
}

pub(super) enum Phase {
    /// Not looked at yet.
    New,
    /// Its end is in the journal, at this place, and will be delivered.
    Recorded(i32),
    /// Its body may be started.
    CanStart,
    /// Its body is under way.
    Running,
    /// Its body has ended; that is not committed.
    Finished,
    /// It waits for a moment, a signal or a child.
    Waiting(CallWait),
    /// Its end was delivered.
    Ready(i32, CallEnd),
}

/// The signal that a call waits for.
#[derive(Clone, Debug)]
pub(super) struct AwaitedSignal {
    pub(super) name: String,
    /// Whether the call can read one.
    pub(super) reads: Reads,
}

/// What a call waits for.
#[derive(Clone, Default, Debug)]
pub(super) struct CallWait {
    pub(super) due_at: Option<Time>,
    pub(super) signal: Option<AwaitedSignal>,
    pub(super) child: Option<JobId>,
    /// Whether it is for what is told of branches.
    pub(super) branch: bool,
    /// Whether its body is run (again) when that has come; else that is its end.
    pub(super) runs_body: bool,
    /// Whether nothing is written when that has come.
    pub(super) unrecorded: bool,
}

/// How a call is begun that is not in the journal.
pub(super) enum Start {
    /// By running its body; with a limit, it fails if it has not ended well by then.
    Body { within: Option<Duration> },
    /// By waiting for a moment.
    At(Moment),
    /// The same without a record of it.
    Unrecorded(Time),
    /// By waiting for a signal.
    Signal { listen: AwaitedSignal, timeout: Option<Duration> },
    /// By submitting a job.
    Child(Box<NewJob>),
}

#[derive(Clone, Copy)]
pub(super) enum Moment {
    In(Duration),
    At(Time),
}

/// A call that has got somewhere, not committed.
pub(super) struct FinishedCall {
    pub(super) call: usize,
    pub(super) then: AfterCommit,
}

pub(super) enum AfterCommit {
    /// It has ended; its entry is at this place.
    End(i32),
    /// It goes on when that has come.
    Wait(CallWait),
    /// It goes on at once: a part of it is committed.
    Part,
}

/// What undoes a step that ended well.
pub(super) struct Undo {
    pub(super) seq: i32,
    pub(super) ident: Ident,
    /// The id under which the step ran.
    pub(super) step_id: String,
    pub(super) retry: Retry,
    pub(super) run: UndoFn,
}

/// A step that was recorded with an undo and for which this run has none.
pub(super) struct MissingUndo {
    pub(super) seq: i32,
    pub(super) ident: Ident,
    /// Whether the code has come to the step, which gives it no undo.
    pub(super) reached: bool,
}

pub(super) type UndoFn = Box<dyn FnMut(UndoCx) -> super::Boxed<'static, Result<(), Failure>> + Send>;

/// What a call's future is told.
pub(super) enum CallStatus {
    Ready(i32, CallEnd),
    Go,
    Running,
    Pending,
}

/// How a call is described when it registers.
pub(super) struct CallSpec<'a> {
    pub(super) op: Op,
    pub(super) name: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) line: &'static Location<'static>,
    pub(super) start: Start,
}

impl RunState {
    pub(super) fn new(mut journal: Journal, inbox: Vec<Signal>) -> RunState {
        // What the run before has left.
        let carried = journal.sets.remove(&-1).unwrap_or_default();
        RunState {
            calls: Vec::new(),
            free: Vec::new(),
            recorded: BTreeMap::new(),
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

    /// Whether a call may be made under its name; or what is wrong with it.
    pub(super) fn check_call(
        &mut self,
        op: Op,
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
        let known = self.journal.calls.entry(name, key, op);
        if let Some((before, first)) = known.made_at.replace((op, line)) {
            return Err(reused(&(name.into(), key.map(Into::into)), before, first, op, line));
        }
        if known.op != op {
            return Err(diverged(&format!(
                "its journal says that {} is a {}, and the code makes it a {op}\n  recorded:  {} at {}\n  attempted: {op} at {}\n\
                 Give the new call another name, or have the job go on with code that fits (docs/changing-workflows.md).",
                display_ident(&(name.into(), key.map(Into::into))),
                known.op,
                known.op,
                known.line.as_deref().unwrap_or("an unknown place"),
                source_location(line),
            )));
        }
        Ok((name.into(), key.map(Into::into)))
    }

    pub(super) fn add(
        &mut self,
        ident: Ident,
        op: Op,
        line: &'static Location<'static>,
        start: Start,
    ) -> usize {
        let id = self.free.pop().unwrap_or(self.calls.len());
        let end = self.journal.calls.of(&ident).and_then(|known| known.end.as_ref()).map(|(seq, _)| *seq);
        let phase = match end {
            Some(seq) => {
                self.recorded.insert(seq, id);
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

    /// The call that is to be told its end next, if the journal has one. It is told.
    pub(super) fn deliver(&mut self) -> Option<usize> {
        let (seq, id) = self.recorded.pop_first()?;
        let call = self.calls[id].as_mut()?;
        let known = self.journal.calls.get_mut(&call.ident.0, call.ident.1.as_deref())?;
        // Nobody asks for it again: a name is used once.
        let (_, ending) = known.end.take()?;
        if let CallEnd::Failed { failure, reason } = &ending {
            self.failures.push((seq, failure.clone(), *reason));
        } else {
            self.last_success = self.last_success.max(seq);
        }
        call.phase = Phase::Ready(seq, ending);
        self.last_delivered = seq;
        self.draws = 0;
        if !std::mem::replace(&mut known.reached, true) {
            self.journal.undelivered -= 1;
            // What was set before it was written with it, or before.
            self.unwritten_context.clear();
        }
        let repeat = (call.op == Op::Repeat).then(|| call.ident.0.clone());
        for set in self.journal.sets.remove(&seq).unwrap_or_default() {
            self.context.insert(set.name.clone(), set.value.clone());
            if let Some(name) = &repeat {
                self.journal.repeat_sets.entry(name.clone()).or_default().push(set);
            }
        }
        Some(id)
    }

    /// An entry of a call.
    pub(super) fn entry(&mut self, id: usize, mark: Mark, payload: Payload, at: Time) -> JournalEntry {
        let call = self.calls[id].as_ref().expect("a call that is under way");
        let (ident, op, line) = (call.ident.clone(), call.op, Some(source_location(call.line)));
        self.entry_of(&ident, op, mark, line, payload, at)
    }

    pub(super) fn entry_of(
        &mut self,
        ident: &Ident,
        op: Op,
        mark: Mark,
        line: Option<String>,
        payload: Payload,
        at: Time,
    ) -> JournalEntry {
        let seq = self.next_seq;
        self.next_seq += 1;
        let (name, key) = (ident.0.to_string(), ident.1.as_ref().map(|key| key.to_string()));
        JournalEntry { seq, op, mark, name, key, line, at, payload }
    }

    /// The end of a call, to be committed.
    /// Answers where it stands.
    pub(super) fn finish(&mut self, id: usize, mark: Mark, payload: Payload, at: Time) -> i32 {
        if self.calls[id].is_none() {
            return -1;
        }
        self.consume_signal(id);
        let ending = CallEnd::Done(payload.clone());
        let entry = self.entry(id, mark, payload, at);
        let (seq, ident) = (entry.seq, self.calls[id].as_ref().map(|call| call.ident.clone()));
        self.pending.entries.push(entry);
        self.end(id, seq, ending);
        if mark == Mark::DoneWithUndo {
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
        let entry = self.entry(id, Mark::Failed, ending.failed_payload(), at);
        let seq = entry.seq;
        self.pending.entries.push(entry);
        self.end(id, seq, ending);
    }

    /// A call has ended, with its entry at this place.
    pub(super) fn end(&mut self, id: usize, seq: i32, ending: CallEnd) {
        let call = self.calls[id].as_ref().expect("a call that is under way");
        let (ident, op) = (call.ident.clone(), call.op);
        let known = self.journal.recorded_mut(&ident);
        (known.op, known.reached) = (op, true);
        known.end = Some((seq, ending));
        self.mark_finished(id, AfterCommit::End(seq));
    }

    pub(super) fn mark_finished(&mut self, id: usize, then: AfterCommit) {
        if let Some(call) = self.calls[id].as_mut() {
            call.phase = Phase::Finished;
            self.finished.push(FinishedCall { call: id, then });
        }
    }

    /// What the body of a step set in the context follows its end in the journal. What a tick has set outlives the tick: its
    /// key says of which repeat it is.
    pub(super) fn write_sets(&mut self, id: usize, seq: i32, sets: Vec<(String, Value, Payload)>, at: Time) {
        let call = self.calls[id].as_ref();
        let repeat = call.filter(|call| call.op == Op::Repeat).map(|call| call.ident.0.clone());
        for (name, value, payload) in sets {
            let ident: Ident = (name.as_str().into(), repeat.clone());
            let entry = self.entry_of(&ident, Op::Context, Mark::Done, None, payload, at);
            let place = entry.seq;
            self.pending.entries.push(entry);
            self.unwritten_context.remove(&name);
            self.pending.context.insert(name.clone(), value.clone());
            self.journal.sets.entry(seq).or_default().push(ContextSet { seq: place, name, value });
        }
    }

    /// The signal that a body was given is consumed with what it made of it.
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

    /// Whether the code has come to all that its journal says, or has begun something new.
    pub(super) fn is_live(&self) -> bool {
        self.journal.undelivered == 0 || self.live
    }

    /// The steps that were recorded with an undo, are not undone, and cannot be by this run, whatever the cause, by place.
    pub(super) fn missing_undos(&self) -> Vec<MissingUndo> {
        let has: HashSet<&Ident> = self.undos.iter().map(|undo| &undo.ident).collect();
        let lost = |(name, key, known): (&str, Option<&str>, &RecordedCall)| {
            let (seq, ident) = (known.undo?, (name.into(), key.map(Into::into)));
            let is_lost = !has.contains(&ident) && !self.journal.undo.is_settled(&ident);
            is_lost.then_some(MissingUndo { seq, ident, reached: known.reached })
        };
        let mut all: Vec<MissingUndo> = self.journal.calls.all().filter_map(lost).collect();
        all.sort_by_key(|lost| lost.seq);
        all
    }

    /// All calls that are under way, in the order in which they were made.
    pub(super) fn under_way(&self) -> impl Iterator<Item = (usize, &Call)> {
        self.calls.iter().enumerate().filter_map(|(id, call)| Some((id, call.as_ref()?)))
    }
}

/// What the code of a workflow did wrong, whatever its journal says.
pub(super) fn misuse(text: impl std::fmt::Display) -> Failure {
    Failure::stop(text).class(class::REFUSED)
}

/// That the code of a workflow does not fit its journal.
pub(super) fn diverged(text: &str) -> Failure {
    Failure::stop(text).class(class::DIVERGED)
}

pub(super) fn nested(what: &str, inside: &str) -> Failure {
    misuse(format!(
        "{what} is called inside {inside:?}, and what runs inside a step is not durable: it is run again as a whole. \
         Make the call before or after it, in the workflow itself."
    ))
}

/// A place in the source.
pub(super) fn source_location(line: &Location<'_>) -> String {
    format!("{}:{}", line.file(), line.line())
}

fn reused(ident: &Ident, before: Op, first: &Location<'_>, op: Op, line: &Location<'_>) -> Failure {
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

/// A call as people know it.
pub(super) fn display_ident(ident: &Ident) -> String {
    match &ident.1 {
        Some(key) => format!("{:?} with key {key:?}", ident.0),
        None => format!("{:?}", ident.0),
    }
}
