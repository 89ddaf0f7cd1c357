//! Room in a branch that limits how many of its children may be in flight.

use std::time::Duration;

use windlass_model::{BranchNo, Failure, JobId, branch::BranchWatch, branch::PollInterval};

use crate::{machine::Services, store_retry::retry_unavailable};

/// The least time between two reads of a full branch.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until there is room for `more` children, at most `max_wait`. After that it returns the watch that the parent must set
/// on the branch before it parks: it wakes the parent when there is room.
pub(crate) async fn wait_for_room(
    services: &Services,
    branch: (JobId, BranchNo),
    in_flight: u64,
    more: u64,
    max_wait: Duration,
) -> Result<Option<BranchWatch>, Failure> {
    let (env, since) = (&services.env, services.env.instant());
    loop {
        let branches = retry_unavailable!(services.store.inspect().branches(branch.0))?;
        let Some(branch) = branches.into_iter().find(|row| row.number == branch.1) else { return Ok(None) };
        let (spawned, ended) = (branch.spawned.max(0) as u64, branch.counts.ended().max(0) as u64);
        let live = spawned.saturating_sub(ended);
        // A chunk may be larger than the limit (one block): it fits into an empty branch.
        if live + more <= in_flight.max(more) {
            return Ok(None);
        }
        let remaining = max_wait.saturating_sub(env.since(since));
        if remaining < MIN_INTERVAL {
            let ended = Some((spawned + more).saturating_sub(in_flight.max(more)));
            return Ok(Some(BranchWatch {
                ended,
                poll_interval: PollInterval::default(),
                ..BranchWatch::default()
            }));
        }
        env.sleep((max_wait / 8).clamp(MIN_INTERVAL, remaining)).await;
    }
}
