//! Unique scopes: a name that only one job at a time may have, while it is in certain states.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{State, Time};

/// A set of states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct States(u8);

impl States {
    /// Until the job has ended: scheduled, ready, running or waiting.
    pub const LIVE: States = States(0b1111);
    /// Until a worker takes it: scheduled or ready.
    pub const PENDING: States = States(0b011);
    /// For as long as the job is kept.
    pub const KEPT: States = States(0b111_1111);

    /// The set of these states.
    pub fn of(states: impl IntoIterator<Item = State>) -> States {
        States(states.into_iter().fold(0, |mask, state| mask | bit(state)))
    }

    /// Whether the state is in the set.
    pub fn contains(self, state: State) -> bool {
        self.0 & bit(state) != 0
    }

    /// Whether there is none.
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

/// What becomes of a submit whose unique name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// The job that has the name is kept, and answered.
    #[default]
    Keep,
    /// The submit is rejected.
    Reject,
    /// The job that has the name is cancelled and this one takes its place; if it runs, the submit is rejected.
    Replace,
    /// The same, and one that runs is asked to end.
    CancelAndReplace,
}

/// A name that only one job of its kind may have at a time, while it is in the states of the scope.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unique {
    /// The name; unique per kind.
    pub key: String,
    /// In which states a job has it.
    pub scope: States,
    /// How long after its submit a job has it at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    /// What becomes of a submit while another job has it.
    #[serde(default)]
    pub conflict: Conflict,
}

impl Unique {
    /// A name that a job has until it ends; a submit with the same name is answered with that job.
    pub fn new(key: impl Into<String>) -> Unique {
        Unique { key: key.into(), scope: States::LIVE, within: None, conflict: Conflict::Keep }
    }

    /// The same with another scope.
    pub fn scope(self, scope: States) -> Unique {
        Unique { scope, ..self }
    }

    /// The same for so long after the submit at most.
    pub fn within(self, within: Duration) -> Unique {
        Unique { within: Some(within), ..self }
    }

    /// The same, but a submit while another job has the name is rejected.
    pub fn or_reject(self) -> Unique {
        Unique { conflict: Conflict::Reject, ..self }
    }

    /// The same, but a submit takes the place of a job that has the name and does not run yet.
    pub fn or_replace(self) -> Unique {
        Unique { conflict: Conflict::Replace, ..self }
    }

    /// The same, and one that runs is asked to end.
    pub fn or_cancel_and_replace(self) -> Unique {
        Unique { conflict: Conflict::CancelAndReplace, ..self }
    }

    /// Whether a job in `state` that was submitted at `submitted_at` has the name at `now`.
    pub fn holds(&self, state: State, submitted_at: Time, now: Time) -> bool {
        self.scope.contains(state) && self.within.is_none_or(|within| now < submitted_at.plus(within))
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
    fn a_name_is_held_in_its_states_and_for_its_time() {
        let begin = Time(1_800_000_000_000_000);
        let minute = Duration::from_secs(60);
        let mut unique =
            Unique { key: "a".into(), scope: States::LIVE, within: None, conflict: Conflict::Keep };
        for state in State::ALL {
            assert_eq!(unique.holds(state, begin, begin.plus(minute)), !state.is_final(), "{state}");
        }
        unique.within = Some(minute);
        assert!(unique.holds(State::Ready, begin, begin));
        assert!(!unique.holds(State::Ready, begin, begin.plus(minute)));
    }

    #[test]
    fn scopes_are_kept_as_names_of_states() {
        let text = serde_json::to_string(&States::PENDING).expect("plain data");
        assert_eq!(text, r#"["scheduled","ready"]"#);
        assert_eq!(serde_json::from_str::<States>(&text).expect("as written"), States::PENDING);
        assert!(States::of(State::ALL) == States::KEPT);
    }
}
