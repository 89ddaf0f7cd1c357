//! The branches of a job at one time, their current rate, and why one has stalled.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use windlass_model::{BranchNo, JobId, State, Time};
use windlass_store::{Branch, BranchChildFilter, BranchTimes, ChildBounds, ChildStates, Inspect};
use windlass_workflow::Error;

use super::branch::{BranchView, MergeState, Totals, joint_notes};
use crate::{Operator, budget::EXAMINED, items::branches_named};

/// A rate is measured over this time: long enough to be steady, short enough to be current.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// A branch has stalled if nothing ended in it for this long.
const STALL: Duration = Duration::from_secs(5);
/// How the note about a stalled branch begins.
const STALLED: &str = "stalled:";
/// How many stalled branches are explained: it takes several queries each.
const EXPLAINED: usize = 3;

/// Measures the rate of each branch from views that were read one after the other.
#[derive(Default)]
pub struct RateMeter {
    samples: VecDeque<(Instant, BTreeMap<BranchNo, u64>)>,
}

impl RateMeter {
    /// Adds a view that was read at this time, and replaces its rates by those that are measured.
    pub fn measure(&mut self, at: Instant, view: &mut BranchesView) {
        self.add(at, &view.branches);
        for branch in &mut view.branches {
            if let Some(rate) = self.rate(branch.number) {
                branch.set_rate(rate);
            }
        }
        view.unmerged = Totals::of(&view.branches);
    }

    fn add(&mut self, at: Instant, branches: &[BranchView]) {
        let ended = branches.iter().map(|branch| (branch.number, branch.ended()));
        self.samples.push_back((at, ended.collect()));
        while self.samples.len() > 2
            && self.samples.front().is_some_and(|(first, _)| at - *first > RATE_WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// How many children of a branch ended per second; `None` before the second sample.
    fn rate(&self, number: BranchNo) -> Option<f64> {
        let ended = |(at, ended): &(Instant, BTreeMap<BranchNo, u64>)| Some((*at, *ended.get(&number)?));
        let first = self.samples.iter().find_map(ended)?;
        let last = self.samples.iter().rev().find_map(ended)?;
        let seconds = (last.0 - first.0).as_secs_f64();
        // A retried child no longer counts as ended, so the difference may be negative.
        (seconds > 0.0).then(|| (last.1 as f64 - first.1 as f64).max(0.0) / seconds)
    }
}

/// The branches of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BranchesView {
    /// The job that opened them.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// Its key.
    pub key: Option<String>,
    /// Its state.
    pub state: State,
    /// The store's clock.
    pub now: Time,
    /// The branches, by number.
    pub branches: Vec<BranchView>,
    /// The totals of those that are not merged.
    pub unmerged: Totals,
}

impl BranchesView {
    /// Reads all branches of a job, or those of one name, with the rates of their last polls.
    pub async fn read(operator: &Operator, job: JobId, branch: Option<&str>) -> Result<BranchesView, Error> {
        let inspect = operator.inspect();
        let parent = inspect.job(job).await?.ok_or(Error::NoSuchJob(job))?.summary;
        let branches = branches_named(inspect.branches(job).await?, job, branch)?;
        let now = inspect.clock().await?;
        let times = times_of(inspect, job, &branches).await?;
        let view = |branch: Branch| {
            let times = times.get(&branch.number).cloned().unwrap_or_default();
            BranchView::new(branch, &times, &parent, now)
        };
        let branches: Vec<BranchView> = branches.into_iter().map(view).collect();
        let unmerged = Totals::of(&branches);
        Ok(BranchesView {
            job,
            kind: parent.kind,
            key: parent.key,
            state: parent.state,
            now,
            branches,
            unmerged,
        })
    }

    /// Whether nothing more is expected of any branch.
    pub fn is_over(&self) -> bool {
        match self.branches.is_empty() {
            true => self.state.is_final(),
            false => self.branches.iter().all(|view| view.is_over(self.state)),
        }
    }

    /// The notes of all branches in one list: one for all that are blocked, and the others with the name of their branch.
    pub fn notes(&self) -> Vec<String> {
        joint_notes(&self.branches, self.job)
    }

    /// Adds a note to branches in which nothing ends: why the first live child is in its state.
    pub async fn explain_stalls(&mut self, operator: &Operator) -> Result<(), Error> {
        let now = self.now;
        for view in self.branches.iter_mut().filter(|view| is_stalled(view, now)).take(EXPLAINED) {
            let (job, branch) = (self.job, view.number);
            let live = BranchChildFilter { job, branch, states: ChildStates::Live, after: None, limit: 1 };
            // Behind more that have ended it is not looked for.
            let bounds = ChildBounds { examine: EXAMINED, bytes: 0 };
            let mut page = operator.inspect().branch_children_page(&live, bounds).await?;
            let Some(first) = page.children.pop() else { continue };
            let id = first.summary.id;
            let Some(why) = operator.why(id).await? else { continue };
            let (because, hint) = (why.because, why.hint);
            view.notes.push(format!("{STALLED} no child ends. The first live one, {id}: {because} {hint}"));
        }
        Ok(())
    }

    /// Takes the notes that [`BranchesView::explain_stalls`] added, by the numbers of their branches.
    pub fn take_stalls(&mut self) -> BTreeMap<BranchNo, Vec<String>> {
        let take = |view: &mut BranchView| {
            let (stalls, notes) = view.notes.drain(..).partition(|note| note.starts_with(STALLED));
            view.notes = notes;
            (view.number, stalls)
        };
        self.branches.iter_mut().map(take).collect()
    }
}

/// The times of the branches of a job, by number. Reads nothing if there are no branches.
pub(super) async fn times_of(
    inspect: &dyn Inspect,
    job: JobId,
    branches: &[Branch],
) -> Result<BTreeMap<BranchNo, BranchTimes>, Error> {
    if branches.is_empty() {
        return Ok(BTreeMap::new());
    }
    let times = inspect.branch_times(job).await?;
    Ok(times.into_iter().map(|times| (times.branch, times)).collect())
}

pub(super) fn is_stalled(view: &BranchView, now: Time) -> bool {
    let since = view.last_poll_at.unwrap_or(view.opened_at).max(view.opened_at);
    let known = view.rate.is_some() || now - since >= STALL;
    let open = view.merge_state != MergeState::Merged && !view.cancels_children && view.pending > 0;
    open && known && view.rate.unwrap_or(0.0) <= 0.0
}
