//! Finds the timeouts that somebody could still prevent by sending a signal: `Lab::run` does not set the clock to them.
//!
//! Such a timeout is that of a wait for a signal, a sleep beside one, and the deadline of the job; also those of a job that waits for a
//! child that waits for a signal. Retries and ticks of a workflow that also waits for a signal are none.

use std::collections::BTreeSet;

use windlass_model::{
    JobId, State, Time, WaitCondition,
    branch::BRANCH_SIGNAL,
    journal::{CallEvent, CallKind},
    wait::CHILD_SIGNAL,
};
use windlass_store::{Error, Filter, Inspect, Job, Store, Summary};

use super::shared::Shared;

/// The most jobs in one read.
const PAGE: usize = 1_000;

/// Whether a signal can end the wait that somebody sends, and not the store itself.
pub(super) fn waits_for_sent_signal(wait: &WaitCondition) -> bool {
    wait.names().any(|name| name != CHILD_SIGNAL && name != BRANCH_SIGNAL)
}

/// Whether the end of a child can end the wait.
fn waits_for_children(wait: &WaitCondition) -> bool {
    let mut names = wait.names();
    matches!(wait, WaitCondition::Children { .. })
        || names.any(|name| name == CHILD_SIGNAL || name == BRANCH_SIGNAL)
}

/// Notes the jobs of a store that wait already.
pub(super) async fn note_waiting_jobs(store: &dyn Store, shared: &Shared) -> Result<(), Error> {
    let mut filter = Filter { state: Some(State::Waiting), limit: PAGE, ..Filter::default() };
    loop {
        let page = store.inspect().jobs(&filter).await?;
        page.jobs.iter().for_each(|job| shared.add_signal_wait(job.id));
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return Ok(()),
        }
    }
}

/// Returns the first timeout that a signal could still prevent. Jobs of other kinds than workflows wait for one thing at a time.
pub(super) async fn first_preventable(
    store: &dyn Store,
    shared: &Shared,
    is_workflow: impl Fn(&Summary) -> bool,
) -> Result<Option<Time>, Error> {
    let inspect = store.inspect();
    let mut first: Option<Time> = None;
    let mut seen = BTreeSet::new();
    for id in shared.signal_waits() {
        let mut next = waiting(inspect, id, waits_for_sent_signal).await?;
        if next.is_none() {
            shared.remove_signal_wait(id);
        }
        // A parent that waits for the job waits for its signal.
        while let Some(job) = next.filter(|job| seen.insert(job.summary.id)) {
            let timeout = match job.wait_until {
                Some(at) if !is_workflow(&job.summary) || is_timeout(inspect, job.summary.id, at).await? => {
                    Some(at)
                }
                _ => None,
            };
            let times = timeout.into_iter().chain(job.deadline_at).filter(|at| *at > shared.now());
            first = first.into_iter().chain(times).min();
            next = match job.parent {
                Some(parent) => waiting(inspect, parent, waits_for_children).await?,
                None => None,
            };
        }
    }
    Ok(first)
}

/// Returns a job if it is parked for something like this.
async fn waiting(
    inspect: &dyn Inspect,
    id: JobId,
    wanted: fn(&WaitCondition) -> bool,
) -> Result<Option<Job>, Error> {
    let is_wanted = |job: &Job| job.summary.state == State::Waiting && job.wait.as_ref().is_some_and(wanted);
    Ok(inspect.job(id).await?.filter(is_wanted))
}

/// Whether the timer of a parked workflow is a timeout or a sleep, and not that of a retry or of a tick, which must run.
async fn is_timeout(inspect: &dyn Inspect, job: JobId, until: Time) -> Result<bool, Error> {
    let journal = inspect.journal(job, None, usize::MAX).await?;
    Ok(journal.iter().any(|entry| {
        let can_time_out = matches!(
            entry.call_kind,
            CallKind::Signal | CallKind::ContinueIf | CallKind::Sleep | CallKind::Merge
        );
        can_time_out
            && entry.event == CallEvent::Begun
            && serde_json::from_slice::<Time>(&entry.payload.bytes).is_ok_and(|due| due == until)
    }))
}
