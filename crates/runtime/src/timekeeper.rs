//! Firing due timers: sleeps until the next one is due, not in a coarse sweep.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use windlass_store::{Error, Store};

use crate::{metrics::Verb, retrying::Backoff, worker::Core};

/// How many timers are fired in one transaction.
const BATCH: usize = 1_000;
/// How late a timer may be before another thread sees to it.
const LATE: Duration = Duration::from_millis(700);
/// How soon timers that another process is firing are looked at again.
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Timekeeper {
    /// When the next timer is due, as far as is known.
    next: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Timekeeper {
    /// A timer was set here, due in `after`.
    pub(crate) fn set(&self, after: Duration) {
        let Some(at) = Instant::now().checked_add(after) else { return };
        let mut next = self.next.lock().unwrap_or_else(|e| e.into_inner());
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.changed.notify_one();
        }
    }

    /// Timers were set somewhere: look at the store.
    pub(crate) fn poke(&self) {
        self.set(Duration::ZERO);
    }

    /// Whether a timer should have fired a while ago: the thread that was to do it is blocked.
    pub(crate) fn is_late(&self) -> bool {
        self.next().is_some_and(|next| next + LATE < Instant::now())
    }

    fn next(&self) -> Option<Instant> {
        *self.next.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    core.timekeeper.poke();
    let mut backoff = Backoff::new("firing timers");
    let mut swept = Instant::now();
    loop {
        let changed = core.timekeeper.changed.notified();
        let safety = Instant::now() + core.config.safety;
        let next = core.timekeeper.next();
        if next.is_none_or(|next| next > Instant::now()) {
            let until = next.map_or(safety, |next| next.min(safety));
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                () = changed => continue,
                () = core.stopping() => return,
            }
        }
        tick(&core, &mut backoff).await;
        if swept.elapsed() >= core.config.safety {
            swept = Instant::now();
            sweep(&core).await;
        }
        if core.is_stopping() {
            return;
        }
    }
}

/// Sees to jobs that wait for what is there. There should be none.
async fn sweep(core: &Core) {
    match core.store.repair(None).await {
        Ok(0) => {}
        Ok(entered) => {
            tracing::warn!(
                entered,
                "jobs waited for what was there: a free slot, a signal, the end of children"
            );
            core.pools.iter().for_each(|pool| pool.wake());
        }
        Err(error) => tracing::debug!(%error, "what waits could not be looked after; it is next time"),
    }
}

/// One pass.
async fn tick(core: &Core, backoff: &mut Backoff) {
    match fire(core, &*core.store).await {
        Ok(()) => backoff.reset(),
        Err(error) => {
            core.metrics.failed(Verb::Due);
            backoff.wait(&error).await;
            core.timekeeper.poke();
        }
    }
}

/// Fires what is due; also called from the renewer's thread when this one is blocked.
pub(crate) async fn fire(core: &Core, store: &dyn Store) -> Result<(), Error> {
    // What is set while the store is asked must not be forgotten.
    *core.timekeeper.next.lock().unwrap_or_else(|e| e.into_inner()) = None;
    let due = store.fire_timers(None, BATCH).await?;
    if due.woken + due.admitted + due.fired > 0 {
        core.pools.iter().for_each(|pool| pool.wake());
    }
    if due.admitted == BATCH {
        core.timekeeper.poke();
    }
    if let Some(at) = due.next_at {
        // Nothing fired though something is due: another process is at it. Look again, but not at once.
        let idle = due.woken + due.expired + due.cancelled + due.admitted + due.fired == 0;
        core.timekeeper.set(at.since(due.now).max(if idle { AGAIN } else { Duration::ZERO }));
    }
    Ok(())
}
