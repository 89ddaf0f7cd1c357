//! Branches of all jobs, and parts of one.

use serde::{Deserialize, Serialize};
use windlass_model::{BranchNo, JobId};

use super::{BranchTimes, Summary};
use crate::Branch;

/// A branch that is not merged, with its job.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenBranch {
    /// The branch. Where its sources are is not read.
    pub branch: Branch,
    /// The job that opened it.
    pub parent: Summary,
    /// The times of its children that had ended when ends were last summed up.
    pub times: BranchTimes,
}

/// Children of a branch from one to another, both included: ids are in the order in which children were spawned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ChildRange {
    /// The id of the first child, or one below it.
    pub first: JobId,
    /// The id of the last child, or one above it.
    pub last: JobId,
}

impl ChildRange {
    /// Divides the range into so many parts of the same length, in order. There are fewer if it has fewer ids.
    pub fn divide(self, parts: usize) -> Vec<ChildRange> {
        let number = |id: JobId| u128::from_be_bytes(*id.as_bytes());
        let id = |number: u128| JobId::from_bytes(number.to_be_bytes());
        let (first, last) = (number(self.first), number(self.last));
        let Some(length) = last.checked_sub(first) else { return Vec::new() };
        let step = (length / parts.max(1) as u128).saturating_add(1);
        let starts = (0..parts as u128).map_while(|part| first.checked_add(step.checked_mul(part)?));
        let range =
            |start: u128| ChildRange { first: id(start), last: id(start.saturating_add(step - 1).min(last)) };
        starts.take_while(|start| *start <= last).map(range).collect()
    }
}

/// Which children [`super::Inspect::branch_ranges`] reads.
#[derive(Clone, Copy, Debug)]
pub struct BranchRanges<'a> {
    /// The job.
    pub job: JobId,
    /// Its branch.
    pub branch: BranchNo,
    /// Ranges of its children.
    pub ranges: &'a [ChildRange],
    /// How many children at most of each range, the first ones.
    pub each: usize,
}

/// A child of a branch, in short.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RangeChild {
    /// The child.
    pub summary: Summary,
    /// Its item, or the first one if it is a block.
    pub item: String,
    /// How many items it represents: more than one if it is a block.
    pub items: u32,
    /// How many of them are done while the block has not ended.
    pub items_done: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_divided_into_parts_that_follow_each_other() {
        let id = |n: u32| JobId::from_parts(1_800_000_000_000 + u64::from(n), 0, 0);
        for (last, parts) in [(0, 5), (1, 3), (1_000, 200), (17, 1)] {
            let whole = ChildRange { first: id(0), last: id(last) };
            let divided = whole.divide(parts);
            assert!(!divided.is_empty() && divided.len() <= parts);
            assert_eq!((divided[0].first, divided[divided.len() - 1].last), (whole.first, whole.last));
            for pair in divided.windows(2) {
                let (end, start) = (pair[0].last.0.as_u128(), pair[1].first.0.as_u128());
                assert_eq!(end + 1, start);
            }
        }
        assert!(ChildRange { first: id(1), last: id(0) }.divide(5).is_empty());
        let all = ChildRange { first: JobId::from_bytes([0; 16]), last: JobId::from_bytes([255; 16]) };
        assert_eq!((all.divide(200).len(), all.divide(1).len(), all.divide(0).len()), (200, 1, 0));
        assert_eq!(all.divide(200)[199].last, all.last);
    }
}
