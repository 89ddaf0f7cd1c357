//! Claims jobs for the pool of one queue.
//!
//! A claim is made when something says that the queue has changed, while claims come back full, and at every check
//! interval.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_model::{ClaimedJob, JobId, KindVersion};
use windlass_store::{ClaimBatch, ClaimRequest, Error};

use crate::{
    StepWriter,
    backoff::Backoff,
    core::Core,
    pool::{Job, MAX_BUFFER_AGE, QueuePool},
    releaser::ClaimGuard,
    telemetry::{StoreCall, add},
};

/// The longest wait for the refill of a rate limit; a later one is found at the check interval.
const MAX_REFILL_WAIT: Duration = Duration::from_secs(3_600);

/// Runs until the worker stops. `index` is that of the pool among the worker's pools.
pub(crate) async fn run(core: Arc<Core>, pool: Arc<QueuePool>, index: usize) {
    // The regular claims of the queues are spread evenly over the interval, so that an idle worker has no peaks.
    let first = core.config.check_interval.mul_f64((index as f64 + 0.5) / core.pools.len() as f64);
    let mut check_at = core.env.instant() + first;
    loop {
        let changed = pool.changed.notified();
        match pool.next_claim_size() {
            Some(limit) => tick(&core, &pool, limit).await,
            None => tokio::select! {
                () = changed => {}
                () = core.env.sleep(MAX_BUFFER_AGE), if pool.has_buffered() => drop(pool.take_surplus()),
                () = sleep_until(&core, pool.refill_at()) => pool.on_refill(),
                () = core.env.sleep_until(check_at) => {
                    check_at = core.env.instant() + core.config.check_interval;
                    pool.wake();
                }
                () = core.stopping() => return,
            },
        }
        if core.is_stopping() {
            return;
        }
    }
}

async fn sleep_until(core: &Core, at: Option<Instant>) {
    match at {
        Some(at) => core.env.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Makes one claim and passes its jobs to the pool.
pub(crate) async fn tick(core: &Arc<Core>, pool: &Arc<QueuePool>, limit: usize) {
    if let Some((batch, jobs)) = claim(core, pool, Claim::Ready { limit }).await {
        if batch.suspects {
            core.suspects_changed.notify_one();
        }
        if !jobs.is_empty() {
            core.gatekeeper.note_activity();
        }
        let refill_at = batch.refill_at.map(|at| core.env.instant() + (at - batch.now).min(MAX_REFILL_WAIT));
        pool.set_claim_result(batch.more, refill_at);
        pool.accept(core, jobs);
    }
}

/// What to claim.
pub(crate) enum Claim {
    /// Ready jobs of the pool's kinds, by rank.
    Ready { limit: usize },
    /// A suspect, to run alone.
    Suspect,
    /// This job, whatever ranks before it.
    Job { job: JobId, kind: KindVersion },
}

/// Makes a claim for a pool. The call is repeated under its number until the store answers; `None` if
/// this worker stops or is declared dead meanwhile.
pub(crate) async fn claim(
    core: &Arc<Core>,
    pool: &Arc<QueuePool>,
    claim: Claim,
) -> Option<(ClaimBatch, Vec<Job>)> {
    let number = core.ledger.next_number();
    let worker = core.worker();
    let settled = core.ledger.take_settled();
    let request = ClaimRequest {
        worker,
        number,
        queue: pool.queue.clone(),
        kinds: Arc::clone(&pool.kinds),
        limit: 1,
        solo: false,
        only: None,
        settled,
    };
    let request = match claim {
        Claim::Ready { limit } => ClaimRequest { limit, ..request },
        Claim::Suspect => ClaimRequest { solo: true, ..request },
        Claim::Job { job, kind } => ClaimRequest { only: Some(job), kinds: [kind].into(), ..request },
    };
    let mut backoff = Backoff::new(&core.env, "claiming");
    loop {
        let started = core.env.instant();
        match core.store.claim(None, &request).await {
            Ok(mut batch) => {
                backoff.reset();
                core.metrics.claim_seconds.record_duration(core.env.since(started));
                pool.queue_wait.record_durations(batch.jobs.iter().map(|job| batch.now - job.due_at));
                add(&core.stats.claims, 1);
                add(&core.stats.claimed, batch.jobs.len());
                core.ledger.open(number, batch.jobs.len());
                let jobs = jobs_of(core, &mut batch, &request);
                return Some((batch, jobs));
            }
            Err(Error::Dead) => {
                core.ledger.open(number, 0);
                core.on_declared_dead(worker, &*core.store).await;
                return None;
            }
            Err(error) => {
                core.metrics.count_error(StoreCall::Claim);
                // The store may have recorded the claim. It is repeated under its number until it is answered, or the
                // worker retires, which releases all jobs that are claimed for it.
                backoff.wait(&error).await;
                if core.is_stopping() {
                    core.ledger.put_back_settled(request.settled);
                    return None;
                }
            }
        }
    }
}

/// Takes the jobs out of the answer to a claim.
fn jobs_of(core: &Core, batch: &mut ClaimBatch, request: &ClaimRequest) -> Vec<Job> {
    let (received, claimed_at) = (core.env.instant(), batch.now);
    let clock_offset = StepWriter::clock_offset(claimed_at, core.env.now());
    core.waiters.hold(batch.jobs.iter().map(|job| job.id));
    let job = |claimed: ClaimedJob| {
        let left = claimed.deadline_at.map(|at| at - claimed_at);
        Job {
            claim: ClaimGuard::new(core, &claimed, request.number, request.worker),
            claimed: Arc::new(claimed),
            expires_at: left.and_then(|left| received.checked_add(left)),
            claimed_at,
            clock_offset,
            unchanged_steps: 0,
            started_at: None,
            cancel: Arc::default(),
        }
    };
    std::mem::take(&mut batch.jobs).into_iter().map(job).collect()
}
