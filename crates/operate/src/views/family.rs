//! Where a job stands among others: the jobs that it descends from, and a level of its children. Every read is bounded.

use serde::{Deserialize, Serialize};
use windlass_model::{BranchNo, JobId, State};
use windlass_store::Summary;
use windlass_workflow::Error;

use super::{JobRow, Situation};
use crate::Operator;

/// How many of the oldest children of a job are looked at.
const EXAMINED: usize = 100;
/// How many ancestors are read.
const ANCESTORS: usize = 6;

/// The jobs that a job descends from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Ancestors {
    /// From the top down: the parent is the last.
    pub jobs: Vec<Ancestor>,
    /// Whether there are more above the first.
    pub has_more: bool,
}

/// A job that another one descends from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ancestor {
    /// The job.
    pub job: Summary,
    /// The branch of it that the next one down is a child in.
    pub branch: Option<BranchNo>,
}

impl Ancestors {
    /// Reads at most six of them, from a job's parent, and the branch of it that the job is in, upwards. One that was pruned ends the list.
    pub async fn read(
        operator: &Operator,
        parent: Option<JobId>,
        branch: Option<BranchNo>,
    ) -> Result<Ancestors, Error> {
        let inspect = operator.inspect();
        let (mut next, mut ancestors) = (parent.map(|parent| (parent, branch)), Ancestors::default());
        while let Some((id, branch)) = next.take() {
            if ancestors.jobs.len() == ANCESTORS {
                ancestors.has_more = true;
                break;
            }
            let Some(job) = inspect.summaries(&[id]).await?.pop().flatten() else { break };
            let details = inspect.details(&[id]).await?.pop().flatten();
            next = details.and_then(|details| Some((details.parent?, details.branch)));
            ancestors.jobs.push(Ancestor { job, branch });
        }
        ancestors.jobs.reverse();
        Ok(ancestors)
    }
}

/// Children of a job that are in none of its branches.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ChildLevel {
    /// The children: those that failed or were cancelled first, then those that are held up, those that run, and those that are done.
    pub rows: Vec<JobRow>,
    /// Whether there may be more: at most 100 children, those in branches included, are looked at.
    pub has_more: bool,
}

impl ChildLevel {
    /// Reads at most `limit` of the oldest 100.
    pub async fn read(
        operator: &Operator,
        parent: JobId,
        situation: &Situation,
        limit: usize,
    ) -> Result<ChildLevel, Error> {
        let children = operator.inspect().children(parent, None, EXAMINED).await?;
        let is_capped = children.len() == EXAMINED;
        let mut rows = JobRow::read(operator, children, situation).await?;
        rows.retain(|row| row.branch.is_none());
        rows.sort_by_key(|row| (rank(row.job.state), row.job.id));
        let has_more = is_capped || rows.len() > limit;
        rows.truncate(limit);
        Ok(ChildLevel { rows, has_more })
    }
}

/// What needs someone comes first.
fn rank(state: State) -> u8 {
    match state {
        State::Failed | State::Cancelled => 0,
        State::Scheduled | State::Ready | State::Waiting => 1,
        State::Running => 2,
        State::Done => 3,
    }
}
