//! Serial keys: jobs with the same key run one after the other, or as many at once as the key has slots.
//!
//! Jobs of a key wait in one line, first in, first out. A job takes its position when it first becomes due and keeps it: priority
//! never reorders the line, and a retried job returns to its old position. A job holds a slot from when it enters the ready set
//! until it ends or parks.

use serde::{Deserialize, Serialize};

/// The most slots a key may have.
pub const MAX_SLOTS: u32 = 10_000;

/// A serial key, and how a job uses it.
///
/// ```
/// # use windlass_model::Serial;
/// // The jobs of a customer run one after the other.
/// let order = Serial::new("customer-17");
/// // Two at a time on the printer; a job keeps its slot between two attempts.
/// let print = Serial::new("printer").slots(2).keep_slot();
/// assert_eq!((order.slots, print.slots), (None, Some(2)));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Serial {
    /// The key. It is shared by all kinds and queues of the store.
    pub key: String,
    /// Sets how many jobs of the key run at once from now on; `None` leaves that as it is (a new key has 1 slot).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Whether the job keeps its slot while it waits for a retry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_slot: bool,
}

impl Serial {
    /// Runs one job of this key at a time, unless the key has more slots already.
    pub fn new(key: impl Into<String>) -> Serial {
        Serial { key: key.into(), slots: None, keeps_slot: false }
    }

    /// Gives the key this many slots from now on.
    pub fn slots(self, slots: u32) -> Serial {
        Serial { slots: Some(slots), ..self }
    }

    /// The job keeps its slot while it waits for a retry.
    pub fn keep_slot(self) -> Serial {
        Serial { keeps_slot: true, ..self }
    }
}

impl<S: Into<String>> From<S> for Serial {
    fn from(key: S) -> Serial {
        Serial::new(key)
    }
}
