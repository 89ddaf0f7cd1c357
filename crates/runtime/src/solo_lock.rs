//! Who runs together in this worker.
//!
//! Ordinary attempts run in company; a suspect waits until it is alone, so that if the worker dies it is known who
//! did it. Whoever waits to be alone keeps newcomers out meanwhile, for a bounded time.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

#[derive(Clone, Default)]
pub(crate) struct SoloLock {
    lock: Arc<RwLock<()>>,
}

impl SoloLock {
    /// Joins the others; waits while someone is, or wants to be, alone.
    pub(crate) async fn shared(&self) -> OwnedRwLockReadGuard<()> {
        match Arc::clone(&self.lock).try_read_owned() {
            Ok(guard) => guard,
            Err(_) => Arc::clone(&self.lock).read_owned().await,
        }
    }

    /// Waits to be alone, but no longer than `patience`.
    pub(crate) async fn solo(&self, patience: Duration) -> Option<OwnedRwLockWriteGuard<()>> {
        if let Ok(guard) = Arc::clone(&self.lock).try_write_owned() {
            return Some(guard);
        }
        if patience.is_zero() {
            return None;
        }
        tokio::time::timeout(patience, Arc::clone(&self.lock).write_owned()).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn alone_means_alone_and_patience_ends() {
        let company = SoloLock::default();
        let other = company.shared().await;
        assert!(company.solo(Duration::from_millis(5)).await.is_none());
        drop(other);
        let alone = company.solo(Duration::from_secs(5)).await.expect("nobody is here");
        assert!(tokio::time::timeout(Duration::from_millis(5), company.shared()).await.is_err());
        drop(alone);
        company.shared().await;
    }
}
