//! Branches: named sets of children that a job opens, fills, seals and merges.
//!
//! Nothing of a child is kept with its parent. A branch is one row: its name, where its sources stand, how many children
//! were spawned, and what its parent wants to be told of. How its children ended is counted beside it, by whoever ends
//! them. See [`crate::poll`] for what looks after it meanwhile.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Invalid, JobId, Payload, State,
    limits::{MAX_KEY_BYTES, check_name, check_text, invalid, quoted},
};

/// The name of the signals by which a job is told that a branch has come to what it wanted to be told of; their payload is
/// the number of the branch. Nobody else can send one.
pub const BRANCH_SIGNAL: &str = "windlass.branch";

/// The most spawns with names of their own in one branch.
pub const MAX_SPAWNS: usize = 1_000;

/// The most items in one block of a packed branch.
pub const MAX_BLOCK_ITEMS: usize = 1_000;

/// The number of a branch among those of its job: whoever opens it chooses one that the job has not used before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BranchNo(pub i64);

impl std::fmt::Display for BranchNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What makes a job a child of a branch: with its parent, its identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BranchPosition {
    /// The branch, of its parent.
    pub branch: BranchNo,
    /// Which spawn made it: the place of its name in the branch.
    pub spawn: i16,
    /// Which item of it; empty for a spawn of one child.
    pub item: String,
    /// How many children it stands for: 1, or the items of a block that were not promoted.
    pub items: u32,
}

/// The branch that a claimed job's end counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BranchMember {
    /// The job that opened it.
    pub parent: JobId,
    /// The branch.
    pub branch: BranchNo,
    /// How many children the job stands for that are not counted yet.
    pub items: u32,
}

/// What a change does to a branch of its job, beside the children it submits.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BranchUpdate {
    /// The branch.
    pub number: BranchNo,
    /// Opens it, under this name.
    pub opened_as: Option<String>,
    /// The names of its spawns, all of them, if there is a new one.
    pub spawns: Option<Vec<String>>,
    /// Where its sources stand now.
    pub cursor: Option<Payload>,
    /// Seals it: no child is spawned in it from now on.
    pub seal: bool,
    /// What the job wants to be told of, instead of what it wanted before.
    pub watch: Option<BranchWatch>,
    /// How it is to be merged, as JSON: for people, and for whoever asked for it.
    pub merge_record: Option<String>,
    /// Says that it was merged, well or badly: nobody waits for it any more.
    pub merged: bool,
    /// Has the children cancelled that have not ended.
    pub cancel_children: bool,
}

impl BranchUpdate {
    /// A change to a branch that does nothing yet.
    pub fn new(number: BranchNo) -> BranchUpdate {
        BranchUpdate { number, ..BranchUpdate::default() }
    }

    /// Checks it before it reaches a store.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(name) = &self.opened_as {
            check_branch("branch", name)?;
        }
        let Some(spawns) = &self.spawns else { return Ok(()) };
        if spawns.len() > MAX_SPAWNS {
            let why = format!("are {}, more than the {MAX_SPAWNS} allowed", spawns.len());
            let hint = "use `spawn_each` for many children of a sort";
            return Err(invalid("the names of a branch's spawns", why, hint));
        }
        spawns.iter().try_for_each(|name| check_branch("spawn", name))
    }
}

impl BranchPosition {
    /// Checks it before it reaches a store.
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

/// What a parent wants to be told of: the first of these that comes true. Then it is told once, and the watch is over.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BranchWatch {
    /// That so many children ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// That so many ended otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsuccessful: Option<u64>,
    /// That so many ended, however.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// How often it is looked at meanwhile.
    pub poll_interval: PollInterval,
}

impl BranchWatch {
    /// Whether there is something to be told.
    pub fn is_met(&self, tally: &BranchTally) -> bool {
        let reached = |goal: Option<u64>, count: i64| goal.is_some_and(|goal| count >= goal as i64);
        reached(self.done, tally.done)
            || reached(self.unsuccessful, tally.unsuccessful())
            || reached(self.ended, tally.ended())
    }
}

/// How often a branch is looked at while its parent waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PollInterval {
    /// The shortest time between two looks.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for PollInterval {
    fn default() -> PollInterval {
        PollInterval { min: Duration::from_secs(5), max: Duration::from_secs(300) }
    }
}

/// How the children of a branch have ended so far. Kept as differences by many writers, so that only the sum says
/// something: one alone may be negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BranchTally {
    /// Those that have written anything, or have ended.
    pub started: i64,
    /// Those that ended well.
    pub done: i64,
    /// Those that failed.
    pub failed: i64,
    /// Those that were cancelled.
    pub cancelled: i64,
}

impl BranchTally {
    /// Those that ended otherwise than well.
    pub fn unsuccessful(&self) -> i64 {
        self.failed + self.cancelled
    }

    /// Those that ended.
    pub fn ended(&self) -> i64 {
        self.done + self.unsuccessful()
    }

    /// What it means that so many children came to a state, or left it if they are negative.
    pub fn of(state: State, items: i64) -> BranchTally {
        let mut tally = BranchTally::default();
        match state {
            State::Done => tally.done = items,
            State::Failed => tally.failed = items,
            State::Cancelled => tally.cancelled = items,
            _ => {}
        }
        tally
    }

    /// Those that ended well, failed and were cancelled.
    pub fn ends(&self) -> (i64, i64, i64) {
        (self.done, self.failed, self.cancelled)
    }

    /// Adds another.
    pub fn add(&mut self, other: BranchTally) {
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
    fn a_watch_is_met_by_the_first_that_comes_true() {
        let tally = BranchTally { started: 9, done: 4, failed: 1, cancelled: 1 };
        let watch = |done, bad, ended| BranchWatch {
            done,
            unsuccessful: bad,
            ended,
            poll_interval: PollInterval::default(),
        };
        assert!(!watch(None, None, None).is_met(&tally), "nothing is never told");
        assert!(!watch(Some(5), Some(3), Some(7)).is_met(&tally));
        assert!(watch(Some(4), None, None).is_met(&tally));
        assert!(watch(Some(5), Some(2), None).is_met(&tally));
        assert!(watch(None, None, Some(6)).is_met(&tally));
        assert!(watch(None, None, Some(0)).is_met(&BranchTally::default()), "nothing to wait for");
    }

    #[test]
    fn names_that_would_be_misread_are_refused() {
        for (name, text) in
            [("a$b", "'$'"), ("a,b", "','"), ("a#b", "'#'"), ("", "is empty"), ("windlass.x", "reserved")]
        {
            let error = check_branch("branch", name).expect_err(name).to_string();
            assert!(error.contains(text), "{error:?} lacks {text:?}");
        }
        assert_eq!(check_branch("branch", "orders-2026.10"), Ok(()));
    }
}
