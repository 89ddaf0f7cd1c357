//! The HTTP API of a store: what people and programs do over the network.
//!
//! [`Server::bind`] checks the [`Settings`] and listens, [`Server::run`] answers until it is stopped. In reading order: `settings`;
//! `listener` accepts connections; `server` is the path of a request, which asks `client` where it comes from, `rate` and `per_client` whether
//! there are too many, and `access` who sends it; `logins` limits attempts to log in; `refusals` logs requests that are refused, and `audit` what
//! was submitted and signalled; `routes` has the answers, over the values of `windlass::operate`; `input` declares what requests contain, `answers`
//! what answers do, and `openapi` describes all of it; `events` streams changes, `progress` what long operations do; `alerts` evaluates rules and posts messages; `worker` is what the
//! server knows of workers on other hosts, which speak the protocol of the crate `windlass-remote`; `error` makes status codes.
//!
//! What always holds: a request is answered only if its `Host` is this server's, its `Origin` is the same or none, and its sender may
//! make it; without a login only on a loopback address. Every change has its author in the audit log. A handler that fails or
//! panics fails its request alone, and everything that waits is bounded in number, size and time.

mod access;
mod alerts;
mod answers;
mod audit;
mod call;
mod checkup;
mod client;
mod error;
mod events;
mod input;
mod listener;
mod logins;
mod openapi;
mod pages;
mod per_client;
mod progress;
mod rate;
mod refusals;
mod reply;
mod routes;
mod server;
mod settings;
mod tls;
mod worker;

pub use alerts::{
    alert_loop::AlertSettings,
    webhook::{Webhook, Webhooks},
};
pub use listener::Server;
pub use openapi::document as openapi;
pub use settings::{Network, Settings, StartError, TlsFiles};
