//! The calls of a workflow that are under way, and what is to be written of them.

use std::{
    collections::{BTreeMap, HashSet},
    panic::Location,
    task::Waker,
    time::Duration,
};

use windlass_model::{
    BranchNo, Entry, Failure, Grow, JobId, NewJob, Payload, Reason, Retry, SetAside, Signal, Time,
    failure::class,
    journal::{Mark, Op},
    limits::{KEY, check_name, check_text},
};

use super::{
    context::Value,
    journal::{Ending, Ident, Journal, Known, Set},
    undo::UndoCx,
};
use crate::signal::Reads;

/// The names of what the engine itself keeps in a journal.
pub(super) const NOW: &str = "windlass.now";
/// That the job ended badly.
pub(crate) const ENDED: &str = "windlass.ended";
/// That the job goes on after it had ended or was unwound.
pub(crate) const RESUMED: &str = "windlass.resumed";

pub(super) struct State {
    pub(super) journal: Journal,
    pub(super) calls: Vec<Option<Call>>,
    /// Places among them that are free.
    free: Vec<usize>,
    /// Calls whose end is in the journal and was not delivered, by place.
    pub(super) recorded: BTreeMap<i32, usize>,
    /// The place of the end that was delivered last.
    pub(super) last: i32,
    /// Where the last call was made.
    pub(super) line: Option<&'static Location<'static>>,
    /// Numbers drawn since then.
    pub(super) drawn: u32,
    pub(super) next_seq: i32,
    /// What is to be written with the next commit.
    pub(super) out: Out,
    /// Calls whose body has ended, or that have what they wait for, and whose end is not committed.
    pub(super) finished: Vec<Finished>,
    /// What is in the inbox, as far as is known.
    pub(super) inbox: Vec<Signal>,
    pub(super) context: BTreeMap<String, Value>,
    /// What the code has set since an end was delivered that was in the journal: before that, it was written then.
    pub(super) recent: BTreeMap<String, Value>,
    pub(super) undos: Vec<Undo>,
    /// Ends that were delivered and were failures: where, and why.
    pub(super) failures: Vec<(i32, Failure, Reason)>,
    /// The last end that was delivered and was none.
    pub(super) last_good: i32,
    /// Whether something was begun that is not in the journal.
    pub(super) live: bool,
    /// What the code did wrong.
    pub(super) fault: Option<Failure>,
    /// The input with which the workflow wants to start anew.
    pub(super) anew: Option<Vec<u8>>,
    /// The step whose body is being polled.
    pub(super) inside: Option<String>,
    /// The transaction that is under way: until it has ended nothing else is committed.
    pub(super) transacting: Option<usize>,
    /// The branches that were opened, by name.
    pub(super) branches: BTreeMap<String, Opened>,
    /// How the attempt ends, once its claim is over.
    pub(super) over: Option<windlass_runtime::Turn>,
}

/// What is to be written with the next commit.
#[derive(Default)]
pub(super) struct Out {
    pub(super) branches: Vec<Grow>,
    pub(super) entries: Vec<Entry>,
    pub(super) forget: Vec<i32>,
    pub(super) children: Vec<NewJob>,
    pub(super) consumed: Vec<i64>,
    /// Signals that no call can read which waits for them.
    pub(super) aside: Vec<SetAside>,
    /// Values of the context, as they were set by code and by steps.
    pub(super) context: BTreeMap<String, Value>,
    pub(super) undo: bool,
}

impl Out {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.branches.is_empty()
            && self.forget.is_empty()
            && self.children.is_empty()
            && self.consumed.is_empty()
            && self.aside.is_empty()
            && self.context.is_empty()
            && !self.undo
    }
}

/// A branch of this run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opened {
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
    pub(super) sets: Vec<(String, Value)>,
    /// The signal that its body is given.
    pub(super) given: Option<Signal>,
}

pub(super) enum Phase {
    /// Not looked at yet.
    New,
    /// Its end is in the journal, at this place, and will be delivered.
    Recorded(i32),
    /// Its body may be started.
    Go,
    /// Its body is under way.
    Running,
    /// Its body has ended; that is not committed.
    Finished,
    /// It waits for a moment, a signal or a child.
    Waiting(For),
    /// Its end was delivered.
    Ready(i32, Ending),
}

/// The signal that a call waits for.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    pub(super) name: String,
    /// Whether the call can read one.
    pub(super) reads: Reads,
}

/// What a call waits for.
#[derive(Clone, Default, Debug)]
pub(super) struct For {
    pub(super) due: Option<Time>,
    pub(super) signal: Option<Listen>,
    pub(super) child: Option<JobId>,
    /// Whether it is for what is told of branches.
    pub(super) branch: bool,
    /// Whether its body is run (again) when that has come; else that is its end.
    pub(super) body: bool,
    /// Whether nothing is written when that has come.
    pub(super) quiet: bool,
}

/// How a call is begun that is not in the journal.
pub(super) enum Start {
    /// By running its body; with a limit, it fails if it has not ended well by then.
    Body { within: Option<Duration> },
    /// By waiting for a moment.
    At(Moment),
    /// The same without a record of it.
    Quietly(Time),
    /// By waiting for a signal.
    Signal { listen: Listen, timeout: Option<Duration> },
    /// By submitting a job.
    Child(Box<NewJob>),
}

#[derive(Clone, Copy)]
pub(super) enum Moment {
    In(Duration),
    At(Time),
}

/// A call that has got somewhere, not committed.
pub(super) struct Finished {
    pub(super) call: usize,
    pub(super) then: Then,
}

pub(super) enum Then {
    /// It has ended; its entry is at this place.
    End(i32),
    /// It goes on when that has come.
    Wait(For),
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
pub(super) struct LostUndo {
    pub(super) seq: i32,
    pub(super) ident: Ident,
    /// Whether the code has come to the step, which gives it no undo.
    pub(super) reached: bool,
}

pub(super) type UndoFn = Box<dyn FnMut(UndoCx) -> super::Boxed<'static, Result<(), Failure>> + Send>;

/// What a call's future is told.
pub(super) enum Look {
    Ready(i32, Ending),
    Go,
    Running,
    Pending,
}

/// How a call is described when it registers.
pub(super) struct Register<'a> {
    pub(super) op: Op,
    pub(super) name: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) line: &'static Location<'static>,
    pub(super) start: Start,
}

impl State {
    pub(super) fn new(mut journal: Journal, inbox: Vec<Signal>) -> State {
        // What the run before has left.
        let carried = journal.sets.remove(&-1).unwrap_or_default();
        State {
            calls: Vec::new(),
            free: Vec::new(),
            recorded: BTreeMap::new(),
            last: -1,
            line: None,
            drawn: 0,
            next_seq: journal.next_seq,
            journal,
            out: Out::default(),
            finished: Vec::new(),
            inbox,
            context: carried.into_iter().map(|set| (set.name, set.value)).collect(),
            recent: BTreeMap::new(),
            undos: Vec::new(),
            failures: Vec::new(),
            last_good: -1,
            live: false,
            fault: None,
            anew: None,
            inside: None,
            transacting: None,
            branches: BTreeMap::new(),
            over: None,
        }
    }

    /// Whether a call may be made under its name; or what is wrong with it.
    pub(super) fn admit(
        &mut self,
        op: Op,
        name: &str,
        key: Option<&str>,
        line: &'static Location<'static>,
    ) -> Result<Ident, Failure> {
        if let Some(inside) = &self.inside {
            return Err(nested(&format!("{op} {name:?} at {}", place_of(line)), inside));
        }
        check_name(op.name(), name).map_err(|error| misuse(format!("{error} ({})", place_of(line))))?;
        if let Some(key) = key {
            check_text("key of the call", key, KEY)
                .map_err(|error| misuse(format!("{error} ({})", place_of(line))))?;
        }
        let known = self.journal.known.known(name, key, op);
        if let Some((before, first)) = known.made.replace((op, line)) {
            return Err(reused(&(name.into(), key.map(Into::into)), before, first, op, line));
        }
        if known.op != op {
            return Err(diverged(&format!(
                "its journal says that {} is a {}, and the code makes it a {op}\n  recorded:  {} at {}\n  attempted: {op} at {}\n\
                 Give the new call another name, or have the job go on with code that fits (docs/changing-workflows.md).",
                shown(&(name.into(), key.map(Into::into))),
                known.op,
                known.op,
                known.line.as_deref().unwrap_or("an unknown place"),
                place_of(line),
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
        let end = self.journal.known.of(&ident).and_then(|known| known.end.as_ref()).map(|(seq, _)| *seq);
        let phase = match end {
            Some(seq) => {
                self.recorded.insert(seq, id);
                Phase::Recorded(seq)
            }
            None => Phase::New,
        };
        self.line = Some(line);
        let call = Call { ident, op, line, phase, start, waker: None, sets: Vec::new(), given: None };
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
        let known = self.journal.known.get_mut(&call.ident.0, call.ident.1.as_deref())?;
        // Nobody asks for it again: a name is used once.
        let (_, ending) = known.end.take()?;
        if let Ending::Failed { failure, reason } = &ending {
            self.failures.push((seq, failure.clone(), *reason));
        } else {
            self.last_good = self.last_good.max(seq);
        }
        call.phase = Phase::Ready(seq, ending);
        self.last = seq;
        self.drawn = 0;
        if !std::mem::replace(&mut known.fresh, true) {
            self.journal.undelivered -= 1;
            // What was set before it was written with it, or before.
            self.recent.clear();
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
    pub(super) fn entry(&mut self, id: usize, mark: Mark, payload: Payload, at: Time) -> Entry {
        let call = self.calls[id].as_ref().expect("a call that is under way");
        let (ident, op, line) = (call.ident.clone(), call.op, Some(place_of(call.line)));
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
    ) -> Entry {
        let seq = self.next_seq;
        self.next_seq += 1;
        let (name, key) = (ident.0.to_string(), ident.1.as_ref().map(|key| key.to_string()));
        Entry { seq, op, mark, name, key, line, at, payload }
    }

    /// The end of a call, to be committed.
    /// Answers where it stands.
    pub(super) fn finish(&mut self, id: usize, mark: Mark, payload: Payload, at: Time) -> i32 {
        if self.calls[id].is_none() {
            return -1;
        }
        self.take_given(id);
        let ending = Ending::Done(payload.clone());
        let entry = self.entry(id, mark, payload, at);
        let (seq, ident) = (entry.seq, self.calls[id].as_ref().map(|call| call.ident.clone()));
        self.out.entries.push(entry);
        self.end(id, seq, ending);
        if mark == Mark::DoneWithUndo {
            ident.iter().for_each(|ident| self.journal.known_mut(ident).undo = Some(seq));
        }
        seq
    }

    pub(super) fn fail(&mut self, id: usize, failure: Failure, reason: Reason, at: Time) {
        if self.calls[id].is_none() {
            return;
        }
        self.take_given(id);
        let ending = Ending::Failed { failure, reason };
        let entry = self.entry(id, Mark::Failed, ending.failed_payload(), at);
        let seq = entry.seq;
        self.out.entries.push(entry);
        self.end(id, seq, ending);
    }

    /// A call has ended, with its entry at this place.
    pub(super) fn end(&mut self, id: usize, seq: i32, ending: Ending) {
        let call = self.calls[id].as_ref().expect("a call that is under way");
        let (ident, op) = (call.ident.clone(), call.op);
        let known = self.journal.known_mut(&ident);
        (known.op, known.fresh) = (op, true);
        known.end = Some((seq, ending));
        self.settle(id, Then::End(seq));
    }

    pub(super) fn settle(&mut self, id: usize, then: Then) {
        if let Some(call) = self.calls[id].as_mut() {
            call.phase = Phase::Finished;
            self.finished.push(Finished { call: id, then });
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
            self.out.entries.push(entry);
            self.recent.remove(&name);
            self.out.context.insert(name.clone(), value.clone());
            self.journal.sets.entry(seq).or_default().push(Set { seq: place, name, value });
        }
    }

    /// The signal that a body was given is consumed with what it made of it.
    pub(super) fn take_given(&mut self, id: usize) {
        if let Some(signal) = self.calls[id].as_mut().and_then(|call| call.given.take()) {
            self.out.consumed.push(signal.number);
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        if self.context.get(name) == Some(&value) {
            return;
        }
        self.context.insert(name.to_owned(), value.clone());
        self.out.context.remove(name);
        self.recent.insert(name.to_owned(), value);
    }

    /// Whether the code has come to all that its journal says, or has begun something new.
    pub(super) fn is_live(&self) -> bool {
        self.journal.undelivered == 0 || self.live
    }

    /// The steps that were recorded with an undo, are not undone, and cannot be by this run, whatever the cause, by place.
    pub(super) fn lost_undos(&self) -> Vec<LostUndo> {
        let has: HashSet<&Ident> = self.undos.iter().map(|undo| &undo.ident).collect();
        let lost = |(name, key, known): (&str, Option<&str>, &Known)| {
            let (seq, ident) = (known.undo?, (name.into(), key.map(Into::into)));
            let is_lost = !has.contains(&ident) && !self.journal.undo.is_settled(&ident);
            is_lost.then_some(LostUndo { seq, ident, reached: known.fresh })
        };
        let mut all: Vec<LostUndo> = self.journal.known.all().filter_map(lost).collect();
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
pub(super) fn place_of(line: &Location<'_>) -> String {
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
        shown(ident),
        place_of(first),
        place_of(line),
    ))
}

/// A call as people know it.
pub(super) fn shown(ident: &Ident) -> String {
    match &ident.1 {
        Some(key) => format!("{:?} with key {key:?}", ident.0),
        None => format!("{:?}", ident.0),
    }
}
