//! Lists of jobs, a page at a time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, State, Time};
use windlass_store::{BranchChildFilter, ChildBounds, ChildStates, Filter, JobPage, MatchCount, Summary};

use windlass_workflow::{Error, engine::block};

use super::CAP;
use crate::{Operator, budget::Budget, items::branches_named};

/// How many children are read at a time.
const PAGE: usize = 500;
/// How many children of a branch are read at a time.
const BRANCH_PAGE: usize = 500;
/// For how many blocks the number of items is read: it takes one query each.
const COUNTED: usize = 100;

/// Jobs, newest first, with how many there are in each state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobList {
    /// The number of matching jobs in each state, on all pages.
    pub counts: BTreeMap<State, u64>,
    /// Whether there may be more than were counted. If jobs are selected by more than queue, kind, version and state, only [`CAP`] jobs are
    /// examined for that.
    pub is_capped: bool,
    /// The jobs.
    pub jobs: Vec<Summary>,
    /// How many items the blocks among the jobs have; of many blocks only the first are counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub block_items: BTreeMap<JobId, u32>,
    /// The next page has the jobs before this one; `None` on the last page. A page may have few jobs or none and not be the last: a
    /// bounded number of jobs is examined for each.
    pub next_before: Option<JobId>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

impl JobList {
    /// Reads a page: at most `filter.limit` jobs before `filter.before`.
    pub async fn read(operator: &Operator, filter: &Filter) -> Result<JobList, Error> {
        let inspect = operator.inspect();
        let JobPage { jobs, next: next_before } = inspect.jobs(filter).await?;
        let is_everything = filter.before.is_none() && next_before.is_none();
        let MatchCount { jobs: counts, at_least: is_capped } = match is_everything {
            true => count(&jobs),
            false => inspect.count_jobs(filter, usize::try_from(CAP).unwrap_or(usize::MAX)).await?,
        };
        let block_items = block_items(operator, &jobs).await?;
        Ok(JobList { counts, is_capped, jobs, block_items, next_before, now: inspect.clock().await? })
    }
}

/// Counts jobs by state.
fn count(jobs: &[Summary]) -> MatchCount {
    let mut count = MatchCount::default();
    for job in jobs {
        *count.jobs.entry(job.state).or_default() += 1;
    }
    count
}

/// Children of one job, oldest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChildList {
    /// The children.
    pub jobs: Vec<Summary>,
    /// How many items the blocks among them have; of many blocks only the first are counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub block_items: BTreeMap<JobId, u32>,
    /// The next page has the children after this one; `None` on the last page. A page may have few children or none and not be the last.
    pub next_after: Option<JobId>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

impl ChildList {
    /// Reads a page: at most `filter.limit` matching children of `parent`, or of its branch of this name, after `after`. A bounded number of
    /// children is examined for it. Tags and error classes are not compared: what is read of a child has none.
    pub async fn read(
        operator: &Operator,
        parent: JobId,
        branch: Option<&str>,
        filter: &Filter,
        after: Option<JobId>,
    ) -> Result<ChildList, Error> {
        let inspect = operator.inspect();
        if inspect.job(parent).await?.is_none() {
            return Err(Error::NoSuchJob(parent));
        }
        let (jobs, next_after) = match branch {
            Some(branch) => children_in_branch(operator, parent, branch, filter, after).await?,
            None => children(operator, parent, filter, after).await?,
        };
        let block_items = block_items(operator, &jobs).await?;
        Ok(ChildList { jobs, block_items, next_after, now: inspect.clock().await? })
    }
}

/// Reads a page of children, and after which one the next page begins.
async fn children(
    operator: &Operator,
    parent: JobId,
    filter: &Filter,
    mut after: Option<JobId>,
) -> Result<(Vec<Summary>, Option<JobId>), Error> {
    let (mut found, mut budget) = (Vec::new(), Budget::of_page());
    while !budget.is_used_up() {
        let page = operator.inspect().children(parent, after, PAGE).await?;
        budget.charge_rows(page.len());
        let is_last = page.len() < PAGE;
        after = page.last().map(|job| job.id);
        if let Some(next) = take(&mut found, page, filter) {
            return Ok((found, Some(next)));
        }
        if is_last {
            return Ok((found, None));
        }
    }
    Ok((found, after))
}

/// Adds matching children until the page is full. Then it returns the last of the page, if others match.
fn take(found: &mut Vec<Summary>, jobs: impl IntoIterator<Item = Summary>, filter: &Filter) -> Option<JobId> {
    for job in jobs.into_iter().filter(|job| matches(filter, job)) {
        if found.len() == filter.limit {
            return found.last().map(|last| last.id);
        }
        found.push(job);
    }
    None
}

/// The same in a branch. A retried job may have opened several branches of one name: their children are listed together.
async fn children_in_branch(
    operator: &Operator,
    parent: JobId,
    name: &str,
    filter: &Filter,
    mut after: Option<JobId>,
) -> Result<(Vec<Summary>, Option<JobId>), Error> {
    let branches = branches_named(operator.inspect().branches(parent).await?, parent, Some(name))?;
    let states = match filter.state {
        None => ChildStates::All,
        Some(State::Failed | State::Cancelled) => ChildStates::Unsuccessful,
        Some(State::Done) => ChildStates::Ended,
        Some(State::Scheduled | State::Ready | State::Running | State::Waiting) => ChildStates::Live,
    };
    let (mut found, mut budget) = (Vec::new(), Budget::of_page());
    while !budget.is_used_up() {
        let (mut read, mut end) = (Vec::new(), None);
        for branch in &branches {
            let (job, branch) = (parent, branch.number);
            let of = BranchChildFilter { job, branch, states, after, limit: BRANCH_PAGE };
            let bounds = ChildBounds { examine: budget.examine(), bytes: Budget::PAGE_BYTES };
            let page = operator.inspect().branch_children_page(&of, bounds).await?;
            budget.charge(&page);
            // Beyond where one branch was read to, others may have children in between.
            end = page.next.into_iter().chain(end).min();
            read.extend(page.children.into_iter().map(|child| child.summary));
        }
        read.retain(|job| end.is_none_or(|end| job.id <= end));
        read.sort_by_key(|job| job.id);
        if let Some(next) = take(&mut found, read, filter) {
            return Ok((found, Some(next)));
        }
        after = end;
        if after.is_none() {
            break;
        }
    }
    Ok((found, after))
}

/// Whether a child matches. It is not at the top: it has a parent.
fn matches(filter: &Filter, job: &Summary) -> bool {
    let is = |wanted: &Option<String>, actual: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| actual == Some(wanted))
    };
    filter.state.is_none_or(|state| state == job.state)
        && filter.version.is_none_or(|version| version == job.version)
        && is(&filter.kind, Some(&job.kind))
        && is(&filter.queue, Some(&job.queue))
        && is(&filter.key, job.key.as_deref())
        && filter
            .key_prefix
            .as_deref()
            .is_none_or(|prefix| job.key.as_deref().is_some_and(|key| key.starts_with(prefix)))
        && filter.ids().0.is_none_or(|from| job.id >= from)
        && filter.ids().1.is_none_or(|before| job.id < before)
        && is(&filter.stage, job.stage.as_deref())
        && !filter.top
}

/// Whether a job is a block: many items of a packed branch.
pub fn is_block(job: &Summary) -> bool {
    block::is_block(job.stage.as_deref())
}

/// How many items the blocks among some jobs have; of many blocks only the first are read.
pub(crate) async fn block_items(
    operator: &Operator,
    jobs: &[Summary],
) -> Result<BTreeMap<JobId, u32>, Error> {
    let mut items = BTreeMap::new();
    for job in jobs.iter().filter(|job| is_block(job)).take(COUNTED) {
        if let Some(place) = operator.inspect().job(job.id).await?.and_then(|job| job.position) {
            items.insert(job.id, place.items);
        }
    }
    Ok(items)
}
