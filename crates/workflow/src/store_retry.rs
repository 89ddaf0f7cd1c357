//! Reading from a store that may be away.
//!
//! A read is repeated until the store answers. If that takes too long, the attempt ends where it is and its job is handed
//! back: the code is not told of it, and neither retries nor attempts are spent.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_env::Env;
use windlass_model::Failure;
use windlass_runtime::{Attempt, StepResult};
use windlass_store::Error;

/// How long a store that is away is waited for before the attempt is handed back.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long after a read that failed the next is tried.
const PAUSE: Duration = Duration::from_millis(200);

/// The class of failures that are the store's. Nothing may be decided by it where others' code is run: they may use it too.
pub(crate) const STORE: &str = "store";

tokio::task_local! {
    /// The attempt whose code reads.
    static ATTEMPT: Arc<Attempt>;
}

/// Runs the code of an attempt, and gives it up if the store cannot be read for too long.
pub(crate) async fn run_attempt(
    attempt: &Arc<Attempt>,
    code: impl Future<Output = Result<StepResult, Failure>>,
) -> Result<StepResult, Failure> {
    let code = async {
        tokio::select! {
            biased;
            turn = code => turn,
            () = attempt.writer.release_requested() => Ok(StepResult::ClaimOver),
        }
    };
    ATTEMPT.scope(Arc::clone(attempt), code).await
}

/// Has work for the attempt whose code runs now read as that code does, in whichever task it is run.
pub(crate) fn inherit_attempt<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let attempt = ATTEMPT.try_with(Arc::clone).ok();
    async move {
        match attempt {
            Some(attempt) => ATTEMPT.scope(attempt, work).await,
            None => work.await,
        }
    }
}

/// One thing to be read.
pub(crate) struct Patience {
    env: Env,
    since: Instant,
    failed: bool,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        let env = ATTEMPT.try_with(|attempt| attempt.writer.env().clone()).unwrap_or_default();
        Patience { since: env.instant(), env, failed: false }
    }

    /// Waits before the next try. When it has lasted too long the attempt is given up, and this does not return; outside of
    /// attempts it is an error.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<(), Error> {
        self.failed = true;
        let attempt = ATTEMPT.try_with(Arc::clone).ok();
        if let Some(attempt) = &attempt {
            attempt.writer.set_store_unreadable(true);
        }
        if self.env.since(self.since) < PATIENCE {
            self.env.sleep(PAUSE).await;
            return Ok(());
        }
        let Some(attempt) = attempt else { return Err(error) };
        tracing::warn!(job = %attempt.job.id, %error, "the store cannot be read; the job is handed back");
        attempt.writer.request_release();
        std::future::pending().await
    }

    /// The store has answered.
    pub(crate) fn over(&self) {
        if self.failed {
            let _ = ATTEMPT.try_with(|attempt| attempt.writer.set_store_unreadable(false));
        }
    }
}

/// Reads something; a store that is away is waited for.
macro_rules! read {
    ($read:expr) => {{
        let mut patience = $crate::store_retry::Patience::new();
        loop {
            match $read.await {
                Err(error @ windlass_store::Error::Unavailable(_)) => {
                    if let Err(error) = patience.wait(error).await {
                        break Err(error);
                    }
                }
                answer => {
                    patience.over();
                    break answer;
                }
            }
        }
    }};
}
pub(crate) use read;

/// The same, with a failure for whatever else goes wrong.
macro_rules! retry_unavailable {
    ($read:expr) => {
        $crate::store_retry::read!($read)
            .map_err(|error| windlass_model::Failure::retry(error).class($crate::store_retry::STORE))
    };
}
pub(crate) use retry_unavailable;
