//! The engine on both stores, through its public API; also while the store fails.

mod answers;
#[cfg(feature = "anyhow")]
mod anyhow_errors;
mod batched_calls;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod blocked_thread;
mod builder;
mod cancel_requests;
mod codec;
mod common;
mod contexts;
mod control;
mod data;
mod errors;
mod faults;
mod flow;
mod handles;
mod lab;
mod lab_timeouts;
mod layers;
mod limits;
mod lost_claims;
mod machine_crashes;
mod machines;
mod many_processes;
#[cfg(feature = "postgres")]
mod outage;
mod progress;
mod read_outage;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod released;
mod retry_delays;
mod run_here;
mod spans;
mod stop;
mod suspects;
mod tasks;
mod telemetry;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod transactions;
mod typed_signals;
mod undecodable_rows;
mod unreadable_signals;
mod versions;
mod why_children;
