//! The errors that callers of the engine see.

use std::{fmt, marker::PhantomData};

use serde::de::DeserializeOwned;
use windlass_model::{Failure, Invalid, JobId, Reason, State};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument cannot be accepted: the text says what, why, and what to do.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The input cannot be written as JSON.
    #[error(
        "the input of a {kind:?} job cannot be written as JSON ({source}); use types that serde_json can write"
    )]
    Encode {
        /// The job's kind.
        kind: String,
        /// What serde says.
        source: serde_json::Error,
    },
    /// The code of the kind, which this program registers, cannot decode the input. Nothing was submitted.
    #[error(
        "the input of a {kind:?} job does not decode ({why}); correct it, or submit it unchecked (`--any-kind`) for workers whose \
         code decodes it"
    )]
    Input {
        /// The job's kind.
        kind: String,
        /// What serde says.
        why: String,
    },
    /// The input cannot be encoded.
    #[error("the input of a {kind:?} job cannot be encoded: {source}")]
    Codec {
        /// The job's kind.
        kind: String,
        /// What the codec says.
        source: crate::codec::Error,
    },
    /// The id given with the submit belongs to another job.
    #[error("job {0} exists already with another input; leave the id out, or repeat the same input")]
    IdTaken(JobId),
    /// Another job holds the unique name, and the submit asked to be rejected then, or to replace a job that is running.
    #[error("job {0} has this unique name; wait for it, cancel it, or submit with another conflict rule")]
    Rejected(JobId),
    /// The job that a signal was sent to has ended.
    #[error("job {job} is {state}: it takes no more signals{}", if matches!(state, State::Done) { "" } else { "; retry it first" })]
    Ended {
        /// The job.
        job: JobId,
        /// How it ended.
        state: State,
    },
    /// The job's inbox is full.
    #[error(
        "the inbox of job {job} is full: {most} signals wait in it; see what it waits for with `windlass why {job}`, or {}",
        windlass_model::Limits::raise_hint("inbox")
    )]
    InboxFull {
        /// The job.
        job: JobId,
        /// The most signals that an inbox holds.
        most: usize,
    },
    /// There is no such job.
    #[error("job {0} does not exist; it was pruned, or never submitted")]
    NoSuchJob(JobId),
    /// No job of the kind has the key.
    #[error("no {kind:?} job has the key {key:?}; submit it first, or send the signal with the submit")]
    NoSuchKey {
        /// The kind.
        kind: String,
        /// The key.
        key: String,
    },
    /// The job is of another kind than the caller expects.
    #[error(
        "job {job} is of the kind {kind:?}, and not {expected:?}; use the type that it was submitted with"
    )]
    OtherKind {
        /// The job.
        job: JobId,
        /// Its kind.
        kind: String,
        /// The kind that the caller expects.
        expected: String,
    },
    /// No job has this name.
    #[error("no job is called {0:?}; name it by its id, as kind/key, or by its key")]
    NoSuchName(String),
    /// Several jobs have this name.
    #[error("several jobs are called {name:?}: {}; write kind/key or the id of one of them", jobs.join(", "))]
    AmbiguousName {
        /// The name.
        name: String,
        /// Kind, key and id of each, or of the first of many.
        jobs: Vec<String>,
    },
    /// The job has no branch of this name.
    #[error(
        "job {job} has no branch {branch:?}{}",
        if known.is_empty() { ": it has none at all".to_owned() } else { format!("; it has {}", known.join(", ")) }
    )]
    NoSuchBranch {
        /// The job.
        job: JobId,
        /// The name.
        branch: String,
        /// The names of its branches.
        known: Vec<String>,
    },
    /// No child of a branch has this name.
    #[error("no child of a branch is called {key:?}: {why}")]
    NoSuchChild {
        /// The name.
        key: String,
        /// Why there is none.
        why: String,
    },
    /// The engine was set up wrongly.
    #[error("{0}")]
    Setup(String),
    /// The store failed; `is_retryable` says whether the same call may succeed later.
    #[error(transparent)]
    Store(windlass_store::Error),
}

impl Error {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Store(error) if error.is_retryable())
    }
}

impl From<windlass_store::Error> for Error {
    fn from(error: windlass_store::Error) -> Error {
        match error {
            windlass_store::Error::Invalid(invalid) => Error::Invalid(invalid),
            other => Error::Store(other),
        }
    }
}

/// Why a job has no output. `E` is the error type of its kind.
#[derive(thiserror::Error)]
pub enum JobError<E = Failure> {
    /// It failed.
    #[error("the job failed ({reason}): {}", .failure.text_after(*.reason))]
    Failed {
        /// Why.
        reason: Reason,
        /// The last error. [`JobError::error`] is the same as the kind's own type.
        failure: Failure,
        /// The error type of the job's kind.
        of_kind: PhantomData<fn() -> E>,
    },
    /// It was cancelled: by itself, by someone, or because another job holds its key or unique name.
    #[error("the job was cancelled: {}", .0.message)]
    Cancelled(Failure),
    /// There is no such job: it was pruned, or never submitted.
    #[error("job {0} does not exist; it was pruned, or never submitted")]
    Gone(JobId),
    /// It has not ended.
    #[error("job {0} has not ended")]
    Unfinished(JobId),
    /// Its output was written by a codec that this engine does not have, or that cannot read it.
    #[error("the output of job {id} cannot be read: {source}")]
    Unreadable {
        /// The job.
        id: JobId,
        /// What the codec says.
        source: crate::codec::Error,
    },
    /// Its output does not decode as the type asked for.
    #[error("the output of job {id} does not decode ({source}); was its type changed since it ran?")]
    Undecodable {
        /// The job.
        id: JobId,
        /// What serde says.
        source: serde_json::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(windlass_store::Error),
}

impl<E> JobError<E> {
    /// Makes the error of a job that failed.
    pub fn failed(reason: Reason, failure: Failure) -> JobError<E> {
        JobError::Failed { reason, failure, of_kind: PhantomData }
    }

    /// The failure that ended the job, if it failed or was cancelled.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            JobError::Failed { failure, .. } | JobError::Cancelled(failure) => Some(failure),
            _ => None,
        }
    }
}

impl<E: DeserializeOwned> JobError<E> {
    /// The kind's own error, if the job failed with it and its conversion into a [`Failure`] kept it
    /// ([`Failure::with_detail`]).
    pub fn error(&self) -> Option<E> {
        self.failure()?.detail()
    }
}

impl<E> fmt::Debug for JobError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Failed { reason, failure, .. } => {
                f.debug_struct("Failed").field("reason", reason).field("failure", failure).finish()
            }
            JobError::Cancelled(failure) => f.debug_tuple("Cancelled").field(failure).finish(),
            JobError::Gone(id) => f.debug_tuple("Gone").field(id).finish(),
            JobError::Unfinished(id) => f.debug_tuple("Unfinished").field(id).finish(),
            JobError::Unreadable { id, source } => {
                f.debug_struct("Unreadable").field("id", id).field("source", source).finish()
            }
            JobError::Undecodable { id, source } => {
                f.debug_struct("Undecodable").field("id", id).field("source", source).finish()
            }
            JobError::Store(error) => f.debug_tuple("Store").field(error).finish(),
        }
    }
}

impl From<Error> for Failure {
    /// An error that may go away by itself is retried; any other fails the job.
    fn from(error: Error) -> Failure {
        match error {
            Error::Store(error) => error.into(),
            error => Failure::stop(&error),
        }
    }
}

impl<E> From<JobError<E>> for Failure {
    /// A job that waits for another fails with it: the other will not end differently by waiting again.
    fn from(error: JobError<E>) -> Failure {
        match error {
            JobError::Store(error) => error.into(),
            error => {
                let class = error.failure().map(|failure| failure.class.clone());
                let failure = Failure::stop(&error);
                class.into_iter().fold(failure, Failure::class)
            }
        }
    }
}
