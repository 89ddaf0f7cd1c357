//! Delivers cancel requests to running attempts, and enforces their deadlines.
//!
//! A cancel request may be read before its attempt has started: the answer to the claim is on its way, or the job waits
//! for a slot or for a suspect that runs alone. The request is kept then, and every attempt checks for one as it starts.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_env::Env;
use windlass_model::{ClaimNo, Epoch, JobId};
use windlass_store::{Actor, CancelRequest, Error, JobAction};

use crate::{Attempt, backoff::Backoff, core::Core, ledger::Ledger, sync::lock};

/// Cancel requests for attempts of this worker.
#[derive(Default)]
pub(crate) struct Cancellations {
    /// Notified when there may be new requests.
    changed: Notify,
    /// Requests whose attempts have not started, or have ended.
    pending: Mutex<HashMap<(JobId, Epoch), PendingCancel>>,
    /// The number of pending requests: 0, nearly always.
    count: AtomicUsize,
}

/// A cancel request that waits for its attempt.
struct PendingCancel {
    deadline: Instant,
    actor: Actor,
    /// The last claim number that was given out when the request was read. The claim of its attempt is not newer.
    newest_claim: ClaimNo,
}

impl Cancellations {
    /// Makes the loop read new requests.
    pub(crate) fn poke(&self) {
        self.changed.notify_one();
    }

    /// Adds requests, and forgets older ones whose claims are settled: their attempts have ended.
    fn update(&self, ledger: &Ledger, requests: impl Iterator<Item = ((JobId, Epoch), PendingCancel)>) {
        let mut pending = lock(&self.pending);
        let oldest = ledger.oldest();
        pending.retain(|_, request| oldest.is_some_and(|oldest| oldest <= request.newest_claim));
        pending.extend(requests);
        self.count.store(pending.len(), Ordering::Release);
    }

    /// Passes a pending request to its attempt. The attempt must be watched before, so that a request that is read later
    /// finds it.
    pub(crate) fn apply_to(&self, attempt: &Attempt) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let request = {
            let mut pending = lock(&self.pending);
            let request = pending.remove(&(attempt.job.id, attempt.job.epoch));
            self.count.store(pending.len(), Ordering::Release);
            request
        };
        if let Some(PendingCancel { deadline, actor, .. }) = request
            && !attempt.cancel.is_requested()
        {
            tracing::info!(job = %attempt.job.id, actor = actor.author, "the attempt is asked to end: its job is being cancelled");
            attempt.cancel.request(deadline, actor);
        }
    }
}

/// Whether the job of an attempt is being cancelled.
#[derive(Default)]
pub(crate) struct CancelFlag {
    /// The end of the grace period, and who requested the cancel.
    request: OnceLock<(Instant, Actor)>,
    changed: Notify,
}

impl CancelFlag {
    fn request(&self, deadline: Instant, actor: Actor) {
        if self.request.set((deadline, actor)).is_ok() {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.request.get().is_some()
    }

    /// Who requested the cancel.
    pub(crate) fn actor(&self) -> Option<&Actor> {
        self.request.get().map(|(_, actor)| actor)
    }

    /// Returns when a cancel is requested.
    pub(crate) async fn requested(&self) {
        let changed = self.changed.notified();
        if !self.is_requested() {
            changed.await;
        }
    }

    /// Returns when a cancel is requested and its grace period is over.
    pub(crate) async fn deadline_passed(&self, env: &Env) {
        self.requested().await;
        if let Some((deadline, _)) = self.request.get() {
            env.sleep_until(*deadline).await;
        }
    }
}

/// Runs until the worker stops: reads requests whenever there may be new ones.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new(&core.env, "reading cancel requests");
    loop {
        tokio::select! {
            () = core.cancellations.changed.notified() => {}
            () = core.stopped() => return,
        }
        tick(&core, &mut backoff).await;
    }
}

/// One pass: passes requests to the attempts that run, and keeps the others.
async fn tick(core: &Core, backoff: &mut Backoff) {
    let requests = match core.store.cancel_requests(core.worker()).await {
        Ok(requests) => requests,
        Err(error) => {
            backoff.wait(&error).await;
            core.cancellations.poke();
            return;
        }
    };
    backoff.reset();
    if requests.is_empty() {
        return core.cancellations.update(&core.ledger, std::iter::empty());
    }
    let newest_claim = core.ledger.last_number();
    let now = match core.store.inspect().clock().await {
        Ok(now) => now,
        Err(_) => core.env.now(),
    };
    let pending = requests.into_iter().map(|CancelRequest { job, epoch, deadline_at, actor }| {
        let left = (deadline_at - now).min(Duration::from_secs(86_400 * 365));
        ((job, epoch), PendingCancel { deadline: core.env.instant() + left, actor, newest_claim })
    });
    core.cancellations.update(&core.ledger, pending);
    core.attempts().iter().for_each(|attempt| core.cancellations.apply_to(attempt));
}

impl Core {
    /// Ends a job that stopped between two steps because it is being cancelled: there is no attempt left to ask. If this
    /// fails, the timer of the cancel request ends the job.
    pub(crate) async fn end_cancelled(&self, job: JobId) {
        let end = async {
            let requests = self.store.cancel_requests(self.worker()).await?;
            let Some(request) = requests.into_iter().find(|request| request.job == job) else {
                return Ok(());
            };
            let cancel = JobAction::Cancel { grace: Duration::ZERO };
            self.store.control().act_on_jobs(None, &[job], cancel, &request.actor).await?;
            Ok::<(), Error>(())
        };
        if let Err(error) = end.await {
            tracing::debug!(%error, %job, "a cancelled job could not be ended yet");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_kept_until_all_claims_of_its_time_are_settled() {
        let (cancellations, ledger) = (Cancellations::default(), Ledger::default());
        let (first, second) = (ledger.next_number(), ledger.next_number());
        ledger.open(second, 1);
        let actor = Actor { author: "ada".into(), note: None };
        let pending =
            PendingCancel { deadline: Env::real().instant(), actor, newest_claim: ledger.last_number() };
        cancellations.update(&ledger, std::iter::once(((JobId::from_bytes([0; 16]), Epoch(0)), pending)));
        let later = ledger.next_number();
        ledger.open(later, 1);
        let count = |cancellations: &Cancellations| {
            cancellations.update(&ledger, std::iter::empty());
            cancellations.count.load(Ordering::Acquire)
        };
        assert_eq!(count(&cancellations), 1, "one claim is not answered, one is open");
        ledger.settle([second].into_iter());
        assert_eq!(count(&cancellations), 1, "one claim is not answered");
        ledger.open(first, 0);
        assert_eq!(count(&cancellations), 0, "it cannot concern a later claim");
    }
}
