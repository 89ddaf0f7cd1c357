//! The inbox of a job and the last transitions of a machine.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_model::{Rev, Signal, Time, branch::BRANCH_SIGNAL};
use windlass_store::{Inspect, Job, Transition};
use windlass_workflow::Error;

use super::plain_value;

/// How many signals and transitions are read.
const LIMIT: usize = 100;

/// The inbox, which every job has, and transitions, which only machines have.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MachineView {
    /// The first signals in the inbox, oldest first.
    pub inbox: Vec<InboxSignal>,
    /// Whether there are more.
    pub inbox_has_more: bool,
    /// The last transitions, oldest first.
    pub last_transitions: Vec<Transition>,
}

/// A signal in an inbox.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InboxSignal {
    /// Its number in the inbox.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// When it was delivered.
    pub at: Time,
    /// Its payload, or its size if it is encoded.
    pub payload: Value,
    /// Why the job could not decode it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl MachineView {
    pub(super) async fn read(inspect: &dyn Inspect, job: &Job) -> Result<MachineView, Error> {
        let mut inbox = inspect.inbox(job.summary.id, LIMIT + 1).await?;
        // A branch signal is internal: it tells the engine to check the branch.
        inbox.retain(|signal| signal.name != BRANCH_SIGNAL);
        let inbox_has_more = inbox.len() > LIMIT;
        inbox.truncate(LIMIT);
        let last_transitions = match job.summary.stage {
            Some(_) => last_transitions(inspect, job).await?,
            None => Vec::new(),
        };
        let signal = |signal: Signal| InboxSignal {
            number: signal.number,
            payload: plain_value(&signal.payload),
            name: signal.name,
            at: signal.at,
            unreadable: signal.unreadable,
        };
        Ok(MachineView { inbox: inbox.into_iter().map(signal).collect(), inbox_has_more, last_transitions })
    }
}

/// The last transitions, oldest first. They are numbered by revision, and failed attempts have revisions too: if there are few
/// among the last revisions, it reads further back.
async fn last_transitions(inspect: &dyn Inspect, job: &Job) -> Result<Vec<Transition>, Error> {
    let mut back = LIMIT as i32;
    loop {
        let after = job.rev.0 - back;
        let mut transitions =
            inspect.transitions(job.summary.id, Some(Rev(after.max(-1))), back as usize).await?;
        if transitions.len() >= LIMIT || after < 0 {
            transitions.drain(..transitions.len().saturating_sub(LIMIT));
            return Ok(transitions);
        }
        back = back.saturating_mul(10);
    }
}
