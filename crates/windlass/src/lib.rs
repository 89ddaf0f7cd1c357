//! Durable work in Rust: background jobs, state machines and workflows that survive crashes.
//!
//! A job is a row in a database: a SQLite file, or PostgreSQL. The engine runs inside your program, and commits the result of
//! every task and step before the work continues. If the process dies, another worker runs what was not committed, and records
//! nothing twice.
//!
//! # A program
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
//! The address is `sqlite://file`, `postgres://user@host/database`, or `memory:` in tests. The program also needs `serde` with
//! the feature `derive`, and `tokio`.
//!
//! # Three ways to write a job
//!
//! The type is the input, a trait on it is the code, and `KIND` is its name in the store.
//!
//! | trait | the code is | use it for |
//! |---|---|---|
//! | [`Task`] | one async function | one action that is done or not |
//! | [`Machine`] | an enum of stages, and a function from one to the next | stages that people search by, waits, answers of people |
//! | [`Workflow`] | async code whose calls are recorded | steps one after the other, with loops, branches and undos |
//!
//! A task is above. This machine waits for a signal, for a day if need be, without a slot or memory:
//!
//! ```
//! # use windlass::prelude::*;
//! # async fn ask(_: &str) -> Result<(), Failure> { Ok(()) }
//! #[derive(Serialize, Deserialize)]
//! enum Approval {
//!     Ask { what: String },
//!     Await { what: String },
//! }
//!
//! impl Machine for Approval {
//!     const KIND: &'static str = "approval";
//!     type Output = String;
//!     type Error = Failure;
//!
//!     async fn step(self, cx: &MachineCx) -> Result<Next<Approval>, Failure> {
//!         Ok(match self {
//!             Approval::Ask { what } => {
//!                 ask(&what).await?;
//!                 Next::wait(Approval::Await { what }, "approved").timeout(days(1))
//!             }
//!             Approval::Await { what } => match cx.signal::<String>("approved")? {
//!                 Some(by) => Next::done(format!("{what} was approved by {by}")),
//!                 None => Next::stop("nobody approved it within a day"),
//!             },
//!         })
//!     }
//! }
//! ```
//!
//! This workflow does the same, and then runs a step that is undone if a later one fails. After a crash its code runs from the
//! beginning, and recorded calls return their recorded results:
//!
//! ```
//! # use windlass::prelude::*;
//! # async fn ask(_: &str) -> Result<(), Failure> { Ok(()) }
//! # async fn deploy(_: &str) -> Result<u64, Failure> { Ok(1) }
//! # async fn roll_back(_: u64) -> Result<(), Failure> { Ok(()) }
//! # async fn check(_: u64) -> Result<(), Failure> { Ok(()) }
//! #[derive(Serialize, Deserialize)]
//! struct Release {
//!     what: String,
//! }
//!
//! impl Workflow for Release {
//!     const KIND: &'static str = "release";
//!     type Output = u64;
//!     type Error = Failure;
//!
//!     async fn run(self, flow: Flow) -> Result<u64, Failure> {
//!         flow.step("ask", || ask(&self.what)).await?;
//!         let by: String = flow.signal("approved").timeout(days(1)).await?;
//!         flow.context().set("approved_by", by)?;
//!         let build = flow.step("deploy", || deploy(&self.what)).undo(roll_back).await?;
//!         flow.step("check", || check(build)).retry(Retry::times(5)).await?;
//!         Ok(build)
//!     }
//! }
//! ```
//!
//! # Where to go next
//!
//! **Writing jobs.** The code of a job gets a context, which is named after it: [`TaskCx`], [`MachineCx`], [`Flow`] for the code
//! of a workflow, [`StepCx`] for its steps and [`UndoCx`] for their undos. What a machine's step returns is a [`Next`]. Errors
//! become [`Failure`]s, which say whether a retry can help; [`Retry`] says when. [`Signal`]s are messages to jobs. [`Branch`]
//! runs a child for each of many items.
//!
//! **Running them.** [`Engine::builder`] describes an engine: its store, the kinds that it serves, its queues, and [your own
//! data](Builder::data), which the contexts return. [`Builder::start`] runs jobs; [`Builder::open`] only submits them and looks
//! at them. [`runtime::Layer`] is code around every attempt.
//!
//! **Submitting them.** [`Submit`] has the settings of a job: key, queue, delay, [`Unique`] name, [`Serial`] key, [`RateLimit`].
//! It returns a [`Handle`], also [in a transaction of your own](Submit::in_postgres). [`Engine::run`] runs a job here and now.
//! [`Scheduling`] submits jobs by a calendar.
//!
//! **Looking at them.** [`operate`] is for people: [`Control`] changes jobs by hand, [`Why`] explains why a job is not
//! progressing, [`graph`](operate::graph) draws what workflows did. The crate `windlass-cli` gives your program all of this as
//! commands.
//!
//! **Testing them.** [`testing`] runs your jobs on a virtual clock, kills the worker at every commit, and builds contexts for unit
//! tests.
//!
//! **Extending it.** [`codec`] encrypts or compresses payloads. [`store`], [`mod@runtime`], [`env`](mod@env) and [`model`] are
//! what the engine is made of.
//!
//! The folder `docs` of the repository has a page for each of these; begin with `docs/concepts.md`. `docs/guarantees.md` says
//! what is promised, and what is not. `examples` has a program for each idea.
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `sqlite`, `postgres` | the stores; both are on by default |
//! | `remote` | `https://` addresses: jobs run through a server, without access to its database; see `docs/worker-protocol.md` |
//! | `anyhow` | `anyhow::Error` can be the error of tasks, machines, workflows and steps |
//! | `otel` | the spans of attempts join OpenTelemetry's traces; see `docs/telemetry.md` |

mod builder;
mod engine;
mod handle;
mod hidden_errors;
mod run;
mod schedule;
mod server;
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
    Calendar, Failure, FailureClass, JobId, Merge, Progress, RateCharge, RateLimit, Reason, Retry, Serial,
    State, States, Time, Unique,
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
    Step, StepCx, StreamSource, Task, TaskCx, Transaction, UndoCx, WaitFor, WaitUntil, Workflow, codec,
    failure_of, span,
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
        Builder, Calendar, Child, Engine, EngineCx as _, Failure, First2, First3, Flow, Handle, JobError,
        JobId, Machine, MachineCx, Merge, Merged, Needs, Next, OrFailure as _, Pool, RateCharge, RateLimit,
        Retry, Rows, Serial, Signal, StepCx, Task, TaskCx, Time, Tx, UndoCx, Unique, WaitFor, Workflow,
        percent,
        span::{days, hours, minutes, seconds},
    };
    pub use serde::{Deserialize, Serialize};
    pub use std::time::Duration;
}
