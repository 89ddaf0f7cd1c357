//! What holds many jobs at once: paused queues, rate limits without tokens, kinds that no worker serves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_model::{Time, WorkerId};
use windlass_store::{LimitView, Pause, WorkerView};
use windlass_workflow::Error;

use crate::{
    Operator,
    unserved::{Unserved, is_alive},
};

/// What holds many jobs at once. One read explains the rows of many lists: a server keeps it for a second or until the store has changed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Situation {
    /// The queues that are paused, by name.
    pub paused_queues: BTreeMap<String, Pause>,
    /// The rate limits, by name.
    pub limits: BTreeMap<String, LimitView>,
    /// Workers that serve or were lost lately.
    pub workers: Vec<WorkerView>,
    /// The store's clock when this was read.
    pub now: Time,
}

impl Situation {
    /// Reads it.
    pub async fn read(operator: &Operator) -> Result<Situation, Error> {
        let inspect = operator.inspect();
        let queues = inspect.queues().await?.into_iter();
        let limits = inspect.rate_limits().await?.into_iter();
        Ok(Situation {
            paused_queues: queues.filter_map(|queue| Some((queue.name, queue.paused?))).collect(),
            limits: limits.map(|limit| (limit.limit.name.clone(), limit)).collect(),
            workers: inspect.workers().await?,
            now: inspect.clock().await?,
        })
    }

    /// Whether a worker has a lease. One that has come since this was read counts as alive.
    pub(super) fn is_alive(&self, worker: WorkerId) -> bool {
        let known = self.workers.iter().find(|known| known.id == worker);
        known.is_none_or(|known| is_alive(known, self.now))
    }

    /// Why no worker can run the jobs of a queue, kind and version.
    pub(super) fn unserved(&self, queue: &str, kind: &str, version: i32) -> Option<Unserved> {
        Unserved::of((queue, kind, version), &self.workers, self.now)
    }

    /// When a rate limit has as many tokens, if it has not.
    pub(super) fn affordable_at(&self, limit: &str, tokens: u32) -> Option<Time> {
        let view = self.limits.get(limit).filter(|view| !view.lifted)?;
        let missing = i64::from(tokens).saturating_sub(view.tokens);
        let missing = u32::try_from(missing).ok().filter(|missing| *missing > 0)?;
        Some(self.now + view.limit.per.mul_f64(f64::from(missing) / f64::from(view.limit.rate.max(1))))
    }
}
