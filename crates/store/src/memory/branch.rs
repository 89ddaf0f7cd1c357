//! Branches: counting how their children end, and notifying their parents.

use windlass_model::{BranchCounts, BranchMember, BranchNo, BranchPoll, BranchWatch};

use super::*;

/// A branch: its job, and its number there.
pub(super) type BranchKey = (JobId, BranchNo);

/// A branch as it is stored.
#[derive(Clone, Default)]
pub(super) struct StoredBranch {
    pub(super) name: String,
    /// The names of its spawns.
    pub(super) spawns: Vec<String>,
    /// The positions in its sources.
    pub(super) cursor: Option<Payload>,
    pub(super) sealed: bool,
    /// How many children were spawned.
    pub(super) spawned: i64,
    pub(super) counts: BranchCounts,
    /// What its job watches for.
    pub(super) watch: Option<BranchWatch>,
    pub(super) merge_record: Option<String>,
    pub(super) merged: bool,
    /// Whether its live children are to be cancelled.
    pub(super) cancels_children: bool,
    /// The latest poll, and when the next one is due.
    pub(super) poll: BranchPoll,
    pub(super) opened_at: Time,
    pub(super) sealed_at: Option<Time>,
    pub(super) merged_at: Option<Time>,
}

impl StoredBranch {
    /// Ends the watch. The branch is polled on only to cancel children.
    pub(super) fn end_watch(&mut self) -> Option<BranchWatch> {
        if !self.cancels_children {
            self.poll.next_at = None;
        }
        self.watch.take()
    }
}

impl Row {
    /// The branch that counts the job's end, and how many items the job represents that are not counted yet.
    pub(super) fn branch_member(&self) -> Option<BranchMember> {
        let position = self.new.branch_position.as_ref()?;
        let items = position.items - self.items_done;
        Some(BranchMember { parent: self.new.parent?, branch: position.branch, items })
    }
}

impl Inner {
    /// Counts the end of a job that is in a branch.
    pub(super) fn branch_child_ended(&mut self, id: JobId, state: State, now: Time) {
        let row = self.row(id);
        let Some(member) = row.branch_member() else { return };
        let counts = BranchCounts::of_end(state, i64::from(member.items), row.rev == Rev(0));
        self.count(now, member, counts);
    }

    /// Counts that a child which had ended in state `was` is live again.
    pub(super) fn branch_child_revived(&mut self, id: JobId, was: State, now: Time) {
        let row = self.row(id);
        let Some(member) = row.branch_member() else { return };
        let counts = BranchCounts::of_revival(was, i64::from(member.items), row.rev == Rev(0));
        self.count(now, member, counts);
    }

    /// Adds to the counts of a branch, and notifies its job if that meets its watch.
    pub(super) fn count(&mut self, now: Time, member: BranchMember, counts: BranchCounts) {
        let key = (member.parent, member.branch);
        if let Some(branch) = self.branches.get_mut(&key) {
            branch.counts.add(counts);
            self.notify_if_met(now, key);
        }
    }

    /// Notifies the job of a branch if its watch is met. Returns whether it was.
    pub(super) fn notify_if_met(&mut self, now: Time, key: BranchKey) -> bool {
        let is_met =
            |branch: &StoredBranch| branch.watch.as_ref().is_some_and(|watch| watch.is_met(&branch.counts));
        self.branches.get(&key).is_some_and(is_met) && self.notify(now, key)
    }

    /// Ends the watch of a branch, whether or not it is met, and sends its job a signal. Returns whether there was one.
    pub(super) fn notify(&mut self, now: Time, key: BranchKey) -> bool {
        let watch = self.branches.get_mut(&key).and_then(StoredBranch::end_watch);
        if watch.is_some() {
            self.signal_branch(now, key.0, key.1);
        }
        watch.is_some()
    }

    /// Ends the watches of a job that has ended, and has the children of branches that it had not merged cancelled if
    /// `cancels_children`.
    pub(super) fn branch_parent_ended(&mut self, id: JobId, cancels_children: bool, now: Time) {
        let mut bumps = false;
        for (_, branch) in self.branches.iter_mut().filter(|((job, _), _)| *job == id) {
            branch.end_watch();
            if cancels_children && !branch.merged {
                (branch.cancels_children, branch.poll.next_at) = (true, Some(now));
                bumps = true;
            }
        }
        if bumps {
            self.bump_gate(TIMER_GATE);
        }
    }
}
