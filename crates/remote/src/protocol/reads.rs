//! What running code reads: journals, inboxes, the ends of children, branches.

use serde::{Deserialize, Serialize};
use windlass_model::{BranchCounts, BranchNo, BranchPoll, BranchPosition, JobId, Reason, Rev, State, Time};
use windlass_store::{ChildStates, Summary};

use super::{
    calls::{Ended, requests},
    job::Signal,
    payload::WirePayload,
    schema::described,
    shared::{
        answer::{ContextValue, Entry, Watch},
        is_default,
    },
};

requests! {
    /// Reads a journal by position.
    Journal "journal" -> JournalPage {
        /// The workflow.
        job: JobId,
        /// Only entries after this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<i32>,
        /// The most entries.
        #[serde(default = "page", skip_serializing_if = "is_page")]
        limit: usize,
    }

    /// Reads the beginnings of several journals.
    Journals "journals" -> JournalsAnswer {
        /// The workflows.
        jobs: Vec<JobId>,
    }

    /// Reads the context of a workflow.
    Context "context" -> ContextAnswer {
        /// The workflow.
        job: JobId,
    }

    /// Reads an inbox, unreadable signals included.
    Inbox "inbox" -> InboxAnswer {
        /// The job.
        job: JobId,
        /// The most signals; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    }

    /// Reads the children whose end one wait counts, in the order of their ids.
    ChildEnds "child-ends" -> ChildEndsPage {
        /// The parent.
        job: JobId,
        /// The revision of the change that submitted them.
        rev: Rev,
        /// Only children after this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<JobId>,
        /// The most children.
        #[serde(default = "page", skip_serializing_if = "is_page")]
        limit: usize,
    }

    /// Reads the branches of a job, by number.
    Branches "branches" -> BranchesAnswer {
        /// The job.
        job: JobId,
    }

    /// Reads children of a branch, in the order of their ids.
    BranchChildren "branch-children" -> BranchChildrenPage {
        /// The job.
        job: JobId,
        /// The number of its branch.
        branch: BranchNo,
        /// Which children.
        #[serde(default)]
        states: Which,
        /// Only children after this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<JobId>,
        /// The most children.
        #[serde(default = "page", skip_serializing_if = "is_page")]
        limit: usize,
    }

    /// Reads the store's clock.
    Clock "clock" -> ClockAnswer {}
}

const fn page() -> usize {
    super::MAX_PAGE
}

const fn is_page(limit: &usize) -> bool {
    *limit == super::MAX_PAGE
}

described! {
    /// The answer to [`Journal`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct JournalPage {
        /// The entries.
        pub entries: Vec<Entry>,
        /// Whether there are more after them.
        pub more: bool,
    }
}

described! {
    /// The answer to [`Journals`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct JournalsAnswer {
        /// The first page of each journal, in order.
        pub journals: Vec<JournalPage>,
    }
}

described! {
    /// The answer to [`Context`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct ContextAnswer {
        /// The values.
        pub context: Vec<ContextValue>,
    }
}

described! {
    /// The answer to [`Inbox`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct InboxAnswer {
        /// The signals, oldest first.
        pub signals: Vec<Signal>,
    }
}

described! {
    /// The answer to [`ChildEnds`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct ChildEndsPage {
        /// The children.
        pub children: Vec<ChildEnd>,
        /// Whether there are more after them.
        pub more: bool,
    }
}

described! {
    /// A child whose end a job waits for; see [`windlass_store::ChildEnd`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct ChildEnd {
        /// The child.
        pub id: JobId,
        /// Its kind.
        pub kind: String,
        /// The parent's name for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        /// How it ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub end: Option<Ended>,
    }
}

impl From<windlass_store::ChildEnd> for ChildEnd {
    fn from(child: windlass_store::ChildEnd) -> ChildEnd {
        let windlass_store::ChildEnd { id, kind, key, ended } = child;
        ChildEnd { id, kind, key, end: ended.map(Into::into) }
    }
}

impl From<ChildEnd> for windlass_store::ChildEnd {
    fn from(child: ChildEnd) -> windlass_store::ChildEnd {
        let ChildEnd { id, kind, key, end } = child;
        windlass_store::ChildEnd { id, kind, key, ended: end.map(Into::into) }
    }
}

described! {
    /// The answer to [`Branches`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct BranchesAnswer {
        /// The branches.
        pub branches: Vec<Branch>,
    }
}

described! {
    /// A branch of a job; see [`windlass_store::Branch`], which says what each field is.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[expect(missing_docs, reason = "the fields are those of `windlass_store::Branch`")]
    pub struct Branch {
        pub job: JobId,
        pub number: BranchNo,
        pub name: String,
        #[serde(default)]
        pub spawns: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<WirePayload>,
        #[serde(default)]
        pub sealed: bool,
        #[serde(default)]
        pub merged: bool,
        #[serde(default)]
        pub cancels_children: bool,
        pub spawned: i64,
        pub started: i64,
        pub done: i64,
        pub failed: i64,
        pub cancelled: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub watch: Option<Watch>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub merge_record: Option<String>,
        pub opened_at: Time,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sealed_at: Option<Time>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub merged_at: Option<Time>,
        #[serde(default)]
        pub poll: Poll,
    }
}

described! {
    /// The result of a branch's last poll; see [`BranchPoll`], which says what each field is.
    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    #[expect(missing_docs, reason = "the fields are those of `BranchPoll`")]
    pub struct Poll {
        pub at: Option<Time>,
        pub next_at: Option<Time>,
        pub interval: f64,
        pub polls: u32,
        pub ended: i64,
        pub pending: i64,
        pub never_started: i64,
        pub running: i64,
        pub missing: i64,
        pub rate: f64,
        pub eta: Option<f64>,
        pub counted_at: Option<Time>,
        pub searched_at: Option<Time>,
        pub redelivered: u64,
        pub redelivered_at: Option<Time>,
    }
}

impl From<BranchPoll> for Poll {
    fn from(poll: BranchPoll) -> Poll {
        Poll {
            at: poll.at,
            next_at: poll.next_at,
            interval: poll.interval,
            polls: poll.polls,
            ended: poll.ended,
            pending: poll.pending,
            never_started: poll.never_started,
            running: poll.running,
            missing: poll.missing,
            rate: poll.rate,
            eta: poll.eta,
            counted_at: poll.counted_at,
            searched_at: poll.searched_at,
            redelivered: poll.redelivered,
            redelivered_at: poll.redelivered_at,
        }
    }
}

impl From<Poll> for BranchPoll {
    fn from(poll: Poll) -> BranchPoll {
        BranchPoll {
            at: poll.at,
            next_at: poll.next_at,
            interval: poll.interval,
            polls: poll.polls,
            ended: poll.ended,
            pending: poll.pending,
            never_started: poll.never_started,
            running: poll.running,
            missing: poll.missing,
            rate: poll.rate,
            eta: poll.eta,
            counted_at: poll.counted_at,
            searched_at: poll.searched_at,
            redelivered: poll.redelivered,
            redelivered_at: poll.redelivered_at,
        }
    }
}

impl From<windlass_store::Branch> for Branch {
    fn from(branch: windlass_store::Branch) -> Branch {
        Branch {
            job: branch.job,
            number: branch.number,
            name: branch.name,
            spawns: branch.spawns,
            cursor: branch.cursor.map(Into::into),
            sealed: branch.sealed,
            merged: branch.merged,
            cancels_children: branch.cancels_children,
            spawned: branch.spawned,
            started: branch.counts.started,
            done: branch.counts.done,
            failed: branch.counts.failed,
            cancelled: branch.counts.cancelled,
            watch: branch.watch.map(Into::into),
            merge_record: branch.merge_record,
            opened_at: branch.opened_at,
            sealed_at: branch.sealed_at,
            merged_at: branch.merged_at,
            poll: branch.poll.into(),
        }
    }
}

impl From<Branch> for windlass_store::Branch {
    fn from(branch: Branch) -> windlass_store::Branch {
        let Branch { started, done, failed, cancelled, .. } = branch;
        windlass_store::Branch {
            job: branch.job,
            number: branch.number,
            name: branch.name,
            spawns: branch.spawns,
            cursor: branch.cursor.map(Into::into),
            sealed: branch.sealed,
            merged: branch.merged,
            cancels_children: branch.cancels_children,
            spawned: branch.spawned,
            counts: BranchCounts { started, done, failed, cancelled },
            watch: branch.watch.map(Into::into),
            merge_record: branch.merge_record,
            opened_at: branch.opened_at,
            sealed_at: branch.sealed_at,
            merged_at: branch.merged_at,
            poll: branch.poll.into(),
        }
    }
}

described! {
    /// Which children of a branch are meant; see [`ChildStates`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[expect(missing_docs, reason = "the variants are those of `ChildStates`")]
    pub enum Which {
        #[default]
        All,
        Live,
        Ended,
        Unsuccessful,
    }
}

impl From<ChildStates> for Which {
    fn from(states: ChildStates) -> Which {
        match states {
            ChildStates::All => Which::All,
            ChildStates::Live => Which::Live,
            ChildStates::Ended => Which::Ended,
            ChildStates::Unsuccessful => Which::Unsuccessful,
        }
    }
}

impl From<Which> for ChildStates {
    fn from(which: Which) -> ChildStates {
        match which {
            Which::All => ChildStates::All,
            Which::Live => ChildStates::Live,
            Which::Ended => ChildStates::Ended,
            Which::Unsuccessful => ChildStates::Unsuccessful,
        }
    }
}

described! {
    /// The answer to [`BranchChildren`].
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct BranchChildrenPage {
        /// The children.
        pub children: Vec<BranchChild>,
        /// Whether there are more after them.
        pub more: bool,
    }
}

described! {
    /// A child of a branch; see [`windlass_store::BranchChild`] and [`Summary`], which say what each field is.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    #[expect(missing_docs, reason = "the fields are those of `windlass_store::BranchChild`")]
    pub struct BranchChild {
        pub id: JobId,
        pub kind: String,
        pub version: i32,
        pub queue: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        pub state: State,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stage: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<Reason>,
        #[serde(default, skip_serializing_if = "is_default")]
        pub priority: i16,
        #[serde(default, skip_serializing_if = "is_default")]
        pub attempts: u32,
        pub submitted_at: Time,
        pub due_at: Time,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub finished_at: Option<Time>,
        pub branch: BranchNo,
        #[serde(default, skip_serializing_if = "is_default")]
        pub spawn: i16,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub item: String,
        pub items: u32,
        #[serde(default, skip_serializing_if = "is_default")]
        pub items_done: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub end: Option<Ended>,
        pub input: WirePayload,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub data: Option<WirePayload>,
    }
}

impl From<windlass_store::BranchChild> for BranchChild {
    fn from(child: windlass_store::BranchChild) -> BranchChild {
        let (summary, position) = (child.summary, child.branch_position);
        BranchChild {
            id: summary.id,
            kind: summary.kind,
            version: summary.version,
            queue: summary.queue,
            key: summary.key,
            state: summary.state,
            stage: summary.stage,
            reason: summary.reason,
            priority: summary.priority,
            attempts: summary.attempts,
            submitted_at: summary.submitted_at,
            due_at: summary.due_at,
            finished_at: summary.finished_at,
            branch: position.branch,
            spawn: position.spawn,
            item: position.item,
            items: position.items,
            items_done: child.items_done,
            end: child.ended.map(Into::into),
            input: child.input.into(),
            data: child.data.map(Into::into),
        }
    }
}

impl From<BranchChild> for windlass_store::BranchChild {
    fn from(child: BranchChild) -> windlass_store::BranchChild {
        windlass_store::BranchChild {
            summary: Summary {
                id: child.id,
                kind: child.kind,
                version: child.version,
                queue: child.queue,
                key: child.key,
                state: child.state,
                stage: child.stage,
                reason: child.reason,
                priority: child.priority,
                attempts: child.attempts,
                submitted_at: child.submitted_at,
                due_at: child.due_at,
                finished_at: child.finished_at,
            },
            branch_position: BranchPosition {
                branch: child.branch,
                spawn: child.spawn,
                item: child.item,
                items: child.items,
            },
            items_done: child.items_done,
            ended: child.end.map(Into::into),
            input: child.input.into(),
            data: child.data.map(Into::into),
        }
    }
}

described! {
    /// The answer to [`Clock`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub struct ClockAnswer {
        /// The store's clock.
        pub now: Time,
    }
}
