//! Rate limits: the levels of their buckets.

use windlass_model::{Invalid, RateCharge};

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

    /// Charges a bucket for the start of a job. If it cannot pay, returns when to claim again.
    pub(super) fn charge(&mut self, now: Time, charge: &RateCharge) -> Result<(), Time> {
        let bucket = self.buckets.get_mut(&charge.limit).expect("checked at submit");
        bucket.level = bucket.level.refilled(&bucket.limit, now);
        if bucket.lifted {
            return Ok(());
        }
        match bucket.level.charged(&bucket.limit, charge.weight) {
            Some(level) => bucket.level = level,
            None => return Err(bucket.level.next_claim_at(&bucket.limit, charge.weight)),
        }
        Ok(())
    }
}
