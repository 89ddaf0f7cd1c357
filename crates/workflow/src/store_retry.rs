//! Retries reads of the store while the store is unavailable.
//!
//! The code of the attempt does not notice: the read returns when the store answers. If that takes too long, the attempt ends
//! where it is and its job is released, which uses up neither retries nor attempts.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_env::Env;
use windlass_model::Failure;
use windlass_runtime::{Attempt, StepResult};
use windlass_store::Error;

/// How long a read is retried before the attempt is released: long enough for a restart of the database.
const MAX_OUTAGE: Duration = Duration::from_secs(30);
/// The delay before a failed read is retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

tokio::task_local! {
    /// The attempt whose code runs in this task.
    static ATTEMPT: Arc<Attempt>;
}

/// Runs the code of an attempt. Drops it and releases the job if the store cannot be read for too long.
pub(crate) async fn run_attempt(
    attempt: &Arc<Attempt>,
    code: impl Future<Output = Result<StepResult, Failure>>,
) -> Result<StepResult, Failure> {
    let code = async {
        tokio::select! {
            biased;
            result = code => result,
            () = attempt.writer.release_requested() => Ok(StepResult::ClaimOver),
        }
    };
    ATTEMPT.scope(Arc::clone(attempt), code).await
}

/// Makes `work`, which may run in another task, part of the current attempt: its reads are retried as the attempt's own.
pub(crate) fn inherit_attempt<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let attempt = ATTEMPT.try_with(Arc::clone).ok();
    async move {
        match attempt {
            Some(attempt) => ATTEMPT.scope(attempt, work).await,
            None => work.await,
        }
    }
}

/// The retries of one read.
pub(crate) struct ReadRetry {
    env: Env,
    since: Instant,
    failed: bool,
}

impl ReadRetry {
    pub(crate) fn new() -> ReadRetry {
        let env = ATTEMPT.try_with(|attempt| attempt.writer.env().clone()).unwrap_or_default();
        ReadRetry { since: env.instant(), env, failed: false }
    }

    /// Waits before the next retry. After [`MAX_OUTAGE`] it releases the attempt and never returns; outside of attempts it
    /// returns the error.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<(), Error> {
        self.failed = true;
        let attempt = ATTEMPT.try_with(Arc::clone).ok();
        if let Some(attempt) = &attempt {
            attempt.writer.set_store_unreadable(true);
        }
        if self.env.since(self.since) < MAX_OUTAGE {
            self.env.sleep(RETRY_INTERVAL).await;
            return Ok(());
        }
        let Some(attempt) = attempt else { return Err(error) };
        tracing::warn!(job = %attempt.job.id, %error, "the store cannot be read; the job is released");
        attempt.writer.request_release();
        std::future::pending().await
    }

    /// Notes that the store has answered.
    pub(crate) fn succeeded(&self) {
        if self.failed {
            let _ = ATTEMPT.try_with(|attempt| attempt.writer.set_store_unreadable(false));
        }
    }
}

/// Reads something, and retries while the store is unavailable.
macro_rules! read {
    ($read:expr) => {{
        let mut retry = $crate::store_retry::ReadRetry::new();
        loop {
            match $read.await {
                Err(error @ windlass_store::Error::Unavailable(_)) => {
                    if let Err(error) = retry.wait(error).await {
                        break Err(error);
                    }
                }
                answer => {
                    retry.succeeded();
                    break answer;
                }
            }
        }
    }};
}
pub(crate) use read;

/// The same; any other error becomes a failure.
macro_rules! retry_unavailable {
    ($read:expr) => {
        $crate::store_retry::read!($read).map_err(|error| {
            windlass_model::Failure::retry(error).class(windlass_model::failure::class::STORE)
        })
    };
}
pub(crate) use retry_unavailable;
