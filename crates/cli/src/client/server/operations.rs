//! Long operations by a server: it reports their progress as a stream of events, and stops when the stream is closed.

use std::time::Duration;

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass::{
    JobId, State,
    operate::{BulkProgress, ForkPoint, ForkProgress, JobAction, Preview, PruneProgress, RedriveProgress},
    store::Filter,
};
use windlass_http::{Request, header};

use super::{
    Failure, Reply, Server,
    error::{ErrorBody, Failure::Unexpected},
    read::body,
};
use crate::{args::Actor, client::OnProgress};

/// How an operation ended.
enum Ran<P> {
    /// At its end, or where the server stopped it.
    Done(P),
    /// By this program, after the progress that it has received.
    Stopped(P),
}

/// A filter as the API reads it.
fn filter_json(filter: &Filter) -> Value {
    let Filter { state, kind, queue, tag, key, key_prefix, error_class, .. } = filter;
    let Filter { stage, version, top, since, until, before, .. } = filter;
    body([
        ("state", state.map(|state| json!(state))),
        ("kind", kind.clone().map(Value::from)),
        ("queue", queue.clone().map(Value::from)),
        ("tag", tag.clone().map(Value::from)),
        ("key", key.clone().map(Value::from)),
        ("key_prefix", key_prefix.clone().map(Value::from)),
        ("error_class", error_class.clone().map(Value::from)),
        ("stage", stage.clone().map(Value::from)),
        ("version", version.map(Value::from)),
        ("top", top.then_some(Value::Bool(true))),
        ("since", since.map(|at| json!(at))),
        ("until", until.map(|at| json!(at))),
        ("before", before.map(|before| json!(before))),
    ])
}

/// Whether a filter means every job, which the API wants to be said.
fn means_all(filter: &Filter) -> bool {
    let every = Filter { before: filter.before, limit: filter.limit, ..Filter::default() };
    filter_json(filter) == filter_json(&every)
}

impl Server {
    /// Runs an operation, which may be one on a job.
    async fn operate<P: DeserializeOwned>(
        &self,
        request: Request,
        job: Option<JobId>,
        on_progress: OnProgress<'_, P>,
    ) -> anyhow::Result<Ran<P>> {
        let path = request.path().to_owned();
        let request = request.header(header::ACCEPT, "text/event-stream")?;
        let response = match (self.send(request).await, job) {
            (Err(Failure::Refused(refusal)), Some(job)) if refusal.is_no_such_job() => {
                return Err(self.no_job(job));
            }
            (response, _) => response?,
        };
        let version = response.header(super::VERSION).unwrap_or_default().to_owned();
        let unexpected = |why: String| Unexpected {
            url: self.url.clone(),
            path: path.clone(),
            version: version.clone(),
            why,
        };
        let parse =
            |data: &str| serde_json::from_str::<P>(data).map_err(|error| unexpected(error.to_string()));
        let mut events = response.events();
        loop {
            let event = events.next().await.with_context(|| INTERRUPTED)?;
            let Some(event) = event else { anyhow::bail!(INTERRUPTED) };
            match event.event.as_str() {
                "progress" => {
                    let progress = parse(&event.data)?;
                    if !on_progress(&progress) {
                        // Dropping the stream closes the connection, which ends the operation after its current batch.
                        return Ok(Ran::Stopped(progress));
                    }
                }
                "done" => {
                    let result = parse(&event.data)?;
                    on_progress(&result);
                    return Ok(Ran::Done(result));
                }
                "error" => {
                    let error: ErrorBody =
                        serde_json::from_str(&event.data).map_err(|error| unexpected(error.to_string()))?;
                    anyhow::bail!(error.to_text())
                }
                // A later version may send others.
                _ => {}
            }
        }
    }

    pub(crate) async fn preview(&self, filter: &Filter, action: JobAction) -> anyhow::Result<Preview> {
        let fields = Server::bulk_fields(filter, action)?;
        let body = body(fields.into_iter().chain([("dry_run", Some(Value::Bool(true)))]));
        let Reply { value, now } = self.get::<Preview>(Request::post("/v1/jobs/bulk").json(&body)?).await?;
        Ok(Preview { now, ..value })
    }

    fn bulk_fields(filter: &Filter, action: JobAction) -> anyhow::Result<Vec<(&'static str, Option<Value>)>> {
        let mut fields = vec![
            ("filter", Some(filter_json(filter))),
            ("all", means_all(filter).then_some(Value::Bool(true))),
        ];
        let name = match action {
            JobAction::Cancel { grace } => {
                fields.push(("grace", Some(Server::span(grace).into())));
                "cancel"
            }
            JobAction::Priority(priority) => {
                fields.push(("priority", Some(priority.into())));
                "priority"
            }
            JobAction::Pause => "pause",
            JobAction::Resume => "resume",
            JobAction::Retry => "retry",
            JobAction::DropSignal(_) | JobAction::RestoreSignal(_) => {
                anyhow::bail!("signals are dropped and restored one at a time")
            }
        };
        fields.push(("action", Some(name.into())));
        Ok(fields)
    }

    pub(crate) async fn bulk(
        &self,
        filter: &Filter,
        action: JobAction,
        rate: Option<u32>,
        actor: &Actor,
        on_progress: OnProgress<'_, BulkProgress>,
    ) -> anyhow::Result<BulkProgress> {
        let more = [("rate", rate.map(Value::from)), ("note", actor.note_for_server()?.map(Value::from))];
        let body = body(Server::bulk_fields(filter, action)?.into_iter().chain(more));
        let request = Request::post("/v1/jobs/bulk").json(&body)?;
        Ok(match self.operate(request, None, on_progress).await? {
            Ran::Done(progress) => progress,
            Ran::Stopped(progress) => BulkProgress { interrupted: true, ..progress },
        })
    }

    pub(crate) async fn redrive(
        &self,
        job: JobId,
        branch: Option<&str>,
        rate: Option<u32>,
        actor: &Actor,
        on_progress: OnProgress<'_, RedriveProgress>,
    ) -> anyhow::Result<RedriveProgress> {
        let body = json!({ "branch": branch, "rate": rate, "note": actor.note_for_server()? });
        let request = Request::post(Server::job_path(job, "/redrive")).json(&body)?;
        Ok(match self.operate(request, Some(job), on_progress).await? {
            Ran::Done(progress) => progress,
            Ran::Stopped(progress) => RedriveProgress { interrupted: true, ..progress },
        })
    }

    pub(crate) async fn fork_preview(&self, filter: &Filter) -> anyhow::Result<Preview> {
        let all = means_all(filter);
        let body = json!({ "filter": filter_json(filter), "all": all, "dry_run": true });
        let Reply { value, now } = self.get::<Preview>(Request::post("/v1/forks").json(&body)?).await?;
        Ok(Preview { now, ..value })
    }

    pub(crate) async fn fork_each(
        &self,
        filter: &Filter,
        point: &ForkPoint,
        actor: &Actor,
        on_progress: OnProgress<'_, ForkProgress>,
    ) -> anyhow::Result<ForkProgress> {
        let more = [
            ("filter", Some(filter_json(filter))),
            ("all", means_all(filter).then_some(Value::Bool(true))),
            ("note", actor.note_for_server()?.map(Value::from)),
        ];
        let body = body(Server::fork_fields(point).into_iter().chain(more));
        let request = Request::post("/v1/forks").json(&body)?;
        Ok(match self.operate(request, None, on_progress).await? {
            Ran::Done(progress) => progress,
            Ran::Stopped(progress) => ForkProgress { interrupted: true, ..progress },
        })
    }

    pub(crate) async fn prune(
        &self,
        state: State,
        age: Duration,
        kind: Option<&str>,
        actor: &Actor,
        on_progress: OnProgress<'_, PruneProgress>,
    ) -> anyhow::Result<PruneProgress> {
        let note = actor.note_for_server()?;
        let body = json!({ "state": state, "older_than": Server::span(age), "kind": kind, "note": note });
        let request = Request::post("/v1/prune").json(&body)?;
        Ok(match self.operate(request, None, on_progress).await? {
            Ran::Done(progress) => progress,
            Ran::Stopped(progress) => PruneProgress { interrupted: true, ..progress },
        })
    }
}

/// The error if the stream of an operation breaks.
const INTERRUPTED: &str =
    "the server broke off the operation; what was done stays done: run it again for the rest";
