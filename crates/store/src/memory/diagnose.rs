//! The diagnosis of the memory store: it has no database to check.

use windlass_model::BranchCounts;

use super::{branch::StoredBranch, *};
use crate::{BranchHealth, Database, Diagnose, Miscount, OldestReady, diagnose::merge};

impl Inner {
    /// The first ready job of each lane.
    fn oldest_ready(&self) -> Vec<OldestReady> {
        let mut lanes = BTreeSet::new();
        let first = self.ready.iter().filter(|(lane, ..)| lanes.insert(lane));
        let oldest = first.map(|(lane, _, id)| OldestReady {
            queue: lane.queue.clone(),
            kind: lane.kind.clone(),
            version: lane.version,
            due_at: self.row(*id).due_at,
        });
        oldest.collect()
    }

    /// How many of the newest failed jobs are not in a merged branch.
    fn unhandled_failures(&self, cap: u64) -> u64 {
        let failed = self.jobs.values().rev().filter(|row| row.final_state == Some(State::Failed));
        let newest = failed.take(usize::try_from(cap).unwrap_or(usize::MAX));
        let is_handled = |row: &&Row| {
            let position = row.new.branch_position.as_ref().zip(row.new.parent);
            let branch =
                position.and_then(|(position, parent)| self.branches.get(&(parent, position.branch)));
            branch.is_some_and(|branch| branch.merged)
        };
        newest.filter(|row| !is_handled(row)).count() as u64
    }

    fn awaited_branches(&self, limit: usize) -> Vec<BranchHealth> {
        let mut polled: Vec<_> =
            self.branches.iter().filter(|(_, branch)| branch.poll.next_at.is_some()).collect();
        polled.sort_by_key(|(_, branch)| branch.poll.next_at);
        let polled = polled.into_iter().take(limit);
        let awaited = polled.filter(|(_, branch)| branch.watch.is_some() && !branch.cancels_children);
        awaited.map(|((job, _), branch)| health(*job, branch)).collect()
    }

    fn orphaned_branches(&self, limit: usize) -> Vec<BranchHealth> {
        let newest = self.branches.iter().rev().take(limit);
        let orphaned = newest.filter(|((job, _), branch)| {
            let has_ended = self.jobs.get(job).is_some_and(|row| row.final_state.is_some());
            has_ended && !branch.cancels_children && branch.spawned > branch.counts.ended()
        });
        orphaned.map(|((job, _), branch)| health(*job, branch)).collect()
    }
}

fn health(job: JobId, branch: &StoredBranch) -> BranchHealth {
    BranchHealth {
        job,
        name: branch.name.clone(),
        merge: merge(branch.merge_record.as_deref()),
        spawned: branch.spawned,
        counts: BranchCounts { started: 0, ..branch.counts },
        poll_at: branch.poll.next_at,
    }
}

impl Diagnose for Memory {
    fn database(&self) -> Fut<'_, Database> {
        Box::pin(std::future::ready(Ok(Database::Memory)))
    }

    fn oldest_ready(&self) -> Fut<'_, Vec<OldestReady>> {
        self.run(None, |inner, _| Ok(inner.oldest_ready()))
    }

    fn suspects(&self, cap: u64) -> Fut<'_, u64> {
        self.run(None, move |inner, _| {
            let suspects = inner.ready.iter().filter(|(lane, ..)| lane.suspect).count();
            Ok((suspects as u64).min(cap))
        })
    }

    fn unhandled_failures(&self, cap: u64) -> Fut<'_, u64> {
        self.run(None, move |inner, _| Ok(inner.unhandled_failures(cap)))
    }

    fn awaited_branches(&self, limit: usize) -> Fut<'_, Vec<BranchHealth>> {
        self.run(None, move |inner, _| Ok(inner.awaited_branches(limit)))
    }

    fn orphaned_branches(&self, limit: usize) -> Fut<'_, Vec<BranchHealth>> {
        self.run(None, move |inner, _| Ok(inner.orphaned_branches(limit)))
    }

    /// None: it counts its jobs whenever it is asked.
    fn miscounts(&self) -> Fut<'_, Vec<Miscount>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
