//! Failures: the errors of attempts as they are kept, and the reasons why jobs fail.
//!
//! A [`Failure`] says what went wrong and whether to retry; [`crate::retry`] turns it into an outcome. A [`Reason`] says why that
//! failed the job.

pub mod class;
mod convert;
mod database;
mod hidden;

use std::{any::Any, borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Time;

pub use class::FailureClass;
pub use convert::OrFailure;
pub use hidden::{Unregistered, on_unregistered, register};

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
/// a retry, and `?` applies it in tasks, machines, steps and transactions:
///
/// ```
/// # use windlass_model::Failure;
/// enum PaymentError {
///     Busy,
///     Declined,
/// }
///
/// impl From<PaymentError> for Failure {
///     fn from(error: PaymentError) -> Failure {
///         match error {
///             PaymentError::Busy => Failure::retry("the bank is busy").class("busy"),
///             PaymentError::Declined => Failure::stop("the card was declined").class("declined"),
///         }
///     }
/// }
/// ```
///
/// For errors of other crates, the call says it: `.or_retry()?` or `.or_stop()?` ([`OrFailure`]).
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
    /// How long to wait before the next attempt, in place of the retry policy's delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Duration>,
}

impl Failure {
    /// Makes a failure that is worth another attempt.
    pub fn retry(message: impl fmt::Display) -> Failure {
        Failure {
            class: class::ERROR.into(),
            message: message.to_string(),
            then: OnFailure::Retry,
            detail: None,
            after: None,
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

    /// Makes the failure of an attempt whose code panicked. A panic with a `Failure` as its payload is that failure.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Failure {
        if let Some(failure) = panic.downcast_ref::<Failure>() {
            return failure.clone();
        }
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Failure::retry(text.unwrap_or("a panic without a message")).class(class::PANIC)
    }

    /// Makes a failure that cancels the job.
    pub fn cancel(message: impl fmt::Display) -> Failure {
        Failure { then: OnFailure::Cancel, ..Failure::retry(message) }
    }

    /// Makes it one that no further attempt can fix.
    pub fn without_retry(self) -> Failure {
        Failure { then: OnFailure::Stop, ..self }
    }

    /// Sets the class.
    pub fn class(self, class: impl Into<Cow<'static, str>>) -> Failure {
        Failure { class: class.into(), ..self }
    }

    /// Sets how long to wait before the next attempt, in place of the retry policy's delay: a service that answers 429 says so in
    /// `Retry-After`. The attempt counts as usual, and the policy decides whether there is another one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass_model::Failure;
    /// Failure::retry("too many requests").class("busy").retry_after(Duration::from_secs(30));
    /// ```
    pub fn retry_after(self, delay: Duration) -> Failure {
        Failure { after: Some(delay), ..self }
    }

    /// Its text behind the reason of the job that failed with it. A class that says the same as the reason is left out.
    pub fn text_after(&self, reason: Reason) -> String {
        if *self.class == *reason.to_string() { self.message.clone() } else { self.to_string() }
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
    /// The engine or the store refused what it did.
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

    #[test]
    fn a_panic_is_a_failure_with_its_message_unless_its_payload_is_a_failure() {
        let of = |payload: Box<dyn Any + Send>| Failure::of_panic(&*payload);
        assert_eq!(of(Box::new("out of range")), Failure::retry("out of range").class(class::PANIC));
        assert_eq!(of(Box::new("owned".to_owned())), Failure::retry("owned").class(class::PANIC));
        assert_eq!(of(Box::new(17)).message, "a panic without a message");
        let failure = Failure::stop("no").class("mine");
        assert_eq!(of(Box::new(failure.clone())), failure);
    }

    #[test]
    fn a_class_that_repeats_the_reason_is_left_out_behind_it() {
        let late = Failure::retry("nobody answered").class(class::TIMEOUT);
        assert_eq!(late.text_after(Reason::Timeout), "nobody answered");
        assert_eq!(late.text_after(Reason::Exhausted), "timeout: nobody answered");
        assert_eq!(Failure::stop("no").text_after(Reason::Stopped), "no");
    }

    #[test]
    fn a_delay_is_kept_with_the_failure_and_older_failures_have_none() {
        let failure = Failure::retry("busy").retry_after(Duration::from_millis(1_500));
        let text = serde_json::to_string(&failure).expect("plain data");
        assert_eq!(serde_json::from_str::<Failure>(&text).expect("the same"), failure);
        let old: Failure = serde_json::from_str(r#"{"class":"error","message":"x"}"#).expect("a failure");
        assert_eq!(old, Failure::retry("x"));
        assert!(!serde_json::to_string(&old).expect("plain data").contains("after"));
    }
}
