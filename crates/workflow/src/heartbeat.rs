//! Heartbeats: an attempt that says that it is alive, by reporting its progress, and the timeout of one that does not.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use windlass_env::Env;
use windlass_model::{Failure, failure::class};

use crate::attempt_source::LiveAttempt;

/// When code last reported progress, for a heartbeat timeout.
pub(crate) struct Heartbeat {
    timeout: Duration,
    last: Mutex<Instant>,
}

impl Heartbeat {
    /// Starts now.
    pub(crate) fn new(env: &Env, timeout: Duration) -> Heartbeat {
        Heartbeat { timeout, last: Mutex::new(env.instant()) }
    }

    /// Notes that the code is alive.
    pub(crate) fn beat(&self, env: &Env) {
        *self.last.lock().unwrap_or_else(|e| e.into_inner()) = env.instant();
    }

    fn lapses_at(&self) -> Option<Instant> {
        self.last.lock().unwrap_or_else(|e| e.into_inner()).checked_add(self.timeout)
    }

    /// Runs code until it ends, or has reported nothing for the timeout.
    pub(crate) async fn watch<T>(
        &self,
        env: &Env,
        code: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            result = code => result,
            failure = self.lapsed(env) => Err(failure),
        }
    }

    /// Returns when nothing was reported for the timeout.
    async fn lapsed(&self, env: &Env) -> Failure {
        loop {
            match self.lapses_at() {
                Some(at) if at <= env.instant() => return no_progress(self.timeout),
                Some(at) => env.sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }
}

/// Runs the code of an attempt with its heartbeat timeout, if it has one.
pub(crate) async fn watch<T>(
    attempt: Option<&LiveAttempt>,
    code: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match attempt {
        Some(LiveAttempt { services, heartbeat: Some(heartbeat), .. }) => {
            heartbeat.watch(&services.env, code).await
        }
        _ => code.await,
    }
}

fn no_progress(timeout: Duration) -> Failure {
    Failure::retry(format!(
        "the attempt reported no progress for {timeout:?}, its heartbeat timeout; call `cx.progress` more often, or allow more time"
    ))
    .class(class::TIMEOUT)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use windlass_env::VirtualClock;
    use windlass_model::Time;

    use super::*;

    #[tokio::test]
    async fn code_that_reports_lives_on_and_code_that_does_not_times_out() {
        let second = Duration::from_secs(1);
        let clock = Arc::new(VirtualClock::new(Time(0)));
        let env = Env::with_clock(Arc::clone(&clock));
        let heartbeat = Heartbeat::new(&env, 10 * second);
        let mut watched =
            std::pin::pin!(heartbeat.watch(&env, std::future::pending::<Result<(), Failure>>()));
        for seconds in [9, 18, 27] {
            assert!(watched.as_mut().now_or_never().is_none(), "it has reported in time");
            clock.set(Time(0) + seconds * second);
            heartbeat.beat(&env);
        }
        assert!(watched.as_mut().now_or_never().is_none());
        clock.set(Time(0) + 37 * second);
        let failure = watched.await.expect_err("it has stopped reporting");
        assert_eq!(&*failure.class, class::TIMEOUT);
        assert!(failure.message.contains("no progress for 10s"), "{failure}");
    }
}
