//! The page of `/metrics`: what the worker counts, how full it is, and what was seen in the store.

use std::{collections::BTreeMap, sync::Arc};

use windlass_model::State;
use windlass_store::Backlog;

use crate::{
    exposition::Exposition,
    metrics::{Ending, Metrics, Verb},
    pool::QueuePool,
    sampler::StoreSample,
    telemetry::Watched,
};

/// How many queues of the store are shown at most, those served here first: there may be any number.
const QUEUES: usize = 100;

/// Writes the page of a worker, if one has started, and of its store; no view means that the store did not answer.
pub(crate) fn page(worker: Option<&Watched>, view: Option<&StoreSample>) -> String {
    let mut page = Exposition::default();
    if let Some(worker) = worker {
        name(&mut page, worker);
        counters(&mut page, worker);
        spreads(&mut page, &worker.metrics);
        pools(&mut page, &worker.pools);
    }
    store(&mut page, worker.map_or(&[], |worker| &worker.pools), view);
    page.text()
}

fn name(page: &mut Exposition, worker: &Watched) {
    let held = u8::from(worker.is_healthy());
    page.single("lease_held", "gauge", "Whether this worker works and its lease is known to hold.", held);
    let Some(core) = worker.core.upgrade() else { return };
    let id = core.worker().to_string();
    let labels =
        [("worker", id.as_str()), ("name", &core.config.name), ("version", env!("CARGO_PKG_VERSION"))];
    let help = "Jobs that are to be handed back and that the store has not taken back yet.";
    page.single("releases_waiting", "gauge", help, core.releaser.waiting());
    page.family("worker_info", "gauge", "Always 1; the labels say who this worker is.").sample(&labels, 1);
}

fn counters(page: &mut Exposition, worker: &Watched) {
    // How many slots are lost goes up and down; it is shown by queue.
    for (name, help, count) in worker.stats.counts().each().filter(|(name, ..)| *name != "lost_slots") {
        page.single(&format!("{name}_total"), "counter", help, count);
    }
    page.family("outcomes_total", "counter", "How attempts ended, by kind.");
    for (name, kind) in worker.metrics.kinds() {
        for ending in Ending::ALL {
            page.sample(&[("kind", name), ("outcome", ending.word())], kind.ended(ending));
        }
    }
    page.family("store_errors_total", "counter", "Calls that the store did not answer, by verb.");
    for verb in Verb::ALL {
        page.sample(&[("verb", verb.word())], worker.metrics.failures(verb));
    }
}

fn spreads(page: &mut Exposition, metrics: &Metrics) {
    page.family("commit_batch_size", "histogram", "Changes per commit.").histogram(&[], &metrics.commit_size);
    let help = "How long commits took that the store answered.";
    page.family("commit_seconds", "histogram", help).histogram(&[], &metrics.commit_seconds);
    let help = "How long claims took that the store answered.";
    page.family("claim_seconds", "histogram", help).histogram(&[], &metrics.claim_seconds);
    page.family("attempt_seconds", "histogram", "How long attempts ran, by kind.");
    for (name, kind) in metrics.kinds() {
        page.histogram(&[("kind", name)], &kind.seconds);
    }
}

fn pools(page: &mut Exposition, pools: &[Arc<QueuePool>]) {
    let help = "How long jobs that were claimed here had been due, by queue.";
    page.family("queue_wait_seconds", "histogram", help);
    for pool in pools {
        page.histogram(&[("queue", &pool.queue)], &pool.waits);
    }
    let mut gauge = |name: &str, help: &str, value: fn(&QueuePool) -> usize| {
        page.family(name, "gauge", help);
        for pool in pools {
            page.sample(&[("queue", &pool.queue)], value(pool));
        }
    };
    gauge("slots", "Attempts that may run at once.", |pool| pool.config.slots);
    gauge("slots_running", "Slots with an attempt in them.", |pool| pool.running());
    gauge("slots_lost", "Slots whose attempt blocks its thread past its timeout.", |pool| pool.lost());
    gauge("buffered", "Jobs claimed that wait for a slot.", |pool| pool.buffered());
}

fn store(page: &mut Exposition, pools: &[Arc<QueuePool>], view: Option<&StoreSample>) {
    let help = "Whether the store answered when it was last looked at; without it, what follows is left out.";
    page.single("store_up", "gauge", help, u8::from(view.is_some()));
    let Some(view) = view else { return };
    let nothing = Backlog::default();
    let mut queues: BTreeMap<&str, &Backlog> =
        pools.iter().map(|pool| (pool.queue.as_str(), &nothing)).collect();
    for backlog in &view.queues {
        if queues.contains_key(backlog.queue.as_str()) || queues.len() < QUEUES {
            queues.insert(&backlog.queue, backlog);
        }
    }
    let help = "Jobs by queue and state, as far as they are counted: 10,000 each.";
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
    let help = "How long the first in line of each queue has been due; 0 if none waits.";
    page.family("oldest_ready_seconds", "gauge", help);
    for (queue, backlog) in &queues {
        let waits = backlog.oldest_at.map(|at| view.now.since(at)).unwrap_or_default();
        page.sample(&[("queue", queue)], waits.as_secs_f64());
    }
    let (keys, waiting) = view
        .serials
        .iter()
        .filter(|key| key.waiting > 0)
        .fold((0, 0), |sum, key| (sum.0 + 1, sum.1 + key.waiting));
    let help = "Serial keys with jobs in line, of the first 100 that are in use.";
    page.single("serial_keys_contended", "gauge", help, keys);
    page.single("serial_waiting", "gauge", "Jobs in line for those keys.", waiting);
    page.family("limit_waiting", "gauge", "Jobs that wait for a rate limit, up to 10,000.");
    for limit in view.limits.iter().take(QUEUES) {
        page.sample(&[("limit", &limit.limit.name)], limit.waiting);
    }
    page.family("limit_tokens", "gauge", "Tokens in the bucket of a rate limit.");
    for limit in view.limits.iter().take(QUEUES) {
        page.sample(&[("limit", &limit.limit.name)], limit.tokens);
    }
}
