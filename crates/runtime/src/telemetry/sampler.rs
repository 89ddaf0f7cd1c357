//! Reads from the store, for the metrics page, how many jobs wait: seldom, through its own connection, and never for long.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use windlass_env::{Env, JoinHandle};
use windlass_model::Time;
use windlass_store::{Backlog, Error, LimitView, SerialView, Store};

use crate::sync::lock;

/// How long a sample is shown: however many clients scrape, the store is read six times a minute.
const MAX_AGE: Duration = Duration::from_secs(10);
/// How long a scrape waits for a sample before the store counts as unavailable. The read continues, and the next scrape
/// waits for the same one.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The most jobs that are counted per queue and state: some milliseconds of work for the database.
const MAX_COUNT: u64 = 10_000;
/// The most serial keys that are read.
const MAX_KEYS: usize = 100;

/// What was read from the store.
pub(crate) struct StoreSample {
    /// The store's clock.
    pub(crate) now: Time,
    pub(crate) queues: Vec<Backlog>,
    /// Serial keys that are held or waited for, up to `MAX_KEYS`.
    pub(crate) serials: Vec<SerialView>,
    pub(crate) limits: Vec<LimitView>,
}

type SampleTask = JoinHandle<Option<StoreSample>>;

pub(crate) struct StoreSampler {
    env: Env,
    store: Arc<dyn Store>,
    /// The same store through connections of its own, once a read has opened it: the worker must not wait for a sample.
    own_store: Arc<Mutex<Option<Arc<dyn Store>>>>,
    last: tokio::sync::Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// The last sample and its time; the sample is `None` if the store did not answer.
    sample: Option<(Instant, Option<Arc<StoreSample>>)>,
    /// The read that is in progress; there is never a second.
    running: Option<SampleTask>,
}

impl StoreSampler {
    pub(crate) fn new(env: Env, store: Arc<dyn Store>) -> StoreSampler {
        StoreSampler { env, store, own_store: Arc::default(), last: Default::default() }
    }

    /// A sample that is at most ten seconds old; `None` if the store does not answer.
    pub(crate) async fn sample(&self) -> Option<Arc<StoreSample>> {
        // Other scrapes wait here, for one timeout at most.
        let mut last = self.last.lock().await;
        if let Some((at, sample)) = &last.sample
            && self.env.since(*at) < MAX_AGE
        {
            return sample.clone();
        }
        let mut task = last.running.take().unwrap_or_else(|| self.spawn_read());
        let sample = match self.env.timeout(TIMEOUT, &mut task).await {
            Ok(sample) => sample.ok().flatten().map(Arc::new),
            Err(_) => {
                last.running = Some(task);
                None
            }
        };
        last.sample = Some((self.env.instant(), sample.clone()));
        sample
    }

    /// Starts a read on a thread that may block: reading a file has no other way to time out.
    fn spawn_read(&self) -> SampleTask {
        let (store, own_store) = (Arc::clone(&self.store), Arc::clone(&self.own_store));
        let runtime = self.env.runtime();
        self.env.spawn_blocking(move || {
            let opened = lock(&own_store).clone();
            let read = runtime.block_on(async {
                let store = match opened {
                    Some(store) => store,
                    None => store.sibling().await?,
                };
                let inspect = store.inspect();
                let queues = match inspect.backlog(MAX_COUNT).await {
                    // The store of a server, whose own metrics have all this; the clock shows that it answers.
                    Err(Error::Misuse(_)) => {
                        let (queues, serials, limits) = Default::default();
                        let sample = StoreSample { queues, serials, limits, now: inspect.clock().await? };
                        return Ok((store, sample));
                    }
                    queues => queues?,
                };
                let sample = StoreSample {
                    queues,
                    serials: inspect.serial_keys(None, MAX_KEYS).await?,
                    limits: inspect.rate_limits().await?,
                    now: inspect.clock().await?,
                };
                Ok::<_, Error>((store, sample))
            });
            let (opened, sample) = match read {
                Ok((store, sample)) => (Some(store), Some(sample)),
                Err(error) => {
                    tracing::debug!(%error, "the store cannot be read for the metrics");
                    (None, None)
                }
            };
            *lock(&own_store) = opened;
            sample
        })
    }
}
