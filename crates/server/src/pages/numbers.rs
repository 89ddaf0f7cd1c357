//! The numbers that are on every page: beside the entries of the navigation.

use std::{collections::BTreeMap, time::Duration};

use windlass::{State, operate::Operator};

use crate::error::Error;

/// For how long they are shown before they are read again.
pub(super) const KEPT: Duration = Duration::from_secs(1);

/// Numbers of jobs by state, and what needs attention.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Numbers {
    /// How many jobs are in each state.
    pub(crate) jobs: BTreeMap<State, u64>,
}

impl Numbers {
    /// Reads them.
    pub(crate) async fn read(operator: &Operator) -> Result<Numbers, Error> {
        let mut jobs = BTreeMap::new();
        for count in operator.inspect().state_counts().await? {
            *jobs.entry(count.state).or_default() += count.jobs;
        }
        Ok(Numbers { jobs })
    }

    /// How many jobs are in a state.
    pub(crate) fn of(&self, state: State) -> u64 {
        self.jobs.get(&state).copied().unwrap_or(0)
    }
}
