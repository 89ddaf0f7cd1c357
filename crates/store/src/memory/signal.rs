//! Signals: delivered into inboxes, and handed to the jobs that wait for them.

use windlass_model::{
    BranchNo,
    branch::BRANCH_SIGNAL,
    wait::{CHILD_SIGNAL, inbox_is_full},
};

use super::*;
use crate::{ControlOutcome, control::outcome};

impl Inner {
    /// Delivers a signal, and wakes the job if that meets its wait.
    pub(super) fn deliver(&mut self, now: Time, signal: &NewSignal, inbox_limit: usize) -> SignalOutcome {
        let Some(row) = self.jobs.get(&signal.job) else { return SignalOutcome::Unknown };
        if let Some(state) = row.final_state {
            return SignalOutcome::Ended(state);
        }
        if row.delivered_signals.contains(&(signal.name.clone(), signal.dedup.clone())) {
            return SignalOutcome::Duplicate;
        }
        let readable = row.readable_signals().count();
        let unreadable = row.inbox.len() - readable;
        if inbox_is_full(readable, unreadable, inbox_limit) {
            return SignalOutcome::Full;
        }
        self.record_delivery(now, signal.job, signal);
        SignalOutcome::Delivered { woke: self.wake_if_met(now, signal.job) }
    }

    /// Adds a signal to an inbox, unless it was delivered before.
    pub(super) fn record_delivery(&mut self, now: Time, id: JobId, signal: &NewSignal) {
        let row = self.row_mut(id);
        if row.delivered_signals.insert((signal.name.clone(), signal.dedup.clone())) {
            let (name, payload) = (signal.name.clone(), signal.payload.clone());
            let number = row.delivered_signals.len() as i64;
            row.inbox.push(Signal { number, name, at: now, payload, unreadable: None });
        }
    }

    /// Sends a live parent the end of a child as a signal, however full its inbox is, and as often as the child ends.
    pub(super) fn signal_parent(&mut self, now: Time, parent: JobId, child: JobId) {
        let dedup = format!("{child}/{}", self.row(child).epoch.0);
        self.send(now, parent, CHILD_SIGNAL, dedup, format!("\"{child}\""));
    }

    /// Sends a live job a signal that it need not watch a branch any longer, however full its inbox is.
    pub(super) fn signal_branch(&mut self, now: Time, job: JobId, number: BranchNo) {
        // Every signal is another.
        let delivered = self.jobs.get(&job).map_or(0, |row| row.delivered_signals.len());
        self.send(now, job, BRANCH_SIGNAL, format!("{number}/{delivered}"), number.to_string());
    }

    fn send(&mut self, now: Time, job: JobId, name: &str, dedup: String, json: String) {
        if self.jobs.get(&job).is_some_and(Row::is_live) {
            let payload = Payload::json(json.into_bytes());
            self.record_delivery(now, job, &NewSignal { job, name: name.into(), dedup, payload });
            self.wake_if_met(now, job);
        }
    }

    /// Deletes a signal from an inbox.
    pub(super) fn drop_signal(&mut self, id: JobId, number: i64) -> ControlOutcome {
        let is_running = self.state(id) == State::Running;
        let inbox = &mut self.row_mut(id).inbox;
        match inbox.iter().position(|signal| signal.number == number) {
            None => outcome::no_signal(number),
            Some(index) if inbox[index].unreadable.is_none() && is_running => outcome::signal_in_use(),
            Some(index) => {
                inbox.remove(index);
                ControlOutcome::Done
            }
        }
    }

    /// Makes an unreadable signal readable again, and wakes the job if that meets its wait.
    pub(super) fn restore_signal(&mut self, now: Time, id: JobId, number: i64) -> ControlOutcome {
        match self.row_mut(id).inbox.iter_mut().find(|signal| signal.number == number) {
            None => return outcome::no_signal(number),
            Some(signal) if signal.unreadable.is_none() => return outcome::signal_is_readable(),
            Some(signal) => signal.unreadable = None,
        }
        self.wake_if_met(now, id);
        ControlOutcome::Done
    }
}

impl Row {
    /// The signals that a worker receives with the job: the oldest of each name it waits for, or all of that name.
    pub(super) fn awaited_signals(&self) -> Vec<Signal> {
        let Some(wait) = &self.wait else { return Vec::new() };
        let mut seen = BTreeSet::new();
        let is_awaited = |signal: &&Signal| match wait.wants(&signal.name) {
            Some(every) => seen.insert(signal.name.clone()) || every,
            None => false,
        };
        self.readable_signals().filter(is_awaited).cloned().collect()
    }
}
