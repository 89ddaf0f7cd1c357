//! A handle to a submitted job.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{JobId, SubmitOutcome};

use crate::{Engine, JobError, Signal};

/// A submitted job, with the type of its output.
pub struct Handle<O> {
    engine: Engine,
    id: JobId,
    submitted: SubmitOutcome,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> Handle<O> {
    pub(crate) fn new(engine: Engine, id: JobId, submitted: SubmitOutcome) -> Handle<O> {
        Handle { engine, id, submitted, output: PhantomData }
    }

    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Whether this submit created the job; `false` if it existed before.
    pub fn is_new(&self) -> bool {
        matches!(self.submitted, SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. })
    }

    /// The job that was cancelled because this one took its unique name.
    pub fn replaced(&self) -> Option<JobId> {
        match self.submitted {
            SubmitOutcome::Replaced { id } => Some(id),
            _ => None,
        }
    }

    /// Whether a job with this key existed before, with another input. That job is unchanged.
    pub fn differs(&self) -> bool {
        matches!(self.submitted, SubmitOutcome::Existing { same_input: false, .. })
    }

    /// Sends the job a signal; see [`Engine::signal`].
    pub fn signal<T: Serialize>(&self, name: &str, payload: T) -> Signal<'_> {
        self.engine.signal(self.id, name, payload)
    }

    /// Waits until the job has ended, in whichever process it runs, and returns its output.
    pub async fn result(&self) -> Result<O, JobError> {
        self.engine.result(self.id).await
    }
}
