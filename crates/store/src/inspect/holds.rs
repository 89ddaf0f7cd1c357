//! What keeps a job from running.

use serde::Serialize;
use windlass_model::{JobId, RateLimit, Signal, Time, WaitCondition};

/// What keeps a job from running; several may stand together.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Holds {
    /// It was submitted in a transaction of the caller's and waits to be put in.
    pub arriving: bool,
    /// It is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Its queue is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_paused: Option<Pause>,
    /// It was told to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<CancelHold>,
    /// It has a serial key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<SerialHold>,
    /// It is charged to a rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateHold>,
    /// It is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Its worker died; it runs alone next time.
    pub suspect: bool,
    /// How many jobs of its queue, kind and version stand before it in the ready set, up to 1,000.
    pub ahead: u64,
}

/// What a parked job waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Waiting {
    /// What.
    pub what: WaitCondition,
    /// Until when at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The names of signals in its inbox, each one once, by name.
    pub arrived: Vec<String>,
    /// How many children have not ended.
    pub pending: u32,
    /// Signals that it could not read, oldest first, the first 20: they do not end its wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<AsideSignal>,
}

/// A signal that a job could not read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AsideSignal {
    /// Its number in the inbox.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// When it was delivered.
    pub at: Time,
    /// Why it could not be read.
    pub why: String,
}

impl AsideSignal {
    /// A signal, if it was set aside.
    pub fn of(signal: &Signal) -> Option<AsideSignal> {
        let (number, name, at) = (signal.number, signal.name.clone(), signal.at);
        signal.unreadable.clone().map(|why| AsideSignal { number, name, at, why })
    }
}

/// By whom something was paused, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pause {
    /// When.
    pub at: Time,
    /// By whom.
    pub author: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// By whom a running job was told to end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CancelHold {
    /// When it is ended from outside.
    pub deadline_at: Time,
    /// By whom.
    pub author: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where a job stands with its serial key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SerialHold {
    /// The key.
    pub key: String,
    /// How many run at once.
    pub slots: u32,
    /// Whether the job has one of the slots.
    pub held: bool,
    /// Who has slots, up to 10.
    pub holders: Vec<JobId>,
    /// How many wait before it, up to 1,000.
    pub ahead: u64,
}

/// Where a job stands with its rate limit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RateHold {
    /// The limit; `None` if it was lifted.
    pub limit: Option<RateLimit>,
    /// Its name.
    pub name: String,
    /// What the job costs.
    pub weight: u32,
    /// When there is enough in the bucket for it, if nobody else takes it.
    pub affordable_at: Time,
}
