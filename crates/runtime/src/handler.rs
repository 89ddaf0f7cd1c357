//! What runs a job: handlers, by kind and version.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::watch;
use windlass_model::{
    ClaimedJob, Failure, KindVersion, NewJob, Outcome, Payload, Retry, Step, Time, UnreadableSignal, Wait,
    WorkerId,
};
use windlass_store::Actor;

use crate::{StepWriter, cancellations::CancelFlag, trace};

/// One try at a job, or at one step of it, as its handler sees it.
#[derive(Clone)]
pub struct Attempt {
    /// The job. The input of a machine that has gone on within this claim is left out.
    pub job: Arc<ClaimedJob>,
    /// The worker that runs it.
    pub worker: WorkerId,
    /// When it started, by the worker's clock.
    pub started_at: Time,
    /// What it writes with while it goes on.
    pub writer: Arc<StepWriter>,
    pub(crate) cancelled: watch::Receiver<bool>,
    pub(crate) cancel: Arc<CancelFlag>,
}

impl Attempt {
    /// Whether the attempt should end: someone cancelled the job, the worker is stopping and its patience is over, or
    /// it lost its lease.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_requested() || *self.cancelled.borrow()
    }

    /// The trace that this attempt is part of, as a W3C `traceparent` to be passed on.
    pub fn traceparent(&self) -> Option<String> {
        trace::current().or_else(|| self.job.settings.trace.clone())
    }

    /// Who told the attempt to end, if someone has.
    pub fn cancel_requested_by(&self) -> Option<&Actor> {
        self.cancel.actor()
    }

    /// Returns when someone has told the attempt to end.
    pub async fn cancel_requested(&self) {
        self.cancel.requested().await;
    }

    /// Returns when someone has told the attempt to end and its time for it is over.
    pub async fn cancel_deadline(&self) {
        self.cancel.deadline_passed().await;
    }

    /// Returns when the attempt should end.
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        tokio::select! {
            // The sender lives as long as the worker; if it is gone, so is the reason to go on.
            _ = cancelled.wait_for(|cancelled| *cancelled) => {}
            () = self.cancel.requested() => {}
        }
    }
}

/// What the code of a job made of one attempt.
#[derive(Clone, PartialEq, Debug)]
pub enum StepResult {
    /// The job is done.
    Done(Payload),
    /// A machine goes on in another stage.
    Next(Stage),
    /// A machine goes on in another stage once what it waits for has come.
    Wait(Stage, Wait),
    /// A machine goes on in another stage once these jobs have ended, or the time is over.
    Children {
        /// The stage.
        stage: Stage,
        /// The jobs, to be submitted with the step.
        children: Vec<NewJob>,
        /// How long to wait for them at most.
        timeout: Option<Duration>,
    },
    /// The same step again, later, without an error.
    Again {
        /// The stage with what is to be kept of this attempt.
        stage: Stage,
        /// How much later.
        after: Duration,
    },
    /// The retry policy decides what follows from this error.
    ByPolicy(Failure),
    /// The job has failed, whatever the retry policy says.
    Stop(Failure),
    /// A machine could not read signals that it was shown: they are set aside, and it waits on for what it waited for.
    SetAside(Vec<UnreadableSignal>),
    /// A workflow ends, or is parked.
    Commit {
        /// What is written beside the outcome.
        step: Option<Box<Step>>,
        /// How it ended.
        outcome: Outcome,
    },
    /// A step was committed after which the claim is over: the job was paused, or told to end.
    Halted,
    /// The claim is over, or is left to be handed back. Nothing is written.
    Over,
}

/// A stage of a machine and its data.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Its encoded data.
    pub data: Payload,
    /// Whether both are what they were.
    pub unchanged: bool,
}

/// The future of one attempt.
pub type Running = Pin<Box<dyn Future<Output = Result<StepResult, Failure>> + Send>>;

/// An attempt that was started.
pub struct Started {
    /// What is to be run to its end.
    pub running: Running,
    /// How long it may run, unless the job says otherwise; `None` for as long as it likes.
    pub timeout: Option<Duration>,
    /// The stage that runs, if the job is a machine.
    pub stage: Option<String>,
    /// Whether it sees to its own end: it is not cut off when its deadline passes or the time is over in which it was
    /// told to end, but by the store, which has it unwound.
    pub times_all_steps: bool,
}

/// The code behind a kind.
pub trait Handler: Send + Sync + 'static {
    /// Starts one attempt. What it returns is committed; a panic, here or later, or a timeout is turned into a failure.
    fn start(&self, attempt: Arc<Attempt>) -> Started;

    /// When to try this attempt again if it fails, unless the job says otherwise.
    fn retry(&self, attempt: &Attempt) -> Retry;

    /// Lets the code decide what follows from a failure; `None` leaves it to the retry policy.
    fn rescue(&self, _attempt: Arc<Attempt>, _failure: &Failure) -> Option<Running> {
        None
    }
}

/// What holds for every job of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// When to try again.
    pub retry: Retry,
    /// How long one attempt may run; `None` for as long as it likes.
    pub timeout: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Policy {
        // An hour: a hung attempt must not hold its slot for ever, and what runs longer knows that it does.
        Policy { retry: Retry::default(), timeout: Some(Duration::from_secs(3_600)) }
    }
}

/// All handlers of a worker.
#[derive(Clone, Default)]
pub struct Registry {
    handlers: HashMap<String, HashMap<i32, Arc<dyn Handler>>>,
}

impl Registry {
    /// Adds a handler; the last one added for a kind and version wins.
    pub fn add(&mut self, kind: KindVersion, handler: Arc<dyn Handler>) {
        self.handlers.entry(kind.kind).or_default().insert(kind.version, handler);
    }

    /// The handler of a kind and version.
    pub fn get(&self, kind: &KindVersion) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(&kind.kind)?.get(&kind.version)
    }

    /// All kinds and versions served, in order.
    pub fn kinds(&self) -> Vec<KindVersion> {
        let all = |(kind, versions): (&String, &HashMap<i32, Arc<dyn Handler>>)| {
            let kind = kind.clone();
            versions
                .keys()
                .map(move |version| KindVersion { kind: kind.clone(), version: *version })
                .collect::<Vec<_>>()
        };
        let mut kinds: Vec<KindVersion> = self.handlers.iter().flat_map(all).collect();
        kinds.sort();
        kinds
    }
}
