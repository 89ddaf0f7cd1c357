//! Jobs as people see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_model::{
    BranchNo, Epoch, Failure, JobId, Payload, Progress, Reason, Rev, Settings, State, Time, Unwind,
    WaitCondition, WorkerId,
};

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
    /// Only with a key that begins with this.
    pub key_prefix: Option<String>,
    /// Only failed and cancelled jobs whose error has this class: see [`Failure::class`].
    pub error_class: Option<String>,
    /// Only machines in this stage.
    pub stage: Option<String>,
    /// Only of this version of their kind.
    pub version: Option<i32>,
    /// Only jobs that no other job submitted: those without a parent.
    pub top: bool,
    /// Only jobs that were submitted at this time or later. It is the time in their ids, by the clock of the submitter.
    pub since: Option<Time>,
    /// Only jobs that were submitted before this time, likewise.
    pub until: Option<Time>,
    /// Only older than this one: [`JobPage::next`] of the previous page.
    pub before: Option<JobId>,
    /// How many at most.
    pub limit: usize,
}

impl Filter {
    /// Whether it selects jobs by queue, kind, version and state alone: how many these are is maintained, and need not be counted.
    pub fn has_maintained_counts(&self) -> bool {
        let Filter { state: _, kind: _, queue: _, version: _, before: _, limit: _, .. } = self;
        let Filter { tag, key, key_prefix, error_class, stage, top, since, until, .. } = self;
        let texts = [tag, key, key_prefix, error_class, stage];
        texts.into_iter().all(Option::is_none) && !top && since.is_none() && until.is_none()
    }

    /// The ids among which matching jobs are: from the first on, and below the second.
    pub fn ids(&self) -> (Option<JobId>, Option<JobId>) {
        let until = self.until.map(JobId::lowest_at);
        let before = until.into_iter().chain(self.before).min();
        (self.since.map(JobId::lowest_at), before)
    }
}

impl Default for Filter {
    /// The newest hundred of all jobs.
    fn default() -> Filter {
        let (state, kind, queue, tag, key, key_prefix) = Default::default();
        let (error_class, stage, version, top) = Default::default();
        let (since, until, before) = Default::default();
        Filter {
            state,
            kind,
            queue,
            tag,
            key,
            key_prefix,
            error_class,
            stage,
            version,
            top,
            since,
            until,
            before,
            limit: 100,
        }
    }
}

/// A page of a list of jobs.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct JobPage {
    /// The jobs, newest first.
    pub jobs: Vec<Summary>,
    /// [`Filter::before`] of the next page; `None` if there is none. A page may have a next one although it has fewer jobs than were asked
    /// for, or none: a read examines a bounded number of jobs, and the next one goes on from there.
    pub next: Option<JobId>,
}

/// How many jobs match a filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MatchCount {
    /// In each state that has any.
    pub jobs: BTreeMap<State, u64>,
    /// Whether there may be more: only a bounded number of jobs was examined.
    pub at_least: bool,
}

/// A job in a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
    /// Its state.
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

/// Everything that the store has about a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// What lists show.
    #[serde(flatten)]
    pub summary: Summary,
    /// See [`Epoch`].
    pub epoch: Epoch,
    /// How many changes were committed.
    pub rev: Rev,
    /// Deaths of workers that had it claimed.
    pub worker_deaths: u16,
    /// Deaths of workers that ran it alone.
    pub solo_crashes: u16,
    /// The worker that has it, or that wrote its last change.
    pub worker: Option<WorkerId>,
    /// When the attempt that wrote its last change had started; while running, when it was claimed.
    pub started_at: Option<Time>,
    /// What its attempt last reported, while it is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// When it fails if it has not ended.
    pub deadline_at: Option<Time>,
    /// The job that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// Its position in a branch of that job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<ChildPosition>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The caller's own JSON, never interpreted.
    pub options: Option<String>,
    /// Settings of this job alone.
    pub settings: Settings,
    /// How often each rule of the retry policy was used.
    pub retry_counts: Vec<u32>,
    /// The encoded input.
    #[serde(with = "as_json")]
    pub input: Payload,
    /// The data of the stage it is in; `None` while that is its input.
    #[serde(default, with = "as_json_if_there", skip_serializing_if = "Option::is_none")]
    pub data: Option<Payload>,
    /// What it waits for, or waited for when it last made progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitCondition>,
    /// When that wait times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_until: Option<Time>,
    /// How many of the children it waits for have not ended.
    pub pending_children: u32,
    /// How it ends once its undos have run, if it is being unwound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwind: Option<Box<Unwind>>,
    /// The encoded output.
    #[serde(with = "as_json_option")]
    pub output: Option<Payload>,
    /// The last error.
    pub failure: Option<Failure>,
    /// Which of its columns cannot be decoded, and why. The fields of those columns have their defaults, and the job fails instead of
    /// running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Box<str>>,
}

/// A payload as its JSON, or as a text with its size if it is encoded. Read back, it is plain JSON.
mod as_json {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;
    use windlass_model::Payload;

    pub(super) fn serialize<S: Serializer>(payload: &Payload, to: S) -> Result<S::Ok, S::Error> {
        match (payload.codec, serde_json::from_slice::<Value>(&payload.bytes)) {
            (0, Ok(value)) => value.serialize(to),
            (codec, _) => to.collect_str(&format_args!("<{} bytes, codec {codec}>", payload.bytes.len())),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Payload, D::Error> {
        Ok(Payload::json(Value::deserialize(from)?.to_string().into_bytes()))
    }
}

/// The same for a payload that is null if there is none. One of JSON null is read back as none: see [`Job::with_output`].
mod as_json_option {
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::Value;
    use windlass_model::Payload;

    pub(super) fn serialize<S: Serializer>(payload: &Option<Payload>, to: S) -> Result<S::Ok, S::Error> {
        match payload {
            Some(payload) => super::as_json::serialize(payload, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Payload>, D::Error> {
        let value = Option::<Value>::deserialize(from)?;
        Ok(value.map(|value| Payload::json(value.to_string().into_bytes())))
    }
}

/// The same for a payload that is left out if there is none, so that null is a payload.
mod as_json_if_there {
    use serde::Deserializer;
    use windlass_model::Payload;

    pub(super) use super::as_json_option::serialize;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Payload>, D::Error> {
        super::as_json::deserialize(from).map(Some)
    }
}

impl Job {
    /// A job that was read from JSON, where the output null and no output are the same: a done job has an output.
    pub fn with_output(mut self) -> Job {
        if self.summary.state == State::Done && self.output.is_none() {
            self.output = Some(Payload::json(b"null".to_vec()));
        }
        self
    }
}

/// The position of a job in a branch of its parent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildPosition {
    /// The branch.
    pub branch: BranchNo,
    /// Its name.
    pub name: String,
    /// The name of the spawn that made the job.
    pub spawn: String,
    /// Which item of it; empty for a spawn of one child.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub item: String,
    /// How many items it has: more than one if it is a block.
    pub items: u32,
}

impl ChildPosition {
    /// The name by which a child is shown: that of its parent, the branch, the spawn and the item.
    pub fn key(&self, parent: &str) -> String {
        let ChildPosition { name, spawn, item, .. } = self;
        match item.is_empty() {
            true => format!("{parent}${name}${spawn}"),
            false => format!("{parent}${name}${spawn}_{item}"),
        }
    }
}

/// A group of a job's children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildGroup {
    /// Those that the change with this revision submitted and that a machine waits for; with [`Rev::SIGNALLED`], those whose ends a
    /// workflow receives as signals.
    Change(Rev),
    /// Those in a branch.
    Branch(BranchNo),
}

/// One failed attempt.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

/// One transition of a machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transition {
    /// The revision it made.
    pub rev: Rev,
    /// The stage that ran.
    pub stage: String,
    /// The stage it led to; `None` if it ended the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The outcome of the step: see [`windlass_model::Outcome::name`].
    pub outcome: String,
    /// When it was committed.
    pub at: Time,
    /// The worker that ran it.
    pub worker: WorkerId,
}

/// How often a transition was made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TransitionCount {
    /// The version of the kind.
    pub version: i32,
    /// The stage that ran.
    pub stage: String,
    /// The stage it led to; `None` if it ended the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How: see [`windlass_model::Outcome::name`].
    pub outcome: String,
    /// How often.
    pub times: u64,
}
