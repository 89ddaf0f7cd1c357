//! Merges: what a parent waits for in its sealed branches, and what it does with the rest.
//!
//! A [`Merge`] is a rule with options, as authors write it. [`Merge::decide`] applies it to the counts of the branches.

mod decide;

pub use decide::{BranchProgress, MergeDecision};

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Invalid,
    branch::PollInterval,
    limits::{MAX_DELAY, invalid},
};

/// How branches are merged.
///
/// ```
/// # use std::time::Duration;
/// # use windlass_model::{Merge, merge::percent};
/// let all = Merge::all();                                     // a failed child blocks it until it is redriven
/// let most = Merge::tolerate(percent(2.0));                   // up to 2 % may fail
/// let first = Merge::quorum(3).timeout(Duration::from_secs(60));
/// assert!(most.check().is_ok() && first.check().is_ok() && all.waits_for_unsuccessful());
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Merge {
    rule: Rule,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// How often the branches are polled meanwhile.
    #[serde(default)]
    pub poll_interval: PollInterval,
    /// Whether children that have not ended when the merge is over keep running. Otherwise they are cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest_runs: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    All,
    FailFast,
    Tolerate(Share),
    Quorum(u64),
}

/// A part of the children.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// A number of children.
    Count(u64),
    /// A percentage of the spawned children.
    Percent(f64),
}

impl From<u64> for Share {
    fn from(count: u64) -> Share {
        Share::Count(count)
    }
}

/// Makes a share of the spawned children, as in `Merge::tolerate(percent(0.5))`.
pub fn percent(percent: f64) -> Share {
    Share::Percent(percent)
}

impl Merge {
    fn new(rule: Rule) -> Merge {
        Merge { rule, timeout: None, poll_interval: PollInterval::default(), rest_runs: false }
    }

    /// Merges when all children are done. A failed or cancelled child is waited for: the parent stays parked until somebody
    /// retries the child and it is done.
    pub fn all() -> Merge {
        Merge::new(Rule::All)
    }

    /// Merges when all children are done; fails as soon as one fails or is cancelled.
    pub fn fail_fast() -> Merge {
        Merge::new(Rule::FailFast)
    }

    /// Merges when all children have ended; fails as soon as more than this share failed or were cancelled.
    pub fn tolerate(share: impl Into<Share>) -> Merge {
        Merge::new(Rule::Tolerate(share.into()))
    }

    /// Merges when all children have ended, in any state.
    pub fn settled() -> Merge {
        Merge::tolerate(percent(100.0))
    }

    /// Merges when this many children are done; fails as soon as that is impossible.
    pub fn quorum(count: u64) -> Merge {
        Merge::new(Rule::Quorum(count))
    }

    /// Fails if it takes longer than this, counted from when the workflow first reached the merge.
    pub fn timeout(mut self, timeout: Duration) -> Merge {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the shortest and the longest time between two polls of the branches; by default 5 seconds and 5 minutes. Polling is a
    /// backstop: the commit that ends the last child wakes the parent.
    pub fn poll_interval(mut self, min: Duration, max: Duration) -> Merge {
        self.poll_interval = PollInterval { min, max };
        self
    }

    /// Children that have not ended when the merge is over, successfully or not, keep running. By default they are cancelled.
    pub fn let_rest_run(mut self) -> Merge {
        self.rest_runs = true;
        self
    }

    /// Checks the rule and its options.
    pub fn check(&self) -> Result<(), Invalid> {
        let PollInterval { min, max } = self.poll_interval;
        if min > max || min.is_zero() {
            let why = format!("is from {min:?} to {max:?}");
            let hint = "give the shorter time first, and make it longer than zero";
            return Err(invalid("the poll interval of the merge", why, hint));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero() || timeout > MAX_DELAY) {
            let hint = "leave it out to wait for ever, or choose one of up to 100 years";
            return Err(invalid("the timeout of the merge", "is zero, or longer than 100 years", hint));
        }
        match self.rule {
            Rule::Tolerate(Share::Percent(percent)) if !(0.0..=100.0).contains(&percent) => {
                let why = format!("is {percent} per cent of the children");
                Err(invalid("what the merge tolerates", why, "use 0 to 100"))
            }
            Rule::Quorum(0) => {
                let hint = "ask for at least one child, or use another rule";
                Err(invalid("the quorum of the merge", "is zero", hint))
            }
            _ => Ok(()),
        }
    }

    /// Whether it waits for failed and cancelled children until somebody retries them.
    pub fn waits_for_unsuccessful(&self) -> bool {
        matches!(self.rule, Rule::All)
    }
}

impl fmt::Display for Merge {
    /// Writes the rule in words, as it follows "merged".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Rule::All => {
                f.write_str("when all children are done; a failed or cancelled one is waited for")?
            }
            Rule::FailFast => {
                f.write_str("when all children are done; fails as soon as one fails or is cancelled")?
            }
            Rule::Tolerate(Share::Percent(100.0)) => {
                f.write_str("when all children have ended, in any state")?
            }
            Rule::Tolerate(share) => {
                let max = match share {
                    Share::Count(count) => count.to_string(),
                    Share::Percent(percent) => format!("{percent} %"),
                };
                write!(f, "when all children have ended; fails if more than {max} fail or are cancelled")?
            }
            Rule::Quorum(count) => {
                write!(f, "when {count} children are done; fails as soon as that is impossible")?
            }
        }
        if let Some(timeout) = self.timeout {
            write!(f, "; fails after {}", in_largest_unit(timeout))?;
        }
        if self.rest_runs {
            f.write_str("; children that have not ended then keep running")?;
        }
        Ok(())
    }
}

fn in_largest_unit(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [("days", 86_400), ("h", 3_600), ("min", 60)];
    match units.into_iter().find(|(_, unit)| seconds >= 2 * unit && seconds.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", seconds / unit),
        None => format!("{} s", span.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_is_shown_in_words() {
        for (merge, words) in [
            (Merge::all(), "when all children are done; a failed or cancelled one is waited for"),
            (Merge::settled(), "when all children have ended, in any state"),
            (
                Merge::tolerate(percent(0.5)).timeout(Duration::from_secs(90)),
                "when all children have ended; fails if more than 0.5 % fail or are cancelled; fails after 90 s",
            ),
            (
                Merge::quorum(3).timeout(Duration::from_secs(7_200)).let_rest_run(),
                "when 3 children are done; fails as soon as that is impossible; fails after 2 h; children that have not \
                 ended then keep running",
            ),
        ] {
            assert_eq!(merge.to_string(), words);
            assert_eq!(merge.waits_for_unsuccessful(), merge == Merge::all());
        }
    }

    #[test]
    fn invalid_merges_are_refused() {
        for (merge, text) in [
            (Merge::all().poll_interval(Duration::from_secs(9), Duration::from_secs(3)), "the poll interval"),
            (Merge::all().timeout(Duration::ZERO), "the timeout"),
            (Merge::tolerate(percent(101.0)), "per cent"),
            (Merge::quorum(0), "the quorum"),
        ] {
            assert!(merge.check().expect_err(text).to_string().contains(text));
        }
    }
}
