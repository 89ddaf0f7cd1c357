//! Retrying the children of a job's branches that have not ended well, so that what waits for them can go on.

use std::time::Duration;

use tokio::time::Instant;
use windlass_model::JobId;
use windlass_store::{Act, Branch, By, Did, Leaf, Leaves, Only};

use crate::{
    Engine, Error,
    branch::{block, named},
    bulk::{BATCH, wait},
};

/// How many rows are read and retried at once while there are blocks among them, which are long.
const BLOCKS: usize = 16;
/// How many of those that could not be retried are told one by one.
const TOLD: usize = 20;

/// A redrive that is being described; made by [`crate::Control::redrive`]. Nothing is done until [`Redrive::run`].
///
/// Every child that has failed or was cancelled when it is come by is retried once, as by [`crate::Control::retry`]. Branches
/// that are merged are passed over, unless one is named: nobody waits for their children.
#[must_use = "a redrive does nothing until it is run"]
pub struct Redrive<'a> {
    engine: &'a Engine,
    by: By,
    job: JobId,
    branch: Option<String>,
    per_second: Option<u32>,
}

/// What a redrive has done.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Redriven {
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
    pub passed: Vec<(String, Passed)>,
    /// Whether it was ended before all were done.
    pub cut_short: bool,
}

/// Why a redrive passes a branch over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// It was merged, and was not named.
    Merged,
    /// What is left of it is being cancelled.
    Cut,
}

impl<'a> Redrive<'a> {
    pub(crate) fn new(engine: &'a Engine, by: By, job: JobId, branch: Option<&str>) -> Redrive<'a> {
        Redrive { engine, by, job, branch: branch.map(String::from), per_second: None }
    }

    /// At most so many children a second; all children of a block at once.
    pub fn per_second(mut self, children: u32) -> Redrive<'a> {
        self.per_second = Some(children.max(1));
        self
    }

    /// Does it, batch by batch, each a transaction. `seen` is told how far it is after every batch and while the next one waits
    /// for its time, and may end it by answering `false`; what was done stays done. Running it again goes on with the rest.
    pub async fn run(self, mut seen: impl FnMut(&Redriven) -> bool) -> Result<Redriven, Error> {
        let inspect = self.engine.inspect();
        if inspect.job(self.job).await?.is_none() {
            return Err(Error::NoSuchJob(self.job));
        }
        let mut redriven = Redriven::default();
        let branches = named(inspect.branches(self.job).await?, self.job, self.branch.as_deref())?;
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
        let control = self.engine.store().control();
        control.note(None, &action, &subject, &self.by).await?;
        let started = Instant::now();
        for branch in &branches {
            if !self.redrive(branch, started, &mut redriven, &mut seen).await? {
                redriven.cut_short = true;
                break;
            }
        }
        let ended = format!("{action} ended: {} retried, {} not", redriven.retried, redriven.refused);
        control.note(None, &ended, &subject, &self.by).await?;
        Ok(redriven)
    }

    /// The branches whose children are retried.
    fn meant(&self, branches: Vec<Branch>, redriven: &mut Redriven) -> Vec<Branch> {
        let mut meant = Vec::new();
        for branch in branches.into_iter().filter(|branch| branch.tally.bad() > 0) {
            let passed = match (branch.cut, branch.merged && self.branch.is_none()) {
                (true, _) => Some(Passed::Cut),
                (false, true) => Some(Passed::Merged),
                (false, false) => None,
            };
            match passed {
                Some(why) => redriven.passed.push((branch.name, why)),
                None => {
                    redriven.bad += branch.tally.bad().unsigned_abs();
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
        redriven: &mut Redriven,
        seen: &mut impl FnMut(&Redriven) -> bool,
    ) -> Result<bool, Error> {
        let most = self.per_second.map_or(BATCH, |rate| BATCH.min(rate as usize));
        let (job, number) = (self.job, branch.number);
        let mut of = Leaves { job, branch: number, only: Only::Bad, after: None, limit: most.min(BLOCKS) };
        loop {
            let page = self.engine.inspect().leaves(&of).await?;
            let Some(last) = page.last() else { return Ok(true) };
            of.after = Some(last.summary.id);
            let blocks = page.iter().any(|leaf| block::is_block(leaf.summary.stage.as_deref()));
            of.limit = if blocks { most.min(BLOCKS) } else { most };
            let ids: Vec<JobId> = page.iter().map(|leaf| leaf.summary.id).collect();
            let dids = self.engine.store().control().act(None, &ids, Act::Retry, &self.by).await?;
            self.engine.look();
            page.iter().zip(dids).for_each(|(leaf, did)| redriven.add(leaf, did));
            let due = match self.per_second {
                Some(rate) => started + Duration::from_secs_f64(redriven.seen() as f64 / f64::from(rate)),
                None => started,
            };
            if !wait(due, || seen(redriven)).await {
                return Ok(false);
            }
        }
    }
}

impl Redriven {
    /// How many children were come by so far.
    pub fn seen(&self) -> u64 {
        self.retried + self.already + self.refused
    }

    fn add(&mut self, leaf: &Leaf, did: Did) {
        let children = u64::from(leaf.twig.items.saturating_sub(leaf.tallied));
        let why = match did {
            Did::Done | Did::Told | Did::Made(_) => {
                self.retried += children;
                return;
            }
            Did::Already(_) => {
                self.already += children;
                return;
            }
            Did::Refused(why) => why,
            Did::Unknown => "it was pruned meanwhile".to_owned(),
        };
        self.refused += children;
        if self.because.len() < TOLD {
            self.because.push((leaf.summary.id, why));
        }
    }
}
