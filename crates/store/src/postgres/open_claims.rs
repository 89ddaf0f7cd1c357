//! When open claims were made, compared with the sessions that settle them.
//!
//! A worker settles a claim once the commits of all its jobs were acknowledged. A server that has taken over since, or was restored, may
//! lack some of these commits; then the claim must stay, so that its jobs are found. Checking every job of every settled claim costs a
//! tenth of the throughput. It is not needed while the server is the same: a session that was opened before the claim was made ends with
//! its server, and so with everything that the server may lose.

use std::{collections::HashMap, sync::Mutex, time::Instant};

use windlass_model::{ClaimNo, WorkerId};

/// How many claims are kept: more than a worker has open. The jobs of others are checked when they are settled.
const MAX_CLAIMS: usize = 4_096;

/// When each open claim was made.
#[derive(Default)]
pub(super) struct OpenClaims {
    since: Mutex<HashMap<(WorkerId, ClaimNo), Instant>>,
}

impl OpenClaims {
    /// Notes a claim, with a time before it was sent.
    pub(super) fn made(&self, worker: WorkerId, number: ClaimNo, before: Instant) {
        let mut since = self.since.lock().unwrap_or_else(|e| e.into_inner());
        if since.len() >= MAX_CLAIMS {
            since.clear();
        }
        since.insert((worker, number), before);
    }

    /// Whether all these claims were made after a session was opened.
    pub(super) fn are_all_after(&self, opened_at: Instant, worker: WorkerId, numbers: &[ClaimNo]) -> bool {
        let since = self.since.lock().unwrap_or_else(|e| e.into_inner());
        numbers.iter().all(|number| since.get(&(worker, *number)).is_some_and(|made| *made > opened_at))
    }

    /// Notes that claims were settled.
    pub(super) fn settled(&self, worker: WorkerId, numbers: &[ClaimNo]) {
        let mut since = self.since.lock().unwrap_or_else(|e| e.into_inner());
        for number in numbers {
            since.remove(&(worker, *number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn claims_made_after_a_session_was_opened_are_known() {
        let (claims, me, opened) = (OpenClaims::default(), WorkerId(1), Instant::now());
        let [first, second] = [ClaimNo(1), ClaimNo(2)];
        claims.made(me, first, opened + Duration::from_secs(1));
        assert!(claims.are_all_after(opened, me, &[first]));
        assert!(!claims.are_all_after(opened + Duration::from_secs(1), me, &[first]), "opened after it");
        assert!(!claims.are_all_after(opened, me, &[first, second]), "the second was not made");
        assert!(!claims.are_all_after(opened, WorkerId(2), &[first]), "another worker's");
        claims.settled(me, &[first]);
        assert!(!claims.are_all_after(opened, me, &[first]));
        assert!(claims.are_all_after(opened, me, &[]));
    }
}
