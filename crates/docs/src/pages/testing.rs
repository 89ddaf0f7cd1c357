//! For `docs/testing.md`.

pub use windlass::{prelude::*, testing::Lab};
