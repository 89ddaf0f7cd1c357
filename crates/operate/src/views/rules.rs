//! The rate limits and serial keys of a store, and how many jobs wait for them.

use serde::{Deserialize, Serialize};
use windlass_store::{LimitView, SerialView};

use crate::Operator;
use windlass_workflow::Error;

/// All rate limits, by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RateLimits {
    /// The limits.
    pub limits: Vec<LimitView>,
}

impl RateLimits {
    /// Reads them.
    pub async fn read(operator: &Operator) -> Result<RateLimits, Error> {
        Ok(RateLimits { limits: operator.inspect().rate_limits().await? })
    }
}

/// Serial keys that jobs hold or wait for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SerialKeys {
    /// The keys, by name.
    pub keys: Vec<SerialView>,
    /// Whether there may be more than were asked for.
    #[serde(skip)]
    pub has_more: bool,
}

impl SerialKeys {
    /// Reads at most `limit` of them, or the one named.
    pub async fn read(operator: &Operator, key: Option<&str>, limit: usize) -> Result<SerialKeys, Error> {
        let keys = operator.inspect().serial_keys(key, limit).await?;
        Ok(SerialKeys { has_more: keys.len() == limit, keys })
    }
}
