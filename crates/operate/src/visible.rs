//! What may be told about other jobs to somebody who sees only those of a scope: they do not exist, as far as such a reader learns.
//!
//! Whatever is said of a job is made from what these functions return, so that no text needs to be searched for what it must not have.

use windlass_model::JobId;
use windlass_store::{Holds, Job, Summary};
use windlass_workflow::Error;

use crate::Operator;

impl Operator {
    /// Whether a job may be seen.
    pub(crate) fn sees(&self, job: &Summary) -> bool {
        self.scope().has_job(&job.kind, &job.queue)
    }

    /// A job, if it exists and may be seen.
    pub(crate) async fn visible_job(&self, id: JobId) -> Result<Option<Job>, Error> {
        let job = self.inspect().job(id).await?;
        Ok(job.filter(|job| self.sees(&job.summary)))
    }

    /// What keeps a job from running, without jobs that may not be seen.
    pub(crate) async fn visible_holds(&self, id: JobId) -> Result<Option<Holds>, Error> {
        let mut holds = self.inspect().holds(id).await?;
        let serial = holds.as_mut().and_then(|holds| holds.serial.as_mut());
        let Some(serial) = serial.filter(|_| !self.scope().is_unlimited()) else { return Ok(holds) };
        let mut visible = Vec::new();
        for holder in std::mem::take(&mut serial.holders) {
            match holder == id || self.visible_job(holder).await?.is_some() {
                true => visible.push(holder),
                false => serial.hidden_holders += 1,
            }
        }
        serial.holders = visible;
        Ok(holds)
    }
}
