//! Workers that reach the store through a server, on both databases: the store's own cases, engines with a server's address, faults.

#[path = "../api/client.rs"]
#[allow(dead_code, reason = "the tests of the API use the rest")]
mod client;
mod conformance;
mod engine;
mod faults;
mod gates;
mod kinds;
#[path = "../api/kit.rs"]
#[allow(dead_code, reason = "the tests of the API use the rest")]
mod kit;
mod large;
mod proxy;
mod rollups;
mod tls;
