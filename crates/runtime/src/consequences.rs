//! What a committed change means for the loops of this worker.

use std::sync::Arc;

use windlass_model::{Change, Outcome, StepWrites, Wait};

use crate::{core::Core, pool::QueuePool};

impl Core {
    /// Wakes the pools and timers that a committed change concerns. Returns its outcome, if that ended the job.
    pub(crate) fn after_commit(&self, change: Change, pool: &Arc<QueuePool>) -> Option<Outcome> {
        let has_parent = change.parent.is_some() || change.branch_member.is_some();
        if change.is_serial || (has_parent && change.outcome.ends()) {
            // The next job of its serial key may have got the slot, or its parent may be awake, in any queue.
            self.wake_pools();
        }
        match change.outcome {
            Outcome::Retry { after, .. } if after.is_zero() => self.wake_queue(&pool.queue),
            Outcome::Retry { after, .. } => self.timekeeper.set(after),
            Outcome::Next => self.after_step(change.writes.as_deref()),
            Outcome::Wait(Wait { timeout, .. }) => {
                if let Some(timeout) = timeout {
                    self.timekeeper.set(timeout);
                }
                // The job itself may be ready again, and its children are.
                match change.writes.is_some_and(|step| !step.children.is_empty()) {
                    true => self.wake_pools(),
                    false => self.wake_queue(&pool.queue),
                }
            }
            ending => return Some(ending),
        }
        None
    }

    /// Wakes the loops that a step concerns which submitted jobs or cancelled a branch.
    fn after_step(&self, step: Option<&StepWrites>) {
        let Some(step) = step else { return };
        if !step.children.is_empty() || !step.promoted.is_empty() {
            self.wake_pools();
        }
        if step.branches.iter().any(|update| update.cancel_children) {
            self.branches_changed.notify_one();
        }
    }
}
