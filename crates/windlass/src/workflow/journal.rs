//! The journal of a workflow as its replay reads it: what is known of each call, by name and key.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    panic::Location,
};

use serde::{Deserialize, Serialize};
use windlass_model::{
    Entry, Failure, Payload, Reason, Time,
    journal::{Mark, Op},
};
use windlass_store::Fork;

use super::{
    context::Value,
    merge::{MERGE, names_of},
    state::{ENDED, RESUMED},
    undo_record::{UndoRecord, undo_of},
};
use crate::codec::Codecs;

/// What tells a call from all others of its job.
pub(super) type Ident = (Box<str>, Option<Box<str>>);

/// How a call ended.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    /// Well, with a result as it is kept.
    Done(Payload),
    /// Badly.
    Failed { failure: Failure, reason: Reason },
}

/// What is kept of a failed try.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Tried {
    pub(super) tries: u32,
    /// How much of each retry rule's budget is used.
    pub(super) spent: Vec<u32>,
    pub(super) next_at: Time,
    pub(super) failure: Failure,
}

#[derive(Serialize, Deserialize)]
struct FailedText {
    failure: Failure,
    reason: Reason,
}

/// What is kept of the end of a workflow that failed.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct EndedText {
    /// Places of the ends that are void if the job is retried: those that made it fail.
    pub(super) voids: Vec<i32>,
}

/// The places of the ends that an entry makes void, if it is that of a workflow's end.
pub(crate) fn voids_of(entry: &Entry) -> Vec<i32> {
    if entry.op != Op::Life || entry.name != ENDED {
        return Vec::new();
    }
    serde_json::from_slice::<EndedText>(&entry.payload.bytes).unwrap_or_default().voids
}

impl Ending {
    /// How a failed call is kept.
    pub(super) fn failed_payload(&self) -> Payload {
        match self {
            Ending::Done(payload) => payload.clone(),
            Ending::Failed { failure, reason } => {
                let text = FailedText { failure: failure.clone(), reason: *reason };
                Payload::json(serde_json::to_vec(&text).unwrap_or_default())
            }
        }
    }
}

/// How a failed call ended, as it is kept.
fn read_failed(payload: &Payload) -> (Failure, Reason) {
    match serde_json::from_slice(&payload.bytes) {
        Ok(FailedText { failure, reason }) => (failure, reason),
        Err(_) => (Failure::stop("its error cannot be read"), Reason::Stopped),
    }
}

/// The error that an entry keeps, if it is one of a call, or a try at one, that failed.
pub fn failure_of(entry: &Entry) -> Option<Failure> {
    let bytes = &entry.payload.bytes;
    match entry.mark {
        Mark::Failed | Mark::NotUndone => {
            serde_json::from_slice::<FailedText>(bytes).ok().map(|text| text.failure)
        }
        Mark::Tried => serde_json::from_slice::<Tried>(bytes).ok().map(|tried| tried.failure),
        _ => None,
    }
}

/// A value of the context that a step, or a tick of a repeat, has set.
#[derive(Clone)]
pub(super) struct Set {
    /// Where that stands.
    pub(super) seq: i32,
    pub(super) name: String,
    pub(super) value: Value,
}

/// What is known of a call.
pub(super) struct Known {
    pub(super) op: Op,
    pub(super) line: Option<String>,
    /// Where this run has made it, if it has.
    pub(super) made: Option<(Op, &'static Location<'static>)>,
    /// With what it was begun, and where that stands.
    pub(super) begun: Option<(i32, Payload)>,
    pub(super) tried: Option<Tried>,
    pub(super) end: Option<(i32, Ending)>,
    /// Where it ended well, if it was recorded with an undo.
    pub(super) undo: Option<i32>,
    /// Whether the code has come to its end, or made it.
    pub(super) fresh: bool,
}

impl Known {
    fn new(op: Op) -> Known {
        Known { op, line: None, made: None, begun: None, tried: None, end: None, undo: None, fresh: false }
    }
}

/// What is known of calls, by name and key.
#[derive(Default)]
pub(super) struct Calls(HashMap<Box<str>, Named>);

/// The calls of one name.
#[derive(Default)]
struct Named {
    plain: Option<Known>,
    keyed: HashMap<Box<str>, Known>,
}

impl Calls {
    pub(super) fn get(&self, name: &str, key: Option<&str>) -> Option<&Known> {
        let named = self.0.get(name)?;
        match key {
            Some(key) => named.keyed.get(key),
            None => named.plain.as_ref(),
        }
    }

    pub(super) fn of(&self, ident: &Ident) -> Option<&Known> {
        self.get(&ident.0, ident.1.as_deref())
    }

    /// The calls of a name that have a key.
    pub(super) fn keyed(&self, name: &str) -> impl Iterator<Item = (&str, &Known)> {
        let named = self.0.get(name).into_iter();
        named.flat_map(|named| named.keyed.iter().map(|(key, known)| (&**key, known)))
    }

    pub(super) fn get_mut(&mut self, name: &str, key: Option<&str>) -> Option<&mut Known> {
        let named = self.0.get_mut(name)?;
        match key {
            Some(key) => named.keyed.get_mut(key),
            None => named.plain.as_mut(),
        }
    }

    /// What is known of a call, which is known from now on.
    pub(super) fn known(&mut self, name: &str, key: Option<&str>, op: Op) -> &mut Known {
        if !self.0.contains_key(name) {
            self.0.insert(name.into(), Named::default());
        }
        let named = self.0.get_mut(name).expect("just put in");
        match key {
            Some(key) => named.keyed.entry(key.into()).or_insert_with(|| Known::new(op)),
            None => named.plain.get_or_insert_with(|| Known::new(op)),
        }
    }

    fn known_owned(&mut self, name: String, key: Option<String>, op: Op) -> &mut Known {
        if !self.0.contains_key(name.as_str()) {
            self.0.insert(name.as_str().into(), Named::default());
        }
        let named = self.0.get_mut(name.as_str()).expect("just put in");
        match key {
            Some(key) => named.keyed.entry(key.into_boxed_str()).or_insert_with(|| Known::new(op)),
            None => named.plain.get_or_insert_with(|| Known::new(op)),
        }
    }

    fn retain(&mut self, keep: impl Fn(&Known) -> bool) {
        self.retain_named(|_, known| keep(known));
    }

    fn retain_named(&mut self, keep: impl Fn(&str, &Known) -> bool) {
        for (name, named) in &mut self.0 {
            named.plain.take_if(|known| !keep(name, known));
            named.keyed.retain(|_, known| keep(name, known));
        }
    }

    fn remove(&mut self, ident: &Ident) {
        if let Some(named) = self.0.get_mut(&ident.0) {
            match &ident.1 {
                Some(key) => drop(named.keyed.remove(key)),
                None => named.plain = None,
            }
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Option<&str>, &Known)> {
        self.0.iter().flat_map(|(name, named)| {
            let plain = named.plain.iter().map(|known| (&**name, None, known));
            plain.chain(named.keyed.iter().map(|(key, known)| (&**name, Some(&**key), known)))
        })
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Known> {
        self.0.values_mut().flat_map(|named| named.plain.iter_mut().chain(named.keyed.values_mut()))
    }
}

/// What is known of a workflow's calls.
#[derive(Default)]
pub(super) struct Journal {
    pub(super) known: Calls,
    /// The place of the next entry.
    pub(super) next_seq: i32,
    /// How many ends it has that the code has not come to.
    pub(super) undelivered: usize,
    /// What the steps that ended at some places set in the context.
    pub(super) sets: BTreeMap<i32, Vec<Set>>,
    /// What ticks have set in the context, by the name of their repeat, in order.
    pub(super) repeat_sets: HashMap<Box<str>, Vec<Set>>,
    /// What was undone, and what could not be.
    pub(super) undo: UndoRecord,
    /// Whether it was forked from another: what the context holds is to be written.
    pub(super) forked: bool,
    /// Places of ticks of repeats that ended, by name, oldest first.
    pub(super) ticks: HashMap<Box<str>, Vec<i32>>,
}

impl Journal {
    /// Reads the entries of a job. If it is being unwound, what was undone stays known, so that nothing is done again.
    pub(super) fn read(entries: Vec<Entry>, codecs: &Codecs, unwinding: bool) -> Journal {
        let mut journal = Journal::default();
        let mut step = -1;
        for entry in entries {
            journal.next_seq = entry.seq + 1;
            if entry.op != Op::Context {
                step = entry.seq;
            }
            journal.add(entry, step, codecs, unwinding);
        }
        for known in journal.known.all_mut().filter(|known| known.end.is_some()) {
            // Ticks that are over stay for people to see, and are not come to again.
            known.fresh = known.op == Op::Repeat;
            journal.undelivered += usize::from(!known.fresh);
        }
        journal
    }

    fn add(&mut self, entry: Entry, step: i32, codecs: &Codecs, unwinding: bool) {
        let Entry { seq, op, mark, name, key, line, payload, .. } = entry;
        match (op, mark) {
            (Op::Life, _) if name == Fork::ENTRY => {
                self.forked = true;
                // Children that were under way are another job's, and so are those of branches that were not merged.
                self.known.retain(|known| !matches!(known.op, Op::Child | Op::Merge) || known.end.is_some());
                let merged: HashSet<String> = self
                    .known
                    .keyed(MERGE)
                    .filter(|(_, known)| known.op == Op::Merge)
                    .flat_map(|(key, _)| names_of(key).map(str::to_owned))
                    .collect();
                self.known.retain_named(|name, known| known.op != Op::Branch || merged.contains(name));
                return;
            }
            (Op::Life, _) if name == ENDED => {
                let text: EndedText = serde_json::from_slice(&payload.bytes).unwrap_or_default();
                let voids =
                    |known: &Known| known.end.as_ref().is_some_and(|(seq, _)| text.voids.contains(seq));
                // A branch goes on where it was: its children are there.
                for known in self.known.all_mut().filter(|known| known.op == Op::Branch && voids(known)) {
                    (known.end, known.tried) = (None, None);
                }
                self.known.retain(|known| !voids(known));
                return;
            }
            (Op::Life, _) if name == RESUMED => {
                let tried = self.undo.resume();
                tried.iter().for_each(|ident| self.known.remove(&undo_of(ident)));
                return;
            }
            (Op::Life, _) => return,
            (Op::Context, _) => {
                if let Some(value) = Value::read(&payload, codecs) {
                    let sets = match key {
                        Some(repeat) => self.repeat_sets.entry(repeat.into()).or_default(),
                        None => self.sets.entry(step).or_default(),
                    };
                    sets.push(Set { seq, name, value });
                }
                return;
            }
            _ => {}
        }
        if op == Op::Repeat && key.is_some() {
            self.ticks.entry(name.as_str().into()).or_default().push(seq);
        }
        if matches!(mark, Mark::Undone | Mark::NotUndone) {
            let ident: Ident = (name.into(), key.map(Into::into));
            match mark {
                Mark::Undone => {
                    if !unwinding {
                        self.known.remove(&ident);
                    }
                    self.undo.undone(ident);
                }
                // The job goes on: what was tried at undoing it counts for nothing if it is undone later.
                _ if !unwinding => {
                    self.known.remove(&undo_of(&ident));
                    self.undo.left(ident);
                }
                _ => self.undo.not_undone(ident, read_failed(&payload).0),
            }
            return;
        }
        if mark.is_done() && !self.undo.is_empty() {
            self.redone(&(name.as_str().into(), key.as_deref().map(Into::into)));
        }
        let known = self.known.known_owned(name, key, op);
        known.op = op;
        if line.is_some() {
            known.line = line;
        }
        match mark {
            Mark::Begun => known.begun = Some((seq, payload)),
            Mark::Tried => known.tried = serde_json::from_slice(&payload.bytes).ok(),
            Mark::Done | Mark::DoneWithUndo => {
                let undo = (mark == Mark::DoneWithUndo).then_some(seq);
                (known.end, known.undo) = (Some((seq, Ending::Done(payload))), undo);
            }
            Mark::Failed => {
                let (failure, reason) = read_failed(&payload);
                (known.end, known.undo) = (Some((seq, Ending::Failed { failure, reason })), None);
            }
            Mark::Undone | Mark::NotUndone => {}
        }
    }

    /// A step that was undone has been done again: there is something to undo again.
    pub(super) fn redone(&mut self, ident: &Ident) {
        if self.undo.redone(ident) {
            self.known.remove(&undo_of(ident));
        }
    }

    /// The code has come to the end of a call that is not delivered like others.
    pub(super) fn came_to(&mut self, ident: &Ident) {
        if let Some(known) = self.known.get_mut(&ident.0, ident.1.as_deref())
            && !std::mem::replace(&mut known.fresh, true)
        {
            self.undelivered -= 1;
        }
    }

    /// What is known of a call, which is known from now on.
    pub(super) fn known_mut(&mut self, ident: &Ident) -> &mut Known {
        self.known.known(&ident.0, ident.1.as_deref(), Op::Step)
    }
}
