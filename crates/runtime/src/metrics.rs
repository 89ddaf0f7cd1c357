//! What a worker counts beside its [`Stats`](crate::Stats): how long things take, how attempts end, which calls fail.
//!
//! The loops write here, without locks and by the batch where there is one. A number without labels belongs into
//! `stats.rs`, whose every line is a counter of `/metrics`; what has labels or a spread belongs here and is shown by
//! `page.rs`.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use windlass_model::{KindVersion, Outcome, Wait, WaitCondition};

use crate::histogram::{CALL, Histogram, SIZE, WORK};

/// How many kinds are counted one by one: a scrape must stay small, however many a program serves.
const KINDS: usize = 50;
/// What the others are counted under. It is no kind's name: those have no spaces.
const OTHERS: &str = "other kinds";

/// The numbers of one worker.
pub(crate) struct Metrics {
    /// How many changes each commit carried.
    pub(crate) commit_size: Histogram,
    /// How long commits took that the store answered.
    pub(crate) commit_seconds: Histogram,
    /// How long claims took that the store answered.
    pub(crate) claim_seconds: Histogram,
    kinds: HashMap<String, Kind>,
    others: Kind,
    failed: [AtomicU64; Verb::ALL.len()],
}

/// The numbers of one kind.
pub(crate) struct Kind {
    /// How long its attempts ran.
    pub(crate) seconds: Histogram,
    ended: [AtomicU64; Ending::ALL.len()],
}

impl Metrics {
    /// Nothing yet, for a worker of these kinds.
    pub(crate) fn new(kinds: &[KindVersion]) -> Metrics {
        let mut names: Vec<&str> = kinds.iter().map(|kind| kind.kind.as_str()).collect();
        names.dedup();
        names.truncate(KINDS);
        Metrics {
            commit_size: Histogram::new(SIZE),
            commit_seconds: Histogram::new(CALL),
            claim_seconds: Histogram::new(CALL),
            kinds: names.into_iter().map(|name| (name.to_owned(), Kind::new())).collect(),
            others: Kind::new(),
            failed: Default::default(),
        }
    }

    /// The numbers that a kind's attempts are counted in.
    pub(crate) fn kind(&self, name: &str) -> &Kind {
        self.kinds.get(name).unwrap_or(&self.others)
    }

    /// All kinds by name; the others only if there are any.
    pub(crate) fn kinds(&self) -> Vec<(&str, &Kind)> {
        let mut kinds: Vec<_> = self.kinds.iter().map(|(name, kind)| (name.as_str(), kind)).collect();
        kinds.sort_by_key(|(name, _)| *name);
        if Ending::ALL.into_iter().any(|ending| self.others.ended(ending) > 0) {
            kinds.push((OTHERS, &self.others));
        }
        kinds
    }

    /// Notes that a call failed.
    pub(crate) fn failed(&self, verb: Verb) {
        self.failed[verb as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls of this verb have failed.
    pub(crate) fn failures(&self, verb: Verb) -> u64 {
        self.failed[verb as usize].load(Ordering::Relaxed)
    }
}

impl Kind {
    fn new() -> Kind {
        Kind { seconds: Histogram::new(WORK), ended: Default::default() }
    }

    /// Notes how an attempt ended.
    pub(crate) fn note(&self, ending: Ending, ran: Duration) {
        self.ended[ending as usize].fetch_add(1, Ordering::Relaxed);
        self.seconds.note_span(ran);
    }

    /// How many attempts ended so.
    pub(crate) fn ended(&self, ending: Ending) -> u64 {
        self.ended[ending as usize].load(Ordering::Relaxed)
    }
}

/// A closed set of labels, with the words that people see.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            pub(crate) const ALL: [$name; [$($word),*].len()] = [$($name::$variant),*];

            pub(crate) fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }
    };
}

labels! {
    /// How an attempt ended.
    Ending {
        Done = "done",
        /// With an error after which it is tried again.
        Retry = "retry",
        Failed = "failed",
        /// A machine went on with its next step.
        Next = "next",
        /// A machine waits for signals or children.
        Wait = "wait",
        Cancelled = "cancelled",
        /// Its outcome is not wanted any more: the worker stopped or lost its lease, or the attempt blocked its thread.
        GivenUp = "given_up",
    }
}

impl From<&Outcome> for Ending {
    fn from(outcome: &Outcome) -> Ending {
        match outcome {
            Outcome::Done(_) => Ending::Done,
            Outcome::Retry { .. } => Ending::Retry,
            Outcome::Failed { .. } => Ending::Failed,
            Outcome::Next | Outcome::Wait(Wait { condition: WaitCondition::Nothing, .. }) => Ending::Next,
            Outcome::Wait(_) => Ending::Wait,
            Outcome::Cancelled(_) => Ending::Cancelled,
        }
    }
}

labels! {
    /// What a store is asked for.
    Verb {
        Enlist = "enlist",
        Submit = "submit",
        Signal = "signal",
        Claim = "claim",
        Commit = "commit",
        Renew = "renew",
        Reap = "reap",
        Release = "release",
        Disown = "disown",
        Retire = "retire",
        Due = "due",
        Poll = "poll",
        Gate = "gate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_beyond_the_cap_are_counted_together() {
        let kind = |n: usize, version| KindVersion { kind: format!("kind-{n:03}"), version };
        let kinds: Vec<_> = (0..KINDS + 7).flat_map(|n| [kind(n, 1), kind(n, 2)]).collect();
        let metrics = Metrics::new(&kinds);
        assert_eq!(metrics.kinds().len(), KINDS, "versions of a kind are counted together");
        metrics.kind("kind-000").note(Ending::Done, Duration::ZERO);
        metrics.kind("kind-055").note(Ending::Retry, Duration::ZERO);
        metrics.kind("kind-056").note(Ending::Retry, Duration::ZERO);
        let all = metrics.kinds();
        assert_eq!((all.len(), all[KINDS].0), (KINDS + 1, OTHERS));
        assert_eq!((all[0].1.ended(Ending::Done), all[KINDS].1.ended(Ending::Retry)), (1, 2));
    }
}
