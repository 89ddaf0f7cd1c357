//! The journal of a workflow, or its last entries, and its context.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use windlass_model::{
    Failure, JobId, JournalEntry, Payload, Time,
    journal::{CallEvent, CallKind},
};
use windlass_store::{JournalEnd, PayloadsOf};
use windlass_workflow::{Error, failure_of};

use super::{PAGE_BYTES, rows_within, size};
use crate::Operator;

/// Entries of a journal, and the values of the context; both are empty if the job is no workflow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Journal {
    /// The entries, by position.
    pub journal: Vec<EntryView>,
    /// The values of the context, by name.
    pub context: Map<String, Value>,
    /// How many earlier entries were left out; of very many, at least so many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
    /// When the entry before the first of these was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_at: Option<Time>,
}

/// A page of the entries of a journal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JournalPage {
    /// The entries, by position.
    pub journal: Vec<EntryView>,
    /// The next page has the entries after this one; `None` on the last page.
    pub next_after: Option<i32>,
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
    /// Reads the last `limit` entries, at most [`PAGE_BYTES`] of them; or, without a limit, all.
    pub(super) async fn read(operator: &Operator, id: JobId, limit: Option<usize>) -> Result<Journal, Error> {
        let inspect = operator.inspect();
        let (entries, omitted, previous_at) = match limit {
            None => (inspect.journal(id, None, usize::MAX).await?, 0, None),
            Some(limit) => last_entries(operator, id, limit, PAGE_BYTES).await?,
        };
        let journal = entries.into_iter().map(|entry| EntryView::new(operator, entry)).collect();
        let context = inspect.context(id).await?;
        let context = context.into_iter().map(|(name, payload)| (name, value(operator, &payload))).collect();
        Ok(Journal { journal, context, omitted, previous_at })
    }
}

/// The last entries of a journal, at most `limit` with at most `most` bytes, and how many are before them, with the time of the last of those.
async fn last_entries(
    operator: &Operator,
    id: JobId,
    limit: usize,
    most: u64,
) -> Result<(Vec<JournalEntry>, usize, Option<Time>), Error> {
    let inspect = operator.inspect();
    let JournalEnd { entries: heads, before } = inspect.journal_end(id, limit.saturating_add(1)).await?;
    let newest_first: Vec<u64> = heads.iter().rev().take(limit).map(|head| head.bytes).collect();
    let shown = rows_within(&newest_first, most);
    let (left_out, shown) = heads.split_at(heads.len() - shown);
    let omitted = usize::try_from(before).unwrap_or(usize::MAX).saturating_add(left_out.len());
    let previous_at = left_out.last().map(|head| head.entry.at);
    let entries = match shown.first() {
        // The one before the first has a smaller number, whether it is there or not.
        Some(first) => inspect.journal(id, first.entry.seq.checked_sub(1), shown.len()).await?,
        None => Vec::new(),
    };
    Ok((entries, omitted, previous_at))
}

impl JournalPage {
    /// Reads a page: at most `limit` entries after a position, with at most [`PAGE_BYTES`] of results.
    pub async fn read(
        operator: &Operator,
        id: JobId,
        after: Option<i32>,
        limit: usize,
    ) -> Result<JournalPage, Error> {
        let inspect = operator.inspect();
        let one_more = limit.saturating_add(1);
        let sizes = inspect.payload_sizes(PayloadsOf::Journal { job: id, after }, one_more).await?;
        let rows = rows_within(&sizes, PAGE_BYTES).min(limit);
        let entries = inspect.journal(id, after, rows).await?;
        let next_after = entries.last().filter(|_| rows < sizes.len()).map(|entry| entry.seq);
        let journal = entries.into_iter().map(|entry| EntryView::new(operator, entry)).collect();
        Ok(JournalPage { journal, next_after })
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
