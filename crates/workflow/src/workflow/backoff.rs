//! Delays between the attempts of a call, by a function of the author's own.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use windlass_model::{Failure, Retry, retry::RetryDecision};

/// Returns how long to wait after a failure, the nth that the rule of the retry policy has counted; `None` leaves it to the policy.
pub(super) type Backoff = Arc<dyn Fn(&Failure, u32) -> Option<Duration> + Send + Sync>;

/// Decides what follows from a failed attempt. If the backoff panics, the policy's delay is used.
pub(super) fn decide_retry(
    failure: &Failure,
    retry: &Retry,
    backoff: Option<&Backoff>,
    retry_counts: &[u32],
    random: f64,
) -> RetryDecision {
    let delay = |failure: &Failure, nth: u32| {
        catch_unwind(AssertUnwindSafe(|| backoff.and_then(|backoff| backoff(failure, nth)))).ok().flatten()
    };
    retry.decide_with(failure, retry_counts, random, delay)
}

/// The setting of calls with a body.
macro_rules! backoff_setting {
    ($($path:ident).+) => {
        /// Sets how long to wait before the next attempt after a failure, the nth that the rule of the retry policy has counted; `None`
        /// leaves it to the policy. Not asked if the failure says when ([`Failure::retry_after`]).
        pub fn backoff(
            mut self,
            backoff: impl Fn(&Failure, u32) -> Option<Duration> + Send + Sync + 'static,
        ) -> Self {
            self.$($path).+ = Some(Arc::new(backoff));
            self
        }
    };
}
pub(super) use backoff_setting;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_that_panics_leaves_the_delay_to_the_policy() {
        let retry = Retry::times(3).jitter(0.0);
        let after = |backoff: Option<Backoff>| match decide_retry(
            &Failure::retry("x"),
            &retry,
            backoff.as_ref(),
            &[],
            0.0,
        ) {
            RetryDecision::Retry { after, .. } => after.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!(after(None), 1);
        assert_eq!(after(Some(Arc::new(|_, nth| Some(Duration::from_secs(u64::from(nth) * 9))))), 9);
        assert_eq!(after(Some(Arc::new(|_, _| panic!("in a backoff")))), 1);
    }
}
