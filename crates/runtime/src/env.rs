//! The clock and the source of randomness, passed in so that tests can replace them.

use std::{fmt, sync::Arc, time::SystemTime};

use windlass_model::Time;

/// The clock and the random numbers of a worker. A test or a simulator passes its own.
#[derive(Clone)]
pub struct Env {
    now: Arc<dyn Fn() -> Time + Send + Sync>,
    random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl Env {
    /// An environment with this clock and this source of random numbers from 0 to 1.
    pub fn new(
        now: impl Fn() -> Time + Send + Sync + 'static,
        random: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Env {
        Env { now: Arc::new(now), random: Arc::new(random) }
    }

    /// The worker's clock. Leases are judged by the store's clock instead.
    pub fn now(&self) -> Time {
        (self.now)()
    }

    /// A random number from 0 to 1.
    pub fn random(&self) -> f64 {
        (self.random)()
    }
}

impl Default for Env {
    fn default() -> Env {
        Env::new(|| Time::from_system(SystemTime::now()), fastrand::f64)
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}
