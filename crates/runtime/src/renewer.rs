//! Renews the lease, on a thread of its own: so handlers that block every other thread do not cost the worker its lease.
//!
//! The same thread does the other work that must not be held up: it reaps lost workers, checks the liveness files of
//! workers on this machine, and gives up attempts that block their thread.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_model::{ClaimNo, WorkerId};
use windlass_store::{ReapReport, ReapRequest, RenewRequest, Renewal, Store};

use crate::{
    core::Core,
    liveness, releaser,
    telemetry::{StoreCall, add},
    timekeeper,
};

/// How often liveness files and blocked attempts are checked; neither costs a statement.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How many claims are reaped in one transaction.
const CLAIMS: usize = 100;
/// How many jobs this thread releases in one transaction, if nobody else does: a renewal must not wait for long.
const LATE_RELEASES: usize = 100;

/// Starts the thread. It ends when the worker has stopped.
pub(crate) fn spawn(core: Arc<Core>) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("windlass-renewer".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(run(core)),
            Err(error) => tracing::error!(%error, "the renewer cannot run; this worker's lease will run out"),
        }
    })
}

async fn run(core: Arc<Core>) {
    let store = match core.store.sibling().await {
        Ok(store) => store,
        Err(error) => {
            tracing::error!(%error, "the renewer cannot open its own connection; it uses those of the worker");
            Arc::clone(&core.store)
        }
    };
    let mut history = RenewalHistory::new(core.config.lease);
    let mut given_up = Vec::new();
    let mut reaped = HashSet::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next.min(Instant::now() + CHECK_INTERVAL).into()) => {}
            () = core.renew_now.notified() => next = Instant::now(),
            () = core.stopped() => return,
        }
        if Instant::now() >= next {
            next = tick(&core, &*store, &mut history).await;
        }
        reap_local(&core, &*store, &mut reaped).await;
        core.give_up_blocked(&*store, &mut given_up).await;
        if core.releaser.is_late()
            && !core.is_stopping()
            && let Err(error) = releaser::tick(&core, &*store, LATE_RELEASES).await
        {
            tracing::debug!(%error, "jobs could not be released yet");
        }
        if core.timekeeper.is_late()
            && !core.is_stopping()
            && let Err(error) = timekeeper::fire(&core, &*store).await
        {
            tracing::debug!(%error, "late timers could not be fired");
            core.timekeeper.poke();
        }
    }
}

/// One renewal; returns when the next is due.
async fn tick(core: &Arc<Core>, store: &dyn Store, history: &mut RenewalHistory) -> Instant {
    let config = &core.config;
    let started = Instant::now();
    let worker = core.worker();
    let request = RenewRequest {
        worker,
        lease: config.lease,
        settled: core.ledger.take_settled(),
        to_confirm: core.ledger.unconfirmed(),
    };
    let open_before = core.ledger.open_claims();
    match store.renew(None, &request).await {
        Ok(Renewal::Held { lapsed, claims }) => {
            let lost = core.ledger.take_lost(&open_before, &claims);
            if !lost.is_empty() {
                core.on_claims_lost(&lost);
            }
            core.set_lease(started + config.lease);
            core.ledger.confirm(&request.to_confirm);
            core.renewed.notify_waiters();
            history.add(config.renew_every * 2);
            release_orphans(core, store, worker, &claims).await;
            if lapsed && history.may_judge() {
                reap(core, store, Vec::new(), true).await;
            }
            started + config.renew_every
        }
        Ok(Renewal::Lost) => {
            core.on_declared_dead(worker, store).await;
            Instant::now() + Duration::from_millis(200)
        }
        Err(error) => {
            core.metrics.count_error(StoreCall::Renew);
            tracing::warn!(%error, "the lease could not be renewed");
            core.ledger.put_back_settled(request.settled);
            Instant::now() + (config.renew_every / 5).max(Duration::from_millis(50))
        }
    }
}

/// Decides when this worker may judge the leases of others. After an outage of the store every lease looks lapsed, so a
/// worker must first have renewed its own without a gap for one full lease.
struct RenewalHistory {
    last: Option<Instant>,
    judge_from: Instant,
    lease: Duration,
}

impl RenewalHistory {
    fn new(lease: Duration) -> RenewalHistory {
        RenewalHistory { last: None, judge_from: Instant::now() + lease, lease }
    }

    /// Adds a renewal; `max_gap` is the longest time since the one before that is no gap.
    fn add(&mut self, max_gap: Duration) {
        let now = Instant::now();
        if self.last.is_none_or(|last| now - last > max_gap) {
            self.judge_from = now + self.lease;
        }
        self.last = Some(now);
    }

    fn may_judge(&self) -> bool {
        Instant::now() >= self.judge_from
    }
}

/// Releases claims that the store has recorded and whose answers never arrived here.
async fn release_orphans(core: &Core, store: &dyn Store, worker: WorkerId, recorded: &[ClaimNo]) {
    let orphans = core.ledger.orphans(recorded);
    if orphans.is_empty() {
        return;
    }
    match store.release_claims(None, worker, &orphans).await {
        Ok(released) => {
            tracing::warn!(released, "the answers to claims were lost; their jobs are released");
            add(&core.stats.released, released);
        }
        Err(error) => {
            core.metrics.count_error(StoreCall::ReleaseClaims);
            tracing::warn!(%error, "the answers to claims were lost; their jobs could not be released yet");
        }
    }
}

/// Reaps workers of this machine whose liveness files are not locked: their processes are dead, whatever their lease says.
///
/// `reaped` holds those that were reaped before, so that a file that cannot be removed does not cause a call every second.
pub(crate) async fn reap_local(core: &Core, store: &dyn Store, reaped: &mut HashSet<WorkerId>) {
    let Some(dir) = store.liveness_dir() else { return };
    let mut dead = liveness::dead_workers(&dir);
    dead.retain(|worker| !reaped.contains(worker));
    if !dead.is_empty() && reap(core, store, dead.clone(), false).await {
        dead.iter().for_each(|worker| liveness::remove(&dir, *worker));
        reaped.extend(dead);
    }
}

/// Reaps until there are no more claims of dead workers; `false` if the store does not answer.
async fn reap(core: &Core, store: &dyn Store, dead: Vec<WorkerId>, lapsed: bool) -> bool {
    let mut request = ReapRequest { dead, lapsed, limit: CLAIMS, crashes: core.config.crashes };
    let started = Instant::now();
    loop {
        match store.reap(None, &request).await {
            Ok(ReapReport { workers, returned, poisoned, more }) => {
                for worker in &workers {
                    tracing::warn!(%worker, "a worker was lost; its jobs are returned");
                }
                add(&core.stats.dead_workers, workers.len());
                add(&core.stats.reaped, returned + poisoned);
                if returned > 0 {
                    core.suspects_changed.notify_one();
                }
                request.dead.clear();
                // If nothing was reaped although there is more, another worker is reaping. And this worker's own lease comes
                // first: the next renewal continues where this one ends.
                let is_idle = workers.is_empty() && returned + poisoned == 0;
                if !more || is_idle || started.elapsed() > core.config.lease / 4 {
                    return true;
                }
            }
            Err(error) => {
                core.metrics.count_error(StoreCall::Reap);
                tracing::warn!(%error, "lost workers could not be reaped yet");
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_judged_after_a_full_lease_of_renewals_without_a_gap() {
        let mut history = RenewalHistory::new(Duration::from_millis(40));
        history.add(Duration::from_secs(1));
        assert!(!history.may_judge(), "a worker that has just started waits");
        history.judge_from = Instant::now();
        history.add(Duration::from_secs(1));
        assert!(history.may_judge());
        history.last = Some(Instant::now() - Duration::from_secs(2));
        history.add(Duration::from_secs(1));
        assert!(!history.may_judge(), "after a gap it waits again");
    }
}
