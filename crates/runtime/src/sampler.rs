//! Looking at the store for those who watch: seldom, through a connection of its own, and never for long.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinHandle};
use windlass_model::Time;
use windlass_store::{Backlog, Error, LimitView, SerialView, Store};

/// How long what was seen is shown: however many scrape, the store is asked six times a minute.
const FRESH: Duration = Duration::from_secs(10);
/// How long a look may take before the store counts as away; the look goes on, and the next scrape waits for the same.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many jobs are counted at most, per queue and state: some milliseconds of work for the database.
const CAP: u64 = 10_000;
/// How many serial keys are looked at.
const KEYS: usize = 100;

/// What was seen.
pub(crate) struct StoreSample {
    /// The store's clock.
    pub(crate) now: Time,
    pub(crate) queues: Vec<Backlog>,
    /// Serial keys that are held or waited for, as far as they are looked at.
    pub(crate) serials: Vec<SerialView>,
    pub(crate) limits: Vec<LimitView>,
}

type SampleTask = JoinHandle<Option<StoreSample>>;

pub(crate) struct StoreSampler {
    store: Arc<dyn Store>,
    /// The same store through connections of its own, once a look has opened it: the worker must not wait for a look.
    own: Arc<Mutex<Option<Arc<dyn Store>>>>,
    last: tokio::sync::Mutex<Last>,
}

#[derive(Default)]
struct Last {
    seen: Option<(Instant, Option<Arc<StoreSample>>)>,
    /// The look that is under way; there is never a second.
    running: Option<SampleTask>,
}

impl StoreSampler {
    pub(crate) fn new(store: Arc<dyn Store>) -> StoreSampler {
        StoreSampler { store, own: Arc::default(), last: Default::default() }
    }

    /// What there is to see, at most ten seconds old; `None` if the store does not answer.
    pub(crate) async fn view(&self) -> Option<Arc<StoreSample>> {
        // Others wait here, for no longer than one look may take.
        let mut last = self.last.lock().await;
        if let Some((at, view)) = &last.seen
            && at.elapsed() < FRESH
        {
            return view.clone();
        }
        let mut look = last.running.take().unwrap_or_else(|| self.spawn_sample());
        let view = match tokio::time::timeout(PATIENCE, &mut look).await {
            Ok(seen) => seen.ok().flatten().map(Arc::new),
            Err(_) => {
                last.running = Some(look);
                None
            }
        };
        last.seen = Some((Instant::now(), view.clone()));
        view
    }

    /// Begins a look, on a thread where it may block: a read of a file cannot be waited for otherwise.
    fn spawn_sample(&self) -> SampleTask {
        let (store, own, runtime) = (Arc::clone(&self.store), Arc::clone(&self.own), Handle::current());
        tokio::task::spawn_blocking(move || {
            let opened = own.lock().unwrap_or_else(|e| e.into_inner()).clone();
            let seen = runtime.block_on(async {
                let store = match opened {
                    Some(store) => store,
                    None => store.sibling().await?,
                };
                let inspect = store.inspect();
                let view = StoreSample {
                    queues: inspect.backlog(CAP).await?,
                    serials: inspect.serial_keys(None, KEYS).await?,
                    limits: inspect.rate_limits().await?,
                    now: inspect.clock().await?,
                };
                Ok::<_, Error>((store, view))
            });
            let (opened, view) = match seen {
                Ok((store, view)) => (Some(store), Some(view)),
                Err(error) => {
                    tracing::debug!(%error, "the store cannot be looked at");
                    (None, None)
                }
            };
            *own.lock().unwrap_or_else(|e| e.into_inner()) = opened;
            view
        })
    }
}
