//! The errors that callers of the engine see.

use windlass_model::{Failure, Invalid, JobId, Reason, State};

use crate::{ChildrenError, SignalError};

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

/// Why a job has no output.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// It failed.
    #[error("the job failed ({reason}): {failure}")]
    Failed {
        /// Why.
        reason: Reason,
        /// The last error; `failure.detail::<E>()` reads it back as the kind's own error type, if that was kept.
        failure: Failure,
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

/// Any error, for tasks that do not distinguish theirs: `?` converts whatever it meets into one, and it is retried.
#[derive(Debug)]
pub struct AnyError(Failure);

impl<E: std::error::Error + 'static> From<E> for AnyError {
    fn from(error: E) -> AnyError {
        // The engine's own errors know whether another attempt can help.
        let known = &error as &dyn std::error::Error;
        if let Some(failure) = known.downcast_ref::<Failure>() {
            return AnyError(failure.clone());
        }
        if let Some(error) = known.downcast_ref::<SignalError>() {
            return AnyError(error.clone().into());
        }
        if let Some(error) = known.downcast_ref::<ChildrenError>() {
            return AnyError(error.into());
        }
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text += &format!(": {cause}");
            source = cause.source();
        }
        AnyError(Failure::retry(text))
    }
}

impl From<AnyError> for Failure {
    fn from(error: AnyError) -> Failure {
        error.0
    }
}
