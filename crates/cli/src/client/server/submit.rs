//! Submits to a server, and the results of jobs.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::{
    Failure as JobFailure, JobError, JobId, RateCharge, Reason, Serial, State, States, Unique,
    env::{Env, IdSource},
};
use windlass_http::Request;

use super::{Failure, Server, error::ErrorBody, read::body};
use crate::client::{Ended, NewJob, Submitted};

/// The most jobs of one request.
const MAX_JOBS: usize = 1_000;
/// The most bytes of one request's inputs, well below the limit of the server.
const MAX_BYTES: usize = 4 << 20;
/// How long one request waits for a result.
const WAIT: Duration = Duration::from_secs(30);
/// How long a server may be gone while a command waits: long enough to be restarted.
const MAX_OUTAGE: Duration = Duration::from_secs(30);
/// How long to wait before a request is repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An answer for one job of a batch.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Refused { error: ErrorBody },
    Submitted(Submitted),
}

impl Server {
    pub(super) fn serial(serial: &Serial) -> Value {
        json!({ "key": serial.key, "slots": serial.slots, "hold": serial.keeps_slot })
    }

    pub(super) fn charge(charge: &RateCharge) -> Value {
        json!({ "limit": charge.limit, "weight": charge.weight })
    }

    fn unique(unique: &Unique) -> Value {
        let held_while = match unique.scope {
            States::PENDING => "waiting",
            States::KEPT => "kept",
            _ => "live",
        };
        let within = unique.within.map(Server::span);
        json!({ "name": unique.key, "on_conflict": unique.conflict, "held_while": held_while, "within": within })
    }

    /// A job as the API reads it.
    fn job_json(job: &NewJob) -> Value {
        let signal = |(name, payload): &(String, Value)| json!({ "name": name, "payload": payload });
        let signals: Vec<Value> = job.signals.iter().map(signal).collect();
        body([
            ("kind", Some(job.kind.clone().into())),
            ("version", Some(job.version.into())),
            ("input", Some(job.input.clone())),
            ("any_input", job.is_unchecked.then_some(Value::Bool(true))),
            ("key", job.key.clone().map(Value::from)),
            ("queue", job.queue.clone().map(Value::from)),
            ("priority", Some(job.priority.into())),
            ("delay", job.delay.map(|delay| Server::span(delay).into())),
            ("at", job.at.map(|at| json!(at))),
            ("deadline_at", job.deadline_at.map(|at| json!(at))),
            ("tags", Some(job.tags.clone().into())),
            ("options", job.options.clone()),
            ("attempts", job.attempts.map(Value::from)),
            ("timeout", job.timeout.map(|timeout| Server::span(timeout).into())),
            ("trace", job.trace.clone().map(Value::from)),
            ("unique", job.unique.as_ref().map(Server::unique)),
            ("serial", job.serial.as_ref().map(Server::serial)),
            ("rate", job.rate.as_ref().map(Server::charge)),
            ("parent", job.parent.map(|parent| json!(parent))),
            ("signals", (!signals.is_empty()).then(|| signals.into())),
        ])
    }

    pub(crate) async fn submit(
        &self,
        job: &NewJob,
        count: u32,
        on_submitted: &mut dyn FnMut(Submitted) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        // With ids of their own, jobs are submitted once however often the request is sent.
        let ids = IdSource::new(Env::default());
        let described = Server::job_json(job);
        let batch = (MAX_BYTES / described.to_string().len().max(1)).clamp(1, MAX_JOBS);
        let mut left = count as usize;
        while left > 0 {
            let drawn: Vec<JobId> = (0..left.min(batch)).map(|_| ids.job()).collect();
            left -= drawn.len();
            for (submitted, id) in self.submit_batch(&described, &drawn).await?.into_iter().zip(drawn) {
                // A repeated request finds the job of the first.
                let is_new = submitted.is_new || submitted.id == id;
                on_submitted(Submitted { is_new, ..submitted })?;
            }
        }
        Ok(())
    }

    async fn submit_batch(&self, described: &Value, ids: &[JobId]) -> anyhow::Result<Vec<Submitted>> {
        #[derive(Deserialize)]
        struct Batch {
            jobs: Vec<Answer>,
        }
        let job = |id: &JobId| {
            let mut job = described.clone();
            job["id"] = json!(id);
            job
        };
        if let [id] = ids {
            let request = Request::post("/v1/jobs").json(&job(id))?.repeatable();
            return Ok(vec![self.persistently(request).await?]);
        }
        let jobs: Vec<Value> = ids.iter().map(job).collect();
        let request = Request::post("/v1/jobs/batch").json(&json!({ "jobs": jobs }))?.repeatable();
        let Batch { jobs } = self.persistently(request).await?;
        let answer = |answer| match answer {
            Answer::Submitted(submitted) => Ok(submitted),
            Answer::Refused { error } => Err(anyhow::anyhow!(error.to_text())),
        };
        jobs.into_iter().map(answer).collect()
    }

    /// Sends a request that may be repeated, again if its answer is lost.
    async fn persistently<T: serde::de::DeserializeOwned>(&self, request: Request) -> Result<T, Failure> {
        let mut failed_since: Option<Instant> = None;
        loop {
            match self.get(request.clone()).await {
                Ok(reply) => return Ok(reply.value),
                // Nobody was reached: a wrong address is reported at once.
                Err(failure @ Failure::Http(windlass_http::Error::Connect { .. }))
                    if failed_since.is_none() =>
                {
                    return Err(failure);
                }
                Err(failure) if failure.is_retryable() => {
                    if failed_since.get_or_insert_with(Instant::now).elapsed() > MAX_OUTAGE {
                        return Err(failure);
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    pub(crate) async fn result(&self, job: JobId) -> anyhow::Result<Ended> {
        #[derive(Deserialize)]
        struct Answer {
            state: State,
            #[serde(default)]
            output: Value,
            reason: Option<Reason>,
            failure: Option<JobFailure>,
        }
        let mut failed_since: Option<Instant> = None;
        loop {
            let path = Server::job_path(job, "/result");
            let request = Request::get(path).query("wait", &Server::span(WAIT)).timeout(WAIT * 2);
            let answer = match self.get_of_job::<Answer>(request).await {
                Ok(Some(reply)) => reply.value,
                Ok(None) => return Ended::error(JobError::Gone(job)),
                Err(error) => match error.downcast::<Failure>() {
                    Ok(Failure::Refused(refusal)) if refusal.is_conflict() => {
                        // The server cannot read the output.
                        return Ok(Ended::Error { text: refusal.text(), reason: None, failure: None });
                    }
                    Ok(failure) if failure.is_retryable() => {
                        if failed_since.get_or_insert_with(Instant::now).elapsed() > MAX_OUTAGE {
                            return Err(failure.into());
                        }
                        tokio::time::sleep(RETRY_AFTER).await;
                        continue;
                    }
                    Ok(failure) => return Err(failure.into()),
                    Err(error) => return Err(error),
                },
            };
            failed_since = None;
            return match (answer.state, answer.reason, answer.failure) {
                (State::Done, ..) => Ok(Ended::Done(answer.output)),
                (State::Failed, Some(reason), Some(failure)) => {
                    Ended::error(JobError::failed(reason, failure))
                }
                (State::Cancelled, _, Some(failure)) => Ended::error(JobError::Cancelled(failure)),
                _ => continue,
            };
        }
    }
}
