//! Submitting jobs.

use super::*;

impl Inner {
    /// Submits jobs, in order. Returns an outcome for each.
    pub(super) fn insert_jobs(
        &mut self,
        now: Time,
        jobs: &[NewJob],
        requested_claim: Option<ClaimOnSubmit>,
    ) -> Vec<SubmitOutcome> {
        // Reported whatever the lease: a claim that the worker does not know of would last until its death.
        let claimed_before: Vec<JobId> = requested_claim
            .and_then(|claim| self.claims.get(&(claim.worker, claim.number)))
            .map(|claim| claim.jobs.iter().map(|(id, _)| *id).collect())
            .unwrap_or_default();
        let has_lease = |claim: &ClaimOnSubmit| {
            self.workers.get(&claim.worker).is_some_and(|worker| worker.lease.is_valid(now))
        };
        let claim_on_submit = requested_claim.filter(has_lease);
        self.queues.extend(jobs.iter().map(|job| job.queue.clone()));
        for serial in jobs.iter().filter_map(|job| job.settings.serial.as_ref()) {
            match serial.slots {
                Some(slots) => self.set_slots(&serial.key, slots),
                None => _ = self.serial_slots.entry(serial.key.clone()).or_insert(1),
            }
        }
        let mut claimed_now = Vec::new();
        let mut seen = BTreeSet::new();
        let mut outcomes = Vec::with_capacity(jobs.len());
        for job in jobs {
            let is_first = seen.insert(job.id);
            let was_claimed = is_first && self.jobs.contains_key(&job.id) && claimed_before.contains(&job.id);
            let outcome = self.submit_one(now, job, was_claimed, claim_on_submit.is_some());
            if let SubmitOutcome::New { claimed: Some(epoch) } = outcome
                && !was_claimed
            {
                claimed_now.push((job.id, epoch));
            }
            outcomes.push(outcome);
        }
        if let Some(claim) = claim_on_submit.filter(|_| !claimed_now.is_empty()) {
            let jobs = Claim { jobs: claimed_now, solo: false, claimed_at: now };
            self.claims.insert((claim.worker, claim.number), jobs);
        }
        outcomes
    }

    /// Submits one job. `was_claimed`: an earlier send of this submit claimed it. `may_claim`: it may be claimed now.
    fn submit_one(&mut self, now: Time, job: &NewJob, was_claimed: bool, may_claim: bool) -> SubmitOutcome {
        if let Some(row) = self.jobs.get(&job.id) {
            return SubmitOutcome::of_same_id(job, &row.new.digest, was_claimed);
        }
        let key = job.key.as_ref().map(|key| (job.kind.kind.clone(), key.clone()));
        if let Some(id) = key.as_ref().and_then(|key| self.keys.get(key)) {
            return SubmitOutcome::of_same_key(job, *id, &self.row(*id).new.digest);
        }
        let replaced = match self.take_name(now, job) {
            Ok(replaced) => replaced,
            Err(outcome) => return outcome,
        };
        if let Some(key) = key {
            self.keys.insert(key, job.id);
        }
        let may_claim = may_claim && !job.needs_slow_path() && !self.queue_pauses.contains_key(&job.queue);
        let claimed = self.insert_job(now, job, may_claim);
        for signal in &job.signals {
            self.record_delivery(now, job.id, signal);
        }
        match replaced {
            Some(id) => SubmitOutcome::Replaced { id },
            None => SubmitOutcome::New { claimed },
        }
    }

    /// Inserts a job. One that is due and may be claimed at once is in neither the ready set nor the timers afterwards;
    /// returns the epoch of its claim.
    pub(super) fn insert_job(&mut self, now: Time, job: &NewJob, may_claim: bool) -> Option<Epoch> {
        let due_at = job.when.due_at(now);
        self.jobs.insert(job.id, Row::new(job.clone(), now, due_at));
        self.count_live_child(job.id);
        if let Some(at) = job.deadline_at {
            self.set_timer(at, job.id, Timer::Deadline);
        }
        if due_at > now {
            self.set_timer(due_at, job.id, Timer::Wake);
        } else if may_claim {
            return Some(Epoch(0));
        } else {
            self.enter(job.id);
        }
        None
    }
}
