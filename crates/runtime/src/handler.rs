//! The code behind a kind: handlers, and what an attempt gives to and takes from them.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::watch;
use windlass_model::{
    ClaimedJob, Failure, KindVersion, NewJob, Outcome, Payload, Progress, ProgressReport, Retry, StepWrites,
    Time, UnreadableSignal, Wait, WorkerId,
};
use windlass_store::Actor;

use crate::{
    Layer, StepWriter,
    cancellations::CancelFlag,
    layer::{BoxedLayer, Layers},
    sync::lock,
    telemetry::trace,
};

/// One attempt at a job, or at one step of a machine, as its handler sees it.
#[derive(Clone)]
pub struct Attempt {
    /// The job. After the first step of a machine within a claim, its input is left out.
    pub job: Arc<ClaimedJob>,
    /// The worker that runs it.
    pub worker: WorkerId,
    /// When it started, by the worker's clock. For a machine, whose steps follow each other within a claim, when the first of them did.
    pub started_at: Time,
    /// Commits steps while the attempt continues.
    pub writer: Arc<StepWriter>,
    /// Set by a stopping worker whose drain time is over.
    pub(crate) cancelled: watch::Receiver<bool>,
    /// Set by a cancel request for the job.
    pub(crate) cancel: Arc<CancelFlag>,
    /// What the attempt last reported, for the renewer.
    pub(crate) progress: Arc<Mutex<Option<Progress>>>,
}

impl Attempt {
    /// Whether the attempt should end: someone cancelled the job, or the worker is stopping and its drain time is over.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_requested() || *self.cancelled.borrow()
    }

    /// Whether the worker is stopping and its drain time is over.
    pub fn is_worker_stopping(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Returns when [`Attempt::is_worker_stopping`] becomes true.
    pub async fn worker_stopping(&self) {
        let mut cancelled = self.cancelled.clone();
        // An error means that the worker, which owns the sender, is gone.
        let _ = cancelled.wait_for(|cancelled| *cancelled).await;
    }

    /// Reports how far the attempt has come, in place of what it reported before. People see it once the worker has renewed its
    /// lease.
    pub fn report(&self, progress: Progress) {
        *lock(&self.progress) = Some(progress);
    }

    /// What it has reported, if anything.
    pub(crate) fn progress(&self) -> Option<ProgressReport> {
        let progress = lock(&self.progress).clone()?;
        Some(ProgressReport { job: self.job.id, epoch: self.job.epoch, progress })
    }

    /// The trace that this attempt is part of, as a W3C `traceparent` to pass on.
    pub fn traceparent(&self) -> Option<String> {
        trace::current().or_else(|| self.job.settings.trace.clone())
    }

    /// Who requested that the job is cancelled, if someone did.
    pub fn cancel_requested_by(&self) -> Option<&Actor> {
        self.cancel.actor()
    }

    /// Returns when someone has requested that the job is cancelled.
    pub async fn cancel_requested(&self) {
        self.cancel.requested().await;
    }

    /// Returns when the grace period of a cancel request is over.
    pub async fn cancel_deadline(&self) {
        self.cancel.deadline_passed(self.writer.env()).await;
    }

    /// Returns when the attempt should end; see [`Attempt::is_cancelled`].
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        tokio::select! {
            // An error means that the worker, which owns the sender, is gone.
            _ = cancelled.wait_for(|cancelled| *cancelled) => {}
            () = self.cancel.requested() => {}
        }
    }
}

/// What the code of a job returned from one attempt.
#[derive(Clone, PartialEq, Debug)]
pub enum StepResult {
    /// The job is done.
    Done(Payload),
    /// A machine continues in this stage.
    Next(Stage),
    /// A machine continues in this stage once its wait is over.
    Wait(Stage, Wait),
    /// A machine continues in this stage once these jobs have ended, or the timeout has passed.
    Children {
        /// The stage.
        stage: Stage,
        /// The jobs, submitted by the commit of the step.
        children: Vec<NewJob>,
        /// The longest time to wait for them.
        timeout: Option<Duration>,
    },
    /// A machine runs the same step again later, without an error.
    Again {
        /// The stage, with the data to keep from this attempt.
        stage: Stage,
        /// The delay.
        after: Duration,
    },
    /// The attempt failed, and the retry policy decides what follows.
    Failed(Failure),
    /// The job has failed, whatever the retry policy says.
    Stop(Failure),
    /// A machine was shown signals that it cannot decode: they are marked unreadable, and its wait continues.
    MarkUnreadable(Vec<UnreadableSignal>),
    /// A workflow ends or parks.
    Commit {
        /// What is written with the outcome.
        step: Option<Box<StepWrites>>,
        /// How it ended.
        outcome: Outcome,
    },
    /// A step was committed, and the commit ended the claim because the job was paused or cancelled.
    Halted,
    /// The claim is over, or its job is to be released. Nothing is written.
    ClaimOver,
}

/// A stage of a machine and its data.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Its encoded data.
    pub data: Payload,
    /// Whether name and data are the same as before the step.
    pub unchanged: bool,
}

/// The future of one attempt.
pub type Running = Pin<Box<dyn Future<Output = Result<StepResult, Failure>> + Send>>;

/// An attempt that was started.
pub struct Started {
    /// The future to run.
    pub running: Running,
    /// How long it may run, unless the job's own settings say otherwise; `None` is without a limit.
    pub timeout: Option<Duration>,
    /// The stage that runs, if the job is a machine.
    pub stage: Option<String>,
    /// Whether the handler enforces deadlines and cancel requests itself. Then the future is not dropped when the job's
    /// deadline or the grace period of a cancel request passes: the store ends the job, and unwinds it if necessary.
    pub handles_own_end: bool,
}

/// The code behind a kind.
pub trait Handler: Send + Sync + 'static {
    /// Starts one attempt. What its future returns is committed. A panic, here or in the future, and a timeout become a
    /// failure.
    fn start(&self, attempt: Arc<Attempt>) -> Started;

    /// The retry policy of this attempt, unless the job's own settings say otherwise.
    fn retry(&self, attempt: &Attempt) -> Retry;

    /// How long to wait before the next attempt after `failure`, the `nth` that the rule of the retry policy has counted; `None`
    /// leaves it to the policy. Not asked if the failure says it ([`Failure::retry_after`]), or if the job has a retry policy of
    /// its own. A panic counts as `None`.
    fn backoff(&self, _attempt: &Attempt, _failure: &Failure, _nth: u32) -> Option<Duration> {
        None
    }

    /// Checks that the code can decode an input, given as plain JSON, before a job with it is submitted. The error says why not.
    fn check_input(&self, _input: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Lets the code decide what follows from a failure; `None` leaves it to the retry policy.
    fn rescue(&self, _attempt: Arc<Attempt>, _failure: &Failure) -> Option<Running> {
        None
    }
}

/// Settings of every job of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// When to retry.
    pub retry: Retry,
    /// How long one attempt may run; `None` is without a limit.
    pub timeout: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Policy {
        // An hour: a hung attempt must not hold its slot for ever, and the authors of longer ones know that they are.
        Policy { retry: Retry::default(), timeout: Some(Duration::from_secs(3_600)) }
    }
}

/// All handlers of a worker, by kind and version, and the layers around them.
#[derive(Clone)]
pub struct Registry {
    handlers: HashMap<String, HashMap<i32, Arc<dyn Handler>>>,
    layers: Layers,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry { handlers: HashMap::new(), layers: Arc::new([]) }
    }
}

impl Registry {
    /// Adds a handler. It replaces an earlier one for the same kind and version.
    pub fn add(&mut self, kind: KindVersion, handler: Arc<dyn Handler>) {
        self.handlers.entry(kind.kind).or_default().insert(kind.version, handler);
    }

    /// Adds a layer around all attempts, within the layers that were added before.
    pub fn layer(&mut self, layer: impl Layer) {
        let added: Arc<dyn BoxedLayer> = Arc::new(layer);
        self.layers = self.layers.iter().cloned().chain([added]).collect();
    }

    /// A registry with the layers of this one, and without its handlers.
    pub fn without_handlers(&self) -> Registry {
        Registry { handlers: HashMap::new(), layers: Arc::clone(&self.layers) }
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The handler of a kind and version.
    pub fn get(&self, kind: &KindVersion) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(&kind.kind)?.get(&kind.version)
    }

    /// All kinds and versions, sorted.
    pub fn kinds(&self) -> Vec<KindVersion> {
        let versions_of = |(kind, versions): (&String, &HashMap<i32, Arc<dyn Handler>>)| {
            let kind = kind.clone();
            versions
                .keys()
                .map(move |version| KindVersion { kind: kind.clone(), version: *version })
                .collect::<Vec<_>>()
        };
        let mut kinds: Vec<KindVersion> = self.handlers.iter().flat_map(versions_of).collect();
        kinds.sort();
        kinds
    }
}
