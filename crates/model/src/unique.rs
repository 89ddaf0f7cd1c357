//! Unique names: a name that one job of a kind holds at a time.
//!
//! A job holds its name while it is in one of the states of the scope and, if `within` is set, until that long after its submit.
//! [`Conflict`] decides what happens to a submit whose name another job holds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{JobId, State, SubmitOutcome, Time};

/// A set of states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct States(u8);

impl States {
    /// Scheduled, ready, running or waiting: until the job has ended.
    pub const LIVE: States = States(0b1111);
    /// Scheduled or ready: until a worker claims the job.
    pub const PENDING: States = States(0b011);
    /// All states: until the job is pruned.
    pub const KEPT: States = States(0b111_1111);

    /// Makes the set of these states.
    pub fn of(states: impl IntoIterator<Item = State>) -> States {
        States(states.into_iter().fold(0, |mask, state| mask | bit(state)))
    }

    /// Whether the state is in the set.
    pub fn contains(self, state: State) -> bool {
        self.0 & bit(state) != 0
    }

    /// Whether the set has no states.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = State> {
        State::ALL.into_iter().filter(move |state| self.contains(*state))
    }
}

fn bit(state: State) -> u8 {
    1 << (state as u8)
}

impl Serialize for States {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<States, D::Error> {
        let states = Vec::<State>::deserialize(from).map_err(D::Error::custom)?;
        Ok(States::of(states))
    }
}

/// What happens to a submit whose unique name another job holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// The submit returns the job that holds the name.
    #[default]
    Keep,
    /// The submit is rejected.
    Reject,
    /// The job that holds the name is cancelled and the new one is inserted; if it is running, the submit is rejected.
    Replace,
    /// Like `Replace`, but a running job gets a cancel request.
    CancelAndReplace,
}

impl Conflict {
    /// Decides about a submit whose name the job `holder` holds: `Err` is the outcome of the submit, which is not inserted. `Ok` lets
    /// it take the name; then the store must cancel the holder. `same_input`: both have the same input.
    ///
    /// A store that reads the holder's state before it has locked the holder must check again whether it runs.
    pub fn resolve(self, holder: JobId, same_input: bool, is_running: bool) -> Result<(), SubmitOutcome> {
        match self {
            Conflict::Keep => Err(SubmitOutcome::Existing { id: holder, same_input }),
            Conflict::Reject => Err(SubmitOutcome::Rejected { id: holder }),
            Conflict::Replace if is_running => Err(SubmitOutcome::Rejected { id: holder }),
            Conflict::Replace | Conflict::CancelAndReplace => Ok(()),
        }
    }
}

/// A unique name, and when a job holds it.
///
/// ```
/// # use std::time::Duration;
/// # use windlass_model::{State, States, Unique};
/// // One report of this account that waits; a submit while it runs makes a new one.
/// let report = Unique::new("report-7").scope(States::PENDING);
/// // At most one mail in an hour: a second submit is an error.
/// let mail = Unique::new("welcome-ada").scope(States::KEPT).within(Duration::from_secs(3_600)).or_reject();
/// assert!(report.scope.contains(State::Ready) && !report.scope.contains(State::Running));
/// # let _ = mail;
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unique {
    /// The name. Jobs of other kinds may hold the same one.
    pub key: String,
    /// In which states a job holds it.
    pub scope: States,
    /// How long after its submit a job holds it at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    /// What happens to a submit while another job holds it.
    #[serde(default)]
    pub conflict: Conflict,
}

impl Unique {
    /// A name that a job holds until it ends. A submit with the same name returns that job.
    pub fn new(key: impl Into<String>) -> Unique {
        Unique { key: key.into(), scope: States::LIVE, within: None, conflict: Conflict::Keep }
    }

    /// Sets the states in which the job holds the name.
    pub fn scope(self, scope: States) -> Unique {
        Unique { scope, ..self }
    }

    /// The job holds the name for at most this long after its submit.
    pub fn within(self, within: Duration) -> Unique {
        Unique { within: Some(within), ..self }
    }

    /// Rejects a submit while another job holds the name.
    pub fn or_reject(self) -> Unique {
        Unique { conflict: Conflict::Reject, ..self }
    }

    /// Cancels and replaces the job that holds the name, unless it is running.
    pub fn or_replace(self) -> Unique {
        Unique { conflict: Conflict::Replace, ..self }
    }

    /// Cancels and replaces the job that holds the name, also if it is running.
    pub fn or_cancel_and_replace(self) -> Unique {
        Unique { conflict: Conflict::CancelAndReplace, ..self }
    }

    /// Whether a job in `state` that was submitted at `submitted_at` holds the name at `now`.
    pub fn holds(&self, state: State, submitted_at: Time, now: Time) -> bool {
        self.scope.contains(state) && self.within.is_none_or(|within| now < submitted_at + within)
    }
}

impl<S: Into<String>> From<S> for Unique {
    fn from(key: S) -> Unique {
        Unique::new(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_holds_its_name_in_the_states_of_the_scope_and_for_its_time() {
        let begin = Time(1_800_000_000_000_000);
        let minute = Duration::from_secs(60);
        let mut unique =
            Unique { key: "a".into(), scope: States::LIVE, within: None, conflict: Conflict::Keep };
        for state in State::ALL {
            assert_eq!(unique.holds(state, begin, begin + minute), !state.is_final(), "{state}");
        }
        unique.within = Some(minute);
        assert!(unique.holds(State::Ready, begin, begin));
        assert!(!unique.holds(State::Ready, begin, begin + minute));
    }

    #[test]
    fn a_conflict_keeps_rejects_or_replaces_the_holder_of_the_name() {
        let id = JobId::from_parts(1, 1, 1);
        for is_running in [false, true] {
            for same_input in [false, true] {
                let resolve = |conflict: Conflict| conflict.resolve(id, same_input, is_running);
                assert_eq!(resolve(Conflict::Keep), Err(SubmitOutcome::Existing { id, same_input }));
                assert_eq!(resolve(Conflict::Reject), Err(SubmitOutcome::Rejected { id }));
                let rejected = if is_running { Err(SubmitOutcome::Rejected { id }) } else { Ok(()) };
                assert_eq!(resolve(Conflict::Replace), rejected, "only a job that does not run is replaced");
                assert_eq!(resolve(Conflict::CancelAndReplace), Ok(()));
            }
        }
    }

    #[test]
    fn scopes_serialize_as_names_of_states() {
        let text = serde_json::to_string(&States::PENDING).expect("plain data");
        assert_eq!(text, r#"["scheduled","ready"]"#);
        assert_eq!(serde_json::from_str::<States>(&text).expect("as written"), States::PENDING);
        assert!(States::of(State::ALL) == States::KEPT);
    }
}
