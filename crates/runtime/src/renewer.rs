//! Keeping the lease, on a thread of its own: handlers that block every thread of the program do not cost it.
//!
//! The same thread sees to what must not be held up either: it reaps lost workers, looks at the beacons of workers on
//! this machine, and gives up attempts that block their thread.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_model::{ClaimNo, WorkerId};
use windlass_store::{ReapReport, ReapRequest, RenewRequest, Renewal, Store};

use crate::{liveness, metrics::Verb, releaser, stats::add, timekeeper, worker::Core};

/// How often beacons and blocked attempts are looked at; neither costs a statement.
const TICK: Duration = Duration::from_secs(1);
/// How many claims are walked in one transaction.
const CLAIMS: usize = 100;
/// How many jobs are handed back from here in one transaction, if nobody else does: a beat must not wait for long.
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
            tracing::error!(%error, "the renewer has no store of its own; it shares the worker's");
            Arc::clone(&core.store)
        }
    };
    let mut pulse = Pulse::new(core.config.lease);
    let mut given_up = Vec::new();
    let mut seen = HashSet::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next.min(Instant::now() + TICK).into()) => {}
            () = core.renew.notified() => next = Instant::now(),
            () = core.stopped() => return,
        }
        if Instant::now() >= next {
            next = tick(&core, &*store, &mut pulse).await;
        }
        reap_local(&core, &*store, &mut seen).await;
        core.give_up_blocked(&*store, &mut given_up).await;
        if core.releaser.is_late()
            && !core.is_stopping()
            && let Err(error) = releaser::tick(&core, &*store, LATE_RELEASES).await
        {
            tracing::debug!(%error, "jobs could not be handed back yet");
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

/// When leases may be judged: after an outage of the store every lease looks run out, so whoever judges must have
/// renewed without a gap for one full lease.
struct Pulse {
    last: Option<Instant>,
    calm_at: Instant,
    lease: Duration,
}

impl Pulse {
    fn new(lease: Duration) -> Pulse {
        Pulse { last: None, calm_at: Instant::now() + lease, lease }
    }

    fn beat(&mut self, gap: Duration) {
        let now = Instant::now();
        if self.last.is_none_or(|last| now - last > gap) {
            self.calm_at = now + self.lease;
        }
        self.last = Some(now);
    }

    fn is_calm(&self) -> bool {
        Instant::now() >= self.calm_at
    }
}

/// One renewal; answers when the next is due.
async fn tick(core: &Arc<Core>, store: &dyn Store, pulse: &mut Pulse) -> Instant {
    let config = &core.config;
    let started = Instant::now();
    let worker = core.worker();
    let beat = RenewRequest {
        worker,
        lease: config.lease,
        settled: core.ledger.take_settled(),
        to_confirm: core.ledger.unconfirmed(),
    };
    let opened = core.ledger.opened();
    match store.renew(None, &beat).await {
        Ok(Renewal::Held { lapsed, claims }) => {
            let lost = core.ledger.lost(&opened, &claims);
            if !lost.is_empty() {
                core.claims_lost(&lost);
            }
            core.set_lease(started + config.lease);
            core.ledger.confirmed(&beat.to_confirm);
            core.renewed.notify_waiters();
            pulse.beat(config.renew_every * 2);
            disown(core, store, worker, &claims).await;
            if lapsed && pulse.is_calm() {
                reap(core, store, Vec::new(), true).await;
            }
            started + config.renew_every
        }
        Ok(Renewal::Lost) => {
            core.declared_dead(worker, store).await;
            Instant::now() + Duration::from_millis(200)
        }
        Err(error) => {
            core.metrics.failed(Verb::Renew);
            tracing::warn!(%error, "the lease could not be renewed");
            core.ledger.put_back_settled(beat.settled);
            Instant::now() + (config.renew_every / 5).max(Duration::from_millis(50))
        }
    }
}

/// Hands back claims that were recorded and never heard of.
async fn disown(core: &Core, store: &dyn Store, worker: WorkerId, claims: &[ClaimNo]) {
    let orphans = core.ledger.orphans(claims);
    if orphans.is_empty() {
        return;
    }
    match store.release_claims(None, worker, &orphans).await {
        Ok(released) => {
            tracing::warn!(released, "claims whose answers were lost are handed back");
            add(&core.stats.released, released);
        }
        Err(error) => {
            core.metrics.failed(Verb::Disown);
            tracing::warn!(%error, "claims whose answers were lost could not be handed back yet");
        }
    }
}

/// Reaps workers of this machine whose beacons have gone out: their processes are dead, whatever their lease says.
///
/// `seen` holds those that were reaped before: a file that cannot be removed is no reason to do so every second.
pub(crate) async fn reap_local(core: &Core, store: &dyn Store, seen: &mut HashSet<WorkerId>) {
    let Some(dir) = store.liveness_dir() else { return };
    let mut dead = liveness::is_released(&dir);
    dead.retain(|worker| !seen.contains(worker));
    if !dead.is_empty() && reap(core, store, dead.clone(), false).await {
        dead.iter().for_each(|worker| liveness::remove(&dir, *worker));
        seen.extend(dead);
    }
}

/// Reaps until nothing is left to walk; `false` if the store is away.
async fn reap(core: &Core, store: &dyn Store, dead: Vec<WorkerId>, lapsed: bool) -> bool {
    let mut sweep = ReapRequest { dead, lapsed, limit: CLAIMS, crashes: core.config.crashes };
    let started = Instant::now();
    loop {
        match store.reap(None, &sweep).await {
            Ok(ReapReport { workers, returned, poisoned, more }) => {
                for worker in &workers {
                    tracing::warn!(%worker, "a worker was lost; its jobs go back");
                }
                add(&core.stats.dead_workers, workers.len());
                add(&core.stats.reaped, returned + poisoned);
                if returned > 0 {
                    core.suspects.notify_one();
                }
                sweep.dead.clear();
                // Nothing to do though there is more: another reaper is at it. And this worker's own lease comes
                // first: the next beat goes on where this one ended.
                let idle = workers.is_empty() && returned + poisoned == 0;
                if !more || idle || started.elapsed() > core.config.lease / 4 {
                    return true;
                }
            }
            Err(error) => {
                core.metrics.failed(Verb::Reap);
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
    fn leases_are_judged_after_a_full_lease_of_beats_without_a_gap() {
        let mut pulse = Pulse::new(Duration::from_millis(40));
        pulse.beat(Duration::from_secs(1));
        assert!(!pulse.is_calm(), "a reaper that starts waits");
        pulse.calm_at = Instant::now();
        pulse.beat(Duration::from_secs(1));
        assert!(pulse.is_calm());
        pulse.last = Some(Instant::now() - Duration::from_secs(2));
        pulse.beat(Duration::from_secs(1));
        assert!(!pulse.is_calm(), "after a gap it waits again");
    }
}
