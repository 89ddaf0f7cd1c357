//! Everything an engine takes from the machine besides its store: the time, timers, random numbers, ids, tasks and threads.
//!
//! All crates above take these from one [`Env`], so that a test can replace them. [`Env::real`] is the machine's;
//! [`Env::with_clock`] has a [`VirtualClock`], whose time a test moves forward.
//!
//! Leases and timers of jobs are judged by the store's clock, not by this one.

mod clock;
mod ids;
mod threads;

use std::{
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

pub use clock::VirtualClock;
pub use ids::IdSource;
pub use tokio::task::JoinHandle;
use windlass_model::Time;

/// The clock, the random numbers, the ids, the tasks and the threads of an engine. Clones share all of it.
#[derive(Clone, Default)]
pub struct Env {
    /// `None` is the machine's clock.
    clock: Option<Arc<VirtualClock>>,
    /// `None` is the generator of the thread.
    random: Option<Arc<dyn Fn() -> f64 + Send + Sync>>,
}

impl Env {
    /// The machine's clock and random numbers.
    pub fn real() -> Env {
        Env::default()
    }

    /// An environment whose time is that of `clock`.
    pub fn with_clock(clock: Arc<VirtualClock>) -> Env {
        Env { clock: Some(clock), random: None }
    }

    /// The same with another source of random numbers, from 0 to 1.
    pub fn with_random(self, random: impl Fn() -> f64 + Send + Sync + 'static) -> Env {
        Env { random: Some(Arc::new(random)), ..self }
    }

    /// The date and time. It may jump; use [`Env::instant`] to measure a duration.
    #[inline]
    pub fn now(&self) -> Time {
        match &self.clock {
            Some(clock) => clock.now(),
            None => Time::from_system(SystemTime::now()),
        }
    }

    /// The monotonic clock. Never call [`Instant::elapsed`] on its answers, which reads the machine's clock: subtract two
    /// of them.
    #[inline]
    pub fn instant(&self) -> Instant {
        match &self.clock {
            Some(clock) => clock.instant(),
            None => Instant::now(),
        }
    }

    /// The time since `earlier`, zero if that is in the future.
    #[inline]
    pub fn since(&self, earlier: Instant) -> Duration {
        self.instant().saturating_duration_since(earlier)
    }

    /// Returns after `duration`.
    pub async fn sleep(&self, duration: Duration) {
        match &self.clock {
            Some(clock) => clock.sleep_until(clock.instant().checked_add(duration)).await,
            None => tokio::time::sleep(duration).await,
        }
    }

    /// Returns at `deadline`, at once if it has passed.
    pub async fn sleep_until(&self, deadline: Instant) {
        match &self.clock {
            Some(clock) => clock.sleep_until(Some(deadline)).await,
            None => tokio::time::sleep_until(deadline.into()).await,
        }
    }

    /// The output of `future`, or an error if it takes longer than `limit`; then the future is dropped.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, TimedOut> {
        match &self.clock {
            Some(clock) => clock.timeout_at(clock.instant().checked_add(limit), future).await,
            None => tokio::time::timeout(limit, future).await.map_err(|_| TimedOut),
        }
    }

    /// The output of `future`, or an error if it is not ready at `deadline`; then the future is dropped.
    pub async fn timeout_at<F: Future>(&self, deadline: Instant, future: F) -> Result<F::Output, TimedOut> {
        match &self.clock {
            Some(clock) => clock.timeout_at(Some(deadline), future).await,
            None => tokio::time::timeout_at(deadline.into(), future).await.map_err(|_| TimedOut),
        }
    }

    /// 256 random bits of the operating system, for secrets: never virtual, because a secret that a test could predict would be none.
    pub fn secret(&self) -> std::io::Result<[u8; 32]> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(std::io::Error::from)?;
        Ok(bytes)
    }

    /// A random number from 0 to 1.
    #[inline]
    pub fn random(&self) -> f64 {
        match &self.random {
            Some(random) => random(),
            None => fastrand::f64(),
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.clock.is_some() { "Env(virtual)" } else { "Env(real)" })
    }
}

/// The error of [`Env::timeout`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOut;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_real_timeout_ends_what_never_ends() {
        let env = Env::real();
        assert_eq!(env.timeout(Duration::from_millis(1), std::future::pending::<()>()).await, Err(TimedOut));
        assert_eq!(env.timeout_at(env.instant(), std::future::pending::<()>()).await, Err(TimedOut));
        assert_eq!(env.timeout(Duration::MAX, async { 7 }).await, Ok(7));
    }

    #[test]
    fn random_numbers_can_be_replaced() {
        assert_eq!(Env::real().with_random(|| 0.25).random(), 0.25);
        assert!((0.0..1.0).contains(&Env::real().random()));
    }
}
