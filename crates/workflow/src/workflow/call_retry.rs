//! When the body of a call is run again after it failed: by the retry policy of the call, and by a backoff of the author's own.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use windlass_model::{Failure, Retry, retry::RetryDecision};
use windlass_runtime::Policy;

/// The backoff of a kind: [`Workflow::backoff`](super::Workflow::backoff).
pub(super) type KindBackoff = fn(&Failure, u32) -> Option<Duration>;

/// When a call is retried.
#[derive(Clone)]
pub(super) struct CallRetry {
    policy: Retry,
    backoff: CallBackoff,
}

/// Who is asked how long to wait before the next attempt. `None` is left to the policy.
#[derive(Clone)]
enum CallBackoff {
    /// The call has neither a policy nor a backoff of its own.
    OfKind(KindBackoff),
    /// The call has a policy of its own.
    OfPolicy,
    /// The call has a backoff of its own.
    Own(Arc<OwnBackoff>),
}

/// A function of the author's own, of the failure and the number of attempts.
type OwnBackoff = dyn Fn(&Failure, u32) -> Option<Duration> + Send + Sync;

impl CallRetry {
    /// For a call with a body of the author's, who has said nothing of its retries.
    pub(super) fn new(of_kind: KindBackoff) -> CallRetry {
        CallRetry { policy: Policy::default().retry, backoff: CallBackoff::OfKind(of_kind) }
    }

    /// For a call whose body is the engine's own: the author's backoff does not know its errors.
    pub(super) fn of_engine() -> CallRetry {
        CallRetry { policy: Policy::default().retry, backoff: CallBackoff::OfPolicy }
    }

    /// For a call that is not retried.
    pub(super) fn never() -> CallRetry {
        CallRetry { policy: Retry::never(), backoff: CallBackoff::OfPolicy }
    }

    pub(super) fn set_policy(&mut self, policy: Retry) {
        self.policy = policy;
        if matches!(self.backoff, CallBackoff::OfKind(_)) {
            self.backoff = CallBackoff::OfPolicy;
        }
    }

    pub(super) fn set_backoff(
        &mut self,
        backoff: impl Fn(&Failure, u32) -> Option<Duration> + Send + Sync + 'static,
    ) {
        self.backoff = CallBackoff::Own(Arc::new(backoff));
    }

    /// Decides what follows from a failed attempt. If the backoff panics, the policy's delay is used.
    pub(super) fn decide(&self, failure: &Failure, retry_counts: &[u32], random: f64) -> RetryDecision {
        let backoff = |failure: &Failure, nth: u32| match &self.backoff {
            CallBackoff::OfKind(backoff) => backoff(failure, nth),
            CallBackoff::OfPolicy => None,
            CallBackoff::Own(backoff) => backoff(failure, nth),
        };
        let delay =
            |failure: &Failure, nth| catch_unwind(AssertUnwindSafe(|| backoff(failure, nth))).ok().flatten();
        self.policy.decide_with(failure, retry_counts, random, delay)
    }
}

/// The settings of calls with a body. `$what` is what is retried.
macro_rules! retry_settings {
    ($what:literal, $($path:ident).+) => {
        #[doc = concat!("When to retry ", $what, ": by default 20 attempts with growing delays.")]
        pub fn retry(mut self, retry: Retry) -> Self {
            self.$($path).+.set_policy(retry);
            self
        }

        /// Sets how long to wait before the next attempt after a failure, the nth that the rule of the retry policy has counted; `None`
        /// leaves it to the policy. Not asked if the failure says when ([`Failure::retry_after`]). By default
        /// [`Workflow::backoff`](crate::Workflow::backoff) is asked, unless the call has a retry policy of its own.
        pub fn backoff(
            mut self,
            backoff: impl Fn(&Failure, u32) -> Option<Duration> + Send + Sync + 'static,
        ) -> Self {
            self.$($path).+.set_backoff(backoff);
            self
        }
    };
}
pub(super) use retry_settings;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(retry: &CallRetry) -> u64 {
        match retry.decide(&Failure::retry("x"), &[], 0.0) {
            RetryDecision::Retry { after, .. } => after.as_secs(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_backoff_that_panics_leaves_the_delay_to_the_policy() {
        let mut retry = CallRetry::new(|_, _| None);
        assert_eq!(after(&retry), 1);
        retry.set_backoff(|_, nth| Some(Duration::from_secs(u64::from(nth) * 9)));
        assert_eq!(after(&retry), 9);
        retry.set_backoff(|_, _| panic!("in a backoff"));
        assert_eq!(after(&retry), 1);
    }

    #[test]
    fn the_backoff_of_the_kind_holds_for_calls_without_a_policy_or_a_backoff_of_their_own() {
        let of_kind = || CallRetry::new(|_, _| Some(Duration::from_secs(7)));
        assert_eq!(after(&of_kind()), 7);
        let mut own_policy = of_kind();
        own_policy.set_policy(Retry::times(3));
        assert_eq!(after(&own_policy), 1);
        let mut own_backoff = of_kind();
        own_backoff.set_backoff(|_, _| Some(Duration::from_secs(9)));
        own_backoff.set_policy(Retry::times(3));
        assert_eq!(after(&own_backoff), 9);
    }
}
