//! Durable work in Rust: jobs whose every step is committed before the next one starts.
//!
//! ```
//! use windlass::prelude::*;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet {
//!     name: String,
//! }
//!
//! impl Task for Greet {
//!     const KIND: &'static str = "greet";
//!     type Output = String;
//!     type Error = Failure;
//!
//!     async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
//!         Ok(format!("hello, {}", self.name))
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}", dir.path().join("work.db").display());
//! let engine = Engine::builder(&url).task::<Greet>().start().await?;
//! let job = engine.submit(Greet { name: "world".into() }).key("first").await?;
//! assert_eq!(job.result().await?, "hello, world");
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! In reading order:
//!
//! - [`Task`], [`Machine`] and [`Workflow`] are what you write. Their code gets a context, which is named after them: [`TaskCx`],
//!   [`MachineCx`], [`Flow`] for the code of a workflow, [`StepCx`] for its steps and [`UndoCx`] for their undos. Errors become
//!   [`Failure`]s, which say whether a retry can help; [`Retry`] says when.
//! - [`Engine::builder`] describes an engine: its store, the kinds that it serves, its queues, and your own data, which the contexts
//!   return. [`Builder::start`] runs jobs; [`Builder::open`] only submits them and looks at them.
//! - [`Submit`] submits a job, also in a transaction of your own, and returns a [`Handle`] to it. [`Signal`]s are messages to jobs.
//!   [`Scheduling`] submits jobs by a calendar.
//! - [`operate`] is for people: [`Control`] changes jobs by hand, [`Why`] explains why a job is not
//!   progressing, [`graph`](operate::graph) draws what workflows did.
//! - [`testing`] runs your jobs on a virtual clock and kills the worker at every commit. [`codec`] encrypts or compresses payloads.
//! - [`store`], [`runtime`], [`env`](mod@env) and [`model`] are what the engine is made of, for those who extend it.
//!
//! `docs/guarantees.md` says what is promised, and what is not.
//!
//! The features `sqlite` and `postgres` (both on by default) select the stores. The feature `anyhow` lets `anyhow::Error` be the error
//! of tasks, machines, workflows and steps. The feature `otel` joins the spans of attempts to OpenTelemetry's traces; see `docs/telemetry.md`.

mod builder;
mod engine;
mod handle;
mod run;
mod schedule;
mod signal;
mod submit;
mod telemetry;
pub mod testing;
mod unserved;
mod within;

pub use builder::Builder;
pub use engine::{Engine, EngineCx};
pub use handle::{AnyKind, AsAny, Handle, JobRef};
pub use run::RunError;
pub use schedule::Scheduling;
pub use signal::{Delivery, SendSignal};
pub use submit::{Submit, SubmitAll, SubmitJson, SubmittedJob};
pub use windlass_env as env;
pub use windlass_model as model;
pub use windlass_model::{
    Calendar, Failure, FailureClass, JobId, Merge, RateCharge, RateLimit, Reason, Retry, Serial, State,
    States, Time, Unique,
    calendar::{CatchUp, Overlap, Unit},
    failure::{OnFailure, OrFailure},
    merge::{Share, percent},
};
pub use windlass_operate as operate;
pub use windlass_operate::{Cause, Control, Why};
pub use windlass_runtime::{Config, Pool, Retention};
pub use windlass_store as store;
pub use windlass_store::{
    ControlOutcome, Filter,
    tx::{self, Row, Tx, Value},
};
pub use windlass_workflow::{
    AsMachine, AsTask, AsWorkflow, Branch, Cancelled, CatchCancel, Child, ChildOf, ChildResult, ChildWait,
    ChildrenError, Codec, Context, ContinueIf, Error, First2, First3, First4, First5, First6, Flow,
    IntoChild, JobError, Kind, Machine, MachineBranch, MachineCx, MergeCall, Merged, Merging, Needs, Next,
    OnError, Race, Reducing, Repeat, Results, Rows, Select, Signal, SignalError, SignalWait, Sleep, Source,
    Step, StepCx, StreamSource, Task, TaskCx, Transaction, UndoCx, WaitFor, WaitUntil, Workflow, codec, span,
};

/// What runs jobs: for handlers of your own, and for what the engine counts.
pub mod runtime {
    pub use windlass_runtime::{
        Attempt, AttemptInfo, Counts, Ended, Handler, Layer, NextLayer, Policy, Running, Stage, Started,
        StepResult,
    };
}

/// What most programs need.
pub mod prelude {
    pub use crate::{
        Calendar, Child, Engine, EngineCx as _, Failure, First2, First3, Flow, Handle, JobError, JobId,
        Machine, MachineCx, Merge, Merged, Needs, Next, OrFailure as _, Pool, RateCharge, RateLimit, Retry,
        Rows, Serial, Signal, StepCx, Task, TaskCx, Tx, UndoCx, Unique, WaitFor, Workflow, percent,
        span::{days, hours, minutes, seconds},
    };
    pub use serde::{Deserialize, Serialize};
    pub use std::time::Duration;
}
