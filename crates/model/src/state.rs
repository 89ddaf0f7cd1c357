//! The states of a job and the table of legal moves between them.
//!
//! [`TRANSITIONS`] is the only definition of what can happen to a job. [`next`] reads it, the conformance suite tries every pair of
//! state and event on every backend, and [`mermaid`] draws the diagram in the docs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Becomes ready at a later time.
    Scheduled,
    /// Can be claimed, unless a hold blocks it.
    Ready,
    /// Claimed by a worker under the job's newest epoch.
    Running,
    /// Parked until signals arrive, its children have ended, or its timeout is over.
    Waiting,
    /// Ended successfully; its output is kept.
    Done,
    /// Ended with a failure and a [`crate::Reason`].
    Failed,
    /// Ended because it was cancelled.
    Cancelled,
}

/// What can happen to a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Its due time, or the timeout of its wait, has come.
    Due,
    /// A worker claims it.
    Claim,
    /// Its worker returns it without having started it. This counts no attempt.
    Release,
    /// Its worker died; another worker returns it.
    Reap,
    /// Its worker died once too often while running it alone.
    Poison,
    /// Its attempt committed an output.
    Finish,
    /// Its attempt failed and is to be repeated later.
    Retry,
    /// Its attempt failed for good.
    Fail,
    /// Its attempt committed a step and continues with the next one under the same claim.
    Step,
    /// Its attempt committed a step and gives up its slot to others.
    Yield,
    /// Its attempt committed a step and waits.
    Park,
    /// What it waits for has happened.
    Wake,
    /// It must end, but its undos run first.
    Unwind,
    /// Somebody, or its own attempt, cancelled it.
    Cancel,
    /// Its deadline passed.
    Expire,
    /// Somebody retries it after it failed or was cancelled.
    Revive,
}

use Event::*;
use State::*;

/// Every legal move: (from, event, to). No other move happens.
pub const TRANSITIONS: &[(State, Event, State)] = &[
    (Scheduled, Due, Ready),
    (Scheduled, Expire, Failed),
    (Scheduled, Cancel, Cancelled),
    (Scheduled, Unwind, Ready),
    (Ready, Claim, Running),
    (Ready, Expire, Failed),
    (Ready, Cancel, Cancelled),
    (Ready, Unwind, Ready),
    (Running, Release, Ready),
    (Running, Reap, Ready),
    (Running, Poison, Failed),
    (Running, Finish, Done),
    (Running, Retry, Scheduled),
    (Running, Fail, Failed),
    (Running, Step, Running),
    (Running, Yield, Ready),
    (Running, Park, Waiting),
    (Running, Cancel, Cancelled),
    (Running, Expire, Failed),
    (Running, Unwind, Ready),
    (Waiting, Wake, Ready),
    (Waiting, Due, Ready),
    (Waiting, Cancel, Cancelled),
    (Waiting, Expire, Failed),
    (Waiting, Unwind, Ready),
    (Failed, Revive, Ready),
    (Cancelled, Revive, Ready),
];

/// Returns the state after `event`, or `None` if `event` cannot happen in `state`.
pub fn next(state: State, event: Event) -> Option<State> {
    TRANSITIONS.iter().find(|(from, on, _)| (*from, *on) == (state, event)).map(|(_, _, to)| *to)
}

/// Returns the table as a Mermaid state diagram, for the docs.
pub fn mermaid() -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for (from, event, to) in TRANSITIONS {
        text += &format!("    {from} --> {to}: {}\n", format!("{event:?}").to_lowercase());
    }
    text
}

impl State {
    /// All states, in the order of a job's life.
    pub const ALL: [State; 7] = [Scheduled, Ready, Running, Waiting, Done, Failed, Cancelled];

    /// Whether the job has ended. No worker claims it again unless somebody retries it.
    pub const fn is_final(self) -> bool {
        matches!(self, Done | Failed | Cancelled)
    }
}

/// Where a live job is. More than one may hold: a parked job with a timeout is among the timers too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Location {
    /// It is parked.
    pub is_parked: bool,
    /// It is in the ready set, waits for a slot of its serial key, or is held.
    pub is_ready: bool,
    /// A timer makes it ready.
    pub is_scheduled: bool,
}

impl Location {
    /// Returns the state of a live job that is here. One that is nowhere is claimed.
    pub const fn state(self) -> State {
        match self {
            Location { is_parked: true, .. } => Waiting,
            Location { is_ready: true, .. } => Ready,
            Location { is_scheduled: true, .. } => Scheduled,
            _ => Running,
        }
    }
}

impl Event {
    /// All events.
    pub const ALL: [Event; 16] = [
        Due, Claim, Release, Reap, Poison, Finish, Retry, Fail, Step, Yield, Park, Wake, Unwind, Cancel,
        Expire, Revive,
    ];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Scheduled => "scheduled",
            Ready => "ready",
            Running => "running",
            Waiting => "waiting",
            Done => "done",
            Failed => "failed",
            Cancelled => "cancelled",
        })
    }
}

impl std::str::FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<State, String> {
        State::ALL.into_iter().find(|s| s.to_string() == text).ok_or_else(|| {
            let all: Vec<_> = State::ALL.iter().map(State::to_string).collect();
            format!("{text:?} is not a state; the states are {}", all.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_job_moves_only_by_revive_and_a_done_job_never() {
        for (from, event, _) in TRANSITIONS {
            assert_eq!(from.is_final(), *event == Revive, "{from} {event:?}");
            assert_ne!(*from, Done);
        }
        for state in State::ALL.into_iter().filter(|state| !state.is_final()) {
            assert!(TRANSITIONS.iter().any(|(from, ..)| *from == state), "{state} has no way out");
        }
    }

    #[test]
    fn each_pair_of_state_and_event_occurs_at_most_once() {
        for (i, (from, on, _)) in TRANSITIONS.iter().enumerate() {
            assert!(!TRANSITIONS[i + 1..].iter().any(|(f, o, _)| (f, o) == (from, on)), "{from} {on:?}");
        }
    }

    #[test]
    fn where_a_live_job_is_decides_its_state() {
        let state =
            |is_parked, is_ready, is_scheduled| Location { is_parked, is_ready, is_scheduled }.state();
        assert_eq!(state(false, false, false), Running, "only its claim has it");
        assert_eq!(state(false, false, true), Scheduled);
        assert_eq!(state(false, true, false), Ready);
        assert_eq!(state(false, true, true), Ready);
        assert_eq!(state(true, false, false), Waiting);
        assert_eq!(state(true, false, true), Waiting, "parked with a timeout");
    }

    #[test]
    fn states_parse_from_their_names() {
        for state in State::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("asleep".parse::<State>().unwrap_err().contains("scheduled"));
    }
}
