//! Whether, and when, a failed attempt is tried again.
//!
//! A policy is an ordered list of rules. The first rule whose class matches an error decides: it has a budget
//! of attempts and a backoff of its own. An error that no rule matches fails the job at once.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Failure, Outcome, Reason, failure::OnFailure, failure::class};

/// One line of a policy: errors of `class` may be met `attempts` times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RetryRule {
    /// Which errors; `None` matches every class.
    #[serde(default)]
    pub class: Option<Cow<'static, str>>,
    /// How many attempts may end in such an error before the job fails.
    pub attempts: u32,
    /// The wait after the first one; it doubles with each further one.
    pub base: Duration,
    /// The longest wait.
    pub cap: Duration,
    /// Which part of the wait is left to chance, from 0 (none) to 1 (all of it). Without it, jobs that
    /// failed together come back together.
    pub jitter: f64,
}

/// When to try again: rules, of which the first that matches an error decides.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Retry {
    rules: Vec<RetryRule>,
}

/// What follows from a failed attempt.
#[derive(Clone, PartialEq, Debug)]
pub enum RetryDecision {
    /// Try again after this long; the counts to keep are these.
    Retry {
        /// The wait.
        after: Duration,
        /// How much of each rule's budget is used now.
        retry_counts: Vec<u32>,
    },
    /// The job has failed.
    Fail(Reason),
    /// The job is cancelled.
    Cancel,
}

impl Default for Retry {
    /// Twenty attempts of any error, from one second, doubling, at most five minutes apart, a quarter of each
    /// wait left to chance: about an hour and a quarter of trying.
    fn default() -> Retry {
        Retry::times(20)
    }
}

impl Retry {
    /// `attempts` attempts in all, whatever the error.
    pub fn times(attempts: u32) -> Retry {
        Retry { rules: vec![RetryRule::new(None, attempts)] }
    }

    /// One attempt, no retry.
    pub fn never() -> Retry {
        Retry::times(1)
    }

    /// A policy that matches nothing yet; add rules with [`Retry::on`] and [`Retry::otherwise`]. As it is,
    /// every error fails the job at once.
    pub fn rules() -> Retry {
        Retry { rules: Vec::new() }
    }

    /// Adds a rule: errors of `class` may be met `attempts` times.
    pub fn on(mut self, class: impl Into<Cow<'static, str>>, attempts: u32) -> Retry {
        self.rules.push(RetryRule::new(Some(class.into()), attempts));
        self
    }

    /// Adds a rule for every class that no rule before it matched.
    pub fn otherwise(mut self, attempts: u32) -> Retry {
        self.rules.push(RetryRule::new(None, attempts));
        self
    }

    /// Sets the first wait and the longest one of the rule added last.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Retry {
        if let Some(rule) = self.rules.last_mut() {
            rule.base = base;
            rule.cap = cap.max(base);
        }
        self
    }

    /// Sets which part of each wait is left to chance, for the rule added last.
    pub fn jitter(mut self, part: f64) -> Retry {
        if let Some(rule) = self.rules.last_mut() {
            rule.jitter = part.clamp(0.0, 1.0);
        }
        self
    }

    /// The policy's rules, in order.
    pub fn as_rules(&self) -> &[RetryRule] {
        &self.rules
    }

    /// Decides what follows from `failure`. `spent` holds how often each rule was used before (missing
    /// entries are zero); `chance` is drawn from 0..1 by the caller.
    pub fn decide(&self, failure: &Failure, spent: &[u32], chance: f64) -> RetryDecision {
        match failure.then {
            OnFailure::Stop => return RetryDecision::Fail(Reason::Stopped),
            OnFailure::Cancel => return RetryDecision::Cancel,
            OnFailure::Retry => {}
        }
        let matches = |rule: &RetryRule| rule.class.as_ref().is_none_or(|class| *class == failure.class);
        let Some(index) = self.rules.iter().position(matches) else {
            return RetryDecision::Fail(Reason::Stopped);
        };
        let mut spent = spent.to_vec();
        spent.resize(self.rules.len(), 0);
        spent[index] = spent[index].saturating_add(1);
        if spent[index] >= self.rules[index].attempts {
            let timed_out = failure.class == class::TIMEOUT;
            return RetryDecision::Fail(if timed_out { Reason::Timeout } else { Reason::Exhausted });
        }
        RetryDecision::Retry { after: self.rules[index].wait(spent[index], chance), retry_counts: spent }
    }
}

impl Retry {
    /// What is committed after `failure`: as [`Retry::decide`] says, but for errors that no retry mends.
    pub fn outcome(&self, failure: Failure, spent: &[u32], chance: f64) -> Outcome {
        match &*failure.class {
            class::UNDECODABLE => return Outcome::Failed { reason: Reason::Undecodable, failure },
            class::REFUSED => return Outcome::Failed { reason: Reason::Refused, failure },
            _ => {}
        }
        match self.decide(&failure, spent, chance) {
            RetryDecision::Retry { after, retry_counts: spent } => {
                Outcome::Retry { after, retry_counts: spent, failure: Some(failure) }
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

    /// The wait after the `nth` failure (from 1).
    fn wait(&self, nth: u32, chance: f64) -> Duration {
        // Thirty doublings of one second are 34 years; more would only overflow.
        let doubled = self.base.saturating_mul(1 << (nth - 1).min(30));
        let whole = doubled.min(self.cap);
        let left_out = whole.as_secs_f64() * self.jitter.clamp(0.0, 1.0) * chance.clamp(0.0, 1.0);
        whole.saturating_sub(Duration::try_from_secs_f64(left_out).unwrap_or(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(decision: RetryDecision) -> (Duration, Vec<u32>) {
        match decision {
            RetryDecision::Retry { after, retry_counts: spent } => (after, spent),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_budget_of_n_is_n_attempts_and_the_wait_doubles_to_the_cap() {
        let policy = Retry::times(12).backoff(Duration::from_secs(1), Duration::from_secs(60)).jitter(0.0);
        let mut spent = Vec::new();
        let mut waits = Vec::new();
        loop {
            match policy.decide(&Failure::retry("x"), &spent, 0.5) {
                RetryDecision::Retry { after, retry_counts: now } => {
                    waits.push(after.as_secs());
                    spent = now;
                }
                RetryDecision::Fail(reason) => {
                    assert_eq!(reason, Reason::Exhausted);
                    break;
                }
                RetryDecision::Cancel => panic!("not cancelled"),
            }
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]);
    }

    #[test]
    fn each_class_has_its_own_budget_and_the_unmatched_fail_at_once() {
        let policy = Retry::rules().on("busy", 3).on("timeout", 2);
        let busy = Failure::retry("x").class("busy");
        let slow = Failure::retry("x").class("timeout");
        let (_, spent) = again(policy.decide(&busy, &[], 0.0));
        let (_, spent) = again(policy.decide(&slow, &spent, 0.0));
        let (_, spent) = again(policy.decide(&busy, &spent, 0.0));
        assert_eq!(spent, [2, 1]);
        assert_eq!(policy.decide(&busy, &spent, 0.0), RetryDecision::Fail(Reason::Exhausted));
        assert_eq!(policy.decide(&slow, &spent, 0.0), RetryDecision::Fail(Reason::Timeout));
        assert_eq!(policy.decide(&Failure::retry("x"), &spent, 0.0), RetryDecision::Fail(Reason::Stopped));
    }

    #[test]
    fn terminal_errors_and_cancels_do_not_ask_the_policy() {
        let policy = Retry::times(5);
        assert_eq!(policy.decide(&Failure::stop("x"), &[], 0.0), RetryDecision::Fail(Reason::Stopped));
        assert_eq!(policy.decide(&Failure::cancel("x"), &[], 0.0), RetryDecision::Cancel);
    }

    #[test]
    fn a_huge_base_does_not_overflow_and_chance_only_shortens() {
        let policy = Retry::times(u32::MAX).backoff(Duration::MAX, Duration::MAX).jitter(0.0);
        assert_eq!(again(policy.decide(&Failure::retry("x"), &[4_000_000], 0.0)).0, Duration::MAX);
        let policy = Retry::times(9).backoff(Duration::from_secs(8), Duration::from_secs(8)).jitter(0.25);
        assert_eq!(again(policy.decide(&Failure::retry("x"), &[], 1.0)).0, Duration::from_secs(6));
    }
}
