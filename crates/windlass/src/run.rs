//! Running a job here and now.

use std::fmt;

use serde::de::DeserializeOwned;
use windlass_model::{Failure, JobId, KindVersion};
use windlass_store::{ControlOutcome, JobAction};

use crate::{Control, Engine, Error, Handle, JobError, Kind, Submit, submit::Door};

/// Why [`Engine::run`] has no output.
pub enum RunError<E = Failure> {
    /// The job could not be submitted, or not be retried: it did not run.
    Submit(Error),
    /// The job ended without an output, or its output could not be read.
    Job(JobError<E>),
}

impl<E> fmt::Debug for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Submit(error) => f.debug_tuple("Submit").field(error).finish(),
            RunError::Job(error) => f.debug_tuple("Job").field(error).finish(),
        }
    }
}

impl<E> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Submit(error) => error.fmt(f),
            RunError::Job(error) => error.fmt(f),
        }
    }
}

impl<E> std::error::Error for RunError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Submit(error) => error.source(),
            RunError::Job(error) => error.source(),
        }
    }
}

impl<E> From<RunError<E>> for Failure {
    fn from(error: RunError<E>) -> Failure {
        match error {
            RunError::Submit(error) => error.into(),
            RunError::Job(error) => error.into(),
        }
    }
}

impl<E> From<Error> for RunError<E> {
    fn from(error: Error) -> RunError<E> {
        RunError::Submit(error)
    }
}

impl<E> From<JobError<E>> for RunError<E> {
    fn from(error: JobError<E>) -> RunError<E> {
        RunError::Job(error)
    }
}

impl Engine {
    /// Submits a job, runs it in this process at once, and returns its output. Short for `engine.submit(job).run()`; see
    /// [`Submit::run`].
    pub async fn run<J: Kind<M>, M>(&self, job: J) -> Result<J::Output, RunError<J::Error>> {
        self.submit(job).run().await
    }

    /// Retries a failed or cancelled job in this process at once, and returns its output. `control` says who does so and why, for the
    /// audit log: `engine.control("ada").note("the disk is empty again")`. As for [`Submit::run`], this engine must have been started and serve the job's kind.
    ///
    /// If another worker of its queue takes the job first, it runs there. [`Handle::retry_here`] is the same with the types of the
    /// job's kind.
    pub async fn retry_here<O: DeserializeOwned>(
        &self,
        job: JobId,
        control: &Control,
    ) -> Result<O, RunError> {
        self.retry_direct(job, control).await
    }

    async fn retry_direct<O: DeserializeOwned, E>(
        &self,
        job: JobId,
        control: &Control,
    ) -> Result<O, RunError<E>> {
        let found = self.inspect().job(job).await.map_err(Error::from)?;
        let summary = found.ok_or(Error::NoSuchJob(job))?.summary;
        let kind = KindVersion { kind: summary.kind, version: summary.version };
        self.submitter().check_runs(&kind).map_err(Error::Setup)?;
        match control.act_on_job(job, JobAction::Retry).await? {
            ControlOutcome::Unknown => return Err(Error::NoSuchJob(job).into()),
            ControlOutcome::Refused(why) | ControlOutcome::Already(why) => {
                return Err(Error::Setup(format!("job {job} cannot be retried: {why}")).into());
            }
            ControlOutcome::Done | ControlOutcome::CancelRequested | ControlOutcome::Created(_) => {}
        }
        Ok(self.result_of_direct(job, kind, &summary.queue).await?)
    }

    /// Waits until a job has ended, and runs it here whenever it is ready.
    async fn result_of_direct<O: DeserializeOwned, E>(
        &self,
        job: JobId,
        kind: KindVersion,
        queue: &str,
    ) -> Result<O, JobError<E>> {
        tokio::select! {
            biased;
            result = self.typed_result(job) => result,
            never = self.submitter().run_when_ready(job, kind, queue) => match never {},
        }
    }
}

impl<J> Handle<J> {
    /// Retries the job, which has failed or was cancelled, in this process at once, and returns its output; see
    /// [`Engine::retry_here`].
    ///
    /// ```no_run
    /// # use windlass::prelude::*;
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Import { file: String }
    /// # impl Task for Import {
    /// #     const KIND: &'static str = "import";
    /// #     type Output = u64;
    /// #     type Error = Failure;
    /// #     async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> { Ok(0) }
    /// # }
    /// # async fn example(engine: Engine) -> Result<(), Failure> {
    /// let import: Handle<Import> = engine.job("monday").await?;
    /// let rows = import.retry_here(&engine.control("ada").note("the file is complete now")).await?;
    /// println!("{rows} rows");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry_here<M>(
        &self,
        control: &Control,
    ) -> Result<<J as Kind<M>>::Output, RunError<<J as Kind<M>>::Error>>
    where
        J: Kind<M>,
    {
        self.engine().retry_direct(self.id(), control).await
    }
}

impl<J: Kind<M>, M> Submit<'_, J, M> {
    /// Submits the job, runs it in this process at once, and returns its output.
    ///
    /// The job does not wait for a free slot, nor for jobs of its queue that come before it, and this engine need not serve the
    /// queue: it has a slot of its own. Everything else is as for other jobs. It is recorded before it runs; if this process
    /// dies, another worker of its queue runs it. Whenever it is ready again while this call waits, after a failed attempt or a
    /// wait, this process runs it.
    ///
    /// What holds other jobs back holds it back too: a delay, a paused queue, a serial key without a free slot, a rate limit (jobs
    /// under one wait in its line). If a job with its key exists, this returns the output of that job and runs nothing.
    ///
    /// The engine must have been started and serve the kind. If the returned future is dropped, the job runs on.
    pub async fn run(self) -> Result<J::Output, RunError<J::Error>> {
        let kind = KindVersion { kind: J::KIND.into(), version: J::VERSION };
        let engine = self.engine().clone();
        engine.submitter().check_runs(&kind).map_err(Error::Setup)?;
        let queue = self.queue_name().to_owned();
        let job = self.perform(Door::Direct).await?;
        if !job.is_new() {
            return Ok(job.result().await?);
        }
        Ok(engine.result_of_direct(job.id(), kind, &queue).await?)
    }
}
