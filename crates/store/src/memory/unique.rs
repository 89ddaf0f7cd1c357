//! Unique names. Nothing is written when a job changes state: whoever wants a name checks the job that last took it.

use super::*;
use crate::control::outcome;

impl Inner {
    /// The job that holds the unique name of a job, if it is another one.
    pub(super) fn name_holder(&self, now: Time, job: &NewJob) -> Option<JobId> {
        let unique = job.settings.unique.as_ref()?;
        let last = *self.unique_names.get(&(job.kind.kind.clone(), unique.key.clone()))?;
        (last != job.id && self.jobs.contains_key(&last) && self.holds_name(now, last)).then_some(last)
    }

    /// Whether a job holds its unique name, if it was the last to take it.
    fn holds_name(&self, now: Time, id: JobId) -> bool {
        let row = self.row(id);
        let unique = row.new.settings.unique.as_ref();
        unique.is_some_and(|unique| unique.holds(self.state(id), row.submitted_at, now))
    }

    /// Whether a job is the last to have taken its unique name, and still holds it.
    pub(super) fn has_name(&self, now: Time, id: JobId) -> bool {
        let new = &self.row(id).new;
        let Some(unique) = &new.settings.unique else { return false };
        let last = self.unique_names.get(&(new.kind.kind.clone(), unique.key.clone()));
        last == Some(&id) && self.holds_name(now, id)
    }

    /// Gives a job its unique name.
    pub(super) fn set_holder(&mut self, job: &NewJob) {
        if let Some(unique) = &job.settings.unique {
            self.unique_names.insert((job.kind.kind.clone(), unique.key.clone()), job.id);
        }
    }

    /// Gives a job that is submitted its unique name, or returns the outcome of its submit instead. `Ok(Some)` is the job
    /// that it replaces.
    pub(super) fn take_name(&mut self, now: Time, job: &NewJob) -> Result<Option<JobId>, SubmitOutcome> {
        let Some(unique) = &job.settings.unique else { return Ok(None) };
        let holder = self.name_holder(now, job);
        if let Some(id) = holder {
            let same_input = self.row(id).new.digest == job.digest;
            unique.conflict.resolve(id, same_input, self.state(id) == State::Running)?;
            let _ = self.cancel(now, id, columns::GRACE, &outcome::replaced(job.id));
        }
        self.set_holder(job);
        Ok(holder)
    }
}
