//! Durable work in Rust: jobs whose every step is committed before the work goes on.
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
//! In reading order: [`Task`], [`Machine`] and [`Workflow`] are what you write, [`Engine`] opens a store and runs it, [`Submit`] puts a job in (also in a
//! transaction of your own) and [`Handle`] is what you hold of it; [`Signal`]
//! reaches a job while it lives; [`Scheduling`] submits by the calendar. [`Control`] is
//! what people do to work that is there, [`Bulk`] does it to many, [`Redrive`] to the failed children of branches, and [`why`] tells them why a job is where it is.
//! [`testing`] is for tests of your own, [`graph`] draws what workflows did.
//! [`codec`] is for payloads that are to be encrypted or compressed. What is promised, and what is not, is in
//! `docs/guarantees.md`.
//!
//! The feature `otel` joins the spans of attempts to OpenTelemetry's traces; see `docs/telemetry.md`.

mod branch;
mod bulk;
mod child;
pub mod codec;
mod control;
mod engine;
mod error;
mod fork;
pub mod graph;
mod handle;
mod machine;
mod migrate;
mod redrive;
mod schedule;
mod signal;
pub mod span;
mod store_retry;
mod submit;
mod task;
mod telemetry;
pub mod testing;
pub mod why;
mod within;
mod workflow;

pub use branch::{
    AsChild, AsResult, ChildOf, IntoChild, Item, Items, Merged, Results, Rows, Source, StreamSource, stream,
};
pub use bulk::{Bulk, BulkProgress, Preview, describe};
pub use child::Child;
pub use codec::Codec;
pub use control::{Control, GRACE};
pub use engine::Engine;
pub use error::{AnyError, Error, JobError};
pub use fork::{Fork, ForkProgress};
pub use handle::Handle;
pub use machine::{
    AsMachine, ChildResult, ChildrenError, Machine, MachineBranch, Next, SignalError, StepCx, WaitFor, all,
    any, signal, signals,
};
pub use migrate::{Migrate, MigrateProgress};
pub use redrive::{Redrive, RedriveProgress, Skipped};
pub use schedule::Scheduling;
pub use signal::{Delivery, Signal};
pub use submit::{Submit, SubmitAll, SubmitJson, SubmittedJob};
pub use task::{AsTask, Kind, Task, TaskCx};
pub use why::Why;
pub use windlass_model as model;
pub use windlass_model::{
    Calendar, Failure, JobId, Merge, Payload, RateCharge, RateLimit, Reason, Retry, Serial, State, States,
    Time, Unique,
    calendar::{CatchUp, Overlap, Unit},
    failure::OnFailure,
    merge::{Share, percent},
};
pub use windlass_runtime::{
    Attempt, Config, Counts, Env, Handler, Policy, Pool, Retention, Running, Stage, Started, StepResult,
};
pub use windlass_store as store;
pub use windlass_store::{AuditFilter, ControlOutcome, Filter, JobAction};

pub use workflow::{
    AsWorkflow, Branch, Broken, CallChange, ChangedCall, Check, Checked, ChildWait, Context, ContinueIf,
    First2, First3, First4, First5, First6, Flow, MergeCall, Merging, OnError, Race, Reducing, Repeat,
    Select, SignalWait, Sleep, Step, Transaction, TransactionCall, TryCx, UndoCx, WaitUntil, Workflow,
    failure_of,
};

/// What most programs need.
pub mod prelude {
    pub use crate::{
        AnyError, Calendar, Child, Engine, Failure, First2, First3, Flow, Handle, JobError, JobId, Machine,
        Merge, Merged, Next, Pool, RateCharge, RateLimit, Retry, Rows, Serial, StepCx, Task, TaskCx, TryCx,
        UndoCx, Unique, Workflow, all, any, percent, signal, signals,
        span::{days, hours, minutes, seconds},
        stream,
    };
    pub use serde::{Deserialize, Serialize};
    pub use std::time::Duration;
}
