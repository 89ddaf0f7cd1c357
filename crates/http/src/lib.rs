//! A small HTTP/1.1 client, for the commands and for workers that reach a store through a server.
//!
//! [`Client::new`] takes the address of one server and [`Options`]; [`Client::send`] sends a [`Request`] and returns a [`Response`]
//! as soon as its head has arrived. A body is read whole ([`Response::bytes`], [`Response::json`]), chunk by chunk
//! ([`Response::chunk`]), or as server-sent events ([`Response::events`]). In reading order: `address`, `client` with its pool of
//! connections, `connect` with TLS, `request`, `response`, `events`, `error`.
//!
//! What always holds: a token is sent to this server alone, and unencrypted only to this machine, unless the options allow more; every
//! wait has a limit; a body has a limit. Redirects are not followed, and proxies of the environment are not used. A request that may
//! have arrived is sent again only if it says that it may be repeated. No error contains the token.

mod address;
mod client;
mod connect;
mod error;
mod events;
mod request;
mod response;

pub use address::split_url;
pub use client::{Client, Options};
pub use error::Error;
pub use events::{Event, Events};
pub use hyper::{HeaderMap, Method, StatusCode, header};
pub use request::{Request, encode_segment};
pub use response::Response;
