//! One branch: its progress, its rate, and what blocks it. Pure: reads nothing from the store.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_model::{BranchNo, JobId, Merge, State, Time};
use windlass_store::{Branch, BranchTimes, Summary};

use super::throughput::Percentiles;
use crate::text;

/// A poll this late is worth a note: workers poll within seconds.
const LATE: Duration = Duration::from_secs(30);

/// Whether a branch is merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeState {
    /// It is merged.
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

/// A branch of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BranchView {
    /// Its name.
    pub name: String,
    /// Its number among those of its job.
    pub number: BranchNo,
    /// The names of its spawns.
    pub spawns: Vec<String>,
    /// Whether it is merged.
    pub merge_state: MergeState,
    /// Whether no more children will be spawned.
    pub sealed: bool,
    /// Whether its live children are being cancelled.
    pub cancels_children: bool,
    /// How many children it has.
    pub spawned: u64,
    /// How many of them are done.
    pub done: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// How many have not ended.
    pub pending: u64,
    /// How many of the pending children were never started, as far as the last poll knows.
    pub never_started: Option<u64>,
    /// How many children end per second, if known.
    pub rate: Option<f64>,
    /// How long the pending children take at this rate, in seconds.
    pub eta_seconds: Option<f64>,
    /// How it is merged, in words.
    pub merge: Option<String>,
    /// Whether it cannot be merged until somebody retries children.
    pub blocked: bool,
    /// What blocks it, and what to do about it. A note begins with a word and a colon.
    pub notes: Vec<String>,
    /// When it was opened.
    pub opened_at: Time,
    /// When it was merged; it may be merged again if its job is retried.
    pub merged_at: Option<Time>,
    /// When workers polled it last.
    pub last_poll_at: Option<Time>,
    /// When they poll it next.
    pub next_poll_at: Option<Time>,
    /// The seconds between the two.
    pub poll_interval_seconds: f64,
    /// How often it was polled.
    pub polls: u32,
    /// How many lost children were put back into the ready set.
    pub redelivered: u64,
    /// When the last of them was.
    pub redelivered_at: Option<Time>,
    /// When its children were spawned, started and ended, and how long that took.
    pub times: BranchTimesView,
}

/// The times of a branch: of spawning, and of the children that have ended. Those of a block are the block's.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct BranchTimesView {
    /// When it was sealed.
    pub sealed_at: Option<Time>,
    /// How long spawning took, in seconds; until now if it is not sealed.
    pub spawn_seconds: f64,
    /// How many children were spawned per second in that time; `None` if it took none.
    pub spawn_rate: Option<f64>,
    /// When the first child started, of those that have ended.
    pub first_start_at: Option<Time>,
    /// When the last one ended.
    pub last_end_at: Option<Time>,
    /// How many children ended per second, from when it was opened until the last one ended.
    pub end_rate: Option<f64>,
    /// How long children waited from when they were due until the attempt started that ended them.
    pub wait: Percentiles,
    /// How long that attempt ran.
    pub run: Percentiles,
}

impl BranchTimesView {
    fn new(branch: &Branch, times: &BranchTimes, now: Time) -> BranchTimesView {
        let opened_at = branch.opened_at;
        let per_second = |count: i64, took: Duration| {
            let seconds = took.as_secs_f64();
            (seconds > 0.0).then(|| count.max(0) as f64 / seconds)
        };
        let spawning = branch.sealed_at.unwrap_or(now) - opened_at;
        BranchTimesView {
            sealed_at: branch.sealed_at,
            spawn_seconds: spawning.as_secs_f64(),
            spawn_rate: per_second(branch.spawned, spawning),
            first_start_at: times.first_start_at,
            last_end_at: times.last_end_at,
            end_rate: times.last_end_at.and_then(|last| per_second(branch.counts.ended(), last - opened_at)),
            wait: Percentiles::of(&times.wait_times),
            run: Percentiles::of(&times.run_times),
        }
    }
}

impl BranchView {
    pub(super) fn new(branch: Branch, times: &BranchTimes, parent: &Summary, now: Time) -> BranchView {
        let merge: Option<Merge> =
            branch.merge_record.as_deref().and_then(|record| serde_json::from_str(record).ok());
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
        let rate = (branch.poll.polls > 1).then_some(branch.poll.rate);
        let waits = merge.as_ref().is_some_and(Merge::waits_for_unsuccessful);
        let unsuccessful = count(branch.counts.unsuccessful());
        let mut view = BranchView {
            number: branch.number,
            merge_state,
            sealed: branch.sealed,
            cancels_children: branch.cancels_children,
            spawned: count(branch.spawned),
            done: count(branch.counts.done),
            failed: count(branch.counts.failed),
            cancelled: count(branch.counts.cancelled),
            pending,
            never_started: branch.poll.at.map(|_| never.min(pending)),
            rate,
            eta_seconds: eta_seconds(pending, rate),
            merge: merge.as_ref().map(Merge::to_string),
            blocked: merge_state == MergeState::Merging && waits && unsuccessful > 0,
            notes: Vec::new(),
            opened_at: branch.opened_at,
            merged_at: branch.merged_at,
            last_poll_at: branch.poll.at,
            next_poll_at: branch.poll.next_at,
            poll_interval_seconds: branch.poll.interval,
            polls: branch.poll.polls,
            redelivered: branch.poll.redelivered,
            redelivered_at: branch.poll.redelivered_at,
            times: BranchTimesView::new(&branch, times, now),
            spawns: branch.spawns,
            name: branch.name,
        };
        let room = branch.watch.as_ref().filter(|_| !view.sealed).and_then(|watch| watch.ended);
        view.notes = view.find_notes(parent, room, now);
        view
    }

    /// Sets how many children end per second.
    pub(super) fn set_rate(&mut self, rate: f64) {
        self.rate = Some(rate);
        self.eta_seconds = eta_seconds(self.pending, self.rate);
    }

    /// How many children have ended.
    pub fn ended(&self) -> u64 {
        self.done + self.unsuccessful()
    }

    /// How many children failed or were cancelled.
    pub fn unsuccessful(&self) -> u64 {
        self.failed + self.cancelled
    }

    /// Whether nothing more is expected of it, given the state of its job.
    pub fn is_over(&self, parent: State) -> bool {
        self.merge_state == MergeState::Merged || (parent.is_final() && self.pending == 0)
    }

    /// How long the pending children take at this rate.
    pub fn time_left(&self) -> Option<Duration> {
        self.eta_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// Its state in one or two words.
    pub fn state(&self) -> String {
        let sealed = if self.sealed { "sealed" } else { "unsealed" };
        match self.merge_state {
            MergeState::Merged if self.cancels_children => "merged, the rest is cancelled".to_owned(),
            MergeState::Merged => "merged".to_owned(),
            other => format!("{sealed}, {}", other.name()),
        }
    }

    /// `room` is how many children must have ended before an unsealed branch spawns more.
    fn find_notes(&self, parent: &Summary, room: Option<u64>, now: Time) -> Vec<String> {
        let id = parent.id;
        let mut notes = Vec::new();
        if self.blocked {
            notes.push(blocked(self.unsuccessful(), id, Some(&self.name)));
        }
        if let Some(ended) = room.filter(|ended| *ended > self.ended()) {
            let ended = text::thousands(ended);
            notes.push(format!(
                "full: the limit of children in flight is reached; more are spawned when {ended} have ended"
            ));
        }
        if self.cancels_children && self.pending > 0 {
            let children = text::counted(self.pending, "child is", "children are");
            notes.push(format!("cancelling: {children} being cancelled"));
        } else if parent.state.is_final() && self.pending > 0 {
            notes.push(self.orphaned(parent));
        }
        let late = self.next_poll_at.map(|at| now - at).filter(|late| *late > LATE);
        if let Some(late) = late {
            let late = text::duration(late);
            notes.push(format!(
                "overdue: workers should have polled it {late} ago; start one: `windlass worker`, or your program"
            ));
        }
        notes
    }

    fn orphaned(&self, parent: &Summary) -> String {
        let (id, state) = (parent.id, parent.state);
        let children = text::counted(self.pending, "child is", "children are");
        let cancel = format!("`windlass cancel {id} --children` cancels them");
        match self.merge_state {
            MergeState::Merged => format!("orphaned: the job is {state}, and {children} live; {cancel}"),
            _ => format!(
                "orphaned: the job is {state}, and {children} live that nothing waits for; {cancel}, \
                 `windlass retry {id}` continues the job"
            ),
        }
    }
}

/// How the note about a blocked merge begins.
const BLOCKED: &str = "blocked:";

/// The note about children that block a merge, in one branch or in several.
fn blocked(unsuccessful: u64, id: JobId, branch: Option<&str>) -> String {
    let children = text::counted(unsuccessful, "unsuccessful child", "unsuccessful children");
    let branch = branch.map(|name| format!(" --branch {name}")).unwrap_or_default();
    format!(
        "{BLOCKED} the merge waits for {children}; fix the cause (`windlass branches {id} --children --only failed` lists \
         them), then `windlass redrive {id}{branch}`"
    )
}

/// The notes of several branches of a job in one list: one for all that are blocked, and the others with the name of their branch.
pub(super) fn joint_notes(views: &[BranchView], id: JobId) -> Vec<String> {
    let stuck: Vec<&BranchView> = views.iter().filter(|view| view.blocked).collect();
    let together = stuck.len() > 1;
    let mut notes = Vec::new();
    if together {
        notes.push(blocked(stuck.iter().map(|view| view.unsuccessful()).sum(), id, None));
    }
    for view in views {
        let own = view.notes.iter().filter(|note| !together || !note.starts_with(BLOCKED));
        notes.extend(own.map(|note| match note.split_once(": ") {
            Some((word, rest)) => format!("{word}: {}: {rest}", view.name),
            None => note.clone(),
        }));
    }
    notes
}

/// The totals of all branches that are not merged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Totals {
    /// How many branches.
    pub branches: usize,
    /// How many children they have.
    pub spawned: u64,
    /// How many of them are done.
    pub done: u64,
    /// How many failed or were cancelled.
    pub unsuccessful: u64,
    /// How many have not ended.
    pub pending: u64,
    /// How many of these were never started, if known.
    pub never_started: Option<u64>,
    /// How many children end per second, if known.
    pub rate: Option<f64>,
    /// How long all pending children take: their number divided by the sum of the rates.
    pub eta_seconds: Option<f64>,
}

impl Totals {
    pub(super) fn of(views: &[BranchView]) -> Totals {
        let open = || views.iter().filter(|view| view.merge_state != MergeState::Merged);
        let sum = |field: &dyn Fn(&BranchView) -> u64| open().map(field).sum();
        // The rate of a finished branch says nothing about the rest.
        let rates: Vec<f64> = open().filter(|view| view.pending > 0).filter_map(|view| view.rate).collect();
        let never: Vec<u64> = open().filter_map(|view| view.never_started).collect();
        let (pending, rate) = (sum(&|view| view.pending), (!rates.is_empty()).then(|| rates.iter().sum()));
        Totals {
            branches: open().count(),
            spawned: sum(&|view| view.spawned),
            done: sum(&|view| view.done),
            unsuccessful: sum(&BranchView::unsuccessful),
            pending,
            never_started: (!never.is_empty()).then(|| never.iter().sum()),
            rate,
            eta_seconds: eta_seconds(pending, rate),
        }
    }

    /// How long all pending children take.
    pub fn time_left(&self) -> Option<Duration> {
        self.eta_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}

fn eta_seconds(pending: u64, rate: Option<f64>) -> Option<f64> {
    let rate = rate.filter(|rate| *rate > 0.0 && pending > 0)?;
    let left = Duration::try_from_secs_f64(pending as f64 / rate).ok()?;
    Some(left.as_secs_f64())
}

fn count(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
