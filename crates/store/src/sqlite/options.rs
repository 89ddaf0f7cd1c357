//! How a file is opened.

use std::{path::PathBuf, time::Duration};

use windlass_model::Limits;

/// How to open a file.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) path: PathBuf,
    pub(super) migrate: bool,
    pub(super) limits: Limits,
    pub(super) patience: Duration,
    pub(super) transaction: Duration,
}

/// How long a statement of a caller's own transaction may keep all others from writing: longer than any reasonable
/// one, shorter than a lease.
const TRANSACTION: Duration = Duration::from_secs(5);

impl Options {
    /// The file at `path`, created if it does not exist.
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options {
            path: path.into(),
            migrate: true,
            limits: Limits::default(),
            // Longer than any batch takes, shorter than a lease.
            patience: Duration::from_secs(5),
            transaction: TRANSACTION,
        }
    }

    /// Whether to migrate the schema to the newest version.
    pub fn migrate(mut self, migrate: bool) -> Options {
        self.migrate = migrate;
        self
    }

    /// The limits of what may be submitted.
    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    /// How long to wait for another process's write before failing with [`crate::Error::Unavailable`].
    pub fn patience(mut self, patience: Duration) -> Options {
        self.patience = patience;
        self
    }

    /// How long a statement may run in a transaction of the caller's own ([`crate::Execution::transact`]), counted from
    /// the beginning of the transaction, before it is interrupted.
    pub fn transaction(mut self, limit: Duration) -> Options {
        self.transaction = limit;
        self
    }
}
