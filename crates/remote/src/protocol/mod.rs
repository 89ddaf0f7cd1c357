//! Version 1 of the worker protocol: what is sent and answered under `/worker/v1/`.
//!
//! In reading order: `payload` and `spans` write bytes and durations, and `schema` describes types; `shared` has what is in requests and in answers; `job` has jobs as
//! they are submitted and as they are claimed; `change` what an attempt writes; `calls` the requests and answers of workers and
//! `reads` those of running code. Each type says into which type of the model it converts, or from which it is made.

pub mod calls;
pub mod change;
pub mod job;
mod payload;
pub mod reads;
pub mod schema;
pub mod shared;
mod spans;
#[cfg(test)]
mod tests;

pub use payload::WirePayload;

/// The version of the protocol that this crate speaks. It is in the path of every call.
pub const VERSION: u32 = 1;

/// What the paths of all calls begin with.
pub const PREFIX: &str = "/worker/v1/";

/// The header by which a test sends the time of a call, in microseconds. A server that is not part of a test refuses it.
pub const TEST_TIME: &str = "windlass-test-time";

/// The most jobs that one claim returns, whatever it asks for.
pub const MAX_CLAIM: usize = 10_000;
/// The most payload bytes that one claim returns, unless its first job alone has more. Jobs beyond it are released.
pub const MAX_CLAIM_BYTES: usize = 16 << 20;
/// The most changes in one commit, jobs in one submit, and signals in one delivery.
pub const MAX_BATCH: usize = 10_000;
/// The most rows that one read returns, whatever it asks for.
pub const MAX_PAGE: usize = 1_000;
/// The most jobs that one read names.
pub const MAX_NAMED: usize = 1_000;
/// The most queues that a worker serves, and the most gates that one read names.
pub const MAX_QUEUES: usize = 1_000;

/// The codes of errors that a client of this protocol tells apart; they are the `code` of an answer's body.
pub mod code {
    /// The worker was declared dead or has retired: register anew.
    pub const WORKER_DEAD: &str = "worker_dead";
    /// The id of the worker is taken: draw another, or let the server do it.
    pub const WORKER_TAKEN: &str = "worker_taken";
    /// The server cannot answer now, or not in this way.
    pub const UNAVAILABLE: &str = "unavailable";
    /// The request cannot be accepted as it is.
    pub const INVALID: &str = "invalid";
    /// The token may not do this.
    pub const FORBIDDEN: &str = "forbidden";
    /// There is no token, or it is not accepted.
    pub const UNAUTHORIZED: &str = "unauthorized";
}
