//! For tests of your own: an engine whose time is virtual, and crashes at every commit.
//!
//! A [`Lab`] is an engine in a test. `sleep(days(30))` takes no time in it: when nothing is left to do but wait, the clock is
//! set to the next timer. [`crash_at_every_commit`] runs a scenario again and again and lets the worker die at each of its
//! commits in turn, before the store has heard of it and after; whatever happens, the outcome must be the same.
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
//!         flow.step("welcome", || async { Ok::<_, Failure>(()) }).await?;
//!         flow.sleep(days(30)).await;
//!         flow.step("goodbye", || async { Ok::<_, Failure>("gone".to_owned()) }).await
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

mod crash;
mod lab;
mod store;

pub use crash::{CrashReport, crash_at_every_commit, crash_at_every_commit_on};
pub use lab::{Lab, LabJob};
