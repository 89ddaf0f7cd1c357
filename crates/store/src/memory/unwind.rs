//! Ending a job, or starting to unwind it first.

use windlass_model::branch::cancels_children;

use super::*;

impl Inner {
    /// Ends a job from outside of its attempt, or starts to unwind it if it has something to undo. Returns whether it has
    /// ended. One that is being unwound already is ended.
    pub(super) fn end_or_unwind(&mut self, id: JobId, event: Event, unwind: Unwind, now: Time) -> bool {
        let row = self.row_mut(id);
        if !row.has_undo || row.unwind.is_some() {
            row.epoch.0 += 1;
            let state = self.next_state(id, event);
            self.record_end(id, state, now, None);
            self.end(id, state, unwind.reason, Some(unwind.failure), now);
            return true;
        }
        self.next_state(id, Event::Unwind);
        self.remove_placement(id);
        let row = self.row_mut(id);
        row.start_unwind(&unwind);
        row.epoch.0 += 1;
        (row.attempts, row.worker_deaths, row.solo_crashes, row.suspect) = (0, 0, 0, false);
        row.retry_counts = Vec::new();
        (row.wait, row.wait_until, row.due_at) = (None, None, now);
        self.enter(id);
        false
    }

    /// Ends a job, wherever it is, with all that depends on its end. `failure` replaces its last error, if given.
    pub(super) fn end(
        &mut self,
        id: JobId,
        state: State,
        reason: Option<Reason>,
        failure: Option<Failure>,
        now: Time,
    ) {
        self.remove_placement(id);
        let row = self.row_mut(id);
        (row.final_state, row.reason, row.finished_at) = (Some(state), reason, Some(now));
        if failure.is_some() {
            row.failure = failure;
        }
        self.child_ended(id, now);
        self.branch_child_ended(id, state, now);
        self.branch_parent_ended(id, cancels_children(state, reason), now);
    }

    /// Removes a job from wherever it is, with its holds and its serial slot.
    fn remove_placement(&mut self, id: JobId) {
        let row = self.row(id);
        let (key, wake) = (row.ready_key(), (row.due_at, id, Timer::Wake));
        self.ready.remove(&key);
        self.timers.remove(&wake);
        self.release_holds(id);
        self.leave_serial_key(id);
        self.row_mut(id).parked = false;
    }

    /// Deletes the deadline, pause and cancel request of a job: nothing ends or holds it any more.
    pub(super) fn release_holds(&mut self, id: JobId) {
        if let Some(at) = self.row(id).new.deadline_at {
            self.timers.remove(&(at, id, Timer::Deadline));
        }
        if let Some(pending) = self.pending_cancels.remove(&id) {
            self.timers.remove(&(pending.request.deadline_at, id, Timer::Cancel));
        }
        self.pauses.remove(&id);
        self.row_mut(id).hold = Hold::None;
    }
}

impl Row {
    /// Notes how the job ends once its undos have run; cleaned as the databases clean it.
    pub(super) fn start_unwind(&mut self, unwind: &Unwind) {
        self.unwind = Some(Box::new(columns::kept_unwind(unwind)));
    }
}
