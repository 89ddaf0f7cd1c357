//! Riding out a store that is away: wait, longer each time, and call again.

use std::time::Duration;

use windlass_store::Error;

/// Waits between calls that fail: from 20 ms, doubling, at most 2 s, so a restarted database is found again soon
/// and a long outage costs nothing.
pub(crate) struct Backoff {
    next: Duration,
    what: &'static str,
    said: bool,
}

impl Backoff {
    /// Nobody waits longer than this between two calls.
    pub(crate) const LONGEST: Duration = Duration::from_millis(2_500);

    pub(crate) fn new(what: &'static str) -> Backoff {
        Backoff { next: Duration::from_millis(20), what, said: false }
    }

    /// Says what went wrong (once per outage) and waits.
    pub(crate) async fn wait(&mut self, error: &Error) {
        if !self.said {
            tracing::warn!(%error, "{} failed; trying again until it succeeds", self.what);
            self.said = true;
        }
        tokio::time::sleep(self.next.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        self.next = (self.next * 2).min(Duration::from_secs(2));
    }

    /// Notes that a call succeeded.
    pub(crate) fn reset(&mut self) {
        if self.said {
            tracing::info!("{} works again", self.what);
        }
        *self = Backoff::new(self.what);
    }
}
