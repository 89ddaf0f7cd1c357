//! The audit log.

use serde::{Deserialize, Serialize};
use windlass_model::Time;

/// Which entries of the audit log to list.
#[derive(Clone, Debug)]
pub struct AuditFilter {
    /// Only of this subject: a job's id, a queue, a limit.
    pub subject: Option<String>,
    /// Only older than this one.
    pub before: Option<i64>,
    /// How many at most.
    pub limit: usize,
}

impl Default for AuditFilter {
    /// The newest hundred of all entries.
    fn default() -> AuditFilter {
        AuditFilter { subject: None, before: None, limit: 100 }
    }
}

/// An entry of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its number.
    pub number: i64,
    /// When.
    pub at: Time,
    /// Who.
    pub author: String,
    /// What was done.
    pub action: String,
    /// To what: a job's id, a queue, a limit.
    pub subject: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
