//! Durations in words: `hours(1)`.

use std::time::Duration;

/// A number of seconds.
pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A number of minutes.
pub const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

/// A number of hours.
pub const fn hours(n: u64) -> Duration {
    Duration::from_secs(n * 3_600)
}

/// A number of days of 24 hours.
pub const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}
