//! The API over real sockets, on both databases.

mod access;
mod alerts;
mod client;
mod events;
mod fuzz;
mod hostile;
mod jobs;
mod kit;
mod names;
mod openapi;
mod operations;
mod receiver;
mod rules;
mod stop;
mod throughput;
mod tls;
mod worker;
mod worker_access;
