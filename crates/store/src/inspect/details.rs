//! What lists say of many jobs at once beyond a [`Summary`](super::Summary): reads of a constant number of statements, without payloads.

use serde::{Deserialize, Serialize};
use windlass_model::{
    BranchNo, JobId, JournalEntry, Payload, Reason, Settings, State, Time, WaitCondition, WorkerId,
    journal::{CallEvent, CallKind},
};

use super::{CancelHold, Pause};
use crate::columns;

/// How many characters of an error's message [`JobDetails`] keep: a line of a list.
pub(crate) const DETAILS_MESSAGE: usize = 200;
/// How many characters of an error's message an [`UnsuccessfulJob`] keeps: enough to tell errors apart.
pub(crate) const UNSUCCESSFUL_MESSAGE: usize = 300;

/// Why a job is in its state, as far as its own rows say. What holds all jobs of a queue, kind or rate limit is not in here.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobDetails {
    /// Its state when this was read, which may be later than its summary was.
    pub state: State,
    /// The worker that runs it; `None` if it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningDetails>,
    /// What it waits for; `None` if it is not parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitDetails>,
    /// Its last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureText>,
    /// Who paused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Who requested its cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<CancelHold>,
    /// Its serial key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_key: Option<String>,
    /// Whether it waits for a slot of that key.
    pub waits_for_slot: bool,
    /// Its rate limit, and how many tokens it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<(String, u32)>,
    /// Whether workers died with it, so that it waits to be run alone.
    pub suspect: bool,
    /// Whether it undoes its steps before it ends.
    pub unwinding: bool,
    /// How many attempts it has, if it was submitted with a retry policy that says so whatever the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// When the attempt that wrote its last change had started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The job that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// The branch of that job that it is a child in.
    pub branch: Option<BranchNo>,
    /// How many items of a branch it represents: more than one if it is a block.
    pub items: u32,
}

/// Who runs a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunningDetails {
    /// The worker.
    pub worker: WorkerId,
    /// Its name; `None` if it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it claimed the job.
    pub since: Time,
}

/// What a parked job waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitDetails {
    /// The condition that ends the wait.
    pub condition: WaitCondition,
    /// When it was parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When the wait times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// How many of the children it waits for have not ended.
    pub pending_children: u32,
}

/// An error in a line.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FailureText {
    /// Its class.
    pub class: String,
    /// Its message, or the beginning of it.
    pub message: String,
    /// Whether the message is longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

impl FailureText {
    /// An error with at most so many characters of its message.
    pub(crate) fn new(class: &str, message: &str, characters: usize) -> FailureText {
        let end = message.char_indices().nth(characters).map(|(end, _)| end);
        let text = &message[..end.unwrap_or(message.len())];
        FailureText { class: class.to_owned(), message: text.to_owned(), is_cut: end.is_some() }
    }
}

/// What a job's own settings say that lists show.
#[derive(Default)]
pub(crate) struct SettingsText {
    pub(crate) serial_key: Option<String>,
    pub(crate) rate: Option<(String, u32)>,
    pub(crate) max_attempts: Option<u32>,
}

impl SettingsText {
    pub(crate) fn of(settings: &Settings) -> SettingsText {
        // Of several rules each has a number of its own, and how many attempts there are together depends on the errors.
        let rules = settings.retry.as_ref().map(|retry| retry.as_rules());
        let max_attempts = match rules {
            Some([rule]) if rule.class.is_none() => Some(rule.attempts),
            _ => None,
        };
        SettingsText {
            serial_key: settings.serial.as_ref().map(|serial| serial.key.clone()),
            rate: settings.rate.as_ref().map(|charge| (charge.limit.clone(), charge.weight)),
            max_attempts,
        }
    }

    /// Decodes the column of a job's row; settings that cannot be decoded say nothing.
    pub(crate) fn decode(text: Option<&str>) -> SettingsText {
        SettingsText::of(&columns::Decoder::default().settings(text))
    }
}

/// Which unsuccessful jobs to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnsuccessfulFilter {
    /// Only failed or only cancelled ones; `None` for both.
    pub state: Option<State>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only in this queue.
    pub queue: Option<String>,
    /// Only with an error of this class.
    pub error_class: Option<String>,
    /// Only jobs that were submitted at this time or later; see [`super::Filter::since`].
    pub since: Option<Time>,
    /// Only older than this one: the last of the previous read.
    pub before: Option<JobId>,
}

impl UnsuccessfulFilter {
    /// Whether it selects a job of this queue, kind and state. The other conditions are those of the index.
    pub(crate) fn selects(&self, queue: &str, kind: &str, state: State) -> bool {
        self.queue.as_ref().is_none_or(|wanted| wanted == queue)
            && self.kind.as_ref().is_none_or(|wanted| wanted == kind)
            && self.state.is_none_or(|wanted| wanted == state)
    }

    /// The states whose jobs are walked one after the other, by their numbers.
    pub(crate) fn walked_states(&self) -> &'static [i16] {
        match self.state {
            None => &[columns::FAILED, columns::CANCELLED],
            Some(State::Failed) => &[columns::FAILED],
            Some(State::Cancelled) => &[columns::CANCELLED],
            Some(_) => &[],
        }
    }
}

/// Jobs that failed or were cancelled.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Unsuccessful {
    /// Those that match, newest first.
    pub jobs: Vec<UnsuccessfulJob>,
    /// How many were examined.
    pub examined: usize,
    /// The next read goes on before this one; `None` if all were examined.
    pub next: Option<JobId>,
}

impl Unsuccessful {
    /// The newest `limit` of the jobs that walks have found, each of which has read at most `limit`; then those that match.
    pub(crate) fn select(
        mut found: Vec<UnsuccessfulJob>,
        filter: &UnsuccessfulFilter,
        limit: usize,
    ) -> Unsuccessful {
        found.sort_unstable_by_key(|job| std::cmp::Reverse(job.id));
        found.truncate(limit);
        let examined = found.len();
        let next = found.last().map(|job| job.id).filter(|_| examined >= limit);
        found.retain(|job| filter.selects(&job.queue, &job.kind, job.state));
        Unsuccessful { jobs: found, examined, next }
    }
}

/// A job that failed or was cancelled, in short.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UnsuccessfulJob {
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
    /// Whether it failed or was cancelled.
    pub state: State,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Its last error.
    #[serde(flatten)]
    pub failure: FailureText,
    /// Attempts that have failed.
    pub attempts: u32,
    /// When it ended.
    pub finished_at: Time,
    /// The job that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// The branch of that job that it is a child in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchNo>,
}

/// A parked job, in short.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ParkedJob {
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
    /// The stage it is in, if it is a machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// What it waits for.
    #[serde(flatten)]
    pub wait: WaitDetails,
}

/// The last entry in the journal of a workflow.
#[derive(Clone, PartialEq, Debug)]
pub struct LastCall {
    /// What was called.
    pub call_kind: CallKind,
    /// The name of the call.
    pub name: String,
    /// When the entry was written, by the worker's clock.
    pub at: Time,
    /// What the entry has recorded, if it is the progress of a repeat; no other payload is read.
    pub progress: Option<Payload>,
}

impl LastCall {
    /// What is shown of an entry.
    pub(crate) fn of(entry: &JournalEntry) -> LastCall {
        let has_progress = entry.call_kind == CallKind::Repeat && entry.event == CallEvent::Begun;
        LastCall {
            call_kind: entry.call_kind,
            name: entry.name.clone(),
            at: entry.at,
            progress: has_progress.then(|| entry.payload.clone()),
        }
    }
}
