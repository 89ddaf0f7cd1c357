//! Deletes jobs that ended long ago, in small batches, sums of what ended and records of operations of that time, and sessions that have
//! expired.

use std::{sync::Arc, time::Duration};

use windlass_store::{Prune, RollUpRequest};

use crate::core::Core;

/// How often jobs are pruned.
const INTERVAL: Duration = Duration::from_secs(3_600);
/// How many jobs are checked in one transaction: so few that no other transaction waits long for it.
const BATCH: usize = 1_000;
/// The pause between two transactions, so that a large backlog does not slow down others.
const PAUSE: Duration = Duration::from_millis(50);
/// How long sums per minute are kept; then they are added to those of their hours. Two days: yesterday can still be seen minute by minute.
const MINUTES_KEPT: Duration = Duration::from_secs(2 * 86_400);

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    // Random, so that workers that start together do not prune together.
    let mut wait = INTERVAL.mul_f64(0.05 + 0.2 * core.env.random());
    loop {
        tokio::select! {
            () = core.env.sleep(wait) => {}
            () = core.stopping() => return,
        }
        tick(&core).await;
        prune_sums(&core).await;
        prune_sessions(&core).await;
        prune_operations(&core).await;
        wait = INTERVAL;
    }
}

/// One pass: deletes all jobs that are old enough.
async fn tick(core: &Core) {
    let mut pruned = 0;
    for (state, kept) in core.config.retention.rules() {
        let Ok(now) = core.store.inspect().clock().await else { return };
        let mut prune = Prune { state, before: now - kept, kind: None, after: None, limit: BATCH };
        while !core.is_stopping() {
            match core.store.prune(None, &prune).await {
                Ok(report) => {
                    pruned += report.jobs;
                    prune.after = report.after;
                }
                Err(error) => {
                    tracing::warn!(%error, "old jobs could not be pruned; they are next time");
                    return;
                }
            }
            if prune.after.is_none() {
                break;
            }
            core.env.sleep(PAUSE).await;
        }
    }
    if pruned > 0 {
        tracing::info!(jobs = pruned, "pruned old jobs");
    }
}

/// Deletes old records of operations, of which there are few.
async fn prune_operations(core: &Core) {
    let Some(kept) = core.config.retention.throughput else { return };
    let Ok(now) = core.store.inspect().clock().await else { return };
    if let Err(error) = core.store.prune_operations(now - kept).await {
        tracing::warn!(%error, "old records of operations could not be deleted; they are next time");
    }
}

/// Adds old sums of minutes to those of their hours, and deletes old sums.
async fn prune_sums(core: &Core) {
    let Ok(now) = core.store.inspect().clock().await else { return };
    let request = RollUpRequest {
        limit: BATCH,
        hours_before: Some(now - MINUTES_KEPT),
        delete_before: core.config.retention.throughput.map(|kept| now - kept),
    };
    while !core.is_stopping() {
        match core.store.roll_up(&request).await {
            Ok(report) if report.more => core.env.sleep(PAUSE).await,
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, "old sums could not be deleted; they are next time");
                return;
            }
        }
    }
}

/// Deletes expired sessions of users.
async fn prune_sessions(core: &Core) {
    while !core.is_stopping() {
        match core.store.prune_sessions(None, BATCH).await {
            Ok(BATCH) => core.env.sleep(PAUSE).await,
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, "expired sessions could not be deleted; they are next time");
                return;
            }
        }
    }
}
