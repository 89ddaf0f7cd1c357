//! The states of a job and the one table of legal moves.
//!
//! The table is read by [`next`], by the conformance suite (every pair of state and event, on every backend)
//! and by the diagram in the docs ([`mermaid`]).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a job stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Due later.
    Scheduled,
    /// May be claimed now.
    Ready,
    /// Claimed by a worker; its newest epoch is live.
    Running,
    /// Parked until signals come, its children have ended, or its time is over.
    Waiting,
    /// Ended well; its output is kept.
    Done,
    /// Ended badly; carries a [`crate::Reason`].
    Failed,
    /// Ended because someone asked for it.
    Cancelled,
}

/// What can happen to a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Its due time has come.
    Due,
    /// A worker takes it.
    Claim,
    /// Its worker hands it back without having started it. No attempt is counted.
    Release,
    /// Its worker was lost.
    Reap,
    /// Its worker was lost once too often while running it alone.
    Poison,
    /// Its attempt committed an output.
    Finish,
    /// Its attempt failed and is to be tried again later.
    Retry,
    /// Its attempt failed for good.
    Fail,
    /// Its attempt committed a step and goes on with the next under the same claim.
    Step,
    /// Its attempt committed a step and lets others pass.
    Yield,
    /// Its attempt committed a step and waits for something.
    Park,
    /// What it waits for has come.
    Wake,
    /// It is to end, from outside, and what it did is undone first.
    Unwind,
    /// Someone, or its attempt, asked to have it cancelled.
    Cancel,
    /// Its deadline passed.
    Expire,
    /// Someone asked to have it tried again after it had ended without success.
    Revive,
}

use Event::*;
use State::*;

/// Every legal move; whatever is not in it does not happen.
pub const MOVES: &[(State, Event, State)] = &[
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

/// The state after `event`, or `None` if that event cannot happen in `state`.
pub fn next(state: State, event: Event) -> Option<State> {
    MOVES.iter().find(|(from, on, _)| (*from, *on) == (state, event)).map(|(_, _, to)| *to)
}

/// The table as a Mermaid state diagram, for the docs.
pub fn mermaid() -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for (from, event, to) in MOVES {
        text += &format!("    {from} --> {to}: {}\n", format!("{event:?}").to_lowercase());
    }
    text
}

impl State {
    /// All states, in the order of a job's life.
    pub const ALL: [State; 7] = [Scheduled, Ready, Running, Waiting, Done, Failed, Cancelled];

    /// Whether the job has ended; nothing claims it again unless someone revives it.
    pub const fn is_final(self) -> bool {
        matches!(self, Done | Failed | Cancelled)
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
    fn what_has_ended_moves_only_by_revival_and_what_is_done_never() {
        for (from, event, _) in MOVES {
            assert_eq!(from.is_final(), *event == Revive, "{from} {event:?}");
            assert_ne!(*from, Done);
        }
        for state in State::ALL.into_iter().filter(|state| !state.is_final()) {
            assert!(MOVES.iter().any(|(from, ..)| *from == state), "{state} has no way out");
        }
    }

    #[test]
    fn no_pair_stands_twice() {
        for (i, (from, on, _)) in MOVES.iter().enumerate() {
            assert!(!MOVES[i + 1..].iter().any(|(f, o, _)| (f, o) == (from, on)), "{from} {on:?}");
        }
    }

    #[test]
    fn states_are_read_back_from_their_names() {
        for state in State::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("asleep".parse::<State>().unwrap_err().contains("scheduled"));
    }
}
