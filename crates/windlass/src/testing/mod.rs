//! Test your jobs: an engine with a virtual clock, crashes at every commit, and contexts for unit tests.
//!
//! A [`Lab`] is an engine for tests. `sleep(days(30))` takes no real time in it: when all jobs wait, [`Lab::run`] sets its clock
//! forward to the next timer or to the next token of a rate limit, but not past a timeout that a signal could still prevent.
//!
//! [`task_cx`], [`machine_cx`], [`step_cx`] and [`undo_cx`] build the contexts that your code takes, without an engine.
//!
//! [`crash_at_every_commit`] runs a scenario once for each of its commits and kills the worker there: before the commit
//! reaches the store, and after. The outcome must be the same in every run.
//!
//! ```
//! use windlass::{prelude::*, testing};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Trial { user: u32 }
//!
//! impl Workflow for Trial {
//!     const KIND: &'static str = "trial";
//!     type Output = String;
//!     type Error = Failure;
//!
//!     async fn run(self, flow: Flow) -> Result<String, Failure> {
//!         flow.step("welcome", async || Ok(())).await?;
//!         flow.sleep(days(30)).await;
//!         flow.step("goodbye", async || Ok("gone".to_owned())).await
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let report = testing::crash_at_every_commit(|engine| engine.workflow::<Trial>(), async |lab| {
//!     let job = lab.submit(Trial { user: 7 }).await;
//!     lab.run().await;
//!     lab.result(job).await.map_err(|error| error.to_string())
//! })
//! .await;
//! assert_eq!(report.outcome, Ok("gone".to_owned()));
//! # }
//! ```

mod contexts;
mod crash;
mod cx_builder;
mod ids;
mod lab;
mod run;
mod shared;
mod store;
mod timeouts;

pub use contexts::{CancelSwitch, machine_cx, step_cx, task_cx, undo_cx, values_set};
pub use crash::{CrashReport, crash_at_every_commit, crash_at_every_commit_on};
pub use cx_builder::CxBuilder;
pub use lab::{Lab, LabJob};
