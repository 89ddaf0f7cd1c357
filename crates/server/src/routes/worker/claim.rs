//! Claiming jobs, releasing them, and waiting for gates.

use std::collections::{BTreeMap, HashSet};

use tokio::time::Instant;
use windlass::{
    model::{ClaimNo, ClaimedJob, JobClaim, JobId, WorkerId},
    store::{CANCEL_GATE, ClaimBatch, ClaimRequest, TIMER_GATE},
};
use windlass_remote::protocol::{
    MAX_BATCH, MAX_CLAIM, MAX_CLAIM_BYTES, MAX_NAMED, MAX_QUEUES,
    calls::{Claim, ClaimAnswer, Gates, GatesAnswer, Release, ReleaseClaims, Released},
};

use super::{super::Route, check_count, lifecycle::settled, route};
use crate::{call::Call, error::Error, worker::Existence};

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("/worker/v1/claim", "workerClaim", "Claim jobs, and wait for some if there are none", claim),
        route("/worker/v1/release", "workerRelease", "Release jobs that were not started", release),
        route(
            "/worker/v1/release-claims",
            "workerReleaseClaims",
            "Release all jobs of claims whose answers were lost",
            release_claims,
        ),
        route("/worker/v1/gates", "workerGates", "The versions of gates; waits until one changes", gates),
    ]
}

async fn claim(call: Call, request: Claim) -> Result<ClaimAnswer, Error> {
    let Claim { worker, number, queue, kinds, limit, wait_ms, settled: up_to, settled_claims, solo, only } =
        request;
    check_count("kinds", kinds.len(), MAX_NAMED)?;
    kinds.iter().try_for_each(|kind| call.principal.check_new_job(&kind.kind, &queue))?;
    call.check_worker(worker).await?;
    let now = call.now()?;
    let mut request = ClaimRequest {
        worker,
        number,
        queue,
        kinds: kinds.into_iter().map(Into::into).collect(),
        limit: limit.min(MAX_CLAIM),
        solo,
        only,
        settled: settled(&call, worker, up_to, settled_claims).await?,
    };
    let Some(wait) = wait_ms.map(|wait| wait.0).filter(|wait| !wait.is_zero()) else {
        let batch = call.store().claim(now, &request).await?;
        call.workers().claims.forget(worker, &request.settled);
        return answer(&call, &request, batch).await;
    };
    let (until, _permit) = call.wait_until(wait)?;
    let queues = [request.queue.clone()];
    let mut watching = call.workers().gates.watch();
    loop {
        // Read before the claim that it guards.
        let gates = call.workers().gates.read(&queues).await?;
        let batch = call.store().claim(now, &request).await?;
        call.workers().claims.forget(worker, &std::mem::take(&mut request.settled));
        let refill = batch.refill_at.map(|at| Instant::now() + (at - batch.now));
        if !batch.jobs.is_empty() || batch.suspects || batch.more || Instant::now() >= until {
            return answer(&call, &request, batch).await;
        }
        let wait_until = refill.map_or(until, |refill| refill.min(until));
        tokio::select! {
            _ = call.workers().gates.wait(&mut watching, &queues, &gates, wait_until) => {}
            // Nothing is claimed any more for a client that has gone, or while the server stops.
            () = call.abandoned() => return answer(&call, &request, batch).await,
        }
    }
}

/// Notes what was claimed. If it is more than an answer may have, releases the rest.
async fn answer(call: &Call, request: &ClaimRequest, batch: ClaimBatch) -> Result<ClaimAnswer, Error> {
    let ClaimBatch { mut jobs, mut more, suspects, refill_at, now } = batch;
    let kept = fitting(&jobs);
    let surplus = jobs.split_off(kept);
    if !surplus.is_empty() {
        let released: Vec<JobClaim> = surplus.iter().map(|job| job_claim(request.worker, job)).collect();
        call.store().release(call.now()?, &released).await?;
        more = true;
    }
    call.workers().claims.note(request.worker, request.number, &jobs);
    let jobs = jobs.into_iter().map(Into::into).collect();
    Ok(ClaimAnswer { jobs, more, suspects, refill_at, now })
}

/// How many of these jobs fit an answer: at least one.
fn fitting(jobs: &[ClaimedJob]) -> usize {
    let mut bytes = 0;
    let fits = |job: &&ClaimedJob| {
        let data = job.data.as_ref().map_or(0, |data| data.bytes.len());
        let inbox = job.inbox.iter().map(|signal| signal.payload.bytes.len()).sum::<usize>();
        bytes += job.input.bytes.len() + data + inbox;
        bytes <= MAX_CLAIM_BYTES
    };
    jobs.iter().take_while(fits).count().max(jobs.len().min(1))
}

fn job_claim(worker: WorkerId, job: &ClaimedJob) -> JobClaim {
    JobClaim { worker, claim: job.claim, job: job.id, epoch: job.epoch }
}

async fn release(call: Call, request: Release) -> Result<Released, Error> {
    let Release { worker, jobs } = request;
    check_count("jobs", jobs.len(), MAX_BATCH)?;
    if call.workers().check(&call.principal, worker).await? == Existence::Unknown {
        return Ok(Released { released: 0 });
    }
    // A job is released only if the claim that is named has it.
    let mut read: BTreeMap<ClaimNo, HashSet<JobId>> = BTreeMap::new();
    let mut own = Vec::with_capacity(jobs.len());
    for held in jobs {
        let is_known = call.workers().claims.get(worker, held.claim, held.job, held.epoch).is_some();
        if !is_known && !read.contains_key(&held.claim) {
            let claimed = call.store().claimed_jobs(worker, held.claim).await?;
            read.insert(held.claim, claimed.iter().map(|job| job.id).collect());
        }
        if is_known || read.get(&held.claim).is_some_and(|jobs| jobs.contains(&held.job)) {
            own.push(JobClaim { worker, claim: held.claim, job: held.job, epoch: held.epoch });
        }
    }
    let released = call.store().release(call.now()?, &own).await?;
    own.iter().for_each(|held| call.workers().claims.note_left(worker, held.claim, held.job, held.epoch));
    call.workers().gates.poke();
    Ok(Released { released })
}

async fn release_claims(call: Call, request: ReleaseClaims) -> Result<Released, Error> {
    let ReleaseClaims { worker, numbers } = request;
    check_count("claims", numbers.len(), MAX_BATCH)?;
    if call.workers().check(&call.principal, worker).await? == Existence::Unknown {
        return Ok(Released { released: 0 });
    }
    let released = call.store().release_claims(call.now()?, worker, &numbers).await?;
    call.workers().claims.forget(worker, &numbers);
    call.workers().gates.poke();
    Ok(Released { released })
}

async fn gates(call: Call, request: Gates) -> Result<GatesAnswer, Error> {
    let Gates { queues, known, wait_ms } = request;
    check_count("queues", queues.len(), MAX_QUEUES)?;
    for queue in queues.iter().filter(|queue| *queue != TIMER_GATE && *queue != CANCEL_GATE) {
        call.check_gate(queue)?;
    }
    let mut watching = call.workers().gates.watch();
    let mut versions = call.workers().gates.read(&queues).await?;
    let text = |versions: &[u64]| versions.iter().map(u64::to_string).collect::<Vec<String>>();
    let wait = wait_ms.map(|wait| wait.0).filter(|wait| !wait.is_zero());
    if let (Some(wait), Some(known)) = (wait, known)
        && !queues.is_empty()
        && known == text(&versions)
    {
        let (until, _permit) = call.wait_until(wait)?;
        tokio::select! {
            now = call.workers().gates.wait(&mut watching, &queues, &versions, until) => versions = now,
            () = call.abandoned() => {}
        }
    }
    Ok(GatesAnswer { gates: text(&versions) })
}
