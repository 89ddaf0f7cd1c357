//! The answers of a server: requests to the HTTP API of `windlass serve`.
//!
//! `mod.rs` sends requests, `error` says why there is no answer; `read`, `act`, `operations` and `submit` have the methods of
//! [`super::Client`].

mod act;
mod error;
mod operations;
mod read;
mod submit;

use std::time::Duration;

use anyhow::anyhow;
use serde::de::DeserializeOwned;
use windlass::{JobId, Time, operate::doctor::Finding};
use windlass_http::{Client as HttpClient, Options, Request, Response, encode_segment, header};

pub(crate) use self::error::needs_login;
use self::error::{Failure, Refusal};
use crate::{
    config::RemoteSettings,
    program::{self, Program},
};

/// The header with the version of a server.
const VERSION: &str = "windlass-version";
/// The header with the clock of its store.
const NOW: &str = "windlass-now";

/// A server in front of a store.
pub(crate) struct Server {
    http: HttpClient,
    has_token: bool,
    /// Its address, for people.
    url: String,
    /// The name of the program, for hints.
    name: String,
}

/// An answer that is no error.
struct Reply<T> {
    value: T,
    /// The store's clock when the value was read.
    now: Time,
}

impl Server {
    /// The server that the settings name. Sends nothing.
    pub(crate) fn new(settings: &RemoteSettings, program: &Program) -> anyhow::Result<Server> {
        let url = settings.url.as_deref().unwrap_or_default();
        let token = settings.read_token()?;
        let has_token = token.is_some();
        let options = Options {
            token,
            ca_file: settings.ca_file.clone(),
            allow_http: settings.allow_http.unwrap_or(false),
            ..Options::default()
        };
        let http = HttpClient::new(url, options).map_err(|error| match error {
            error @ windlass_http::Error::Unencrypted(_) => {
                anyhow!("{error} (in the environment WINDLASS_ALLOW_HTTP=true)")
            }
            error => error.into(),
        })?;
        Ok(Server { url: http.url(), http, has_token, name: program.name.clone() })
    }

    /// Its address, for people.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Checks that it answers. Needs no token.
    pub(crate) async fn check_health(&self) -> anyhow::Result<()> {
        self.send(Request::get("/healthz")).await?;
        Ok(())
    }

    /// The kinds whose code the server has.
    pub(crate) async fn kinds(&self) -> anyhow::Result<Vec<windlass::model::KindVersion>> {
        Ok(self.get(Request::get("/v1/kinds")).await?.value)
    }

    /// Checks the server, and what it says of its store.
    pub(crate) async fn doctor(program: &Program) -> Vec<Finding> {
        let checked = async {
            let server = Server::new(&program.settings.remote, program)?;
            let reply: Reply<Vec<Finding>> = server.get(Request::get("/v1/doctor")).await?;
            anyhow::Ok(reply.value)
        };
        checked.await.unwrap_or_else(|error| vec![Finding::fail("server", format!("{error:#}"))])
    }

    /// The path of a job.
    fn job_path(id: JobId, rest: &str) -> String {
        format!("/v1/jobs/{id}{rest}")
    }

    /// A path with a name in it.
    fn path(before: &str, name: &str, rest: &str) -> String {
        format!("{before}/{}{rest}", encode_segment(name))
    }

    /// A duration as the API reads it, exactly.
    fn span(duration: Duration) -> String {
        format!("{}us", duration.as_micros())
    }

    /// Sends a request. Returns the response if it is a success.
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let path = request.path().to_owned();
        let response = self.http.send(request).await.map_err(Failure::Http)?;
        let status = response.status();
        let Some(version) = response.header(VERSION).map(String::from) else {
            let content_type =
                response.header(header::CONTENT_TYPE.as_str()).unwrap_or("of no type").to_owned();
            return Err(Failure::OtherServer { url: self.url.clone(), status, content_type });
        };
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(Failure::Http)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (url, has_token) = (self.url.clone(), self.has_token);
        Err(Failure::Refused(Box::new(Refusal { url, path, status, version, has_token, body })))
    }

    /// Sends a request, and parses the answer.
    async fn get<T: DeserializeOwned>(&self, request: Request) -> Result<Reply<T>, Failure> {
        let path = request.path().to_owned();
        let response = self.send(request).await?;
        let version = response.header(VERSION).unwrap_or_default().to_owned();
        let now = response.header(NOW).and_then(|text| text.parse().ok()).unwrap_or_default();
        let body = response.bytes().await.map_err(Failure::Http)?;
        match serde_json::from_slice(&body) {
            Ok(value) => Ok(Reply { value, now }),
            Err(error) => {
                let (url, why) = (self.url.clone(), error.to_string());
                Err(Failure::Unexpected { url, path, version, why })
            }
        }
    }

    /// The same for a request about a job; `None` if there is no such job.
    async fn get_of_job<T: DeserializeOwned>(&self, request: Request) -> anyhow::Result<Option<Reply<T>>> {
        match self.get(request).await {
            Ok(reply) => Ok(Some(reply)),
            Err(Failure::Refused(refusal)) if refusal.is_no_such_job() => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// The same where the job must exist.
    async fn get_of_known_job<T: DeserializeOwned>(
        &self,
        id: JobId,
        request: Request,
    ) -> anyhow::Result<Reply<T>> {
        self.get_of_job(request).await?.ok_or_else(|| self.no_job(id))
    }

    /// The error for an id that no job has.
    fn no_job(&self, id: JobId) -> anyhow::Error {
        anyhow!(program::no_job(id, &self.url, &self.name))
    }
}

/// Adds a parameter to the query, if there is a value.
fn with(request: Request, name: &str, value: Option<impl ToString>) -> Request {
    match value {
        Some(value) => request.query(name, &value.to_string()),
        None => request,
    }
}
