//! The child that a waiting job waits for, and why that child is in its state.

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, Rev, State, Time, WaitCondition, branch::BRANCH_SIGNAL, wait::CHILD_SIGNAL};
use windlass_store::{
    Branch, BranchChildFilter, ChildGroup, ChildStates, Holds, Job, JournalEnd, Summary, WorkerView,
};
use windlass_workflow::Error;

use super::{Cause, Why, branches, explain};
use crate::Operator;

/// How many children of a group are read to find the live ones: a person needs one that explains the wait, not all of them.
const AMONG: usize = 200;
/// How many awaited branches are searched.
const BRANCHES: usize = 3;

/// A child that a job waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AwaitedChild {
    /// The child.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `parent$branch$spawn_item`, if it is a child in a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its state.
    pub state: State,
    /// Why it is in that state.
    pub cause: Cause,
    /// The same in a sentence.
    pub because: String,
}

impl AwaitedChild {
    fn new(parent: &Job, child: &Job, why: Why) -> AwaitedChild {
        let parent = || parent.summary.key.clone().unwrap_or_else(|| parent.summary.id.to_string());
        AwaitedChild {
            job: child.summary.id,
            kind: child.summary.kind.clone(),
            key: child.summary.key.clone(),
            name: child.position.as_ref().map(|place| place.key(&parent())),
            state: child.summary.state,
            cause: why.cause,
            because: why.because,
        }
    }

    /// The child and its cause in one sentence.
    pub fn to_text(&self) -> String {
        let named = match (&self.name, &self.key) {
            (Some(name), _) => format!(" ({name})"),
            (None, Some(key)) => format!(" (key {key:?})"),
            (None, None) => String::new(),
        };
        format!("Its child {} {}{named} is {}: {}", self.kind, self.job, self.state, self.because)
    }

    /// The command that says more.
    pub(super) fn hint(&self) -> String {
        format!("Ask about the child: `windlass why {}`.", self.job)
    }
}

impl Operator {
    /// Finds a child that explains why a parked job waits: of those that it waits for, one about which somebody must do something, if
    /// there is one. `None` if the job waits for none, or if none of the newest children is live. The reads are bounded.
    pub(super) async fn awaited_child(
        &self,
        job: &Job,
        holds: &Holds,
        branches: &[Branch],
        workers: &[WorkerView],
        now: Time,
    ) -> Result<Option<AwaitedChild>, Error> {
        let Some(waiting) = holds.waiting.as_ref().filter(|_| job.summary.state == State::Waiting) else {
            return Ok(None);
        };
        let parent = job.summary.id;
        let mut candidates = Vec::new();
        match &waiting.condition {
            WaitCondition::Children { rev } => {
                let group = ChildGroup::Change(*rev);
                candidates = first_of_each_state(self.inspect().live_children(parent, group, AMONG).await?);
            }
            condition => {
                if condition.names().any(|name| name == BRANCH_SIGNAL) {
                    candidates.extend(self.children_of_branches(parent, branches).await?);
                }
                if condition.names().any(|name| name == CHILD_SIGNAL) {
                    let group = ChildGroup::Change(Rev::SIGNALLED);
                    let live = self.inspect().live_children(parent, group, AMONG).await?;
                    candidates.extend(first_of_each_state(live));
                }
            }
        }
        let mut found: Option<AwaitedChild> = None;
        for id in candidates {
            let Some((child, why)) = self.explain_child(id, workers, now).await? else { continue };
            if found.as_ref().is_none_or(|found| why.cause.urgency() > found.cause.urgency()) {
                found = Some(AwaitedChild::new(job, &child, why));
            }
        }
        Ok(found)
    }

    /// Of each awaited branch: an unsuccessful child, if such children block its merge, and otherwise the live ones.
    async fn children_of_branches(&self, parent: JobId, branches: &[Branch]) -> Result<Vec<JobId>, Error> {
        let mut candidates = Vec::new();
        for branch in branches.iter().filter(|branch| branch.watch.is_some()).take(BRANCHES) {
            if branches::is_blocked(branch) {
                let unsuccessful = BranchChildFilter {
                    job: parent,
                    branch: branch.number,
                    states: ChildStates::Unsuccessful,
                    after: None,
                    limit: 1,
                };
                let unsuccessful = self.inspect().branch_children(&unsuccessful).await?;
                candidates.extend(unsuccessful.into_iter().map(|child| child.summary.id));
                continue;
            }
            let group = ChildGroup::Branch(branch.number);
            candidates.extend(first_of_each_state(self.inspect().live_children(parent, group, AMONG).await?));
        }
        Ok(candidates)
    }

    /// Explains a child without its own children: one level. `None` if it may not be seen.
    async fn explain_child(
        &self,
        id: JobId,
        workers: &[WorkerView],
        now: Time,
    ) -> Result<Option<(Job, Why)>, Error> {
        let Some(job) = self.visible_job(id).await? else { return Ok(None) };
        let holds = self.visible_holds(id).await?.unwrap_or_default();
        let branches = match branches::is_awaited(&job) {
            true => self.inspect().branches(id).await?,
            false => Vec::new(),
        };
        // A journal decides only what to do about an ended workflow, which the answer about the child itself says.
        let why = explain(&job, &holds, &branches, &JournalEnd::default(), workers, now);
        Ok(Some((job, why)))
    }
}

/// The oldest child in each state: each state may have another cause.
fn first_of_each_state(newest_first: Vec<Summary>) -> Vec<JobId> {
    let mut first: Vec<(State, JobId)> = Vec::new();
    for child in newest_first.into_iter().rev() {
        if !first.iter().any(|(state, _)| *state == child.state) {
            first.push((child.state, child.id));
        }
    }
    first.into_iter().map(|(_, id)| id).collect()
}
