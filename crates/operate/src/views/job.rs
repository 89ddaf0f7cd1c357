//! Everything that the store has about one job.

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, Time};
use windlass_store::{Attempt, Holds, Job};
use windlass_workflow::Error;

use super::{
    branch::{BranchView, joint_notes},
    branches::times_of,
    journal::Journal,
    machine::MachineView,
};
use crate::Operator;

/// A job with its history, holds, inbox, journal and branches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobView {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// Its failed attempts, oldest first.
    pub history: Vec<Attempt>,
    /// What keeps it from running.
    pub holds: Holds,
    /// Its inbox and last transitions.
    #[serde(flatten)]
    pub machine: MachineView,
    /// Its journal and context.
    #[serde(flatten)]
    pub workflow: Journal,
    /// `parent$branch$spawn_item`, if it is a child in a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_name: Option<String>,
    /// Its branches, by number.
    pub branches: Vec<BranchView>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

impl JobView {
    /// Reads the job with the last `entries` entries of its journal, or all of them; `None` if it does not exist.
    pub async fn read(
        operator: &Operator,
        id: JobId,
        entries: Option<usize>,
    ) -> Result<Option<JobView>, Error> {
        let inspect = operator.inspect();
        let holds = operator.visible_holds(id).await?.unwrap_or_default();
        let Some(job) = inspect.job(id).await? else { return Ok(None) };
        let now = inspect.clock().await?;
        let branches = inspect.branches(id).await?;
        let times = times_of(inspect, id, &branches).await?;
        let view = |branch: windlass_store::Branch| {
            let times = times.get(&branch.number).cloned().unwrap_or_default();
            BranchView::new(branch, &times, &job.summary, now)
        };
        let branches = branches.into_iter().map(view).collect();
        Ok(Some(JobView {
            history: inspect.history(id).await?,
            holds,
            machine: MachineView::read(inspect, &job).await?,
            workflow: Journal::read(operator, id, entries).await?,
            child_name: child_name(operator, &job).await?,
            branches,
            now,
            job,
        }))
    }

    /// The notes of all branches in one list, as of [`BranchesView::notes`](super::BranchesView::notes).
    pub fn branch_notes(&self) -> Vec<String> {
        joint_notes(&self.branches, self.job.summary.id)
    }
}

async fn child_name(operator: &Operator, job: &Job) -> Result<Option<String>, Error> {
    let (Some(parent), Some(place)) = (job.parent, &job.position) else { return Ok(None) };
    // Without its key the parent is named by its id, as one that has none.
    let key = operator.visible_job(parent).await?.and_then(|parent| parent.summary.key);
    Ok(Some(place.key(&key.unwrap_or_else(|| parent.to_string()))))
}
