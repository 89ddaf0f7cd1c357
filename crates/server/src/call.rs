//! One request as a route sees it: who asks, for what, and the engine to answer with.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::Bytes,
    http::{HeaderMap, Uri, header},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use windlass::{
    Control, Engine, JobId,
    operate::{Found, Operator},
    store::Job,
};

use crate::{
    access::Principal,
    error::{Error, ErrorKind, JOB},
    per_client::BodyRoom,
    server::{Permit, Shared, StreamPermit},
};

/// A request whose sender is known and may make it.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) principal: Principal,
    /// Parameters in the path, decoded.
    pub(crate) path: Vec<(String, String)>,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Counts it among the running requests.
    pub(crate) permit: Permit,
    /// Its sender is dropped when the client has gone.
    pub(crate) client: watch::Receiver<()>,
    /// Where it came from.
    pub(crate) address: IpAddr,
    /// Whether it came by `https`.
    pub(crate) is_secure: bool,
    /// The room that the body takes.
    pub(crate) _room: BodyRoom,
}

impl Call {
    pub(crate) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(crate) fn operator(&self) -> &Operator {
        &self.shared.operator
    }

    /// The operator on behalf of whoever asks: it tells nothing of jobs that they may not see.
    pub(crate) fn scoped_operator(&self) -> Operator {
        self.operator().limited_to(&self.principal.scope)
    }

    /// Counts a request that begins to wait, or a stream, and not among those that run any more. From now on its handler limits its time.
    pub(crate) fn start_waiting(&self) -> Result<StreamPermit, Error> {
        let permit = self.shared.stream_permit(self.address)?;
        self.permit.release();
        Ok(permit)
    }

    /// A parameter of the path. Every route names only those that its path has.
    pub(crate) fn path(&self, name: &str) -> &str {
        self.path.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The query. Unknown and repeated parameters are errors.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Error> {
        axum::extract::Query::try_from_uri(&self.uri).map(|query| query.0).map_err(|error| {
            Error::invalid(format!("the query is wrong: {}", inner_text(&error)), SEE_OPENAPI)
        })
    }

    /// The JSON of the body. Unknown fields are errors.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = content_type.and_then(|value| value.split(';').next()).map(str::trim);
        if !media_type.is_some_and(|media_type| media_type.eq_ignore_ascii_case("application/json")) {
            return Err(Error::new(
                ErrorKind::NotJson,
                "the body is not declared as JSON",
                "send `Content-Type: application/json`",
            ));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Error::invalid(format!("the body is wrong: {error}"), SEE_OPENAPI))
    }

    /// Returns when nobody waits for the answer any more: the client has gone, or the server stops.
    pub(crate) async fn abandoned(&self) {
        let mut client = self.client.clone();
        tokio::select! {
            // Nothing is ever sent: it only ends.
            _ = client.changed() => {}
            () = self.shared.stopped() => {}
        }
    }

    /// The body of a request that may have none.
    pub(crate) fn optional_body<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if self.body.is_empty() {
            return serde_json::from_str("{}")
                .map_err(|error| Error::invalid(format!("the body is missing: {error}"), SEE_OPENAPI));
        }
        self.body()
    }

    /// Acts in the name of whoever asks.
    pub(crate) fn control(&self, note: Option<String>) -> Control {
        let control = self.operator().control(&self.principal.author);
        match note {
            Some(note) => control.note(note),
            None => control,
        }
    }

    /// Notes in the audit log that this request has submitted or signalled something, and to which job: the first of several.
    pub(crate) async fn note_act(&self, action: String, job: JobId) {
        self.shared.audit.record(&self.principal.author, action, job.to_string()).await;
    }

    /// The job that the path names, if it exists and may be seen.
    pub(crate) async fn job(&self) -> Result<Job, Error> {
        self.find(self.path("job")).await
    }

    /// The job with this name, if it exists and may be seen.
    pub(crate) async fn find(&self, name: &str) -> Result<Job, Error> {
        let unknown = || {
            Error::new(
                ErrorKind::NotFound,
                format!("there is no job {name:?}"),
                "it was pruned, or it is in another store; GET /v1/jobs lists the jobs of this one",
            )
            .about(JOB)
        };
        let id = match self.operator().find(name).await {
            Ok(Found::Job(id)) => id,
            Ok(Found::Packed(item)) if self.principal.scope.is_unlimited() => {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("{name:?} is packed into a block with others, and is no job of its own"),
                    format!("GET /v1/jobs/{}/children lists it", item.id),
                ));
            }
            Ok(Found::Packed(_)) => return Err(unknown()),
            // These errors name jobs that the token may not see.
            Err(windlass::Error::AmbiguousName { .. } | windlass::Error::NoSuchChild { .. })
                if !self.principal.scope.is_unlimited() =>
            {
                return Err(unknown());
            }
            Err(error) => return Err(error.into()),
        };
        let job = self.engine().inspect().job(id).await?;
        job.filter(|job| self.principal.sees(&job.summary)).ok_or_else(unknown)
    }

    /// The id of the job that the path names.
    pub(crate) async fn job_id(&self) -> Result<JobId, Error> {
        Ok(self.job().await?.summary.id)
    }
}

const SEE_OPENAPI: &str = "GET /openapi.json has the fields of every request";

/// The innermost text of an error: the outer ones of axum only say that something failed.
fn inner_text(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
