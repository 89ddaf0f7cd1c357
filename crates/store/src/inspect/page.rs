//! What bounds a page: how many rows it may examine, and how many bytes it may have.

use windlass_model::{BranchNo, JobId, JournalEntry, Rev};

use crate::BranchChild;

/// The payloads that [`crate::Inspect::payload_sizes`] measures.
#[derive(Clone, Copy, Debug)]
pub enum PayloadsOf<'a> {
    /// What the entries of a journal after a position have recorded, in order.
    Journal {
        /// The workflow.
        job: JobId,
        /// The position.
        after: Option<i32>,
    },
    /// Outputs of the children that [`crate::Replay::child_ends`] lists, in order: 0 for a child without one.
    ChildEnds {
        /// The parent.
        parent: JobId,
        /// The revision that submitted the children.
        parent_rev: Rev,
        /// Only of children after this one.
        after: Option<JobId>,
    },
    /// Outputs of these jobs, in order: 0 for a job without one.
    Outputs(&'a [JobId]),
}

/// How much of a branch a page of its children may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildBounds {
    /// How many children are examined at most, whatever their states.
    pub examine: usize,
    /// How many bytes the payloads of the returned children have at most. One child is returned however large it is.
    pub bytes: u64,
}

/// A page of the children of a branch.
#[derive(Clone, PartialEq, Debug)]
pub struct BranchChildPage {
    /// The children, in the order of their ids.
    pub children: Vec<BranchChild>,
    /// The next page has the children after this one; `None` if none is left. A page may have few children or none and still not be the
    /// last.
    pub next: Option<JobId>,
    /// How many children were examined for it, about.
    pub examined: usize,
}

/// Items of one spawn of a branch, of which [`crate::Inspect::branch_items`] finds the children.
#[derive(Clone, Copy, Debug)]
pub struct BranchItems<'a> {
    /// The job.
    pub job: JobId,
    /// Its branch.
    pub branch: BranchNo,
    /// The index of the spawn.
    pub spawn: i16,
    /// The items.
    pub items: &'a [String],
}

/// A child of a branch by its item: a job, or a block that begins with the item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ItemChild {
    /// The child.
    pub id: JobId,
    /// Its item, or its first one.
    pub item: String,
    /// The stage that it is in: that of a block says that it is one.
    pub stage: Option<String>,
}

/// The end of a journal.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JournalEnd {
    /// Its last entries, by position.
    pub entries: Vec<JournalHead>,
    /// How many entries are before these; at most [`JournalEnd::COUNTED`] are counted.
    pub before: u64,
}

impl JournalEnd {
    /// How many earlier entries are counted: more than a workflow that is replayed at every claim should have.
    pub const COUNTED: u64 = 100_000;
}

/// An entry of a journal without what its call returned.
#[derive(Clone, PartialEq, Debug)]
pub struct JournalHead {
    /// The entry. Its payload is empty, unless it is one of the engine's own ([`windlass_model::journal::CallKind::Lifecycle`]).
    pub entry: JournalEntry,
    /// How many bytes its payload has.
    pub bytes: u64,
}
