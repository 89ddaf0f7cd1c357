//! Waiting between calls to a store that fails.

use std::time::Duration;

use windlass_env::Env;
use windlass_store::Error;

const FIRST: Duration = Duration::from_millis(20);

/// The delay between failed calls of one operation: from 20 ms, doubling, at most 2 s. So a restarted database is found
/// soon, and a long outage costs next to nothing.
pub(crate) struct Backoff {
    env: Env,
    next: Duration,
    operation: &'static str,
    /// Whether this outage was logged.
    logged: bool,
}

impl Backoff {
    /// An upper bound of one delay, jitter included.
    pub(crate) const LONGEST: Duration = Duration::from_millis(2_500);

    pub(crate) fn new(env: &Env, operation: &'static str) -> Backoff {
        Backoff { env: env.clone(), next: FIRST, operation, logged: false }
    }

    /// Logs the error, once per outage, and waits.
    pub(crate) async fn wait(&mut self, error: &Error) {
        if !self.logged {
            tracing::warn!(%error, "{} failed; trying again until it succeeds", self.operation);
            self.logged = true;
        }
        self.env.sleep(self.next.mul_f64(0.75 + self.env.random() / 2.0)).await;
        self.next = (self.next * 2).min(Duration::from_secs(2));
    }

    /// Starts over after a call that succeeded.
    pub(crate) fn reset(&mut self) {
        if self.logged {
            tracing::info!("{} works again", self.operation);
        }
        (self.next, self.logged) = (FIRST, false);
    }
}
