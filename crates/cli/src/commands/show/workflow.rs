//! What is known of a workflow beside what is known of every job: its journal, its context, and how it is being unwound.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};
use windlass::{
    Engine, Payload, Time, failure_of,
    model::{
        Entry, Unwind,
        journal::{Mark, Op},
    },
    store::Job,
};

use super::block;
use crate::{
    out, span,
    table::{self, Column, column},
};

/// How many entries a page shows unless all are asked for.
const SHOWN: usize = 50;
/// How many entries are read at a time.
const PAGE: usize = 1_000;
/// How much of a result is shown on a line, in letters.
const SHORT: usize = 200;

/// A workflow's journal, or the end of it, and its context.
pub(super) struct Workflow {
    entries: VecDeque<Entry>,
    /// When the entry before the first of these was written.
    before: Option<Time>,
    /// How many entries there are before these.
    left_out: usize,
    context: Map<String, Value>,
}

impl Workflow {
    /// Reads it; of a job that is no workflow there is nothing.
    pub(super) async fn of(job: &Job, engine: &Engine, all: bool) -> anyhow::Result<Workflow> {
        let (id, inspect) = (job.summary.id, engine.inspect());
        let (mut entries, mut before, mut left_out) = (VecDeque::new(), None, 0);
        let mut after = None;
        loop {
            let page = inspect.journal(id, after, PAGE).await?;
            let last = page.len() < PAGE;
            after = page.last().map(|entry| entry.seq);
            entries.extend(page);
            while !all && entries.len() > SHOWN {
                before = entries.pop_front().map(|entry: Entry| entry.at);
                left_out += 1;
            }
            if last {
                break;
            }
        }
        let context = inspect.context(id).await?;
        let context = context.into_iter().map(|(name, payload)| (name, value(engine, &payload))).collect();
        Ok(Workflow { entries, before, left_out, context })
    }

    pub(super) fn tell(&self, told: &mut Value, engine: &Engine) {
        let entry = |entry: &Entry| {
            let mut told = json!({
                "seq": entry.seq, "op": entry.op, "mark": entry.mark, "name": entry.name, "key": entry.key,
                "line": entry.line, "at": entry.at,
            });
            match failure_of(entry) {
                Some(failure) => told["failure"] = json!(failure),
                None => told["payload"] = value(engine, &entry.payload),
            }
            told
        };
        told["journal"] = self.entries.iter().map(entry).collect();
        told["context"] = Value::Object(self.context.clone());
    }

    /// The blocks of a page.
    pub(super) fn blocks(&self, engine: &Engine) -> String {
        let mut page = String::new();
        if !self.context.is_empty() {
            let line = |(name, value): (&String, &Value)| {
                format!("{} = {}\n", out::plain(name), short(&value.to_string()))
            };
            page += &block("context", &self.context.iter().map(line).collect::<String>());
        }
        if !self.entries.is_empty() {
            // Two columns are the block's own.
            let room = out::width().map(|width| width.saturating_sub(2));
            let mut text = String::new();
            if self.left_out > 0 {
                text += &format!(
                    "… {} entries before these; --all shows them too\n",
                    out::thousands(self.left_out as u64)
                );
            }
            text += &table::set(&COLUMNS, &self.rows(engine), room);
            page += &block("journal", &text);
        }
        page
    }

    fn rows(&self, engine: &Engine) -> Vec<Vec<String>> {
        let mut before = self.before;
        let row = |entry: &Entry| {
            let since =
                before.replace(entry.at).map(|before| format!("+{}", span::show(entry.at.since(before))));
            let key = entry.key.as_ref().map(|key| format!("[{key}]")).unwrap_or_default();
            vec![
                entry.seq.to_string(),
                entry.op.to_string(),
                out::plain(&format!("{}{key}", entry.name)),
                entry.mark.to_string().replace('_', " "),
                entry.at.to_string(),
                since.unwrap_or_default(),
                entry.line.as_deref().map(out::plain).unwrap_or_default(),
                said(entry, engine),
            ]
        };
        self.entries.iter().map(row).collect()
    }
}

const COLUMNS: [Column; 8] = [
    Column { right: true, ..column("SEQ") },
    column("OP"),
    Column { least: Some(12), ..column("CALL") },
    column("HOW FAR"),
    Column { expendable: 2, ..column("WHEN") },
    Column { right: true, expendable: 1, ..column("SINCE") },
    Column { least: Some(12), expendable: 3, ..column("WHERE") },
    Column { least: Some(16), ..column("WHAT") },
];

/// What an entry says, on a line.
fn said(entry: &Entry, engine: &Engine) -> String {
    if let Some(failure) = failure_of(entry) {
        return short(&failure.to_string());
    }
    let value = value(engine, &entry.payload);
    match (entry.op, entry.mark, &value) {
        (_, _, Value::Null) => String::new(),
        (Op::Child, Mark::Begun, Value::String(id)) => format!("job {id}"),
        (Op::Branch, Mark::Begun, _) => "opened".to_owned(),
        (Op::Branch, Mark::Done, _) => "sealed".to_owned(),
        (Op::Merge, Mark::Done, merged) => {
            let count = |what: &str| format!("{} {what}", out::thousands(merged[what].as_u64().unwrap_or(0)));
            ["spawned", "done", "failed", "cancelled"].map(count).join(", ")
        }
        (
            Op::Sleep | Op::Signal | Op::WaitUntil | Op::ContinueIf | Op::Merge,
            Mark::Begun,
            Value::String(at),
        ) => format!("until {at}"),
        (_, _, value) => short(&value.to_string()),
    }
}

/// The line of a page that says how a workflow is being unwound, or was.
pub(super) fn unwinding(unwind: &Unwind, ended: bool) -> String {
    let end = match unwind.reason {
        Some(reason) => format!("failed ({reason})"),
        None => "cancelled".to_owned(),
    };
    let so_far = if ended { "its steps were undone" } else { "its steps are being undone; then it is" };
    let end = if ended { String::new() } else { format!(" {end}") };
    format!("{so_far}{end}: {}", out::plain(&unwind.failure.message))
}

/// A payload as plain JSON, or what it is if this program cannot read it.
fn value(engine: &Engine, payload: &Payload) -> Value {
    let plain = engine.decode(payload).ok();
    plain
        .and_then(|plain| serde_json::from_slice(&plain).ok())
        .unwrap_or_else(|| json!(format!("<{} bytes, codec {}>", payload.bytes.len(), payload.codec)))
}

fn short(text: &str) -> String {
    console::truncate_str(&out::plain(text), SHORT, "…").into_owned()
}

#[cfg(test)]
mod tests {
    use windlass::{Failure, Reason};

    use super::*;

    #[test]
    fn how_it_is_unwound_is_said() {
        let failure = Failure::stop("no van\n is free");
        let unwind = Unwind { reason: Some(Reason::Exhausted), failure: failure.clone() };
        assert_eq!(
            unwinding(&unwind, false),
            "its steps are being undone; then it is failed (exhausted): no van  is free"
        );
        assert_eq!(unwinding(&unwind, true), "its steps were undone: no van  is free");
        let cancelled = unwinding(&Unwind { reason: None, failure }, false);
        assert!(cancelled.contains("then it is cancelled: "), "{cancelled}");
    }
}
