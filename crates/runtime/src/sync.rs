//! Helpers for mutexes and notifications.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// Locks a mutex, also if another holder panicked: one panic must not stop the worker.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns when `holds` returns true. It is checked at once, and again whenever the waiters of `changed` are notified.
pub(crate) async fn wait_until(changed: &Notify, holds: impl Fn() -> bool) {
    loop {
        // Created before the check, so that a change in between is not missed.
        let notified = changed.notified();
        if holds() {
            return;
        }
        notified.await;
    }
}
