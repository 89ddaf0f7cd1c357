//! Failures: the errors of attempts as they are kept, and the reasons why jobs fail.
//!
//! A [`Failure`] says what went wrong and whether to retry; [`crate::retry`] turns it into an outcome. A [`Reason`] says why that
//! failed the job.

pub mod class;

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Time;

pub use class::FailureClass;

/// What follows from a [`Failure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The attempt is repeated if the retry policy allows it.
    #[default]
    Retry,
    /// The job fails: another attempt cannot help.
    Stop,
    /// The job is cancelled, which is not an error.
    Cancel,
}

/// An error as it is kept: a class that retry policies match, a message for people, and optionally the error itself as data.
///
/// Write `impl From<MyError> for Failure` to convert an error type of your own. The conversion decides whether an error is worth
/// a retry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Its class, which retry policies match and people search by: a word of the engine ([`class`]) or of the program. [`Failure::class_of`] is
    /// the same to match on.
    pub class: Cow<'static, str>,
    /// What went wrong, for people.
    pub message: String,
    /// What follows from it.
    #[serde(default)]
    pub then: OnFailure,
    /// The error as data, if it was kept; [`Failure::detail`] reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
}

impl Failure {
    /// Makes a failure that is worth another attempt.
    pub fn retry(message: impl fmt::Display) -> Failure {
        Failure {
            class: class::ERROR.into(),
            message: message.to_string(),
            then: OnFailure::Retry,
            detail: None,
        }
    }

    /// Makes a failure that no further attempt can fix: it fails the job.
    pub fn stop(message: impl fmt::Display) -> Failure {
        Failure { then: OnFailure::Stop, ..Failure::retry(message) }
    }

    /// Makes the failure of a job whose deadline passed.
    pub fn expired(deadline_at: Time) -> Failure {
        let message = format!("the deadline {deadline_at} passed before the job had ended");
        Failure::stop(message).class(class::EXPIRED)
    }

    /// Makes a failure that cancels the job.
    pub fn cancel(message: impl fmt::Display) -> Failure {
        Failure { then: OnFailure::Cancel, ..Failure::retry(message) }
    }

    /// Sets the class.
    pub fn class(self, class: impl Into<Cow<'static, str>>) -> Failure {
        Failure { class: class.into(), ..self }
    }

    /// Returns its class, to match on.
    pub fn class_of(&self) -> FailureClass<'_> {
        FailureClass::of(&self.class)
    }

    /// Keeps the error itself as data.
    pub fn with_detail<E: Serialize>(self, error: &E) -> Failure {
        Failure { detail: serde_json::to_value(error).ok(), ..self }
    }

    /// Returns the error that [`Failure::with_detail`] kept; `None` if there is none or it is not an `E`.
    pub fn detail<E: DeserializeOwned>(&self) -> Option<E> {
        serde_json::from_value(self.detail.clone()?).ok()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.class == class::ERROR {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.class, self.message)
        }
    }
}

impl std::error::Error for Failure {}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::retry(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Failure {
        Failure::retry(message)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::retry(error).class(class::IO)
    }
}

impl From<std::convert::Infallible> for Failure {
    fn from(never: std::convert::Infallible) -> Failure {
        match never {}
    }
}

/// Why a job failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its attempts are used up.
    Exhausted,
    /// An error said that no further attempt can help, or no rule of its retry policy matched.
    Stopped,
    /// Its attempts are used up, and the last one exceeded its timeout.
    Timeout,
    /// Its worker died too often while running it alone.
    Poison,
    /// Its input cannot be decoded. No attempt was counted.
    Undecodable,
    /// Its deadline passed.
    Expired,
    /// The store refused what it wanted to write.
    Refused,
    /// The code of a workflow does not match its journal.
    Diverged,
}

impl Reason {
    /// All reasons, in the order of their numbers in the stores.
    pub const ALL: [Reason; 8] = [
        Reason::Exhausted,
        Reason::Stopped,
        Reason::Timeout,
        Reason::Poison,
        Reason::Undecodable,
        Reason::Expired,
        Reason::Refused,
        Reason::Diverged,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Reason::Exhausted => "exhausted",
            Reason::Stopped => "stopped",
            Reason::Timeout => "timeout",
            Reason::Poison => "poison",
            Reason::Undecodable => "undecodable",
            Reason::Expired => "expired",
            Reason::Refused => "refused",
            Reason::Diverged => "diverged",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_deadline_fails_the_job_and_is_named() {
        let failure = Failure::expired(Time(0));
        assert_eq!((&*failure.class, failure.then), (class::EXPIRED, OnFailure::Stop));
        assert!(failure.message.contains("1970-01-01"), "{}", failure.message);
    }
}
