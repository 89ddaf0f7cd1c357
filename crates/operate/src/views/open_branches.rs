//! The branches of all jobs that are not merged.

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, State, Time};
use windlass_store::{OpenBranch, Summary};
use windlass_workflow::Error;

use super::{BranchView, Totals};
use crate::Operator;

/// Branches that are not merged, those of the newest jobs first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OpenBranches {
    /// The branches.
    pub branches: Vec<OpenBranchRow>,
    /// Whether there are more.
    pub has_more: bool,
    /// The totals of those that are shown.
    pub totals: Totals,
    /// The store's clock.
    pub now: Time,
}

/// A branch, with the job that opened it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OpenBranchRow {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// The caller's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its state.
    pub state: State,
    /// The branch, with the rate of its last poll and with times as of the last roll-up.
    pub branch: BranchView,
}

impl OpenBranches {
    /// Reads at most `limit` branches.
    pub async fn read(operator: &Operator, limit: usize) -> Result<OpenBranches, Error> {
        let inspect = operator.inspect();
        let mut open = inspect.open_branches(limit.saturating_add(1)).await?;
        let now = inspect.clock().await?;
        let has_more = open.len() > limit;
        open.truncate(limit);
        let view = |open: OpenBranch| {
            let view = BranchView::new(open.branch, &open.times, &open.parent, now);
            (open.parent, view)
        };
        let (parents, views): (Vec<Summary>, Vec<BranchView>) = open.into_iter().map(view).unzip();
        let totals = Totals::of(&views);
        let row = |(parent, branch): (Summary, BranchView)| OpenBranchRow {
            job: parent.id,
            kind: parent.kind,
            queue: parent.queue,
            key: parent.key,
            state: parent.state,
            branch,
        };
        let branches = parents.into_iter().zip(views).map(row).collect();
        Ok(OpenBranches { branches, has_more, totals, now })
    }
}
