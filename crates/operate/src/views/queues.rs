//! The queues of a store, and how many jobs are in each.

use std::collections::BTreeMap;

use serde::Serialize;
use windlass_model::{State, Time};
use windlass_store::{Backlog, Pause};

use super::CAP;
use crate::Operator;
use windlass_workflow::Error;

/// All queues, by name.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(transparent)]
pub struct Queues {
    /// The queues.
    pub queues: Vec<QueueRow>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

/// A queue. Counts stop at [`CAP`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
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
        let mut backlogs: BTreeMap<String, Backlog> =
            inspect.backlog(CAP).await?.into_iter().map(|backlog| (backlog.queue.clone(), backlog)).collect();
        let mut parked: BTreeMap<String, u64> = BTreeMap::new();
        for count in inspect.state_counts(CAP).await? {
            if count.state == State::Waiting {
                *parked.entry(count.queue).or_default() += count.jobs;
            }
        }
        let row = |queue: windlass_store::QueueView| {
            let Backlog { ready, scheduled, running, .. } = backlogs.remove(&queue.name).unwrap_or_default();
            QueueRow {
                ready,
                scheduled,
                running,
                waiting: parked.get(&queue.name).map_or(0, |parked| CAP.min(*parked)),
                oldest_ready: queue.oldest_ready,
                paused: queue.paused,
                name: queue.name,
            }
        };
        Ok(Queues { queues: queues.into_iter().map(row).collect(), now })
    }
}
