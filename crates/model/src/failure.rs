//! How an attempt goes wrong, and why a job has failed.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// What is to follow from a [`Failure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Try again, as the retry policy says.
    #[default]
    Retry,
    /// The job has failed; trying again cannot help.
    Stop,
    /// The job is cancelled, which is not an error.
    Cancel,
}

/// How one attempt went wrong: a class that retry policies match, a message for people, and optionally the
/// error itself as data.
///
/// An error type of your own becomes one by `impl From<MyError> for Failure`; that is where it says, by type,
/// whether it is worth a retry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of error this is, for retry policies and for people who search. The engine's own classes
    /// are those in [`class`].
    pub class: Cow<'static, str>,
    /// What went wrong, for people.
    pub message: String,
    /// What is to follow.
    #[serde(default)]
    pub then: OnFailure,
    /// The error as data, if it was kept; read back by [`Failure::detail`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
}

/// Error classes that the engine itself gives.
pub mod class {
    /// An error that named no class of its own.
    pub const ERROR: &str = "error";
    /// The attempt ran longer than it may.
    pub const TIMEOUT: &str = "timeout";
    /// The attempt panicked.
    pub const PANIC: &str = "panic";
    /// The worker died under it.
    pub const LOST: &str = "lost";
    /// The input could not be decoded.
    pub const UNDECODABLE: &str = "undecodable";
    /// The output could not be encoded, or was refused by the store.
    pub const REFUSED: &str = "refused";
    /// The deadline passed.
    pub const EXPIRED: &str = "expired";
    /// The code of a workflow no longer fits its journal.
    pub const DIVERGED: &str = "diverged";
    /// Someone asked for the end.
    pub const CANCELLED: &str = "cancelled";
    /// Children, with what they returned, are not in the store any more.
    pub const MISSING: &str = "missing";
}

impl Failure {
    /// An error worth another attempt.
    pub fn retry(message: impl fmt::Display) -> Failure {
        Failure {
            class: class::ERROR.into(),
            message: message.to_string(),
            then: OnFailure::Retry,
            detail: None,
        }
    }

    /// An error that no further attempt can mend.
    pub fn stop(message: impl fmt::Display) -> Failure {
        Failure { then: OnFailure::Stop, ..Failure::retry(message) }
    }

    /// Ends the job as cancelled, without a retry.
    pub fn cancel(message: impl fmt::Display) -> Failure {
        Failure { then: OnFailure::Cancel, ..Failure::retry(message) }
    }

    /// The same failure under another class.
    pub fn class(self, class: impl Into<Cow<'static, str>>) -> Failure {
        Failure { class: class.into(), ..self }
    }

    /// The same failure with the error itself kept as data.
    pub fn with_detail<E: Serialize>(self, error: &E) -> Failure {
        Failure { detail: serde_json::to_value(error).ok(), ..self }
    }

    /// The error as it was kept by [`Failure::with_detail`], if it was and is of this type.
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
        Failure::retry(error).class("io")
    }
}

impl From<std::convert::Infallible> for Failure {
    fn from(never: std::convert::Infallible) -> Failure {
        match never {}
    }
}

/// Why a job has failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its attempts are used up.
    Exhausted,
    /// An error said that no further attempt can help, or no rule of its retry policy matched.
    Stopped,
    /// Its attempts are used up and the last one ran too long.
    Timeout,
    /// Its worker died under it too often while it ran alone.
    Poison,
    /// Its input does not decode; no attempt was counted.
    Undecodable,
    /// Its deadline passed.
    Expired,
    /// What it wanted written was refused by the store.
    Refused,
    /// The code of a workflow no longer fits what its journal says it has done.
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
