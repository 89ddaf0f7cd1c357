//! Tasks: a type that is the input, and one async function that runs on it.

use std::{future::Future, marker::PhantomData, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{Failure, JobId, Payload, Retry, Time, failure::class};
use windlass_runtime::{Attempt, Handler, Policy, Started, StepResult};

use crate::{
    Needs,
    attempt_source::{AttemptSource, TestContext},
    branch::block::{self, BlockItem},
    heartbeat,
    machine::Services,
};

/// A plain job: one `run`, whose errors are retried by policy.
///
/// ```
/// # use std::time::Duration;
/// # use serde::{Deserialize, Serialize};
/// # use windlass_model::{Failure, Retry};
/// # use windlass_workflow::{Needs, Task, TaskCx};
/// # struct Images;
/// # impl Images { async fn resize(&self, _: u64, _: u32) -> Result<String, Failure> { Ok(String::new()) } }
/// #[derive(Serialize, Deserialize)]
/// struct Resize {
///     image: u64,
///     width: u32,
/// }
///
/// impl Task for Resize {
///     const KIND: &'static str = "resize";
///     type Output = String;
///     type Error = Failure;
///
///     async fn run(self, cx: &TaskCx) -> Result<String, Failure> {
///         cx.data::<Images>().resize(self.image, self.width).await
///     }
///
///     fn retry() -> Retry {
///         Retry::times(5).backoff(Duration::from_secs(2), Duration::from_secs(60))
///     }
///
///     fn needs() -> Needs {
///         Needs::new().data::<Images>()
///     }
/// }
/// ```
///
/// It runs at least once, and its outcome is recorded exactly once. Its effects on the outside world may happen twice if a
/// worker dies at the wrong moment; [`TaskCx::id`] is a good idempotency key, and [`TaskCx::fence`] a fencing token for systems
/// that take one.
pub trait Task: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The kind's name in the store; it outlives the type's name.
    const KIND: &'static str;
    /// Which version of the kind this code runs.
    const VERSION: i32 = 1;
    /// The queue of its jobs, unless the submit names another.
    const QUEUE: &'static str = "default";
    /// What it returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// Its error. The conversion says, by type, whether a retry can help.
    type Error: Into<Failure> + Send;

    /// Does the work.
    fn run(self, cx: &TaskCx) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;

    /// When to retry: by default 20 attempts with growing delays.
    fn retry() -> Retry {
        Policy::default().retry
    }

    /// How long to wait before the next attempt after `failure`, the `nth` failure that the rule of the retry policy has counted;
    /// `None`, the default, leaves it to the policy. Not asked if the failure says when ([`Failure::retry_after`]), nor for a job
    /// that was submitted with a retry policy of its own.
    fn backoff(_failure: &Failure, _nth: u32) -> Option<Duration> {
        None
    }

    /// How long one attempt may run: by default an hour; `None` is no limit.
    fn timeout() -> Option<Duration> {
        Policy::default().timeout
    }

    /// How long an attempt may run without a call of [`TaskCx::progress`]; then it ends like one that has reached its timeout. By
    /// default it need not report.
    ///
    /// Items of a packed branch need not report: one that takes long becomes a job of its own.
    fn heartbeat_timeout() -> Option<Duration> {
        None
    }

    /// The data that it cannot run without: the engine does not start if its builder was given none of these types. By default
    /// nothing is required.
    fn needs() -> Needs {
        Needs::new()
    }
}

/// What a running task can find out about its job and its attempt.
///
/// ```
/// # use windlass_model::Failure;
/// # use windlass_workflow::TaskCx;
/// # struct Bank;
/// # impl Bank { async fn charge(&self, _key: String, _cents: u64) -> Result<(), Failure> { Ok(()) } }
/// async fn charge_all(cx: &TaskCx, amounts: Vec<u64>) -> Result<(), Failure> {
///     let total = amounts.len() as u64;
///     for (done, cents) in (0..).zip(amounts) {
///         if cx.is_cancelled() {
///             return Err(Failure::cancel("stopped between two charges"));
///         }
///         // The same in every attempt: the bank recognises a repeat.
///         cx.data::<Bank>().charge(format!("{}/{done}", cx.id()), cents).await?;
///         cx.progress(done + 1, total, "charging");
///     }
///     Ok(())
/// }
/// ```
pub struct TaskCx {
    source: AttemptSource,
    /// The item of a block that it runs for.
    item: Option<BlockItem>,
}

impl TaskCx {
    pub(crate) fn item(attempt: Arc<Attempt>, item: BlockItem, services: Arc<Services>) -> TaskCx {
        TaskCx { source: AttemptSource::live(attempt, services), item: Some(item) }
    }

    /// The id of the job. An item of a packed branch has an id of its own, which it keeps if it is promoted.
    pub fn id(&self) -> JobId {
        self.item.as_ref().map_or(self.source.job().id, BlockItem::id)
    }

    /// The caller's key for the job.
    pub fn key(&self) -> Option<&str> {
        self.source.job().key.as_deref()
    }

    /// The tick of the schedule that submitted it: the time it was scheduled for, however late it runs.
    pub fn tick(&self) -> Option<Time> {
        self.source.job().settings.tick
    }

    /// The number of this attempt, from 1. Deaths of workers do not count.
    pub fn attempt(&self) -> u32 {
        self.source.job().attempts + 1
    }

    /// A number that is larger in every later claim of this job. Systems that refuse writes with an older number than they have
    /// seen are safe from attempts that were declared dead and still run.
    pub fn fence(&self) -> i32 {
        self.source.job().epoch.0
    }

    /// The program's data of this type, which the engine's builder was given. If it was given none, the attempt ends here and the
    /// job fails.
    #[track_caller]
    pub fn data<T: Send + Sync + 'static>(&self) -> &T {
        self.source.data()
    }

    /// The program's data of this type, if the engine's builder was given any.
    pub fn try_data<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.source.try_data()
    }

    /// Reports how far the attempt has come: `done` out of `total`, if that is known, and what it is doing. `windlass show` and
    /// `why` show the last report within seconds, and it restarts the time of [`Task::heartbeat_timeout`]. It is cheap enough for
    /// every item of a loop: nothing is written until the worker renews its lease.
    ///
    /// ```
    /// # use windlass_workflow::TaskCx;
    /// # async fn example(cx: &TaskCx, files: Vec<String>) {
    /// for (done, file) in files.iter().enumerate() {
    ///     cx.progress(done as u64, files.len() as u64, file);
    ///     // convert the file
    /// }
    /// # }
    /// ```
    pub fn progress(&self, done: u64, total: impl Into<Option<u64>>, note: &str) {
        if self.item.is_none() {
            self.source.report(done, total.into(), note);
        }
    }

    /// The trace that this attempt is part of, as a W3C `traceparent` to be sent along with calls to other services. Jobs that
    /// the task submits are part of it by default, unless a spawned task submits them: then pass it to `Submit::trace`.
    pub fn traceparent(&self) -> Option<String> {
        self.source.traceparent()
    }

    /// Whether the attempt should end soon: the job is being cancelled, and the store ends it after the grace period; or the
    /// worker is stopping and has waited long enough, and the job runs again elsewhere.
    pub fn is_cancelled(&self) -> bool {
        self.source.is_cancelled()
    }

    /// Returns when [`TaskCx::is_cancelled`] becomes true.
    pub async fn cancelled(&self) {
        self.source.cancelled().await;
    }
}

impl TestContext {
    /// The context of a task.
    pub fn into_task_cx(self) -> TaskCx {
        TaskCx { source: AttemptSource::Test(Arc::new(self)), item: None }
    }
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` is no kind of job",
    label = "this is not a `Task`, a `Machine` or a `Workflow`",
    note = "implement one of them (and only one) for the type that is the job's input"
)]
/// Something that can be submitted. `M` says which of the authoring traits it implements and is always inferred.
pub trait Kind<M>: Serialize + Send + Sync {
    /// The kind's name.
    const KIND: &'static str;
    /// The kind's version.
    const VERSION: i32;
    /// The queue of its jobs, unless the submit names another.
    const QUEUE: &'static str;
    /// What it returns.
    type Output: DeserializeOwned + Send;
    /// Its error.
    type Error;

    /// Whether this stands for a job of any kind.
    #[doc(hidden)]
    const ANY: bool = false;

    /// Whether jobs of this kind can be packed into blocks.
    #[doc(hidden)]
    const PACKS: bool = false;

    /// Returns the stage that a job with this encoded input starts in, if it is a machine.
    #[doc(hidden)]
    fn stage(_input: &[u8]) -> Option<String> {
        None
    }
}

/// Marks [`Kind`]s that are [`Task`]s.
pub struct AsTask;

impl<T: Task> Kind<AsTask> for T {
    const KIND: &'static str = T::KIND;
    const VERSION: i32 = T::VERSION;
    const QUEUE: &'static str = T::QUEUE;
    const PACKS: bool = true;
    type Output = T::Output;
    type Error = T::Error;
}

/// Runs a task's jobs: decodes the input, calls `run`, encodes what it returns.
pub struct TaskHandler<T> {
    services: Arc<Services>,
    policy: Policy,
    heartbeat_timeout: Option<Duration>,
    task: PhantomData<fn() -> T>,
}

impl<T: Task> TaskHandler<T> {
    /// Makes a handler.
    pub fn new(services: &Arc<Services>) -> TaskHandler<T> {
        TaskHandler {
            services: Arc::clone(services),
            policy: Policy { retry: T::retry(), timeout: T::timeout() },
            heartbeat_timeout: T::heartbeat_timeout(),
            task: PhantomData,
        }
    }
}

impl<T: Task> Handler for TaskHandler<T> {
    fn start(&self, attempt: Arc<Attempt>) -> Started {
        if block::is_block(attempt.job.stage.as_deref()) {
            let services = Arc::clone(&self.services);
            let Policy { retry, timeout } = self.policy.clone();
            let running = Box::pin(block::run::<T>(attempt, services, retry, timeout));
            return Started { running, timeout: None, stage: None, handles_own_end: false };
        }
        let services = Arc::clone(&self.services);
        let source = AttemptSource::live_with_heartbeat(attempt, services, self.heartbeat_timeout);
        Started {
            running: Box::pin(run::<T>(TaskCx { source, item: None })),
            timeout: self.policy.timeout,
            stage: None,
            handles_own_end: false,
        }
    }

    fn retry(&self, _attempt: &Attempt) -> Retry {
        self.policy.retry.clone()
    }

    fn backoff(&self, _attempt: &Attempt, failure: &Failure, nth: u32) -> Option<Duration> {
        T::backoff(failure, nth)
    }

    fn check_input(&self, input: &[u8]) -> Result<(), String> {
        serde_json::from_slice::<T>(input).map(drop).map_err(|error| error.to_string())
    }
}

async fn run<T: Task>(cx: TaskCx) -> Result<StepResult, Failure> {
    let input = &cx.source.job().input;
    let task: T = serde_json::from_slice(&input.bytes).map_err(|e| {
        Failure::stop(format!("the input does not decode as {:?} ({e})", T::KIND)).class(class::UNDECODABLE)
    })?;
    let running = async { task.run(&cx).await.map_err(Into::into) };
    let output = heartbeat::watch(cx.source.live_attempt(), running).await?;
    let bytes = serde_json::to_vec(&output).map_err(|e| {
        Failure::stop(format!("the output cannot be written as JSON ({e})")).class(class::REFUSED)
    })?;
    Ok(StepResult::Done(Payload::json(bytes)))
}
