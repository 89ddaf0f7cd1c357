//! Polls the gates of all queues with one small read, and wakes the pools whose queue has changed.
//!
//! The gates are read before the claims that they guard, so a job that comes in after the read moves its gate again. A
//! gate that cannot be read counts as changed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use windlass_store::{CANCEL_GATE, TIMER_GATE};

use crate::{core::Core, telemetry::StoreCall};

#[derive(Default)]
pub(crate) struct Gatekeeper {
    /// Whether jobs were claimed since the last poll.
    active: AtomicBool,
    activity: Notify,
}

impl Gatekeeper {
    /// Notes that jobs were claimed, so that the gates are polled more often.
    pub(crate) fn note_activity(&self) {
        if !self.active.swap(true, Ordering::Relaxed) {
            self.activity.notify_one();
        }
    }
}

/// Runs until the worker has stopped.
pub(crate) async fn run(core: Arc<Core>) {
    let mut gates: Vec<String> = core.pools.iter().map(|pool| pool.queue.clone()).collect();
    gates.push(TIMER_GATE.to_owned());
    gates.push(CANCEL_GATE.to_owned());
    let shortest = core.pools.iter().map(|pool| pool.config.poll).min().unwrap_or(Duration::from_millis(100));
    let longest = core.pools.iter().map(|pool| pool.config.max_poll).min().unwrap_or(Duration::from_secs(2));
    let mut last: Option<Vec<u64>> = None;
    let mut wait = shortest;
    loop {
        tokio::select! {
            () = core.env.sleep(wait) => {}
            () = core.gatekeeper.activity.notified(), if wait > shortest => {
                wait = shortest;
                continue;
            }
            // Not `stopping`: attempts of a draining worker must still get their cancel requests.
            () = core.stopped() => return,
        }
        let changed = tick(&core, &gates, &mut last).await;
        let active = core.gatekeeper.active.swap(false, Ordering::Relaxed);
        wait = if changed || active { shortest } else { (wait * 2).min(longest) };
    }
}

/// One poll: wakes the loops whose gates have moved. Returns whether one has.
async fn tick(core: &Core, gates: &[String], last: &mut Option<Vec<u64>>) -> bool {
    let now = match core.store.gates(gates).await {
        Ok(now) => Some(now),
        Err(error) => {
            core.metrics.count_error(StoreCall::Gate);
            tracing::debug!(%error, "the gates cannot be read; all queues count as changed");
            None
        }
    };
    let has_moved = |index: usize| match (&*last, &now) {
        (Some(last), Some(now)) => last[index] != now[index],
        _ => true,
    };
    for (index, pool) in core.pools.iter().enumerate() {
        if has_moved(index) {
            pool.wake();
        }
    }
    if has_moved(core.pools.len()) {
        core.timekeeper.poke();
        core.branches_changed.notify_one();
    }
    if has_moved(core.pools.len() + 1) {
        core.cancellations.poke();
    }
    // Gates that cannot be read are not polled more often for it.
    let changed = now.is_some() && *last != now;
    *last = now;
    changed
}
