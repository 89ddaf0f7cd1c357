//! Reads for people, and what they return.

mod audit;
mod branches;
pub(crate) mod details;
mod holds;
mod job;
mod overview;
mod page;
pub(crate) mod pulse;
mod schedule;
mod throughput;

pub use audit::{AuditEntry, AuditFilter};
pub use branches::{BranchRanges, ChildRange, OpenBranch, RangeChild};
pub use details::{
    FailureText, JobDetails, LastCall, ParkedJob, RunningDetails, Unsuccessful, UnsuccessfulFilter,
    UnsuccessfulJob, WaitDetails,
};
pub use holds::{CancelHold, Holds, Pause, RateHold, SerialHold, UnreadableSignalView, Waiting};
pub use job::{
    Attempt, ChildGroup, ChildPosition, Filter, Job, JobPage, MatchCount, Summary, Transition,
    TransitionCount,
};
pub use overview::{Backlog, LimitView, QueueView, SerialView, StateCount, WorkerView};
pub use page::{BranchChildPage, BranchItems, ChildBounds, ItemChild, JournalEnd, JournalHead, PayloadsOf};
pub use pulse::{JobPulse, MAX_PULSE_JOBS, Pulse};
pub use schedule::{Firing, Miss, ScheduleView};
pub use throughput::{
    BranchTimes, MAX_SIGNAL_NAMES, OTHER_SIGNALS, SignalWaitFilter, SignalWaits, Throughput, ThroughputBy,
    ThroughputFilter,
};

use windlass_model::{BranchNo, JobId, Rev};

use crate::{BranchChildFilter, Fut, Replay, SchemaState};

/// Reads for people: the command line, a dashboard, tests, `why`. People may also read what [`Replay`] reads.
///
/// Reads only: they see committed state, take no locks and may be slightly behind each other.
pub trait Inspect: Replay {
    /// Whether anything may have changed that people see: one light statement that reads no jobs but those named, of which there may be
    /// [`MAX_PULSE_JOBS`]. A server calls it every second in place of the reads of its pages.
    ///
    /// [`Pulse::store`] differs after any job was submitted, claimed, released, parked, woken, retried or has ended, after a queue, a limit
    /// or a schedule was changed, a worker came or went, people acted or an operation went on. It stays the same while nothing of that
    /// happens: leases that are renewed, roll-ups and steps of jobs that go on running do not change it.
    fn pulse<'a>(&'a self, jobs: &'a [JobId]) -> Fut<'a, Pulse>;

    /// Many jobs as lists show them, in the order of their ids here; `None` for one that does not exist. One statement.
    fn summaries<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<Summary>>>;

    /// Why many jobs are in their states, as far as their own rows say, in the order of their ids here; `None` for one that does not
    /// exist. A constant number of statements, which read no payloads.
    fn details<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobDetails>>>;

    /// Jobs that failed or were cancelled, in short: those that match among the newest `limit`, newest first. Walks an index of such jobs
    /// and reads no payloads.
    fn unsuccessful<'a>(&'a self, filter: &'a UnsuccessfulFilter, limit: usize) -> Fut<'a, Unsuccessful>;

    /// Parked jobs in short, the ones submitted first first, at most `limit`. Walks an index of such jobs and reads no payloads.
    fn parked(&self, limit: usize) -> Fut<'_, Vec<ParkedJob>>;

    /// The last entries in the journals of some jobs, in the order of their ids here; `None` for one without a journal. One statement.
    fn last_calls<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<LastCall>>>;

    /// Branches that are not merged, of all jobs: those of the newest jobs first, at most `limit`. Walks an index of such branches. Their
    /// times are as of the last roll-up.
    fn open_branches(&self, limit: usize) -> Fut<'_, Vec<OpenBranch>>;

    /// One job with everything that is known of it.
    fn job(&self, id: JobId) -> Fut<'_, Option<Job>>;

    /// Jobs that match, newest first, a page at a time. A read walks one index and examines a bounded number of jobs, so a page may have
    /// few jobs or none and still a [`JobPage::next`]. Whoever needs all jobs reads until that is `None`.
    fn jobs<'a>(&'a self, filter: &'a Filter) -> Fut<'a, JobPage>;

    /// How many jobs match, in each state that has any. [`Filter::before`] and [`Filter::limit`], which select a page, do not count. At most
    /// `most` jobs are examined, unless the counts are maintained: see [`Filter::has_maintained_counts`].
    fn count_jobs<'a>(&'a self, filter: &'a Filter, most: usize) -> Fut<'a, MatchCount>;

    /// A job's failed attempts, oldest first. A first-try success leaves none.
    fn history(&self, id: JobId) -> Fut<'_, Vec<Attempt>>;

    /// A machine's transitions, oldest first: those after revision `after`, at most `limit`.
    fn transitions(&self, id: JobId, after: Option<Rev>, limit: usize) -> Fut<'_, Vec<Transition>>;

    /// Jobs that one job submitted, oldest first: those after `after`, at most `limit`.
    fn children(&self, parent: JobId, after: Option<JobId>, limit: usize) -> Fut<'_, Vec<Summary>>;

    /// The children of a group that have not ended, newest first. Reads only the newest `among` children of the branch, or of those
    /// outside of branches.
    fn live_children(&self, parent: JobId, group: ChildGroup, among: usize) -> Fut<'_, Vec<Summary>>;

    /// Children of a branch as [`Replay::branch_children`] lists them, a page that is bounded in the children that it examines and in bytes.
    fn branch_children_page<'a>(
        &'a self,
        filter: &'a BranchChildFilter,
        bounds: ChildBounds,
    ) -> Fut<'a, BranchChildPage>;

    /// The children of a branch that have one of these items, or begin with one: by item, and then in the order of their ids. Reads one
    /// range of an index for each item, and no payloads. The other items of a block are in its payload alone.
    fn branch_items<'a>(&'a self, of: BranchItems<'a>) -> Fut<'a, Vec<ItemChild>>;

    /// How many bytes the payloads of the next rows have, at most `limit` of them: how many of these rows fit into a page. Reads no
    /// payload.
    fn payload_sizes<'a>(&'a self, of: PayloadsOf<'a>, limit: usize) -> Fut<'a, Vec<u64>>;

    /// The last entries of a journal, at most `limit`, without what their calls returned.
    fn journal_end(&self, id: JobId, limit: usize) -> Fut<'_, JournalEnd>;
    /// The first and the last child of a branch; `None` if it has none. Reads both ends of an index.
    fn branch_ends(&self, job: JobId, branch: BranchNo) -> Fut<'_, Option<ChildRange>>;

    /// The first children of some ranges of a branch, in short, by id, for each range in the order of the ranges. Walks one part of an index
    /// for each range and reads no payloads.
    fn branch_ranges<'a>(&'a self, of: BranchRanges<'a>) -> Fut<'a, Vec<Vec<RangeChild>>>;

    /// What keeps a job from running, if it exists and has not ended.
    fn holds(&self, id: JobId) -> Fut<'_, Option<Holds>>;

    /// The number of jobs in each state, per queue and kind. It is maintained, not counted: exact when nothing is written.
    fn state_counts(&self) -> Fut<'_, Vec<StateCount>>;

    /// How many jobs ended, and how long they waited and ran: by time, or by queue and kind. Rows are in the order of time, or of queue
    /// and kind; what has no row ended nothing. Maintained: exact when nothing is written, and it reads the sums of the span, never
    /// jobs.
    fn throughput<'a>(&'a self, filter: &'a ThroughputFilter) -> Fut<'a, Vec<Throughput>>;

    /// How long jobs waited for signals, by kind and signal. Maintained, as [`Inspect::throughput`] is.
    fn signal_waits<'a>(&'a self, filter: &'a SignalWaitFilter) -> Fut<'a, Vec<SignalWaits>>;

    /// The times of the branches of a job, by number, as far as children of theirs have ended. Maintained, as [`Inspect::throughput`]
    /// is.
    fn branch_times(&self, job: JobId) -> Fut<'_, Vec<BranchTimes>>;

    /// What waits and runs in each queue that has anything, by queue. For monitoring: each backend reads at most `cap` rows
    /// of each sort (ready set, timers, claims), however many there are, and none of ended jobs.
    fn backlog(&self, cap: u64) -> Fut<'_, Vec<Backlog>>;

    /// How often each transition was made by the machines of a kind: reads the newest `limit` of them.
    fn transition_counts<'a>(&'a self, kind: &'a str, limit: usize) -> Fut<'a, Vec<TransitionCount>>;

    /// Workers that serve or were lost lately.
    fn workers(&self) -> Fut<'_, Vec<WorkerView>>;

    /// All queues that were ever used.
    fn queues(&self) -> Fut<'_, Vec<QueueView>>;

    /// All rate limits.
    fn rate_limits(&self) -> Fut<'_, Vec<LimitView>>;

    /// Serial keys that are held or waited for, at most `limit` of them; with `key`, that one.
    fn serial_keys<'a>(&'a self, key: Option<&'a str>, limit: usize) -> Fut<'a, Vec<SerialView>>;

    /// All schedules, by name.
    fn schedules(&self) -> Fut<'_, Vec<ScheduleView>>;

    /// The jobs that a schedule submitted, newest first, at most `limit`.
    fn firings<'a>(&'a self, schedule: &'a str, limit: usize) -> Fut<'a, Vec<Firing>>;

    /// The ticks that a schedule missed, newest first, at most `limit` ranges.
    fn misses<'a>(&'a self, schedule: &'a str, limit: usize) -> Fut<'a, Vec<Miss>>;

    /// The audit log of [`crate::Control`], newest first: entries before number `before`, at most `limit`.
    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditEntry>>;

    /// The version of the schema.
    fn schema(&self) -> Fut<'_, SchemaState>;

    /// The size of the store in bytes.
    fn bytes(&self) -> Fut<'_, u64>;
}
