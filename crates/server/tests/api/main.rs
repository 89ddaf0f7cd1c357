//! The API over real sockets, on both databases.

mod access;
mod alerts;
mod bounds;
mod client;
mod events;
mod fuzz;
mod hostile;
mod jobs;
mod kit;
mod limits;
mod names;
mod openapi;
mod operations;
mod receiver;
mod repeats;
mod rules;
mod scope;
mod stop;
mod throughput;
mod tls;
mod worker;
mod worker_access;
mod written;
