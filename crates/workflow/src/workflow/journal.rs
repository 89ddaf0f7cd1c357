//! The journal of a workflow, indexed for its replay: what is recorded of each call, by name and key.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    panic::Location,
};

use serde::{Deserialize, Serialize};
use windlass_model::{
    Failure, JournalEntry, Payload, Reason, Time,
    journal::{CallEvent, CallKind},
};
use windlass_store::Fork;

use super::{
    context::Value,
    merge::{MERGE, names_of},
    state::{ENDED, RESUMED},
    undo_record::{UndoRecord, is_undo_try},
};
use crate::codec::Codecs;

/// The name and key of a call, unique within a run.
pub(super) type Ident = (Box<str>, Option<Box<str>>);

/// How a call ended.
#[derive(Clone, Debug)]
pub(super) enum CallEnd {
    /// It succeeded, with an encoded result.
    Done(Payload),
    /// It failed.
    Failed { failure: Failure, reason: Reason },
}

/// The record of a failed attempt.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct RetryState {
    #[serde(rename = "tries")]
    pub(super) attempts: u32,
    /// How often each rule of the retry policy has been used.
    #[serde(rename = "spent")]
    pub(super) retry_counts: Vec<u32>,
    pub(super) next_at: Time,
    pub(super) failure: Failure,
}

#[derive(Serialize, Deserialize)]
struct FailureRecord {
    failure: Failure,
    reason: Reason,
}

/// The record of the end of a workflow that failed or was cancelled.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct EndRecord {
    /// The sequence numbers of the ends that made the job fail: they are void if the job is retried.
    pub(super) voids: Vec<i32>,
}

/// Returns the sequence numbers of the ends that an entry makes void, if it records the end of a workflow.
pub fn voids_of(entry: &JournalEntry) -> Vec<i32> {
    if entry.call_kind != CallKind::Lifecycle || entry.name != ENDED {
        return Vec::new();
    }
    serde_json::from_slice::<EndRecord>(&entry.payload.bytes).unwrap_or_default().voids
}

impl CallEnd {
    /// Encodes a failed call.
    pub(super) fn failed_payload(&self) -> Payload {
        match self {
            CallEnd::Done(payload) => payload.clone(),
            CallEnd::Failed { failure, reason } => {
                let record = FailureRecord { failure: failure.clone(), reason: *reason };
                Payload::json(serde_json::to_vec(&record).unwrap_or_default())
            }
        }
    }
}

/// Decodes a failed call.
fn read_failed(payload: &Payload) -> (Failure, Reason) {
    match serde_json::from_slice(&payload.bytes) {
        Ok(FailureRecord { failure, reason }) => (failure, reason),
        Err(_) => (Failure::stop("its error cannot be read"), Reason::Stopped),
    }
}

/// Returns the error in an entry, if the call, or an attempt at it, failed.
pub fn failure_of(entry: &JournalEntry) -> Option<Failure> {
    let bytes = &entry.payload.bytes;
    match entry.event {
        CallEvent::Failed | CallEvent::NotUndone => {
            serde_json::from_slice::<FailureRecord>(bytes).ok().map(|record| record.failure)
        }
        CallEvent::Tried => serde_json::from_slice::<RetryState>(bytes).ok().map(|tried| tried.failure),
        _ => None,
    }
}

/// A value of the context that a step, or a tick of a repeat, has set.
#[derive(Clone)]
pub(super) struct ContextSet {
    /// The sequence number of its entry.
    pub(super) seq: i32,
    pub(super) name: String,
    pub(super) value: Value,
}

/// What is recorded of a call.
pub(super) struct RecordedCall {
    pub(super) call_kind: CallKind,
    pub(super) line: Option<String>,
    /// Where this run has made it, if it has.
    pub(super) made_at: Option<(CallKind, &'static Location<'static>)>,
    /// The sequence number and payload of the entry that began it.
    pub(super) begun: Option<(i32, Payload)>,
    pub(super) tried: Option<RetryState>,
    pub(super) end: Option<(i32, CallEnd)>,
    /// The sequence number of its end, if it succeeded and was recorded with an undo.
    pub(super) undo: Option<i32>,
    /// Whether the code has reached its end, or recorded it.
    pub(super) reached: bool,
}

impl RecordedCall {
    /// The sequence number of its end.
    pub(super) fn end_seq(&self) -> Option<i32> {
        self.end.as_ref().map(|(seq, _)| *seq)
    }

    fn new(call_kind: CallKind) -> RecordedCall {
        RecordedCall {
            call_kind,
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

/// What is recorded of all calls, by name and key.
#[derive(Default)]
pub(super) struct Calls(HashMap<Box<str>, CallsOfName>);

/// The calls of one name.
#[derive(Default)]
struct CallsOfName {
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
        named.flat_map(|named| named.keyed.iter().map(|(key, recorded)| (&**key, recorded)))
    }

    pub(super) fn get_mut(&mut self, name: &str, key: Option<&str>) -> Option<&mut RecordedCall> {
        let named = self.0.get_mut(name)?;
        match key {
            Some(key) => named.keyed.get_mut(key),
            None => named.plain.as_mut(),
        }
    }

    /// Returns the record of a call, which is added if there is none.
    pub(super) fn entry(&mut self, name: &str, key: Option<&str>, call_kind: CallKind) -> &mut RecordedCall {
        if !self.0.contains_key(name) {
            self.0.insert(name.into(), CallsOfName::default());
        }
        let named = self.0.get_mut(name).expect("just inserted");
        match key {
            Some(key) => named.keyed.entry(key.into()).or_insert_with(|| RecordedCall::new(call_kind)),
            None => named.plain.get_or_insert_with(|| RecordedCall::new(call_kind)),
        }
    }

    fn entry_owned(&mut self, name: String, key: Option<String>, call_kind: CallKind) -> &mut RecordedCall {
        if !self.0.contains_key(name.as_str()) {
            self.0.insert(name.as_str().into(), CallsOfName::default());
        }
        let named = self.0.get_mut(name.as_str()).expect("just inserted");
        match key {
            Some(key) => {
                named.keyed.entry(key.into_boxed_str()).or_insert_with(|| RecordedCall::new(call_kind))
            }
            None => named.plain.get_or_insert_with(|| RecordedCall::new(call_kind)),
        }
    }

    fn retain(&mut self, keep: impl Fn(&RecordedCall) -> bool) {
        self.retain_named(|_, recorded| keep(recorded));
    }

    fn retain_named(&mut self, keep: impl Fn(&str, &RecordedCall) -> bool) {
        for (name, named) in &mut self.0 {
            named.plain.take_if(|recorded| !keep(name, recorded));
            named.keyed.retain(|_, recorded| keep(name, recorded));
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

    /// Returns all records.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Option<&str>, &RecordedCall)> {
        self.0.iter().flat_map(|(name, named)| {
            let plain = named.plain.iter().map(|recorded| (&**name, None, recorded));
            plain.chain(named.keyed.iter().map(|(key, recorded)| (&**name, Some(&**key), recorded)))
        })
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut RecordedCall> {
        self.0.values_mut().flat_map(|named| named.plain.iter_mut().chain(named.keyed.values_mut()))
    }
}

/// The journal of a workflow.
#[derive(Default)]
pub(super) struct Journal {
    pub(super) calls: Calls,
    /// The sequence number of the next entry.
    pub(super) next_seq: i32,
    /// The number of recorded ends that the code has not reached.
    pub(super) undelivered: usize,
    /// What steps have set in the context, by the sequence number of their end.
    pub(super) sets: BTreeMap<i32, Vec<ContextSet>>,
    /// What ticks have set in the context, by the name of their repeat, in order.
    pub(super) repeat_sets: HashMap<Box<str>, Vec<ContextSet>>,
    /// What was undone, and what could not be.
    pub(super) undo: UndoRecord,
    /// The sequence numbers of ends that made the job fail: they are void when it continues.
    voids: Vec<i32>,
    /// Whether the job continues after it had ended, and the journal does not say so yet.
    pub(super) needs_resume: bool,
    /// Whether it was forked from another job: the whole context must be written.
    pub(super) forked: bool,
    /// The sequence numbers of ended ticks, by the name of their repeat, oldest first.
    pub(super) ticks: HashMap<Box<str>, Vec<i32>>,
}

impl Journal {
    /// Reads the entries of a job. If the job is being unwound, steps that were undone stay recorded, so that the code reaches
    /// those that were not, and nothing is done again.
    pub(super) fn read(entries: Vec<JournalEntry>, codecs: &Codecs, unwinding: bool) -> Journal {
        let mut journal = Journal::default();
        let mut step = -1;
        for entry in entries {
            journal.next_seq = entry.seq + 1;
            if entry.call_kind != CallKind::Context {
                step = entry.seq;
            }
            journal.add(entry, step, codecs);
        }
        if !unwinding {
            journal.needs_resume = journal.resume();
        }
        for recorded in journal.calls.all_mut().filter(|recorded| recorded.end.is_some()) {
            // Ended ticks are kept for people to see; the code does not reach them again.
            recorded.reached = recorded.call_kind == CallKind::Repeat;
            journal.undelivered += usize::from(!recorded.reached);
        }
        journal
    }

    fn add(&mut self, entry: JournalEntry, step: i32, codecs: &Codecs) {
        let JournalEntry { seq, call_kind, event, name, key, line, payload, .. } = entry;
        match (call_kind, event) {
            (CallKind::Lifecycle, _) if name == Fork::ENTRY => {
                self.forked = true;
                self.resume();
                // Children that had not ended belong to the other job, and so do those of branches that were not merged.
                self.calls.retain(|recorded| {
                    !matches!(recorded.call_kind, CallKind::Child | CallKind::Merge) || recorded.end.is_some()
                });
                let merged: HashSet<String> = self
                    .calls
                    .keyed(MERGE)
                    .filter(|(_, recorded)| recorded.call_kind == CallKind::Merge)
                    .flat_map(|(key, _)| names_of(key).map(str::to_owned))
                    .collect();
                let is_carried = |name: &str, recorded: &RecordedCall| {
                    recorded.call_kind != CallKind::Branch || merged.contains(name)
                };
                let dropped = self.calls.all().filter(|(name, _, recorded)| !is_carried(name, recorded));
                let first = dropped.filter_map(|(_, _, recorded)| recorded.end_seq()).min();
                self.calls.retain_named(is_carried);
                self.void_selects(first);
                return;
            }
            (CallKind::Lifecycle, _) if name == ENDED => {
                let record: EndRecord = serde_json::from_slice(&payload.bytes).unwrap_or_default();
                self.voids.extend(record.voids);
                self.undo.close();
                self.forget_undo_tries();
                return;
            }
            (CallKind::Lifecycle, _) if name == RESUMED => {
                self.resume();
                return;
            }
            (CallKind::Lifecycle, _) => return,
            (CallKind::Context, _) => {
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
        if call_kind == CallKind::Repeat && key.is_some() {
            self.ticks.entry(name.as_str().into()).or_default().push(seq);
        }
        if matches!(event, CallEvent::Undone | CallEvent::NotUndone) {
            let ident: Ident = (name.into(), key.map(Into::into));
            match event {
                CallEvent::Undone => self.undo.undone(ident),
                _ => self.undo.not_undone(ident, read_failed(&payload).0),
            }
            return;
        }
        // Older journals have no `RESUMED` entry; but calls are only made after the job has continued.
        if !matches!(call_kind, CallKind::Now | CallKind::Version | CallKind::Select) && !is_undo_try(&name) {
            self.resume();
        }
        let recorded = self.calls.entry_owned(name, key, call_kind);
        recorded.call_kind = call_kind;
        if line.is_some() {
            recorded.line = line;
        }
        match event {
            CallEvent::Begun => recorded.begun = Some((seq, payload)),
            CallEvent::Tried => recorded.tried = serde_json::from_slice(&payload.bytes).ok(),
            CallEvent::Done | CallEvent::DoneWithUndo => {
                let undo = (event == CallEvent::DoneWithUndo).then_some(seq);
                (recorded.end, recorded.undo) = (Some((seq, CallEnd::Done(payload))), undo);
            }
            CallEvent::Failed => {
                let (failure, reason) = read_failed(&payload);
                (recorded.end, recorded.undo) = (Some((seq, CallEnd::Failed { failure, reason })), None);
            }
            CallEvent::Undone | CallEvent::NotUndone => {}
        }
    }

    /// The job continues after it had ended: the ends that made it fail are void, and so is what was undone. The next unwinding
    /// tries again what could not be undone. Returns whether there was any of this.
    fn resume(&mut self) -> bool {
        if self.voids.is_empty() && self.undo.is_empty() {
            return false;
        }
        let (voids, undone) = (std::mem::take(&mut self.voids), self.undo.reopen());
        self.forget_undo_tries();
        let is_void = |recorded: &RecordedCall| recorded.end_seq().is_some_and(|seq| voids.contains(&seq));
        let ends = undone.iter().filter_map(|ident| self.calls.of(ident)?.end_seq());
        let first = ends.chain(voids.iter().copied()).min();
        undone.iter().for_each(|ident| self.calls.remove(ident));
        // A branch continues where it was: its children exist.
        for recorded in self
            .calls
            .all_mut()
            .filter(|recorded| recorded.call_kind == CallKind::Branch && is_void(recorded))
        {
            (recorded.end, recorded.tried) = (None, None);
        }
        self.calls.retain(|recorded| !is_void(recorded));
        self.void_selects(first);
        true
    }

    /// Which call was first depends on the ends before it: if one of these is void, so is the select.
    fn void_selects(&mut self, first: Option<i32>) {
        let Some(first) = first else { return };
        self.calls.retain(|recorded| {
            recorded.call_kind != CallKind::Select || recorded.end_seq().is_none_or(|seq| seq < first)
        });
    }

    /// Attempts at undoing steps do not count for a later unwinding.
    fn forget_undo_tries(&mut self) {
        self.calls.retain_named(|name, _| !is_undo_try(name));
    }

    /// Marks a call as reached whose end is not delivered like others.
    pub(super) fn mark_reached(&mut self, ident: &Ident) {
        if let Some(recorded) = self.calls.get_mut(&ident.0, ident.1.as_deref())
            && !std::mem::replace(&mut recorded.reached, true)
        {
            self.undelivered -= 1;
        }
    }

    /// Returns the record of a call, which is added if there is none.
    pub(super) fn recorded_mut(&mut self, ident: &Ident) -> &mut RecordedCall {
        self.calls.entry(&ident.0, ident.1.as_deref(), CallKind::Step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of calls that have ended after these entries, and whether the job continues.
    fn recorded(entries: &[(CallKind, CallEvent, &str, &str)], unwinding: bool) -> (Vec<String>, bool) {
        let entry = |(seq, (call_kind, event, name, payload)): (i32, &(CallKind, CallEvent, &str, &str))| {
            JournalEntry {
                seq,
                call_kind: *call_kind,
                event: *event,
                name: (*name).to_owned(),
                key: None,
                line: None,
                at: Time(0),
                payload: Payload::json(payload.as_bytes().to_vec()),
            }
        };
        let entries = (0..).zip(entries).map(entry).collect();
        let journal = Journal::read(entries, &Codecs::default(), unwinding);
        let ended = journal.calls.all().filter(|(_, _, recorded)| recorded.end.is_some());
        let mut names: Vec<String> = ended.map(|(name, ..)| name.to_owned()).collect();
        names.sort();
        (names, journal.needs_resume)
    }

    const HOTEL: (CallKind, CallEvent, &str, &str) = (CallKind::Step, CallEvent::DoneWithUndo, "hotel", "1");
    const ASK: (CallKind, CallEvent, &str, &str) = (CallKind::Step, CallEvent::Failed, "ask", "{}");
    const FIRST: (CallKind, CallEvent, &str, &str) = (CallKind::Select, CallEvent::Done, "first", "0");
    const UNDONE: (CallKind, CallEvent, &str, &str) = (CallKind::Step, CallEvent::Undone, "hotel", "null");
    const RESUMED_ENTRY: (CallKind, CallEvent, &str, &str) =
        (CallKind::Lifecycle, CallEvent::Done, RESUMED, "null");

    #[test]
    fn ends_that_failed_a_job_are_void_once_it_continues() {
        let ended = (CallKind::Lifecycle, CallEvent::Failed, ENDED, r#"{"voids": [1]}"#);
        let entries = [HOTEL, ASK, FIRST, UNDONE, ended];
        let all = ["ask", "first", "hotel"].map(str::to_owned).to_vec();
        assert_eq!(recorded(&entries, true), (all, false), "nothing has run since it ended");
        assert_eq!(recorded(&entries, false), (vec![], true));
        for unwinding in [true, false] {
            assert_eq!(recorded(&[&entries[..], &[RESUMED_ENTRY]].concat(), unwinding), (vec![], false));
            // Older journals have no `RESUMED` entry.
            let next = (CallKind::Step, CallEvent::Done, "next", "1");
            assert_eq!(
                recorded(&[&entries[..], &[next]].concat(), unwinding),
                (vec!["next".to_owned()], false)
            );
        }
    }

    #[test]
    fn a_select_is_void_with_any_end_before_it() {
        let ended = (CallKind::Lifecycle, CallEvent::Failed, ENDED, r#"{"voids": [2]}"#);
        let second = (CallKind::Select, CallEvent::Done, "second", "0");
        let kept = ["first", "hotel"].map(str::to_owned).to_vec();
        assert_eq!(recorded(&[HOTEL, FIRST, ASK, second, ended], false), (kept, true));
        let branch = |event| (CallKind::Branch, event, "items", "1");
        let entries = [HOTEL, FIRST, branch(CallEvent::Begun), branch(CallEvent::Done), second];
        let fork = (CallKind::Lifecycle, CallEvent::Done, Fork::ENTRY, "null");
        let kept = ["first", "hotel"].map(str::to_owned).to_vec();
        assert_eq!(recorded(&[&entries[..], &[fork]].concat(), false), (kept, false));
    }
}
