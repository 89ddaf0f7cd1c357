//! Sums up what transactions have recorded about ends of jobs and waits for signals, so that reading it stays cheap.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use windlass_store::RollUpRequest;

use crate::core::Core;

/// How often a worker that commits, or whose process commits for workers elsewhere, sums up. Reads add up the rows that were recorded since, which is cheap for the few thousand
/// of ten seconds.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many rows are summed up in one transaction: so few that it is short.
const BATCH: usize = 5_000;

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut committed = 0;
    let mut summed_up_at = core.env.instant();
    loop {
        tokio::select! {
            () = core.env.sleep(INTERVAL) => {}
            () = core.stopping() => return,
        }
        // An idle worker only looks for what others have left.
        let elsewhere = core.commits_elsewhere.load(Ordering::Relaxed);
        let commits = core.stats.commits.load(Ordering::Relaxed) + elsewhere;
        if commits == committed && core.env.since(summed_up_at) < core.config.check_interval {
            continue;
        }
        (committed, summed_up_at) = (commits, core.env.instant());
        tick(&core).await;
    }
}

/// One pass: sums up all that was recorded.
async fn tick(core: &Core) {
    let request = RollUpRequest { limit: BATCH, hours_before: None, delete_before: None };
    while !core.is_stopping() {
        match core.store.roll_up(&request).await {
            Ok(report) if report.more => {}
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(%error, "what has ended could not be summed up; it is next time");
                return;
            }
        }
    }
}
