//! The outside world, as the runtime is handed it: the clock and chance.

use std::{fmt, sync::Arc, time::SystemTime};

use windlass_model::Time;

/// Where the runtime gets the time and chance from, so that a test or a simulator can say what they are.
#[derive(Clone)]
pub struct Env {
    now: Arc<dyn Fn() -> Time + Send + Sync>,
    chance: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl Env {
    /// A world with this clock and these dice (0 to 1).
    pub fn new(
        now: impl Fn() -> Time + Send + Sync + 'static,
        chance: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Env {
        Env { now: Arc::new(now), chance: Arc::new(chance) }
    }

    /// The worker's clock; the store's own judges leases.
    pub fn now(&self) -> Time {
        (self.now)()
    }

    /// A number from 0 to 1.
    pub fn random(&self) -> f64 {
        (self.chance)()
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
