//! Deleting ended jobs with all their rows.

use super::*;

impl Inner {
    pub(super) fn prune(&mut self, now: Time, prune: &Prune) -> Pruned {
        if prune.state == State::Done {
            self.prune_schedules(prune.before);
        }
        let limit = prune.limit.max(1);
        let is_after = |id: &JobId| prune.after.is_none_or(|after| *id > after);
        let candidates: Vec<JobId> = self.jobs.keys().copied().filter(is_after).take(limit).collect();
        let mut pruned = Pruned::default();
        if candidates.len() == limit {
            pruned.after = candidates.last().copied();
        }
        let prunable = candidates.into_iter().filter(|id| self.is_prunable(prune, *id));
        // Parents count as they were before the call, so all is decided before the first job is deleted.
        let (kept, deleted): (Vec<JobId>, Vec<JobId>) =
            prunable.partition(|id| self.is_needed(*id) || self.has_name(now, *id));
        (pruned.kept, pruned.jobs) = (kept.len(), deleted.len());
        deleted.into_iter().for_each(|id| self.delete(id));
        pruned
    }

    /// Whether a job is old enough, and one of those that are to be deleted.
    fn is_prunable(&self, prune: &Prune, id: JobId) -> bool {
        let row = self.row(id);
        row.final_state == Some(prune.state)
            && row.finished_at.is_some_and(|at| at < prune.before)
            && prune.kind.as_ref().is_none_or(|kind| *kind == row.new.kind.kind)
    }

    /// Whether the parent of a job exists and is not done, and so may read it, now or when it is retried.
    fn is_needed(&self, id: JobId) -> bool {
        let parent = self.row(id).new.parent.and_then(|parent| self.jobs.get(&parent));
        parent.is_some_and(|parent| parent.final_state != Some(State::Done))
    }

    fn delete(&mut self, id: JobId) {
        self.keys.retain(|_, job| *job != id);
        self.unique_names.retain(|_, job| *job != id);
        self.branches.retain(|(job, _), _| *job != id);
        self.rollups.forget_branches(id);
        self.jobs.remove(&id);
    }
}
