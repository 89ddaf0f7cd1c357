//! Workflows: async Rust whose every call is recorded.
//!
//! The code runs from its beginning whenever the job is claimed, and every durable call in its journal returns what it returned
//! before, so it soon reaches the point where it stopped. Nothing else is kept: a parked workflow is a row.
//!
//! `state` is the state of a run, with `journal` and `call`; `core` shares it between the code and its `driver`. `decide`, with
//! `waiting`, decides what follows from each event, and `driver` performs it; `ending`, `undo` and `undo_record` end the job. The
//! other files are the calls.

mod body_call;
mod branch;
mod call;
mod call_retry;
mod cancel_scope;
mod context;
mod core;
mod decide;
mod differences;
mod driver;
mod ending;
mod fault;
mod flow;
mod handler;
mod journal;
mod made;
mod merge;
mod parts;
mod reader;
mod repeat;
mod replay;
mod select;
mod state;
mod step;
mod step_cx;
mod step_id;
mod transact;
mod transaction;
mod undo;
mod undo_body;
mod undo_record;
mod wait;
mod waiting;

use std::{future::Future, pin::Pin, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{Failure, Retry};
use windlass_runtime::Policy;

pub use branch::{Branch, Merging};
pub use cancel_scope::{Cancelled, CatchCancel};
pub use context::Context;
pub use differences::{CallDifference, Differences};
pub use flow::Flow;
pub use handler::WorkflowHandler;
pub use journal::failure_of;
pub use journal::voids_of;
pub use merge::{MergeCall, Reducing};
pub(crate) use parts::PartError;
pub use reader::Reader;
pub use repeat::{OnError, Repeat, RepeatProgress};
pub use replay::{Replayer, Replays};
pub use select::{First2, First3, First4, First5, First6, Race, Select};
pub use state::{ENDED, RESUMED};
pub use step::Step;
pub use step_cx::StepCx;
pub use transaction::Transaction;
pub use undo::UndoCx;
pub use wait::{ChildWait, ContinueIf, SignalWait, Sleep, WaitUntil};

use crate::{Kind, Needs};

/// A future on the heap.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A durable workflow: async code on [`Flow`], whose calls are recorded. The type is the input.
///
/// ```
/// # use std::time::Duration;
/// # use serde::{Deserialize, Serialize};
/// # use windlass_model::{Failure, Retry};
/// # use windlass_workflow::{Flow, Workflow};
/// # async fn charge(_: u32) -> Result<String, Failure> { Ok(String::new()) }
/// # async fn refund(_: String) -> Result<(), Failure> { Ok(()) }
/// # async fn ship(_: u32, _: String) -> Result<(), Failure> { Ok(()) }
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     number: u32,
/// }
///
/// impl Workflow for Order {
///     const KIND: &'static str = "order";
///     type Output = String;
///     type Error = Failure;
///
///     async fn run(self, flow: Flow) -> Result<String, Failure> {
///         let payment = flow.step("pay", || charge(self.number)).retry(Retry::times(5)).undo(refund).await?;
///         let parcel: String = flow.signal("packed").timeout(Duration::from_secs(3 * 86_400)).await?;
///         flow.step("ship", || ship(self.number, parcel.clone())).await?;
///         Ok(payment)
///     }
/// }
/// ```
///
/// `run` awaits only calls of its [`Flow`], or several of them joined (`join!`, `try_join!`, `select!`). Everything else must
/// be deterministic: what reads or changes the outside world belongs into a step. The code may be changed while jobs are
/// running, by the rules in `docs/changing-workflows.md`.
///
/// An error that `run` returns ends the workflow: the steps have already retried what was worth a retry. Undos run first.
pub trait Workflow: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The kind's name in the store; it outlives the type's name.
    const KIND: &'static str;
    /// Which version of the kind this code runs. Jobs finish on the version they were submitted with.
    const VERSION: i32 = 1;
    /// The queue of its jobs, unless the submit names another.
    const QUEUE: &'static str = "default";
    /// Whether nothing is committed until the workflow ends or waits: for code whose steps have no effects, and may all run
    /// again after a crash.
    const ONE_COMMIT: bool = false;
    /// What it returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// Its error: [`Failure`], or a type of your own that says more.
    type Error: Into<Failure> + Send;

    /// The workflow itself.
    fn run(self, flow: Flow) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;

    /// When to run the code again after it panicked or blocked its thread: by default 20 attempts with growing delays. Steps
    /// retry their own errors.
    fn retry(&self) -> Retry {
        Policy::default().retry
    }

    /// How long to wait before the next attempt at a step, a transaction or a tick after `failure`, the `nth` failure that the rule of
    /// its retry policy has counted; `None`, the default, leaves it to the policy. Not asked if the failure says when
    /// ([`Failure::retry_after`]), nor for calls with a retry policy or a backoff of their own ([`Step::retry`], [`Step::backoff`]).
    fn backoff(_failure: &Failure, _nth: u32) -> Option<Duration> {
        None
    }

    /// The data that it cannot run without: the engine does not start if its builder was given none of these types. By default
    /// nothing is required.
    fn needs() -> Needs {
        Needs::new()
    }
}

/// Marks [`Kind`]s that are [`Workflow`]s.
pub struct AsWorkflow;

impl<W: Workflow> Kind<AsWorkflow> for W {
    const KIND: &'static str = W::KIND;
    const VERSION: i32 = W::VERSION;
    const QUEUE: &'static str = W::QUEUE;
    type Output = W::Output;
    type Error = W::Error;
}
