//! For `docs/operating.md`.

pub use windlass::{Control, Filter, State, operate::JobAction, prelude::*};

pub type Done = Result<(), Box<dyn std::error::Error>>;
