//! Entries in the audit log for what is submitted and signalled: one for each request.
//!
//! Such an entry is written right after its jobs or signals, and before the request is answered. All that come while one is written are written
//! together, in one transaction, so many requests at the same time cost few of them.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use windlass::store::{Actor, AuditRecord, Store};

/// The most entries in one transaction.
const BATCH: usize = 1_000;

/// Writes entries, those of several requests together.
pub(crate) struct AuditLog {
    store: Arc<dyn Store>,
    waiting: Mutex<Vec<Entry>>,
    turn: tokio::sync::Mutex<()>,
}

struct Entry {
    record: AuditRecord,
    written: oneshot::Sender<()>,
}

impl AuditLog {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<AuditLog> {
        Arc::new(AuditLog { store, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() })
    }

    /// Adds an entry, and returns when it is written. What it is about has been done: if it cannot be written, that is in the server's log.
    pub(crate) async fn record(self: &Arc<Self>, author: &str, action: String, subject: String) {
        let record = AuditRecord { action, subject, actor: Actor::new(author) };
        let (written, mut is_written) = oneshot::channel();
        self.waiting().push(Entry { record, written });
        let log = Arc::clone(self);
        // A task of its own, so that nobody's entry is lost if this request is given up.
        let writing = tokio::spawn(async move {
            let _turn = log.turn.lock().await;
            if is_written.try_recv().is_ok() {
                return;
            }
            log.write().await;
        });
        let _ = writing.await;
    }

    /// Writes all that wait, the oldest first.
    async fn write(&self) {
        let entries = std::mem::take(&mut *self.waiting());
        let (records, written): (Vec<AuditRecord>, Vec<_>) =
            entries.into_iter().map(|entry| (entry.record, entry.written)).unzip();
        for records in records.chunks(BATCH) {
            if let Err(error) = self.store.control().record_audits(None, records).await {
                tracing::error!(%error, ?records, "entries of the audit log cannot be written");
            }
        }
        // Who has gone does not wait.
        for written in written {
            let _ = written.send(());
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use windlass::{Engine, store::AuditFilter};

    use super::*;

    #[tokio::test]
    async fn every_entry_is_written_once_and_those_of_the_same_moment_together() {
        let engine = Engine::open("memory:").await.expect("an engine");
        let log = AuditLog::new(Arc::clone(engine.store()));
        let turn = log.turn.lock().await;
        let requests: Vec<_> = (0..9)
            .map(|number| {
                let log = Arc::clone(&log);
                tokio::spawn(async move { log.record("ada", format!("act {number}"), "x".into()).await })
            })
            .collect();
        while log.waiting().len() < 9 {
            tokio::task::yield_now().await;
        }
        drop(turn);
        for request in requests {
            request.await.expect("no panic");
        }
        let entries = engine.inspect().audit(&AuditFilter::default()).await.expect("read");
        let mut actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
        actions.sort_unstable();
        assert_eq!(actions, (0..9).map(|number| format!("act {number}")).collect::<Vec<_>>());
        assert!(entries.iter().all(|entry| entry.at == entries[0].at), "one transaction: {entries:?}");
        assert!(log.waiting().is_empty());
    }
}
