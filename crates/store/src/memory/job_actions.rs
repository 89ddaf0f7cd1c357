//! What people do to single jobs: cancel, pause, resume, retry, reorder, drop and restore signals.

use std::time::Duration;

use windlass_model::job::deadline_after_revival;

use super::*;
use crate::{ControlOutcome, JobAction, control::outcome};

impl Inner {
    /// Does one thing to a job, and records it in the audit log.
    pub(super) fn act(&mut self, now: Time, id: JobId, action: JobAction, actor: &Actor) -> ControlOutcome {
        if !self.jobs.contains_key(&id) {
            return ControlOutcome::Unknown;
        }
        let result = match action {
            JobAction::Cancel { grace } => self.cancel(now, id, grace, actor),
            JobAction::Pause => self.pause(now, id, actor),
            JobAction::Resume => self.resume(id),
            JobAction::Retry => self.revive(now, id),
            JobAction::Priority(priority) => self.set_priority(id, priority),
            JobAction::DropSignal(number) => self.drop_signal(id, number),
            JobAction::RestoreSignal(number) => self.restore_signal(now, id, number),
        };
        if matches!(result, ControlOutcome::Done | ControlOutcome::CancelRequested) {
            self.log(now, &columns::action(action), &id.to_string(), actor);
        }
        result
    }

    /// Ends a job that does not run, and requests the attempt of a running one to end.
    pub(super) fn cancel(&mut self, now: Time, id: JobId, grace: Duration, actor: &Actor) -> ControlOutcome {
        match self.state(id) {
            state if state.is_final() => return outcome::ended(state),
            State::Running => {}
            _ => {
                let unwind = Unwind { reason: None, failure: actor.failure() };
                let has_ended = self.end_or_unwind(id, Event::Cancel, unwind, now);
                return if has_ended { ControlOutcome::Done } else { ControlOutcome::CancelRequested };
            }
        }
        if self.pending_cancels.contains_key(&id) {
            return outcome::cancel_requested_before();
        }
        let row = self.row_mut(id);
        row.hold = Hold::Pending;
        let claimed = (id, row.epoch);
        let claim = self.claims.iter().find(|(_, claim)| claim.jobs.contains(&claimed));
        let worker = claim.map_or(WorkerId(0), |((worker, _), _)| *worker);
        let deadline_at = now + grace;
        let request = CancelRequest { job: id, epoch: claimed.1, deadline_at, actor: actor.clone() };
        self.pending_cancels.insert(id, PendingCancel { request, worker });
        self.set_timer(deadline_at, id, Timer::Cancel);
        self.bump_gate(CANCEL_GATE);
        ControlOutcome::CancelRequested
    }

    fn pause(&mut self, now: Time, id: JobId, actor: &Actor) -> ControlOutcome {
        let state = self.state(id);
        if state.is_final() {
            return outcome::cannot("pause", state);
        }
        if self.pending_cancels.contains_key(&id) {
            return outcome::being_cancelled();
        }
        if let Some(pause) = self.pauses.get(&id) {
            return ControlOutcome::Already(format!("it was paused by {} before", pause.author));
        }
        let pause = Pause { at: now, author: actor.author.clone(), note: actor.note.clone() };
        self.pauses.insert(id, pause);
        if state == State::Ready {
            let key = self.row(id).ready_key();
            self.ready.remove(&key);
            self.leave_serial_key(id);
            self.row_mut(id).hold = Hold::Held;
        } else {
            self.row_mut(id).hold = Hold::Pending;
        }
        ControlOutcome::Done
    }

    fn resume(&mut self, id: JobId) -> ControlOutcome {
        if self.pauses.remove(&id).is_none() {
            return ControlOutcome::Already("it is not paused".into());
        }
        if !self.pending_cancels.contains_key(&id)
            && std::mem::replace(&mut self.row_mut(id).hold, Hold::None) == Hold::Held
        {
            self.enter(id);
        }
        ControlOutcome::Done
    }

    /// Makes an ended job live again, with all its counters reset.
    fn revive(&mut self, now: Time, id: JobId) -> ControlOutcome {
        let was = self.state(id);
        match was {
            State::Done => return outcome::retry_done(),
            state if !state.is_final() => return outcome::retry_live(state),
            _ => {}
        }
        let new = self.row(id).new.clone();
        if let Some(other) = self.name_holder(now, &new) {
            return outcome::name_taken(other);
        }
        self.set_holder(&new);
        self.next_state(id, Event::Revive);
        let row = self.row_mut(id);
        (row.final_state, row.reason, row.finished_at) = (None, None, None);
        (row.attempts, row.worker_deaths, row.solo_crashes, row.suspect) = (0, 0, 0, false);
        (row.retry_counts, row.steps_since_wait) = (Vec::new(), 0);
        row.unwind = None;
        row.epoch.0 += 1;
        (row.due_at, row.serial_position) = (now, now);
        let deadline_at = row.new.deadline_at.map(|at| deadline_after_revival(at, row.submitted_at, now));
        row.new.deadline_at = deadline_at;
        if let Some(at) = deadline_at {
            self.set_timer(at, id, Timer::Deadline);
        }
        self.count_live_child(id);
        self.branch_child_revived(id, was, now);
        self.enter(id);
        ControlOutcome::Done
    }

    fn set_priority(&mut self, id: JobId, priority: i16) -> ControlOutcome {
        let state = self.state(id);
        if state.is_final() {
            return outcome::cannot("reorder", state);
        }
        let row = self.row(id);
        if row.new.priority == priority {
            return ControlOutcome::Already(format!("its priority is {priority}"));
        }
        let was_ready = self.ready.remove(&row.ready_key());
        self.row_mut(id).new.priority = priority;
        if was_ready {
            self.make_ready(id);
        }
        ControlOutcome::Done
    }
}
