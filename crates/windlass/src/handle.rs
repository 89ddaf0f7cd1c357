//! A handle to a job.

use std::{fmt, marker::PhantomData};

use serde::Serialize;
use windlass_model::{Failure, Invalid, JobId, Progress, SubmitOutcome};
use windlass_operate::Why;
use windlass_store::{ControlOutcome, Filter};
use windlass_workflow::{Error, JobError, Kind};

use crate::{Engine, SendSignal, Signal};

/// A job of the kind `J`, with the types of its output and its error. Cheap to clone.
///
/// A submit returns one; [`Engine::job`] returns one to a job that was submitted before.
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
/// let job: Handle<Greet> = engine.submit(Greet { name: "world".into() }).key("first").await?;
/// println!("{}", job.why().await?.because);
/// match job.result().await {
///     Ok(greeting) => println!("{greeting}"),
///     Err(JobError::Cancelled(_)) => println!("somebody cancelled it"),
///     Err(error) => println!("{error}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Handle<J> {
    engine: Engine,
    id: JobId,
    /// `None` if the handle is not that of a submit.
    submitted: Option<SubmitOutcome>,
    kind: PhantomData<fn() -> J>,
}

impl<J> Clone for Handle<J> {
    fn clone(&self) -> Handle<J> {
        let (engine, submitted) = (self.engine.clone(), self.submitted);
        Handle { engine, id: self.id, submitted, kind: PhantomData }
    }
}

impl<J> fmt::Debug for Handle<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle<{}>({})", std::any::type_name::<J>(), self.id)
    }
}

impl<J> Handle<J> {
    pub(crate) fn submitted(engine: Engine, id: JobId, submitted: SubmitOutcome) -> Handle<J> {
        Handle { engine, id, submitted: Some(submitted), kind: PhantomData }
    }

    pub(crate) fn attached(engine: Engine, id: JobId) -> Handle<J> {
        Handle { engine, id, submitted: None, kind: PhantomData }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Whether the submit that returned this handle created the job; `false` if the job existed before.
    pub fn is_new(&self) -> bool {
        matches!(self.submitted, Some(SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. }))
    }

    /// The job that was cancelled because this one took its unique name.
    pub fn replaced(&self) -> Option<JobId> {
        match self.submitted {
            Some(SubmitOutcome::Replaced { id }) => Some(id),
            _ => None,
        }
    }

    /// Whether a job with this key existed before, with another input. That job is unchanged.
    pub fn differs(&self) -> bool {
        matches!(self.submitted, Some(SubmitOutcome::Existing { same_input: false, .. }))
    }

    /// Sends the job a signal by its name; see [`Engine::signal`].
    pub fn signal<T: Serialize>(&self, name: &str, payload: T) -> SendSignal<'_> {
        self.engine.signal(self.id, name, payload)
    }

    /// Sends the job a signal; see [`Engine::send`].
    pub fn send<S: Signal>(&self, signal: S) -> SendSignal<'_> {
        self.engine.send(self.id, signal)
    }

    /// Requests that the job is cancelled, with the usual grace period. A job that has ended stays as it is, and the outcome says
    /// so; one that does not exist any more is an error. See [`Engine::control`] for a name in the audit log and another grace
    /// period.
    pub async fn cancel(&self) -> Result<ControlOutcome, Error> {
        match self.engine.control("the program").cancel(self.id).await? {
            ControlOutcome::Unknown => Err(Error::NoSuchJob(self.id)),
            outcome => Ok(outcome),
        }
    }

    /// What the job's attempt last reported ([`TaskCx::progress`](crate::TaskCx::progress)), while it is running; `None` if it is
    /// not, or has reported nothing. Reports arrive when the worker renews its lease, every 5 seconds by default.
    pub async fn progress(&self) -> Result<Option<Progress>, Error> {
        let job = self.engine.inspect().job(self.id).await?.ok_or(Error::NoSuchJob(self.id))?;
        Ok(job.progress)
    }

    /// Explains why the job is not progressing, and what to do about it.
    pub async fn why(&self) -> Result<Why, Error> {
        self.engine.why(self.id).await?.ok_or(Error::NoSuchJob(self.id))
    }

    /// Waits until the job has ended, in whichever process it runs, and returns its output.
    pub async fn result<M>(&self) -> Result<<J as Kind<M>>::Output, JobError<<J as Kind<M>>::Error>>
    where
        J: Kind<M>,
    {
        self.engine.typed_result(self.id).await
    }
}

/// Names a job: by its id, or by its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobRef {
    /// Its id.
    Id(JobId),
    /// Its key, which is unique among the jobs of its kind; for [`AnyKind`] `kind/key`.
    Key(String),
}

impl From<JobId> for JobRef {
    fn from(id: JobId) -> JobRef {
        JobRef::Id(id)
    }
}

impl From<&str> for JobRef {
    fn from(key: &str) -> JobRef {
        JobRef::Key(key.to_owned())
    }
}

impl From<String> for JobRef {
    fn from(key: String) -> JobRef {
        JobRef::Key(key)
    }
}

/// Stands for a job of any kind, whose output is JSON: `Handle<AnyKind>`.
#[derive(Serialize)]
pub enum AnyKind {}

/// Marks [`AnyKind`].
pub struct AsAny;

impl Kind<AsAny> for AnyKind {
    const KIND: &'static str = "";
    const VERSION: i32 = 1;
    const QUEUE: &'static str = "default";
    const ANY: bool = true;
    type Output = serde_json::Value;
    type Error = Failure;
}

/// Finds a job by its name. It must be of the kind, unless any kind will do.
pub(crate) async fn find(engine: &Engine, kind: &str, any: bool, job: JobRef) -> Result<JobId, Error> {
    match job {
        JobRef::Id(id) => {
            let found = engine.inspect().job(id).await?.ok_or(Error::NoSuchJob(id))?.summary.kind;
            if any || found == kind {
                return Ok(id);
            }
            Err(Error::OtherKind { job: id, kind: found, expected: kind.to_owned() })
        }
        JobRef::Key(name) => {
            if !any {
                return find_by_key(engine, kind.to_owned(), name).await;
            }
            match name.split_once('/') {
                Some((kind, key)) => find_by_key(engine, kind.to_owned(), key.to_owned()).await,
                None => Err(Error::Invalid(Invalid {
                    what: format!("the job {name:?}"),
                    why: "is named by its key alone, which is unique only among the jobs of a kind".into(),
                    hint: format!(
                        "write it as `kind/{name}`, or use the type of its kind instead of `AnyKind`"
                    ),
                })),
            }
        }
    }
}

/// Returns the job of a kind that has a key.
pub(crate) async fn find_by_key(engine: &Engine, kind: String, key: String) -> Result<JobId, Error> {
    let filter = Filter { kind: Some(kind.clone()), key: Some(key.clone()), limit: 1, ..Filter::default() };
    match engine.inspect().jobs(&filter).await?.jobs.first() {
        Some(job) => Ok(job.id),
        None => Err(Error::NoSuchKey { kind, key }),
    }
}
