//! Workers: registering, renewing leases, releasing jobs, retiring.

use std::time::Duration;

use windlass_model::LeaseState;

use super::*;

/// How long a worker that is gone is kept for people to see.
const KEPT_AFTER_LEASE: Duration = Duration::from_secs(7 * 86_400);

impl Inner {
    /// Registers a worker, and deletes workers that are long gone. Returns whether its id was free.
    pub(super) fn register(&mut self, now: Time, new: &NewWorker) -> bool {
        if self.workers.contains_key(&new.id) {
            return false;
        }
        let oldest = now - KEPT_AFTER_LEASE;
        self.workers
            .retain(|_, worker| worker.lease.status != WorkerStatus::Gone || worker.lease.until >= oldest);
        let worker = Worker {
            name: new.name.clone(),
            liveness_file: new.liveness_file.clone(),
            lease: Lease { status: WorkerStatus::Alive, until: now + new.lease },
            serves: new.serves.clone(),
            progress: Vec::new(),
            token: new.token.clone(),
            lost_at: None,
        };
        self.workers.insert(new.id, worker);
        true
    }

    pub(super) fn renew(&mut self, now: Time, request: &RenewRequest) -> Renewal {
        self.settle_claims(request.worker, &request.settled);
        for number in &request.solo_ended {
            if let Some(claim) = self.claims.get_mut(&(request.worker, *number)) {
                claim.solo = false;
            }
        }
        let worker = self.workers.get_mut(&request.worker);
        let Some(worker) = worker.filter(|worker| worker.lease.state(now) != LeaseState::Ended) else {
            return Renewal::Lost;
        };
        worker.lease.until = now + request.lease;
        if let Some(progress) = &request.progress {
            worker.progress = progress.clone();
        }
        let lapsed = self.workers.values().any(|worker| worker.lease.is_reapable(now));
        let claims = self.claims.keys().filter(|(worker, _)| *worker == request.worker);
        Renewal::Held { lapsed, claims: claims.map(|(_, number)| *number).collect() }
    }

    /// Deletes claims that have no claimed jobs left. One that has some stays: their outcomes were lost, and it is
    /// released once its worker has noticed that it does not know the claim.
    pub(super) fn settle_claims(&mut self, worker: WorkerId, numbers: &[ClaimNo]) {
        for number in numbers.iter().map(|number| (worker, *number)) {
            let claim = self.claims.get(&number);
            if claim.is_some_and(|claim| claim.jobs.iter().all(|pair| !self.is_claimed(*pair))) {
                self.claims.remove(&number);
            }
        }
    }

    pub(super) fn release(&mut self, jobs: &[JobClaim]) -> usize {
        let is_recorded = |job: &&JobClaim| self.claims.contains_key(&(job.worker, job.claim));
        let pairs: Vec<_> = jobs.iter().filter(is_recorded).map(|job| (job.job, job.epoch)).collect();
        self.return_jobs(&pairs)
    }

    /// Returns jobs that are claimed under the given epochs to the ready set. Returns how many.
    fn return_jobs(&mut self, pairs: &[(JobId, Epoch)]) -> usize {
        let mut released = 0;
        for pair in pairs {
            if self.is_claimed(*pair) {
                self.next_state(pair.0, Event::Release);
                self.row_mut(pair.0).epoch.0 += 1;
                self.enter(pair.0);
                released += 1;
            }
        }
        released
    }

    pub(super) fn retire(&mut self, worker: WorkerId) -> usize {
        match self.workers.get_mut(&worker) {
            Some(worker) if worker.lease.status == WorkerStatus::Alive => {
                worker.lease.status = WorkerStatus::Gone;
            }
            _ => return 0,
        }
        let numbers: Vec<_> = self.claims.keys().copied().filter(|(of, _)| *of == worker).collect();
        numbers.into_iter().map(|number| self.release_claim(number)).sum()
    }

    /// Returns the jobs of a claim, and deletes it. Returns how many.
    pub(super) fn release_claim(&mut self, number: (WorkerId, ClaimNo)) -> usize {
        self.claims.remove(&number).map_or(0, |claim| self.return_jobs(&claim.jobs))
    }

    /// The cancel requests for a worker's attempts.
    pub(super) fn cancel_requests(&self, worker: WorkerId) -> Vec<CancelRequest> {
        let requests = self.pending_cancels.values().filter(|pending| pending.worker == worker);
        requests.map(|pending| pending.request.clone()).collect()
    }
}
