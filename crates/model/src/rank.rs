//! The order in which ready jobs are claimed.
//!
//! One stored number orders a lane: the moment the job became due plus its priority times the ageing span.
//! A low priority makes a job late, never starved: after its span has passed it stands before newer urgent
//! work.

use std::time::Duration;

use crate::Time;

/// How much later one step of priority makes a job stand in line.
///
/// A minute: long enough that urgent work overtakes any ordinary backlog of seconds, short enough that the
/// least urgent job (priority 100) waits less than two hours behind a steady stream of normal ones.
pub const AGEING_SPAN: Duration = Duration::from_secs(60);

/// Priorities run from -100 (most urgent) over 0 (normal) to 100 (least urgent).
pub const MAX_PRIORITY: i16 = 100;

/// The place in line of a job that became due at `due_at`; the smallest rank is claimed first.
pub fn rank(due_at: Time, priority: i16) -> i64 {
    due_at.micros().saturating_add(i64::from(priority) * AGEING_SPAN.as_micros() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_work_overtakes_and_old_work_is_never_starved() {
        let now = Time(1_800_000_000_000_000);
        assert!(rank(now, -1) < rank(now, 0));
        assert!(rank(now, 5) > rank(now, 0));
        let later = now.plus(AGEING_SPAN * 6);
        assert!(rank(now, 5) < rank(later, 0), "after five spans it stands before normal work");
    }
}
