//! The engine on both stores, through its public API; also while the store fails.

mod batched_calls;
mod blocked_thread;
mod cancel_requests;
mod codec;
mod common;
mod control;
mod faults;
mod flow;
mod lab;
mod limits;
mod lost_claims;
mod machine_crashes;
mod machines;
mod many_processes;
mod outage;
mod read_outage;
mod released;
mod spans;
mod suspects;
mod tasks;
mod telemetry;
mod transactions;
mod unreadable_signals;
mod versions;
