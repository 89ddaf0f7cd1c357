//! Deleting what has been kept long enough, in small batches, and looking after what should not need it.

use std::{sync::Arc, time::Duration};

use windlass_store::Prune;

use crate::worker::Core;

/// How often is looked for what may go.
const EVERY: Duration = Duration::from_secs(3_600);
/// How many jobs are looked at in one transaction: few enough that nobody waits for it.
const BATCH: usize = 1_000;
/// How long is waited between two transactions, so that a large backlog is not noticed by others.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    // Workers that start together do not prune together.
    let mut wait = EVERY.mul_f64(0.05 + 0.2 * core.config.env.random());
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = core.stopping() => return,
        }
        tick(&core).await;
        wait = EVERY;
    }
}

/// One pass over all that is old enough.
async fn tick(core: &Core) {
    let mut pruned = 0;
    for (state, kept) in core.config.retention.rules() {
        let Ok(now) = core.store.inspect().clock().await else { return };
        let mut prune = Prune { state, before: now.minus(kept), kind: None, after: None, limit: BATCH };
        while !core.is_stopping() {
            match core.store.control().prune(None, &prune).await {
                Ok(done) => {
                    pruned += done.jobs;
                    prune.after = done.after;
                }
                Err(error) => {
                    tracing::warn!(%error, "old jobs could not be pruned; they are next time");
                    return;
                }
            }
            if prune.after.is_none() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    if pruned > 0 {
        tracing::info!(jobs = pruned, "pruned what was kept long enough");
    }
}
