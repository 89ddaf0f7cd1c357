//! For `docs/testing.md`.

pub use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

pub use windlass::{
    prelude::*,
    testing::{self, CrashReport, Lab},
};
