//! One process working: the loops that claim, run and commit.
//!
//! The journey of a job through these files: a [`feeder`](self) claims it for a queue's pool; a slot of the
//! [`pool`](Pool) runs it in the executor, step after step if it is a machine; `turn` makes an outcome of whatever
//! happens (a value, an error, a panic, a timeout); the committer writes the outcomes of all slots together. What comes in
//! from this process goes through the [`Submitter`] and the [`Signaller`]. Beside them, the renewer keeps the
//! worker's lease on a thread of its own and reaps the jobs of lost workers, the timekeeper fires due timers,
//! the gatekeeper looks whether an idle queue has changed, orders reach the attempts they are for, and the pruner deletes
//! what has been kept long enough. Who watches sees each attempt in a span (`trace`) and
//! the numbers of all loops on a page (`metrics`, `page`, `scrape`).
//!
//! What always holds:
//! - A job that was claimed is committed, handed back, or left to the reaper: never forgotten.
//! - Every outcome goes through the committer, and so through `Store::commit`.
//! - A failing database stops nothing here: loops back off and go on; running work keeps running.

mod branches;
mod cancellations;
mod committer;
mod config;
mod env;
mod executor;
mod exposition;
mod feeder;
mod gatekeeper;
mod handler;
mod histogram;
mod ledger;
mod liveness;
mod metrics;
#[cfg(feature = "otel")]
mod otel;
mod page;
mod pool;
mod pruner;
mod releaser;
mod renewer;
mod retrying;
mod sampler;
mod scrape;
mod signaller;
mod solo_lock;
mod stats;
mod step_result;
mod step_writer;
mod submitter;
mod suspects;
mod telemetry;
mod timekeeper;
mod trace;
mod waiters;
mod worker;

pub use config::{Config, Pool, Retention};
pub use env::Env;
pub use handler::{Attempt, Handler, Policy, Registry, Running, Stage, Started, StepResult};
pub use signaller::Signaller;
pub use stats::{Counts, Stats};
pub use step_writer::StepWriter;
pub use submitter::Submitter;
pub use telemetry::Telemetry;
pub use waiters::Waiters;
pub use worker::Worker;
