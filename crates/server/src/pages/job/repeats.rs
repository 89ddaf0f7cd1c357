//! The repeats of a workflow: how often each has run, and its last ticks with how long after their times they ended. Pure.
//!
//! The journal has when a tick was due and when it ended, not when it began: what is said is the span between these two.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass::{
    Time,
    model::journal::{CallEvent, CallKind},
    operate::{
        text::counted,
        views::{EntryResult, EntryView},
    },
};

use crate::pages::{
    format::{Clock, span},
    html::Html,
    icon::Icon,
    parts::{Pill, Tone},
};

/// How many ticks of a repeat are shown.
const TICKS: usize = 10;

/// A repeat.
pub(super) struct Repeat {
    pub(super) name: String,
    /// How many ticks have run, and whether it is over.
    pub(super) text: String,
    /// The last ticks, newest first.
    pub(super) ticks: Vec<Tick>,
}

/// A tick, or ticks that were missed.
pub(super) struct Tick {
    /// When it was due.
    pub(super) due: Option<Time>,
    pub(super) pill: Pill,
    /// How long after it was due it ended, and what came of it.
    pub(super) text: Html,
    at: Time,
}

/// The repeats in a part of a journal, by name.
pub(super) fn repeats(journal: &[EntryView], clock: Clock) -> Vec<Repeat> {
    let mut repeats: BTreeMap<&str, Repeat> = BTreeMap::new();
    for entry in journal.iter().filter(|entry| entry.call_kind == CallKind::Repeat) {
        let repeat = repeats.entry(&entry.name).or_insert_with(|| Repeat {
            name: entry.name.clone(),
            text: String::new(),
            ticks: Vec::new(),
        });
        match (&entry.key, entry.event) {
            (None, CallEvent::Begun) => repeat.text = progress(entry),
            (None, event) if event.is_done() => repeat.text += "; it is over",
            (None, _) => repeat.text += "; it has failed",
            (Some(key), _) => repeat.ticks.extend(tick(key, entry, clock)),
        }
    }
    let mut repeats: Vec<Repeat> = repeats.into_values().collect();
    for repeat in &mut repeats {
        // Of a tick that was tried several times, the last entry counts.
        let dues: Vec<Option<Time>> = repeat.ticks.iter().map(|tick| tick.due).collect();
        let mut place = 0;
        repeat.ticks.retain(|tick| {
            place += 1;
            tick.due.is_none() || !dues[place..].contains(&tick.due)
        });
        catch_up(&mut repeat.ticks);
        repeat.ticks.reverse();
        repeat.ticks.truncate(TICKS);
    }
    repeats
}

fn value(entry: &EntryView) -> Option<&Value> {
    match &entry.result {
        EntryResult::Payload(value) => Some(value),
        EntryResult::Failure(_) => None,
    }
}

/// How many ticks have run.
fn progress(entry: &EntryView) -> String {
    match value(entry).and_then(|progress| progress["ticks"].as_u64()) {
        Some(0) => "no tick has run yet".to_owned(),
        Some(ticks) => format!("{} run", counted(ticks, "tick has", "ticks have")),
        None => "it repeats".to_owned(),
    }
}

/// The last attempt at a tick. One that was tried before is the same tick.
fn tick(key: &str, entry: &EntryView, clock: Clock) -> Option<Tick> {
    let time = |text: &str| serde_json::from_value::<Time>(Value::String(text.to_owned())).ok();
    if key.starts_with("missed") {
        return Some(missed(entry, clock));
    }
    let due = time(key)?;
    let took = span(entry.at - due);
    let (pill, text) = match (entry.event, &entry.result) {
        (CallEvent::Tried, EntryResult::Failure(failure)) => (
            Pill::backing_off(),
            Html::words(&format!("an attempt failed {took} after it was due: ")).user(&failure.message),
        ),
        (CallEvent::Failed, EntryResult::Failure(failure)) => (
            Pill::new(Tone::Bad, Icon::Failed, "failed"),
            Html::words(&format!("failed {took} after it was due: ")).user(&failure.message),
        ),
        (CallEvent::Undone | CallEvent::NotUndone | CallEvent::Begun, _) => return None,
        _ => {
            (Pill::new(Tone::Ok, Icon::Done, "done"), Html::words(&format!("ended {took} after it was due")))
        }
    };
    Some(Tick { due: Some(due), pill, text, at: entry.at })
}

/// Ticks that no worker ran in time, in one entry.
fn missed(entry: &EntryView, clock: Clock) -> Tick {
    let count = value(entry).and_then(|missed| missed["count"].as_u64());
    let end =
        |name| value(entry).and_then(|missed| serde_json::from_value::<Time>(missed[name].clone()).ok());
    let mut text = match count {
        Some(count) => Html::words(&counted(count, "tick was missed", "ticks were missed")),
        None => Html::words("ticks were missed"),
    };
    if let (Some(from), Some(to)) = (end("from"), end("to")) {
        text = text.text(", from ").add(clock.at(from)).text(" to ").add(clock.at(to));
    }
    let text = text.text(": no worker ran them in time");
    Tick { due: end("from"), pill: Pill::new(Tone::Warn, Icon::Warn, "missed"), text, at: entry.at }
}

/// Marks ticks that ended only after the next one was due.
fn catch_up(ticks: &mut [Tick]) {
    for place in 1..ticks.len() {
        let (before, rest) = ticks.split_at_mut(place);
        let (Some(tick), Some(next)) = (before.last_mut(), rest.first().and_then(|next| next.due)) else {
            continue;
        };
        let is_late = tick.pill.word == "done" && tick.at > next && tick.due.is_some_and(|due| due < next);
        if is_late {
            tick.pill = Pill::new(Tone::Warn, Icon::Done, "late");
            tick.text = std::mem::take(&mut tick.text).text(", when the next one was due already");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use windlass::model::Failure;

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);
    const CLOCK: Clock = Clock { now: NOW, relative: true };

    fn at(seconds: u64) -> Time {
        NOW + Duration::from_secs(seconds)
    }

    fn entry(
        seq: i32,
        key: Option<String>,
        event: CallEvent,
        written: u64,
        result: EntryResult,
    ) -> EntryView {
        EntryView {
            seq,
            call_kind: CallKind::Repeat,
            event,
            name: "poll".into(),
            key,
            line: None,
            at: at(written),
            result,
        }
    }

    #[test]
    fn ticks_are_listed_newest_first_with_how_late_they_ended() {
        let null = || EntryResult::Payload(Value::Null);
        let due = |seconds| Some(at(seconds).to_string());
        let missed =
            EntryResult::Payload(json!({ "from": at(0).to_string(), "to": at(60).to_string(), "count": 2 }));
        let failure = EntryResult::Failure(Failure::stop("<b>no</b>"));
        let journal = [
            entry(1, Some(format!("missed {}", at(0))), CallEvent::Failed, 90, missed),
            entry(2, due(120), CallEvent::Tried, 130, EntryResult::Failure(Failure::stop("once"))),
            entry(2, due(120), CallEvent::Done, 190, null()),
            entry(3, due(180), CallEvent::Failed, 195, failure),
            entry(4, due(240), CallEvent::Done, 241, null()),
            entry(5, None, CallEvent::Begun, 241, EntryResult::Payload(json!({ "ticks": 3 }))),
        ];
        let repeats = repeats(&journal, CLOCK);
        assert_eq!((repeats.len(), repeats[0].text.as_str()), (1, "3 ticks have run"));
        let lines: Vec<(&str, &str)> =
            repeats[0].ticks.iter().map(|tick| (tick.pill.word.as_str(), tick.text.as_str())).collect();
        assert_eq!(lines[0], ("done", "ended 1 s after it was due"));
        assert!(lines[1].0 == "failed" && lines[1].1.contains("&lt;b&gt;"), "{lines:?}");
        assert_eq!(
            lines[2],
            ("late", "ended 1 min 10 s after it was due, when the next one was due already")
        );
        assert!(lines[3].0 == "missed" && lines[3].1.starts_with("2 ticks were missed, from"), "{lines:?}");
        assert!(super::repeats(&[], CLOCK).is_empty());
    }
}
