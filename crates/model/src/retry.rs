//! Retry policies: whether and when a failed attempt is repeated.
//!
//! A policy is an ordered list of rules. The first rule whose class matches the failure decides; it has its own number of
//! attempts and its own backoff. A failure that no rule matches fails the job at once. The job keeps how often each rule was
//! used (`retry_counts`), and starts from zero whenever it makes progress.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Failure, Outcome, Reason, failure::OnFailure, failure::class, limits::MAX_DELAY};

/// One rule of a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RetryRule {
    /// The class it matches; `None` matches every class.
    #[serde(default)]
    pub class: Option<Cow<'static, str>>,
    /// After how many such failures the job fails.
    pub attempts: u32,
    /// The delay after the first failure. It doubles with each further one.
    pub base: Duration,
    /// The longest delay.
    pub cap: Duration,
    /// Which part of the delay is random, from 0 (none) to 1 (all of it). Without it, jobs that failed together run again
    /// together.
    pub jitter: f64,
}

/// A retry policy: rules, of which the first that matches a failure decides.
///
/// ```
/// # use std::time::Duration;
/// # use windlass_model::Retry;
/// let three_attempts = Retry::times(3);
/// let by_class = Retry::rules()
///     .on("busy", 10)
///     .backoff(Duration::from_secs(5), Duration::from_secs(120))
///     .on("timeout", 2)
///     .otherwise(3);
/// # assert_eq!((three_attempts.as_rules().len(), by_class.as_rules().len()), (1, 3));
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Retry {
    rules: Vec<RetryRule>,
}

/// What follows from a failed attempt.
#[derive(Clone, PartialEq, Debug)]
pub enum RetryDecision {
    /// Repeat it.
    Retry {
        /// The delay before the next attempt.
        after: Duration,
        /// How often each rule has been used now. The job keeps this.
        retry_counts: Vec<u32>,
    },
    /// The job fails.
    Fail(Reason),
    /// The job is cancelled.
    Cancel,
}

impl Default for Retry {
    /// 20 attempts whatever the failure, with delays from one second, doubling, to at most five minutes, of which a quarter is
    /// random: the delays add up to about 50 minutes.
    fn default() -> Retry {
        Retry::times(20)
    }
}

impl Retry {
    /// At most `attempts` attempts, whatever the failure.
    pub fn times(attempts: u32) -> Retry {
        Retry { rules: vec![RetryRule::new(None, attempts)] }
    }

    /// One attempt, no retry.
    pub fn never() -> Retry {
        Retry::times(1)
    }

    /// A policy without rules; add some with [`Retry::on`] and [`Retry::otherwise`]. As it is, every failure fails the job at
    /// once.
    pub fn rules() -> Retry {
        Retry { rules: Vec::new() }
    }

    /// Adds a rule: at most `attempts` attempts that end in a failure of `class`.
    pub fn on(mut self, class: impl Into<Cow<'static, str>>, attempts: u32) -> Retry {
        self.rules.push(RetryRule::new(Some(class.into()), attempts));
        self
    }

    /// Adds a rule for every class that no earlier rule matches.
    pub fn otherwise(mut self, attempts: u32) -> Retry {
        self.rules.push(RetryRule::new(None, attempts));
        self
    }

    /// Sets the first and the longest delay of the rule added last.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Retry {
        if let Some(rule) = self.rules.last_mut() {
            rule.base = base;
            rule.cap = cap.max(base);
        }
        self
    }

    /// Sets which part of each delay is random, from 0 to 1, for the rule added last.
    pub fn jitter(mut self, part: f64) -> Retry {
        if let Some(rule) = self.rules.last_mut() {
            rule.jitter = part.clamp(0.0, 1.0);
        }
        self
    }

    /// Returns the rules, in order.
    pub fn as_rules(&self) -> &[RetryRule] {
        &self.rules
    }

    /// Decides what follows from `failure`. `retry_counts` is how often each rule was used before (missing entries are zero);
    /// `random` is a number from 0 to 1 that the caller draws. The delay is that of the failure ([`Failure::retry_after`]), or
    /// else that of the rule.
    pub fn decide(&self, failure: &Failure, retry_counts: &[u32], random: f64) -> RetryDecision {
        self.decide_with(failure, retry_counts, random, |_, _| None)
    }

    /// The same with a backoff of the caller's own: if there is another attempt and the failure does not say when, `backoff` is
    /// asked for the delay. It gets the failure and the number of failures that the rule has counted, this one included; `None`
    /// leaves the delay to the rule.
    pub fn decide_with(
        &self,
        failure: &Failure,
        retry_counts: &[u32],
        random: f64,
        backoff: impl FnOnce(&Failure, u32) -> Option<Duration>,
    ) -> RetryDecision {
        if failure.class == class::REFUSED {
            return RetryDecision::Fail(Reason::Refused);
        }
        match failure.then {
            OnFailure::Stop => return RetryDecision::Fail(Reason::Stopped),
            OnFailure::Cancel => return RetryDecision::Cancel,
            OnFailure::Retry => {}
        }
        let matches = |rule: &RetryRule| rule.class.as_ref().is_none_or(|class| *class == failure.class);
        let Some(index) = self.rules.iter().position(matches) else {
            return RetryDecision::Fail(Reason::Stopped);
        };
        let mut retry_counts = retry_counts.to_vec();
        retry_counts.resize(self.rules.len(), 0);
        let failures = retry_counts[index].saturating_add(1);
        retry_counts[index] = failures;
        if failures >= self.rules[index].attempts {
            let timed_out = failure.class == class::TIMEOUT;
            return RetryDecision::Fail(if timed_out { Reason::Timeout } else { Reason::Exhausted });
        }
        let after = match failure.after.or_else(|| backoff(failure, failures)) {
            Some(after) => after.min(MAX_DELAY),
            None => self.rules[index].delay(failures, random),
        };
        RetryDecision::Retry { after, retry_counts }
    }

    /// Returns the outcome to commit after `failure`: what [`Retry::decide`] decides, except for an input that cannot be decoded, which
    /// no retry can fix.
    pub fn outcome(&self, failure: Failure, retry_counts: &[u32], random: f64) -> Outcome {
        self.outcome_with(failure, retry_counts, random, |_, _| None)
    }

    /// The same with a backoff of the caller's own; see [`Retry::decide_with`].
    pub fn outcome_with(
        &self,
        failure: Failure,
        retry_counts: &[u32],
        random: f64,
        backoff: impl FnOnce(&Failure, u32) -> Option<Duration>,
    ) -> Outcome {
        if failure.class == class::UNDECODABLE {
            return Outcome::Failed { reason: Reason::Undecodable, failure };
        }
        match self.decide_with(&failure, retry_counts, random, backoff) {
            RetryDecision::Retry { after, retry_counts } => {
                Outcome::Retry { after, retry_counts, failure: Some(failure) }
            }
            RetryDecision::Fail(reason) => Outcome::Failed { reason, failure },
            RetryDecision::Cancel => Outcome::Cancelled(failure),
        }
    }
}

impl RetryRule {
    fn new(class: Option<Cow<'static, str>>, attempts: u32) -> RetryRule {
        RetryRule {
            class,
            attempts: attempts.max(1),
            base: Duration::from_secs(1),
            cap: Duration::from_secs(300),
            jitter: 0.25,
        }
    }

    /// Returns the delay after the `nth` failure, counted from 1. Jitter only shortens it.
    fn delay(&self, nth: u32, random: f64) -> Duration {
        // Thirty doublings of one second are 34 years; more would only overflow.
        let doubled = self.base.saturating_mul(1 << (nth - 1).min(30));
        let longest = doubled.min(self.cap);
        let jitter = longest.as_secs_f64() * self.jitter.clamp(0.0, 1.0) * random.clamp(0.0, 1.0);
        longest.saturating_sub(Duration::try_from_secs_f64(jitter).unwrap_or(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retried(decision: RetryDecision) -> (Duration, Vec<u32>) {
        match decision {
            RetryDecision::Retry { after, retry_counts } => (after, retry_counts),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_policy_of_n_times_makes_n_attempts_and_the_delay_doubles_to_the_cap() {
        let policy = Retry::times(12).backoff(Duration::from_secs(1), Duration::from_secs(60)).jitter(0.0);
        let mut counts = Vec::new();
        let mut delays = Vec::new();
        loop {
            match policy.decide(&Failure::retry("x"), &counts, 0.5) {
                RetryDecision::Retry { after, retry_counts: now } => {
                    delays.push(after.as_secs());
                    counts = now;
                }
                RetryDecision::Fail(reason) => {
                    assert_eq!(reason, Reason::Exhausted);
                    break;
                }
                RetryDecision::Cancel => panic!("not cancelled"),
            }
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]);
    }

    #[test]
    fn each_rule_counts_its_own_attempts_and_an_unmatched_failure_fails_at_once() {
        let policy = Retry::rules().on("busy", 3).on("timeout", 2);
        let busy = Failure::retry("x").class("busy");
        let slow = Failure::retry("x").class("timeout");
        let (_, counts) = retried(policy.decide(&busy, &[], 0.0));
        let (_, counts) = retried(policy.decide(&slow, &counts, 0.0));
        let (_, counts) = retried(policy.decide(&busy, &counts, 0.0));
        assert_eq!(counts, [2, 1]);
        assert_eq!(policy.decide(&busy, &counts, 0.0), RetryDecision::Fail(Reason::Exhausted));
        assert_eq!(policy.decide(&slow, &counts, 0.0), RetryDecision::Fail(Reason::Timeout));
        assert_eq!(policy.decide(&Failure::retry("x"), &counts, 0.0), RetryDecision::Fail(Reason::Stopped));
    }

    #[test]
    fn a_stop_or_a_cancel_overrides_the_policy() {
        let policy = Retry::times(5);
        assert_eq!(policy.decide(&Failure::stop("x"), &[], 0.0), RetryDecision::Fail(Reason::Stopped));
        assert_eq!(policy.decide(&Failure::cancel("x"), &[], 0.0), RetryDecision::Cancel);
        // What the engine refused stays refused, in a step as in a job.
        let refused = Failure::retry("x").class(class::REFUSED);
        assert_eq!(policy.decide(&refused, &[], 0.0), RetryDecision::Fail(Reason::Refused));
        let failed = policy.outcome(refused, &[], 0.0);
        assert!(matches!(failed, Outcome::Failed { reason: Reason::Refused, .. }), "{failed:?}");
    }

    #[test]
    fn a_huge_delay_does_not_overflow_and_jitter_only_shortens_it() {
        let policy = Retry::times(u32::MAX).backoff(Duration::MAX, Duration::MAX).jitter(0.0);
        assert_eq!(retried(policy.decide(&Failure::retry("x"), &[4_000_000], 0.0)).0, Duration::MAX);
        let policy = Retry::times(9).backoff(Duration::from_secs(8), Duration::from_secs(8)).jitter(0.25);
        assert_eq!(retried(policy.decide(&Failure::retry("x"), &[], 1.0)).0, Duration::from_secs(6));
    }
    #[test]
    fn a_failure_that_says_when_to_retry_replaces_the_delay_and_keeps_the_budget() {
        let policy = Retry::rules().on("busy", 3).backoff(Duration::from_secs(1), Duration::from_secs(1));
        let busy = Failure::retry("x").class("busy").retry_after(Duration::from_secs(90));
        let (after, counts) = retried(policy.decide(&busy, &[], 1.0));
        assert_eq!((after, counts.as_slice()), (Duration::from_secs(90), [1].as_slice()), "without jitter");
        let (after, counts) = retried(policy.decide(&busy, &counts, 1.0));
        assert_eq!((after, counts.as_slice()), (Duration::from_secs(90), [2].as_slice()));
        assert_eq!(policy.decide(&busy, &counts, 1.0), RetryDecision::Fail(Reason::Exhausted));
        let other = Failure::retry("x").retry_after(Duration::ZERO);
        assert_eq!(policy.decide(&other, &[], 0.0), RetryDecision::Fail(Reason::Stopped), "no rule matches");
        let stop = Failure::stop("x").class("busy").retry_after(Duration::ZERO);
        assert_eq!(policy.decide(&stop, &[], 0.0), RetryDecision::Fail(Reason::Stopped));
        let endless = busy.retry_after(Duration::MAX);
        assert_eq!(retried(policy.decide(&endless, &[], 0.0)).0, MAX_DELAY);
    }

    #[test]
    fn a_backoff_function_is_asked_with_the_count_of_the_rule_when_there_is_another_attempt() {
        let policy = Retry::rules().on("busy", 3).otherwise(2).jitter(0.0);
        let backoff = |failure: &Failure, nth: u32| {
            (failure.class == "busy").then(|| Duration::from_secs(u64::from(nth) * 10))
        };
        let busy = Failure::retry("x").class("busy");
        let (after, _) = retried(policy.decide_with(&busy, &[1, 1], 0.0, backoff));
        assert_eq!(after, Duration::from_secs(20));
        let (after, _) = retried(policy.decide_with(&Failure::retry("x"), &[], 0.0, backoff));
        assert_eq!(after, Duration::from_secs(1), "left to the rule");
        let said = busy.clone().retry_after(Duration::from_secs(7));
        assert_eq!(retried(policy.decide_with(&said, &[], 0.0, backoff)).0, Duration::from_secs(7));
        let never = |_: &Failure, _: u32| -> Option<Duration> { panic!("there is no other attempt") };
        let exhausted = policy.decide_with(&busy, &[2], 0.0, never);
        assert_eq!(exhausted, RetryDecision::Fail(Reason::Exhausted));
    }
}
