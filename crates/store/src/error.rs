//! What can go wrong with a store, split by what the caller does next.

use windlass_model::{Failure, Invalid, failure::class};

/// A fault of the store. Expected things (a fenced change, a key that is taken) are values, not errors.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, is restarting, is full or is busy: the same call may succeed later,
    /// and every call but [`crate::Execution::transact`] may be repeated blindly.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// What was passed in cannot be stored. Repeating the call cannot help.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The schema in the database and this binary do not fit.
    #[error("{0}")]
    Schema(String),
    /// The store was addressed or set up wrongly.
    #[error("{0}")]
    Config(String),
    /// This worker was declared dead; it must register under a new id.
    #[error("this worker's lease was lost: it was declared dead after not renewing in time")]
    Dead,
    /// The database refused the data of a statement: a constraint, a type, a size. Repeating cannot help.
    #[error("the store refused the data: {0}")]
    Refused(String),
    /// The caller broke a rule of the call, which the text names. Nothing was written, and repeating cannot help.
    #[error("{0}")]
    Misuse(String),
    /// The database refused a statement for a reason that is neither the data's nor passing. A bug, or a
    /// database changed by hand.
    #[error("the store failed: {0}")]
    Fault(String),
}

impl Error {
    /// The same error for one more caller.
    pub fn again(&self) -> Error {
        match self {
            Error::Unavailable(why) => Error::Unavailable(why.clone()),
            Error::Invalid(invalid) => Error::Invalid(invalid.clone()),
            Error::Refused(why) => Error::Refused(why.clone()),
            Error::Schema(why) => Error::Schema(why.clone()),
            Error::Misuse(why) => Error::Misuse(why.clone()),
            other => Error::Fault(other.to_string()),
        }
    }

    /// The error of a claim while the worker's lease has run out and it was not declared dead.
    pub(crate) fn lease_lapsed() -> Error {
        Error::Unavailable("this worker's lease has run out; it must renew before it claims".into())
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Unavailable(_))
    }
}

impl From<Error> for Failure {
    /// An outage is worth another attempt; anything else fails the job.
    fn from(error: Error) -> Failure {
        match error {
            Error::Invalid(invalid) => invalid.into(),
            error if error.is_retryable() => Failure::retry(error).class(class::STORE),
            error => Failure::stop(error).class(class::STORE),
        }
    }
}
