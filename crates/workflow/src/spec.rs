//! What can be said of a job as it is submitted, by a program or by a step.

use serde::Serialize;
use windlass_env::IdSource;
use windlass_model::{JobId, KindVersion, NewJob, NewSignal, Payload, Time, When};

use crate::{Error, codec::Codecs, signal::OutgoingSignal};

/// What can be said of a job as it is submitted.
#[derive(Clone)]
pub struct Spec {
    /// Made before by the submitter; a new one is made otherwise.
    pub id: Option<JobId>,
    /// The queue; that of the kind otherwise.
    pub queue: Option<String>,
    /// See [`NewJob::key`].
    pub key: Option<String>,
    /// See [`NewJob::priority`].
    pub priority: i16,
    /// When it is due.
    pub when: When,
    /// When it fails if it has not ended.
    pub deadline_at: Option<Time>,
    /// Words that people search by.
    pub tags: Vec<String>,
    /// Free JSON.
    pub options: Option<String>,
    /// Policies of this job alone.
    pub settings: windlass_model::Settings,
    /// The job that it is a child of.
    pub parent: Option<JobId>,
    /// Signals to go with it, and why one of them cannot.
    signals: Result<Vec<OutgoingSignal>, String>,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            id: None,
            queue: None,
            key: None,
            priority: 0,
            when: When::Now,
            deadline_at: None,
            tags: Vec::new(),
            options: None,
            settings: Default::default(),
            parent: None,
            signals: Ok(Vec::new()),
        }
    }
}

impl Spec {
    /// Adds a signal that goes with the job.
    pub fn signal<T: Serialize>(&mut self, name: &str, dedup: Option<String>, payload: &T) {
        match (&mut self.signals, OutgoingSignal::new(name, dedup, payload)) {
            (Ok(signals), Ok(sent)) => signals.push(sent),
            (signals @ Ok(_), Err(fault)) => *signals = Err(fault.to_string()),
            (Err(_), _) => {}
        }
    }

    /// The signals that go with a job, encoded.
    pub fn signals(&self, id: JobId, codecs: &Codecs, ids: &IdSource) -> Result<Vec<NewSignal>, Error> {
        let signals = self.signals.as_ref().map_err(|fault| Error::Setup(fault.clone()))?;
        signals.iter().map(|sent| sent.to(id, codecs, ids)).collect()
    }

    /// Refuses signals where they cannot go with the job.
    pub fn no_signals(&self) -> Result<(), Error> {
        match &self.signals {
            Ok(signals) if signals.is_empty() => Ok(()),
            _ => Err(Error::Setup(
                "a job that is submitted in a transaction of yours takes no signal with it; send it after the commit"
                    .into(),
            )),
        }
    }

    /// The job as it is submitted, with its input as plain JSON.
    pub fn job(&self, id: JobId, kind: KindVersion, queue: &str, input: Vec<u8>) -> NewJob {
        let input = Payload::json(input);
        NewJob {
            id,
            digest: windlass_model::job::digest(&kind.kind, &input),
            queue: self.queue.clone().unwrap_or_else(|| queue.to_owned()),
            kind,
            key: self.key.clone(),
            priority: self.priority,
            when: self.when,
            deadline_at: self.deadline_at,
            parent: self.parent,
            parent_rev: None,
            branch_position: None,
            stage: None,
            signals: Vec::new(),
            tags: self.tags.clone(),
            options: self.options.clone(),
            settings: self.settings.clone(),
            input,
        }
    }
}

/// The settings that all submits share.
#[doc(hidden)]
#[macro_export]
macro_rules! job_settings {
    () => {
        /// Into this queue.
        pub fn queue(mut self, queue: impl Into<String>) -> Self {
            self.spec.queue = Some(queue.into());
            self
        }

        /// With this priority: from -100 (most urgent) over 0 (normal) to 100 (least urgent). Each step is a minute's
        /// place in line.
        pub fn priority(mut self, priority: i16) -> Self {
            self.spec.priority = priority;
            self
        }

        /// Due so long after the submit. [`Self::at`] wins over it.
        pub fn delay(mut self, delay: Duration) -> Self {
            if !matches!(self.spec.when, When::At(_)) {
                self.spec.when = When::After(delay);
            }
            self
        }

        /// Due at this moment; a past one is now.
        pub fn at(mut self, at: Time) -> Self {
            self.spec.when = When::At(at);
            self
        }

        /// Failed if it has not ended by then.
        pub fn deadline(mut self, at: Time) -> Self {
            self.spec.deadline_at = Some(at);
            self
        }

        /// With a word that people can search by; call it again for more.
        pub fn tag(mut self, tag: impl Into<String>) -> Self {
            self.spec.tags.push(tag.into());
            self
        }

        /// With free JSON that is kept and never interpreted.
        pub fn options(mut self, options: impl ToString) -> Self {
            self.spec.options = Some(options.to_string());
            self
        }

        /// With a retry policy of its own.
        pub fn retry(mut self, retry: Retry) -> Self {
            self.spec.settings.retry = Some(retry);
            self
        }

        /// With a time limit per attempt of its own.
        pub fn timeout(mut self, timeout: Duration) -> Self {
            self.spec.settings.timeout = Some(timeout);
            self
        }

        /// Under a name that only one job of its kind may have at a time, until it ends (or as [`Unique`] says). If
        /// another job has it, the submit answers that job and puts nothing in.
        pub fn unique(mut self, unique: impl Into<Unique>) -> Self {
            self.spec.settings.unique = Some(Box::new(unique.into()));
            self
        }

        /// One after the other with all jobs of this key, first come first served; see [`Serial`] for more at once.
        pub fn serial(mut self, serial: impl Into<Serial>) -> Self {
            self.spec.settings.serial = Some(Box::new(serial.into()));
            self
        }

        /// Started no faster than the named rate limit allows; see [`RateCharge`] for jobs that weigh more than one.
        pub fn rate(mut self, charge: impl Into<RateCharge>) -> Self {
            self.spec.settings.rate = Some(Box::new(charge.into()));
            self
        }

        /// As part of this trace, a W3C `traceparent`. What is submitted while a task runs is part of that task's
        /// trace without being told.
        pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
            self.spec.settings.trace = Some(traceparent.into());
            self
        }
    };
}
