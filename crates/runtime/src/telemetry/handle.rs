//! The telemetry of an engine: the counters of its worker, its health, and the server for `/metrics`.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, Weak},
};

use windlass_env::Env;
use windlass_store::Store;

use super::{Counts, Metrics, Stats, page::page, sampler::StoreSampler, scrape::Server};
use crate::{Worker, core::Core, pool::QueuePool, sync::lock};

/// The telemetry of an engine: of the worker that it started last, and of its store.
pub struct Telemetry {
    env: Env,
    store: Arc<dyn Store>,
    sampler: StoreSampler,
    /// The worker that started last.
    worker: Mutex<Option<ObservedWorker>>,
    /// They stop when this is dropped.
    servers: Mutex<Vec<Server>>,
}

/// The numbers of a worker, which outlive it. The worker itself, and with it the handlers and what they hold, is not kept
/// alive.
#[derive(Clone)]
pub(crate) struct ObservedWorker {
    pub(crate) core: Weak<Core>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pools: Vec<Arc<QueuePool>>,
}

impl ObservedWorker {
    /// Whether it runs and its lease is known to hold.
    pub(crate) fn is_healthy(&self) -> bool {
        self.core.upgrade().is_some_and(|core| core.is_healthy())
    }
}

impl Telemetry {
    /// Telemetry without a worker yet.
    pub fn new(env: Env, store: Arc<dyn Store>) -> Arc<Telemetry> {
        let sampler = StoreSampler::new(env.clone(), Arc::clone(&store));
        Arc::new(Telemetry { env, store, sampler, worker: Mutex::default(), servers: Mutex::default() })
    }

    /// Shows the numbers of this worker from now on.
    pub fn attach(&self, worker: &Worker) {
        let core = worker.core();
        *lock(&self.worker) = Some(ObservedWorker {
            core: Arc::downgrade(core),
            stats: Arc::clone(&core.stats),
            metrics: Arc::clone(&core.metrics),
            pools: core.pools.clone(),
        });
    }

    /// The counters of the worker.
    pub fn counts(&self) -> Counts {
        lock(&self.worker).as_ref().map(|worker| worker.stats.counts()).unwrap_or_default()
    }

    /// Whether a worker runs and its lease is known to hold.
    pub fn is_healthy(&self) -> bool {
        lock(&self.worker).as_ref().is_some_and(ObservedWorker::is_healthy)
    }

    /// All metrics, in the text format of Prometheus. If the store does not answer within two seconds, its metrics are left
    /// out.
    pub async fn metrics(&self) -> String {
        self.page(&self.sampler).await
    }

    /// Serves `/metrics` and `/healthz` at `addr` (`HOST:PORT`) until this is dropped. Returns the address, since port 0 takes
    /// a free port.
    pub fn serve(self: &Arc<Self>, addr: &str) -> io::Result<SocketAddr> {
        let (server, bound) = Server::start(addr, self)?;
        lock(&self.servers).push(server);
        Ok(bound)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Another sampler of the same store.
    pub(crate) fn new_sampler(&self) -> StoreSampler {
        StoreSampler::new(self.env.clone(), Arc::clone(&self.store))
    }

    pub(crate) async fn page(&self, sampler: &StoreSampler) -> String {
        let sample = sampler.sample().await;
        let worker = lock(&self.worker).clone();
        page(worker.as_ref(), sample.as_deref())
    }
}
