//! Telling attempts to end: what people asked for reaches the attempt, and is enforced if it does not listen.
//!
//! An order may be read before its attempt has started: the claim's answer is on its way, or the job waits for a slot or
//! for its seat. It is kept then, and every attempt looks for one as it starts.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_model::{ClaimNo, Epoch, JobId};
use windlass_store::{Actor, CancelRequest, Error, JobAction};

use crate::{Attempt, ledger::Ledger, retrying::Backoff, worker::Core};

/// Orders for attempts of this worker.
#[derive(Default)]
pub(crate) struct Cancellations {
    /// Told when there may be some.
    changed: Notify,
    /// Those whose attempts have not started, or are over.
    kept: Mutex<HashMap<(JobId, Epoch), Kept>>,
    /// How many are kept: none, nearly always.
    count: AtomicUsize,
}

/// An order that waits for its attempt.
struct Kept {
    deadline: Instant,
    by: Actor,
    /// The last claim that was asked for when the order was read: its attempt's is not younger.
    claim: ClaimNo,
}

impl Cancellations {
    /// Says that there may be some.
    pub(crate) fn poke(&self) {
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(JobId, Epoch), Kept>> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Keeps these, and forgets those before them whose claims are settled: their attempts are over.
    fn keep(&self, ledger: &Ledger, orders: impl Iterator<Item = ((JobId, Epoch), Kept)>) {
        let mut kept = self.lock();
        let oldest = ledger.oldest();
        kept.retain(|_, order| oldest.is_some_and(|oldest| oldest <= order.claim));
        kept.extend(orders);
        self.count.store(kept.len(), Ordering::Release);
    }

    /// Tells an attempt to end if there is an order for it. The attempt must be watched before: then whoever reads an order
    /// afterwards finds it.
    pub(crate) fn apply_to(&self, attempt: &Attempt) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let order = {
            let mut kept = self.lock();
            let order = kept.remove(&(attempt.job.id, attempt.job.epoch));
            self.count.store(kept.len(), Ordering::Release);
            order
        };
        if let Some(Kept { deadline, by, .. }) = order
            && !attempt.cancel.is_requested()
        {
            tracing::info!(job = %attempt.job.id, by = by.author, "the attempt is told to end");
            attempt.cancel.request(deadline, by);
        }
    }
}

/// What one attempt was told.
#[derive(Default)]
pub(crate) struct CancelFlag {
    order: OnceLock<(Instant, Actor)>,
    changed: Notify,
}

impl CancelFlag {
    /// Tells the attempt that someone wants it to end by then.
    fn request(&self, deadline: Instant, by: Actor) {
        if self.order.set((deadline, by)).is_ok() {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.order.get().is_some()
    }

    /// Who wants it to end.
    pub(crate) fn actor(&self) -> Option<&Actor> {
        self.order.get().map(|(_, by)| by)
    }

    /// Returns when the attempt is told to end.
    pub(crate) async fn requested(&self) {
        let changed = self.changed.notified();
        if !self.is_requested() {
            changed.await;
        }
    }

    /// Returns when the attempt was told to end and its time for it is over.
    pub(crate) async fn deadline_passed(&self) {
        self.requested().await;
        if let Some((deadline, _)) = self.order.get() {
            tokio::time::sleep_until((*deadline).into()).await;
        }
    }
}

impl Core {
    /// Ends a job that stopped between two steps because someone wants it to end: there is no attempt left to tell. If
    /// this fails, its timer sees to it.
    pub(crate) async fn end_cancelled(&self, job: JobId) {
        let ended = async {
            let orders = self.store.cancel_requests(self.worker()).await?;
            let Some(order) = orders.into_iter().find(|order| order.job == job) else { return Ok(()) };
            let act = JobAction::Cancel { grace: Duration::ZERO };
            self.store.control().act_on_jobs(None, &[job], act, &order.actor).await?;
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
            () = core.cancellations.changed.notified() => {}
            () = core.stopped() => return,
        }
        tick(&core, &mut backoff).await;
    }
}

/// One look; tells the attempts that run here, and keeps what is for others.
async fn tick(core: &Core, backoff: &mut Backoff) {
    let orders = match core.store.cancel_requests(core.worker()).await {
        Ok(orders) => orders,
        Err(error) => {
            backoff.wait(&error).await;
            core.cancellations.poke();
            return;
        }
    };
    backoff.reset();
    if orders.is_empty() {
        return core.cancellations.keep(&core.ledger, std::iter::empty());
    }
    let claim = core.ledger.last();
    let now = match core.store.inspect().clock().await {
        Ok(now) => now,
        Err(_) => core.config.env.now(),
    };
    let kept = orders.into_iter().map(|CancelRequest { job, epoch, deadline_at, actor: by }| {
        let left = deadline_at.since(now).min(Duration::from_secs(86_400 * 365));
        ((job, epoch), Kept { deadline: Instant::now() + left, by, claim })
    });
    core.cancellations.keep(&core.ledger, kept);
    core.attempts().iter().for_each(|attempt| core.cancellations.apply_to(attempt));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_kept_until_the_claims_of_its_time_are_settled() {
        let (orders, ledger) = (Cancellations::default(), Ledger::default());
        let (first, second) = (ledger.number(), ledger.number());
        ledger.open(second, 1);
        let by = Actor { author: "ada".into(), note: None };
        let kept = Kept { deadline: Instant::now(), by, claim: ledger.last() };
        orders.keep(&ledger, std::iter::once(((JobId::from_bytes([0; 16]), Epoch(0)), kept)));
        let later = ledger.number();
        ledger.open(later, 1);
        let left = |orders: &Cancellations| {
            orders.keep(&ledger, std::iter::empty());
            orders.count.load(Ordering::Acquire)
        };
        assert_eq!(left(&orders), 1, "one claim is not answered, one has not ended");
        ledger.settle([second].into_iter());
        assert_eq!(left(&orders), 1, "one is not answered");
        ledger.open(first, 0);
        assert_eq!(left(&orders), 0, "what was claimed later is not meant");
    }
}
