//! Reads for people and for parents: branches, their children, and the position of a child.

use windlass_model::BranchNo;

use super::{
    branch::{BranchKey, StoredBranch},
    *,
};
use crate::{
    Branch, BranchChild, BranchChildFilter, BranchChildPage, BranchItems, BranchRanges, BranchTimes,
    ChildBounds, ChildEnd, ChildGroup, ChildPosition, ChildRange, ChildStates, ItemChild, OpenBranch,
    RangeChild, Summary,
};

/// Whether a child is in one of these states.
fn is_in(row: &Row, states: ChildStates) -> bool {
    match states {
        ChildStates::All => true,
        ChildStates::Live => row.is_live(),
        ChildStates::Ended => !row.is_live(),
        ChildStates::Unsuccessful => matches!(row.final_state, Some(State::Failed | State::Cancelled)),
    }
}

impl Inner {
    /// The children of a branch, with how many items each represents that are not counted yet.
    pub(super) fn children_in(&self, key: BranchKey) -> impl Iterator<Item = (&Row, i64)> {
        self.jobs.values().filter_map(move |row| {
            let member = row.branch_member().filter(|member| (member.parent, member.branch) == key)?;
            Some((row, i64::from(member.items)))
        })
    }

    /// The position of a job in a branch of its parent.
    pub(super) fn place(&self, id: JobId) -> Option<ChildPosition> {
        let row = self.row(id);
        let position = row.new.branch_position.as_ref()?;
        let branch = self.branches.get(&(row.new.parent?, position.branch))?;
        let spawn = usize::try_from(position.spawn).ok().and_then(|spawn| branch.spawns.get(spawn));
        Some(ChildPosition {
            branch: position.branch,
            name: branch.name.clone(),
            spawn: spawn.cloned().unwrap_or_default(),
            item: position.item.clone(),
            items: position.items,
        })
    }

    pub(super) fn branches(&self, job: JobId) -> Vec<Branch> {
        let of_job = self.branches.iter().filter(|((of, _), _)| *of == job);
        of_job.map(|(key, branch)| branch.view(*key)).collect()
    }

    pub(super) fn open_branches(&self, limit: usize) -> Vec<OpenBranch> {
        let open = self.branches.iter().rev().filter(|(_, branch)| !branch.merged).take(limit);
        let view = |(key, branch): (&BranchKey, &StoredBranch)| {
            let times = self.branch_times(key.0).into_iter().find(|times| times.branch == key.1);
            let none = BranchTimes { branch: key.1, ..BranchTimes::default() };
            let branch = Branch { cursor: None, ..branch.view(*key) };
            OpenBranch { branch, parent: self.summary(key.0), times: times.unwrap_or(none) }
        };
        open.map(view).collect()
    }

    pub(super) fn branch_children(&self, filter: &BranchChildFilter) -> Vec<BranchChild> {
        let is_wanted =
            |row: &Row| is_in(row, filter.states) && filter.after.is_none_or(|after| row.new.id > after);
        let children = self.children_in((filter.job, filter.branch)).filter(|(row, _)| is_wanted(row));
        children.take(filter.limit).map(|(row, _)| self.branch_child(row)).collect()
    }

    /// A page of the children of a branch, bounded in the children that it examines and in bytes.
    pub(super) fn branch_children_page(
        &self,
        filter: &BranchChildFilter,
        bounds: ChildBounds,
    ) -> BranchChildPage {
        // Unsuccessful children have an index of their own: no other is examined.
        let is_examined = |row: &Row| {
            filter.after.is_none_or(|after| row.new.id > after)
                && (filter.states != ChildStates::Unsuccessful || is_in(row, filter.states))
        };
        let examined = self.children_in((filter.job, filter.branch)).filter(|(row, _)| is_examined(row));
        let (mut children, mut bytes, mut count, mut last) = (Vec::new(), 0, 0, None);
        for (row, _) in examined {
            if count == bounds.examine {
                return BranchChildPage { children, next: last, examined: count };
            }
            (count, last) = (count + 1, Some(row.new.id));
            if !is_in(row, filter.states) {
                continue;
            }
            let child = self.branch_child(row);
            bytes += child.payload_bytes();
            if !children.is_empty() && (children.len() == filter.limit || bytes > bounds.bytes) {
                let next = children.last().map(|child: &BranchChild| child.summary.id);
                return BranchChildPage { children, next, examined: count };
            }
            children.push(child);
        }
        // The databases stop there and do not know whether there are more.
        BranchChildPage { children, next: last.filter(|_| count == bounds.examine), examined: count }
    }

    fn branch_child(&self, row: &Row) -> BranchChild {
        BranchChild {
            summary: self.summary(row.new.id),
            branch_position: *row.new.branch_position.clone().expect("it is in a branch"),
            items_done: row.items_done,
            ended: self.job_end(row.new.id),
            input: row.new.input.clone(),
            data: row.data.clone(),
        }
    }

    /// The children of a branch that have one of these items, or begin with one.
    pub(super) fn branch_items(&self, of: BranchItems<'_>) -> Vec<ItemChild> {
        let mut found = Vec::new();
        for item in of.items {
            let has_item = |row: &Row| {
                let position = row.new.branch_position.as_ref();
                position.is_some_and(|position| position.spawn == of.spawn && position.item == *item)
            };
            let children = self.children_in((of.job, of.branch)).filter(|(row, _)| has_item(row));
            found.extend(children.map(|(row, _)| {
                let (id, stage) = (row.new.id, row.stage.clone());
                ItemChild { id, item: item.clone(), stage }
            }));
        }
        found
    }

    /// Children of a job, oldest first, those in branches included.
    pub(super) fn children(&self, parent: JobId, after: Option<JobId>, limit: usize) -> Vec<Summary> {
        let is_wanted = |(id, row): &(&JobId, &Row)| {
            row.new.parent == Some(parent) && after.is_none_or(|after| **id > after)
        };
        self.jobs.iter().filter(is_wanted).take(limit).map(|(id, _)| self.summary(*id)).collect()
    }

    /// The children of a group that have not ended, newest first.
    pub(super) fn live_children(&self, parent: JobId, group: ChildGroup, among: usize) -> Vec<Summary> {
        let branch_of = |row: &Row| row.new.branch_position.as_ref().map(|position| position.branch);
        let branch = match group {
            ChildGroup::Branch(branch) => Some(branch),
            ChildGroup::Change(_) => None,
        };
        let is_wanted = |row: &Row| match group {
            ChildGroup::Branch(_) => true,
            ChildGroup::Change(rev) => row.new.parent_rev == Some(rev),
        };
        let siblings = self.jobs.iter().rev();
        let siblings = siblings.filter(|(_, row)| row.new.parent == Some(parent) && branch_of(row) == branch);
        let live = siblings.take(among).filter(|(_, row)| row.is_live() && is_wanted(row));
        live.map(|(id, _)| self.summary(*id)).collect()
    }

    /// The first and the last child of a branch.
    pub(super) fn branch_ends(&self, job: JobId, branch: BranchNo) -> Option<ChildRange> {
        let mut ids = self.children_in((job, branch)).map(|(row, _)| row.new.id);
        let first = ids.next()?;
        Some(ChildRange { first, last: ids.last().unwrap_or(first) })
    }

    /// The first children of ranges of a branch.
    pub(super) fn branch_ranges(&self, of: BranchRanges<'_>) -> Vec<Vec<RangeChild>> {
        let child = |(row, _): (&Row, i64)| RangeChild {
            summary: self.summary(row.new.id),
            item: row.new.branch_position.as_ref().map_or(String::new(), |position| position.item.clone()),
            items: row.new.branch_position.as_ref().map_or(1, |position| position.items),
            items_done: row.items_done,
        };
        let range = |range: &ChildRange| {
            let ids = range.first..=range.last;
            let children = self.children_in((of.job, of.branch)).filter(|(row, _)| ids.contains(&row.new.id));
            children.take(of.each).map(child).collect()
        };
        of.ranges.iter().map(range).collect()
    }

    /// The children that one change of a job submitted, and how they ended.
    pub(super) fn child_ends(
        &self,
        parent: JobId,
        parent_rev: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Vec<ChildEnd> {
        let is_wanted = |(id, row): &(&JobId, &Row)| {
            row.new.parent == Some(parent)
                && row.new.parent_rev == Some(parent_rev)
                && after.is_none_or(|after| **id > after)
        };
        let view = |(id, row): (&JobId, &Row)| ChildEnd {
            id: *id,
            kind: row.new.kind.kind.clone(),
            key: row.new.key.clone(),
            ended: self.job_end(*id),
        };
        self.jobs.iter().filter(is_wanted).take(limit).map(view).collect()
    }
}

impl StoredBranch {
    fn view(&self, (job, number): BranchKey) -> Branch {
        Branch {
            job,
            number,
            name: self.name.clone(),
            spawns: self.spawns.clone(),
            cursor: self.cursor.clone(),
            sealed: self.sealed,
            merged: self.merged,
            cancels_children: self.cancels_children,
            spawned: self.spawned,
            counts: self.counts,
            watch: self.watch.clone(),
            merge_record: self.merge_record.clone(),
            opened_at: self.opened_at,
            sealed_at: self.sealed_at,
            merged_at: self.merged_at,
            poll: self.poll.clone(),
        }
    }
}
