//! What `show` prints about workflows: journal, context and unwinding.

use serde_json::Value;
use windlass::{
    model::{
        Unwind,
        journal::{CallEvent, CallKind},
    },
    operate::views::{EntryResult, EntryView, Journal},
};

use super::section;
use crate::{
    durations, out,
    table::{self, Column, column},
};

/// How many characters of a value are shown.
const VALUE_WIDTH: usize = 200;

pub(super) fn sections(workflow: &Journal) -> String {
    let mut page = String::new();
    if !workflow.context.is_empty() {
        let line = |(name, value): (&String, &Value)| {
            format!("{} = {}\n", out::plain(name), short(&value.to_string()))
        };
        page += &section("context", &workflow.context.iter().map(line).collect::<String>());
    }
    if !workflow.journal.is_empty() {
        // A section is indented by two.
        let width = out::width().map(|width| width.saturating_sub(2));
        let mut text = String::new();
        if workflow.omitted > 0 {
            let omitted = out::thousands(workflow.omitted as u64);
            text += &format!("… {omitted} earlier entries; --all shows them\n");
        }
        text += &table::render(&COLUMNS, &rows(workflow), width);
        page += &section("journal", &text);
    }
    page
}

fn rows(workflow: &Journal) -> Vec<Vec<String>> {
    let mut previous_at = workflow.previous_at;
    let row = |entry: &EntryView| {
        let since = previous_at
            .replace(entry.at)
            .map(|previous| format!("+{}", durations::format(entry.at - previous)));
        let key = entry.key.as_ref().map(|key| format!("[{key}]")).unwrap_or_default();
        vec![
            entry.seq.to_string(),
            entry.call_kind.to_string(),
            out::plain(&format!("{}{key}", entry.name)),
            entry.event.to_string().replace('_', " "),
            entry.at.to_string(),
            since.unwrap_or_default(),
            entry.line.as_deref().map(out::plain).unwrap_or_default(),
            entry_text(entry),
        ]
    };
    workflow.journal.iter().map(row).collect()
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
fn entry_text(entry: &EntryView) -> String {
    let value = match &entry.result {
        EntryResult::Failure(failure) => return short(&failure.to_string()),
        EntryResult::Payload(value) => value,
    };
    match (entry.call_kind, entry.event, value) {
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
