//! Callers that wait for a job to end: told at once when it ends here, found by a shared look when elsewhere.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use windlass_model::JobId;
use windlass_store::{Error, JobEnd, Store};

/// How soon, and at the longest how late, the store is asked about jobs that are waited for: one read for all of
/// them, none when nobody waits.
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_millis(500);

/// All who wait, in this process.
pub struct Waiters {
    store: Arc<dyn Store>,
    waiting: Mutex<HashMap<JobId, Vec<oneshot::Sender<JobEnd>>>>,
    came: Arc<Notify>,
}

impl Waiters {
    /// Nobody yet.
    pub fn new(store: Arc<dyn Store>) -> Arc<Waiters> {
        Arc::new(Waiters { store, waiting: Mutex::default(), came: Arc::default() })
    }

    /// Waits for a job to end.
    pub async fn ended(&self, id: JobId) -> Result<JobEnd, Error> {
        let (told, tell) = oneshot::channel();
        self.lock().entry(id).or_default().push(told);
        // Looked at after it is on the list: an end in between is told or seen.
        if let Ok(mut ended) = self.store.job_ends(&[id]).await
            && let Some(Some(ended)) = ended.pop()
        {
            self.forget(id);
            return Ok(ended);
        }
        self.came.notify_one();
        tell.await.map_err(|_| Error::Unavailable("the engine has stopped".into()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, Vec<oneshot::Sender<JobEnd>>>> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Drops those who gave up.
    fn forget(&self, id: JobId) {
        let mut waiting = self.lock();
        if let Some(told) = waiting.get_mut(&id) {
            told.retain(|told| !told.is_closed());
            if told.is_empty() {
                waiting.remove(&id);
            }
        }
    }

    /// Whether anybody waits for this job.
    pub(crate) fn wants(&self, id: JobId) -> bool {
        self.lock().contains_key(&id)
    }

    /// Tells all who wait for a job how it ended.
    pub(crate) fn notify(&self, id: JobId, ended: &JobEnd) {
        for told in self.lock().remove(&id).unwrap_or_default() {
            let _ = told.send(ended.clone());
        }
    }

    /// Looks at the store for those who wait, for as long as anybody holds this.
    pub async fn run(self: Arc<Waiters>) {
        let me = Arc::downgrade(&self);
        drop(self);
        let mut wait = SOONEST;
        loop {
            let Some(waiters) = me.upgrade() else { return };
            let ids: Vec<JobId> = {
                let mut waiting = waiters.lock();
                waiting.retain(|_, told| told.iter().any(|told| !told.is_closed()));
                waiting.keys().copied().collect()
            };
            if ids.is_empty() {
                wait = SOONEST;
                // Nothing is held meanwhile: an engine that is dropped takes its connections with it.
                let came = Arc::clone(&waiters.came);
                drop(waiters);
                tokio::select! {
                    () = came.notified() => {}
                    () = tokio::time::sleep(Duration::from_secs(5)) => {}
                }
                continue;
            }
            drop(ids);
            tokio::time::sleep(wait).await;
            wait = if waiters.tick().await { SOONEST } else { (wait * 2).min(LATEST) };
        }
    }

    /// One look; answers whether anything had ended.
    async fn tick(&self) -> bool {
        let ids: Vec<JobId> = self.lock().keys().copied().collect();
        let Ok(answers) = self.store.job_ends(&ids).await else { return false };
        let mut any = false;
        for (id, ended) in ids.into_iter().zip(answers) {
            if let Some(ended) = ended {
                self.notify(id, &ended);
                any = true;
            }
        }
        any
    }
}
