//! The children of branches as people see them: jobs of their own, and the items of blocks one by one.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;
use windlass_model::{Failure, JobId, Reason, State};
use windlass_store::{Branch, BranchChild, BranchChildFilter, ChildPlace, ChildStates, JobEnd};

use windlass_workflow::{
    Error,
    engine::{
        BLOCKS, SINGLES,
        block::{self, PackedItem},
    },
};

use crate::Operator;

/// A child of a branch.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Item {
    /// Its id: that of its job. Of one in a block it is that of the job that it becomes if it is moved out.
    pub id: JobId,
    /// What people call it: its parent's key or id, the branch, the spawn and the item.
    pub key: String,
    /// Its place in the branch.
    pub place: ChildPlace,
    /// Its kind.
    pub kind: String,
    /// Its kind's version.
    pub version: i32,
    /// Where it stands: in a block it is done, or stands where the block does.
    pub state: State,
    /// The block it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<JobId>,
    /// Its input, if this program can read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What it returned, if it is done and this program can read that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Its last error, or that of its block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// The children of a job's branches, read from the store a page at a time; made by [`Operator::items`].
///
/// Branch by branch, in the order of the ids of the rows that they are in. A block that this program cannot read (it lacks
/// the codec) is told as one child that stands for all of them, see [`ChildPlace::items`].
pub struct Items {
    operator: Operator,
    parent: String,
    branches: Vec<Branch>,
    /// Which rows are read, one pass after the other, and which of their items are wanted.
    passes: &'static [ChildStates],
    only: ChildStates,
    at: ReadPosition,
    /// What was read and not taken: the row that it is in, and its place there.
    ready: VecDeque<(JobId, usize, Item)>,
    /// What was taken last.
    taken: Option<Mark>,
    rows: usize,
}

/// Where reading goes on.
#[derive(Clone, Copy, Default)]
struct ReadPosition {
    branch: usize,
    pass: usize,
    after: Option<JobId>,
    /// Items of this row are left out if their places are smaller.
    begun: Option<(JobId, usize)>,
}

/// A child that was taken.
#[derive(Clone, Copy)]
struct Mark {
    branch: usize,
    pass: usize,
    row: JobId,
    place: usize,
}

impl Operator {
    /// The children of a job's branches, or of the one with this name, one by one, those in blocks too.
    pub async fn items(&self, job: JobId, branch: Option<&str>, only: ChildStates) -> Result<Items, Error> {
        let Some(parent) = self.inspect().job(job).await? else { return Err(Error::NoSuchJob(job)) };
        let branches = branches_named(self.inspect().branches(job).await?, job, branch)?;
        let parent = parent.summary.key.unwrap_or_else(|| job.to_string());
        Ok(Items::new(self.clone(), parent, branches, only))
    }
}

impl Items {
    fn new(operator: Operator, parent: String, branches: Vec<Branch>, only: ChildStates) -> Items {
        let passes: &[ChildStates] = match only {
            ChildStates::All => &[ChildStates::All],
            ChildStates::Live => &[ChildStates::Live],
            ChildStates::Bad => &[ChildStates::Bad],
            // Of a block that has not ended, some items may have.
            ChildStates::Ended => &[ChildStates::Ended, ChildStates::Live],
        };
        let (at, ready, taken) = (ReadPosition::default(), VecDeque::new(), None);
        Items { operator, parent, branches, passes, only, at, ready, taken, rows: BLOCKS }
    }

    /// What the parent is called.
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// Goes on after a child that was taken before; `mark` is what [`Items::mark`] answered then.
    pub fn after(mut self, mark: &str) -> Result<Items, Error> {
        let wrong = || {
            Error::Setup(format!("{mark:?} is no place among children; take one that was answered before"))
        };
        let mut parts = mark.split('/');
        let mut part = || parts.next().ok_or_else(wrong);
        let number: i64 = part()?.parse().map_err(|_| wrong())?;
        let pass: usize = part()?.parse().map_err(|_| wrong())?;
        let row: JobId = part()?.parse().map_err(|_| wrong())?;
        let place: usize = part()?.parse().map_err(|_| wrong())?;
        let branch = self.branches.iter().position(|branch| branch.number.0 == number).ok_or_else(wrong)?;
        if pass >= self.passes.len() {
            return Err(wrong());
        }
        self.at = ReadPosition { branch, pass, after: before(row), begun: Some((row, place + 1)) };
        Ok(self)
    }

    /// Where the child that was taken last stands; `None` before the first.
    pub fn mark(&self) -> Option<String> {
        let Mark { branch, pass, row, place } = self.taken?;
        Some(format!("{}/{pass}/{row}/{place}", self.branches[branch].number))
    }

    /// The next child; `None` if there are no more.
    pub async fn next(&mut self) -> Result<Option<Item>, Error> {
        loop {
            if let Some((row, place, item)) = self.ready.pop_front() {
                let ReadPosition { branch, pass, .. } = self.at;
                self.taken = Some(Mark { branch, pass, row, place });
                return Ok(Some(item));
            }
            let Some(branch) = self.branches.get(self.at.branch) else { return Ok(None) };
            let (job, only) = (branch.job, self.passes[self.at.pass]);
            let of = BranchChildFilter {
                job,
                branch: branch.number,
                only,
                after: self.at.after,
                limit: self.rows,
            };
            let page = self.operator.inspect().branch_children(&of).await?;
            let Some(last) = page.last() else {
                self.advance();
                continue;
            };
            self.at.after = Some(last.summary.id);
            let blocks = page.iter().any(is_block);
            self.rows = if blocks { BLOCKS } else { SINGLES };
            for leaf in page {
                let row = leaf.summary.id;
                let first = self.at.begun.take_if(|(begun, _)| *begun == row).map_or(0, |(_, place)| place);
                let items = expand(&self.operator, &self.parent, branch, leaf);
                let wanted =
                    items.into_iter().filter(|(place, item)| *place >= first && self.is_wanted(item));
                self.ready.extend(wanted.map(|(place, item)| (row, place, item)).collect::<Vec<_>>());
            }
        }
    }

    /// Goes on with the next pass, or the next branch.
    fn advance(&mut self) {
        let ReadPosition { branch, pass, .. } = self.at;
        self.at = match pass + 1 < self.passes.len() {
            true => ReadPosition { branch, pass: pass + 1, ..ReadPosition::default() },
            false => ReadPosition { branch: branch + 1, ..ReadPosition::default() },
        };
        self.rows = BLOCKS;
    }

    fn is_wanted(&self, item: &Item) -> bool {
        match self.only {
            ChildStates::All => true,
            ChildStates::Live => !item.state.is_final(),
            ChildStates::Ended => item.state.is_final(),
            ChildStates::Bad => item.state.is_final() && item.state != State::Done,
        }
    }
}

/// The children that one row stands for, with their places in it.
pub(super) fn expand(
    operator: &Operator,
    parent: &str,
    branch: &Branch,
    leaf: BranchChild,
) -> Vec<(usize, Item)> {
    let BranchChild { summary, branch_position: twig, ended, input, data, .. } = leaf;
    let spawn = usize::try_from(twig.spawn).ok().and_then(|spawn| branch.spawns.get(spawn));
    let (output, failure) = match ended {
        Some(JobEnd::Done(output)) => (Some(output), None),
        Some(JobEnd::Failed { failure, .. } | JobEnd::Cancelled(failure)) => (None, Some(failure)),
        Some(JobEnd::Gone) | None => (None, None),
    };
    let place = ChildPlace {
        branch: branch.number,
        name: branch.name.clone(),
        spawn: spawn.cloned().unwrap_or_default(),
        item: twig.item,
        items: twig.items,
    };
    let row = Item {
        id: summary.id,
        key: place.key(parent),
        place,
        kind: summary.kind,
        version: summary.version,
        state: summary.state,
        block: None,
        input: None,
        result: None,
        reason: summary.reason,
        failure,
    };
    if !block::is_block(summary.stage.as_deref()) {
        let read = |payload| serde_json::from_slice(&operator.decode(payload).ok()?).ok();
        let (input, result) = (read(&input), output.as_ref().and_then(read));
        return vec![(0, Item { input, result, ..row })];
    }
    let block = Some(row.id);
    let kept = output.as_ref().or(data.as_ref());
    let Ok(packed) = block::packed_items(&input, kept, operator.codecs()) else {
        return vec![(0, Item { block, ..row })];
    };
    let item = |PackedItem { index, key, input, result }: PackedItem| {
        let id = JobId::of_item(branch.job, branch.number, twig.spawn, &key);
        let place = ChildPlace { item: key, items: 1, ..row.place.clone() };
        let key = place.key(parent);
        let input = serde_json::from_str(input.get()).ok();
        let item = Item { id, key, place, block, input, ..row.clone() };
        let item = match result {
            Some(result) => {
                let result = serde_json::from_str(result.get()).ok();
                Item { state: State::Done, result, reason: None, failure: None, ..item }
            }
            None => item,
        };
        (index, item)
    };
    packed.into_iter().map(item).collect()
}

pub(super) fn is_block(leaf: &BranchChild) -> bool {
    block::is_block(leaf.summary.stage.as_deref())
}

/// The id before another: what stands after it begins with the other.
pub(super) fn before(id: JobId) -> Option<JobId> {
    let number = u128::from_be_bytes(*id.as_bytes());
    number.checked_sub(1).map(|before| JobId::from_bytes(before.to_be_bytes()))
}

/// The branches with a name, or all of them.
pub(crate) fn branches_named(
    branches: Vec<Branch>,
    job: JobId,
    name: Option<&str>,
) -> Result<Vec<Branch>, Error> {
    let Some(name) = name else { return Ok(branches) };
    let known: Vec<String> = branches.iter().map(|branch| branch.name.clone()).collect();
    let meant: Vec<Branch> = branches.into_iter().filter(|branch| branch.name == name).collect();
    match meant.is_empty() {
        true => Err(Error::NoSuchBranch { job, branch: name.to_owned(), known }),
        false => Ok(meant),
    }
}
