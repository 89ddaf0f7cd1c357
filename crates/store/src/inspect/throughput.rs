//! What ended in a span of time, how long waits for signals took, and the times of branches: sums that the store maintains.

use std::str::FromStr;

use windlass_model::{BranchNo, Ended, Histogram, Time};

/// Which ends to sum up, and by what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThroughputFilter {
    /// Only in these queues; empty for all.
    pub queues: Vec<String>,
    /// Only of these kinds; empty for all.
    pub kinds: Vec<String>,
    /// Only in minutes that began at this time or later.
    pub from: Time,
    /// Only in minutes that began before this time.
    pub until: Time,
    /// What each row sums up.
    pub by: ThroughputBy,
}

/// What a row of [`Throughput`] sums up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThroughputBy {
    /// One minute, or one hour where minutes are no longer kept.
    Minute,
    /// One hour.
    Hour,
    /// One queue and kind, over the whole span.
    Kind,
}

impl FromStr for ThroughputBy {
    type Err = String;

    fn from_str(text: &str) -> Result<ThroughputBy, String> {
        match text {
            "minute" => Ok(ThroughputBy::Minute),
            "hour" => Ok(ThroughputBy::Hour),
            "kind" => Ok(ThroughputBy::Kind),
            _ => Err(format!("{text:?} is nothing to sum up by; use minute, hour or kind")),
        }
    }
}

/// What ended in a minute or an hour, or of a queue and kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Throughput {
    /// When the minute or hour began; `None` if the row sums up a queue and kind.
    pub starts_at: Option<Time>,
    /// How many minutes it sums up: 1 or 60, or 0 for a queue and kind.
    pub minutes: u32,
    /// The queue and the kind; `None` if the row sums up a minute or hour.
    pub queue_and_kind: Option<(String, String)>,
    /// What ended.
    pub ended: Ended,
}

/// Which waits for signals to sum up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SignalWaitFilter {
    /// Only of jobs of these kinds; empty for all.
    pub kinds: Vec<String>,
    /// Only for this signal.
    pub signal: Option<String>,
    /// Only waits that ended at this time or later, to the day.
    pub from: Time,
}

/// How long jobs of a kind waited for a signal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignalWaits {
    /// The kind of the jobs.
    pub kind: String,
    /// The name of the signal, or [`OTHER_SIGNALS`].
    pub signal: String,
    /// The lengths of waits that the signal ended.
    pub arrived: Histogram,
    /// The lengths of waits that timed out without it.
    pub timed_out: Histogram,
}

/// How many names of signals are kept apart per kind. The names of further ones are kept as [`OTHER_SIGNALS`]: names that contain
/// ids must not fill the store.
pub const MAX_SIGNAL_NAMES: usize = 200;

/// Stands for the names of signals beyond [`MAX_SIGNAL_NAMES`]. No signal can have this name: it contains a space.
pub const OTHER_SIGNALS: &str = "(all others)";

/// The times of the children of a branch that have ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BranchTimes {
    /// The branch.
    pub branch: BranchNo,
    /// When the first of their attempts that ended a child started.
    pub first_start_at: Option<Time>,
    /// When the last child ended.
    pub last_end_at: Option<Time>,
    /// How long children waited between being due and starting.
    pub wait_times: Histogram,
    /// How long their last attempts ran.
    pub run_times: Histogram,
}

impl BranchTimes {
    /// Adds the times of other children.
    pub fn merge(&mut self, other: &BranchTimes) {
        // `None` is later than any time here.
        self.first_start_at = self.first_start_at.into_iter().chain(other.first_start_at).min();
        self.last_end_at = self.last_end_at.max(other.last_end_at);
        self.wait_times.merge(&other.wait_times);
        self.run_times.merge(&other.run_times);
    }
}
