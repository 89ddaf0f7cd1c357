//! Claiming ready jobs.

use windlass_model::{ClaimedJob, LeaseState, rate::ClaimBucket};

use super::*;

impl Inner {
    pub(super) fn claim(&mut self, now: Time, request: &ClaimRequest) -> Result<ClaimBatch, Error> {
        if !request.kinds.is_empty() {
            self.queues.insert(request.queue.clone());
        }
        match self.workers.get(&request.worker).map(|worker| worker.lease.state(now)) {
            Some(LeaseState::Valid) => {}
            Some(LeaseState::Lapsed) => return Err(Error::lease_lapsed()),
            Some(LeaseState::Ended) | None => return Err(Error::Dead),
        }
        self.settle_claims(request.worker, &request.settled);
        let limit = if request.solo || request.only.is_some() { 1 } else { request.limit };
        let paused = self.queue_pauses.contains_key(&request.queue);
        let number = (request.worker, request.number);
        let mut refill_at = None;
        let pairs = match self.claims.get(&number) {
            Some(claim) => claim.jobs.iter().copied().filter(|pair| self.is_claimed(*pair)).collect(),
            None if paused => Vec::new(),
            None => {
                let (taken, refill) = self.take(now, request, limit);
                refill_at = refill;
                let pairs: Vec<_> = taken.into_iter().map(|id| (id, self.row(id).epoch)).collect();
                if !pairs.is_empty() {
                    let claim = Claim { jobs: pairs.clone(), solo: request.solo, claimed_at: now };
                    self.claims.insert(number, claim);
                }
                pairs
            }
        };
        let suspect_lanes = self.lanes(request, true);
        let suspects = !paused && self.ready.iter().any(|(lane, ..)| suspect_lanes.contains(lane));
        let more = request.only.is_none() && limit > 0 && pairs.len() >= limit;
        let jobs = pairs.into_iter().map(|(id, _)| self.claimed_job(id, request.number)).collect();
        Ok(ClaimBatch { jobs, more, suspects, refill_at, now })
    }

    /// The jobs that are still claimed under a claim.
    pub(super) fn jobs_of_claim(&self, worker: WorkerId, number: ClaimNo) -> Vec<ClaimedJob> {
        let claim = self.claims.get(&(worker, number));
        let pairs = claim.iter().flat_map(|claim| &claim.jobs).filter(|pair| self.is_claimed(**pair));
        pairs.map(|(id, _)| self.claimed_job(*id, number)).collect()
    }

    /// The lanes of a request: without a rate limit, and with each of them. A claim of one job takes it from the former only.
    fn lanes(&self, request: &ClaimRequest, suspect: bool) -> Vec<Lane> {
        let limited = || self.buckets.keys().filter(|_| request.only.is_none());
        let limits = || std::iter::once(None).chain(limited().cloned().map(Some));
        let mut lanes = Vec::new();
        for kind in request.kinds.iter() {
            lanes.extend(limits().map(|limit| Lane {
                queue: request.queue.clone(),
                kind: kind.kind.clone(),
                version: kind.version,
                limit,
                suspect,
            }));
        }
        lanes
    }

    /// Takes the first `limit` jobs of a request out of the ready set, by rank, as far as their rate limits pay for them.
    /// Returns the jobs, and when to claim again for those that wait for their rate limit.
    fn take(&mut self, now: Time, request: &ClaimRequest, limit: usize) -> (Vec<JobId>, Option<Time>) {
        let lanes = self.lanes(request, request.solo);
        let is_requested = |job: JobId| request.only.is_none_or(|only| only == job);
        let ready = self.ready.iter().filter(|(lane, _, job)| lanes.contains(lane) && is_requested(*job));
        let mut ready: Vec<_> = ready.cloned().collect();
        ready.sort_by_key(|(_, rank, id)| (*rank, *id));
        let mut buckets: BTreeMap<String, ClaimBucket> = BTreeMap::new();
        let mut taken = Vec::new();
        for key in ready {
            if taken.len() == limit {
                break;
            }
            let id = key.2;
            if let Some(charge) = &self.row(id).new.settings.rate {
                let bucket = buckets
                    .entry(charge.limit.clone())
                    .or_insert_with(|| self.buckets[&charge.limit].for_claim(now));
                if !bucket.pay(charge.weight) {
                    continue;
                }
            }
            self.next_state(id, Event::Claim);
            self.ready.remove(&key);
            taken.push(id);
        }
        let refill_at = buckets.values().filter_map(ClaimBucket::refill_at).min();
        for (name, bucket) in buckets {
            self.buckets.get_mut(&name).expect("read above").level = bucket.level();
        }
        (taken, refill_at)
    }

    fn claimed_job(&self, id: JobId, claim: ClaimNo) -> ClaimedJob {
        let row = self.row(id);
        ClaimedJob {
            id,
            kind: row.new.kind.clone(),
            claim,
            epoch: row.epoch,
            rev: row.rev,
            attempts: row.attempts,
            retry_counts: row.retry_counts.clone(),
            worker_deaths: row.worker_deaths,
            key: row.new.key.clone(),
            due_at: row.due_at,
            deadline_at: row.new.deadline_at,
            settings: row.new.settings.clone(),
            input: row.new.input.clone(),
            parent: row.new.parent.filter(|_| row.new.parent_rev.is_some()),
            branch_member: row.branch_member(),
            stage: row.stage.clone(),
            stage_rev: row.stage_rev,
            steps_since_wait: row.steps_since_wait,
            data: row.data.clone(),
            wait: row.wait.clone(),
            wait_until: row.wait_until,
            pending_children: row.pending_children,
            inbox: row.awaited_signals(),
            unwind: row.unwind.clone(),
            fault: None,
        }
    }
}
