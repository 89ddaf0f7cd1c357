//! What `show` prints about workflows: journal, context and unwinding.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};
use windlass::{
    Engine, Payload, Time, failure_of,
    model::{
        JournalEntry, Unwind,
        journal::{CallEvent, CallKind},
    },
    store::Job,
};

use super::section;
use crate::{
    durations, out,
    table::{self, Column, column},
};

/// How many entries a page shows without --all.
const SHOWN: usize = 50;
/// How many entries are read at a time.
const PAGE: usize = 1_000;
/// How many characters of a value are shown.
const VALUE_WIDTH: usize = 200;

/// The journal, or its last entries, and the context.
pub(super) struct Workflow {
    entries: VecDeque<JournalEntry>,
    /// When the entry before the first of these was written.
    previous_at: Option<Time>,
    /// How many earlier entries are not shown.
    omitted: usize,
    context: Map<String, Value>,
}

impl Workflow {
    /// Reads them; both are empty if the job is no workflow.
    pub(super) async fn read(job: &Job, engine: &Engine, all: bool) -> anyhow::Result<Workflow> {
        let (id, inspect) = (job.summary.id, engine.inspect());
        let (mut entries, mut previous_at, mut omitted) = (VecDeque::new(), None, 0);
        let mut after = None;
        loop {
            let page = inspect.journal(id, after, PAGE).await?;
            let last = page.len() < PAGE;
            after = page.last().map(|entry| entry.seq);
            entries.extend(page);
            while !all && entries.len() > SHOWN {
                previous_at = entries.pop_front().map(|entry: JournalEntry| entry.at);
                omitted += 1;
            }
            if last {
                break;
            }
        }
        let context = inspect.context(id).await?;
        let context = context.into_iter().map(|(name, payload)| (name, value(engine, &payload))).collect();
        Ok(Workflow { entries, previous_at, omitted, context })
    }

    pub(super) fn add_to_json(&self, answer: &mut Value, engine: &Engine) {
        let entry = |entry: &JournalEntry| {
            let mut json = json!({
                "seq": entry.seq, "op": entry.op, "mark": entry.mark, "name": entry.name, "key": entry.key,
                "line": entry.line, "at": entry.at,
            });
            match failure_of(entry) {
                Some(failure) => json["failure"] = json!(failure),
                None => json["payload"] = value(engine, &entry.payload),
            }
            json
        };
        answer["journal"] = self.entries.iter().map(entry).collect();
        answer["context"] = Value::Object(self.context.clone());
    }

    pub(super) fn sections(&self, engine: &Engine) -> String {
        let mut page = String::new();
        if !self.context.is_empty() {
            let line = |(name, value): (&String, &Value)| {
                format!("{} = {}\n", out::plain(name), short(&value.to_string()))
            };
            page += &section("context", &self.context.iter().map(line).collect::<String>());
        }
        if !self.entries.is_empty() {
            // A section is indented by two.
            let width = out::width().map(|width| width.saturating_sub(2));
            let mut text = String::new();
            if self.omitted > 0 {
                text +=
                    &format!("… {} earlier entries; --all shows them\n", out::thousands(self.omitted as u64));
            }
            text += &table::render(&COLUMNS, &self.rows(engine), width);
            page += &section("journal", &text);
        }
        page
    }

    fn rows(&self, engine: &Engine) -> Vec<Vec<String>> {
        let mut previous_at = self.previous_at;
        let row = |entry: &JournalEntry| {
            let since = previous_at
                .replace(entry.at)
                .map(|previous| format!("+{}", durations::format(entry.at.since(previous))));
            let key = entry.key.as_ref().map(|key| format!("[{key}]")).unwrap_or_default();
            vec![
                entry.seq.to_string(),
                entry.op.to_string(),
                out::plain(&format!("{}{key}", entry.name)),
                entry.mark.to_string().replace('_', " "),
                entry.at.to_string(),
                since.unwrap_or_default(),
                entry.line.as_deref().map(out::plain).unwrap_or_default(),
                entry_text(entry, engine),
            ]
        };
        self.entries.iter().map(row).collect()
    }
}

const COLUMNS: [Column; 8] = [
    Column { align_right: true, ..column("SEQ") },
    column("OP"),
    Column { min_width: Some(12), ..column("CALL") },
    column("STATUS"),
    Column { expendable: 2, ..column("AT") },
    Column { align_right: true, expendable: 1, ..column("SINCE") },
    Column { min_width: Some(12), expendable: 3, ..column("LINE") },
    Column { min_width: Some(16), ..column("VALUE") },
];

/// The value or failure of an entry, on one line.
fn entry_text(entry: &JournalEntry, engine: &Engine) -> String {
    if let Some(failure) = failure_of(entry) {
        return short(&failure.to_string());
    }
    let value = value(engine, &entry.payload);
    match (entry.op, entry.mark, &value) {
        (_, _, Value::Null) => String::new(),
        (CallKind::Child, CallEvent::Begun, Value::String(id)) => format!("job {id}"),
        (CallKind::Branch, CallEvent::Begun, _) => "opened".to_owned(),
        (CallKind::Branch, CallEvent::Done, _) => "sealed".to_owned(),
        (CallKind::Merge, CallEvent::Done, merged) => {
            let count = |what: &str| format!("{} {what}", out::thousands(merged[what].as_u64().unwrap_or(0)));
            ["spawned", "done", "failed", "cancelled"].map(count).join(", ")
        }
        (
            CallKind::Sleep | CallKind::Signal | CallKind::WaitUntil | CallKind::ContinueIf | CallKind::Merge,
            CallEvent::Begun,
            Value::String(at),
        ) => format!("until {at}"),
        (_, _, value) => short(&value.to_string()),
    }
}

/// How the workflow is being unwound, or was.
pub(super) fn unwind_text(unwind: &Unwind, ended: bool) -> String {
    let end = match unwind.reason {
        Some(reason) => format!("failed ({reason})"),
        None => "cancelled".to_owned(),
    };
    let progress = match ended {
        true => "its steps were undone".to_owned(),
        false => format!("its steps are being undone; then it ends as {end}"),
    };
    format!("{progress}: {}", out::plain(&unwind.failure.message))
}

/// A payload as JSON, or its size if this program cannot decode it.
fn value(engine: &Engine, payload: &Payload) -> Value {
    let plain = engine.decode(payload).ok();
    plain
        .and_then(|plain| serde_json::from_slice(&plain).ok())
        .unwrap_or_else(|| json!(format!("<{} bytes, codec {}>", payload.bytes.len(), payload.codec)))
}

fn short(text: &str) -> String {
    console::truncate_str(&out::plain(text), VALUE_WIDTH, "…").into_owned()
}

#[cfg(test)]
mod tests {
    use windlass::{Failure, Reason};

    use super::*;

    #[test]
    fn the_unwind_line_has_the_outcome_and_the_failure() {
        let failure = Failure::stop("no van\n is free");
        let unwind = Unwind { reason: Some(Reason::Exhausted), failure: failure.clone() };
        assert_eq!(
            unwind_text(&unwind, false),
            "its steps are being undone; then it ends as failed (exhausted): no van  is free"
        );
        assert_eq!(unwind_text(&unwind, true), "its steps were undone: no van  is free");
        let cancelled = unwind_text(&Unwind { reason: None, failure }, false);
        assert!(cancelled.contains("then it ends as cancelled: "), "{cancelled}");
    }
}
