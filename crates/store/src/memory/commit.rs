//! Commits: writing the changes of attempts. Here it is decided whether a change is written; see [`super::consequences`]
//! for what it writes.

use super::*;

impl Inner {
    pub(super) fn commit(&mut self, now: Time, change: &Change, limits: &Limits) -> CommitOutcome {
        let check_rates = || change.submitted_jobs().try_for_each(|job| self.check_rate(job));
        if let Err(invalid) = limits.check_change(change).and_then(|()| check_rates()) {
            return CommitOutcome::Refused(invalid.to_string());
        }
        // Known from now on, whether or not the change is written.
        self.queues.extend(change.submitted_jobs().map(|job| job.queue.clone()));
        let Some(row) = self.jobs.get(&change.job) else { return CommitOutcome::Fenced };
        let is_claimed = self.is_claimed((change.job, change.epoch));
        let written_by = (row.rev_epoch, row.worker, row.rev_claim);
        if row.rev.0 == change.rev.0 + 1 && written_by == (change.epoch, Some(change.worker), change.claim) {
            return change.outcome.repeated(is_claimed);
        }
        // A claim that is not recorded is settled, or was lost by a restore.
        let is_recorded = self.claims.contains_key(&(change.worker, change.claim));
        if row.rev != change.rev || !is_recorded || !is_claimed {
            return CommitOutcome::Fenced;
        }
        if let Some(step) = &change.writes {
            if let Some(seq) = row.duplicate_entry(step) {
                return CommitOutcome::Refused(format!("there is an entry {seq} in the journal already"));
            }
            if let Some(why) = self.branch_refusal(change, step) {
                return CommitOutcome::Refused(why);
            }
            if step.unwind.is_some() {
                self.release_holds(change.job);
            }
        }
        self.apply(now, change, limits)
    }
}
