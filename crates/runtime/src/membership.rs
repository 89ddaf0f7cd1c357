//! A worker's registration in the store, and what the worker does when the store no longer knows it or its claims.

use std::sync::Arc;

use windlass_model::{ClaimNo, WorkerId};
use windlass_store::{Error, NewWorker, Serves, Store};

use crate::{
    backoff::Backoff,
    core::Core,
    liveness::LivenessFile,
    pool::QueuePool,
    sync::lock,
    telemetry::{StoreCall, add},
};

impl Core {
    /// Registers this worker in the store under a new id, with a new liveness file.
    pub(crate) async fn register(&self, store: &dyn Store) -> Result<(), Error> {
        loop {
            let id = self.ids.worker();
            let file = store.liveness_dir().and_then(|dir| match LivenessFile::create(&dir, id) {
                Ok(file) => Some(file),
                Err(error) => {
                    tracing::debug!(%error, "no liveness file: others will notice this worker's death by its lease alone");
                    None
                }
            });
            let started = self.env.instant();
            let serves = |pool: &Arc<QueuePool>| Serves {
                queue: pool.queue.clone(),
                slots: pool.config.slots,
                kinds: pool.kinds.to_vec(),
            };
            let worker = NewWorker {
                id,
                name: self.config.name.clone(),
                liveness_file: file.as_ref().map(|file| file.path().display().to_string()),
                lease: self.config.lease,
                serves: self.pools.iter().map(serves).collect(),
                token: None,
            };
            if store.register_worker(None, &worker).await? {
                *lock(&self.liveness_file) = file;
                // Before the id is set, so that no claim is made under an id that counts as void.
                self.aborts.set_registered(id);
                self.set_worker(id);
                self.set_lease(started + self.config.lease);
                return Ok(());
            }
        }
    }

    /// Handles that the store has declared this worker dead: drops everything that it held, since all of it is fenced, and
    /// registers again under a new id.
    pub(crate) async fn on_declared_dead(&self, worker: WorkerId, store: &dyn Store) {
        // Several loops may notice it, some of them late, when the worker already has its next id: one of them acts.
        if !self.aborts.unset_registered(worker) {
            return;
        }
        tracing::error!(%worker, "this worker was declared dead because it did not renew in time; everything it held is fenced");
        self.clear_lease();
        self.ledger.clear();
        self.releaser.clear();
        for pool in self.all_pools() {
            add(&self.stats.fenced, pool.take_buffered(false).len());
        }
        let mut backoff = Backoff::new(&self.env, "registering the worker");
        while !self.is_stopping() {
            match self.register(store).await {
                Ok(()) => break,
                Err(error) => {
                    self.metrics.count_error(StoreCall::Register);
                    backoff.wait(&error).await;
                }
            }
        }
        self.wake_pools();
    }

    /// Handles that the store does not know claims that it had answered: it was restored from a backup, or is a standby that
    /// lagged. Other workers may have the jobs, and whatever attempts here write is fenced, so the attempts are given up.
    pub(crate) fn on_claims_lost(&self, claims: &[ClaimNo]) {
        tracing::error!(
            claims = claims.len(),
            "the store has lost claims of this worker; the attempts under them are given up"
        );
        // First, so that jobs that are dropped below are not released: another worker may have claimed them.
        self.aborts.add_lost(claims);
        for pool in self.all_pools() {
            add(&self.stats.fenced, pool.remove_claims(claims));
        }
    }

    /// Reports to the store that a claim no longer runs alone, and returns when the store has confirmed it.
    pub(crate) async fn end_solo(&self, number: ClaimNo) {
        self.ledger.end_solo(number);
        while self.ledger.is_unconfirmed(number) {
            let renewed = self.renewed.notified();
            let mut renewed = std::pin::pin!(renewed);
            renewed.as_mut().enable();
            self.renew_now.notify_one();
            tokio::select! {
                () = renewed => {}
                () = self.stopping() => return,
            }
        }
    }
}
