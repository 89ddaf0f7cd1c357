//! Rank: the order in which ready jobs are claimed.
//!
//! One stored number orders a lane: the time at which the job became due plus its priority times the ageing span. A low
//! priority delays a job and never starves it: once its span has passed, it is ahead of newer, more urgent jobs.

use std::time::Duration;

use crate::Time;

/// By how much one step of priority moves a job back.
///
/// A minute: long enough that urgent jobs overtake an ordinary backlog of seconds, short enough that the least urgent job
/// (priority 100) waits less than two hours behind a steady stream of normal ones.
pub const AGEING_SPAN: Duration = Duration::from_secs(60);

/// Priorities run from -100 (most urgent) over 0 (normal) to 100 (least urgent).
pub const MAX_PRIORITY: i16 = 100;

/// Returns the rank of a job that became due at `due_at`. The smallest rank is claimed first.
pub fn rank(due_at: Time, priority: i16) -> i64 {
    due_at.micros().saturating_add(i64::from(priority) * AGEING_SPAN.as_micros() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_jobs_overtake_and_old_jobs_are_never_starved() {
        let now = Time(1_800_000_000_000_000);
        assert!(rank(now, -1) < rank(now, 0));
        assert!(rank(now, 5) > rank(now, 0));
        let later = now + AGEING_SPAN * 6;
        assert!(rank(now, 5) < rank(later, 0), "after five spans it is ahead of normal jobs");
    }
}
