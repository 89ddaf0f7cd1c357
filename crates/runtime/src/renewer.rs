//! Renews the lease, on a thread of its own: so handlers that block every other thread do not cost the worker its lease.
//!
//! The same thread does the other work that must not be held up: it reaps lost workers, checks the liveness files of
//! workers on this machine, and gives up attempts that block their thread.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_model::{ClaimNo, ProgressReport, WorkerId, progress};
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
    let env = core.env.clone();
    env.spawn_thread("windlass-renewer", move || run(core))
}

async fn run(core: Arc<Core>) {
    let store = match core.store.sibling().await {
        Ok(store) => store,
        Err(error) => {
            tracing::error!(%error, "the renewer cannot open its own connection; it uses those of the worker");
            Arc::clone(&core.store)
        }
    };
    let mut history = RenewalHistory::new(core.config.lease, core.env.instant());
    let mut written = Some(Vec::new());
    let mut given_up = Vec::new();
    let mut reaped = HashSet::new();
    let mut next = core.env.instant();
    loop {
        tokio::select! {
            () = core.env.sleep_until(next.min(core.env.instant() + CHECK_INTERVAL)) => {}
            () = core.renew_now.notified() => next = core.env.instant(),
            () = core.stopped() => return,
        }
        if core.env.instant() >= next {
            next = tick(&core, &*store, &mut history, &mut written).await;
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

/// One renewal; returns when the next is due. `written` are the reports of progress that the store has, if
/// that is known.
async fn tick(
    core: &Arc<Core>,
    store: &dyn Store,
    history: &mut RenewalHistory,
    written: &mut Option<Vec<ProgressReport>>,
) -> Instant {
    let config = &core.config;
    let started = core.env.instant();
    let worker = core.worker();
    let reports = core.progress_reports();
    let request = RenewRequest {
        progress: (written.as_ref() != Some(&reports)).then(|| reports.clone()),
        worker,
        lease: config.lease,
        settled: core.ledger.take_settled(),
        solo_ended: core.ledger.unconfirmed(),
    };
    let open_before = core.ledger.open_claims();
    match store.renew(None, &request).await {
        Ok(Renewal::Held { lapsed, claims }) => {
            let lost = core.ledger.take_lost(&open_before, &claims);
            if !lost.is_empty() {
                core.on_claims_lost(&lost);
            }
            core.set_lease(started + config.lease);
            *written = Some(reports);
            core.ledger.confirm(&request.solo_ended);
            core.renewed.notify_waiters();
            history.add(core.env.instant(), config.renew_every * 2);
            release_orphans(core, store, worker, &claims).await;
            if lapsed && history.may_judge(core.env.instant()) {
                reap(core, store, Vec::new(), true).await;
            }
            started + config.renew_every
        }
        Ok(Renewal::Lost) => {
            *written = None;
            core.on_declared_dead(worker, store).await;
            core.env.instant() + Duration::from_millis(200)
        }
        Err(error) => {
            core.metrics.count_error(StoreCall::Renew);
            tracing::warn!(%error, "the lease could not be renewed");
            core.ledger.put_back_settled(request.settled);
            *written = None;
            core.env.instant() + (config.renew_every / 5).max(Duration::from_millis(50))
        }
    }
}

impl Core {
    /// What the attempts that run here have reported.
    fn progress_reports(&self) -> Vec<ProgressReport> {
        let watches = self.all_pools().into_iter().flat_map(|pool| pool.watches());
        progress::newest(watches.filter_map(|watch| watch.attempt()?.progress()).collect())
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
    fn new(lease: Duration, now: Instant) -> RenewalHistory {
        RenewalHistory { last: None, judge_from: now + lease, lease }
    }

    /// Adds a renewal at `now`; `max_gap` is the longest time since the one before that is no gap.
    fn add(&mut self, now: Instant, max_gap: Duration) {
        if self.last.is_none_or(|last| now - last > max_gap) {
            self.judge_from = now + self.lease;
        }
        self.last = Some(now);
    }

    fn may_judge(&self, now: Instant) -> bool {
        now >= self.judge_from
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
    let mut request = ReapRequest { dead, lapsed, limit: CLAIMS, max_crashes: core.config.max_crashes };
    let started = core.env.instant();
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
                if !more || is_idle || core.env.since(started) > core.config.lease / 4 {
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
        let (began, second) = (windlass_env::Env::real().instant(), Duration::from_secs(1));
        let mut history = RenewalHistory::new(4 * second, began);
        history.add(began, second);
        assert!(!history.may_judge(began), "a worker that has just started waits");
        for passed in 1..=4 {
            history.add(began + passed * second, second);
        }
        assert!(history.may_judge(began + 4 * second));
        history.add(began + 6 * second, second);
        assert!(!history.may_judge(began + 6 * second), "after a gap it waits again");
        assert!(history.may_judge(began + 10 * second));
    }
}
