//! Putting jobs in.

use std::{
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use windlass_model::{
    Charge, JobId, KindVersion, NewJob, Payload, Retry, Serial, Submitted, Time, Unique, When,
};

use crate::{Engine, Error, Handle, Kind};

/// How many jobs go in one transaction of [`SubmitAll`].
const CHUNK: usize = 1_000;

/// What can be said of a job as it is submitted.
#[derive(Clone)]
struct Spec {
    id: Option<JobId>,
    queue: Option<String>,
    key: Option<String>,
    priority: i16,
    when: When,
    deadline_at: Option<Time>,
    tags: Vec<String>,
    options: Option<String>,
    settings: windlass_model::Settings,
    parent: Option<JobId>,
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
        }
    }
}

impl Spec {
    fn job(&self, id: JobId, kind: KindVersion, queue: &str, input: Vec<u8>) -> NewJob {
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
            tags: self.tags.clone(),
            options: self.options.clone(),
            settings: self.settings.clone(),
            input,
        }
    }
}

/// The settings that single and bulk submits share.
macro_rules! settings {
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

        /// Started no faster than the named rate limit allows; see [`Charge`] for jobs that weigh more than one.
        pub fn rate(mut self, charge: impl Into<Charge>) -> Self {
            self.spec.settings.rate = Some(Box::new(charge.into()));
            self
        }

        /// As a child of this job: it is not pruned before that one has ended, and can be cancelled with it.
        pub fn parent(mut self, parent: JobId) -> Self {
            self.spec.parent = Some(parent);
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

/// A submit that is being described; `.await` makes it.
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

    settings!();

    /// Under this name, unique per kind until the job is pruned. If it is taken, the submit answers the job that has
    /// it and puts nothing in.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.spec.key = Some(key.into());
        self
    }

    /// With an id made before by [`Engine::new_id`], so that the same submit can be repeated after its answer was lost.
    pub fn id(mut self, id: JobId) -> Self {
        self.spec.id = Some(id);
        self
    }
}

impl<J: Kind<M>, M> Submit<'_, J, M> {
    /// The job as it is to be kept.
    pub(crate) fn into_job(self) -> Result<(Engine, NewJob), Error> {
        let input =
            serde_json::to_vec(&self.job).map_err(|source| Error::Encode { kind: J::KIND.into(), source })?;
        let kind = KindVersion { kind: J::KIND.into(), version: J::VERSION };
        let id = self.spec.id.unwrap_or_else(|| self.engine.new_id());
        let job = self.engine.codecs().encoded(self.spec.job(id, kind, J::QUEUE, input))?;
        Ok((self.engine.clone(), job))
    }
}

impl<'a, J: Kind<M> + 'a, M: 'a> IntoFuture for Submit<'a, J, M> {
    type Output = Result<Handle<J::Output>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let input =
            serde_json::to_vec(&self.job).map_err(|source| Error::Encode { kind: J::KIND.into(), source });
        let kind = KindVersion { kind: J::KIND.into(), version: J::VERSION };
        let put = put(self.engine, self.spec, kind, J::QUEUE, input);
        Box::pin(async move {
            let (engine, id, submitted) = put.await?;
            Ok(Handle::new(engine, id, submitted))
        })
    }
}

/// A submit of a kind that is known by name only.
#[must_use = "a submit does nothing until it is awaited"]
pub struct SubmitJson<'a> {
    engine: &'a Engine,
    kind: KindVersion,
    input: serde_json::Value,
    spec: Spec,
}

impl<'a> SubmitJson<'a> {
    pub(crate) fn new(engine: &'a Engine, kind: KindVersion, input: serde_json::Value) -> SubmitJson<'a> {
        SubmitJson { engine, kind, input, spec: Spec::default() }
    }

    settings!();

    /// As [`Submit::key`].
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.spec.key = Some(key.into());
        self
    }

    /// As [`Submit::id`].
    pub fn id(mut self, id: JobId) -> Self {
        self.spec.id = Some(id);
        self
    }
}

impl SubmitJson<'_> {
    /// The job as it is to be kept.
    pub(crate) fn into_job(self) -> Result<(Engine, NewJob), Error> {
        let home = self.engine.home(&self.kind.kind);
        let id = self.spec.id.unwrap_or_else(|| self.engine.new_id());
        let job = self.spec.job(id, self.kind, home, self.input.to_string().into_bytes());
        Ok((self.engine.clone(), self.engine.codecs().encoded(job)?))
    }
}

impl<'a> IntoFuture for SubmitJson<'a> {
    type Output = Result<Handle<serde_json::Value>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let home = self.engine.home(&self.kind.kind);
        let put = put(self.engine, self.spec, self.kind, home, Ok(self.input.to_string().into_bytes()));
        Box::pin(async move {
            let (engine, id, submitted) = put.await?;
            Ok(Handle::new(engine, id, submitted))
        })
    }
}

/// Puts one job in.
async fn put(
    engine: &Engine,
    spec: Spec,
    kind: KindVersion,
    queue: &str,
    input: Result<Vec<u8>, Error>,
) -> Result<(Engine, JobId, Submitted), Error> {
    let input = input?;
    loop {
        let id = spec.id.unwrap_or_else(|| engine.new_id());
        let job = engine.codecs().encoded(spec.job(id, kind.clone(), queue, input.clone()))?;
        let submitted = engine.submitter().submit(vec![job]).await?.remove(0);
        let id = match submitted {
            Submitted::Existing { id, .. } => id,
            Submitted::Rejected { id } => return Err(Error::Rejected(id)),
            Submitted::IdTaken if spec.id.is_some() => return Err(Error::IdTaken(id)),
            // A collision of drawn ids: as good as impossible, and harmless.
            Submitted::IdTaken => continue,
            Submitted::New { .. } | Submitted::Replaced { .. } | Submitted::Repeated => id,
        };
        return Ok((engine.clone(), id, submitted));
    }
}

/// What became of one job of a [`SubmitAll`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Put {
    /// The job, or the one that has its key.
    pub id: JobId,
    /// Whether this call put it in.
    pub is_new: bool,
    /// Whether the one that has its key has another input.
    pub differs: bool,
}

/// Makes a key from a job.
type MakeKey<'a, J> = Box<dyn Fn(&J) -> String + Send + 'a>;

/// A submit of many jobs that is being described; `.await` makes it.
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

    settings!();

    /// Each under a serial key of its own, made from it.
    pub fn serial_by(mut self, key: impl Fn(&J) -> String + Send + 'a) -> Self {
        self.serial = Some(Box::new(key));
        self
    }

    /// Each under a name of its own, made from it.
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
    type Output = Result<Vec<Put>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    /// Streams the jobs in chunks, each a transaction; the order of answers is that of the jobs. If a chunk fails, those
    /// before it are in: repeat with keys to have each once.
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
            engine.codecs().encoded(spec.job(engine.new_id(), kind.clone(), J::QUEUE, input))
        };
        let mut jobs = jobs.into_iter().map(encode);
        let chunks = std::iter::from_fn(move || {
            let chunk: Vec<Result<NewJob, Error>> = jobs.by_ref().take(CHUNK).collect();
            (!chunk.is_empty()).then(|| chunk.into_iter().collect::<Result<Vec<NewJob>, Error>>())
        });
        Box::pin(async move {
            let send = |chunk: Result<Vec<NewJob>, Error>| async move {
                let chunk = chunk?;
                let ids: Vec<JobId> = chunk.iter().map(|job| job.id).collect();
                let answers = engine.submitter().submit(chunk).await?;
                Ok::<Vec<Put>, Error>(
                    ids.into_iter().zip(answers).map(|(id, answer)| put_of(id, answer)).collect(),
                )
            };
            stream::iter(chunks).map(send).buffered(engine.flights() + 1).try_concat().await
        })
    }
}

fn put_of(id: JobId, submitted: Submitted) -> Put {
    match submitted {
        Submitted::New { .. } | Submitted::Replaced { .. } => Put { id, is_new: true, differs: false },
        Submitted::Rejected { id } => Put { id, is_new: false, differs: false },
        Submitted::Existing { id, same_input } => Put { id, is_new: false, differs: !same_input },
        Submitted::Repeated | Submitted::IdTaken => Put { id, is_new: false, differs: false },
    }
}
