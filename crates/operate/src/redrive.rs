//! Redrive: retries the unsuccessful children of a job's branches, so that their merge can complete.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windlass_model::JobId;
use windlass_store::{
    Actor, Branch, BranchChild, BranchChildFilter, ChildStates, ControlOutcome, JobAction, MAX_REFUSALS,
    Refusal,
};

use windlass_workflow::{Error, engine::block};

use crate::{
    Operator,
    bulk::{BATCH, wait},
    items::branches_named,
};

/// How many rows are read and retried at once while blocks are among them: their rows are long.
const BLOCKS: usize = 16;

/// A redrive to be run; created by [`crate::Control::redrive`]. Nothing is done until [`Redrive::run`].
///
/// Every child that has failed or was cancelled when the redrive reaches it is retried once, as by [`crate::Control::retry`]. Merged
/// branches are skipped unless one is named: nobody waits for their children.
#[must_use = "a redrive does nothing until it is run"]
pub struct Redrive {
    operator: Operator,
    actor: Actor,
    job: JobId,
    branch: Option<String>,
    per_second: Option<u32>,
}

/// What a redrive has done so far.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[must_use = "children may have been refused"]
pub struct RedriveProgress {
    /// How many children had failed or were cancelled when it began.
    pub unsuccessful: u64,
    /// How many were retried.
    pub retried: u64,
    /// How many others had retried meanwhile.
    #[serde(rename = "already_retried")]
    pub already: u64,
    /// How many could not be retried.
    pub refused: u64,
    /// The first of those, and why.
    pub refusals: Vec<Refusal>,
    /// Branches that were skipped, and why.
    pub skipped: Vec<SkippedBranch>,
    /// Whether it was interrupted before the last child.
    pub interrupted: bool,
}

/// A branch whose children a redrive does not retry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SkippedBranch {
    /// The name of the branch.
    pub branch: String,
    /// Why.
    pub why: SkipReason,
}

/// Why a redrive skips a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It is merged, and was not named.
    Merged,
    /// Its live children are being cancelled.
    #[serde(rename = "cancelling")]
    CancelsChildren,
}

impl Redrive {
    pub(crate) fn new(operator: Operator, actor: Actor, job: JobId, branch: Option<&str>) -> Redrive {
        Redrive { operator, actor, job, branch: branch.map(String::from), per_second: None }
    }

    /// Limits it to this many children per second; all children of a block are retried at once.
    pub fn per_second(mut self, children: u32) -> Redrive {
        self.per_second = Some(children.max(1));
        self
    }

    pub(crate) fn operator(&self) -> &Operator {
        &self.operator
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The job, and the branch if one is named.
    pub(crate) fn target(&self) -> (JobId, Option<&str>) {
        (self.job, self.branch.as_deref())
    }

    pub(crate) fn rate(&self) -> Option<u32> {
        self.per_second
    }

    /// Runs it, batch by batch, each a transaction. `on_progress` is called after every batch and while the next one waits for its
    /// time; it ends the run by returning `false`. Committed batches stay; another run continues with the rest.
    pub async fn run(
        self,
        mut on_progress: impl FnMut(&RedriveProgress) -> bool,
    ) -> Result<RedriveProgress, Error> {
        let inspect = self.operator.inspect();
        if inspect.job(self.job).await?.is_none() {
            return Err(Error::NoSuchJob(self.job));
        }
        let mut progress = RedriveProgress::default();
        let branches = branches_named(inspect.branches(self.job).await?, self.job, self.branch.as_deref())?;
        let branches = self.select(branches, &mut progress);
        if progress.unsuccessful == 0 {
            on_progress(&progress);
            return Ok(progress);
        }
        let subject = self.job.to_string();
        let action = match &self.branch {
            Some(branch) => format!("redrive branch {branch}"),
            None => "redrive".to_owned(),
        };
        let control = self.operator.store().control();
        control.record_audit(None, &action, &subject, &self.actor).await?;
        let started = self.operator.env().instant();
        for branch in &branches {
            if !self.redrive(branch, started, &mut progress, &mut on_progress).await? {
                progress.interrupted = true;
                break;
            }
        }
        let ended = format!("{action} ended: {} retried, {} not", progress.retried, progress.refused);
        control.record_audit(None, &ended, &subject, &self.actor).await?;
        Ok(progress)
    }

    /// Selects the branches whose children are retried.
    fn select(&self, branches: Vec<Branch>, progress: &mut RedriveProgress) -> Vec<Branch> {
        let mut selected = Vec::new();
        for branch in branches.into_iter().filter(|branch| branch.counts.unsuccessful() > 0) {
            let skipped = match (branch.cancels_children, branch.merged && self.branch.is_none()) {
                (true, _) => Some(SkipReason::CancelsChildren),
                (false, true) => Some(SkipReason::Merged),
                (false, false) => None,
            };
            match skipped {
                Some(why) => progress.skipped.push(SkippedBranch { branch: branch.name, why }),
                None => {
                    progress.unsuccessful += branch.counts.unsuccessful().unsigned_abs();
                    selected.push(branch);
                }
            }
        }
        selected
    }

    /// Retries the children of one branch. Returns whether to continue.
    async fn redrive(
        &self,
        branch: &Branch,
        started: Instant,
        progress: &mut RedriveProgress,
        on_progress: &mut impl FnMut(&RedriveProgress) -> bool,
    ) -> Result<bool, Error> {
        let batch = self.per_second.map_or(BATCH, |rate| BATCH.min(rate as usize));
        let (job, number) = (self.job, branch.number);
        let mut filter = BranchChildFilter {
            job,
            branch: number,
            states: ChildStates::Unsuccessful,
            after: None,
            limit: batch.min(BLOCKS),
        };
        loop {
            let page = self.operator.inspect().branch_children(&filter).await?;
            let Some(last) = page.last() else { return Ok(true) };
            filter.after = Some(last.summary.id);
            let blocks = page.iter().any(|child| block::is_block(child.summary.stage.as_deref()));
            filter.limit = if blocks { batch.min(BLOCKS) } else { batch };
            let ids: Vec<JobId> = page.iter().map(|child| child.summary.id).collect();
            let outcomes = self
                .operator
                .store()
                .control()
                .act_on_jobs(None, &ids, JobAction::Retry, &self.actor)
                .await?;
            self.operator.poke();
            page.iter().zip(outcomes).for_each(|(child, outcome)| progress.add(child, outcome));
            let next_at = match self.per_second {
                Some(rate) => started + Duration::from_secs_f64(progress.seen() as f64 / f64::from(rate)),
                None => started,
            };
            if !wait(self.operator.env(), next_at, || on_progress(progress)).await {
                return Ok(false);
            }
        }
    }
}

impl RedriveProgress {
    /// How many children it has tried to retry so far.
    pub fn seen(&self) -> u64 {
        self.retried + self.already + self.refused
    }

    fn add(&mut self, child: &BranchChild, outcome: ControlOutcome) {
        let children = u64::from(child.branch_position.items.saturating_sub(child.items_done));
        let why = match outcome {
            ControlOutcome::Done | ControlOutcome::CancelRequested | ControlOutcome::Created(_) => {
                self.retried += children;
                return;
            }
            ControlOutcome::Already(_) => {
                self.already += children;
                return;
            }
            ControlOutcome::Refused(why) => why,
            ControlOutcome::Unknown => "it was pruned meanwhile".to_owned(),
        };
        self.refused += children;
        if self.refusals.len() < MAX_REFUSALS {
            self.refusals.push(Refusal { job: child.summary.id, why });
        }
    }
}
