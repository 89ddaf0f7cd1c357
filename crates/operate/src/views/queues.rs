//! The queues of a store, and how many jobs are in each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_model::{State, Time};
use windlass_store::Pause;

use crate::Operator;
use windlass_workflow::Error;

/// All queues, by name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Queues {
    /// The queues.
    pub queues: Vec<QueueRow>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

/// A queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueRow {
    /// Its name.
    pub name: String,
    /// How many of its jobs are ready.
    pub ready: u64,
    /// How many are scheduled.
    pub scheduled: u64,
    /// How many run.
    pub running: u64,
    /// How many are parked.
    pub waiting: u64,
    /// Since when its oldest ready job is due.
    pub oldest_ready: Option<Time>,
    /// Who paused it.
    pub paused: Option<Pause>,
}

impl Queues {
    /// Reads them.
    pub async fn read(operator: &Operator) -> Result<Queues, Error> {
        let inspect = operator.inspect();
        let (queues, now) = (inspect.queues().await?, inspect.clock().await?);
        let mut counts: BTreeMap<(String, State), u64> = BTreeMap::new();
        for count in inspect.state_counts().await? {
            *counts.entry((count.queue, count.state)).or_default() += count.jobs;
        }
        let row = |queue: windlass_store::QueueView| {
            let mut count = |state| counts.remove(&(queue.name.clone(), state)).unwrap_or(0);
            QueueRow {
                ready: count(State::Ready),
                scheduled: count(State::Scheduled),
                running: count(State::Running),
                waiting: count(State::Waiting),
                oldest_ready: queue.oldest_ready,
                paused: queue.paused,
                name: queue.name,
            }
        };
        Ok(Queues { queues: queues.into_iter().map(row).collect(), now })
    }
}
