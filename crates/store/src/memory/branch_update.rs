//! What steps do to the branches of their jobs: open, spawn, seal, watch and merge.

use windlass_model::{BranchNo, BranchUpdate, StepWrites, branch::items_refusal};

use super::{branch::StoredBranch, *};

impl StoredBranch {
    /// Writes what a step does to the branch.
    fn update(&mut self, now: Time, update: &BranchUpdate) {
        if let Some(name) = &update.opened_as {
            (self.name, self.opened_at) = (name.clone(), now);
        }
        if let Some(spawns) = &update.spawns {
            self.spawns = spawns.clone();
        }
        if let Some(cursor) = &update.cursor {
            self.cursor = Some(cursor.clone());
        }
        if let Some(record) = &update.merge_record {
            self.merge_record = Some(record.clone());
        }
        if update.seal && !self.sealed {
            (self.sealed, self.sealed_at) = (true, Some(now));
        }
        if let Some(watch) = &update.watch {
            // A branch whose children are cancelled is polled sooner.
            if !self.cancels_children || self.poll.next_at.is_none() {
                self.poll.next_at = Some(now + watch.poll_interval.min);
            }
            self.watch = Some(watch.clone());
            // A job that waits for it again has not merged it.
            (self.merged, self.merged_at) = (false, None);
        }
        if update.merged {
            self.end_watch();
            (self.merged, self.merged_at) = (true, Some(now));
        }
        if update.cancel_children {
            (self.cancels_children, self.poll.next_at) = (true, Some(now));
        }
    }
}

impl Inner {
    /// Why what a step does to branches is refused, if it is.
    pub(super) fn branch_refusal(&self, change: &Change, step: &StepWrites) -> Option<String> {
        let left = self.row(change.job).branch_member().map_or(0, |member| member.items);
        let is_sealed = |number| self.branches.get(&(change.job, number)).map(|branch| branch.sealed);
        items_refusal(step.items + step.promoted_items(), left).or_else(|| step.branch_refusal(is_sealed))
    }

    /// Writes what a step does to branches, apart from the children it spawns.
    pub(super) fn update_branches(&mut self, now: Time, change: &Change, step: &StepWrites) {
        for update in &step.branches {
            self.branches.entry((change.job, update.number)).or_default().update(now, update);
            if update.watch.is_some() || update.cancel_children {
                self.bump_gate(TIMER_GATE);
            }
        }
    }

    /// Counts the children of a step that were inserted, and notifies the job of branches whose watch was met before it
    /// was set.
    pub(super) fn count_spawned(
        &mut self,
        now: Time,
        change: &Change,
        step: &StepWrites,
        outcomes: &[SubmitOutcome],
    ) {
        for (child, _) in step.children.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_inserted()) {
            if let Some(position) = &child.branch_position {
                let branch = self.branches.get_mut(&(change.job, position.branch)).expect("checked before");
                branch.spawned += i64::from(position.items);
            }
        }
        let updated: BTreeSet<BranchNo> = step.branches.iter().map(|update| update.number).collect();
        for number in updated {
            self.notify_if_met(now, (change.job, number));
        }
    }

    /// Writes what a change of a child accounts for: items of a block that are done, and promoted items, which become jobs
    /// of their own. Counts that in its branch, and whether it is the child's first change.
    pub(super) fn write_member_items(&mut self, now: Time, change: &Change, limits: &Limits) {
        let row = self.row_mut(change.job);
        let Some(member) = row.branch_member() else { return };
        let step = change.writes.as_deref();
        if let (Some(step), Some(position)) = (step, &mut row.new.branch_position) {
            row.items_done += step.items;
            position.items -= step.promoted_items();
        }
        let attempted = step.map(StepWrites::attempted_jobs).unwrap_or_default();
        let parent = Some(member.parent);
        let sibling = |job: &NewJob| NewJob { parent, parent_rev: None, ..job.clone() };
        let (attempted_jobs, new_jobs): (Vec<NewJob>, Vec<NewJob>) = step
            .iter()
            .flat_map(|step| &step.promoted)
            .map(sibling)
            .partition(|job| attempted.contains(&job.id));
        self.insert_jobs(now, &new_jobs, None);
        // Its end is counted when the job has ended.
        self.count(now, member, change.counts_before_end(i64::from(member.items)));
        for job in &attempted_jobs {
            self.insert_job(now, job, true);
        }
        for attempt in change.first_attempts() {
            let _ = self.commit(now, &attempt, limits);
        }
    }
}
