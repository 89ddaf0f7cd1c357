//! Submitting jobs.

use std::{
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use windlass_model::{
    JobId, KindVersion, NewJob, RateCharge, Retry, Serial, SubmitOutcome, Time, Unique, When,
    limits::MAX_BATCH_BYTES,
};

use windlass_workflow::engine::Spec;

use crate::{AnyKind, Engine, Error, Handle, Kind, Signal, signal::send};

/// How many jobs one transaction of [`SubmitAll`] submits.
const CHUNK: usize = 1_000;

/// The parent, which a step's children have anyway.
macro_rules! parent_setting {
    () => {
        /// Makes it a child of this job: it is not pruned before the parent has ended, and can be cancelled with it.
        pub fn parent(mut self, parent: JobId) -> Self {
            self.spec.parent = Some(parent);
            self
        }
    };
}

/// The settings of single submits.
macro_rules! single_job_settings {
    () => {
        /// Sets the key, unique per kind until the job is pruned. If another job has it, the submit returns that job and
        /// submits nothing.
        pub fn key(mut self, key: impl Into<String>) -> Self {
            self.spec.key = Some(key.into());
            self
        }

        /// Sets the id, drawn before by [`Engine::new_id`], so that the submit can be repeated after its answer was lost.
        pub fn id(mut self, id: JobId) -> Self {
            self.spec.id = Some(id);
            self
        }

        /// Submits it with a signal in its inbox. If a job with its key or unique name exists, the signal is sent to that one:
        /// an error if that one has ended.
        pub fn signal<T: Serialize>(mut self, name: &str, payload: T) -> Self {
            self.spec.signal(name, None, &payload);
            self
        }

        /// The same with a signal by its type.
        pub fn send<S: Signal>(self, signal: S) -> Self {
            self.signal(S::NAME, signal)
        }

        /// The same as [`Self::signal`], but a signal with this name and dedup id that was sent to the job before is not sent again.
        pub fn signal_once<T: Serialize>(mut self, name: &str, dedup: impl Into<String>, payload: T) -> Self {
            self.spec.signal(name, Some(dedup.into()), &payload);
            self
        }
    };
}

/// A submit that is being described; `.await` performs it, and [`Submit::run`] also runs the job here and returns its output.
///
/// ```no_run
/// # use windlass::prelude::*;
/// # #[derive(Serialize, Deserialize)]
/// # struct Greet { name: String }
/// # impl Task for Greet {
/// #     const KIND: &'static str = "greet";
/// #     type Output = String;
/// #     type Error = Failure;
/// #     async fn run(self, _cx: &TaskCx) -> Result<String, Failure> { Ok(self.name) }
/// # }
/// # async fn example(engine: Engine) -> Result<(), Box<dyn std::error::Error>> {
/// let job = engine
///     .submit(Greet { name: "world".into() })
///     .key("first")
///     .delay(minutes(5))
///     .retry(Retry::times(3))
///     .tag("greetings")
///     .await?;
/// println!("{} is {}", job.id(), if job.is_new() { "new" } else { "there already" });
/// # Ok(())
/// # }
/// ```
#[must_use = "a submit does nothing until it is awaited"]
pub struct Submit<'a, J, M> {
    engine: &'a Engine,
    job: J,
    spec: Spec,
    marker: PhantomData<fn() -> M>,
}

impl<'a, J: Kind<M>, M> Submit<'a, J, M> {
    pub(crate) fn new(engine: &'a Engine, job: J) -> Submit<'a, J, M> {
        Submit { engine, job, spec: Spec::default(), marker: PhantomData }
    }

    windlass_workflow::job_settings!();
    parent_setting!();
    single_job_settings!();
}

/// How a job enters the store.
#[derive(Clone, Copy)]
pub(crate) enum Door {
    /// Through its queue.
    Queue,
    /// Claimed by this process at once, if it may run; see [`Submit::run`].
    Direct,
}

impl<J: Kind<M>, M> Submit<'_, J, M> {
    pub(crate) fn engine(&self) -> &Engine {
        self.engine
    }

    /// The queue that the job will be in.
    pub(crate) fn queue_name(&self) -> &str {
        self.spec.queue.as_deref().unwrap_or(J::QUEUE)
    }

    /// Submits the job.
    pub(crate) async fn perform(self, door: Door) -> Result<Handle<J>, Error> {
        let input =
            serde_json::to_vec(&self.job).map_err(|source| Error::Encode { kind: J::KIND.into(), source });
        let kind = KindVersion { kind: J::KIND.into(), version: J::VERSION };
        let submitting = submit_one(self.engine, self.spec, kind, J::QUEUE, input, J::stage, door);
        let (engine, id, submitted) = submitting.await?;
        Ok(Handle::submitted(engine, id, submitted))
    }

    /// Returns the job as it is stored.
    pub(crate) fn into_job(self) -> Result<(Engine, NewJob), Error> {
        let input =
            serde_json::to_vec(&self.job).map_err(|source| Error::Encode { kind: J::KIND.into(), source })?;
        let kind = KindVersion { kind: J::KIND.into(), version: J::VERSION };
        let id = self.spec.id.unwrap_or_else(|| self.engine.new_id());
        self.spec.no_signals()?;
        let stage = J::stage(&input);
        let job = self.engine.codecs().encoded(self.spec.job(id, kind, J::QUEUE, input))?;
        Ok((self.engine.clone(), NewJob { stage, ..job }))
    }
}

impl<'a, J: Kind<M> + 'a, M: 'a> IntoFuture for Submit<'a, J, M> {
    type Output = Result<Handle<J>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.perform(Door::Queue))
    }
}

/// A submit of a kind that is known only by name.
#[must_use = "a submit does nothing until it is awaited"]
pub struct SubmitJson<'a> {
    engine: &'a Engine,
    kind: KindVersion,
    input: serde_json::Value,
    is_checked: bool,
    spec: Spec,
}

impl<'a> SubmitJson<'a> {
    pub(crate) fn new(engine: &'a Engine, kind: KindVersion, input: serde_json::Value) -> SubmitJson<'a> {
        SubmitJson { engine, kind, input, is_checked: true, spec: Spec::default() }
    }

    /// Accepts an input that the code of this program cannot decode, because other workers can.
    pub fn unchecked(mut self) -> Self {
        self.is_checked = false;
        self
    }

    /// The input as JSON, if the code of the kind can decode it or that is not checked.
    fn checked_input(&self) -> Result<Vec<u8>, Error> {
        let input = self.input.to_string().into_bytes();
        if self.is_checked {
            self.engine.check_input(&self.kind, &input)?;
        }
        Ok(input)
    }

    windlass_workflow::job_settings!();
    parent_setting!();
    single_job_settings!();
}

impl SubmitJson<'_> {
    /// Returns the job as it is stored.
    pub(crate) fn into_job(self) -> Result<(Engine, NewJob), Error> {
        let default_queue = self.engine.default_queue(&self.kind.kind);
        let id = self.spec.id.unwrap_or_else(|| self.engine.new_id());
        self.spec.no_signals()?;
        let input = self.checked_input()?;
        let stage = self.engine.stage(&self.kind.kind, &input);
        let job = self.engine.codecs().encoded(self.spec.job(id, self.kind, default_queue, input))?;
        Ok((self.engine.clone(), NewJob { stage, ..job }))
    }
}

impl<'a> IntoFuture for SubmitJson<'a> {
    type Output = Result<Handle<AnyKind>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let default_queue = self.engine.default_queue(&self.kind.kind);
        let (engine, kind, input) = (self.engine, self.kind.kind.clone(), self.checked_input());
        let stage = move |input: &[u8]| engine.stage(&kind, input);
        let submitting = submit_one(engine, self.spec, self.kind, default_queue, input, stage, Door::Queue);
        Box::pin(async move {
            let (engine, id, submitted) = submitting.await?;
            Ok(Handle::submitted(engine, id, submitted))
        })
    }
}

/// Submits one job.
async fn submit_one(
    engine: &Engine,
    spec: Spec,
    kind: KindVersion,
    queue: &str,
    input: Result<Vec<u8>, Error>,
    stage: impl Fn(&[u8]) -> Option<String>,
    door: Door,
) -> Result<(Engine, JobId, SubmitOutcome), Error> {
    let input = input?;
    loop {
        let id = spec.id.unwrap_or_else(|| engine.new_id());
        let mut job = engine.codecs().encoded(spec.job(id, kind.clone(), queue, input.clone()))?;
        job.stage = stage(&input);
        job.signals = spec.signals(id, engine.codecs(), engine.ids())?;
        let submitted = match door {
            Door::Queue => engine.submitter().submit(vec![job]).await?.remove(0),
            Door::Direct => engine.submitter().submit_direct(job).await?,
        };
        let id = match submitted {
            SubmitOutcome::Existing { id, .. } => id,
            SubmitOutcome::Rejected { id } => return Err(Error::Rejected(id)),
            SubmitOutcome::IdTaken if spec.id.is_some() => return Err(Error::IdTaken(id)),
            // Two drawn ids collided: practically impossible, and harmless.
            SubmitOutcome::IdTaken => continue,
            SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. } | SubmitOutcome::Repeated => id,
        };
        if matches!(submitted, SubmitOutcome::Existing { .. }) {
            send(engine, spec.signals(id, engine.codecs(), engine.ids())?).await?;
        }
        return Ok((engine.clone(), id, submitted));
    }
}

/// What became of one job of a [`SubmitAll`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the job may have been rejected"]
pub enum SubmittedJob {
    /// This call created it.
    New(JobId),
    /// This call created it, and cancelled the job that held its unique name.
    Replaced {
        /// The job.
        id: JobId,
        /// The job that was cancelled.
        cancelled: JobId,
    },
    /// A job with its key, or with its unique name, existed before; nothing was submitted.
    Existing {
        /// That job.
        id: JobId,
        /// Whether that job has another input. It is unchanged.
        differs: bool,
    },
    /// Nothing was submitted: another job holds its unique name, and the submit asked to be rejected then.
    Rejected {
        /// The job that holds the name.
        holder: JobId,
    },
}

impl SubmittedJob {
    /// The id of the job, or of the one that existed before; [`Error::Rejected`] if it was rejected.
    pub fn id(&self) -> Result<JobId, Error> {
        match *self {
            SubmittedJob::New(id) | SubmittedJob::Replaced { id, .. } | SubmittedJob::Existing { id, .. } => {
                Ok(id)
            }
            SubmittedJob::Rejected { holder } => Err(Error::Rejected(holder)),
        }
    }

    /// Whether this call created the job.
    pub fn is_new(&self) -> bool {
        matches!(self, SubmittedJob::New(_) | SubmittedJob::Replaced { .. })
    }
}

/// Makes a key from a job.
type MakeKey<'a, J> = Box<dyn Fn(&J) -> String + Send + 'a>;

/// A submit of many jobs that is being described; `.await` performs it.
///
/// ```no_run
/// # use windlass::prelude::*;
/// # #[derive(Serialize, Deserialize)]
/// # struct Greet { name: String }
/// # impl Task for Greet {
/// #     const KIND: &'static str = "greet";
/// #     type Output = String;
/// #     type Error = Failure;
/// #     async fn run(self, _cx: &TaskCx) -> Result<String, Failure> { Ok(self.name) }
/// # }
/// # async fn example(engine: Engine, names: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
/// let greetings = names.into_iter().map(|name| Greet { name });
/// let jobs = engine.submit_all(greetings).key(|job| job.name.clone()).await?;
/// println!("{} of {} are new", jobs.iter().filter(|job| job.is_new()).count(), jobs.len());
/// # Ok(())
/// # }
/// ```
#[must_use = "a submit does nothing until it is awaited"]
pub struct SubmitAll<'a, I, J, M> {
    engine: &'a Engine,
    jobs: I,
    spec: Spec,
    key: Option<MakeKey<'a, J>>,
    serial: Option<MakeKey<'a, J>>,
    marker: PhantomData<fn() -> M>,
}

impl<'a, I, J, M> SubmitAll<'a, I, J, M>
where
    I: IntoIterator<Item = J>,
    J: Kind<M>,
{
    pub(crate) fn new(engine: &'a Engine, jobs: I) -> SubmitAll<'a, I, J, M> {
        SubmitAll { engine, jobs, spec: Spec::default(), key: None, serial: None, marker: PhantomData }
    }

    windlass_workflow::job_settings!();
    parent_setting!();

    /// Sets a serial key for each job, made from its input.
    pub fn serial_by(mut self, key: impl Fn(&J) -> String + Send + 'a) -> Self {
        self.serial = Some(Box::new(key));
        self
    }

    /// Sets a key for each job, made from its input.
    pub fn key(mut self, key: impl Fn(&J) -> String + Send + 'a) -> Self {
        self.key = Some(Box::new(key));
        self
    }
}

impl<'a, I, J, M> IntoFuture for SubmitAll<'a, I, J, M>
where
    I: IntoIterator<Item = J> + 'a,
    I::IntoIter: Send,
    J: Kind<M> + 'a,
    M: 'a,
{
    type Output = Result<Vec<SubmittedJob>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    /// Submits the jobs in chunks, each in a transaction; the results are in the order of the jobs. If a chunk fails, the
    /// chunks before it are submitted: repeat with keys to submit each job once.
    fn into_future(self) -> Self::IntoFuture {
        let SubmitAll { engine, jobs, mut spec, key, serial, .. } = self;
        let kind = KindVersion { kind: J::KIND.into(), version: J::VERSION };
        let encode = move |job: J| {
            let input =
                serde_json::to_vec(&job).map_err(|source| Error::Encode { kind: J::KIND.into(), source })?;
            spec.key = key.as_ref().map(|key| key(&job));
            if let Some(serial) = &serial {
                spec.settings.serial = Some(Box::new(Serial::new(serial(&job))));
            }
            let stage = J::stage(&input);
            let job = engine.codecs().encoded(spec.job(engine.new_id(), kind.clone(), J::QUEUE, input))?;
            Ok(NewJob { stage, ..job })
        };
        let mut jobs = jobs.into_iter().map(encode);
        let chunks = std::iter::from_fn(move || {
            let (mut chunk, mut bytes) = (Vec::new(), 0);
            while chunk.len() < CHUNK
                && bytes < MAX_BATCH_BYTES
                && let Some(job) = jobs.next()
            {
                bytes += job.as_ref().map_or(0, NewJob::bytes);
                chunk.push(job);
            }
            (!chunk.is_empty()).then(|| chunk.into_iter().collect::<Result<Vec<NewJob>, Error>>())
        });
        Box::pin(async move {
            let send = |chunk: Result<Vec<NewJob>, Error>| async move {
                let chunk = chunk?;
                let ids: Vec<JobId> = chunk.iter().map(|job| job.id).collect();
                let answers = engine.submitter().submit(chunk).await?;
                let submitted = ids.into_iter().zip(answers).map(|(id, answer)| submitted_job(id, answer));
                submitted.collect::<Result<Vec<SubmittedJob>, Error>>()
            };
            stream::iter(chunks).map(send).buffered(engine.max_in_flight() + 1).try_concat().await
        })
    }
}

fn submitted_job(id: JobId, outcome: SubmitOutcome) -> Result<SubmittedJob, Error> {
    Ok(match outcome {
        // The ids are drawn for this call: a repeat is one of its own, whose answer was lost.
        SubmitOutcome::New { .. } | SubmitOutcome::Repeated => SubmittedJob::New(id),
        SubmitOutcome::Replaced { id: cancelled } => SubmittedJob::Replaced { id, cancelled },
        SubmitOutcome::Existing { id, same_input } => SubmittedJob::Existing { id, differs: !same_input },
        SubmitOutcome::Rejected { id: holder } => SubmittedJob::Rejected { holder },
        SubmitOutcome::IdTaken => return Err(Error::IdTaken(id)),
    })
}
