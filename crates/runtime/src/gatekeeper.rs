//! Looking whether idle queues have changed: one small read for all of them.
//!
//! The versions are read before the claims they guard, so a job that comes in after the read moves them again. An
//! unreadable gate counts as changed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use windlass_store::{CANCEL_GATE, TIMER_GATE};

use crate::{metrics::Verb, worker::Core};

#[derive(Default)]
pub(crate) struct Gatekeeper {
    active: AtomicBool,
    nudge: Notify,
}

impl Gatekeeper {
    /// Says that there is work: look again soon.
    pub(crate) fn active(&self) {
        if !self.active.swap(true, Ordering::Relaxed) {
            self.nudge.notify_one();
        }
    }
}

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut queues: Vec<String> = core.pools.iter().map(|pool| pool.queue.clone()).collect();
    queues.push(TIMER_GATE.to_owned());
    queues.push(CANCEL_GATE.to_owned());
    let shortest = core.pools.iter().map(|pool| pool.config.poll).min().unwrap_or(Duration::from_millis(100));
    let longest = core.pools.iter().map(|pool| pool.config.max_poll).min().unwrap_or(Duration::from_secs(2));
    let mut last: Option<Vec<u64>> = None;
    let mut wait = shortest;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = core.gatekeeper.nudge.notified(), if wait > shortest => {
                wait = shortest;
                continue;
            }
            // Attempts that are waited for are told to end all the same.
            () = core.stopped() => return,
        }
        let changed = tick(&core, &queues, &mut last).await;
        let active = core.gatekeeper.active.swap(false, Ordering::Relaxed);
        wait = if changed || active { shortest } else { (wait * 2).min(longest) };
    }
}

/// One look; wakes the pools whose gate moved.
async fn tick(core: &Core, queues: &[String], last: &mut Option<Vec<u64>>) -> bool {
    let now = match core.store.gates(queues).await {
        Ok(now) => Some(now),
        Err(error) => {
            core.metrics.failed(Verb::Gate);
            tracing::debug!(%error, "the gate cannot be read; all that it guards is looked at");
            None
        }
    };
    let moved = |index: usize| match (&*last, &now) {
        (Some(last), Some(now)) => last[index] != now[index],
        _ => true,
    };
    for (index, pool) in core.pools.iter().enumerate() {
        if moved(index) {
            pool.wake();
        }
    }
    if moved(core.pools.len()) {
        core.timekeeper.poke();
        core.branches.notify_one();
    }
    if moved(core.pools.len() + 1) {
        core.cancellations.poke();
    }
    // What cannot be read is not read more often for it.
    let changed = now.is_some() && *last != now;
    *last = now;
    changed
}
