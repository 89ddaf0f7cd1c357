//! What keeps a job from running.

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, RateLimit, Signal, Time, WaitCondition};

/// What keeps a job from running; several may apply at once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Holds {
    /// It was submitted in a transaction of the caller's own, and no worker has admitted it yet.
    pub arriving: bool,
    /// It is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Its queue is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_paused: Option<Pause>,
    /// Its cancel was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<CancelHold>,
    /// It has a serial key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<SerialHold>,
    /// It is under a rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateHold>,
    /// It is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Its worker died; it runs alone next time.
    pub suspect: bool,
    /// How many jobs of its queue, kind and version are ahead of it in the ready set, up to 1,000.
    pub ahead: u64,
}

/// What a parked job waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// The condition that ends the wait.
    pub condition: WaitCondition,
    /// When it was parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When the wait times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_until: Option<Time>,
    /// The names of signals in its inbox, each one once, by name.
    pub arrived: Vec<String>,
    /// How many of the children it waits for have not ended.
    pub pending_children: u32,
    /// The first 20 signals that its code could not decode, oldest first: they do not end its wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableSignalView>,
}

/// A signal that the code of its job could not decode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnreadableSignalView {
    /// Its number in the inbox.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// When it was delivered.
    pub at: Time,
    /// The error.
    pub why: String,
}

impl UnreadableSignalView {
    /// The signal, if it is unreadable.
    pub fn of(signal: &Signal) -> Option<UnreadableSignalView> {
        let (number, name, at) = (signal.number, signal.name.clone(), signal.at);
        signal.unreadable.clone().map(|why| UnreadableSignalView { number, name, at, why })
    }
}

/// Who paused a job or a queue, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pause {
    /// When.
    pub at: Time,
    /// Who.
    pub author: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The cancel request of a running job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CancelHold {
    /// When the store ends the job without its attempt.
    pub deadline_at: Time,
    /// Who requested it.
    pub author: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A job's serial key, and its position in line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SerialHold {
    /// The key.
    pub key: String,
    /// How many jobs of the key run at once.
    pub slots: u32,
    /// Whether the job has one of the slots.
    pub held: bool,
    /// The jobs that have slots, up to 10.
    pub holders: Vec<JobId>,
    /// How many of these are left out because whoever asks may not see them. The store leaves out none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden_holders: u32,
    /// How many jobs are ahead of it in line, up to 1,000.
    pub ahead: u64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A job's rate limit, and when it can pay for the job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RateHold {
    /// The limit; `None` if it was lifted.
    pub limit: Option<RateLimit>,
    /// Its name.
    pub name: String,
    /// How many tokens the job costs.
    pub weight: u32,
    /// When the bucket has enough tokens for it, if no other job takes them.
    pub affordable_at: Time,
}
