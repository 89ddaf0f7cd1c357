//! The calls of one job, read from its journal.

use std::collections::HashMap;

use windlass_model::{
    BranchNo, JournalEntry, State, WaitCondition,
    branch::BRANCH_SIGNAL,
    calendar::Missed,
    journal::{CallEvent, CallKind},
    merge::BranchProgress,
    wait::CHILD_SIGNAL,
};
use windlass_store::Branch;

use super::{CallState, Run};

/// A call of one job. All ticks of a repeat are one call.
pub(super) struct Call {
    pub(super) call_kind: CallKind,
    pub(super) name: String,
    /// The position of its first entry.
    pub(super) first: i32,
    /// The position of its last entry, once it has ended.
    pub(super) last: Option<i32>,
    pub(super) fate: CallState,
    key: Option<String>,
    failed_attempts: u32,
    ticks: u64,
    missed: u64,
    /// The job that it submitted.
    child: Option<String>,
    /// The result of a select (which call was first) or of a version.
    number: Option<usize>,
    /// The number of a branch, and its progress.
    branch: Option<BranchNo>,
    pub(super) children: Option<BranchProgress>,
}

impl Call {
    fn new(entry: &JournalEntry, key: Option<String>) -> Call {
        Call { first: entry.seq, ..Call::unrecorded(entry.call_kind, &entry.name, key) }
    }

    /// A call that the job waits for and that has no entry yet.
    fn unrecorded(call_kind: CallKind, name: &str, key: Option<String>) -> Call {
        Call {
            call_kind,
            name: name.to_owned(),
            first: i32::MAX - 1,
            last: None,
            fate: CallState::Waiting,
            key,
            failed_attempts: 0,
            ticks: 0,
            missed: 0,
            child: None,
            number: None,
            branch: None,
            children: None,
        }
    }

    /// A detail of this call alone.
    pub(super) fn note(&self) -> Option<String> {
        let of = self.key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default();
        // The key of a merge or a reduce has the names of its branches.
        if matches!(self.call_kind, CallKind::Merge | CallKind::Reduce) {
            return self.key.as_ref().map(|key| format!("of {}", key.replace(',', ", ")));
        }
        let note = match (self.call_kind, &self.child, self.number) {
            (CallKind::Child, Some(child), _) => format!("job {child}"),
            (CallKind::Select, _, Some(number)) => {
                // As in the code: `First2::A`.
                let letter = char::from(b'A' + u8::try_from(number).unwrap_or(0).min(25));
                format!("first was {letter}")
            }
            (CallKind::Version, _, Some(number)) => format!("version {number}"),
            (CallKind::Repeat, ..) => match (self.ticks, self.missed) {
                (1, 0) => "1 tick".to_owned(),
                (ticks, 0) => format!("{ticks} ticks"),
                (ticks, missed) => format!("{ticks} ticks, {missed} missed"),
            },
            _ if self.failed_attempts > 0 => match self.failed_attempts {
                1 => "1 failed attempt".to_owned(),
                attempts => format!("{attempts} failed attempts"),
            },
            _ => return None,
        };
        Some(of + &note)
    }

    fn add_entry(&mut self, entry: &JournalEntry) {
        // A voided or undone call that runs again starts over.
        let again = !matches!(entry.event, CallEvent::Undone | CallEvent::NotUndone);
        if again && self.last.is_some() {
            (self.first, self.last, self.fate) = (entry.seq, None, CallState::Waiting);
        }
        match entry.event {
            CallEvent::Begun if entry.call_kind == CallKind::Child => {
                self.child = serde_json::from_slice(&entry.payload.bytes).ok();
            }
            CallEvent::Begun if entry.call_kind == CallKind::Branch => {
                self.branch = serde_json::from_slice(&entry.payload.bytes).ok();
            }
            CallEvent::Begun => {}
            CallEvent::Tried => {
                self.failed_attempts += 1;
                self.fate = CallState::Tried;
            }
            CallEvent::Done | CallEvent::DoneWithUndo => {
                (self.last, self.fate) = (Some(entry.seq), CallState::Done);
                if matches!(entry.call_kind, CallKind::Select | CallKind::Version) {
                    self.number = serde_json::from_slice(&entry.payload.bytes).ok();
                }
            }
            CallEvent::Failed => (self.last, self.fate) = (Some(entry.seq), CallState::Failed),
            CallEvent::Undone => self.fate = CallState::Undone,
            CallEvent::NotUndone => self.fate = CallState::NotUndone,
        }
    }

    /// Adds an entry of a repeat.
    fn add_tick(&mut self, entry: &JournalEntry) {
        match (&entry.key, entry.event) {
            (None, CallEvent::Begun) => {
                let progress = serde_json::from_slice::<serde_json::Value>(&entry.payload.bytes).ok();
                let ticks = progress.and_then(|progress| progress.get("ticks")?.as_u64());
                self.ticks = ticks.unwrap_or(0).max(self.ticks);
            }
            (None, _) => self.add_entry(entry),
            (Some(key), CallEvent::Failed) if key.starts_with("missed ") => {
                let missed = serde_json::from_slice::<Missed>(&entry.payload.bytes);
                self.missed += missed.map_or(1, |missed| missed.count);
            }
            (Some(_), CallEvent::Tried) => self.fate = CallState::Tried,
            (Some(_), _) => self.fate = CallState::Waiting,
        }
    }
}

/// The calls of a job, in the order of their first entries.
pub(super) fn calls(run: Run<'_>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut known: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    let mut selects = Vec::new();
    for entry in run.entries {
        let of_an_undo = entry.event == CallEvent::Tried && entry.name.starts_with("undo ");
        if matches!(entry.call_kind, CallKind::Context | CallKind::Now | CallKind::Lifecycle) || of_an_undo {
            continue;
        }
        let key = entry.key.as_deref().filter(|_| entry.call_kind != CallKind::Repeat);
        let index = *known.entry((&entry.name, key)).or_insert_with(|| {
            calls.push(Call::new(entry, key.map(String::from)));
            calls.len() - 1
        });
        match entry.call_kind {
            CallKind::Repeat => calls[index].add_tick(entry),
            _ => calls[index].add_entry(entry),
        }
        if entry.call_kind == CallKind::Select {
            selects.push(entry.seq);
        }
    }
    for call in calls.iter_mut().filter(|call| call.call_kind == CallKind::Branch) {
        call.children = spawned(call, run.branches);
    }
    awaited(&mut calls, run.wait.filter(|_| run.state == State::Waiting));
    if run.state == State::Waiting {
        merging(&mut calls, run.branches);
    }
    for call in calls.iter_mut().filter(|call| call.last.is_none()) {
        // A call that started before a select and has not ended has lost it.
        let lost = selects.iter().find(|select| call.call_kind != CallKind::Repeat && call.first < **select);
        match lost {
            Some(select) => (call.last, call.fate) = (Some(select - 1), CallState::Left),
            None if run.state.is_final() => (call.last, call.fate) = (Some(i32::MAX - 1), CallState::Left),
            None => {}
        }
    }
    calls.sort_by_key(|call| call.first);
    calls
}

/// The progress of a branch.
fn spawned(call: &Call, branches: &[Branch]) -> Option<BranchProgress> {
    let number = call.branch?;
    let branch = branches.iter().find(|branch| branch.number == number)?;
    Some(BranchProgress { spawned: branch.spawned, counts: branch.counts })
}

/// Adds the merges that a job waits for: they have no entry before they end.
fn merging(calls: &mut Vec<Call>, branches: &[Branch]) {
    let waited =
        |branch: &&Branch| (!branch.merged || branch.watch.is_some()) && branch.merge_record.is_some();
    let mut records: Vec<&str> =
        branches.iter().filter(waited).filter_map(|branch| branch.merge_record.as_deref()).collect();
    records.sort_unstable();
    records.dedup();
    for record in records {
        let of =
            branches.iter().filter(waited).filter(|branch| branch.merge_record.as_deref() == Some(record));
        let mut names: Vec<&str> = of.map(|branch| branch.name.as_str()).collect();
        names.sort_unstable();
        let key = Some(names.join(","));
        if !calls
            .iter()
            .any(|call| call.call_kind == CallKind::Merge && call.key == key && call.last.is_none())
        {
            calls.push(Call::unrecorded(CallKind::Merge, "merge", key));
        }
    }
}

/// Adds the signals that a job waits for without an entry: a wait without a time limit has none.
fn awaited(calls: &mut Vec<Call>, wait: Option<&WaitCondition>) {
    let Some(WaitCondition::Signals { names, .. }) = wait else { return };
    let listens = |call: &&Call| {
        call.last.is_none() && matches!(call.call_kind, CallKind::Signal | CallKind::ContinueIf)
    };
    let names: Vec<&str> = names
        .iter()
        .map(|name| name.name.as_str())
        .filter(|name| ![CHILD_SIGNAL, BRANCH_SIGNAL].contains(name))
        .collect();
    if calls.iter().filter(listens).count() >= names.len() {
        return;
    }
    for name in names {
        if !calls.iter().filter(listens).any(|call| call.name == name) {
            calls.push(Call::unrecorded(CallKind::Signal, name, None));
        }
    }
}
