//! Counts of jobs, workers, queues, rate limits and serial keys.

use serde::{Deserialize, Serialize};
use windlass_model::{RateLimit, State, Time, WorkerId};

use super::Pause;
use crate::Serves;

/// A count of jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, PartialOrd, Ord)]
pub struct StateCount {
    /// The queue.
    pub queue: String,
    /// The kind.
    pub kind: String,
    /// The state.
    pub state: State,
    /// How many.
    pub jobs: u64,
}

/// The waiting and running jobs of one queue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Backlog {
    /// The queue.
    pub queue: String,
    /// Jobs that wait for a worker, or the cap.
    pub ready: u64,
    /// Jobs that are due later, as far as they are among the timers that were read.
    pub scheduled: u64,
    /// Jobs that a worker has claimed, or the cap.
    pub running: u64,
    /// When the next job to be claimed became due; the earliest of those of all kinds.
    pub oldest_at: Option<Time>,
}

/// A worker as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its id.
    pub id: WorkerId,
    /// Its name for people.
    pub name: String,
    /// The lock file that its process holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness_file: Option<String>,
    /// Whether it has not been declared dead or retired.
    pub alive: bool,
    /// When its lease expires, or expired.
    pub lease_until: Time,
    /// When it was declared dead, because it did not renew its lease or its process was gone. `None` for a worker that lives, and for
    /// one that retired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<Time>,
    /// How many claims are recorded for it.
    pub claims: u64,
    /// The queues and kinds that it serves.
    pub serves: Vec<Serves>,
}

/// A queue as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// Whether it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// When the next job to be claimed became due; the earliest of those of all kinds. A job with a low priority may have waited
    /// longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ready: Option<Time>,
}

/// A rate limit as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitView {
    /// The limit.
    #[serde(flatten)]
    pub limit: RateLimit,
    /// Whether it was lifted: jobs need no tokens.
    pub lifted: bool,
    /// The tokens in its bucket now.
    pub tokens: i64,
    /// How many jobs wait for it, up to 10,000.
    pub waiting: u64,
}

/// A serial key as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SerialView {
    /// The key.
    pub key: String,
    /// How many run at once.
    pub slots: u32,
    /// How many have a slot.
    pub held: u64,
    /// How many wait in line, up to 10,000.
    pub waiting: u64,
}
