//! The second door: reads for people.

use serde::Serialize;
use windlass_model::{
    BranchCounts, BranchNo, BranchPoll, BranchPosition, BranchWatch, Epoch, Failure, JobId, JournalEntry,
    Payload, RateLimit, Reason, Rev, Schedule, Settings, Signal, State, Time, Unwind, WaitCondition,
    WorkerId, calendar::Missed,
};

use crate::{Fut, JobEnd, SchemaState, Serves};

/// Reads for people: command line, dashboard, tests. They see committed state, take no locks and may be
/// slightly behind each other.
pub trait Inspect: Send + Sync {
    /// One job with all that is known of it.
    fn job(&self, id: JobId) -> Fut<'_, Option<Job>>;

    /// Jobs that match, newest first, a page at a time.
    fn jobs<'a>(&'a self, filter: &'a Filter) -> Fut<'a, Vec<Summary>>;

    /// A job's failed attempts, oldest first. A first-try success leaves none.
    fn history(&self, id: JobId) -> Fut<'_, Vec<Attempt>>;

    /// How many jobs are in each state, per queue and kind, each count capped at `cap`.
    fn state_counts(&self, cap: u64) -> Fut<'_, Vec<StateCount>>;

    /// What waits and runs in each queue that has anything, by queue. For watching: each backend looks at `cap` rows of
    /// a kind (ready set, timers, claims) at most, however many there are, and at none of jobs that have ended.
    fn backlog(&self, cap: u64) -> Fut<'_, Vec<Backlog>>;

    /// Workers that serve or were lost lately.
    fn workers(&self) -> Fut<'_, Vec<WorkerView>>;

    /// Where the schema stands.
    fn schema(&self) -> Fut<'_, SchemaState>;

    /// What keeps a job from running, as far as it is there and has not ended.
    fn holds(&self, id: JobId) -> Fut<'_, Option<Holds>>;

    /// All queues that were ever used.
    fn queues(&self) -> Fut<'_, Vec<QueueView>>;

    /// All rate limits.
    fn rate_limits(&self) -> Fut<'_, Vec<LimitView>>;

    /// Serial keys that are held or waited for, at most `limit` of them; with `key`, that one.
    fn serial_keys<'a>(&'a self, key: Option<&'a str>, limit: usize) -> Fut<'a, Vec<SerialView>>;

    /// What was done through the third door, newest first: entries before number `before`, at most `limit`.
    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditEntry>>;

    /// All schedules, by name.
    fn schedules(&self) -> Fut<'_, Vec<ScheduleView>>;

    /// What a schedule fired, newest first, at most `limit`.
    fn firings<'a>(&'a self, schedule: &'a str, limit: usize) -> Fut<'a, Vec<Firing>>;

    /// What a schedule missed, newest first, at most `limit` summaries.
    fn misses<'a>(&'a self, schedule: &'a str, limit: usize) -> Fut<'a, Vec<Miss>>;

    /// Jobs that one job submitted, oldest first: those after `after`, at most `limit`.
    fn children(&self, parent: JobId, after: Option<JobId>, limit: usize) -> Fut<'_, Vec<Summary>>;

    /// The children whose end one wait of a job counts (see [`windlass_model::NewJob::parent_rev`]), in the order of their
    /// ids: those after `after`, at most `limit`.
    fn child_ends(
        &self,
        parent: JobId,
        round: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Fut<'_, Vec<ChildEnd>>;

    /// The branches of a job, by number.
    fn branches(&self, job: JobId) -> Fut<'_, Vec<Branch>>;

    /// Children of a branch, in the order of their ids: a page of them.
    fn branch_children<'a>(&'a self, of: &'a BranchChildFilter) -> Fut<'a, Vec<BranchChild>>;

    /// Rows of a table of the user's own in the same database, in the order of a key: those after `after` (a key as it was
    /// answered), at most `limit`.
    fn source_rows<'a>(
        &'a self,
        rows: &'a TableSource,
        after: Option<&'a str>,
        limit: usize,
    ) -> Fut<'a, Vec<SourceRow>>;

    /// The signals in a job's inbox, those that were set aside included, oldest first, at most `limit`.
    fn inbox(&self, id: JobId, limit: usize) -> Fut<'_, Vec<Signal>>;

    /// A machine's transitions, oldest first: those after revision `after`, at most `limit`.
    fn transitions(&self, id: JobId, after: Option<Rev>, limit: usize) -> Fut<'_, Vec<Transition>>;

    /// A workflow's journal, by place: entries after `after`, at most `limit`. One range is read, however long.
    fn journal(&self, id: JobId, after: Option<i32>, limit: usize) -> Fut<'_, Vec<JournalEntry>>;

    /// The whole journals of some workflows, in order.
    fn journals<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Vec<JournalEntry>>> {
        Box::pin(async move {
            let mut journals = Vec::with_capacity(ids.len());
            for id in ids {
                journals.push(self.journal(*id, None, usize::MAX).await?);
            }
            Ok(journals)
        })
    }

    /// The values in a workflow's context, by name.
    fn context(&self, id: JobId) -> Fut<'_, Vec<(String, Payload)>>;

    /// How often each transition was made by the machines of a kind: looks at the newest `limit` of them.
    fn transition_counts<'a>(&'a self, kind: &'a str, limit: usize) -> Fut<'a, Vec<TransitionCount>>;

    /// How many bytes the store takes.
    fn bytes(&self) -> Fut<'_, u64>;

    /// The store's clock.
    fn clock(&self) -> Fut<'_, Time>;
}

/// Which jobs to list.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only in this state.
    pub state: Option<State>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only in this queue.
    pub queue: Option<String>,
    /// Only with this tag.
    pub tag: Option<String>,
    /// Only with this key.
    pub key: Option<String>,
    /// Only machines in this stage.
    pub stage: Option<String>,
    /// Only of this version of their kind.
    pub version: Option<i32>,
    /// Only older than this one: the last of the page before.
    pub before: Option<JobId>,
    /// How many at most.
    pub limit: usize,
}

impl Default for Filter {
    /// The newest hundred of all jobs.
    fn default() -> Filter {
        let (state, kind, queue, tag, key) = Default::default();
        let (stage, version, before) = Default::default();
        Filter { state, kind, queue, tag, key, stage, version, before, limit: 100 }
    }
}

/// A job in a list.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The job.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// Its kind's version.
    pub version: i32,
    /// Its queue.
    pub queue: String,
    /// The caller's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where it stands.
    pub state: State,
    /// The stage it is in, if it is a machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// See [`windlass_model::rank`].
    pub priority: i16,
    /// Attempts that have failed.
    pub attempts: u32,
    /// When it was submitted.
    pub submitted_at: Time,
    /// When it is, or became, due.
    pub due_at: Time,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// All that is known of a job.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Job {
    /// What lists show.
    #[serde(flatten)]
    pub summary: Summary,
    /// The number that outdates older claims.
    pub epoch: Epoch,
    /// How many changes were committed.
    pub rev: Rev,
    /// Deaths of workers that had it claimed.
    pub deaths: u16,
    /// Deaths of workers that ran it alone.
    pub crashes: u16,
    /// The worker that has it, or that wrote its last change.
    pub worker: Option<WorkerId>,
    /// When the attempt that wrote its last change had started; while running, when it was claimed.
    pub started_at: Option<Time>,
    /// When it fails if it has not ended.
    pub deadline_at: Option<Time>,
    /// The job that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// Its place in a branch of that job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<ChildPlace>,
    /// Words to search by.
    pub tags: Vec<String>,
    /// Free JSON kept with it.
    pub options: Option<String>,
    /// Policies of this job alone.
    pub settings: Settings,
    /// How much of each retry rule's budget is used.
    pub spent: Vec<u32>,
    /// The encoded input.
    #[serde(serialize_with = "as_json")]
    pub input: Payload,
    /// The data of the stage it is in; `None` while that is its input.
    #[serde(serialize_with = "as_json_option", skip_serializing_if = "Option::is_none")]
    pub data: Option<Payload>,
    /// What it waits for, or waited for when it last made progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitCondition>,
    /// When that wait is over whatever has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// How many children it waits for still.
    pub pending: u32,
    /// How it ends once its undos have run, if it is being unwound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwind: Option<Box<Unwind>>,
    /// The encoded output.
    #[serde(serialize_with = "as_json_option")]
    pub output: Option<Payload>,
    /// The last error.
    pub failure: Option<Failure>,
}

/// Shows a payload as the JSON it is, or says how large it is.
fn as_json<S: serde::Serializer>(payload: &Payload, to: S) -> Result<S::Ok, S::Error> {
    match (payload.codec, serde_json::from_slice::<serde_json::Value>(&payload.bytes)) {
        (0, Ok(value)) => value.serialize(to),
        (codec, _) => to.collect_str(&format_args!("<{} bytes, codec {codec}>", payload.bytes.len())),
    }
}

fn as_json_option<S: serde::Serializer>(payload: &Option<Payload>, to: S) -> Result<S::Ok, S::Error> {
    match payload {
        Some(payload) => as_json(payload, to),
        None => to.serialize_none(),
    }
}

/// A child whose end a job waits for.
#[derive(Clone, PartialEq, Debug)]
pub struct ChildEnd {
    /// The child.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// The parent's name for it.
    pub key: Option<String>,
    /// How it ended; `None` if it has not.
    pub ended: Option<JobEnd>,
}

/// A branch of a job.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Branch {
    /// The job.
    pub job: JobId,
    /// Its number in the job.
    pub number: BranchNo,
    /// Its name.
    pub name: String,
    /// The names of its spawns.
    pub spawns: Vec<String>,
    /// Where its sources stand.
    #[serde(skip)]
    pub cursor: Option<Payload>,
    /// Whether no child is spawned in it any more.
    pub sealed: bool,
    /// Whether it was merged.
    pub merged: bool,
    /// Whether its live children are being cancelled.
    pub cancels_children: bool,
    /// How many children were spawned.
    pub spawned: i64,
    /// How they ended so far.
    pub counts: BranchCounts,
    /// What its job waits to be told of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<BranchWatch>,
    /// How it is to be merged, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// When it was opened.
    pub opened_at: Time,
    /// When it was merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_at: Option<Time>,
    /// What was seen when it was last looked at.
    pub poll: BranchPoll,
}

/// Where a job stands in a branch of its parent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ChildPlace {
    /// The branch.
    pub branch: BranchNo,
    /// Its name.
    pub name: String,
    /// The name of the spawn that made the job.
    pub spawn: String,
    /// Which item of it; empty for a spawn of one child.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub item: String,
    /// How many children it stands for.
    pub items: u32,
}

impl ChildPlace {
    /// What people call a child: the name of its parent, the branch, the spawn and the item.
    pub fn key(&self, parent: &str) -> String {
        let ChildPlace { name, spawn, item, .. } = self;
        match item.is_empty() {
            true => format!("{parent}${name}${spawn}"),
            false => format!("{parent}${name}${spawn}_{item}"),
        }
    }
}

/// Which children of a branch to list.
#[derive(Clone, Debug)]
pub struct BranchChildFilter {
    /// The job.
    pub job: JobId,
    /// Its branch.
    pub branch: BranchNo,
    /// Which of the children.
    pub only: ChildStates,
    /// Only after this one: the last of the page before.
    pub after: Option<JobId>,
    /// How many at most.
    pub limit: usize,
}

/// Which children of a branch are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildStates {
    /// All.
    All,
    /// Those that have not ended.
    Live,
    /// Those that have.
    Ended,
    /// Those that failed or were cancelled.
    Bad,
}

/// A child of a branch, or a block of them.
#[derive(Clone, PartialEq, Debug)]
pub struct BranchChild {
    /// What lists show.
    pub summary: Summary,
    /// Its place in the branch.
    pub branch_position: BranchPosition,
    /// How many items of a block have ended well before it did.
    pub items_done: u32,
    /// How it ended; `None` if it has not.
    pub ended: Option<JobEnd>,
    /// The encoded input.
    pub input: Payload,
    /// What it keeps meanwhile.
    pub data: Option<Payload>,
}

/// A table of the user's own, or a query, whose rows are wanted in the order of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableSource {
    /// What stands after `from`: a table, or a query in parentheses with a name.
    pub from: String,
    /// The column that orders them: unique, and never null.
    pub key: String,
    /// What stands after `where`, if anything.
    pub filter: Option<String>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRow {
    /// Its key, as text that is for the store to read.
    pub after: String,
    /// Its key, as people read it.
    pub key: String,
    /// The row as a JSON object.
    pub row: String,
}

/// One transition of a machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Transition {
    /// The revision it made.
    pub rev: Rev,
    /// The stage that ran.
    pub stage: String,
    /// The stage it led to; `None` if it ended the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How: see [`windlass_model::Outcome::name`].
    pub how: String,
    /// When it was committed.
    pub at: Time,
    /// The worker that ran it.
    pub worker: WorkerId,
}

/// How often a transition was made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct TransitionCount {
    /// The version of the kind.
    pub version: i32,
    /// The stage that ran.
    pub stage: String,
    /// The stage it led to; `None` if it ended the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How: see [`windlass_model::Outcome::name`].
    pub how: String,
    /// How often.
    pub times: u64,
}

/// One failed attempt.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Attempt {
    /// Its claim's epoch.
    pub epoch: Epoch,
    /// The worker that made it.
    pub worker: WorkerId,
    /// When it started (for a lost one: when it was claimed).
    pub started_at: Time,
    /// When its end was written.
    pub ended_at: Time,
    /// What went wrong.
    pub failure: Failure,
}

/// A count of jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, PartialOrd, Ord)]
pub struct StateCount {
    /// The queue.
    pub queue: String,
    /// The kind.
    pub kind: String,
    /// The state.
    pub state: State,
    /// How many, or the cap.
    pub jobs: u64,
}

/// What waits and runs in one queue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Backlog {
    /// The queue.
    pub queue: String,
    /// Jobs that wait for a worker, or the cap.
    pub ready: u64,
    /// Jobs that are due later, or how many of the next timers are theirs.
    pub scheduled: u64,
    /// Jobs that a worker has, or the cap.
    pub running: u64,
    /// When the first in line became due: the earliest, if several kinds have a first.
    pub oldest_at: Option<Time>,
}

/// A worker as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WorkerView {
    /// Its name in the store.
    pub id: WorkerId,
    /// What people know it by.
    pub name: String,
    /// The lock file its process holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beacon: Option<String>,
    /// Whether it still serves.
    pub alive: bool,
    /// When its lease runs out, or ran out.
    pub lease_until: Time,
    /// How many claims are recorded for it.
    pub claims: u64,
    /// What it serves.
    pub serves: Vec<Serves>,
}

/// What keeps a job from running; several may stand together.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Holds {
    /// It was submitted in a transaction of the caller's and waits to be put in.
    pub arriving: bool,
    /// It is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Its queue is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_paused: Option<Pause>,
    /// It was told to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<CancelHold>,
    /// It has a serial key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<SerialHold>,
    /// It is charged to a rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateHold>,
    /// It is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Its worker died; it runs alone next time.
    pub suspect: bool,
    /// How many jobs of its queue, kind and version stand before it in the ready set, up to 1,000.
    pub ahead: u64,
}

/// What a parked job waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Waiting {
    /// What.
    pub what: WaitCondition,
    /// Until when at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The names of signals in its inbox, each one once, by name.
    pub arrived: Vec<String>,
    /// How many children have not ended.
    pub pending: u32,
    /// Signals that it could not read, oldest first, the first 20: they do not end its wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<AsideSignal>,
}

/// A signal that a job could not read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AsideSignal {
    /// Its number in the inbox.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// When it was delivered.
    pub at: Time,
    /// Why it could not be read.
    pub why: String,
}

impl AsideSignal {
    /// A signal, if it was set aside.
    pub fn of(signal: &Signal) -> Option<AsideSignal> {
        let (number, name, at) = (signal.number, signal.name.clone(), signal.at);
        signal.unreadable.clone().map(|why| AsideSignal { number, name, at, why })
    }
}

/// By whom something was paused, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pause {
    /// When.
    pub at: Time,
    /// By whom.
    pub author: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// By whom a running job was told to end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CancelHold {
    /// When it is ended from outside.
    pub deadline_at: Time,
    /// By whom.
    pub author: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where a job stands with its serial key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SerialHold {
    /// The key.
    pub key: String,
    /// How many run at once.
    pub slots: u32,
    /// Whether the job has one of the slots.
    pub held: bool,
    /// Who has slots, up to 10.
    pub holders: Vec<JobId>,
    /// How many wait before it, up to 1,000.
    pub ahead: u64,
}

/// Where a job stands with its rate limit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RateHold {
    /// The limit; `None` if it was lifted.
    pub limit: Option<RateLimit>,
    /// Its name.
    pub name: String,
    /// What the job costs.
    pub weight: u32,
    /// When there is enough in the bucket for it, if nobody else takes it.
    pub affordable_at: Time,
}

/// A queue as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// Whether it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// When the longest-waiting of the jobs that are claimed next became due. One that its priority keeps behind others
    /// of its kind may wait longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ready: Option<Time>,
}

/// A rate limit as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LimitView {
    /// The limit.
    #[serde(flatten)]
    pub limit: RateLimit,
    /// Whether it was lifted: jobs pass.
    pub lifted: bool,
    /// The tokens in its bucket now.
    pub tokens: i64,
    /// How many jobs wait for it, up to 10,000.
    pub waiting: u64,
}

/// A serial key as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SerialView {
    /// The key.
    pub key: String,
    /// How many run at once.
    pub slots: u32,
    /// How many have a slot.
    pub held: u64,
    /// How many wait in line, up to 10,000.
    pub waiting: u64,
}

/// A schedule as people see it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScheduleView {
    /// The schedule.
    #[serde(flatten)]
    pub schedule: Schedule,
    /// When it fires next, unless it is paused.
    pub next_at: Option<Time>,
    /// Whether it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The job it submitted last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_job: Option<JobId>,
}

/// That a schedule submitted a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Firing {
    /// The tick, or when it was triggered.
    pub tick: Time,
    /// The job.
    pub job: JobId,
}

/// Ticks that a schedule missed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Miss {
    /// When that was first seen.
    pub at: Time,
    /// The ticks.
    #[serde(flatten)]
    pub missed: Missed,
    /// Why.
    pub why: String,
}

/// Which entries of the audit log to list.
#[derive(Clone, Debug)]
pub struct AuditFilter {
    /// Only of this subject: a job's id, a queue, a limit.
    pub subject: Option<String>,
    /// Only older than this one.
    pub before: Option<i64>,
    /// How many at most.
    pub limit: usize,
}

impl Default for AuditFilter {
    /// The newest hundred of all entries.
    fn default() -> AuditFilter {
        AuditFilter { subject: None, before: None, limit: 100 }
    }
}

/// An entry of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuditEntry {
    /// Its number.
    pub number: i64,
    /// When.
    pub at: Time,
    /// Who.
    pub author: String,
    /// What was done.
    pub action: String,
    /// To what: a job's id, a queue, a limit.
    pub subject: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
