//! The jobs that workers have claimed through this server, with what their changes must have and a worker is not trusted to say.
//!
//! A cache: what is not in it is read from the store. A claim is forgotten when its worker has settled it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Mutex,
};

use windlass::model::{ClaimNo, ClaimedJob, Epoch, JobId, Retry, Rev, WorkerId};
use windlass_remote::protocol::change::JobFacts;

use super::lock;

/// How many jobs are remembered. Beyond it the oldest claims are forgotten, and read again when they are needed.
const MAX_JOBS: usize = 200_000;

/// A claimed job.
#[derive(Clone, Debug)]
pub(crate) struct KnownJob {
    pub(crate) epoch: Epoch,
    /// Its revision when it was claimed or read.
    pub(crate) rev: Rev,
    pub(crate) facts: JobFacts,
    /// Its own retry policy.
    pub(crate) retry: Option<Box<Retry>>,
    /// How often each rule of its policy was used, at that revision.
    pub(crate) retry_counts: Vec<u32>,
    /// Whether it has left the claim: a change ended the claim on it, or it was released.
    pub(crate) has_left: bool,
}

impl From<&ClaimedJob> for KnownJob {
    fn from(job: &ClaimedJob) -> KnownJob {
        KnownJob {
            epoch: job.epoch,
            rev: job.rev,
            facts: job.into(),
            retry: job.settings.retry.clone().map(Box::new),
            retry_counts: job.retry_counts.clone(),
            has_left: false,
        }
    }
}

type Claim = (WorkerId, ClaimNo);

/// The claims of all workers.
#[derive(Default)]
pub(crate) struct Claims {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By worker, so that a call of one does not walk those of the others.
    workers: HashMap<WorkerId, BTreeMap<ClaimNo, HashMap<JobId, KnownJob>>>,
    /// In the order in which they became known; some are forgotten already.
    order: VecDeque<Claim>,
    /// The number of claims.
    claims: usize,
    /// The number of jobs in all claims.
    jobs: usize,
}

impl Claims {
    /// Notes the jobs of a claim.
    pub(crate) fn note<'a>(
        &self,
        worker: WorkerId,
        number: ClaimNo,
        jobs: impl IntoIterator<Item = &'a ClaimedJob>,
    ) {
        let jobs: HashMap<JobId, KnownJob> = jobs.into_iter().map(|job| (job.id, job.into())).collect();
        if !jobs.is_empty() {
            lock(&self.known).insert((worker, number), jobs);
        }
    }

    /// A job of a claim, if it is known and has this epoch.
    pub(crate) fn get(
        &self,
        worker: WorkerId,
        number: ClaimNo,
        job: JobId,
        epoch: Epoch,
    ) -> Option<KnownJob> {
        let known = lock(&self.known);
        known.claim(worker, number)?.get(&job).filter(|job| job.epoch == epoch).cloned()
    }

    /// Notes that a job has left its claim.
    pub(crate) fn note_left(&self, worker: WorkerId, number: ClaimNo, job: JobId, epoch: Epoch) {
        let mut known = lock(&self.known);
        let claim = known.workers.get_mut(&worker).and_then(|claims| claims.get_mut(&number));
        let job = claim.and_then(|jobs| jobs.get_mut(&job));
        if let Some(job) = job.filter(|job| job.epoch == epoch) {
            job.has_left = true;
        }
    }

    /// Whether a claim is known, and all of its jobs have left it.
    pub(crate) fn is_over(&self, worker: WorkerId, number: ClaimNo) -> bool {
        let known = lock(&self.known);
        known.claim(worker, number).is_some_and(|jobs| jobs.values().all(|job| job.has_left))
    }

    /// The known claims of a worker up to a number.
    pub(crate) fn up_to(&self, worker: WorkerId, number: ClaimNo) -> Vec<ClaimNo> {
        let known = lock(&self.known);
        let own = known.workers.get(&worker).into_iter().flat_map(|claims| claims.range(..=number));
        own.map(|(claim, _)| *claim).collect()
    }

    /// Forgets claims of a worker.
    pub(crate) fn forget(&self, worker: WorkerId, numbers: &[ClaimNo]) {
        let mut known = lock(&self.known);
        numbers.iter().for_each(|number| known.remove((worker, *number)));
    }

    /// Forgets all claims of a worker.
    pub(crate) fn forget_all(&self, worker: WorkerId) {
        let mut known = lock(&self.known);
        let own: Vec<ClaimNo> =
            known.workers.get(&worker).into_iter().flat_map(|claims| claims.keys().copied()).collect();
        own.into_iter().for_each(|number| known.remove((worker, number)));
    }
}

impl Known {
    fn claim(&self, worker: WorkerId, number: ClaimNo) -> Option<&HashMap<JobId, KnownJob>> {
        self.workers.get(&worker)?.get(&number)
    }

    fn insert(&mut self, claim: Claim, jobs: HashMap<JobId, KnownJob>) {
        self.remove(claim);
        let (worker, number) = claim;
        (self.jobs, self.claims) = (self.jobs + jobs.len(), self.claims + 1);
        self.workers.entry(worker).or_default().insert(number, jobs);
        self.order.push_back(claim);
        // At least the new one stays, so that its own changes find it.
        while (self.jobs > MAX_JOBS || self.order.len() > MAX_JOBS) && self.claims > 1 {
            let Some(oldest) = self.order.pop_front() else { break };
            if oldest != claim {
                self.remove(oldest);
            }
        }
    }

    fn remove(&mut self, (worker, number): Claim) {
        if let Some(claims) = self.workers.get_mut(&worker)
            && let Some(jobs) = claims.remove(&number)
        {
            (self.jobs, self.claims) = (self.jobs - jobs.len(), self.claims - 1);
            if claims.is_empty() {
                self.workers.remove(&worker);
            }
        }
        if self.claims == 0 {
            self.order.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass::model::{NewJob, Payload, Time};

    use super::*;

    fn job(number: u32, claim: i64) -> ClaimedJob {
        let new = NewJob::new(JobId::from_parts(1, number, 1), "k", "q", Payload::default());
        new.claimed_at_submit(ClaimNo(claim), Epoch(3), Time(0))
    }

    #[test]
    fn a_job_is_known_in_its_claim_under_its_epoch_until_the_claim_is_forgotten() {
        let claims = Claims::default();
        let (one, other) = (WorkerId(1), WorkerId(2));
        claims.note(one, ClaimNo(1), &[job(1, 1), job(2, 1)]);
        claims.note(one, ClaimNo(2), &[job(3, 2)]);
        let has = |worker, claim, number, epoch| {
            claims.get(worker, ClaimNo(claim), job(number, 1).id, Epoch(epoch)).is_some()
        };
        assert!(has(one, 1, 1, 3) && has(one, 1, 2, 3) && has(one, 2, 3, 3));
        assert!(!has(other, 1, 1, 3) && !has(one, 2, 1, 3) && !has(one, 1, 1, 4));
        assert_eq!(claims.up_to(one, ClaimNo(1)), [ClaimNo(1)]);
        for (left, is_over) in [(1, false), (2, true)] {
            claims.note_left(one, ClaimNo(1), job(left, 1).id, Epoch(2));
            claims.note_left(one, ClaimNo(1), job(left, 1).id, Epoch(3));
            assert_eq!(claims.is_over(one, ClaimNo(1)), is_over, "{left} of 2 have left");
        }
        assert!(!claims.is_over(one, ClaimNo(2)) && !claims.is_over(other, ClaimNo(1)));
        claims.forget(one, &[ClaimNo(1)]);
        assert!(!has(one, 1, 1, 3) && has(one, 2, 3, 3));
        claims.note(other, ClaimNo(1), &[job(4, 1)]);
        assert_eq!(claims.up_to(one, ClaimNo(9)), [ClaimNo(2)], "not those of others");
        claims.forget_all(one);
        assert!(!has(one, 2, 3, 3) && has(other, 1, 4, 3));
        claims.forget_all(other);
        let known = lock(&claims.known);
        assert_eq!((known.jobs, known.claims, known.workers.len(), known.order.len()), (0, 0, 0, 0));
    }

    #[test]
    fn the_oldest_claims_are_forgotten_first() {
        let claims = Claims::default();
        let jobs: Vec<ClaimedJob> = (0..1_000).map(|number| job(number, 1)).collect();
        let count = (MAX_JOBS / jobs.len()) as i64;
        for claim in 1..=count + 2 {
            claims.note(WorkerId(1), ClaimNo(claim), &jobs);
        }
        let known = claims.up_to(WorkerId(1), ClaimNo(i64::MAX));
        assert_eq!(known.len() as i64, count);
        assert!(!known.contains(&ClaimNo(1)) && !known.contains(&ClaimNo(2)));
        assert_eq!(lock(&claims.known).jobs, MAX_JOBS);
    }
}
