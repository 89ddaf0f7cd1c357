//! Jobs submitted in transactions of others, as rows of `arrivals`. They are checked here when they are read, since
//! anyone may have written them.

use std::time::Duration;

use windlass_model::{
    Failure, Invalid, JobId, KindVersion, Limits, NewJob, Payload, Settings, Time, When, failure::class,
    job::digest,
};

/// A row of `arrivals`.
pub(crate) struct Arrival {
    pub(crate) id: JobId,
    pub(crate) kind: String,
    pub(crate) version: i32,
    pub(crate) queue: String,
    pub(crate) key: Option<String>,
    pub(crate) priority: i16,
    pub(crate) at: Option<i64>,
    pub(crate) delay: i64,
    pub(crate) deadline_at: Option<i64>,
    pub(crate) parent: Option<JobId>,
    pub(crate) stage: Option<String>,
    pub(crate) tags: Option<String>,
    pub(crate) options: Option<String>,
    pub(crate) settings: Option<String>,
    pub(crate) codec: i16,
    pub(crate) input: Vec<u8>,
    pub(crate) digest: Option<Vec<u8>>,
}

impl Arrival {
    /// The row of a job, for the caller's own transaction.
    pub(crate) fn of(job: &NewJob) -> Arrival {
        let (at, delay) = match job.when {
            When::Now => (None, 0),
            When::After(delay) => (None, i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)),
            When::At(at) => (Some(at.micros()), 0),
        };
        let tags = || serde_json::to_string(&job.tags).expect("text is plain data");
        Arrival {
            id: job.id,
            kind: job.kind.kind.clone(),
            version: job.kind.version,
            queue: job.queue.clone(),
            key: job.key.clone(),
            priority: job.priority,
            at,
            delay,
            deadline_at: job.deadline_at.map(Time::micros),
            parent: job.parent,
            stage: job.stage.clone(),
            tags: (!job.tags.is_empty()).then(tags),
            options: job.options.clone(),
            settings: crate::columns::settings_text(&job.settings),
            codec: i16::from(job.input.codec),
            input: job.input.bytes.clone(),
            digest: Some(job.digest.to_vec()),
        }
    }

    /// The job that the row describes, if it is valid.
    pub(crate) fn job(&self, limits: &Limits) -> Result<NewJob, Invalid> {
        let codec = u8::try_from(self.codec).map_err(|_| bad("codec", "is not a number from 0 to 255"))?;
        let input = Payload { codec, bytes: self.input.clone() };
        let job = NewJob {
            id: self.id,
            digest: match &self.digest {
                None => digest(&self.kind, &input),
                Some(given) => {
                    given.as_slice().try_into().map_err(|_| bad("digest", "does not have 16 bytes"))?
                }
            },
            kind: KindVersion { kind: self.kind.clone(), version: self.version },
            queue: self.queue.clone(),
            key: self.key.clone(),
            priority: self.priority,
            when: match (self.at, u64::try_from(self.delay)) {
                (_, Err(_)) => return Err(bad("delay", "is negative")),
                (Some(at), _) => When::At(Time(at)),
                (None, Ok(0)) => When::Now,
                (None, Ok(delay)) => When::After(Duration::from_micros(delay)),
            },
            deadline_at: self.deadline_at.map(Time),
            parent: self.parent,
            parent_rev: None,
            branch_position: None,
            stage: self.stage.clone(),
            signals: Vec::new(),
            tags: match &self.tags {
                None => Vec::new(),
                Some(text) => {
                    serde_json::from_str(text).map_err(|_| bad("tags", "are not a JSON array of text"))?
                }
            },
            options: self.options.clone(),
            settings: match &self.settings {
                None => Settings::default(),
                Some(text) => serde_json::from_str(text)
                    .map_err(|error| bad("settings", &format!("are not as expected ({error})")))?,
            },
            input,
        };
        limits.check(&job)?;
        Ok(job)
    }
}

/// Checks a job that is about to be added to the table, which has no columns for signals.
pub(crate) fn check(job: &NewJob, limits: &Limits) -> Result<(), Invalid> {
    limits.check(job)?;
    if job.signals.is_empty() {
        return Ok(());
    }
    Err(Invalid {
        what: "the signals with the job".into(),
        why: "cannot be delivered before the job is admitted".into(),
        hint: "send them after the transaction has committed".into(),
    })
}

/// The error for an invalid column.
fn bad(what: &str, why: &str) -> Invalid {
    let hint = "see the page on submitting in your own transaction for what each column holds";
    Invalid { what: format!("the {what}"), why: why.into(), hint: hint.into() }
}

/// The failure of a job that could not be admitted.
pub(crate) fn refused(invalid: &Invalid) -> Failure {
    Failure::stop(invalid).class(class::REFUSED)
}

/// The failure of a job whose key or unique name another one has.
pub(crate) fn duplicate(of: JobId) -> Failure {
    Failure::cancel(format!("job {of} has its key or unique name")).class(class::DUPLICATE)
}
