//! The audit log, a page at a time.

use serde::{Deserialize, Serialize};
use windlass_model::Time;
use windlass_store::{AuditEntry, AuditFilter};
use windlass_workflow::Error;

use crate::Operator;

/// Entries of the audit log, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// The next page has the entries before this number; `None` on the last page.
    pub next_before: Option<i64>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

impl AuditPage {
    /// Reads a page: at most `filter.limit` entries.
    pub async fn read(operator: &Operator, filter: &AuditFilter) -> Result<AuditPage, Error> {
        let inspect = operator.inspect();
        // One more than is wanted, to know whether there is another page.
        let mut entries = inspect.audit(&AuditFilter { limit: filter.limit + 1, ..filter.clone() }).await?;
        let more = entries.len() > filter.limit;
        entries.truncate(filter.limit);
        let next_before = entries.last().filter(|_| more).map(|entry| entry.number);
        Ok(AuditPage { entries, next_before, now: inspect.clock().await? })
    }
}
