//! The journal of a workflow, or its last entries, and its context.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use windlass_model::{
    Failure, JobId, JournalEntry, Payload, Time,
    journal::{CallEvent, CallKind},
};
use windlass_workflow::{Error, failure_of};

use super::size;
use crate::Operator;

/// How many entries are read at a time.
const PAGE: usize = 1_000;

/// Entries of a journal, and the values of the context; both are empty if the job is no workflow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Journal {
    /// The entries, by position.
    pub journal: Vec<EntryView>,
    /// The values of the context, by name.
    pub context: Map<String, Value>,
    /// How many earlier entries were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
    /// When the entry before the first of these was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_at: Option<Time>,
}

/// An entry of a journal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EntryView {
    /// Its position in the journal.
    pub seq: i32,
    /// What was called.
    pub call_kind: CallKind,
    /// What happened to the call.
    pub event: CallEvent,
    /// The call's name.
    pub name: String,
    /// The call's key.
    pub key: Option<String>,
    /// Where in the code the call is.
    pub line: Option<String>,
    /// When the entry was written.
    pub at: Time,
    /// What the call returned, or how it failed.
    #[serde(flatten)]
    pub result: EntryResult,
}

/// What an entry has recorded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryResult {
    /// A value; its size, if this program cannot decode it.
    Payload(Value),
    /// A failure.
    Failure(Failure),
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Journal {
    /// Reads a page: at most `limit` entries after a position.
    pub async fn page(
        operator: &Operator,
        id: JobId,
        after: Option<i32>,
        limit: usize,
    ) -> Result<Vec<EntryView>, Error> {
        let page = operator.inspect().journal(id, after, limit).await?;
        Ok(page.into_iter().map(|entry| EntryView::new(operator, entry)).collect())
    }

    /// Reads the last `limit` entries, or all of them.
    pub(super) async fn read(operator: &Operator, id: JobId, limit: Option<usize>) -> Result<Journal, Error> {
        let inspect = operator.inspect();
        let (mut entries, mut previous_at, mut omitted) = (VecDeque::new(), None, 0);
        let mut after = None;
        loop {
            let page = inspect.journal(id, after, PAGE).await?;
            let last = page.len() < PAGE;
            after = page.last().map(|entry| entry.seq);
            entries.extend(page);
            while limit.is_some_and(|limit| entries.len() > limit) {
                previous_at = entries.pop_front().map(|entry: JournalEntry| entry.at);
                omitted += 1;
            }
            if last {
                break;
            }
        }
        let journal = entries.into_iter().map(|entry| EntryView::new(operator, entry)).collect();
        let context = inspect.context(id).await?;
        let context = context.into_iter().map(|(name, payload)| (name, value(operator, &payload))).collect();
        Ok(Journal { journal, context, omitted, previous_at })
    }
}

impl EntryView {
    fn new(operator: &Operator, entry: JournalEntry) -> EntryView {
        let result = match failure_of(&entry) {
            Some(failure) => EntryResult::Failure(failure),
            None => EntryResult::Payload(value(operator, &entry.payload)),
        };
        let JournalEntry { seq, call_kind, event, name, key, line, at, .. } = entry;
        EntryView { seq, call_kind, event, name, key, line, at, result }
    }
}

/// A payload as JSON, or its size if this program cannot decode it.
fn value(operator: &Operator, payload: &Payload) -> Value {
    let plain = operator.decode(payload).ok();
    plain.and_then(|plain| serde_json::from_slice(&plain).ok()).unwrap_or_else(|| size(payload))
}
