//! Operations: what a server does to many jobs on behalf of a person, and how far it is.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_model::{Invalid, JobId, Time, limits::check_text};

use crate::{Actor, ControlOutcome, Error, Fut, Now, control::check_actor};

/// An operation that has not recorded its progress for this long is interrupted: whoever runs it records it every second.
pub const INTERRUPTED_AFTER: Duration = Duration::from_secs(60);
/// How many refusals a record keeps: enough to see what is wrong.
pub const MAX_REFUSALS: usize = 20;
/// The longest filter and parameters of a record, in bytes.
const MAX_JSON_BYTES: usize = 16 << 10;

/// Records of operations: bulk actions, redrives and the like that a server runs in the background. Called by the crate `windlass-operate`.
///
/// A record is for people and decides nothing: the changes of jobs are in the jobs and in the audit log, each batch in a transaction of its
/// own. A crash of the server leaves a record that reads as interrupted. Every call may be repeated.
pub trait Operations: Send + Sync + 'static {
    /// Adds the record of an operation that begins now. Returns whether it is new: an id that exists is left as it is.
    fn add_operation<'a>(&'a self, now: Now, operation: &'a NewOperation, actor: &'a Actor) -> Fut<'a, bool>;

    /// Writes how far an operation is, and with `ended` that it has ended. Returns whether somebody has requested it to stop; also `true` if
    /// there is no record of it. A record that has ended stays as it is.
    fn update_operation<'a>(
        &'a self,
        now: Now,
        id: OperationId,
        progress: &'a OperationProgress,
        ended: Option<&'a OperationEnd>,
    ) -> Fut<'a, bool>;

    /// Requests an operation to stop, and records that in the audit log, in one transaction. What it has done stays.
    fn request_stop<'a>(&'a self, now: Now, id: OperationId, actor: &'a Actor) -> Fut<'a, ControlOutcome>;

    /// One operation.
    fn operation(&self, now: Now, id: OperationId) -> Fut<'_, Option<Operation>>;

    /// Operations, newest first: those before `before`, at most `limit`.
    fn operations(&self, now: Now, before: Option<OperationId>, limit: usize) -> Fut<'_, Vec<Operation>>;

    /// Deletes the records of operations that were last written before a time. Returns how many. Their entries in the audit log stay.
    fn prune_operations(&self, before: Time) -> Fut<'_, usize>;
}

/// The id of an operation: a UUID v7, so that ids sort by when operations began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub JobId);

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for OperationId {
    type Err = String;

    fn from_str(text: &str) -> Result<OperationId, String> {
        let id = text.parse().map(OperationId);
        id.map_err(|_: String| {
            format!("{text:?} is not the id of an operation; the list of operations has them")
        })
    }
}

/// An operation that begins.
#[derive(Clone, PartialEq, Debug)]
pub struct NewOperation {
    /// Its id.
    pub id: OperationId,
    /// What it does: the name of the action.
    pub action: String,
    /// To which jobs, as JSON.
    pub filter: Value,
    /// How, as JSON: its rate, its limits.
    pub parameters: Value,
    /// How far it is, which is not at all: how many jobs match, if that is known.
    pub progress: OperationProgress,
}

impl NewOperation {
    pub(crate) fn check(&self, actor: &Actor) -> Result<(), Error> {
        check_actor(actor)?;
        check_text("action", &self.action, 200)?;
        for (what, value) in [("filter", &self.filter), ("parameters", &self.parameters)] {
            if value.to_string().len() > MAX_JSON_BYTES {
                return Err(Error::Invalid(Invalid {
                    what: format!("the {what} of the operation"),
                    why: format!("are longer than {MAX_JSON_BYTES} bytes"),
                    hint: "select jobs by fewer conditions".into(),
                }));
            }
        }
        Ok(())
    }
}

/// How far an operation is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OperationProgress {
    /// How many jobs it is about, as counted before it began.
    pub matching: Option<u64>,
    /// Whether there may be more: only a bounded number was counted.
    #[serde(default)]
    pub matching_at_least: bool,
    /// How many jobs it has changed, or requested to end.
    pub done: u64,
    /// How many needed no change.
    pub already: u64,
    /// How many it could not change.
    pub refused: u64,
    /// How many are left, if that is known.
    pub left: Option<u64>,
    /// How many jobs it has handled per second lately.
    pub rate: Option<f64>,
    /// The rest are the matching jobs before this one.
    pub next_before: Option<JobId>,
    /// The first refusals, at most [`MAX_REFUSALS`].
    pub refusals: Vec<Refusal>,
}

impl OperationProgress {
    /// How many jobs it has handled.
    pub fn handled(&self) -> u64 {
        self.done + self.already + self.refused
    }
}

/// A job that was not changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// The job.
    pub job: JobId,
    /// Why, and what to do.
    pub why: String,
}

/// How an operation ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperationEnd {
    /// It has handled all jobs.
    Done,
    /// Somebody stopped it.
    Stopped,
    /// The server that ran it stopped, and says so.
    Interrupted,
    /// It failed with an error.
    Failed(String),
}

/// Where an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It runs.
    Running,
    /// It has handled all jobs.
    Done,
    /// Somebody stopped it.
    Stopped,
    /// Its server stopped, or has not recorded its progress for [`INTERRUPTED_AFTER`].
    Interrupted,
    /// It failed.
    Failed,
}

impl OperationState {
    /// All states, in the order of their numbers in the stores.
    const ALL: [OperationState; 5] = [
        OperationState::Running,
        OperationState::Done,
        OperationState::Stopped,
        OperationState::Interrupted,
        OperationState::Failed,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            OperationState::Running => "running",
            OperationState::Done => "done",
            OperationState::Stopped => "stopped",
            OperationState::Interrupted => "interrupted",
            OperationState::Failed => "failed",
        }
    }

    /// The state after an end.
    pub(crate) fn of_end(end: &OperationEnd) -> OperationState {
        match end {
            OperationEnd::Done => OperationState::Done,
            OperationEnd::Stopped => OperationState::Stopped,
            OperationEnd::Interrupted => OperationState::Interrupted,
            OperationEnd::Failed(_) => OperationState::Failed,
        }
    }

    /// The state of a record that has this state and was last written at a time.
    pub(crate) fn at(self, updated_at: Time, now: Time) -> OperationState {
        match self {
            OperationState::Running if now - updated_at > INTERRUPTED_AFTER => OperationState::Interrupted,
            state => state,
        }
    }

    /// Its number in the stores.
    pub(crate) fn number(self) -> i16 {
        self as i16
    }

    /// The state of a number; one that is unknown was written by a newer version, and is no longer running as far as this one knows.
    pub(crate) fn from_number(number: i16) -> OperationState {
        let known = usize::try_from(number).ok().and_then(|number| OperationState::ALL.get(number));
        known.copied().unwrap_or(OperationState::Interrupted)
    }
}

impl fmt::Display for OperationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The record of an operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: OperationId,
    /// What it does.
    pub action: String,
    /// To which jobs.
    pub filter: Value,
    /// How.
    pub parameters: Value,
    /// Who began it.
    pub author: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it began.
    pub started_at: Time,
    /// When its progress was last recorded.
    pub updated_at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// Where it is.
    pub state: OperationState,
    /// How far it is.
    #[serde(flatten)]
    pub progress: OperationProgress,
    /// Whether somebody has requested it to stop.
    pub stop_requested: bool,
    /// The error with which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Operation {
    /// The record of an operation that begins.
    pub(crate) fn begin(new: &NewOperation, now: Time, actor: &Actor) -> Operation {
        Operation {
            id: new.id,
            action: new.action.clone(),
            filter: new.filter.clone(),
            parameters: new.parameters.clone(),
            author: actor.author.clone(),
            note: actor.note.clone(),
            started_at: now,
            updated_at: now,
            ended_at: None,
            state: OperationState::Running,
            progress: kept(&new.progress),
            stop_requested: false,
            error: None,
        }
    }
}

/// The progress as it is stored.
pub(crate) fn kept(progress: &OperationProgress) -> OperationProgress {
    let mut kept = progress.clone();
    kept.refusals.truncate(MAX_REFUSALS);
    kept
}

/// The progress as text. It is read and written as one: nothing selects by its parts.
pub(crate) fn progress_text(progress: &OperationProgress) -> String {
    serde_json::to_string(&kept(progress)).expect("plain data")
}

/// The error of an end.
pub(crate) fn error_of(end: &OperationEnd) -> Option<String> {
    match end {
        OperationEnd::Failed(error) => Some(windlass_model::limits::clean_message(error)),
        _ => None,
    }
}

/// What the databases return of a record, in the order of the columns.
pub(crate) struct Columns {
    pub(crate) id: JobId,
    pub(crate) action: String,
    pub(crate) filter: String,
    pub(crate) parameters: String,
    pub(crate) author: String,
    pub(crate) note: Option<String>,
    pub(crate) started_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) ended_at: Option<i64>,
    pub(crate) state: i16,
    pub(crate) progress: String,
    pub(crate) stop_requested: bool,
    pub(crate) error: Option<String>,
}

impl Columns {
    /// Decodes a row as of a time. JSON that does not decode is shown as nothing: the record is for people alone.
    pub(crate) fn decode(self, now: Time) -> Operation {
        let json = |text: &str| serde_json::from_str(text).unwrap_or_default();
        let updated_at = Time(self.updated_at);
        Operation {
            id: OperationId(self.id),
            action: self.action,
            filter: json(&self.filter),
            parameters: json(&self.parameters),
            author: self.author,
            note: self.note,
            started_at: Time(self.started_at),
            updated_at,
            ended_at: self.ended_at.map(Time),
            state: OperationState::from_number(self.state).at(updated_at, now),
            progress: serde_json::from_str(&self.progress).unwrap_or_default(),
            stop_requested: self.stop_requested,
            error: self.error,
        }
    }
}

/// Outcomes with their texts, the same for every backend.
pub(crate) mod outcome {
    use super::OperationState;
    use crate::ControlOutcome;

    pub(crate) fn ended(state: OperationState) -> ControlOutcome {
        ControlOutcome::Already(format!("it is {state} already"))
    }

    pub(crate) fn requested_before() -> ControlOutcome {
        ControlOutcome::Already("its stop was requested before".into())
    }
}

/// The entry of the audit log.
pub(crate) const STOP_REQUESTED: &str = "stop operation";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_states_stay_the_same() {
        for state in OperationState::ALL {
            assert_eq!(OperationState::from_number(state.number()), state);
        }
        assert_eq!(OperationState::Failed.number(), 4);
        assert_eq!(OperationState::from_number(99), OperationState::Interrupted);
    }

    #[test]
    fn a_running_operation_that_records_nothing_is_interrupted() {
        let at = Time(1_800_000_000_000_000);
        let (soon, late) = (at + INTERRUPTED_AFTER, at + INTERRUPTED_AFTER + Duration::from_secs(1));
        assert_eq!(OperationState::Running.at(at, soon), OperationState::Running);
        assert_eq!(OperationState::Running.at(at, late), OperationState::Interrupted);
        assert_eq!(OperationState::Done.at(at, late), OperationState::Done);
    }
}
