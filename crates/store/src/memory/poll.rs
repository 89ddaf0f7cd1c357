//! Polling branches; see [`crate::Maintenance::poll_branches`].

use windlass_model::{
    BranchCounts, BranchPoll,
    branch::PollInterval,
    poll::{ChildRows, MAX_REDELIVERED, PollSample, Recount},
};

use super::{branch::BranchKey, *};
use crate::CANCEL_AGAIN;

impl Inner {
    pub(super) fn poll_branches(&mut self, now: Time, limit: usize) -> PollReport {
        let mut report = PollReport { now, ..PollReport::default() };
        let polls = self.branches.iter().filter_map(|(key, branch)| Some((branch.poll.next_at?, *key)));
        let due: BTreeSet<(Time, BranchKey)> = polls.filter(|(at, _)| *at <= now).collect();
        for (_, key) in due.into_iter().take(limit) {
            report.polled += 1;
            self.poll_branch(now, key, &mut report);
        }
        report.next_at = self.branches.values().filter_map(|branch| branch.poll.next_at).min();
        report
    }

    fn poll_branch(&mut self, now: Time, key: BranchKey, report: &mut PollReport) {
        let branch = &self.branches[&key];
        let interval = PollInterval::of(branch.watch.as_ref());
        let last = branch.poll.clone();
        let mut poll = last.next(&self.sample(now, key), interval);
        if last.recount_due(&poll) {
            let Recount { difference, missing } = self.recount(key);
            report.corrected += usize::from(difference != BranchCounts::default());
            let counted_at = Some(now);
            poll = BranchPoll { missing, counted_at, ..last.next(&self.sample(now, key), interval) };
        }
        if last.search_due(&poll) {
            let lost = self.redeliver(key);
            report.redelivered += lost;
            poll.add_redelivered(lost);
        }
        let found_missing = poll.found_missing();
        // Rounded as the databases round it.
        let rounded = columns::poll(Some(&columns::poll_text(&poll)), poll.next_at);
        self.branches.get_mut(&key).expect("read above").poll = rounded;
        let notified = if found_missing { self.notify(now, key) } else { self.notify_if_met(now, key) };
        report.notified += usize::from(notified);
        let branch = self.branches.get_mut(&key).expect("read above");
        branch.cancels_children &= branch.poll.pending > 0;
        branch.poll.next_at =
            poll.next_poll_at(branch.cancels_children, branch.watch.is_some(), CANCEL_AGAIN);
        if branch.cancels_children {
            report.to_cancel.push(key);
        }
    }

    /// All claimed jobs.
    fn claimed_jobs(&self) -> BTreeSet<(JobId, Epoch)> {
        self.claims.values().flat_map(|claim| claim.jobs.iter().copied()).collect()
    }

    fn sample(&self, now: Time, key: BranchKey) -> PollSample {
        // A lost child has the state of a running one, but no claim has it.
        let claimed = self.claimed_jobs();
        let claimed: Vec<(&Row, i64)> = self
            .children_in(key)
            .filter(|(row, _)| row.is_live() && claimed.contains(&(row.new.id, row.epoch)))
            .collect();
        let branch = &self.branches[&key];
        PollSample {
            now,
            spawned: branch.spawned,
            counts: branch.counts,
            claimed: claimed.iter().map(|(_, items)| items).sum(),
            claimed_unstarted: claimed
                .iter()
                .filter(|(row, _)| row.rev == Rev(0))
                .map(|(_, items)| items)
                .sum(),
        }
    }

    /// Makes children ready that are live and nowhere. Returns how many.
    fn redeliver(&mut self, key: BranchKey) -> usize {
        let claimed = self.claimed_jobs();
        let is_lost = |row: &Row| {
            self.state(row.new.id) == State::Running && !claimed.contains(&(row.new.id, row.epoch))
        };
        let lost = self.children_in(key).filter(|(row, _)| is_lost(row)).map(|(row, _)| row.new.id);
        let lost: Vec<JobId> = lost.take(MAX_REDELIVERED).collect();
        for id in &lost {
            self.row_mut(*id).epoch.0 += 1;
            self.enter(*id);
        }
        lost.len()
    }

    /// Counts the children of a branch again, and corrects its counts.
    fn recount(&mut self, key: BranchKey) -> Recount {
        let mut rows = ChildRows::default();
        for (row, items) in self.children_in(key) {
            rows.ends.done += i64::from(row.items_done);
            match row.final_state {
                Some(state) => rows.ends.add(BranchCounts::of(state, items)),
                None => rows.live += items,
            }
        }
        let branch = self.branches.get_mut(&key).expect("read before");
        let recount = rows.recount(branch.spawned, &branch.counts);
        branch.counts.add(recount.difference);
        recount
    }
}
