//! Room in a branch of which only so many children may be in flight.

use std::time::Duration;

use windlass_model::{BranchNo, Failure, JobId, branch::BranchWatch, branch::PollInterval};

use crate::{machine::Services, store_retry::retry_unavailable};

/// The least time between two looks at a branch that is full.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until there is room for so many more children, but for no longer than `linger`: then it answers what is to be told of
/// the branch before they are spawned.
pub(crate) async fn wait_for_room(
    services: &Services,
    branch: (JobId, BranchNo),
    in_flight: u64,
    more: u64,
    linger: Duration,
) -> Result<Option<BranchWatch>, Failure> {
    let (env, since) = (&services.env, services.env.instant());
    loop {
        let branches = retry_unavailable!(services.store.inspect().branches(branch.0))?;
        let Some(branch) = branches.into_iter().find(|kept| kept.number == branch.1) else { return Ok(None) };
        let (spawned, ended) = (branch.spawned.max(0) as u64, branch.counts.ended().max(0) as u64);
        let live = spawned.saturating_sub(ended);
        // A block is never larger than the chunk, and so fits in an empty branch.
        if live + more <= in_flight.max(more) {
            return Ok(None);
        }
        let left = linger.saturating_sub(env.since(since));
        if left < MIN_INTERVAL {
            let ended = Some((spawned + more).saturating_sub(in_flight.max(more)));
            return Ok(Some(BranchWatch {
                ended,
                poll_interval: PollInterval::default(),
                ..BranchWatch::default()
            }));
        }
        env.sleep((linger / 8).clamp(MIN_INTERVAL, left)).await;
    }
}
