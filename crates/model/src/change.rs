//! What an attempt asks to be written, and what the store answers.

use std::time::Duration;

use crate::{Epoch, Event, Failure, JobId, Payload, Reason, Rev, Time, WorkerId};

/// All that one finished attempt wants written. It is applied whole or not at all.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The job.
    pub job: JobId,
    /// The epoch of the claim under which the attempt ran; an older one than the job's is fenced.
    pub epoch: Epoch,
    /// The revision this change follows. If the job is one further and this epoch took it there, the change
    /// was applied before and its answer lost: it is answered `Committed` and nothing is written.
    pub rev: Rev,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// When the attempt started, by the worker's clock.
    pub started_at: Time,
    /// The job's deadline as it was claimed with it, so that its timer goes when the job ends.
    pub deadline_at: Option<Time>,
    /// Whether other rows hang on what becomes of the job (see [`crate::Settings::ties`]).
    pub tied: bool,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// With an output.
    Done(Payload),
    /// With an error that ends the job.
    Failed {
        /// Why that ends it.
        reason: Reason,
        /// The error.
        failure: Failure,
    },
    /// With an error after which it is tried again.
    Retry {
        /// The wait before the next attempt, by the store's clock.
        after: Duration,
        /// How much of each retry rule's budget is used now.
        spent: Vec<u32>,
        /// The error.
        failure: Failure,
    },
    /// By its own wish, without an error.
    Cancelled(Failure),
}

impl Outcome {
    /// The event of the transition table that this outcome is.
    pub fn event(&self) -> Event {
        match self {
            Outcome::Done(_) => Event::Finish,
            Outcome::Failed { .. } => Event::Fail,
            Outcome::Retry { .. } => Event::Retry,
            Outcome::Cancelled(_) => Event::Cancel,
        }
    }

    /// The error, if there was one; each is kept in the job's history.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Done(_) => None,
            Outcome::Failed { failure, .. } | Outcome::Retry { failure, .. } => Some(failure),
            Outcome::Cancelled(failure) => Some(failure),
        }
    }

    /// Whether this outcome counts as an attempt of the job's budget: input that does not decode does not.
    pub fn counts(&self) -> bool {
        match self {
            Outcome::Done(_) | Outcome::Cancelled(_) => false,
            Outcome::Failed { reason, .. } => *reason != Reason::Undecodable,
            Outcome::Retry { .. } => true,
        }
    }
}

/// The store's answer to one change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is written; or was, before its answer was lost.
    Committed,
    /// The claim is outdated: the job was reaped, expired or handed back meanwhile. Nothing was written.
    Fenced,
    /// The store will never take this change, for the reason given. Nothing was written; the rest of its
    /// batch was not harmed.
    Refused(String),
}
