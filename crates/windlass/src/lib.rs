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
//! let engine = Engine::open(&url).await?.task::<Greet>().queue("default", Pool::slots(8)).start().await?;
//! let job = engine.submit(Greet { name: "world".into() }).key("first").await?;
//! assert_eq!(job.result().await?, "hello, world");
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! In reading order: [`Task`], [`Machine`] and [`Workflow`] are what you write, [`Engine`] opens a store and runs it,
//! [`Submit`] submits a job (also in a transaction of your own) and returns a [`Handle`] to it; [`Signal`] sends a message to a
//! job; [`Scheduling`] submits jobs by a calendar. [`Control`] changes jobs by hand, [`Bulk`] many of them, [`Redrive`] the
//! failed children of branches, and [`why`] explains why a job is not progressing. [`testing`] is for tests of your own,
//! [`graph`] draws what workflows did, [`codec`] encrypts or compresses payloads. `docs/guarantees.md` says what is promised,
//! and what is not.
//!
//! The feature `otel` joins the spans of attempts to OpenTelemetry's traces; see `docs/telemetry.md`.

mod engine;
mod handle;
mod schedule;
mod signal;
mod submit;
mod telemetry;
pub mod testing;
mod unserved;
mod within;

pub use engine::Engine;
pub use handle::Handle;
pub use schedule::Scheduling;
pub use signal::{Delivery, Signal};
pub use submit::{Submit, SubmitAll, SubmitJson, SubmittedJob};
pub use windlass_env as env;
pub use windlass_env::Env;
pub use windlass_model as model;
pub use windlass_model::{
    Calendar, Failure, FailureClass, JobId, Merge, Payload, RateCharge, RateLimit, Reason, Retry, Serial,
    State, States, Time, Unique,
    calendar::{CatchUp, Overlap, Unit},
    failure::OnFailure,
    merge::{Share, percent},
};
pub use windlass_operate as operate;
pub use windlass_operate::{
    AwaitedChild, Broken, Bulk, BulkProgress, CallChange, Cause, ChangedCall, Check, Checked, Control, Fork,
    ForkProgress, GRACE, Item, Items, Migrate, MigrateProgress, Preview, Redrive, RedriveProgress,
    SkipReason, Why, describe, graph, why,
};
pub use windlass_runtime::{
    Attempt, Config, Counts, Handler, Policy, Pool, Retention, Running, Stage, Started, StepResult,
};
pub use windlass_store as store;
pub use windlass_store::{AuditFilter, ControlOutcome, Filter, JobAction};
pub use windlass_workflow::{
    AnyError, AsChild, AsMachine, AsResult, AsTask, AsWorkflow, Branch, Child, ChildOf, ChildResult,
    ChildWait, ChildrenError, Codec, Context, ContinueIf, Error, First2, First3, First4, First5, First6,
    Flow, IntoChild, JobError, Kind, Machine, MachineBranch, MachineCx, MergeCall, Merged, Merging, Next,
    OnError, Race, Reducing, Repeat, Results, Rows, Select, SignalError, SignalWait, Sleep, Source, Step,
    StepCx, StreamSource, Task, TaskCx, Transaction, TransactionCall, UndoCx, WaitFor, WaitUntil, Workflow,
    all, any, codec, failure_of, signal, signals, span, stream,
};

/// What most programs need.
pub mod prelude {
    pub use crate::{
        AnyError, Calendar, Child, Engine, Failure, First2, First3, Flow, Handle, JobError, JobId, Machine,
        MachineCx, Merge, Merged, Next, Pool, RateCharge, RateLimit, Retry, Rows, Serial, StepCx, Task,
        TaskCx, UndoCx, Unique, Workflow, all, any, percent, signal, signals,
        span::{days, hours, minutes, seconds},
        stream,
    };
    pub use serde::{Deserialize, Serialize};
    pub use std::time::Duration;
}
