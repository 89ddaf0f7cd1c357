//! What this handle remembers of open claims, so that commits need not look it up: how many jobs have left each, and the lanes and due times
//! of its jobs.
//!
//! A settled claim is deleted if as many jobs have left it as it took. Otherwise, and for claims of other handles,
//! each of its jobs is looked up.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use foldhash::fast::RandomState;
use windlass_model::{ClaimNo, JobId, Time, WorkerId};

/// How many claims are remembered: more than a worker has open. Beyond, jobs are looked up.
const MAX_CLAIMS: usize = 10_000;

/// A claim: who made it, and its number.
pub(super) type ClaimKey = (WorkerId, ClaimNo);

/// The open claims of this handle.
#[derive(Default)]
pub(super) struct OpenClaims {
    claims: Mutex<Claims>,
}

type Claims = HashMap<ClaimKey, OpenClaim, RandomState>;

#[derive(Default)]
struct OpenClaim {
    /// How many jobs have left it by commits of this handle.
    left: usize,
    /// Empty if another handle made it.
    jobs: ClaimedJobs,
}

/// What is remembered of a claimed job. Neither changes while it is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClaimedFrom {
    pub(super) lane: i32,
    /// When it was due.
    pub(super) due_at: Time,
}

/// The jobs of a claim.
pub(super) type ClaimedJobs = HashMap<JobId, ClaimedFrom, RandomState>;

impl OpenClaims {
    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Adds what a committed transaction has counted, and the claim that it made.
    pub(super) fn add(&self, left: Vec<(ClaimKey, usize)>, made: Option<(ClaimKey, ClaimedJobs)>) {
        if left.is_empty() && made.is_none() {
            return;
        }
        let mut claims = self.claims();
        if claims.len() > MAX_CLAIMS {
            claims.clear();
        }
        left.into_iter().for_each(|(claim, count)| claims.entry(claim).or_default().left += count);
        if let Some((claim, jobs)) = made {
            claims.entry(claim).or_default().jobs = jobs;
        }
    }

    /// What is remembered of a job of a claim.
    pub(super) fn job(&self, claim: ClaimKey, job: JobId) -> Option<ClaimedFrom> {
        self.claims().get(&claim)?.jobs.get(&job).copied()
    }

    /// Returns how many jobs have left a claim that is settled, and forgets it.
    pub(super) fn settled(&self, worker: WorkerId, number: ClaimNo) -> usize {
        self.claims().remove(&(worker, number)).map_or(0, |claim| claim.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_of_a_claim_are_remembered_until_it_is_settled() {
        let (one, other) = (JobId::from_parts(1, 1, 1), JobId::from_parts(1, 1, 2));
        let from = |lane| ClaimedFrom { lane, due_at: Time(i64::from(lane)) };
        let claims = OpenClaims::default();
        let claim = |number| (WorkerId(7), ClaimNo(number));
        claims.add(Vec::new(), Some((claim(1), ClaimedJobs::from_iter([(one, from(3)), (other, from(4))]))));
        claims.add(vec![(claim(1), 1), (claim(2), 1)], None);
        assert_eq!((claims.job(claim(1), one), claims.job(claim(1), other)), (Some(from(3)), Some(from(4))));
        assert_eq!(claims.job(claim(2), one), None, "another handle made it");
        assert_eq!(claims.settled(WorkerId(7), ClaimNo(1)), 1);
        assert_eq!(claims.job(claim(1), one), None);
    }
}
