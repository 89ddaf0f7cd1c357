//! Fires due timers. Sleeps until the next timer is due, instead of polling.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_env::Env;
use windlass_store::{Error, Store};

use crate::{backoff::Backoff, core::Core, sync::lock, telemetry::StoreCall};

/// How many timers are fired in one transaction.
const BATCH: usize = 1_000;
/// How late a timer may be before the renewer's thread fires it.
const LATE: Duration = Duration::from_millis(700);
/// How soon timers that another process is firing are checked again.
const RECHECK: Duration = Duration::from_millis(100);

pub(crate) struct Timekeeper {
    env: Env,
    /// When the next timer is due, as far as is known.
    next: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Timekeeper {
    pub(crate) fn new(env: Env) -> Timekeeper {
        Timekeeper { env, next: Mutex::default(), changed: Notify::new() }
    }

    /// Notes that a timer was set that is due in `after`.
    pub(crate) fn set(&self, after: Duration) {
        let Some(at) = self.env.instant().checked_add(after) else { return };
        let mut next = lock(&self.next);
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.changed.notify_one();
        }
    }

    /// Makes the loop check the store now, since timers may have been set by another process.
    pub(crate) fn poke(&self) {
        self.set(Duration::ZERO);
    }

    /// Whether a timer should have fired a while ago: the thread of this loop is blocked.
    pub(crate) fn is_late(&self) -> bool {
        self.next().is_some_and(|next| next + LATE < self.env.instant())
    }

    fn next(&self) -> Option<Instant> {
        *lock(&self.next)
    }
}

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    core.timekeeper.poke();
    let mut backoff = Backoff::new(&core.env, "firing timers");
    let mut repaired_at = core.env.instant();
    loop {
        let changed = core.timekeeper.changed.notified();
        let check_at = core.env.instant() + core.config.check_interval;
        let next = core.timekeeper.next();
        if next.is_none_or(|next| next > core.env.instant()) {
            let until = next.map_or(check_at, |next| next.min(check_at));
            tokio::select! {
                () = core.env.sleep_until(until) => {}
                () = changed => continue,
                () = core.stopping() => return,
            }
        }
        tick(&core, &mut backoff).await;
        if core.env.since(repaired_at) >= core.config.check_interval {
            repaired_at = core.env.instant();
            repair(&core).await;
        }
        if core.is_stopping() {
            return;
        }
    }
}

/// One pass: fires due timers.
async fn tick(core: &Core, backoff: &mut Backoff) {
    match fire(core, &*core.store).await {
        Ok(()) => backoff.reset(),
        Err(error) => {
            core.metrics.count_error(StoreCall::FireTimers);
            backoff.wait(&error).await;
            core.timekeeper.poke();
        }
    }
}

/// Fires due timers; the renewer's thread calls this too, while this loop is blocked.
pub(crate) async fn fire(core: &Core, store: &dyn Store) -> Result<(), Error> {
    // Cleared before the call, so that a timer that is set during the call is kept.
    *lock(&core.timekeeper.next) = None;
    let report = store.fire_timers(None, BATCH).await?;
    if report.woken + report.admitted + report.fired > 0 {
        core.wake_pools();
    }
    if report.admitted == BATCH {
        core.timekeeper.poke();
    }
    if let Some(at) = report.next_at {
        // If nothing fired although a timer is due, another process is firing it: check again, but not at once.
        let is_idle = report.woken + report.expired + report.cancelled + report.admitted + report.fired == 0;
        let least = if is_idle { RECHECK } else { Duration::ZERO };
        core.timekeeper.set((at - report.now).max(least));
    }
    Ok(())
}

/// Wakes jobs that wait for what they already have. There should be none.
async fn repair(core: &Core) {
    match core.store.repair(None).await {
        Ok(0) => {}
        Ok(jobs) => {
            tracing::warn!(
                jobs,
                "jobs waited for a free slot, a signal or the end of children although they had it; they are ready now"
            );
            core.wake_pools();
        }
        Err(error) => tracing::debug!(%error, "waiting jobs could not be checked; they are next time"),
    }
}
