//! Retrying the children of a job's branches that have not ended well, so that what waits for them can go on.

use std::time::{Duration, Instant};

use windlass_model::JobId;
use windlass_store::{Actor, Branch, BranchChild, BranchChildFilter, ChildStates, ControlOutcome, JobAction};

use windlass_workflow::{Error, engine::block};

use crate::{
    Operator,
    bulk::{BATCH, wait},
    items::branches_named,
};

/// How many rows are read and retried at once while there are blocks among them, which are long.
const BLOCKS: usize = 16;
/// How many of those that could not be retried are told one by one.
const LISTED: usize = 20;

/// A redrive that is being described; made by [`crate::Control::redrive`]. Nothing is done until [`Redrive::run`].
///
/// Every child that has failed or was cancelled when it is come by is retried once, as by [`crate::Control::retry`]. Branches
/// that are merged are passed over, unless one is named: nobody waits for their children.
#[must_use = "a redrive does nothing until it is run"]
pub struct Redrive {
    operator: Operator,
    by: Actor,
    job: JobId,
    branch: Option<String>,
    per_second: Option<u32>,
}

/// What a redrive has done.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RedriveProgress {
    /// How many children had failed or were cancelled when it began.
    pub bad: u64,
    /// How many were retried.
    pub retried: u64,
    /// How many had been retried by others meanwhile.
    pub already: u64,
    /// How many could not be retried.
    pub refused: u64,
    /// The first of those, by their jobs, and why.
    pub because: Vec<(JobId, String)>,
    /// Branches that were passed over, and why.
    pub passed: Vec<(String, Skipped)>,
    /// Whether it was ended before all were done.
    pub cut_short: bool,
}

/// Why a redrive passes a branch over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Skipped {
    /// It was merged, and was not named.
    Merged,
    /// What is left of it is being cancelled.
    Cut,
}

impl Redrive {
    pub(crate) fn new(operator: Operator, by: Actor, job: JobId, branch: Option<&str>) -> Redrive {
        Redrive { operator, by, job, branch: branch.map(String::from), per_second: None }
    }

    /// At most so many children a second; all children of a block at once.
    pub fn per_second(mut self, children: u32) -> Redrive {
        self.per_second = Some(children.max(1));
        self
    }

    /// Does it, batch by batch, each a transaction. `seen` is told how far it is after every batch and while the next one waits
    /// for its time, and may end it by answering `false`; what was done stays done. Running it again goes on with the rest.
    pub async fn run(self, mut seen: impl FnMut(&RedriveProgress) -> bool) -> Result<RedriveProgress, Error> {
        let inspect = self.operator.inspect();
        if inspect.job(self.job).await?.is_none() {
            return Err(Error::NoSuchJob(self.job));
        }
        let mut redriven = RedriveProgress::default();
        let branches = branches_named(inspect.branches(self.job).await?, self.job, self.branch.as_deref())?;
        let branches = self.meant(branches, &mut redriven);
        if redriven.bad == 0 {
            seen(&redriven);
            return Ok(redriven);
        }
        let subject = self.job.to_string();
        let action = match &self.branch {
            Some(branch) => format!("redrive branch {branch}"),
            None => "redrive".to_owned(),
        };
        let control = self.operator.store().control();
        control.record_audit(None, &action, &subject, &self.by).await?;
        let started = self.operator.env().instant();
        for branch in &branches {
            if !self.redrive(branch, started, &mut redriven, &mut seen).await? {
                redriven.cut_short = true;
                break;
            }
        }
        let ended = format!("{action} ended: {} retried, {} not", redriven.retried, redriven.refused);
        control.record_audit(None, &ended, &subject, &self.by).await?;
        Ok(redriven)
    }

    /// The branches whose children are retried.
    fn meant(&self, branches: Vec<Branch>, redriven: &mut RedriveProgress) -> Vec<Branch> {
        let mut meant = Vec::new();
        for branch in branches.into_iter().filter(|branch| branch.counts.unsuccessful() > 0) {
            let passed = match (branch.cancels_children, branch.merged && self.branch.is_none()) {
                (true, _) => Some(Skipped::Cut),
                (false, true) => Some(Skipped::Merged),
                (false, false) => None,
            };
            match passed {
                Some(why) => redriven.passed.push((branch.name, why)),
                None => {
                    redriven.bad += branch.counts.unsuccessful().unsigned_abs();
                    meant.push(branch);
                }
            }
        }
        meant
    }

    /// Retries the children of one branch; answers whether to go on.
    async fn redrive(
        &self,
        branch: &Branch,
        started: Instant,
        redriven: &mut RedriveProgress,
        seen: &mut impl FnMut(&RedriveProgress) -> bool,
    ) -> Result<bool, Error> {
        let most = self.per_second.map_or(BATCH, |rate| BATCH.min(rate as usize));
        let (job, number) = (self.job, branch.number);
        let mut of = BranchChildFilter {
            job,
            branch: number,
            only: ChildStates::Bad,
            after: None,
            limit: most.min(BLOCKS),
        };
        loop {
            let page = self.operator.inspect().branch_children(&of).await?;
            let Some(last) = page.last() else { return Ok(true) };
            of.after = Some(last.summary.id);
            let blocks = page.iter().any(|leaf| block::is_block(leaf.summary.stage.as_deref()));
            of.limit = if blocks { most.min(BLOCKS) } else { most };
            let ids: Vec<JobId> = page.iter().map(|leaf| leaf.summary.id).collect();
            let dids =
                self.operator.store().control().act_on_jobs(None, &ids, JobAction::Retry, &self.by).await?;
            self.operator.poke();
            page.iter().zip(dids).for_each(|(leaf, did)| redriven.add(leaf, did));
            let due = match self.per_second {
                Some(rate) => started + Duration::from_secs_f64(redriven.seen() as f64 / f64::from(rate)),
                None => started,
            };
            if !wait(self.operator.env(), due, || seen(redriven)).await {
                return Ok(false);
            }
        }
    }
}

impl RedriveProgress {
    /// How many children were come by so far.
    pub fn seen(&self) -> u64 {
        self.retried + self.already + self.refused
    }

    fn add(&mut self, leaf: &BranchChild, did: ControlOutcome) {
        let children = u64::from(leaf.branch_position.items.saturating_sub(leaf.items_done));
        let why = match did {
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
        if self.because.len() < LISTED {
            self.because.push((leaf.summary.id, why));
        }
    }
}
