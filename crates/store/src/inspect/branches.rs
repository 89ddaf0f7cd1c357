//! Branches of all jobs.

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
