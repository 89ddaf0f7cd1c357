//! The verbs of a worker, as calls.

use std::{sync::atomic::Ordering, time::Duration};

use windlass_model::{
    Change, ClaimNo, ClaimedJob, CommitOutcome, JobClaim, JobId, NewJob, NewSignal, SubmitOutcome, WorkerId,
};
use windlass_store::{
    CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Error, Execution, Fut, JobEnd, NewWorker, Now,
    RenewRequest, Renewal, SignalOutcome, TIMER_GATE, Work,
};

use super::{LEAST_PATIENCE, RemoteStore, test_time};
use crate::protocol::{MAX_BATCH, MAX_NAMED, calls, change, code};

/// What a change has in a request besides its payloads: names, numbers and times.
const CHANGE_BYTES: usize = 512;

impl RemoteStore {
    async fn send_commit(&self, now: Now, changes: &[Change]) -> Result<Vec<CommitOutcome>, Error> {
        let mut outcomes = Vec::with_capacity(changes.len());
        for part in self.parts(changes) {
            let Some(first) = part.first() else { continue };
            let of = |change: &Change| change::Change {
                worker: Some(change.worker).filter(|worker| *worker != first.worker),
                ..change::Change::of(change.clone())
            };
            let request = calls::Commit { worker: first.worker, changes: part.iter().map(of).collect() };
            let answer = self.call(test_time(now), &request).await?;
            check_count("commit", part.len(), answer.outcomes.len())?;
            outcomes.extend(answer.outcomes.into_iter().map(CommitOutcome::from));
        }
        Ok(outcomes)
    }

    /// Cuts a batch into parts that a request may have. Each change is applied or refused on its own, so a batch that is sent in parts
    /// has the same outcomes.
    fn parts<'a>(&self, changes: &'a [Change]) -> Vec<&'a [Change]> {
        let most = self.info.body_limit / 2;
        let (mut parts, mut begin, mut bytes) = (Vec::new(), 0, 0);
        for (index, change) in changes.iter().enumerate() {
            // Bytes that are no JSON take a third more.
            let size = change.bytes() / 3 * 4 + CHANGE_BYTES * (1 + change.submitted_jobs().count());
            if index > begin && (bytes + size > most || index - begin == MAX_BATCH) {
                parts.push(&changes[begin..index]);
                (begin, bytes) = (index, 0);
            }
            bytes += size;
        }
        parts.push(&changes[begin..]);
        parts
    }

    async fn send_claim(&self, now: Now, request: &ClaimRequest) -> Result<ClaimBatch, Error> {
        let call = calls::Claim {
            worker: request.worker,
            number: request.number,
            queue: request.queue.clone(),
            kinds: request.kinds.iter().cloned().map(Into::into).collect(),
            limit: request.limit,
            wait_ms: None,
            settled: None,
            settled_claims: request.settled.clone(),
            solo: request.solo,
            only: request.only,
        };
        let answer = self.call(test_time(now), &call).await?;
        let jobs: Result<Vec<ClaimedJob>, _> = answer.jobs.into_iter().map(TryInto::try_into).collect();
        Ok(ClaimBatch {
            // Released as a claim whose answer was lost: the renewal finds it.
            jobs: jobs.map_err(|why| Error::Fault(format!("the answer to a claim is wrong: {why}")))?,
            more: answer.more,
            suspects: answer.suspects,
            refill_at: answer.refill_at,
            now: answer.now,
        })
    }

    pub(super) async fn send_renewal(&self, now: Now, request: &RenewRequest) -> Result<Renewal, Error> {
        let progress = request.progress.as_ref();
        let call = calls::Renew {
            worker: request.worker,
            lease_ms: calls::millis(request.lease),
            settled: None,
            settled_claims: request.settled.clone(),
            solo_ended: request.solo_ended.clone(),
            progress: progress.map(|reports| reports.iter().cloned().map(Into::into).collect()),
        };
        // A renewal that hangs leaves time for others.
        let patience = self.patience.min((request.lease / 4).max(LEAST_PATIENCE));
        let answer = self.call_within(patience, test_time(now), &call).await?;
        Ok(match answer.held {
            true => Renewal::Held { lapsed: answer.lapsed, claims: answer.claims },
            false => Renewal::Lost,
        })
    }

    async fn send_registration(&self, now: Now, worker: &NewWorker) -> Result<bool, Error> {
        let call = calls::Register {
            worker: Some(worker.id),
            name: worker.name.clone(),
            lease_ms: calls::millis(worker.lease),
            serves: worker.serves.iter().cloned().map(Into::into).collect(),
        };
        match self.try_call(test_time(now), &call).await {
            Ok(_) => {
                self.registered.store(worker.id.0, Ordering::Release);
                Ok(true)
            }
            Err(refusal) if refusal.code == code::WORKER_TAKEN => Ok(false),
            Err(refusal) => Err(refusal.error),
        }
    }

    async fn send_submit(
        &self,
        now: Now,
        jobs: &[NewJob],
        claim: Option<ClaimOnSubmit>,
    ) -> Result<Vec<SubmitOutcome>, Error> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let claim = claim.map(|ClaimOnSubmit { worker, number }| calls::ClaimAtSubmit { worker, number });
        let call = calls::Submit { jobs: jobs.iter().cloned().map(Into::into).collect(), claim };
        let answer = self.call(test_time(now), &call).await?;
        check_count("submit", jobs.len(), answer.outcomes.len())?;
        Ok(answer.outcomes.into_iter().map(Into::into).collect())
    }

    async fn send_signals(&self, now: Now, signals: &[NewSignal]) -> Result<Vec<SignalOutcome>, Error> {
        if signals.is_empty() {
            return Ok(Vec::new());
        }
        let call = calls::Deliver { signals: signals.iter().cloned().map(Into::into).collect() };
        let answer = self.call(test_time(now), &call).await?;
        check_count("signal", signals.len(), answer.outcomes.len())?;
        Ok(answer.outcomes.into_iter().map(Into::into).collect())
    }

    /// Releases jobs. Those of one worker are one call.
    async fn send_release(&self, now: Now, jobs: &[JobClaim]) -> Result<usize, Error> {
        let mut released = 0;
        for part in jobs.chunk_by(|a, b| a.worker == b.worker).flat_map(|part| part.chunks(MAX_BATCH)) {
            let Some(first) = part.first() else { continue };
            let held = |job: &JobClaim| calls::Held { job: job.job, epoch: job.epoch, claim: job.claim };
            let call = calls::Release { worker: first.worker, jobs: part.iter().map(held).collect() };
            released += self.call(test_time(now), &call).await?.released;
        }
        Ok(released)
    }

    async fn read_ends(&self, ids: &[JobId]) -> Result<Vec<Option<JobEnd>>, Error> {
        let mut ends: Vec<Option<JobEnd>> = Vec::with_capacity(ids.len());
        // An answer has the ends of the first jobs, as many as fit into it.
        while let Some(rest) = ids.get(ends.len()..).filter(|rest| !rest.is_empty()) {
            let part = &rest[..rest.len().min(MAX_NAMED)];
            let answer = self.call(None, &calls::Ends { jobs: part.to_vec() }).await?;
            if answer.ends.is_empty() || answer.ends.len() > part.len() {
                let (found, wanted) = (answer.ends.len(), part.len());
                return Err(Error::Fault(format!("the answer to ends has {found} ends of {wanted} jobs")));
            }
            ends.extend(answer.ends.into_iter().map(|end| end.map(JobEnd::from)));
        }
        Ok(ends)
    }

    async fn read_gates(&self, queues: &[String]) -> Result<Vec<u64>, Error> {
        let call = calls::Gates { queues: queues.to_vec(), known: None, wait_ms: None };
        let answer = self.call(None, &call).await?;
        check_count("gates", queues.len(), answer.gates.len())?;
        Ok(answer.gates.iter().map(|text| version(text)).collect())
    }

    /// Waits at the server. The gate of timers, which are the server's own work, is not waited for: it counts as unchanged.
    async fn read_changed_gates(
        &self,
        queues: &[String],
        known: &[u64],
        wait: Duration,
    ) -> Result<Vec<u64>, Error> {
        let awaited = |&index: &usize| queues[index] != TIMER_GATE;
        let awaited: Vec<usize> = (0..queues.len().min(known.len())).filter(awaited).collect();
        let call = calls::Gates {
            queues: awaited.iter().map(|index| queues[*index].clone()).collect(),
            known: Some(awaited.iter().map(|index| known[*index].to_string()).collect()),
            wait_ms: Some(calls::millis(wait)),
        };
        let answer = match self.try_call(None, &call).await {
            // Too many wait there: the gates are read all the same, as often as those of a store that cannot wait.
            Err(refusal) if refusal.code == code::UNAVAILABLE => {
                self.call(None, &calls::Gates { known: None, wait_ms: None, ..call }).await?
            }
            answer => answer?,
        };
        check_count("gates", awaited.len(), answer.gates.len())?;
        let mut versions = known.to_vec();
        awaited.iter().zip(&answer.gates).for_each(|(index, text)| versions[*index] = version(text));
        Ok(versions)
    }
}

/// The number that stands for the version of a gate. Another server might write it in another way; what matters is whether it changes.
fn version(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, hash)
    })
}

/// Checks that an answer has as many parts as its request.
fn check_count(call: &str, wanted: usize, found: usize) -> Result<(), Error> {
    match wanted == found {
        true => Ok(()),
        false => Err(Error::Fault(format!("the answer to {call} has {found} outcomes for {wanted} parts"))),
    }
}

/// The error of what a worker of a server cannot do.
pub(super) fn no_transactions(what: &str) -> Error {
    Error::Misuse(format!(
        "{what} needs the store's database, and this worker runs through a server, without access to it; run this kind in a worker with \
         the address of the database"
    ))
}

impl Execution for RemoteStore {
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        Box::pin(self.send_registration(now, worker))
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        claim_on_submit: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        Box::pin(self.send_submit(now, jobs, claim_on_submit))
    }

    fn claim<'a>(&'a self, now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(self.send_claim(now, request))
    }

    /// An error: only servers ask for it.
    fn claimed_jobs(&self, _worker: WorkerId, _number: ClaimNo) -> Fut<'_, Vec<ClaimedJob>> {
        super::unavailable::refuse("the jobs of a claim")
    }

    /// An error: only servers ask for it.
    fn claims_with_jobs<'a>(&'a self, _worker: WorkerId, _numbers: &'a [ClaimNo]) -> Fut<'a, Vec<ClaimNo>> {
        super::unavailable::refuse("the jobs of claims")
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<CommitOutcome>> {
        Box::pin(self.send_commit(now, changes))
    }

    fn transact<'a>(&'a self, _now: Now, _work: Work<'a>) -> Fut<'a, Option<CommitOutcome>> {
        Box::pin(std::future::ready(Err(no_transactions("a transaction"))))
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        Box::pin(self.send_signals(now, signals))
    }

    fn release<'a>(&'a self, now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        Box::pin(self.send_release(now, jobs))
    }

    fn release_claims<'a>(&'a self, now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        Box::pin(async move {
            let call = calls::ReleaseClaims { worker, numbers: numbers.to_vec() };
            Ok(self.call(test_time(now), &call).await?.released)
        })
    }

    fn retire_worker<'a>(&'a self, now: Now, worker: WorkerId) -> Fut<'a, usize> {
        Box::pin(async move { Ok(self.call(test_time(now), &calls::Retire { worker }).await?.released) })
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        Box::pin(async move {
            let answer = self.call(None, &calls::Cancels { worker }).await?;
            Ok(answer.cancels.into_iter().map(Into::into).collect())
        })
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        Box::pin(self.read_gates(queues))
    }

    fn wait_for_gates<'a>(
        &'a self,
        queues: &'a [String],
        known: &'a [u64],
        wait: Duration,
    ) -> Fut<'a, Vec<u64>> {
        Box::pin(self.read_changed_gates(queues, known, wait))
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        Box::pin(self.read_ends(ids))
    }
}
