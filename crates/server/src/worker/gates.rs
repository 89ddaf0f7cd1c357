//! Waits for a change of a gate: one poller for all workers that wait, which reads all of their gates with one small read.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use windlass::store::{self, Store};

use super::lock;

/// The pause between two reads after a gate has moved.
const SHORTEST: Duration = Duration::from_millis(10);
/// The pause between two reads while nothing moves, which is what a job may have to wait.
const LONGEST: Duration = Duration::from_millis(200);

/// The gates of the queues that workers wait for.
pub(crate) struct GateWatch {
    shared: Arc<Shared>,
    stopping: watch::Receiver<bool>,
}

struct Shared {
    store: Arc<dyn Store>,
    /// How many wait for each gate.
    wanted: Mutex<BTreeMap<String, usize>>,
    /// Whether the poller runs.
    polls: Mutex<bool>,
    /// Notified when the gates must be read soon.
    changed: Notify,
    /// The versions of the last read.
    versions: watch::Sender<Arc<HashMap<String, u64>>>,
}

/// A receiver of the versions: it changes whenever the poller reads a new one.
pub(crate) struct Watching(watch::Receiver<Arc<HashMap<String, u64>>>);

/// Counts one that waits.
struct Waiting {
    shared: Arc<Shared>,
    queues: Vec<String>,
}

impl GateWatch {
    pub(super) fn new(store: Arc<dyn Store>, stopping: watch::Receiver<bool>) -> GateWatch {
        let versions = watch::channel(Arc::default()).0;
        let (wanted, polls, changed) = Default::default();
        GateWatch { shared: Arc::new(Shared { store, wanted, polls, changed, versions }), stopping }
    }

    /// Notes that jobs may have become ready by something that this server did.
    pub(crate) fn poke(&self) {
        self.shared.changed.notify_one();
    }

    /// Reads gates now.
    pub(crate) async fn read(&self, queues: &[String]) -> Result<Vec<u64>, store::Error> {
        self.shared.store.gates(queues).await
    }

    /// Begins to watch: a change after this is not missed by [`GateWatch::wait`].
    pub(crate) fn watch(&self) -> Watching {
        Watching(self.shared.versions.subscribe())
    }

    /// Waits until one of these gates has another version than is known, or `until`. Returns the versions then. The known ones were read after
    /// `watching` began.
    pub(crate) async fn wait(
        &self,
        watching: &mut Watching,
        queues: &[String],
        known: &[u64],
        until: Instant,
    ) -> Vec<u64> {
        let _waiting = Waiting::new(&self.shared, queues);
        self.poll();
        while let Ok(Ok(())) = tokio::time::timeout_at(until, watching.0.changed()).await {
            let read = watching.0.borrow_and_update();
            let version = |(queue, known): (&String, &u64)| read.get(queue).copied().unwrap_or(*known);
            let now: Vec<u64> = queues.iter().zip(known).map(version).collect();
            if now != known {
                return now;
            }
        }
        known.to_vec()
    }

    /// Starts the poller, unless it runs.
    fn poll(&self) {
        let mut polls = lock(&self.shared.polls);
        if !*polls {
            *polls = true;
            tokio::spawn(poll(Arc::clone(&self.shared), self.stopping.clone()));
        }
        drop(polls);
        self.shared.changed.notify_one();
    }
}

impl Waiting {
    fn new(shared: &Arc<Shared>, queues: &[String]) -> Waiting {
        let mut wanted = lock(&shared.wanted);
        for queue in queues {
            *wanted.entry(queue.clone()).or_default() += 1;
        }
        Waiting { shared: Arc::clone(shared), queues: queues.to_vec() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut wanted = lock(&self.shared.wanted);
        for queue in &self.queues {
            if let Some(count) = wanted.get_mut(queue) {
                *count -= 1;
                if *count == 0 {
                    wanted.remove(queue);
                }
            }
        }
    }
}

/// Reads the gates while somebody waits for one.
async fn poll(shared: Arc<Shared>, mut stopping: watch::Receiver<bool>) {
    let mut pause = SHORTEST;
    loop {
        let queues: Vec<String> = {
            // Under the lock of the flag, so that nobody begins to wait between the two and finds it set.
            let mut polls = lock(&shared.polls);
            let queues: Vec<String> = lock(&shared.wanted).keys().cloned().collect();
            *polls = !queues.is_empty() && !*stopping.borrow();
            if !*polls {
                return;
            }
            queues
        };
        match shared.store.gates(&queues).await {
            Ok(read) => {
                let read: HashMap<String, u64> = queues.into_iter().zip(read).collect();
                let moved = shared.versions.send_if_modified(|versions| {
                    let moved = **versions != read;
                    *versions = Arc::new(read);
                    moved
                });
                pause = if moved { SHORTEST } else { (pause * 2).min(LONGEST) };
            }
            Err(error) => {
                tracing::debug!(%error, "the gates cannot be read; workers that wait are answered when their time is over");
                pause = LONGEST;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = async { shared.changed.notified().await; tokio::time::sleep(SHORTEST).await } => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass::{
        Engine,
        model::{JobId, NewJob, Payload},
    };

    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    async fn submit(engine: &Engine, number: u32, queue: &str) {
        let job = NewJob::new(JobId::from_parts(1, number, 1), "k", queue, Payload::json(b"1".to_vec()));
        assert!(engine.store().submit(None, &[job], None).await.expect("submitted")[0].is_inserted());
    }

    #[tokio::test]
    async fn a_wait_ends_when_one_of_its_gates_moves_and_the_poller_ends_with_the_last_wait() {
        let engine = Engine::open("memory:").await.expect("an engine");
        let (_stop, stopping) = watch::channel(false);
        let gates = Arc::new(GateWatch::new(Arc::clone(engine.store()), stopping));
        let queues = ["a".to_owned(), "b".to_owned()];
        let mut watching = gates.watch();
        let known = gates.read(&queues).await.expect("read");
        let wait = {
            let (gates, queues, known) = (Arc::clone(&gates), queues.clone(), known.clone());
            tokio::spawn(async move { gates.wait(&mut watching, &queues, &known, far()).await })
        };
        submit(&engine, 1, "other").await;
        submit(&engine, 2, "b").await;
        let now = wait.await.expect("it ends");
        assert_eq!(now[0], known[0]);
        assert_ne!(now[1], known[1]);
        while *lock(&gates.shared.polls) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(lock(&gates.shared.wanted).is_empty());
        let mut watching = gates.watch();
        assert_eq!(gates.wait(&mut watching, &queues, &now, Instant::now()).await, now, "no time to wait");
        submit(&engine, 3, "a").await;
        assert_ne!(
            gates.wait(&mut watching, &queues, &now, far()).await,
            now,
            "it moved before the wait began"
        );
    }
}
