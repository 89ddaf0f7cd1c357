//! For `docs/retention.md`.

pub use windlass::{Config, Retention, State, prelude::*};

pub type Done = Result<(), Box<dyn std::error::Error>>;
