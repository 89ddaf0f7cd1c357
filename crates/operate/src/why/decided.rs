//! How a workflow ended, read from its journal: whether a retry would end the same way, from where a fork would not, and what was not
//! undone.

use std::collections::HashMap;

use windlass_model::{
    JobId, JournalEntry,
    journal::{CallEvent, CallKind},
};

use windlass_workflow::engine::{ENDED, RESUMED, voids_of};

/// The end of a workflow that failed or cancelled itself.
#[derive(Default)]
pub(super) struct Ending<'a> {
    /// The call whose recorded result decided the end, if a retry would replay it.
    pub(super) decided: Option<&'a JournalEntry>,
    /// The call from which a fork would run it again.
    pub(super) fork_before: Option<&'a JournalEntry>,
    /// The steps that the last unwind could not undo.
    pub(super) not_undone: Vec<&'a JournalEntry>,
}

/// A call, as its entries show it.
struct Call<'a> {
    /// Its first entry: a fork from there runs it again.
    first: &'a JournalEntry,
    end: Option<&'a JournalEntry>,
    undone: bool,
}

/// Reads a journal. Of payloads only those of the engine's own entries are read.
pub(super) fn ending<'a>(journal: impl Iterator<Item = &'a JournalEntry>) -> Ending<'a> {
    let mut calls: HashMap<(&str, Option<&str>), Call<'a>> = HashMap::new();
    let mut not_undone = Vec::new();
    let (mut retried, mut ended) = (false, false);
    for entry in journal {
        retried = false;
        // The entries that follow belong to another unwind.
        if std::mem::take(&mut ended) {
            not_undone.clear();
        }
        if entry.call_kind == CallKind::Lifecycle {
            if entry.name == RESUMED {
                not_undone.clear();
            }
            ended = entry.name == ENDED;
            // A retry runs the voided calls again.
            let voids = voids_of(entry);
            retried = !voids.is_empty();
            calls.retain(|_, call| call.end.is_none_or(|end| !voids.contains(&end.seq)));
            continue;
        }
        let is_tick = entry.call_kind == CallKind::Repeat && entry.key.is_some();
        if is_tick
            || matches!(
                entry.call_kind,
                CallKind::Context | CallKind::Now | CallKind::Version | CallKind::Select
            )
        {
            continue;
        }
        let call = calls.entry((&entry.name, entry.key.as_deref())).or_insert(Call {
            first: entry,
            end: None,
            undone: false,
        });
        match entry.event {
            CallEvent::Begun | CallEvent::Tried => {}
            CallEvent::Undone => call.undone = true,
            CallEvent::NotUndone => not_undone.push(entry),
            CallEvent::Done | CallEvent::DoneWithUndo | CallEvent::Failed => {
                if call.undone {
                    (call.first, call.undone) = (entry, false);
                }
                call.end = Some(entry);
            }
        }
    }
    let mut ending = Ending { not_undone, ..Ending::default() };
    if retried {
        return ending;
    }
    let ended =
        |undone: bool| calls.values().filter(move |call| call.undone == undone).filter_map(|call| call.end);
    let last =
        |of: fn(&JournalEntry) -> bool| ended(false).filter(move |end| of(end)).max_by_key(|end| end.seq);
    // Most likely the last failure that the code handled; otherwise the last result it received.
    let decided = last(|end| end.event == CallEvent::Failed)
        .or_else(|| last(|end| !matches!(end.call_kind, CallKind::Sleep | CallKind::Branch)));
    // A retry runs an undone step again. If that step ended after the call, its new result may decide.
    let decided = decided.filter(|decided| ended(true).all(|undone| undone.seq < decided.seq));
    ending.fork_before = decided.and_then(|decided| {
        // An undone step must run again; a fork takes it over as done unless the fork starts before it.
        let undone = calls.values().filter(|call| call.undone).map(|call| call.first);
        let decider = calls.get(&(decided.name.as_str(), decided.key.as_deref())).map(|call| call.first);
        undone.chain(decider).min_by_key(|first| first.seq)
    });
    ending.decided = decided;
    ending
}

/// The command that forks a job before a call.
pub(super) fn fork_command(job: JobId, before: &JournalEntry) -> String {
    let plain = |text: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "_-./:@".contains(c);
        !text.is_empty() && !text.starts_with('-') && text.chars().all(fine)
    };
    match &before.key {
        None if plain(&before.name) => format!("windlass fork {job} --before {}", before.name),
        Some(key) if plain(&before.name) && plain(key) => {
            format!("windlass fork {job} --before {} --step-key {key}", before.name)
        }
        // A name that a shell would interpret is given by its position.
        _ => format!("windlass fork {job} --before-entry {}", before.seq),
    }
}

/// A call as text.
pub(super) fn shown(entry: &JournalEntry) -> String {
    match &entry.key {
        Some(key) => format!("{} {:?} with key {key:?}", entry.call_kind, entry.name),
        None => format!("{} {:?}", entry.call_kind, entry.name),
    }
}
