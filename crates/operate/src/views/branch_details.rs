//! One branch with what its page shows: how its children are, in the order in which they were spawned, which of them is held up, and its
//! errors. Every read is bounded, however many children there are.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_model::{BranchNo, JobId, State, Time};
use windlass_store::{BranchRanges, ChildGroup, ChildRange, RangeChild, UnsuccessfulFilter, UnsuccessfulJob};
use windlass_workflow::Error;

use super::{
    BranchView, BranchesView, Failures, Totals,
    branches::is_stalled,
    failures::{EXAMINED, read_groups},
};
use crate::{Operator, Why, items::before};

/// A branch with at most this many children is read as a whole.
const WHOLE: usize = 400;
/// How many children of each part of a larger branch are read.
const EACH: usize = 4;
/// How many children are looked at on either side of a branch to find live ones.
const AMONG: usize = 500;

/// How far the clock of a worker, which has the times of ids, may be behind the store's.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// A branch, and how its children are.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BranchDetails {
    /// The job that opened it.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// Its key.
    pub key: Option<String>,
    /// Its state.
    pub state: State,
    /// The branch.
    pub branch: BranchView,
    /// The totals of all branches of the job that are not merged.
    pub unmerged: Totals,
    /// From its first child to its last one; `None` if it has none.
    pub ends: Option<ChildRange>,
    /// Its children in their order, in at most as many cells as were asked for.
    pub cells: Vec<ChildCell>,
    /// Whether the cells are of all children. If not, each is of the first few of its part.
    pub is_whole: bool,
    /// Why the first child that was found and does not run is in its state, if no child ends.
    pub held_up: Option<Why>,
}

/// Children of a branch that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildCell {
    /// From which to which.
    pub range: ChildRange,
    /// How many items were read: a block has several.
    pub read: u64,
    /// How many of these are done.
    pub done: u64,
    /// How many failed or were cancelled.
    pub unsuccessful: u64,
    /// How many run.
    pub running: u64,
}

impl ChildCell {
    fn new(range: ChildRange, children: &[RangeChild]) -> ChildCell {
        let mut cell = ChildCell { range, read: 0, done: 0, unsuccessful: 0, running: 0 };
        for child in children {
            let items = u64::from(child.items.max(1));
            cell.read += items;
            match child.summary.state {
                State::Done => cell.done += items,
                State::Failed | State::Cancelled => cell.unsuccessful += items,
                state => {
                    let done = u64::from(child.items_done).min(items);
                    cell.done += done;
                    cell.running += if state == State::Running { items - done } else { 0 };
                }
            }
        }
        cell
    }
}

impl BranchDetails {
    /// Reads the branch of a job with this number, with its children in at most `cells` cells; `None` if there is none.
    pub async fn read(
        operator: &Operator,
        job: JobId,
        branch: BranchNo,
        cells: usize,
    ) -> Result<Option<BranchDetails>, Error> {
        let BranchesView { kind, key, state, now, branches, unmerged, .. } =
            BranchesView::read(operator, job, None).await?;
        let Some(branch) = branches.into_iter().find(|view| view.number == branch) else { return Ok(None) };
        let ends = operator.inspect().branch_ends(job, branch.number).await?;
        let (children, is_whole) =
            sample(operator, job, branch.number, (ends, branch.opened_at), cells).await?;
        let held_up = match children.iter().flat_map(|(_, children)| children).find(|child| is_held(child)) {
            Some(child) if is_stalled(&branch, now) => operator.why(child.summary.id).await?,
            _ => None,
        };
        let cells = children.iter().map(|(range, children)| ChildCell::new(*range, children)).collect();
        Ok(Some(BranchDetails { job, kind, key, state, branch, unmerged, ends, cells, is_whole, held_up }))
    }
}

fn is_held(child: &RangeChild) -> bool {
    !child.summary.state.is_final() && child.summary.state != State::Running
}

/// Children of a branch by the cells that they are in, and whether these are all of them.
async fn sample(
    operator: &Operator,
    job: JobId,
    branch: BranchNo,
    (ends, opened_at): (Option<ChildRange>, Time),
    cells: usize,
) -> Result<(Vec<(ChildRange, Vec<RangeChild>)>, bool), Error> {
    let Some(ends) = ends else { return Ok((Vec::new(), true)) };
    let first = read_ranges(operator, job, branch, &[ends], WHOLE + 1).await?.concat();
    if first.len() <= WHOLE {
        let each = first.len().div_ceil(cells.max(1)).max(1);
        let cell = |children: &[RangeChild]| {
            let (from, to) = (&children[0].summary, &children[children.len() - 1].summary);
            (ChildRange { first: from.id, last: to.id }, children.to_vec())
        };
        return Ok((first.chunks(each).map(cell).collect(), true));
    }
    let parts = parts(ends, opened_at, cells);
    let children = read_ranges(operator, job, branch, &parts, EACH).await?;
    // In some parts of the time nothing was spawned.
    let children = parts.into_iter().zip(children).filter(|(_, children)| !children.is_empty());
    Ok((children.collect(), false))
}

/// Parts of a branch. Ids have the times at which children were spawned, but for items that left their blocks, whose ids have that of the
/// parent: those are a part of their own, so that the others have all the room.
fn parts(ends: ChildRange, opened_at: Time, cells: usize) -> Vec<ChildRange> {
    let spawned = JobId::lowest_at(opened_at - CLOCKS_DIFFER);
    if ends.first >= spawned || ends.last < spawned {
        return ends.divide(cells);
    }
    let left = ChildRange { first: ends.first, last: before(spawned).unwrap_or(spawned) };
    let rest = ChildRange { first: spawned, last: ends.last };
    std::iter::once(left).chain(rest.divide(cells.saturating_sub(1))).collect()
}

async fn read_ranges(
    operator: &Operator,
    job: JobId,
    branch: BranchNo,
    ranges: &[ChildRange],
    each: usize,
) -> Result<Vec<Vec<RangeChild>>, Error> {
    Ok(operator.inspect().branch_ranges(BranchRanges { job, branch, ranges, each }).await?)
}

/// Some children of a branch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BranchPage {
    /// The children.
    pub children: Vec<RangeChild>,
    /// The next page has the children from here on; `None` on the last page.
    pub next: Option<JobId>,
    /// Whether only children near the ends of the branch were looked at, so that there may be more.
    pub is_partial: bool,
}

impl BranchPage {
    /// Reads the first children of a range, at most `limit`.
    pub async fn of_range(
        operator: &Operator,
        job: JobId,
        branch: BranchNo,
        range: ChildRange,
        limit: usize,
    ) -> Result<BranchPage, Error> {
        let mut children = read_ranges(operator, job, branch, &[range], limit + 1).await?.concat();
        let next = children.get(limit).map(|child| child.summary.id);
        children.truncate(limit);
        Ok(BranchPage { children, next, is_partial: false })
    }

    /// Reads at most `limit` children that have not ended: those that are held up first, then those that run. Looks at the first and the
    /// last 500 children of the branch.
    pub async fn live(
        operator: &Operator,
        job: JobId,
        branch: BranchNo,
        ends: ChildRange,
        limit: usize,
    ) -> Result<BranchPage, Error> {
        let first = read_ranges(operator, job, branch, &[ends], AMONG).await?.concat();
        let is_partial = first.len() == AMONG;
        let mut known: BTreeSet<JobId> = first.iter().map(|child| child.summary.id).collect();
        let mut live: Vec<RangeChild> =
            first.into_iter().filter(|child| !child.summary.state.is_final()).collect();
        if is_partial && live.len() < limit {
            let newest = operator.inspect().live_children(job, ChildGroup::Branch(branch), AMONG).await?;
            let ids: Vec<JobId> =
                newest.iter().map(|child| child.id).filter(|id| known.insert(*id)).collect();
            live.extend(BranchPage::of_ids(operator, job, branch, &ids[..ids.len().min(limit)]).await?);
        }
        live.sort_by_key(|child| (child.summary.state == State::Running, child.summary.id));
        live.truncate(limit);
        Ok(BranchPage { children: live, next: None, is_partial })
    }

    /// Reads those of these children that are in the branch, in their order here.
    pub async fn of_ids(
        operator: &Operator,
        job: JobId,
        branch: BranchNo,
        ids: &[JobId],
    ) -> Result<Vec<RangeChild>, Error> {
        let ranges: Vec<ChildRange> = ids.iter().map(|id| ChildRange { first: *id, last: *id }).collect();
        Ok(read_ranges(operator, job, branch, &ranges, 1).await?.concat())
    }
}

/// The unsuccessful children of a branch, by their errors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BranchFailures {
    /// The groups. They are capped if there are more unsuccessful children than were found.
    pub failures: Failures,
    /// Those that were found, newest first.
    pub children: Vec<JobId>,
}

impl BranchFailures {
    /// Reads those among the newest 5,000 unsuccessful jobs of the store that are not newer than the last child of the branch.
    pub async fn read(
        operator: &Operator,
        job: JobId,
        branch: &BranchView,
        ends: Option<ChildRange>,
    ) -> Result<BranchFailures, Error> {
        let number = branch.number;
        let before = ends.map(|ends| after(ends.last));
        let is_in = |found: &UnsuccessfulJob| found.parent == Some(job) && found.branch == Some(number);
        let filter = UnsuccessfulFilter { before, ..UnsuccessfulFilter::default() };
        let mut found = match ends {
            Some(_) if branch.unsuccessful() > 0 => {
                operator.inspect().unsuccessful(&filter, EXAMINED).await?.jobs
            }
            _ => Vec::new(),
        };
        found.retain(is_in);
        let children: Vec<JobId> = found.iter().map(|found| found.id).collect();
        let is_capped = branch.unsuccessful() > children.len() as u64;
        let failures = read_groups(operator, found, is_capped).await?;
        Ok(BranchFailures { failures, children })
    }

    /// A page of the children: those from one on, at most `limit`, and where the next page begins.
    pub fn page(&self, from: Option<JobId>, limit: usize) -> (&[JobId], Option<JobId>) {
        let start = match from {
            Some(from) => self.children.iter().position(|id| *id <= from).unwrap_or(self.children.len()),
            None => 0,
        };
        let end = self.children.len().min(start.saturating_add(limit));
        (&self.children[start..end], self.children.get(end).copied())
    }
}

/// The id after another.
fn after(id: JobId) -> JobId {
    JobId::from_bytes(u128::from_be_bytes(*id.as_bytes()).saturating_add(1).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use windlass_store::Summary;

    use super::*;

    fn id(n: u32) -> JobId {
        JobId::from_parts(1, n, 0)
    }

    fn child(state: State, items: u32, items_done: u32) -> RangeChild {
        let summary = Summary {
            id: id(1),
            kind: "tile".into(),
            version: 1,
            queue: "default".into(),
            key: None,
            state,
            stage: None,
            reason: None,
            attempts: 0,
            priority: 0,
            submitted_at: Time(0),
            due_at: Time(0),
            finished_at: None,
        };
        RangeChild { summary, item: "1".into(), items, items_done }
    }

    #[test]
    fn a_cell_counts_items() {
        let range = ChildRange { first: id(1), last: id(9) };
        let children = [
            child(State::Done, 5, 0),
            child(State::Failed, 1, 0),
            child(State::Cancelled, 1, 0),
            child(State::Running, 10, 4),
            child(State::Ready, 2, 0),
        ];
        let cell = ChildCell::new(range, &children);
        assert_eq!((cell.read, cell.done, cell.unsuccessful, cell.running), (19, 9, 2, 6));
        assert_eq!(ChildCell::new(range, &[]).read, 0);
    }

    #[test]
    fn items_that_left_their_blocks_are_a_part_of_their_own() {
        let at = |seconds: u64| Time(1_800_000_000_000_000) + Duration::from_secs(seconds);
        let ends =
            |first, last| ChildRange { first: JobId::lowest_at(at(first)), last: JobId::lowest_at(at(last)) };
        let apart = parts(ends(0, 90_019), at(90_000), 200);
        assert_eq!((apart.len(), apart[0].first), (200, ends(0, 1).first));
        assert!(
            apart[1].first == JobId::lowest_at(at(90_000) - CLOCKS_DIFFER) && apart[1].first > apart[0].last
        );
        assert_eq!(apart[199].last, ends(0, 90_019).last);
        let usual = ends(90_000, 90_019);
        assert_eq!(parts(usual, at(90_000), 200), usual.divide(200));
        assert_eq!(parts(ends(0, 5), at(90_000), 7), ends(0, 5).divide(7));
    }

    #[test]
    fn failed_children_are_listed_page_by_page() {
        let failures = Failures { groups: Vec::new(), jobs: 5, is_capped: false, now: Time(0) };
        let all = BranchFailures { failures, children: [9, 7, 5, 3, 1].map(id).to_vec() };
        assert_eq!(all.page(None, 2), (&[id(9), id(7)][..], Some(id(5))));
        assert_eq!(all.page(Some(id(5)), 2), (&[id(5), id(3)][..], Some(id(1))));
        assert_eq!(all.page(Some(id(2)), 2), (&[id(1)][..], None));
        assert_eq!(all.page(Some(id(0)), 2), (&[][..], None));
        assert_eq!(all.page(Some(id(8)), 9).0.len(), 4);
    }
}
