//! Looking after branches while their parents wait: the backstop for parents that were not told, children that were lost,
//! and what is left of branches that were cut. It has a task of its own, so that no queue can hold it up.

use std::{sync::Arc, time::Duration};

use windlass_model::{BranchNo, JobId};
use windlass_store::{Actor, BranchChildFilter, ChildStates, Error, JobAction, PollReport};

use crate::{metrics::Verb, retrying::Backoff, worker::Core};

/// How many branches are looked at in one call.
const BATCH: usize = 100;
/// How many children of a branch that is cut are cancelled in one call.
const CHILDREN: usize = 500;
/// How long children that run have to end by themselves.
const GRACE: Duration = Duration::from_secs(10);
/// The shortest time between two looks of one worker, however many branches are due.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs until the worker stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut backoff = Backoff::new("looking at branches");
    loop {
        let changed = core.branches.notified();
        let wait = match core.store.poll_branches(None, BATCH).await {
            Ok(polled) => {
                backoff.reset();
                let wait = polled.next_at.map(|at| at.since(polled.now).max(PAUSE));
                follow(&core, polled).await;
                wait
            }
            Err(error) => {
                core.metrics.failed(Verb::Poll);
                backoff.wait(&error).await;
                Some(Duration::ZERO)
            }
        };
        let wait = wait.unwrap_or(core.config.safety).min(core.config.safety);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = changed => {}
            () = core.stopping() => return,
        }
    }
}

/// What follows from a look.
async fn follow(core: &Core, polled: PollReport) {
    if polled.notified + polled.redelivered > 0 {
        tracing::warn!(
            told = polled.notified,
            redelivered = polled.redelivered,
            "branches had come to what was waited for, or children of theirs were lost; they go on"
        );
        core.pools.iter().for_each(|pool| pool.wake());
    }
    if polled.corrected > 0 {
        tracing::warn!(
            branches = polled.corrected,
            "children of branches were counted wrong, and are counted anew"
        );
    }
    for (job, branch) in polled.to_cancel {
        if let Err(error) = cut(core, job, branch).await {
            // It is asked for again.
            tracing::debug!(%error, %job, "a branch could not be cut");
        }
    }
}

/// Cancels the children of a branch that have not ended.
async fn cut(core: &Core, job: JobId, branch: BranchNo) -> Result<(), Error> {
    let by = Actor { author: "windlass".into(), note: Some(format!("its branch of job {job} is over")) };
    let mut leaves = BranchChildFilter { job, branch, only: ChildStates::Live, after: None, limit: CHILDREN };
    loop {
        let page = core.store.inspect().branch_children(&leaves).await?;
        let ids: Vec<JobId> = page.iter().map(|leaf| leaf.summary.id).collect();
        core.store.control().act_on_jobs(None, &ids, JobAction::Cancel { grace: GRACE }, &by).await?;
        if ids.len() < CHILDREN || core.is_stopping() {
            return Ok(());
        }
        leaves.after = ids.last().copied();
    }
}
