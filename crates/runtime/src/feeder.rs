//! Claiming for one queue: when something said that it changed, while claims come back full, and now and then.

use std::{sync::Arc, time::Instant};

use windlass_model::ClaimedJob;
use windlass_store::{ClaimBatch, ClaimRequest, Error};

use crate::{
    StepWriter,
    metrics::Verb,
    pool::{Job, MAX_BUFFER_AGE, QueuePool},
    releaser::Claim,
    retrying::Backoff,
    stats::add,
    worker::Core,
};

/// Runs until the worker stops. `place` says which of the worker's pools this is.
pub(crate) async fn run(core: Arc<Core>, pool: Arc<QueuePool>, place: usize) {
    // Not all queues at once: an idle worker's statements are spread evenly over the interval.
    let first = core.config.safety.mul_f64((place as f64 + 0.5) / core.pools.len() as f64);
    let mut safety = tokio::time::interval_at(tokio::time::Instant::now() + first, core.config.safety);
    safety.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let feed = pool.feed.notified();
        match pool.wanted() {
            Some(limit) => tick(&core, &pool, limit).await,
            None => tokio::select! {
                () = feed => {}
                () = tokio::time::sleep(MAX_BUFFER_AGE), if pool.waits() => drop(pool.surplus()),
                () = until(pool.refill()) => pool.refilled(),
                _ = safety.tick() => pool.wake(),
                () = core.stopping() => return,
            },
        }
        if core.is_stopping() {
            return;
        }
    }
}

/// Further away than this is looked for at the safety interval.
const FAR: std::time::Duration = std::time::Duration::from_secs(3_600);

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// One claim, repeated under its number until it is answered.
pub(crate) async fn tick(core: &Arc<Core>, pool: &Arc<QueuePool>, limit: usize) {
    let haul = claim(core, pool, limit, false).await;
    if let Some((haul, jobs)) = haul {
        if haul.suspects {
            core.suspects.notify_one();
        }
        if !jobs.is_empty() {
            core.gatekeeper.active();
        }
        let refill = haul.refill_at.map(|at| Instant::now() + at.since(haul.now).min(FAR));
        pool.set_more(haul.more, refill);
        pool.accept(core, jobs);
    }
}

/// Claims until answered; `None` if this worker stops or was declared dead meanwhile.
pub(crate) async fn claim(
    core: &Arc<Core>,
    pool: &Arc<QueuePool>,
    limit: usize,
    alone: bool,
) -> Option<(ClaimBatch, Vec<Job>)> {
    let number = core.ledger.number();
    let worker = core.worker();
    let settled = core.ledger.take_settled();
    let ask = ClaimRequest {
        worker,
        number,
        queue: pool.queue.clone(),
        kinds: Arc::clone(&pool.kinds),
        limit,
        solo: alone,
        settled,
    };
    let mut backoff = Backoff::new("claiming");
    loop {
        let asked = Instant::now();
        match core.store.claim(None, &ask).await {
            Ok(mut haul) => {
                backoff.reset();
                core.metrics.claim_seconds.note_span(asked.elapsed());
                pool.waits.note_spans(haul.jobs.iter().map(|job| haul.now.since(job.due_at)));
                add(&core.stats.claims, 1);
                add(&core.stats.claimed, haul.jobs.len());
                core.ledger.open(number, haul.jobs.len());
                let (claimed_at, now) = (Instant::now(), haul.now);
                let offset = StepWriter::offset(now, core.config.env.now());
                let job = |claimed: ClaimedJob| {
                    let left = claimed.deadline_at.map(|at| at.since(now));
                    let expires = left.and_then(|left| claimed_at.checked_add(left));
                    Job {
                        claim: Claim::new(core, &claimed, number, worker),
                        claimed: Arc::new(claimed),
                        expires,
                        now,
                        offset,
                        steps_before_yield: 0,
                        cancel: Arc::default(),
                    }
                };
                let jobs = std::mem::take(&mut haul.jobs).into_iter().map(job).collect();
                return Some((haul, jobs));
            }
            Err(Error::Dead) => {
                core.ledger.open(number, 0);
                core.declared_dead(worker, &*core.store).await;
                return None;
            }
            Err(error) => {
                core.metrics.failed(Verb::Claim);
                // The claim may have been recorded: it is repeated under its number until the answer comes, or
                // the worker retires and hands back what it does not know of.
                backoff.wait(&error).await;
                if core.is_stopping() {
                    core.ledger.put_back_settled(ask.settled);
                    return None;
                }
            }
        }
    }
}
