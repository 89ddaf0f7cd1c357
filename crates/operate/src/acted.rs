//! Actions on jobs that a person named, with what the person wants to know of each.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, State};
use windlass_store::{ControlOutcome, JobAction};
use windlass_workflow::Error;

use crate::Control;

/// What an action did to one job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[must_use = "the action may have been refused"]
pub struct Acted {
    /// The job.
    pub job: JobId,
    /// What happened.
    #[serde(flatten)]
    pub outcome: ControlOutcome,
    /// Whether the job is now as the action wants it. One that is done or failed already is not cancelled.
    pub achieved: bool,
    /// How many children of the unmerged branches of a cancelled job are cancelled with it; `None` if it has no such branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children_cancelled: Option<u64>,
    /// How many descendants were cancelled too, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<u64>,
}

impl Acted {
    /// A job that does not exist.
    pub fn unknown(job: JobId) -> Acted {
        let outcome = ControlOutcome::Unknown;
        Acted { job, outcome, achieved: false, children_cancelled: None, children: None }
    }

    /// A job that refuses the action.
    pub fn refused(job: JobId, why: String) -> Acted {
        Acted { outcome: ControlOutcome::Refused(why), ..Acted::unknown(job) }
    }
}

impl Control {
    /// Applies an action to some jobs, in one transaction, and finds out what it led to. In order.
    pub async fn act_on_each(&self, jobs: &[JobId], action: JobAction) -> Result<Vec<Acted>, Error> {
        let outcomes = self.act_on(jobs, action).await?;
        let mut acted = Vec::with_capacity(jobs.len());
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let is_cancel = matches!(action, JobAction::Cancel { .. });
            let achieved = self.is_achieved(*job, is_cancel, &outcome).await?;
            let ends = matches!(outcome, ControlOutcome::Done | ControlOutcome::CancelRequested);
            let children_cancelled =
                if is_cancel && ends { self.cancelled_children(*job).await? } else { None };
            acted.push(Acted { job: *job, outcome, achieved, children_cancelled, children: None });
        }
        Ok(acted)
    }

    /// Cancels a job and all its descendants. If the job was pruned and left descendants, those are cancelled.
    pub async fn cancel_tree(&self, job: JobId, grace: Duration) -> Result<Acted, Error> {
        let action = JobAction::Cancel { grace };
        let outcome = self.act_on(&[job], action).await?.remove(0);
        let achieved = self.is_achieved(job, true, &outcome).await?;
        // The job itself is cancelled by now, so this counts its descendants only.
        let children = match self.cancel_with_children(job, grace).await {
            Err(Error::NoSuchJob(_)) => 0,
            children => children? as u64,
        };
        Ok(Acted { job, outcome, achieved, children_cancelled: None, children: Some(children) })
    }

    async fn is_achieved(
        &self,
        job: JobId,
        is_cancel: bool,
        outcome: &ControlOutcome,
    ) -> Result<bool, Error> {
        Ok(match outcome {
            ControlOutcome::Already(_) if is_cancel => {
                let state = self.operator().inspect().job(job).await?.map(|job| job.summary.state);
                !matches!(state, Some(State::Done | State::Failed))
            }
            ControlOutcome::Done | ControlOutcome::CancelRequested => true,
            ControlOutcome::Created(_) | ControlOutcome::Already(_) => true,
            ControlOutcome::Refused(_) | ControlOutcome::Unknown => false,
        })
    }

    /// How many live children the unmerged branches of a job have; `None` if it has no such branches.
    async fn cancelled_children(&self, job: JobId) -> Result<Option<u64>, Error> {
        let branches = self.operator().inspect().branches(job).await?;
        let open: Vec<_> = branches.iter().filter(|branch| !branch.merged).collect();
        let live = open.iter().map(|branch| (branch.spawned - branch.counts.ended()).max(0).unsigned_abs());
        Ok((!open.is_empty()).then(|| live.sum()))
    }
}
