//! A clock whose time a test moves forward.

use std::{
    future::Future,
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use tokio::sync::watch;
use windlass_model::Time;

use crate::TimedOut;

/// A clock for tests. Its date stands still until [`VirtualClock::set`] moves it forward. Its timers run with real time, so
/// that the timeout of code under test is what it says, and whatever the date moves forward they move forward too: a sleep
/// of 30 days ends when the date is set to 30 days later.
#[derive(Debug)]
pub struct VirtualClock {
    /// The date, in microseconds.
    now: AtomicI64,
    /// How far timers are ahead of the machine's monotonic clock. Timers wait for it to change.
    ahead: watch::Sender<Duration>,
}

impl VirtualClock {
    /// A clock that stands at `now`.
    pub fn new(now: Time) -> VirtualClock {
        VirtualClock { now: AtomicI64::new(now.micros()), ahead: watch::Sender::new(Duration::ZERO) }
    }

    /// The date.
    pub fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    /// Sets the date to `now`, and wakes the timers that have expired by then. A date in the past changes nothing: the
    /// clock never goes back.
    pub fn set(&self, now: Time) {
        let before = self.now.fetch_max(now.micros(), Ordering::SeqCst);
        let step = Duration::from_micros(now.micros().saturating_sub(before).max(0).unsigned_abs());
        if !step.is_zero() {
            self.ahead.send_modify(|ahead| *ahead = ahead.saturating_add(step));
        }
    }

    pub(crate) fn instant(&self) -> Instant {
        let real = Instant::now();
        // Centuries ahead: timers that far are as good as expired.
        real.checked_add(*self.ahead.borrow()).unwrap_or(real)
    }

    /// Returns at `deadline`; never without one.
    pub(crate) async fn sleep_until(&self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return std::future::pending().await };
        let mut ahead = self.ahead.subscribe();
        loop {
            ahead.mark_unchanged();
            let left = deadline.saturating_duration_since(self.instant());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                _ = ahead.changed() => {}
            }
        }
    }

    pub(crate) async fn timeout_at<F: Future>(
        &self,
        deadline: Option<Instant>,
        future: F,
    ) -> Result<F::Output, TimedOut> {
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.sleep_until(deadline) => Err(TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Env;

    const DAY: Duration = Duration::from_secs(86_400);

    #[tokio::test]
    async fn timers_expire_when_the_date_is_set() {
        let clock = Arc::new(VirtualClock::new(Time(0)));
        let env = Env::with_clock(Arc::clone(&clock));
        let (began, sleeper) = (env.instant(), env.clone());
        let asleep = tokio::spawn(async move { sleeper.sleep(30 * DAY).await });
        let limited = env.clone();
        let limited = tokio::spawn(async move { limited.timeout(DAY, std::future::pending::<()>()).await });
        tokio::task::yield_now().await;
        clock.set(Time(0) + 2 * DAY);
        assert_eq!(limited.await.expect("no panic"), Err(TimedOut));
        assert!(!asleep.is_finished());
        clock.set(Time(0) + 31 * DAY);
        asleep.await.expect("no panic");
        assert!(env.since(began) >= 31 * DAY);
        assert_eq!(env.now(), Time(0) + 31 * DAY, "the date does not move by itself");
    }

    #[tokio::test]
    async fn the_date_never_goes_back_and_nothing_overflows() {
        let clock = Arc::new(VirtualClock::new(Time(1_000)));
        let env = Env::with_clock(Arc::clone(&clock));
        let before = env.instant();
        clock.set(Time(1));
        assert_eq!((env.now(), env.since(before) < DAY), (Time(1_000), true));
        clock.set(Time(i64::MAX));
        assert_eq!(env.now(), Time(i64::MAX));
        let never = env.timeout(Duration::MAX, env.sleep(Duration::MAX));
        assert!(tokio::time::timeout(Duration::from_millis(5), never).await.is_err());
    }
}
