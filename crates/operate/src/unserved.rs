//! Queues that kinds use and no live worker serves: their jobs wait for ever, and nothing else says so.

use std::collections::{BTreeMap, HashMap};

use windlass_model::Time;
use windlass_store::{ALERT_QUEUE, WorkerView};

use windlass_workflow::Error;

use crate::Operator;

/// A queue that kinds of this program use by default and that no live worker serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnservedQueue {
    /// The queue.
    pub queue: String,
    /// The kinds, by name.
    pub kinds: Vec<String>,
}

impl UnservedQueue {
    /// What to write so that it is served.
    pub fn advice(&self) -> String {
        advice(&self.queue)
    }
}

impl Operator {
    /// Finds the queues that the kinds of this program use by default and that no live worker serves. The caller serves `own`.
    pub async fn unserved_queues(&self, own: &[&str]) -> Result<Vec<UnservedQueue>, Error> {
        let mut queues = by_queue(self.default_queues());
        queues.retain(|queue, _| !own.contains(queue));
        if queues.is_empty() {
            return Ok(Vec::new());
        }
        let (workers, now) = (self.inspect().workers().await?, self.inspect().clock().await?);
        queues.retain(|queue, _| !is_served(queue, &workers, now));
        let unserved = |(queue, kinds): (&str, Vec<&str>)| UnservedQueue {
            queue: queue.to_owned(),
            kinds: kinds.into_iter().map(str::to_owned).collect(),
        };
        Ok(queues.into_iter().map(unserved).collect())
    }
}

/// The kinds that use each queue by default, both sorted.
pub(crate) fn by_queue<'a>(
    default_queues: &'a HashMap<String, &'static str>,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut queues: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (kind, queue) in default_queues {
        queues.entry(queue).or_default().push(kind);
    }
    queues.values_mut().for_each(|kinds| kinds.sort_unstable());
    queues
}

/// Whether a live worker serves a queue, with whatever kinds.
pub(crate) fn is_served(queue: &str, workers: &[WorkerView], now: Time) -> bool {
    let alive = workers.iter().filter(|worker| worker.alive && worker.lease_until >= now);
    alive.flat_map(|worker| &worker.serves).any(|pool| pool.queue == queue)
}

/// What to write so that a queue is served.
pub(crate) fn advice(queue: &str) -> String {
    if queue == ALERT_QUEUE {
        return "start `windlass serve`, or a worker, with the `[webhooks]` that the alert rules name"
            .to_owned();
    }
    format!(
        "add `.queue({queue:?}, Pool::slots(4))` to the program, or start a worker with `--queue {queue}=4`"
    )
}
