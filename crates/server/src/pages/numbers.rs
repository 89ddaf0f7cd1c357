//! The numbers that are on every page: beside the entries of the navigation.

use std::{collections::BTreeMap, time::Duration};

use windlass::{State, store::StateCount};

/// For how long they are shown before they are read again.
pub(super) const KEPT: Duration = Duration::from_secs(1);

/// Numbers of jobs by state, and what needs attention.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Numbers {
    /// How many jobs are in each state.
    pub(crate) jobs: BTreeMap<State, u64>,
}

impl Numbers {
    /// Sums them up.
    pub(crate) fn of_counts(counts: &[StateCount]) -> Numbers {
        let mut jobs = BTreeMap::new();
        for count in counts {
            *jobs.entry(count.state).or_default() += count.jobs;
        }
        Numbers { jobs }
    }

    /// The number beside an entry of the navigation, and whether it needs somebody.
    pub(crate) fn of_part(&self, part: &str) -> Option<(String, bool)> {
        match (part, self.of(State::Failed)) {
            ("failures", 1..) => Some((short(self.of(State::Failed)), true)),
            _ => None,
        }
    }

    /// How many jobs are in a state.
    pub(crate) fn of(&self, state: State) -> u64 {
        self.jobs.get(&state).copied().unwrap_or(0)
    }
}

/// A number in as many characters as fit beside an entry.
fn short(number: u64) -> String {
    match number {
        0..10_000 => super::format::thousands(number),
        10_000..1_000_000 => format!("{} k", number / 1_000),
        _ => format!("{} M", number / 1_000_000),
    }
}
