//! A response: its head, and its body as it arrives.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{HeaderMap, StatusCode, body::Incoming};
use serde::de::DeserializeOwned;

use crate::{Error, Events, client::PooledConnection, error::innermost};

/// A response whose head has arrived. If its body is read to the end, the connection serves the next request; otherwise it is closed.
#[derive(Debug)]
pub struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    /// Returns the connection to the pool; `None` once the body has ended.
    connection: Option<PooledConnection>,
    server: String,
    /// How long the next part of the body may take to arrive.
    idle_limit: Duration,
    /// The most bytes that are read whole.
    body_limit: usize,
}

impl Response {
    pub(crate) fn new(
        response: hyper::Response<Incoming>,
        connection: PooledConnection,
        server: String,
        idle_limit: Duration,
        body_limit: usize,
    ) -> Response {
        let (head, body) = response.into_parts();
        let (status, headers) = (head.status, head.headers);
        Response { status, headers, body, connection: Some(connection), server, idle_limit, body_limit }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The server, as people read it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The next part of the body; `None` at its end. Cancel-safe.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = match tokio::time::timeout(self.idle_limit, self.body.frame()).await {
                Ok(frame) => frame,
                Err(_) => return Err(Error::Timeout { server: self.server.clone(), limit: self.idle_limit }),
            };
            match frame {
                None => {
                    if let Some(connection) = self.connection.take() {
                        connection.give_back();
                    }
                    return Ok(None);
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    // Trailers say nothing to us.
                    Err(_) => {}
                },
                Some(Err(error)) => {
                    return Err(Error::Lost { server: self.server.clone(), why: innermost(&error) });
                }
            }
        }
    }

    /// The whole body.
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > self.body_limit {
                return Err(Error::TooLarge { server: self.server, limit: self.body_limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// The whole body, parsed as JSON.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let server = self.server.clone();
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Json { server, why: error.to_string() })
    }

    /// The body as server-sent events.
    pub fn events(self) -> Events {
        Events::new(self)
    }
}
