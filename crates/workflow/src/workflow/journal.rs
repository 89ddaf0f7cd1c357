//! The journal of a workflow as its replay reads it: what is known of each call, by name and key.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    panic::Location,
};

use serde::{Deserialize, Serialize};
use windlass_model::{
    Failure, JournalEntry, Payload, Reason, Time,
    journal::{Mark, Op},
};
use windlass_store::Fork;

use super::{
    context::Value,
    merge::{MERGE, names_of},
    state::{ENDED, RESUMED},
    undo_record::{UndoRecord, is_undo_try},
};
use crate::codec::Codecs;

/// What tells a call from all others of its job.
pub(super) type Ident = (Box<str>, Option<Box<str>>);

/// How a call ended.
#[derive(Clone, Debug)]
pub(super) enum CallEnd {
    /// Well, with a result as it is kept.
    Done(Payload),
    /// Badly.
    Failed { failure: Failure, reason: Reason },
}

/// What is kept of a failed try.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct RetryState {
    pub(super) tries: u32,
    /// How much of each retry rule's budget is used.
    pub(super) spent: Vec<u32>,
    pub(super) next_at: Time,
    pub(super) failure: Failure,
}

#[derive(Serialize, Deserialize)]
struct FailureRecord {
    failure: Failure,
    reason: Reason,
}

/// What is kept of the end of a workflow that failed.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct EndRecord {
    /// Places of the ends that are void if the job is retried: those that made it fail.
    pub(super) voids: Vec<i32>,
}

/// The places of the ends that an entry makes void, if it is that of a workflow's end.
pub fn voids_of(entry: &JournalEntry) -> Vec<i32> {
    if entry.op != Op::Life || entry.name != ENDED {
        return Vec::new();
    }
    serde_json::from_slice::<EndRecord>(&entry.payload.bytes).unwrap_or_default().voids
}

impl CallEnd {
    /// How a failed call is kept.
    pub(super) fn failed_payload(&self) -> Payload {
        match self {
            CallEnd::Done(payload) => payload.clone(),
            CallEnd::Failed { failure, reason } => {
                let text = FailureRecord { failure: failure.clone(), reason: *reason };
                Payload::json(serde_json::to_vec(&text).unwrap_or_default())
            }
        }
    }
}

/// How a failed call ended, as it is kept.
fn read_failed(payload: &Payload) -> (Failure, Reason) {
    match serde_json::from_slice(&payload.bytes) {
        Ok(FailureRecord { failure, reason }) => (failure, reason),
        Err(_) => (Failure::stop("its error cannot be read"), Reason::Stopped),
    }
}

/// The error that an entry keeps, if it is one of a call, or a try at one, that failed.
pub fn failure_of(entry: &JournalEntry) -> Option<Failure> {
    let bytes = &entry.payload.bytes;
    match entry.mark {
        Mark::Failed | Mark::NotUndone => {
            serde_json::from_slice::<FailureRecord>(bytes).ok().map(|text| text.failure)
        }
        Mark::Tried => serde_json::from_slice::<RetryState>(bytes).ok().map(|tried| tried.failure),
        _ => None,
    }
}

/// A value of the context that a step, or a tick of a repeat, has set.
#[derive(Clone)]
pub(super) struct ContextSet {
    /// Where that stands.
    pub(super) seq: i32,
    pub(super) name: String,
    pub(super) value: Value,
}

/// What is known of a call.
pub(super) struct RecordedCall {
    pub(super) op: Op,
    pub(super) line: Option<String>,
    /// Where this run has made it, if it has.
    pub(super) made_at: Option<(Op, &'static Location<'static>)>,
    /// With what it was begun, and where that stands.
    pub(super) begun: Option<(i32, Payload)>,
    pub(super) tried: Option<RetryState>,
    pub(super) end: Option<(i32, CallEnd)>,
    /// Where it ended well, if it was recorded with an undo.
    pub(super) undo: Option<i32>,
    /// Whether the code has come to its end, or made it.
    pub(super) reached: bool,
}

impl RecordedCall {
    /// Where it ended.
    fn place(&self) -> Option<i32> {
        self.end.as_ref().map(|(seq, _)| *seq)
    }

    fn new(op: Op) -> RecordedCall {
        RecordedCall {
            op,
            line: None,
            made_at: None,
            begun: None,
            tried: None,
            end: None,
            undo: None,
            reached: false,
        }
    }
}

/// What is known of calls, by name and key.
#[derive(Default)]
pub(super) struct Calls(HashMap<Box<str>, Named>);

/// The calls of one name.
#[derive(Default)]
struct Named {
    plain: Option<RecordedCall>,
    keyed: HashMap<Box<str>, RecordedCall>,
}

impl Calls {
    pub(super) fn get(&self, name: &str, key: Option<&str>) -> Option<&RecordedCall> {
        let named = self.0.get(name)?;
        match key {
            Some(key) => named.keyed.get(key),
            None => named.plain.as_ref(),
        }
    }

    pub(super) fn of(&self, ident: &Ident) -> Option<&RecordedCall> {
        self.get(&ident.0, ident.1.as_deref())
    }

    /// The calls of a name that have a key.
    pub(super) fn keyed(&self, name: &str) -> impl Iterator<Item = (&str, &RecordedCall)> {
        let named = self.0.get(name).into_iter();
        named.flat_map(|named| named.keyed.iter().map(|(key, known)| (&**key, known)))
    }

    pub(super) fn get_mut(&mut self, name: &str, key: Option<&str>) -> Option<&mut RecordedCall> {
        let named = self.0.get_mut(name)?;
        match key {
            Some(key) => named.keyed.get_mut(key),
            None => named.plain.as_mut(),
        }
    }

    /// What is known of a call, which is known from now on.
    pub(super) fn entry(&mut self, name: &str, key: Option<&str>, op: Op) -> &mut RecordedCall {
        if !self.0.contains_key(name) {
            self.0.insert(name.into(), Named::default());
        }
        let named = self.0.get_mut(name).expect("just put in");
        match key {
            Some(key) => named.keyed.entry(key.into()).or_insert_with(|| RecordedCall::new(op)),
            None => named.plain.get_or_insert_with(|| RecordedCall::new(op)),
        }
    }

    fn known_owned(&mut self, name: String, key: Option<String>, op: Op) -> &mut RecordedCall {
        if !self.0.contains_key(name.as_str()) {
            self.0.insert(name.as_str().into(), Named::default());
        }
        let named = self.0.get_mut(name.as_str()).expect("just put in");
        match key {
            Some(key) => named.keyed.entry(key.into_boxed_str()).or_insert_with(|| RecordedCall::new(op)),
            None => named.plain.get_or_insert_with(|| RecordedCall::new(op)),
        }
    }

    fn retain(&mut self, keep: impl Fn(&RecordedCall) -> bool) {
        self.retain_named(|_, known| keep(known));
    }

    fn retain_named(&mut self, keep: impl Fn(&str, &RecordedCall) -> bool) {
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
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Option<&str>, &RecordedCall)> {
        self.0.iter().flat_map(|(name, named)| {
            let plain = named.plain.iter().map(|known| (&**name, None, known));
            plain.chain(named.keyed.iter().map(|(key, known)| (&**name, Some(&**key), known)))
        })
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut RecordedCall> {
        self.0.values_mut().flat_map(|named| named.plain.iter_mut().chain(named.keyed.values_mut()))
    }
}

/// What is known of a workflow's calls.
#[derive(Default)]
pub(super) struct Journal {
    pub(super) calls: Calls,
    /// The place of the next entry.
    pub(super) next_seq: i32,
    /// How many ends it has that the code has not come to.
    pub(super) undelivered: usize,
    /// What the steps that ended at some places set in the context.
    pub(super) sets: BTreeMap<i32, Vec<ContextSet>>,
    /// What ticks have set in the context, by the name of their repeat, in order.
    pub(super) repeat_sets: HashMap<Box<str>, Vec<ContextSet>>,
    /// What was undone, and what could not be.
    pub(super) undo: UndoRecord,
    /// Places of ends that made the job fail: they are void once it goes on.
    voids: Vec<i32>,
    /// Whether the job goes on after it had ended, and nothing says so yet.
    pub(super) needs_resume: bool,
    /// Whether it was forked from another: what the context holds is to be written.
    pub(super) forked: bool,
    /// Places of ticks of repeats that ended, by name, oldest first.
    pub(super) ticks: HashMap<Box<str>, Vec<i32>>,
}

impl Journal {
    /// Reads the entries of a job. If it is being unwound, what was undone since it last went on stays known, so that the code
    /// comes to what is not, and nothing is done again.
    pub(super) fn read(entries: Vec<JournalEntry>, codecs: &Codecs, unwinding: bool) -> Journal {
        let mut journal = Journal::default();
        let mut step = -1;
        for entry in entries {
            journal.next_seq = entry.seq + 1;
            if entry.op != Op::Context {
                step = entry.seq;
            }
            journal.add(entry, step, codecs);
        }
        if !unwinding {
            journal.needs_resume = journal.go_on();
        }
        for known in journal.calls.all_mut().filter(|known| known.end.is_some()) {
            // Ticks that are over stay for people to see, and are not come to again.
            known.reached = known.op == Op::Repeat;
            journal.undelivered += usize::from(!known.reached);
        }
        journal
    }

    fn add(&mut self, entry: JournalEntry, step: i32, codecs: &Codecs) {
        let JournalEntry { seq, op, mark, name, key, line, payload, .. } = entry;
        match (op, mark) {
            (Op::Life, _) if name == Fork::ENTRY => {
                self.forked = true;
                self.go_on();
                // Children that were under way are another job's, and so are those of branches that were not merged.
                self.calls.retain(|known| !matches!(known.op, Op::Child | Op::Merge) || known.end.is_some());
                let merged: HashSet<String> = self
                    .calls
                    .keyed(MERGE)
                    .filter(|(_, known)| known.op == Op::Merge)
                    .flat_map(|(key, _)| names_of(key).map(str::to_owned))
                    .collect();
                let is_taken =
                    |name: &str, known: &RecordedCall| known.op != Op::Branch || merged.contains(name);
                let left = self.calls.all().filter(|(name, _, known)| !is_taken(name, known));
                let first = left.filter_map(|(_, _, known)| known.place()).min();
                self.calls.retain_named(is_taken);
                self.void_selects(first);
                return;
            }
            (Op::Life, _) if name == ENDED => {
                let text: EndRecord = serde_json::from_slice(&payload.bytes).unwrap_or_default();
                self.voids.extend(text.voids);
                self.undo.close();
                self.forget_undo_tries();
                return;
            }
            (Op::Life, _) if name == RESUMED => {
                self.go_on();
                return;
            }
            (Op::Life, _) => return,
            (Op::Context, _) => {
                if let Some(value) = Value::read(&payload, codecs) {
                    let sets = match key {
                        Some(repeat) => self.repeat_sets.entry(repeat.into()).or_default(),
                        None => self.sets.entry(step).or_default(),
                    };
                    sets.push(ContextSet { seq, name, value });
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
                Mark::Undone => self.undo.undone(ident),
                _ => self.undo.not_undone(ident, read_failed(&payload).0),
            }
            return;
        }
        // Journals of before `RESUMED` was always written do not say that the job went on; but only then are calls made.
        if !matches!(op, Op::Now | Op::Version | Op::Select) && !is_undo_try(&name) {
            self.go_on();
        }
        let known = self.calls.known_owned(name, key, op);
        known.op = op;
        if line.is_some() {
            known.line = line;
        }
        match mark {
            Mark::Begun => known.begun = Some((seq, payload)),
            Mark::Tried => known.tried = serde_json::from_slice(&payload.bytes).ok(),
            Mark::Done | Mark::DoneWithUndo => {
                let undo = (mark == Mark::DoneWithUndo).then_some(seq);
                (known.end, known.undo) = (Some((seq, CallEnd::Done(payload))), undo);
            }
            Mark::Failed => {
                let (failure, reason) = read_failed(&payload);
                (known.end, known.undo) = (Some((seq, CallEnd::Failed { failure, reason })), None);
            }
            Mark::Undone | Mark::NotUndone => {}
        }
    }

    /// The job goes on after it had ended: what made it fail is void, and so is what was undone. What could not be undone is
    /// for the next unwinding. Answers whether there was any of this.
    fn go_on(&mut self) -> bool {
        if self.voids.is_empty() && self.undo.is_empty() {
            return false;
        }
        let (voids, undone) = (std::mem::take(&mut self.voids), self.undo.reopen());
        self.forget_undo_tries();
        let is_void = |known: &RecordedCall| known.place().is_some_and(|seq| voids.contains(&seq));
        let ends = undone.iter().filter_map(|ident| self.calls.of(ident)?.place());
        let first = ends.chain(voids.iter().copied()).min();
        undone.iter().for_each(|ident| self.calls.remove(ident));
        // A branch goes on where it was: its children are there.
        for known in self.calls.all_mut().filter(|known| known.op == Op::Branch && is_void(known)) {
            (known.end, known.tried) = (None, None);
        }
        self.calls.retain(|known| !is_void(known));
        self.void_selects(first);
        true
    }

    /// Which of several calls came first was judged by the ends before it: if one of these is void, that is void too.
    fn void_selects(&mut self, first: Option<i32>) {
        let Some(first) = first else { return };
        self.calls.retain(|known| known.op != Op::Select || known.place().is_none_or(|seq| seq < first));
    }

    /// What was tried at undoing steps counts for nothing if they are undone later.
    fn forget_undo_tries(&mut self) {
        self.calls.retain_named(|name, _| !is_undo_try(name));
    }

    /// The code has come to the end of a call that is not delivered like others.
    pub(super) fn mark_reached(&mut self, ident: &Ident) {
        if let Some(known) = self.calls.get_mut(&ident.0, ident.1.as_deref())
            && !std::mem::replace(&mut known.reached, true)
        {
            self.undelivered -= 1;
        }
    }

    /// What is known of a call, which is known from now on.
    pub(super) fn recorded_mut(&mut self, ident: &Ident) -> &mut RecordedCall {
        self.calls.entry(&ident.0, ident.1.as_deref(), Op::Step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known after these entries: the names of calls that have ended.
    fn known(entries: &[(Op, Mark, &str, &str)], unwinding: bool) -> (Vec<String>, bool) {
        let entry = |(seq, (op, mark, name, payload)): (i32, &(Op, Mark, &str, &str))| JournalEntry {
            seq,
            op: *op,
            mark: *mark,
            name: (*name).to_owned(),
            key: None,
            line: None,
            at: Time(0),
            payload: Payload::json(payload.as_bytes().to_vec()),
        };
        let entries = (0..).zip(entries).map(entry).collect();
        let journal = Journal::read(entries, &Codecs::default(), unwinding);
        let ended = journal.calls.all().filter(|(_, _, known)| known.end.is_some());
        let mut names: Vec<String> = ended.map(|(name, ..)| name.to_owned()).collect();
        names.sort();
        (names, journal.needs_resume)
    }

    const HOTEL: (Op, Mark, &str, &str) = (Op::Step, Mark::DoneWithUndo, "hotel", "1");
    const ASK: (Op, Mark, &str, &str) = (Op::Step, Mark::Failed, "ask", "{}");
    const FIRST: (Op, Mark, &str, &str) = (Op::Select, Mark::Done, "first", "0");
    const UNDONE: (Op, Mark, &str, &str) = (Op::Step, Mark::Undone, "hotel", "null");
    const GOES_ON: (Op, Mark, &str, &str) = (Op::Life, Mark::Done, RESUMED, "null");

    #[test]
    fn what_made_a_job_fail_is_void_once_it_goes_on() {
        let ended = (Op::Life, Mark::Failed, ENDED, r#"{"voids": [1]}"#);
        let entries = [HOTEL, ASK, FIRST, UNDONE, ended];
        let all = ["ask", "first", "hotel"].map(str::to_owned).to_vec();
        assert_eq!(known(&entries, true), (all, false), "nothing has run since it ended");
        assert_eq!(known(&entries, false), (vec![], true));
        for unwinding in [true, false] {
            assert_eq!(known(&[&entries[..], &[GOES_ON]].concat(), unwinding), (vec![], false));
            // Older journals do not say it.
            let next = (Op::Step, Mark::Done, "next", "1");
            assert_eq!(known(&[&entries[..], &[next]].concat(), unwinding), (vec!["next".to_owned()], false));
        }
    }

    #[test]
    fn a_select_is_void_with_any_end_before_it() {
        let ended = (Op::Life, Mark::Failed, ENDED, r#"{"voids": [2]}"#);
        let second = (Op::Select, Mark::Done, "second", "0");
        let kept = ["first", "hotel"].map(str::to_owned).to_vec();
        assert_eq!(known(&[HOTEL, FIRST, ASK, second, ended], false), (kept, true));
        let branch = |mark| (Op::Branch, mark, "items", "1");
        let entries = [HOTEL, FIRST, branch(Mark::Begun), branch(Mark::Done), second];
        let fork = (Op::Life, Mark::Done, Fork::ENTRY, "null");
        let kept = ["first", "hotel"].map(str::to_owned).to_vec();
        assert_eq!(known(&[&entries[..], &[fork]].concat(), false), (kept, false));
    }
}
