//! Jobs that a step of a machine submits and waits for.

use std::time::Duration;

use windlass_model::{Charge, JobId, KindVersion, NewJob, Retry, Serial, Time, Unique, When};

use crate::{
    Kind,
    submit::{Spec, settings},
};

/// A job that a step submits with its commit: it is in if, and only if, the step is.
pub struct Child {
    spec: Spec,
    kind: KindVersion,
    queue: &'static str,
    stage: Option<String>,
    input: Result<Vec<u8>, String>,
}

impl Child {
    /// A child of any kind.
    pub fn new<J: Kind<M>, M>(job: J) -> Child {
        let input = serde_json::to_vec(&job);
        let input =
            input.map_err(|e| format!("the input of a {:?} child cannot be written as JSON ({e})", J::KIND));
        Child {
            spec: Spec::default(),
            kind: KindVersion { kind: J::KIND.into(), version: J::VERSION },
            queue: J::QUEUE,
            stage: input.as_ref().ok().and_then(|input| J::stage(input)),
            input,
        }
    }

    settings!();

    /// Under this name, unique per kind until the job is pruned. If it is taken, no child is submitted, and none is
    /// waited for.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.spec.key = Some(key.into());
        self
    }

    pub(crate) fn into_job(self, id: JobId) -> Result<NewJob, String> {
        let job = self.spec.job(id, self.kind, self.queue, self.input?);
        Ok(NewJob { stage: self.stage, ..job })
    }
}
