//! Spans of time in words.

use std::time::Duration;

/// So many seconds.
pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// So many minutes.
pub const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

/// So many hours.
pub const fn hours(n: u64) -> Duration {
    Duration::from_secs(n * 3_600)
}

/// So many days of 24 hours.
pub const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}
