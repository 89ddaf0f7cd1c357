//! Serial keys: of the jobs with one key, so many run at once, first come first served.
//!
//! A job takes its place in the key's line when it first becomes due, and keeps it: priority never reorders a line,
//! and a job that is tried again stands where it stood. Holding one of the key's slots begins when the job enters the
//! ready set and ends when it ends or parks.

use serde::{Deserialize, Serialize};

/// The most slots a key may have.
pub const MAX_SLOTS: u32 = 10_000;

/// That a job runs under a serial key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Serial {
    /// The key, one for the whole store.
    pub key: String,
    /// How many jobs of the key run at once from now on; left alone if `None` (a new key has 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Whether the job keeps its slot while it waits for another attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_slot: bool,
}

impl Serial {
    /// One job of this key at a time.
    pub fn new(key: impl Into<String>) -> Serial {
        Serial { key: key.into(), slots: None, keeps_slot: false }
    }

    /// So many at a time, from now on.
    pub fn slots(self, slots: u32) -> Serial {
        Serial { slots: Some(slots), ..self }
    }

    /// The same, but the job keeps its slot while it waits for another attempt.
    pub fn keep_slot(self) -> Serial {
        Serial { keeps_slot: true, ..self }
    }
}

impl<S: Into<String>> From<S> for Serial {
    fn from(key: S) -> Serial {
        Serial::new(key)
    }
}
