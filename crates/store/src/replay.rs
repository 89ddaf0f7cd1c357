//! The reads that code of machines and workflows makes while it runs.

use serde::Serialize;
use windlass_model::{
    BranchCounts, BranchNo, BranchPoll, BranchPosition, BranchWatch, JobId, JournalEntry, Payload, Rev,
    Signal, Time,
};

use crate::{Fut, JobEnd, Summary};

/// What an attempt reads: the journal that a workflow replays, signals, the ends of children, the progress of branches, rows
/// to spawn from. Called by the crate `windlass-workflow` for the job that it runs, and by people through [`crate::Inspect`].
///
/// Reads only: they see committed state, take no locks and may be slightly behind each other. An attempt decides nothing by
/// them that its commit does not check, because the commit is fenced by epoch and revision.
pub trait Replay: Send + Sync + 'static {
    /// A workflow's journal, by position: entries after `after`, at most `limit`. One range is read, however long.
    fn journal(&self, id: JobId, after: Option<i32>, limit: usize) -> Fut<'_, Vec<JournalEntry>>;

    /// The complete journals of some workflows, in order.
    fn journals<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Vec<JournalEntry>>> {
        Box::pin(async move {
            let mut journals = Vec::with_capacity(ids.len());
            for id in ids {
                journals.push(self.journal(*id, None, usize::MAX).await?);
            }
            Ok(journals)
        })
    }

    /// The values in a workflow's context, by name.
    fn context(&self, id: JobId) -> Fut<'_, Vec<(String, Payload)>>;

    /// The signals in a job's inbox, unreadable ones included, oldest first, at most `limit`.
    fn inbox(&self, id: JobId, limit: usize) -> Fut<'_, Vec<Signal>>;

    /// The children whose end one wait of a job counts (see [`windlass_model::NewJob::parent_rev`]), in the order of their
    /// ids: those after `after`, at most `limit`.
    fn child_ends(
        &self,
        parent: JobId,
        parent_rev: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Fut<'_, Vec<ChildEnd>>;

    /// The branches of a job, by number.
    fn branches(&self, job: JobId) -> Fut<'_, Vec<Branch>>;

    /// Children of a branch, in the order of their ids: a page of them.
    fn branch_children<'a>(&'a self, filter: &'a BranchChildFilter) -> Fut<'a, Vec<BranchChild>>;

    /// Rows of a table of the user's own in the same database, in the order of a key: those after `after` (a key as
    /// [`SourceRow::after`] has it), at most `limit`.
    fn source_rows<'a>(
        &'a self,
        source: &'a TableSource,
        after: Option<&'a str>,
        limit: usize,
    ) -> Fut<'a, Vec<SourceRow>>;

    /// The store's clock.
    fn clock(&self) -> Fut<'_, Time>;
}

/// A child whose end a job waits for.
#[derive(Clone, PartialEq, Debug)]
pub struct ChildEnd {
    /// The child.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// The parent's name for it.
    pub key: Option<String>,
    /// How it ended; `None` if it has not.
    pub ended: Option<JobEnd>,
}

/// A branch of a job.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Branch {
    /// The job.
    pub job: JobId,
    /// Its number in the job.
    pub number: BranchNo,
    /// Its name.
    pub name: String,
    /// The names of its spawns.
    pub spawns: Vec<String>,
    /// The positions of its sources.
    #[serde(skip)]
    pub cursor: Option<Payload>,
    /// Whether no child is spawned in it any more.
    pub sealed: bool,
    /// Whether it was merged.
    pub merged: bool,
    /// Whether its live children are being cancelled.
    pub cancels_children: bool,
    /// How many children were spawned.
    pub spawned: i64,
    /// How many of them have started and ended.
    pub counts: BranchCounts,
    /// The counts at which its job gets a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<BranchWatch>,
    /// The rule of its merge, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_record: Option<String>,
    /// When it was opened.
    pub opened_at: Time,
    /// When it was sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed_at: Option<Time>,
    /// When it was merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_at: Option<Time>,
    /// The result of its last poll.
    pub poll: BranchPoll,
}

/// Which children of a branch to list.
#[derive(Clone, Debug)]
pub struct BranchChildFilter {
    /// The job.
    pub job: JobId,
    /// Its branch.
    pub branch: BranchNo,
    /// Which of the children.
    pub states: ChildStates,
    /// Only after this one: the last of the previous page.
    pub after: Option<JobId>,
    /// How many at most.
    pub limit: usize,
}

/// Which children of a branch are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildStates {
    /// All.
    All,
    /// Those that have not ended.
    Live,
    /// Those that have.
    Ended,
    /// Those that failed or were cancelled.
    Unsuccessful,
}

/// A child of a branch, or a block of them.
#[derive(Clone, PartialEq, Debug)]
pub struct BranchChild {
    /// What lists show.
    pub summary: Summary,
    /// Its position in the branch.
    pub branch_position: BranchPosition,
    /// How many items of a block are done.
    pub items_done: u32,
    /// How it ended; `None` if it has not.
    pub ended: Option<JobEnd>,
    /// The encoded input.
    pub input: Payload,
    /// The progress of a block, or the data of a machine's stage.
    pub data: Option<Payload>,
}

impl BranchChild {
    /// How many bytes its payloads have.
    pub fn payload_bytes(&self) -> u64 {
        let data = self.data.as_ref().map_or(0, |data| data.bytes.len());
        let end = self.ended.as_ref().map_or(0, JobEnd::output_bytes);
        (self.input.bytes.len() + data) as u64 + end
    }
}

/// A table of the user's own, or a query, that is read in the order of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableSource {
    /// The text after `from`: a table, or a query in parentheses with a name.
    pub from: String,
    /// The column that orders them: unique, and never null.
    pub key: String,
    /// The text after `where`, if any.
    pub filter: Option<String>,
}

/// A row of a [`TableSource`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRow {
    /// Its key in the store's own format, to continue after it.
    pub after: String,
    /// Its key as shown to people.
    pub key: String,
    /// The row as a JSON object.
    pub row: String,
}
