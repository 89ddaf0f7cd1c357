//! The page of `/metrics`: the counters of the worker, how full its pools are, and how many jobs wait in the store.

use std::{collections::BTreeMap, sync::Arc};

use windlass_model::State;
use windlass_store::Backlog;

use super::{
    exposition::Exposition,
    handle::ObservedWorker,
    metrics::{Metrics, OutcomeLabel, StoreCall},
    sampler::StoreSample,
};
use crate::pool::QueuePool;

/// The most queues and rate limits of the store that are shown: a store may have any number. Queues that this worker
/// serves are always shown.
const MAX_SHOWN: usize = 100;

/// Writes the page of a worker, if one has started, and of its store. No sample means that the store did not answer.
pub(crate) fn page(worker: Option<&ObservedWorker>, sample: Option<&StoreSample>) -> String {
    let mut page = Exposition::default();
    if let Some(worker) = worker {
        identity(&mut page, worker);
        counters(&mut page, worker);
        histograms(&mut page, &worker.metrics);
        pools(&mut page, &worker.pools);
    }
    store(&mut page, worker.map_or(&[], |worker| &worker.pools), sample);
    page.text()
}

fn identity(page: &mut Exposition, worker: &ObservedWorker) {
    let held = u8::from(worker.is_healthy());
    page.single("lease_held", "gauge", "Whether this worker runs and its lease is known to hold.", held);
    let Some(core) = worker.core.upgrade() else { return };
    let id = core.worker().to_string();
    let labels =
        [("worker", id.as_str()), ("name", &core.config.name), ("version", env!("CARGO_PKG_VERSION"))];
    let help = "Jobs to release that the store has not taken back yet.";
    page.single("releases_waiting", "gauge", help, core.releaser.waiting());
    page.family("worker_info", "gauge", "Always 1; the labels identify this worker.").sample(&labels, 1);
}

fn counters(page: &mut Exposition, worker: &ObservedWorker) {
    // The number of lost slots can fall, so it is no counter; it is shown by queue.
    for (name, help, count) in worker.stats.counts().each().filter(|(name, ..)| *name != "lost_slots") {
        page.single(&format!("{name}_total"), "counter", help, count);
    }
    page.family("outcomes_total", "counter", "Attempts that ended, by kind and outcome.");
    for (name, kind) in worker.metrics.kinds() {
        for outcome in OutcomeLabel::ALL {
            page.sample(&[("kind", name), ("outcome", outcome.as_str())], kind.outcomes(outcome));
        }
    }
    page.family("store_errors_total", "counter", "Calls that the store did not answer, by operation.");
    for call in StoreCall::ALL {
        page.sample(&[("verb", call.as_str())], worker.metrics.errors(call));
    }
}

fn histograms(page: &mut Exposition, metrics: &Metrics) {
    page.family("commit_batch_size", "histogram", "Changes per commit.")
        .histogram(&[], &metrics.commit_batch_size);
    let help = "The duration of commits that the store answered.";
    page.family("commit_seconds", "histogram", help).histogram(&[], &metrics.commit_seconds);
    let help = "The duration of claims that the store answered.";
    page.family("claim_seconds", "histogram", help).histogram(&[], &metrics.claim_seconds);
    page.family("attempt_seconds", "histogram", "How long attempts ran, by kind.");
    for (name, kind) in metrics.kinds() {
        page.histogram(&[("kind", name)], &kind.seconds);
    }
}

fn pools(page: &mut Exposition, pools: &[Arc<QueuePool>]) {
    let help = "How long jobs had been due when they were claimed, by queue.";
    page.family("queue_wait_seconds", "histogram", help);
    for pool in pools {
        page.histogram(&[("queue", &pool.queue)], &pool.queue_wait);
    }
    let mut gauge = |name: &str, help: &str, value: fn(&QueuePool) -> usize| {
        page.family(name, "gauge", help);
        for pool in pools {
            page.sample(&[("queue", &pool.queue)], value(pool));
        }
    };
    gauge("slots", "Attempts that may run at once.", |pool| pool.config.slots);
    gauge("slots_running", "Slots that run an attempt.", |pool| pool.running());
    gauge("slots_lost", "Slots whose attempt blocks its thread past its timeout.", |pool| pool.lost_slots());
    gauge("buffered", "Claimed jobs that wait for a slot.", |pool| pool.buffered());
}

fn store(page: &mut Exposition, pools: &[Arc<QueuePool>], sample: Option<&StoreSample>) {
    let help = "Whether the store answered when it was last read; if not, its metrics are left out.";
    page.single("store_up", "gauge", help, u8::from(sample.is_some()));
    let Some(sample) = sample else { return };
    queues(page, pools, sample);
    flow_control(page, sample);
}

fn queues(page: &mut Exposition, pools: &[Arc<QueuePool>], sample: &StoreSample) {
    let nothing = Backlog::default();
    let mut queues: BTreeMap<&str, &Backlog> =
        pools.iter().map(|pool| (pool.queue.as_str(), &nothing)).collect();
    for backlog in &sample.queues {
        if queues.contains_key(backlog.queue.as_str()) || queues.len() < MAX_SHOWN {
            queues.insert(&backlog.queue, backlog);
        }
    }
    let help = "Jobs by queue and state, each counted up to 10,000.";
    page.family("jobs", "gauge", help);
    for (queue, backlog) in &queues {
        for (state, jobs) in [
            (State::Scheduled, backlog.scheduled),
            (State::Ready, backlog.ready),
            (State::Running, backlog.running),
        ] {
            page.sample(&[("queue", queue), ("state", &state.to_string())], jobs);
        }
    }
    let help = "How long the first ready job of each queue has been due; 0 if there is none.";
    page.family("oldest_ready_seconds", "gauge", help);
    for (queue, backlog) in &queues {
        let wait = backlog.oldest_at.map(|at| sample.now - at).unwrap_or_default();
        page.sample(&[("queue", queue)], wait.as_secs_f64());
    }
}

fn flow_control(page: &mut Exposition, sample: &StoreSample) {
    let (keys, waiting) = sample
        .serials
        .iter()
        .filter(|key| key.waiting > 0)
        .fold((0, 0), |sum, key| (sum.0 + 1, sum.1 + key.waiting));
    let help = "Serial keys that jobs wait for, of the first 100 in use.";
    page.single("serial_keys_contended", "gauge", help, keys);
    page.single("serial_waiting", "gauge", "Jobs that wait for those keys.", waiting);
    page.family("limit_waiting", "gauge", "Jobs that wait for a rate limit, up to 10,000.");
    for limit in sample.limits.iter().take(MAX_SHOWN) {
        page.sample(&[("limit", &limit.limit.name)], limit.waiting);
    }
    page.family("limit_tokens", "gauge", "Tokens in the bucket of a rate limit.");
    for limit in sample.limits.iter().take(MAX_SHOWN) {
        page.sample(&[("limit", &limit.limit.name)], limit.tokens);
    }
}
