//! The settings of a job that is submitted, by a program or by a step.

use serde::Serialize;
use windlass_env::IdSource;
use windlass_model::{JobId, KindVersion, NewJob, NewSignal, Payload, Time, When};

use crate::{Error, codec::Codecs, signal::OutgoingSignal};

/// The settings of a job that is submitted.
#[derive(Clone)]
pub struct Spec {
    /// An id that the caller drew before; `None` draws one.
    pub id: Option<JobId>,
    /// The queue; `None` is that of the kind.
    pub queue: Option<String>,
    /// See [`NewJob::key`].
    pub key: Option<String>,
    /// See [`NewJob::priority`].
    pub priority: i16,
    /// When it is due.
    pub when: When,
    /// When the job fails if it has not ended.
    pub deadline_at: Option<Time>,
    /// Words that people search for.
    pub tags: Vec<String>,
    /// Free JSON that is kept and never interpreted.
    pub options: Option<String>,
    /// Policies for this job alone.
    pub settings: windlass_model::Settings,
    /// The parent of the job.
    pub parent: Option<JobId>,
    /// Signals that are submitted with the job, or why one of them cannot be encoded.
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
    /// Adds a signal that is submitted with the job.
    pub fn signal<T: Serialize>(&mut self, name: &str, dedup: Option<String>, payload: &T) {
        match (&mut self.signals, OutgoingSignal::new(name, dedup, payload)) {
            (Ok(signals), Ok(sent)) => signals.push(sent),
            (signals @ Ok(_), Err(fault)) => *signals = Err(fault.to_string()),
            (Err(_), _) => {}
        }
    }

    /// Returns the signals that are submitted with a job, encoded.
    pub fn signals(&self, id: JobId, codecs: &Codecs, ids: &IdSource) -> Result<Vec<NewSignal>, Error> {
        let signals = self.signals.as_ref().map_err(|fault| Error::Setup(fault.clone()))?;
        signals.iter().map(|sent| sent.to(id, codecs, ids)).collect()
    }

    /// Refuses signals where they cannot be submitted with the job.
    pub fn no_signals(&self) -> Result<(), Error> {
        match &self.signals {
            Ok(signals) if signals.is_empty() => Ok(()),
            _ => Err(Error::Setup(
                "a job that is submitted in a transaction of yours takes no signal with it; send it after the commit"
                    .into(),
            )),
        }
    }

    /// Makes the job, with its input as plain JSON.
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
        /// Sets the queue.
        pub fn queue(mut self, queue: impl Into<String>) -> Self {
            self.spec.queue = Some(queue.into());
            self
        }

        /// Sets the priority: from -100 (most urgent) over 0 (normal) to 100 (least urgent). One step is worth a minute of
        /// waiting.
        pub fn priority(mut self, priority: i16) -> Self {
            self.spec.priority = priority;
            self
        }

        /// Starts the job this long after the submit. [`Self::at`] takes precedence.
        pub fn delay(mut self, delay: Duration) -> Self {
            if !matches!(self.spec.when, When::At(_)) {
                self.spec.when = When::After(delay);
            }
            self
        }

        /// Starts the job at this time; a past time is now.
        pub fn at(mut self, at: Time) -> Self {
            self.spec.when = When::At(at);
            self
        }

        /// Fails the job if it has not ended by then.
        pub fn deadline(mut self, at: Time) -> Self {
            self.spec.deadline_at = Some(at);
            self
        }

        /// Adds a word that people can search for; call it again for more.
        pub fn tag(mut self, tag: impl Into<String>) -> Self {
            self.spec.tags.push(tag.into());
            self
        }

        /// Adds free JSON that is kept and never interpreted.
        pub fn options(mut self, options: impl ToString) -> Self {
            self.spec.options = Some(options.to_string());
            self
        }

        /// Sets a retry policy for this job.
        pub fn retry(mut self, retry: Retry) -> Self {
            self.spec.settings.retry = Some(retry);
            self
        }

        /// Sets a time limit per attempt for this job.
        pub fn timeout(mut self, timeout: Duration) -> Self {
            self.spec.settings.timeout = Some(timeout);
            self
        }

        /// Gives it a name that only one job of its kind may hold at a time, until that job ends (or as [`Unique`] says). If
        /// another job holds it, the submit returns that job and submits nothing.
        pub fn unique(mut self, unique: impl Into<Unique>) -> Self {
            self.spec.settings.unique = Some(Box::new(unique.into()));
            self
        }

        /// Runs it one after the other with all jobs of this serial key, first come first served; see [`Serial`] for more at
        /// once.
        pub fn serial(mut self, serial: impl Into<Serial>) -> Self {
            self.spec.settings.serial = Some(Box::new(serial.into()));
            self
        }

        /// Starts it no faster than the named rate limit allows; see [`RateCharge`] for jobs that cost more than one token.
        pub fn rate(mut self, charge: impl Into<RateCharge>) -> Self {
            self.spec.settings.rate = Some(Box::new(charge.into()));
            self
        }

        /// Makes it part of this trace, a W3C `traceparent`. A job that is submitted by a running task is part of that task's
        /// trace by default.
        pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
            self.spec.settings.trace = Some(traceparent.into());
            self
        }
    };
}
