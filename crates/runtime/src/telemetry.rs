//! An engine as those who watch it see it.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use windlass_store::Store;

use crate::{
    Counts, Stats, Worker, metrics::Metrics, page::page, pool::QueuePool, sampler::StoreSampler,
    scrape::Server, worker::Core,
};

/// What is seen of an engine from outside: the numbers of the worker that started last, and the store.
pub struct Telemetry {
    store: Arc<dyn Store>,
    sampler: StoreSampler,
    /// The worker that started last.
    worker: Mutex<Option<Watched>>,
    /// They end with this.
    servers: Mutex<Vec<Server>>,
}

/// What is seen of a worker. Its numbers stay when it has stopped; the worker itself, and with it the handlers and all
/// that they hold, is not kept.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) core: Weak<Core>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pools: Vec<Arc<QueuePool>>,
}

impl Watched {
    /// Whether it works and its lease is known to hold.
    pub(crate) fn is_healthy(&self) -> bool {
        self.core.upgrade().is_some_and(|core| core.is_healthy())
    }
}

impl Telemetry {
    /// No worker yet.
    pub fn new(store: Arc<dyn Store>) -> Arc<Telemetry> {
        let lookout = StoreSampler::new(Arc::clone(&store));
        Arc::new(Telemetry { store, sampler: lookout, worker: Mutex::default(), servers: Mutex::default() })
    }

    /// From now on, the numbers are those of this worker.
    pub fn attach(&self, worker: &Worker) {
        let core = worker.core();
        *self.lock() = Some(Watched {
            core: Arc::downgrade(core),
            stats: Arc::clone(&core.stats),
            metrics: Arc::clone(&core.metrics),
            pools: core.pools.clone(),
        });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Watched>> {
        self.worker.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What the worker has done.
    pub fn counts(&self) -> Counts {
        self.lock().as_ref().map(|worker| worker.stats.counts()).unwrap_or_default()
    }

    /// Whether a worker works and its lease is known to hold.
    pub fn is_healthy(&self) -> bool {
        self.lock().as_ref().is_some_and(Watched::is_healthy)
    }

    /// All metrics, in the text format of Prometheus. A store that does not answer is waited for two seconds, and
    /// what it would have told is left out.
    pub async fn metrics(&self) -> String {
        self.page(&self.sampler).await
    }

    /// Serves `/metrics` and `/healthz` at `addr` (`HOST:PORT`) for as long as anybody holds this. Answers where that
    /// is: port 0 takes any that is free.
    pub fn serve(self: &Arc<Self>, addr: &str) -> io::Result<SocketAddr> {
        let (server, bound) = Server::start(addr, self)?;
        self.servers.lock().unwrap_or_else(|e| e.into_inner()).push(server);
        Ok(bound)
    }

    /// One more way to look at the store.
    pub(crate) fn sampler(&self) -> StoreSampler {
        StoreSampler::new(Arc::clone(&self.store))
    }

    pub(crate) async fn page(&self, lookout: &StoreSampler) -> String {
        let view = lookout.view().await;
        let worker = self.lock().clone();
        page(worker.as_ref(), view.as_deref())
    }
}
