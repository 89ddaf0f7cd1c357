//! Polls branches while their parents wait: finds parents that were not notified, children that were lost, and children
//! of cancelled branches that still live. It has a task of its own, so that no queue can hold it up.

use std::{sync::Arc, time::Duration};

use windlass_model::{BranchNo, JobId};
use windlass_store::{Actor, BranchChildFilter, ChildStates, Error, JobAction, PollReport};

use crate::{backoff::Backoff, core::Core, telemetry::StoreCall};

/// How many branches are polled in one call.
const BATCH: usize = 100;
/// How many children of a branch are cancelled in one call.
const CHILDREN: usize = 500;
/// How long running children of a cancelled branch have to end by themselves.
const GRACE: Duration = Duration::from_secs(10);
/// The shortest time between two polls of one worker, however many branches are due.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new(&core.env, "polling branches");
    loop {
        let changed = core.branches_changed.notified();
        let wait = tick(&core, &mut backoff).await;
        tokio::select! {
            () = core.env.sleep(wait) => {}
            () = changed => {}
            () = core.stopping() => return,
        }
    }
}

/// One pass; returns how long to wait for the next.
async fn tick(core: &Core, backoff: &mut Backoff) -> Duration {
    let wait = match core.store.poll_branches(None, BATCH).await {
        Ok(report) => {
            backoff.reset();
            let wait = report.next_at.map(|at| (at - report.now).max(MIN_INTERVAL));
            handle(core, report).await;
            wait
        }
        Err(error) => {
            core.metrics.count_error(StoreCall::PollBranches);
            backoff.wait(&error).await;
            Some(Duration::ZERO)
        }
    };
    wait.unwrap_or(core.config.check_interval).min(core.config.check_interval)
}

/// Does what follows from a poll.
async fn handle(core: &Core, report: PollReport) {
    if report.notified + report.redelivered > 0 {
        tracing::warn!(
            notified = report.notified,
            redelivered = report.redelivered,
            "parents of branches had not been notified, or children had been lost; they continue now"
        );
        core.wake_pools();
    }
    if report.corrected > 0 {
        tracing::warn!(
            branches = report.corrected,
            "the counts of children of branches were wrong; they are corrected"
        );
    }
    for (job, branch) in report.to_cancel {
        if let Err(error) = cancel_children(core, job, branch).await {
            // A later poll reports the branch again.
            tracing::debug!(%error, %job, "the children of a branch could not be cancelled");
        }
    }
}

/// Cancels the children of a branch that have not ended.
async fn cancel_children(core: &Core, job: JobId, branch: BranchNo) -> Result<(), Error> {
    let actor = Actor { author: "windlass".into(), note: Some(format!("its branch of job {job} is over")) };
    let mut filter =
        BranchChildFilter { job, branch, states: ChildStates::Live, after: None, limit: CHILDREN };
    loop {
        let children = core.store.inspect().branch_children(&filter).await?;
        let ids: Vec<JobId> = children.iter().map(|child| child.summary.id).collect();
        core.store.control().act_on_jobs(None, &ids, JobAction::Cancel { grace: GRACE }, &actor).await?;
        if ids.len() < CHILDREN || core.is_stopping() {
            return Ok(());
        }
        filter.after = ids.last().copied();
    }
}
