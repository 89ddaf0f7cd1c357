//! Which claims were made in the life of a session.
//!
//! Whoever settles a claim says that the outcomes of its jobs were acknowledged. A server that has taken over since, or was restored,
//! may lack some of them; then the claim must stay, so that its jobs are found. To look at every job of every settled claim costs a
//! tenth of the throughput, and there is no need to while the server is the same: a session that was opened before the claim was made
//! ends with its server, and with all that server might lose.

use std::{collections::HashMap, sync::Mutex, time::Instant};

use windlass_model::{ClaimNo, WorkerId};

/// How many claims are remembered. Those that are not are looked at when they are settled.
const REMEMBERED: usize = 4_096;

/// When the claims were made that are not settled.
#[derive(Default)]
pub(super) struct OpenClaims {
    since: Mutex<HashMap<(WorkerId, ClaimNo), Instant>>,
}

impl OpenClaims {
    /// Notes a claim, with a moment before it was sent.
    pub(super) fn made(&self, worker: WorkerId, number: ClaimNo, before: Instant) {
        let mut since = self.since.lock().unwrap_or_else(|e| e.into_inner());
        if since.len() >= REMEMBERED {
            since.clear();
        }
        since.insert((worker, number), before);
    }

    /// Whether all these claims were made after this moment.
    pub(super) fn are_all_after(&self, opened: Instant, worker: WorkerId, numbers: &[ClaimNo]) -> bool {
        let since = self.since.lock().unwrap_or_else(|e| e.into_inner());
        numbers.iter().all(|number| since.get(&(worker, *number)).is_some_and(|made| *made > opened))
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
    fn a_claim_is_of_a_session_that_was_opened_before_it() {
        let (claims, me, opened) = (OpenClaims::default(), WorkerId(1), Instant::now());
        let [first, second] = [ClaimNo(1), ClaimNo(2)];
        claims.made(me, first, opened + Duration::from_secs(1));
        assert!(claims.are_all_after(opened, me, &[first]));
        assert!(!claims.are_all_after(opened + Duration::from_secs(1), me, &[first]), "opened after it");
        assert!(!claims.are_all_after(opened, me, &[first, second]), "nobody knows of the other");
        assert!(!claims.are_all_after(opened, WorkerId(2), &[first]), "another worker's");
        claims.settled(me, &[first]);
        assert!(!claims.are_all_after(opened, me, &[first]));
        assert!(claims.are_all_after(opened, me, &[]));
    }
}
