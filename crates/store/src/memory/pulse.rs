//! Whether anything may have changed that people see.

use super::*;
use crate::{JobPulse, Pulse, inspect::pulse::digest};

impl Inner {
    pub(super) fn pulse(&self, now: Time, jobs: &[JobId]) -> Pulse {
        Pulse {
            store: digest(&self.pulse_parts(now)),
            jobs: jobs.iter().map(|id| self.job_pulse(*id)).collect(),
        }
    }

    fn job_pulse(&self, id: JobId) -> Option<JobPulse> {
        let row = self.jobs.get(&id)?;
        let newest_signal = row.inbox.iter().map(|signal| signal.number).max().unwrap_or(0);
        Some(JobPulse { rev: row.rev, epoch: row.epoch, state: self.state(id), newest_signal })
    }

    /// The numbers of which one changes with whatever people see.
    fn pulse_parts(&self, now: Time) -> Vec<i64> {
        let sum = |numbers: &mut dyn Iterator<Item = i64>| numbers.fold(0, i64::wrapping_add);
        let in_state = |state: State| self.jobs.keys().filter(|id| self.state(**id) == state).count() as i64;
        let mut parts: Vec<i64> = State::ALL.map(in_state).into();
        parts.push(sum(&mut self.gates.values().map(|version| *version as i64)));
        parts.push(self.claims.len() as i64);
        parts.push(sum(&mut self.claims.keys().map(|(_, number)| number.0)));
        for worker in self.workers.values() {
            parts.extend([worker.lease.status as i64, i64::from(worker.lease.is_valid(now))]);
        }
        parts.push(self.audit.len() as i64);
        let next = |stored: &schedule::StoredSchedule| stored.next_at.map_or(0, Time::micros);
        parts.push(sum(&mut self.schedules.values().map(next)));
        let running = self.operations.values().filter(|operation| operation.ended_at.is_none());
        parts.push(sum(&mut running.map(|operation| operation.updated_at.micros())));
        parts
    }
}
