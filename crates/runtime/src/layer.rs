//! Layers: code of the program around every attempt, for logging, metrics or tenancy.
//!
//! A layer is called instead of the attempt, and runs it by [`NextLayer::run`]. It can set task-locals and spans, measure, or refuse
//! the attempt. It cannot change what a finished attempt returned: that is taken from the attempt itself.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex},
};

use futures_util::FutureExt;
use windlass_model::{Failure, JobId, KindVersion, Outcome, WorkerId, failure::class};

use crate::{Attempt, Running, StepResult, sync::lock};

/// Code around every attempt of a worker.
///
/// Closures and async functions are layers:
///
/// ```
/// # use windlass_model::Failure;
/// # use windlass_runtime::{AttemptInfo, Ended, Layer, NextLayer};
/// async fn only_known_tenants(attempt: AttemptInfo, next: NextLayer) -> Result<Ended, Failure> {
///     match attempt.key() {
///         Some(key) if key.starts_with("acme/") => next.run().await,
///         _ => Err(Failure::stop("there is no such tenant")),
///     }
/// }
/// # fn is_layer(_: impl Layer) {}
/// # is_layer(only_known_tenants);
/// ```
///
/// A type of your own keeps what it needs in its fields:
///
/// ```
/// # use std::{sync::atomic::{AtomicU64, Ordering}};
/// # use windlass_model::Failure;
/// # use windlass_runtime::{AttemptInfo, Ended, Layer, NextLayer};
/// #[derive(Default)]
/// struct CountFailures {
///     failures: AtomicU64,
/// }
///
/// impl Layer for CountFailures {
///     async fn call(&self, _attempt: AttemptInfo, next: NextLayer) -> Result<Ended, Failure> {
///         let ended = next.run().await?;
///         if ended.failure().is_some() {
///             self.failures.fetch_add(1, Ordering::Relaxed);
///         }
///         Ok(ended)
///     }
/// }
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Called instead of the attempt. Call `next.run()` and return its answer; or return a failure to refuse the attempt, which
    /// the retry policy treats like a failure of the attempt.
    ///
    /// It runs within the time limit of the attempt. Once the attempt has run, neither an error nor a panic here changes what is
    /// committed.
    fn call(
        &self,
        attempt: AttemptInfo,
        next: NextLayer,
    ) -> impl Future<Output = Result<Ended, Failure>> + Send;
}

impl<F, Fut> Layer for F
where
    F: Fn(AttemptInfo, NextLayer) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Ended, Failure>> + Send,
{
    fn call(
        &self,
        attempt: AttemptInfo,
        next: NextLayer,
    ) -> impl Future<Output = Result<Ended, Failure>> + Send {
        self(attempt, next)
    }
}

/// What a layer can find out about an attempt.
#[derive(Clone)]
pub struct AttemptInfo {
    attempt: Arc<Attempt>,
    handled: Option<Failure>,
}

impl AttemptInfo {
    pub(crate) fn new(attempt: &Arc<Attempt>, handled: Option<&Failure>) -> AttemptInfo {
        AttemptInfo { attempt: Arc::clone(attempt), handled: handled.cloned() }
    }

    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.attempt.job.id
    }

    /// The kind of the job, and its version.
    pub fn kind(&self) -> &KindVersion {
        &self.attempt.job.kind
    }

    /// The caller's key for the job.
    pub fn key(&self) -> Option<&str> {
        self.attempt.job.key.as_deref()
    }

    /// The queue that the job was claimed from.
    pub fn queue(&self) -> &str {
        self.attempt.writer.queue()
    }

    /// The stage that the job is in, if it is a machine.
    pub fn stage(&self) -> Option<&str> {
        self.attempt.job.stage.as_deref()
    }

    /// The number of this attempt, from 1. Deaths of workers do not count.
    pub fn attempt(&self) -> u32 {
        self.attempt.job.attempts + 1
    }

    /// A number that is larger in every later claim of this job.
    pub fn fence(&self) -> i32 {
        self.attempt.job.epoch.0
    }

    /// The worker that runs the attempt.
    pub fn worker(&self) -> WorkerId {
        self.attempt.worker
    }

    /// The trace that the attempt is part of, as a W3C `traceparent`.
    pub fn traceparent(&self) -> Option<String> {
        self.attempt.traceparent()
    }

    /// The failure that `on_error` of a machine handles: it runs in a call of its own. `None` for the attempt itself.
    pub fn handled_failure(&self) -> Option<&Failure> {
        self.handled.as_ref()
    }
}

/// How an attempt ended, before the retry policy decides what follows.
#[derive(Clone, Debug)]
pub struct Ended {
    failure: Option<Failure>,
    is_done: bool,
}

impl Ended {
    fn of(result: &Result<StepResult, Failure>) -> Ended {
        let (failure, is_done) = match result {
            Ok(StepResult::Done(_)) => (None, true),
            Ok(StepResult::Commit { outcome, .. }) => {
                (outcome.failure().cloned(), matches!(outcome, Outcome::Done(_)))
            }
            Ok(StepResult::Failed(failure) | StepResult::Stop(failure)) | Err(failure) => {
                (Some(failure.clone()), false)
            }
            Ok(_) => (None, false),
        };
        Ended { failure, is_done }
    }

    /// The failure that it ended with, if it failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Whether the job is done. A machine or workflow that continues or waits is not, and has not failed either.
    pub fn is_done(&self) -> bool {
        self.is_done
    }
}

/// The layers further in, and the attempt itself.
pub struct NextLayer {
    layers: Layers,
    /// How many layers were called.
    depth: usize,
    info: AttemptInfo,
    running: Running,
    /// What the attempt returned.
    result: Arc<Mutex<Option<Result<StepResult, Failure>>>>,
}

impl NextLayer {
    /// Runs the attempt, within the layers further in. An error is the refusal of one of those.
    pub async fn run(mut self) -> Result<Ended, Failure> {
        if let Some(layer) = self.layers.get(self.depth).cloned() {
            self.depth += 1;
            return layer.call_boxed(self.info.clone(), self).await;
        }
        let result = self.running.await;
        let ended = Ended::of(&result);
        *lock(&self.result) = Some(result);
        Ok(ended)
    }
}

/// All layers of a worker, the outermost first.
pub(crate) type Layers = Arc<[Arc<dyn BoxedLayer>]>;

/// A layer as a trait object.
pub(crate) trait BoxedLayer: Send + Sync {
    fn call_boxed(
        &self,
        attempt: AttemptInfo,
        next: NextLayer,
    ) -> Pin<Box<dyn Future<Output = Result<Ended, Failure>> + Send + '_>>;
}

impl<L: Layer> BoxedLayer for L {
    fn call_boxed(
        &self,
        attempt: AttemptInfo,
        next: NextLayer,
    ) -> Pin<Box<dyn Future<Output = Result<Ended, Failure>> + Send + '_>> {
        Box::pin(self.call(attempt, next))
    }
}

/// Wraps an attempt in layers; without layers it is returned as it is.
pub(crate) fn wrap(layers: &Layers, info: impl FnOnce() -> AttemptInfo, running: Running) -> Running {
    if layers.is_empty() {
        return running;
    }
    let (layers, info, result) = (Arc::clone(layers), info(), Arc::default());
    let next = NextLayer { layers, depth: 0, info, running, result: Arc::clone(&result) };
    Box::pin(async move {
        let answer = AssertUnwindSafe(next.run()).catch_unwind().await;
        if let Some(result) = lock(&result).take() {
            if let Err(panic) = answer {
                tracing::error!(
                    panic = Failure::of_panic(&*panic).message,
                    "a layer panicked after its attempt; the attempt stands"
                );
            }
            return result;
        }
        match answer {
            Ok(Err(refusal)) => Err(refusal),
            Ok(Ok(_)) => {
                let text = "a layer returned without having run the attempt; return what `next.run()` returned, or an error";
                Err(Failure::stop(text).class(class::REFUSED))
            }
            Err(panic) => Err(Failure::of_panic(&*panic)),
        }
    })
}
