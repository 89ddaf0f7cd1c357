//! A branch as people see it: its progress, its rate, and what blocks it. Pure: reads nothing from the store.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use windlass::{
    JobId, Merge, State, Time,
    store::{Branch, Summary},
};

use crate::{durations, out};

/// A poll this late is worth a note: workers poll within seconds.
const LATE: Duration = Duration::from_secs(30);

/// The job that opened the branches.
pub(crate) struct Parent {
    pub(crate) id: JobId,
    pub(crate) kind: String,
    pub(crate) key: Option<String>,
    pub(crate) state: State,
}

impl Parent {
    pub(crate) fn new(job: &Summary) -> Parent {
        Parent { id: job.id, kind: job.kind.clone(), key: job.key.clone(), state: job.state }
    }
}

/// Whether a branch is merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MergeState {
    Merged,
    /// The parent waits for its merge.
    Merging,
    /// The parent has not started to merge it.
    Unmerged,
    /// It was not merged, and its children are being cancelled.
    Cancelling,
}

impl MergeState {
    fn name(self) -> &'static str {
        match self {
            MergeState::Merged => "merged",
            MergeState::Merging => "merging",
            MergeState::Unmerged => "unmerged",
            MergeState::Cancelling => "cancelling",
        }
    }
}

/// One branch.
#[derive(Clone)]
pub(crate) struct BranchView {
    pub(crate) branch: Branch,
    pub(crate) merge_state: MergeState,
    pub(crate) merge: Option<Merge>,
    pub(crate) pending: u64,
    /// How many of the pending children were never started, as far as the last poll knows.
    pub(crate) never_started: Option<u64>,
    /// How many children end per second, if known.
    pub(crate) rate: Option<f64>,
    /// What blocks it, and what to do about it. A note begins with a word and a colon.
    pub(crate) notes: Vec<String>,
}

impl BranchView {
    /// `rate` is measured by the caller; without it, the rate of the last poll is used.
    pub(crate) fn new(
        branch: Branch,
        parent: &Parent,
        rate: Option<f64>,
        now: Time,
        program: &str,
    ) -> BranchView {
        let merge = branch.goal.as_deref().and_then(|goal| serde_json::from_str(goal).ok());
        // After a failed merge the parent may be retried and merge it again.
        let merged = branch.merged && branch.watch.is_none();
        let merge_state = match (merged, branch.cancels_children, &merge) {
            (true, ..) => MergeState::Merged,
            (false, true, _) => MergeState::Cancelling,
            (false, false, Some(_)) if !parent.state.is_final() => MergeState::Merging,
            (false, false, _) => MergeState::Unmerged,
        };
        let pending = count(branch.spawned - branch.counts.ended());
        // Children in their first attempt are known to the last poll only.
        let never = count(branch.spawned - branch.counts.started).min(count(branch.poll.never_started));
        let never_started = branch.poll.at.map(|_| never.min(pending));
        let rate = rate.or((branch.poll.polls > 1).then_some(branch.poll.rate));
        let mut view =
            BranchView { branch, merge_state, merge, pending, never_started, rate, notes: Vec::new() };
        view.notes = view.find_notes(parent, now, program);
        view
    }

    pub(crate) fn unsuccessful(&self) -> u64 {
        count(self.branch.counts.unsuccessful())
    }

    pub(crate) fn ended(&self) -> u64 {
        count(self.branch.counts.ended())
    }

    pub(crate) fn spawned(&self) -> u64 {
        count(self.branch.spawned)
    }

    /// Whether it cannot be merged until somebody retries children.
    pub(crate) fn is_blocked(&self) -> bool {
        let waits = self.merge.as_ref().is_some_and(Merge::waits_for_unsuccessful);
        self.merge_state == MergeState::Merging && waits && self.unsuccessful() > 0
    }

    /// Whether nothing more is expected of it.
    pub(crate) fn is_over(&self, parent: &Parent) -> bool {
        self.merge_state == MergeState::Merged || (parent.state.is_final() && self.pending == 0)
    }

    /// How long the pending children take at this rate.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        time_left(self.pending, self.rate)
    }

    /// Its state in one or two words.
    pub(crate) fn state(&self) -> String {
        let sealed = if self.branch.sealed { "sealed" } else { "unsealed" };
        match self.merge_state {
            MergeState::Merged if self.branch.cancels_children => "merged, the rest is cancelled".to_owned(),
            MergeState::Merged => "merged".to_owned(),
            other => format!("{sealed}, {}", other.name()),
        }
    }

    fn find_notes(&self, parent: &Parent, now: Time, program: &str) -> Vec<String> {
        let id = parent.id;
        let mut notes = Vec::new();
        if self.is_blocked() {
            notes.push(blocked(self.unsuccessful(), id, Some(&self.branch.name), program));
        }
        let full = self.branch.watch.as_ref().filter(|_| !self.branch.sealed).and_then(|watch| watch.ended);
        if let Some(ended) = full.filter(|ended| *ended > self.ended()) {
            let ended = out::thousands(ended);
            notes.push(format!(
                "full: the limit of children in flight is reached; more are spawned when {ended} have ended"
            ));
        }
        if self.branch.cancels_children && self.pending > 0 {
            let children = out::counted(self.pending, "child is", "children are");
            notes.push(format!("cancelling: {children} being cancelled"));
        } else if parent.state.is_final() && self.pending > 0 {
            let (children, state) = (out::counted(self.pending, "child is", "children are"), parent.state);
            let cancel = format!("`{program} cancel {id} --children` cancels them");
            notes.push(match self.merge_state {
                MergeState::Merged => format!("orphaned: the job is {state}, and {children} live; {cancel}"),
                _ => format!(
                    "orphaned: the job is {state}, and {children} live that nothing waits for; {cancel}, `{program} retry \
                     {id}` continues the job"
                ),
            });
        }
        let late = self.branch.poll.next_at.map(|at| now.since(at)).filter(|late| *late > LATE);
        if let Some(late) = late {
            let late = durations::format(late);
            notes.push(format!(
                "overdue: workers should have polled it {late} ago; start one: `{program} worker`, or your program"
            ));
        }
        notes
    }

    pub(crate) fn to_json(&self) -> Value {
        let Branch {
            number, name, spawns, sealed, cancels_children, counts, opened_at, merged_at, poll, ..
        } = &self.branch;
        json!({
            "name": name, "number": number, "spawns": spawns, "merge_state": self.merge_state, "sealed": sealed,
            "cancels_children": cancels_children,
            "spawned": self.spawned(), "done": counts.done, "failed": counts.failed, "cancelled": counts.cancelled,
            "pending": self.pending, "never_started": self.never_started, "rate": self.rate,
            "eta_seconds": self.time_left().map(|left| left.as_secs_f64()),
            "merge": self.merge.as_ref().map(Merge::to_string), "blocked": self.is_blocked(), "notes": self.notes,
            "opened_at": opened_at, "merged_at": merged_at,
            "last_poll_at": poll.at, "next_poll_at": poll.next_at, "poll_interval_seconds": poll.interval,
            "polls": poll.polls, "redelivered": poll.redelivered, "redelivered_at": poll.redelivered_at,
        })
    }
}

/// The note about children that block a merge, in one branch or in several.
fn blocked(unsuccessful: u64, id: JobId, branch: Option<&str>, program: &str) -> String {
    let children = out::counted(unsuccessful, "unsuccessful child", "unsuccessful children");
    let branch = branch.map(|name| format!(" --branch {}", out::plain(name))).unwrap_or_default();
    format!(
        "{BLOCKED} the merge waits for {children}; fix the cause (`{program} branches {id} --children --only failed` lists \
         them), then `{program} redrive {id}{branch}`"
    )
}

/// The notes of several branches in a table: one for all that are blocked, and the others with the name of their branch.
pub(crate) fn notes(views: &[BranchView], id: JobId, program: &str) -> Vec<String> {
    let stuck: Vec<&BranchView> = views.iter().filter(|view| view.is_blocked()).collect();
    let together = stuck.len() > 1;
    let mut notes = Vec::new();
    if together {
        notes.push(blocked(stuck.iter().map(|view| view.unsuccessful()).sum(), id, None, program));
    }
    for view in views {
        let own = view.notes.iter().filter(|note| !together || !note.starts_with(BLOCKED));
        notes.extend(own.map(|note| match note.split_once(": ") {
            Some((word, rest)) => format!("{word}: {}: {rest}", out::plain(&view.branch.name)),
            None => note.clone(),
        }));
    }
    notes
}

/// How the note about a blocked merge begins.
const BLOCKED: &str = "blocked:";

/// The totals of all branches that are not merged.
pub(crate) struct Totals {
    pub(crate) branches: usize,
    pub(crate) spawned: u64,
    pub(crate) done: u64,
    pub(crate) unsuccessful: u64,
    pub(crate) pending: u64,
    pub(crate) never_started: Option<u64>,
    pub(crate) rate: Option<f64>,
}

impl Totals {
    pub(crate) fn of(views: &[BranchView]) -> Totals {
        let open = || views.iter().filter(|view| view.merge_state != MergeState::Merged);
        let sum = |field: &dyn Fn(&BranchView) -> u64| open().map(field).sum();
        // The rate of a finished branch says nothing about the rest.
        let rates: Vec<f64> = open().filter(|view| view.pending > 0).filter_map(|view| view.rate).collect();
        let never: Vec<u64> = open().filter_map(|view| view.never_started).collect();
        Totals {
            branches: open().count(),
            spawned: sum(&BranchView::spawned),
            done: sum(&|view| count(view.branch.counts.done)),
            unsuccessful: sum(&BranchView::unsuccessful),
            pending: sum(&|view| view.pending),
            never_started: (!never.is_empty()).then(|| never.iter().sum()),
            rate: (!rates.is_empty()).then(|| rates.iter().sum()),
        }
    }

    /// How long all pending children take: their number divided by the sum of the rates.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        time_left(self.pending, self.rate)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "branches": self.branches, "spawned": self.spawned, "done": self.done,
            "unsuccessful": self.unsuccessful, "pending": self.pending,
            "never_started": self.never_started, "rate": self.rate,
            "eta_seconds": self.time_left().map(|left| left.as_secs_f64()),
        })
    }
}

fn time_left(pending: u64, rate: Option<f64>) -> Option<Duration> {
    let rate = rate.filter(|rate| *rate > 0.0 && pending > 0)?;
    Duration::try_from_secs_f64(pending as f64 / rate).ok()
}

fn count(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
