//! Rate limits: the levels of their buckets.

use windlass_model::{Invalid, rate::ClaimBucket};

use super::*;

impl Inner {
    /// Checks that the rate limit of a job exists and can pay for it.
    pub(super) fn check_rate(&self, job: &NewJob) -> Result<(), Invalid> {
        let Some(charge) = &job.settings.rate else { return Ok(()) };
        match self.buckets.get(&charge.limit) {
            Some(bucket) if bucket.lifted => Ok(()),
            Some(bucket) => bucket.limit.check_weight(charge.weight),
            None => Err(columns::no_limit(&charge.limit)),
        }
    }
}

impl Bucket {
    /// The bucket while a claim takes jobs.
    pub(super) fn for_claim(&self, now: Time) -> ClaimBucket {
        ClaimBucket::new(self.limit.clone(), self.level, self.lifted, now)
    }
}
