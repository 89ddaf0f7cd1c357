//! Answers that routes put together.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass::{
    Delivery, Failure, JobId, Reason, State,
    model::Rev,
    operate::Item,
    store::{SerialView, Token, Transition},
};
use windlass_remote::protocol::schema::Schemas;

use super::{Answered, shapes};

shapes! {
    /// That all is well.
    Health {
        /// Always `ok`.
        status: String,
    }

    /// A job that was submitted.
    Submitted {
        /// Its id.
        id: JobId,
        /// Whether it is new. Otherwise it is an earlier one, with the same id, key or unique name.
        new: bool,
        /// Whether the earlier one has another input.
        differs: bool,
        /// The job whose unique name it took.
        replaced: JobId [?],
    }

    /// A job that was not submitted.
    NotSubmitted {
        /// Why.
        error: ErrorBody,
    }

    /// What became of many jobs.
    SubmittedMany {
        /// An answer for each job, in order.
        jobs: Vec<super::Either<Submitted, NotSubmitted>>,
    }

    /// What a name means: a job, or an item that is packed into a block.
    FoundName {
        /// The job.
        job: JobId [?],
        /// The item.
        item: Item [?],
    }

    /// A page of transitions.
    TransitionPage {
        /// The transitions, oldest first.
        transitions: Vec<Transition>,
        /// The next page has the transitions after this revision; null on the last page.
        next_after: Option<Rev>,
    }

    /// How a job has ended.
    JobResult {
        /// The job.
        job: JobId,
        /// `done`, `failed` or `cancelled`.
        state: State,
        /// Its output, if it is done.
        output: Value [?],
        /// Why it failed.
        reason: Reason [?],
        /// Its last error, if it failed or was cancelled.
        failure: Failure [?],
    }

    /// A job that has not ended.
    Unfinished {
        /// The job.
        job: JobId,
        /// Its state.
        state: State,
    }

    /// What became of a signal.
    SignalSent {
        /// The job.
        job: JobId,
        /// The name of the signal.
        name: String,
        /// Whether it was delivered now, or before.
        delivery: Delivery,
        /// Why the job may not consume it soon.
        note: String [?],
    }

    /// A fork.
    ForkedJob {
        /// The new job.
        job: JobId,
        /// The original.
        from: JobId,
    }

    /// Versions of gates.
    GateVersions {
        /// The version of each queue's gate. One that differs says that jobs may have become ready.
        gates: BTreeMap<String, u64>,
    }

    /// Serial keys.
    SerialKeyList {
        /// The keys.
        keys: Vec<SerialView>,
        /// Whether there are more.
        has_more: bool,
    }

    /// A token that was created.
    NewToken {
        token: Token [+],
        /// Its text, which cannot be read again.
        text: String,
    }
}

/// An error.
pub(crate) struct ErrorBody;

impl Answered for ErrorBody {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "$ref": "#/components/schemas/Error" })
    }
}
