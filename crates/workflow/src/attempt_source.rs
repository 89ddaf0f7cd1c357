//! Where contexts take their answers from: an attempt of a worker, or values that a unit test has set.
//!
//! Only a [`LiveAttempt`] has a writer and a store. A context of a unit test has neither, so its code can write nothing.

use std::{
    any::type_name,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::watch;
use windlass_model::{ClaimedJob, Failure, Progress, failure::class};
use windlass_runtime::Attempt;
use windlass_store::ChildEnd;

use crate::{Data, WaitFor, codec::Codecs, heartbeat::Heartbeat, machine::Services};

/// An attempt of a worker, and what its engine provides.
#[derive(Clone)]
pub(crate) struct LiveAttempt {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) services: Arc<Services>,
    /// If it must report its progress.
    pub(crate) heartbeat: Option<Arc<Heartbeat>>,
}

/// Where a context takes its answers from.
#[derive(Clone)]
pub(crate) enum AttemptSource {
    Live(LiveAttempt),
    Test(Arc<TestContext>),
}

impl AttemptSource {
    pub(crate) fn live(attempt: Arc<Attempt>, services: Arc<Services>) -> AttemptSource {
        AttemptSource::Live(LiveAttempt { attempt, services, heartbeat: None })
    }

    /// An attempt that must report its progress this often, if at all.
    pub(crate) fn live_with_heartbeat(
        attempt: Arc<Attempt>,
        services: Arc<Services>,
        timeout: Option<Duration>,
    ) -> AttemptSource {
        let heartbeat = timeout.map(|timeout| Arc::new(Heartbeat::new(&services.env, timeout)));
        AttemptSource::Live(LiveAttempt { attempt, services, heartbeat })
    }

    /// Reports progress. In a unit test nobody sees it.
    pub(crate) fn report(&self, done: u64, total: Option<u64>, note: &str) {
        let AttemptSource::Live(LiveAttempt { attempt, services, heartbeat }) = self else { return };
        if let Some(heartbeat) = heartbeat {
            heartbeat.beat(&services.env);
        }
        attempt.report(Progress::new(done, total, note, services.env.now()));
    }

    pub(crate) fn job(&self) -> &ClaimedJob {
        match self {
            AttemptSource::Live(live) => &live.attempt.job,
            AttemptSource::Test(test) => &test.job,
        }
    }

    #[track_caller]
    pub(crate) fn data<T: Send + Sync + 'static>(&self) -> &T {
        match self {
            AttemptSource::Live(live) => live.services.data.expect(),
            AttemptSource::Test(test) => test.expect_data(),
        }
    }

    pub(crate) fn try_data<T: Send + Sync + 'static>(&self) -> Option<&T> {
        match self {
            AttemptSource::Live(live) => live.services.data.get(),
            AttemptSource::Test(test) => test.data.get(),
        }
    }

    pub(crate) fn codecs(&self) -> &Codecs {
        match self {
            AttemptSource::Live(live) => &live.services.codecs,
            AttemptSource::Test(test) => &test.codecs,
        }
    }

    pub(crate) fn traceparent(&self) -> Option<String> {
        match self {
            AttemptSource::Live(live) => live.attempt.traceparent(),
            AttemptSource::Test(test) => test.job.settings.trace.clone(),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            AttemptSource::Live(live) => live.attempt.is_cancelled(),
            AttemptSource::Test(test) => test.is_cancelled(),
        }
    }

    pub(crate) async fn cancelled(&self) {
        match self {
            AttemptSource::Live(live) => live.attempt.cancelled().await,
            AttemptSource::Test(test) => test.cancelled().await,
        }
    }

    /// The attempt, unless this is a unit test.
    pub(crate) fn live_attempt(&self) -> Option<&LiveAttempt> {
        match self {
            AttemptSource::Live(live) => Some(live),
            AttemptSource::Test(_) => None,
        }
    }

    /// The attempt, for a call that reads from the store or writes to it; an error in a unit test.
    pub(crate) fn require_live(&self, call: &str) -> Result<&LiveAttempt, Failure> {
        match self {
            AttemptSource::Live(live) => Ok(live),
            AttemptSource::Test(_) => Err(needs_engine(call)),
        }
    }
}

/// What a context of a unit test answers. `windlass::testing` describes it and makes contexts from it.
pub struct TestContext {
    /// The job, as a claim would return it.
    pub job: ClaimedJob,
    /// The program's data.
    pub data: Data,
    /// The signals that a machine waited for; `None` for those in the inbox of the job.
    pub wait: Option<WaitFor>,
    /// The children that a machine waited for.
    pub children: Vec<ChildEnd>,
    /// The id of a workflow's step.
    pub step_id: String,
    /// Becomes true when the attempt is cancelled.
    pub cancelled: watch::Receiver<bool>,
    codecs: Codecs,
    /// The values that a step of a workflow has set in the context of its job.
    values: Mutex<BTreeMap<String, serde_json::Value>>,
}

impl TestContext {
    /// A context without data, signals or children.
    pub fn new(job: ClaimedJob) -> TestContext {
        TestContext {
            step_id: format!("{}/step", job.id),
            job,
            data: Data::default(),
            wait: None,
            children: Vec::new(),
            // Without a sender it never changes.
            cancelled: watch::channel(false).1,
            codecs: Codecs::default(),
            values: Mutex::default(),
        }
    }

    /// A missing value is a mistake of the test, which a panic reports with its line.
    #[track_caller]
    pub(crate) fn expect_data<T: Send + Sync + 'static>(&self) -> &T {
        match self.data.get() {
            Some(value) => value,
            None => panic!(
                "the code asks for data of the type `{}`, and the context of this test was given none; add `.data(value)` before \
                 `.build()`",
                type_name::<T>()
            ),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    pub(crate) async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }

    pub(crate) fn values(&self) -> MutexGuard<'_, BTreeMap<String, serde_json::Value>> {
        self.values.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The error of a call that a context of a unit test cannot answer.
pub(crate) fn needs_engine(call: &str) -> Failure {
    let text = format!(
        "`{call}` needs a store, and this context was built for a unit test without one; run the job in a \
         `windlass::testing::Lab` to test it"
    );
    Failure::stop(text).class(class::REFUSED)
}
