//! Workers on other hosts: the protocol that they speak to a server, and a store that speaks it.
//!
//! [`protocol`] has the requests and answers of version 1, which `docs/worker-protocol.md` describes for every language; the server
//! parses and makes the same types. With the feature `client`, `RemoteStore` implements the traits of a store by calls to a server, so that
//! the runtime runs jobs there as it does on a database.
//!
//! What always holds: the protocol's types are its own, and a change of the engine's inner types does not change it. Requests are
//! parsed strictly, so that a misspelt field is an error; in answers, fields that are not known are ignored, so that an older client
//! understands a newer server. What a server knows of a job (its parent, its deadline, its serial key) is in no request.

pub mod protocol;
#[cfg(feature = "client")]
mod store;

#[cfg(feature = "client")]
pub use store::RemoteStore;
#[cfg(feature = "client")]
pub use windlass_http::Options;
