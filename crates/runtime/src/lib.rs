//! One worker process: the loops that claim, run and commit jobs.
//!
//! The journey of a job through these files, in reading order:
//!
//! - `submitter`, `signaller`, `waiters`: calls of this process submit jobs, deliver signals and wait for results
//! - `gatekeeper`: polls the gates of idle queues, and wakes the claimer of a queue that has changed
//! - `claimer`: claims jobs for the pool of one queue
//! - `direct`: runs single jobs ahead of their queue, in slots of their own
//! - `pool`, `slot`: a slot runs one claimed job after the other
//! - `handler`, `layer`, `executor`, `watchdog`: run one attempt of user code, within its layers and its time limit
//! - `outcome`: turns the end of an attempt (a value, an error, a panic, a timeout) into a change to commit
//! - `step_writer`: commits the steps of an attempt that continues after them
//! - `committer`, `consequences`: write the changes of all slots in batches, then wake the loops that they concern
//! - `releaser`, `ledger`: return claimed jobs that did not run; track which claims still have jobs here
//! - `timekeeper`, `cancellations`, `branches`, `pruner`: fire timers, deliver cancel requests, poll branches, delete old jobs
//! - `renewer`, `liveness`: keep the lease on a thread of their own, and reap the jobs of lost workers
//! - `suspects`, `solo_lock`: run the jobs of lost workers alone
//! - `worker`, `core`, `membership`, `abort`: start and stop all of it; the state that the loops share
//! - `telemetry`: metrics, spans and traces
//!
//! What always holds:
//! - A claimed job is committed, released, or left to the reaper. It is never forgotten.
//! - Every outcome is written by `Execution::commit`.
//! - A failing database stops nothing here. Loops back off and continue, and running attempts keep running.

// Settings, and the code that runs jobs.
mod config;
mod handler;
mod layer;

// Calls of this process.
mod signaller;
mod submitter;
mod waiters;

// From the gate to the committed outcome.
mod claimer;
mod committer;
mod consequences;
mod direct;
mod executor;
mod gatekeeper;
mod ledger;
mod outcome;
mod pool;
mod releaser;
mod slot;
mod step_writer;
mod watchdog;

// Periodic work.
mod branches;
mod cancellations;
mod pruner;
mod rollups;
mod timekeeper;

// Leases and lost workers.
mod liveness;
mod renewer;
mod solo_lock;
mod suspects;

// The worker itself.
mod abort;
mod core;
mod membership;
mod worker;
mod write_turns;

// Helpers of all loops, and what is seen from outside.
mod backoff;
mod sync;
mod telemetry;

pub use config::{Config, Pool, Retention};
pub use handler::{Attempt, Handler, Policy, Registry, Running, Stage, Started, StepResult};
pub use layer::{AttemptInfo, Ended, Layer, NextLayer};
pub use signaller::Signaller;
pub use step_writer::StepWriter;
pub use submitter::Submitter;
pub use telemetry::{Counts, Stats, Telemetry};
pub use waiters::Waiters;
pub use worker::Worker;
