//! Applying one change, with all that depends on it: children, branches, serial slots, waiting parents.

use windlass_model::Outcome;

use super::*;

impl Inner {
    /// Applies a change that nothing refuses.
    pub(super) fn apply(&mut self, now: Time, change: &Change, limits: &Limits) -> CommitOutcome {
        let row = self.row_mut(change.job);
        row.rev.0 += 1;
        (row.rev_epoch, row.rev_claim) = (change.epoch, change.claim);
        row.worker = Some(change.worker);
        row.started_at = Some(change.started_at);
        row.attempts += u32::from(change.outcome.counts_as_attempt());
        let halts = change.outcome.halts(row.hold == Hold::Pending);
        let event = if halts { Event::Yield } else { change.outcome.event() };
        let state = self.next_state(change.job, event);
        if let Some(step) = &change.writes {
            self.row_mut(change.job).write_step(now, change, step);
            self.update_branches(now, change, step);
        }
        self.write_member_items(now, change, limits);
        // The unique names of a job that ends are free for its children.
        if !change.outcome.ends() {
            self.spawn_children(now, change);
        }
        if let Some(failure) = change.outcome.failure() {
            self.add_attempt(change.job, change.worker, change.epoch, change.started_at, now, failure);
        }
        if change.outcome.ends() {
            self.record_end(change.job, state, now, Some(change.started_at));
        }
        match &change.outcome {
            Outcome::Done(output) => {
                self.row_mut(change.job).output = Some(output.clone());
                self.end(change.job, state, None, None, now);
            }
            Outcome::Failed { reason, .. } => self.end(change.job, state, Some(*reason), None, now),
            Outcome::Cancelled(_) => self.end(change.job, state, None, None, now),
            Outcome::Next => self.row_mut(change.job).record_progress(change),
            Outcome::Wait(wait) => {
                self.row_mut(change.job).record_progress(change);
                self.park(now, change.job, wait);
            }
            Outcome::Retry { after, retry_counts, failure } => {
                if failure.is_some() {
                    self.record_retry(change.job, now);
                }
                self.retry(now, change.job, now + *after, retry_counts)
            }
        }
        if change.outcome.ends() {
            self.spawn_children(now, change);
        }
        if halts {
            self.yield_claim(now, change.job);
            return CommitOutcome::Halted;
        }
        CommitOutcome::Committed
    }

    /// Ends the claim of a job that is to be attempted again.
    fn retry(&mut self, now: Time, id: JobId, due_at: Time, retry_counts: &[u32]) {
        let row = self.row_mut(id);
        row.epoch.0 += 1;
        row.retry_counts = retry_counts.to_vec();
        row.suspect = false;
        row.due_at = due_at;
        let keeps_slot = row.keeps_slot();
        if due_at <= now {
            return self.enter(id);
        }
        self.set_timer(due_at, id, Timer::Wake);
        if !keeps_slot {
            self.leave_serial_key(id);
        }
    }

    /// Submits the children of a step, and counts those of branches.
    fn spawn_children(&mut self, now: Time, change: &Change) {
        let Some(step) = &change.writes else { return };
        let children: Vec<NewJob> = step.children.iter().map(|job| change.child(job)).collect();
        let outcomes = self.insert_jobs(now, &children, None);
        self.count_spawned(now, change, step, &outcomes);
    }
}
