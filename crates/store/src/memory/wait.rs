//! Parked jobs: parking, waking, and counting the children that are waited for. One routine for all verbs.

use windlass_model::Wait;

use super::*;

impl Inner {
    /// Ends the claim of a job that continues later, and makes it ready.
    pub(super) fn yield_claim(&mut self, now: Time, id: JobId) {
        let row = self.row_mut(id);
        row.epoch.0 += 1;
        row.due_at = now;
        self.enter(id);
    }

    /// Parks a job, or wakes it at once if its wait is met already: then it keeps its serial slot.
    pub(super) fn park(&mut self, now: Time, id: JobId, wait: &Wait) {
        if !wait.parks() {
            return self.yield_claim(now, id);
        }
        let row = self.row_mut(id);
        row.epoch.0 += 1;
        (row.parked, row.parked_at) = (true, Some(now));
        row.wait = Some(wait.condition.clone());
        row.wait_until = wait.until(now);
        row.due_at = row.wait_until.unwrap_or(now);
        let (wait_until, keeps_slot) = (row.wait_until, row.keeps_slot());
        if let Some(at) = wait_until {
            self.set_timer(at, id, Timer::Wake);
        }
        if !self.wake_if_met(now, id) && !keeps_slot {
            self.leave_serial_key(id);
        }
    }

    /// Wakes a parked job if it has what it waits for. Returns whether it had.
    pub(super) fn wake_if_met(&mut self, now: Time, id: JobId) -> bool {
        let row = self.row(id);
        let names = || row.readable_signals().map(|signal| signal.name.as_str());
        let is_met = |wait: &WaitCondition| wait.is_met(names(), row.pending_children);
        if !row.parked || !row.wait.as_ref().is_some_and(is_met) {
            return false;
        }
        let timeout = (row.due_at, id, Timer::Wake);
        self.next_state(id, Event::Wake);
        self.record_wait(now, id, false);
        self.timers.remove(&timeout);
        let row = self.row_mut(id);
        (row.parked, row.due_at) = (false, now);
        self.enter(id);
        true
    }

    /// Wakes parked jobs that were not woken. Returns how many.
    pub(super) fn repair_waits(&mut self, now: Time) -> usize {
        let parked: Vec<JobId> = self.jobs.iter().filter(|(_, row)| row.parked).map(|(id, _)| *id).collect();
        parked.into_iter().filter(|id| self.wake_if_met(now, *id)).count()
    }

    /// The parent whose wait counts a child: it is still in the stage that submitted it.
    fn counting_parent(&mut self, id: JobId) -> Option<&mut Row> {
        let (parent, parent_rev) = self.row(id).new.counting_parent()?;
        self.jobs.get_mut(&parent).filter(|row| row.stage_rev == parent_rev)
    }

    /// Counts a child that is new, or live again, in the wait of its parent.
    pub(super) fn count_live_child(&mut self, id: JobId) {
        if let Some(parent) = self.counting_parent(id) {
            parent.pending_children += 1;
        }
    }

    /// Counts the end of a child in the wait of its parent, or sends it as a signal.
    pub(super) fn child_ended(&mut self, id: JobId, now: Time) {
        if let Some(parent) = self.counting_parent(id) {
            parent.pending_children -= 1;
            let parent = parent.new.id;
            self.wake_if_met(now, parent);
        }
        let new = &self.row(id).new;
        if let Some(parent) = new.parent.filter(|_| new.parent_rev == Some(Rev::SIGNALLED)) {
            self.signal_parent(now, parent, id);
        }
    }
}
