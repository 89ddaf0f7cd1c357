//! Callers that wait for a job to end: notified at once if the job ends in this process, and otherwise by a poll of the
//! store that all of them share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use windlass_env::Env;
use windlass_model::JobId;
use windlass_store::{Error, JobEnd, Store};

use crate::sync::lock;

/// The shortest and the longest interval between two polls: one read for all jobs that are waited for, and none while
/// nobody waits.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_millis(500);
/// How often a loop that nobody waits for checks whether the engine is gone.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);

/// All callers of this process that wait for jobs.
pub struct Waiters {
    env: Env,
    store: Arc<dyn Store>,
    waiting: Mutex<HashMap<JobId, Vec<oneshot::Sender<JobEnd>>>>,
    /// Notified when a caller begins to wait.
    added: Arc<Notify>,
}

impl Waiters {
    /// Without callers. [`Waiters::run`] must run for jobs that end in other processes.
    pub fn new(env: Env, store: Arc<dyn Store>) -> Arc<Waiters> {
        Arc::new(Waiters { env, store, waiting: Mutex::default(), added: Arc::default() })
    }

    /// Polls the store while callers wait, for as long as something else holds `self`.
    pub async fn run(self: Arc<Waiters>) {
        let (weak, env) = (Arc::downgrade(&self), self.env.clone());
        drop(self);
        let mut wait = MIN_INTERVAL;
        loop {
            let Some(waiters) = weak.upgrade() else { return };
            if !waiters.remove_closed() {
                wait = MIN_INTERVAL;
                // Holds nothing meanwhile, so that an engine that is dropped closes its connections.
                let added = Arc::clone(&waiters.added);
                drop(waiters);
                tokio::select! {
                    () = added.notified() => {}
                    () = env.sleep(IDLE_INTERVAL) => {}
                }
                continue;
            }
            env.sleep(wait).await;
            wait = if waiters.tick().await { MIN_INTERVAL } else { (wait * 2).min(MAX_INTERVAL) };
        }
    }

    /// One poll; returns whether any job had ended.
    async fn tick(&self) -> bool {
        let ids: Vec<JobId> = lock(&self.waiting).keys().copied().collect();
        let Ok(ends) = self.store.job_ends(&ids).await else { return false };
        let mut any = false;
        for (id, end) in ids.into_iter().zip(ends) {
            if let Some(end) = end {
                self.notify(id, &end);
                any = true;
            }
        }
        any
    }

    /// Waits for a job to end.
    pub async fn wait_for_end(&self, id: JobId) -> Result<JobEnd, Error> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).entry(id).or_default().push(sender);
        // Read after the caller was added, so that an end in between is either notified or read.
        if let Ok(mut ends) = self.store.job_ends(&[id]).await
            && let Some(Some(end)) = ends.pop()
        {
            self.remove_closed_of(id);
            return Ok(end);
        }
        self.added.notify_one();
        receiver.await.map_err(|_| Error::Unavailable("the engine has stopped".into()))
    }

    /// Whether a caller waits for this job.
    pub(crate) fn contains(&self, id: JobId) -> bool {
        lock(&self.waiting).contains_key(&id)
    }

    /// Passes the end of a job to all callers that wait for it.
    pub(crate) fn notify(&self, id: JobId, end: &JobEnd) {
        for sender in lock(&self.waiting).remove(&id).unwrap_or_default() {
            let _ = sender.send(end.clone());
        }
    }

    /// Removes callers that have given up; returns whether any is left.
    fn remove_closed(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|_, senders| senders.iter().any(|sender| !sender.is_closed()));
        !waiting.is_empty()
    }

    /// Removes callers of one job that have given up.
    fn remove_closed_of(&self, id: JobId) {
        let mut waiting = lock(&self.waiting);
        if let Some(senders) = waiting.get_mut(&id) {
            senders.retain(|sender| !sender.is_closed());
            if senders.is_empty() {
                waiting.remove(&id);
            }
        }
    }
}
