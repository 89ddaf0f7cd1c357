//! Metrics of a worker that have labels or a distribution: durations, sizes, outcomes of attempts, failed calls.
//!
//! The loops write here without locks, and by the batch where there is one. A counter without labels belongs in
//! `stats.rs`; `page.rs` shows both.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use windlass_model::{KindVersion, Outcome, Wait, WaitCondition};

use super::histogram::{BATCH_SIZE, CALL_SECONDS, Histogram, WORK_SECONDS};

/// How many kinds have metrics of their own: a page must stay small, however many kinds a program serves.
const MAX_KINDS: usize = 50;
/// The label of all other kinds. It is no kind's name, because those have no spaces.
const OTHER_KINDS: &str = "other kinds";

/// The metrics of one worker.
pub(crate) struct Metrics {
    /// The number of changes in each commit.
    pub(crate) commit_batch_size: Histogram,
    /// The duration of commits that the store answered.
    pub(crate) commit_seconds: Histogram,
    /// The duration of claims that the store answered.
    pub(crate) claim_seconds: Histogram,
    kinds: HashMap<String, KindMetrics>,
    other_kinds: KindMetrics,
    /// Failed calls, by [`StoreCall`].
    errors: [AtomicU64; StoreCall::ALL.len()],
}

/// The metrics of one kind.
pub(crate) struct KindMetrics {
    /// How long its attempts ran.
    pub(crate) seconds: Histogram,
    outcomes: [AtomicU64; OutcomeLabel::ALL.len()],
}

impl Metrics {
    /// The metrics of a worker that serves these kinds, sorted by name.
    pub(crate) fn new(kinds: &[KindVersion]) -> Metrics {
        let mut names: Vec<&str> = kinds.iter().map(|kind| kind.kind.as_str()).collect();
        names.dedup();
        names.truncate(MAX_KINDS);
        Metrics {
            commit_batch_size: Histogram::new(BATCH_SIZE),
            commit_seconds: Histogram::new(CALL_SECONDS),
            claim_seconds: Histogram::new(CALL_SECONDS),
            kinds: names.into_iter().map(|name| (name.to_owned(), KindMetrics::new())).collect(),
            other_kinds: KindMetrics::new(),
            errors: Default::default(),
        }
    }

    /// The metrics that attempts of a kind are counted in.
    pub(crate) fn kind(&self, name: &str) -> &KindMetrics {
        self.kinds.get(name).unwrap_or(&self.other_kinds)
    }

    /// All kinds by name; the other kinds only if they have attempts.
    pub(crate) fn kinds(&self) -> Vec<(&str, &KindMetrics)> {
        let mut kinds: Vec<_> = self.kinds.iter().map(|(name, kind)| (name.as_str(), kind)).collect();
        kinds.sort_by_key(|(name, _)| *name);
        if OutcomeLabel::ALL.into_iter().any(|outcome| self.other_kinds.outcomes(outcome) > 0) {
            kinds.push((OTHER_KINDS, &self.other_kinds));
        }
        kinds
    }

    /// Counts a call that the store did not answer.
    pub(crate) fn count_error(&self, call: StoreCall) {
        self.errors[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of such calls.
    pub(crate) fn errors(&self, call: StoreCall) -> u64 {
        self.errors[call as usize].load(Ordering::Relaxed)
    }
}

impl KindMetrics {
    fn new() -> KindMetrics {
        KindMetrics { seconds: Histogram::new(WORK_SECONDS), outcomes: Default::default() }
    }

    /// Counts an attempt that ended.
    pub(crate) fn count(&self, outcome: OutcomeLabel, duration: Duration) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.seconds.record_duration(duration);
    }

    /// The number of attempts with this outcome.
    pub(crate) fn outcomes(&self, outcome: OutcomeLabel) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }
}

/// Defines a closed set of label values.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            pub(crate) const ALL: [$name; [$($text),*].len()] = [$($name::$variant),*];

            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

labels! {
    /// How an attempt ended.
    OutcomeLabel {
        Done = "done",
        /// It failed, and is retried.
        Retry = "retry",
        Failed = "failed",
        /// A machine continues with its next step.
        Next = "next",
        /// A machine or workflow is parked.
        Wait = "wait",
        Cancelled = "cancelled",
        /// Its outcome is not written: the worker stopped or lost its lease, or the attempt blocked its thread.
        GivenUp = "given_up",
    }
}

impl From<&Outcome> for OutcomeLabel {
    fn from(outcome: &Outcome) -> OutcomeLabel {
        match outcome {
            Outcome::Done(_) => OutcomeLabel::Done,
            Outcome::Retry { .. } => OutcomeLabel::Retry,
            Outcome::Failed { .. } => OutcomeLabel::Failed,
            Outcome::Next | Outcome::Wait(Wait { condition: WaitCondition::Nothing, .. }) => {
                OutcomeLabel::Next
            }
            Outcome::Wait(_) => OutcomeLabel::Wait,
            Outcome::Cancelled(_) => OutcomeLabel::Cancelled,
        }
    }
}

labels! {
    /// A call to the store.
    StoreCall {
        Register = "register",
        Submit = "submit",
        Signal = "signal",
        Claim = "claim",
        Commit = "commit",
        Renew = "renew",
        Reap = "reap",
        Release = "release",
        ReleaseClaims = "release_claims",
        Retire = "retire",
        FireTimers = "fire_timers",
        PollBranches = "poll_branches",
        Gate = "gate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_beyond_the_limit_are_counted_together() {
        let kind = |n: usize, version| KindVersion { kind: format!("kind-{n:03}"), version };
        let kinds: Vec<_> = (0..MAX_KINDS + 7).flat_map(|n| [kind(n, 1), kind(n, 2)]).collect();
        let metrics = Metrics::new(&kinds);
        assert_eq!(metrics.kinds().len(), MAX_KINDS, "versions of a kind are counted together");
        metrics.kind("kind-000").count(OutcomeLabel::Done, Duration::ZERO);
        metrics.kind("kind-055").count(OutcomeLabel::Retry, Duration::ZERO);
        metrics.kind("kind-056").count(OutcomeLabel::Retry, Duration::ZERO);
        let all = metrics.kinds();
        assert_eq!((all.len(), all[MAX_KINDS].0), (MAX_KINDS + 1, OTHER_KINDS));
        let (first, other) = (all[0].1, all[MAX_KINDS].1);
        assert_eq!((first.outcomes(OutcomeLabel::Done), other.outcomes(OutcomeLabel::Retry)), (1, 2));
    }
}
