//! Branches: named sets of children that a job opens, fills, seals and merges.
//!
//! A branch is one row in the store, however many children it has: its name, the positions in its sources, how many children were
//! spawned, and what its parent watches for. The commit that ends a child adds to the branch's [`BranchCounts`]; if that meets the
//! parent's [`BranchWatch`], the store sends the parent a signal. [`crate::merge`] makes the watches and decides when a merge is
//! over. [`crate::poll`] finds what a crash between two commits left undone.

mod counts;
mod refusal;

pub use refusal::items_refusal;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Invalid, JobId, Payload, Reason, State,
    limits::{MAX_KEY_BYTES, check_name, check_text, invalid, quoted},
};

/// The name of the signal that a store sends to a parent when the watch of a branch is met. Its payload is the number of the
/// branch. The prefix is reserved, so nobody else can send one.
pub const BRANCH_SIGNAL: &str = "windlass.branch";

/// The most named spawns in one branch. A `spawn_each` is one spawn, however many children it makes.
pub const MAX_SPAWNS: usize = 1_000;

/// The most items in one block of a packed branch.
pub const MAX_BLOCK_ITEMS: usize = 1_000;

/// The number of a branch within its job. The commit that opens the branch chooses one that the job has not used before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BranchNo(pub i64);

impl std::fmt::Display for BranchNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of a child in a branch. With its parent, it identifies the child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BranchPosition {
    /// The branch, among those of its parent.
    pub branch: BranchNo,
    /// Which spawn made it: the index of the spawn's name in the branch.
    pub spawn: i16,
    /// Which item of the spawn's source it is; empty for a spawn of one child.
    pub item: String,
    /// How many items it represents: 1, or the number of items in a block.
    pub items: u32,
}

/// The branch that counts the end of a claimed job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BranchMember {
    /// The job that opened the branch.
    pub parent: JobId,
    /// The branch.
    pub branch: BranchNo,
    /// How many items the job represents that are not counted yet.
    pub items: u32,
}

/// What a change does to a branch of its job, besides submitting children.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BranchUpdate {
    /// The branch.
    pub number: BranchNo,
    /// Opens it under this name.
    pub opened_as: Option<String>,
    /// The names of all its spawns, if one is new.
    pub spawns: Option<Vec<String>>,
    /// The positions in its sources, encoded by the code that reads them.
    pub cursor: Option<Payload>,
    /// Seals it: no more children will be spawned.
    pub seal: bool,
    /// Replaces what the job watches for.
    pub watch: Option<BranchWatch>,
    /// How it is merged, as JSON: for people, and for the code that merges it.
    pub merge_record: Option<String>,
    /// Marks it as merged, successfully or not: the job no longer waits for it.
    pub merged: bool,
    /// Cancels the children that have not ended.
    pub cancel_children: bool,
}

impl BranchUpdate {
    /// Makes an update that changes nothing yet.
    pub fn new(number: BranchNo) -> BranchUpdate {
        BranchUpdate { number, ..BranchUpdate::default() }
    }

    /// Checks the names of the branch and its spawns.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(name) = &self.opened_as {
            check_branch("branch", name)?;
        }
        let Some(spawns) = &self.spawns else { return Ok(()) };
        if spawns.len() > MAX_SPAWNS {
            let why = format!("are {}, more than the {MAX_SPAWNS} allowed", spawns.len());
            let hint = "use `spawn_each` for many children of one kind";
            return Err(invalid("the names of a branch's spawns", why, hint));
        }
        spawns.iter().try_for_each(|name| check_branch("spawn", name))
    }
}

impl BranchPosition {
    /// Checks the item and the number of items.
    pub fn check(&self) -> Result<(), Invalid> {
        check_text("item of a branch", &self.item, MAX_KEY_BYTES)?;
        if self.items == 0 || self.items as usize > MAX_BLOCK_ITEMS {
            let why = format!("has {} items", self.items);
            return Err(invalid("a child of a branch", why, format!("give it 1 to {MAX_BLOCK_ITEMS}")));
        }
        Ok(())
    }
}

/// Checks the name of a branch or of a spawn in one.
pub fn check_branch(what: &str, name: &str) -> Result<(), Invalid> {
    check_name(what, name)?;
    if let Some(bad) = name.chars().find(|character| matches!(character, ',' | '#')) {
        let hint = "use letters, digits and punctuation other than a comma and #, which separate the names of branches";
        return Err(invalid(format!("the {what} {}", quoted(name)), format!("contains {bad:?}"), hint));
    }
    Ok(())
}

/// Whether a job that ends in this state cancels the live children of its unmerged branches: if it was cancelled, or its deadline
/// passed. A job that ends by itself decides that when it merges.
pub fn cancels_children(state: State, reason: Option<Reason>) -> bool {
    state == State::Cancelled || reason == Some(Reason::Expired)
}

/// What a parent waits for in a branch. When the first of these counts is reached, the store sends the parent one
/// [`BRANCH_SIGNAL`] and deletes the watch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BranchWatch {
    /// This many children are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// This many failed or were cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsuccessful: Option<u64>,
    /// This many ended, in any state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// How often the branch is polled meanwhile.
    pub poll_interval: PollInterval,
}

impl BranchWatch {
    /// Whether one of the counts is reached.
    pub fn is_met(&self, counts: &BranchCounts) -> bool {
        let reached = |target: Option<u64>, count: i64| target.is_some_and(|target| count >= target as i64);
        reached(self.done, counts.done)
            || reached(self.unsuccessful, counts.unsuccessful())
            || reached(self.ended, counts.ended())
    }
}

/// How often a branch is polled while its parent waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PollInterval {
    /// The shortest time between two polls.
    pub min: Duration,
    /// The longest time.
    pub max: Duration,
}

impl PollInterval {
    /// Returns the interval of a watch, or the default for a branch that is not watched.
    pub fn of(watch: Option<&BranchWatch>) -> PollInterval {
        watch.map(|watch| watch.poll_interval).unwrap_or_default()
    }
}

impl Default for PollInterval {
    fn default() -> PollInterval {
        PollInterval { min: Duration::from_secs(5), max: Duration::from_secs(300) }
    }
}

/// How many children of a branch have started and ended so far. PostgreSQL keeps one row per writer, so
/// that writers do not block each other; only the sum of the rows has a meaning, and one row may be negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BranchCounts {
    /// Children that have committed anything, or have ended.
    pub started: i64,
    /// Children that are done.
    pub done: i64,
    /// Children that failed.
    pub failed: i64,
    /// Children that were cancelled.
    pub cancelled: i64,
}

impl BranchCounts {
    /// Returns how many failed or were cancelled.
    pub fn unsuccessful(&self) -> i64 {
        self.failed + self.cancelled
    }

    /// Returns how many ended.
    pub fn ended(&self) -> i64 {
        self.done + self.unsuccessful()
    }

    /// Returns the difference if this many children enter a state, or leave it if `items` is negative.
    pub fn of(state: State, items: i64) -> BranchCounts {
        let mut counts = BranchCounts::default();
        match state {
            State::Done => counts.done = items,
            State::Failed => counts.failed = items,
            State::Cancelled => counts.cancelled = items,
            _ => {}
        }
        counts
    }

    /// Returns how many are done, failed and were cancelled.
    pub fn ends(&self) -> (i64, i64, i64) {
        (self.done, self.failed, self.cancelled)
    }

    /// Adds other counts.
    pub fn add(&mut self, other: BranchCounts) {
        self.started += other.started;
        self.done += other.done;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_met_when_the_first_of_its_counts_is_reached() {
        let counts = BranchCounts { started: 9, done: 4, failed: 1, cancelled: 1 };
        let watch = |done, unsuccessful, ended| BranchWatch {
            done,
            unsuccessful,
            ended,
            poll_interval: PollInterval::default(),
        };
        assert!(!watch(None, None, None).is_met(&counts), "a watch without counts is never met");
        assert!(!watch(Some(5), Some(3), Some(7)).is_met(&counts));
        assert!(watch(Some(4), None, None).is_met(&counts));
        assert!(watch(Some(5), Some(2), None).is_met(&counts));
        assert!(watch(None, None, Some(6)).is_met(&counts));
        assert!(watch(None, None, Some(0)).is_met(&BranchCounts::default()), "nothing to wait for");
    }

    #[test]
    fn a_branch_that_is_not_watched_has_the_default_interval() {
        let poll_interval = PollInterval { min: Duration::from_secs(1), max: Duration::from_secs(2) };
        let watch = BranchWatch { poll_interval, ..BranchWatch::default() };
        assert_eq!(PollInterval::of(Some(&watch)), poll_interval);
        assert_eq!(PollInterval::of(None), PollInterval::default());
    }

    #[test]
    fn children_are_cancelled_with_a_job_that_is_ended_from_outside() {
        assert!(cancels_children(State::Cancelled, None));
        assert!(cancels_children(State::Failed, Some(Reason::Expired)));
        assert!(!cancels_children(State::Failed, Some(Reason::Poison)), "it may be retried, and finds them");
        assert!(!cancels_children(State::Failed, Some(Reason::Exhausted)));
        assert!(!cancels_children(State::Done, None));
    }

    #[test]
    fn ambiguous_names_of_branches_are_refused() {
        for (name, text) in
            [("a$b", "'$'"), ("a,b", "','"), ("a#b", "'#'"), ("", "is empty"), ("windlass.x", "reserved")]
        {
            let error = check_branch("branch", name).expect_err(name).to_string();
            assert!(error.contains(text), "{error:?} lacks {text:?}");
        }
        assert_eq!(check_branch("branch", "orders-2026.10"), Ok(()));
    }
}
