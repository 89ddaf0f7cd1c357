//! The lock by which a suspect runs alone in its worker.
//!
//! Ordinary attempts hold the lock shared; a suspect waits until it has the lock alone, so that it is known which job
//! ran if the worker dies. While a suspect waits, no other attempt starts, so that wait is bounded.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use windlass_env::Env;

/// Held by an attempt that runs together with others.
pub(crate) type SharedGuard = OwnedRwLockReadGuard<()>;
/// Held by a suspect that runs alone.
pub(crate) type SoloGuard = OwnedRwLockWriteGuard<()>;

#[derive(Clone, Default)]
pub(crate) struct SoloLock {
    lock: Arc<RwLock<()>>,
}

impl SoloLock {
    /// Takes the lock shared; waits while a suspect holds it or waits for it.
    pub(crate) async fn shared(&self) -> SharedGuard {
        match Arc::clone(&self.lock).try_read_owned() {
            Ok(guard) => guard,
            Err(_) => Arc::clone(&self.lock).read_owned().await,
        }
    }

    /// Takes the lock alone; `None` if others still hold it after `max_wait`.
    pub(crate) async fn solo(&self, env: &Env, max_wait: Duration) -> Option<SoloGuard> {
        if let Ok(guard) = Arc::clone(&self.lock).try_write_owned() {
            return Some(guard);
        }
        if max_wait.is_zero() {
            return None;
        }
        env.timeout(max_wait, Arc::clone(&self.lock).write_owned()).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_solo_holder_excludes_others_and_its_wait_is_bounded() {
        let (solo_lock, env) = (SoloLock::default(), Env::real());
        let other = solo_lock.shared().await;
        assert!(solo_lock.solo(&env, Duration::from_millis(5)).await.is_none());
        drop(other);
        let solo = solo_lock.solo(&env, Duration::from_secs(5)).await.expect("nobody holds it");
        assert!(env.timeout(Duration::from_millis(5), solo_lock.shared()).await.is_err());
        drop(solo);
        solo_lock.shared().await;
    }
}
