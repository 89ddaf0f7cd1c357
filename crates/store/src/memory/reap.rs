//! Reaping: returning the jobs of dead workers.

use windlass_model::{
    LeaseState,
    crash::{AfterDeath, after_death, lost},
};

use super::*;

impl Inner {
    pub(super) fn reap(&mut self, now: Time, request: &ReapRequest) -> ReapReport {
        let mut report = ReapReport::default();
        for (id, worker) in &mut self.workers {
            let is_dead = match worker.lease.state(now) {
                LeaseState::Valid => request.dead.contains(id),
                LeaseState::Lapsed => request.dead.contains(id) || request.lapsed,
                LeaseState::Ended => false,
            };
            if is_dead {
                worker.lease.status = WorkerStatus::Dead;
                worker.lost_at = Some(now);
                report.workers.push(*id);
            }
        }
        let numbers: Vec<_> =
            self.claims.keys().copied().filter(|claim| self.is_dead(claim)).take(request.limit).collect();
        for number in numbers {
            let claim = self.claims.remove(&number).expect("listed above");
            for pair in &claim.jobs {
                if self.is_claimed(*pair) {
                    self.return_job(now, pair.0, number.0, &claim, request.max_crashes, &mut report);
                }
            }
        }
        report.more = self.claims.keys().any(|claim| self.is_dead(claim));
        let with_claims: BTreeSet<WorkerId> = self.claims.keys().map(|(worker, _)| *worker).collect();
        for (id, worker) in &mut self.workers {
            if worker.lease.status == WorkerStatus::Dead && !with_claims.contains(id) {
                worker.lease.status = WorkerStatus::Gone;
            }
        }
        report
    }

    /// Whether a claim is one of a dead worker.
    fn is_dead(&self, (worker, _): &(WorkerId, ClaimNo)) -> bool {
        self.workers.get(worker).is_some_and(|worker| worker.lease.status == WorkerStatus::Dead)
    }

    fn return_job(
        &mut self,
        now: Time,
        id: JobId,
        worker: WorkerId,
        claim: &Claim,
        max_crashes: u16,
        report: &mut ReapReport,
    ) {
        let (row, death) = (self.row(id), lost(worker, claim.solo));
        let (epoch, deaths, crashes) = (row.epoch, row.worker_deaths, row.solo_crashes);
        self.add_attempt(id, worker, epoch, claim.claimed_at, now, &death);
        match after_death(deaths, crashes, claim.solo, max_crashes) {
            AfterDeath::Suspect { worker_deaths, solo_crashes } => {
                self.next_state(id, Event::Reap);
                let row = self.row_mut(id);
                (row.worker_deaths, row.solo_crashes, row.suspect) = (worker_deaths, solo_crashes, true);
                row.epoch.0 += 1;
                self.enter(id);
                report.returned += 1;
            }
            AfterDeath::Poison { worker_deaths, solo_crashes } => {
                let row = self.row_mut(id);
                (row.worker_deaths, row.solo_crashes) = (worker_deaths, solo_crashes);
                let unwind = Unwind { reason: Some(Reason::Poison), failure: death };
                self.end_or_unwind(id, Event::Poison, unwind, now);
                report.poisoned += 1;
            }
        }
    }
}
