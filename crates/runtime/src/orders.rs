//! Telling attempts to end: what people asked for reaches the attempt, and is enforced if it does not listen.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_model::JobId;
use windlass_store::{Act, By, Error, Order};

use crate::{retrying::Backoff, worker::Core};

/// What one attempt was told.
#[derive(Default)]
pub(crate) struct Told {
    order: OnceLock<(Instant, By)>,
    changed: Notify,
}

impl Told {
    /// Tells the attempt that someone wants it to end by then.
    fn tell(&self, deadline: Instant, by: By) {
        if self.order.set((deadline, by)).is_ok() {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn is_told(&self) -> bool {
        self.order.get().is_some()
    }

    /// Who wants it to end.
    pub(crate) fn by(&self) -> Option<&By> {
        self.order.get().map(|(_, by)| by)
    }

    /// Returns when the attempt is told to end.
    pub(crate) async fn told(&self) {
        let changed = self.changed.notified();
        if !self.is_told() {
            changed.await;
        }
    }

    /// Returns when the attempt was told to end and its time for it is over.
    pub(crate) async fn over(&self) {
        self.told().await;
        if let Some((deadline, _)) = self.order.get() {
            tokio::time::sleep_until((*deadline).into()).await;
        }
    }
}

impl Core {
    /// Ends a job that stopped between two steps because someone wants it to end: there is no attempt left to tell. If
    /// this fails, its timer sees to it.
    pub(crate) async fn end_told(&self, job: JobId) {
        let ended = async {
            let orders = self.store.orders(self.worker()).await?;
            let Some(order) = orders.into_iter().find(|order| order.job == job) else { return Ok(()) };
            let act = Act::Cancel { grace: Duration::ZERO };
            self.store.control().act(None, &[job], act, &order.by).await?;
            Ok::<(), Error>(())
        };
        if let Err(error) = ended.await {
            tracing::debug!(%error, %job, "a job that was told to end could not be ended yet");
        }
    }
}

/// Runs until the worker stops: looks when something said that there may be orders.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new("reading orders");
    loop {
        tokio::select! {
            () = core.orders.notified() => {}
            () = core.stopped() => return,
        }
        tick(&core, &mut backoff).await;
    }
}

/// One look; tells the attempts that run here.
async fn tick(core: &Core, backoff: &mut Backoff) {
    let orders = match core.store.orders(core.worker()).await {
        Ok(orders) => orders,
        Err(error) => {
            backoff.wait(&error).await;
            core.orders.notify_one();
            return;
        }
    };
    backoff.reset();
    if orders.is_empty() {
        return;
    }
    let now = match core.store.inspect().clock().await {
        Ok(now) => now,
        Err(_) => core.config.env.now(),
    };
    let mut missing = false;
    for Order { job, epoch, deadline_at, by } in orders {
        let left = deadline_at.since(now);
        let attempt =
            core.attempts().into_iter().find(|attempt| attempt.job.id == job && attempt.job.epoch == epoch);
        match attempt {
            Some(attempt) => {
                if !attempt.told.is_told() {
                    tracing::info!(%job, by = by.author, "the attempt is told to end");
                    attempt.told.tell(Instant::now() + left.min(Duration::from_secs(86_400 * 365)), by);
                }
            }
            // It waits for a slot here, and is told when it starts; otherwise it is over, and its timer sees to the rest.
            None => missing |= !left.is_zero() && core.pools.iter().any(|pool| pool.holds(job, epoch)),
        }
    }
    if missing {
        tokio::time::sleep(Duration::from_millis(100)).await;
        core.orders.notify_one();
    }
}
