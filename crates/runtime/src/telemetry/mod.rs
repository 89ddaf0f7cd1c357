//! What is seen of a worker from outside: metrics, spans and traces.
//!
//! - `stats`, `metrics`, `histogram`: the loops count here
//! - `sampler`: reads from the store how many jobs wait
//! - `page`, `exposition`: write all of it as a page in the text format of Prometheus
//! - `scrape`: serves that page over HTTP, on a thread of its own
//! - `trace`, `otel`: the span of each attempt, and the trace that jobs pass on
//! - `handle`: [`Telemetry`], through which an engine uses all of this

// Counting.
pub(crate) mod histogram;
mod metrics;
mod stats;

// Showing.
mod exposition;
mod handle;
mod page;
mod sampler;
mod scrape;

// Tracing.
#[cfg(feature = "otel")]
mod otel;
pub(crate) mod trace;

pub use handle::Telemetry;
pub(crate) use metrics::{Metrics, StoreCall};
pub(crate) use stats::add;
pub use stats::{Counts, Stats};
