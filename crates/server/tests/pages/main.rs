//! The pages of the dashboard over real sockets.

#[path = "../api/client.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod client;
#[path = "../api/kit.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod kit;

mod access;
mod branch;
mod job;
mod overviews;
