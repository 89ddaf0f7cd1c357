//! Leases: until when a worker may claim, and when it may be declared dead.
//!
//! A lease runs out at its time, by the store's clock. That alone ends nothing: the worker may not claim, and may renew. Only a
//! worker that was declared dead, or has retired, can never claim again. After an outage of the database every lease looks expired,
//! so only a worker that has itself renewed for long enough may declare others dead.

use crate::Time;

/// What a worker is to its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerStatus {
    /// It is registered and was not declared dead.
    Alive,
    /// It was declared dead, and has claims that are not reaped.
    Dead,
    /// It has retired, or is dead and has no claims left.
    Gone,
}

/// A worker's lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// What the worker is.
    pub status: WorkerStatus,
    /// When the lease runs out, unless it is renewed.
    pub until: Time,
}

/// Whether a worker may claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseState {
    /// It may.
    Valid,
    /// Its lease has run out: it must renew first.
    Lapsed,
    /// It was declared dead or has retired: it must register under a new id.
    Ended,
}

impl Lease {
    /// Returns whether the worker may claim now.
    pub fn state(self, now: Time) -> LeaseState {
        match self.status {
            WorkerStatus::Alive if self.until > now => LeaseState::Valid,
            WorkerStatus::Alive => LeaseState::Lapsed,
            WorkerStatus::Dead | WorkerStatus::Gone => LeaseState::Ended,
        }
    }

    /// Whether the worker may claim now.
    pub fn is_valid(self, now: Time) -> bool {
        self.state(now) == LeaseState::Valid
    }

    /// Whether a reap would find something to do for this worker: its lease has run out, or it is dead and has claims left.
    pub fn is_reapable(self, now: Time) -> bool {
        self.status == WorkerStatus::Dead || self.state(now) == LeaseState::Lapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);

    fn lease(status: WorkerStatus, until: i64) -> Lease {
        Lease { status, until: Time(until) }
    }

    #[test]
    fn a_live_worker_claims_until_its_lease_runs_out() {
        assert_eq!(lease(WorkerStatus::Alive, 1_001).state(NOW), LeaseState::Valid);
        assert_eq!(lease(WorkerStatus::Alive, 1_000).state(NOW), LeaseState::Lapsed, "at its very time");
        assert_eq!(lease(WorkerStatus::Alive, 999).state(NOW), LeaseState::Lapsed);
        assert!(lease(WorkerStatus::Alive, 1_001).is_valid(NOW));
        assert!(!lease(WorkerStatus::Alive, 1_000).is_valid(NOW));
    }

    #[test]
    fn a_dead_or_retired_worker_never_claims_again() {
        for status in [WorkerStatus::Dead, WorkerStatus::Gone] {
            for until in [999, 1_001] {
                assert_eq!(lease(status, until).state(NOW), LeaseState::Ended);
                assert!(!lease(status, until).is_valid(NOW));
            }
        }
    }

    #[test]
    fn lapsed_and_dead_workers_are_reaped() {
        assert!(!lease(WorkerStatus::Alive, 1_001).is_reapable(NOW));
        assert!(lease(WorkerStatus::Alive, 1_000).is_reapable(NOW));
        assert!(lease(WorkerStatus::Dead, 1_001).is_reapable(NOW));
        assert!(!lease(WorkerStatus::Gone, 999).is_reapable(NOW));
    }
}
