//! A job that a step submits: its kind, input and settings.

use std::{
    borrow::Cow,
    ops::{Deref, DerefMut},
    sync::LazyLock,
    time::Duration,
};

use windlass_model::{JobId, KindVersion, NewJob, RateCharge, Retry, Serial, Time, Unique, When};

use crate::{Kind, spec::Spec};

/// A job that a step submits with its commit: the job exists if, and only if, the step is committed.
pub struct Child {
    spec: LazySpec,
    kind: &'static str,
    version: i32,
    queue: &'static str,
    stage: Option<String>,
    packs: bool,
    input: Result<Vec<u8>, String>,
}

impl Child {
    /// Describes a child of any kind.
    pub fn new<J: Kind<M>, M>(job: J) -> Child {
        let input = serde_json::to_vec(&job);
        let input =
            input.map_err(|e| format!("the input of a {:?} child cannot be written as JSON ({e})", J::KIND));
        Child {
            spec: LazySpec::default(),
            kind: J::KIND,
            version: J::VERSION,
            queue: J::QUEUE,
            stage: input.as_ref().ok().and_then(|input| J::stage(input)),
            packs: J::PACKS,
            input,
        }
    }

    crate::job_settings!();

    /// Gives it a key, unique per kind until the job is pruned. If another job has the key, no child is submitted, and none is
    /// waited for.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.spec.key = Some(key.into());
        self
    }

    /// Returns the child as an item of a block, if it can be one: a task without settings of its own but its queue.
    pub(crate) fn into_item(self) -> Result<PackableChild, Child> {
        let Spec { key, priority, when, deadline_at, tags, options, settings, .. } = &*self.spec;
        let plain = key.is_none() && *priority == 0 && deadline_at.is_none() && tags.is_empty();
        let starts_now = *when == When::Now;
        if !(self.packs && plain && starts_now && options.is_none() && settings.is_default()) {
            return Err(self);
        }
        let queue = self.spec.queue.clone();
        let Child { kind, version, queue: default_queue, input, .. } = self;
        Ok(PackableChild { kind, version, queue: queue.map_or(default_queue.into(), Into::into), input })
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn into_job(self, id: JobId) -> Result<NewJob, String> {
        let kind = KindVersion { kind: self.kind.to_owned(), version: self.version };
        let job = self.spec.job(id, kind, self.queue, self.input?);
        Ok(NewJob { stage: self.stage, ..job })
    }
}

/// A child that can be an item of a block.
pub(crate) struct PackableChild {
    pub(crate) kind: &'static str,
    pub(crate) version: i32,
    pub(crate) queue: Cow<'static, str>,
    pub(crate) input: Result<Vec<u8>, String>,
}

/// The settings of a child, allocated when the first one is set: most children of a large branch have none.
#[derive(Default)]
struct LazySpec(Option<Box<Spec>>);

impl Deref for LazySpec {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        static DEFAULT: LazyLock<Spec> = LazyLock::new(Spec::default);
        self.0.as_deref().unwrap_or(&DEFAULT)
    }
}

impl DerefMut for LazySpec {
    fn deref_mut(&mut self) -> &mut Spec {
        self.0.get_or_insert_default()
    }
}
