//! The API over real sockets, on both databases.

mod access;
mod client;
mod events;
mod fuzz;
mod hostile;
mod jobs;
mod kit;
mod openapi;
mod rules;
mod stop;
mod tls;
