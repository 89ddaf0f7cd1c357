//! Responses that are no errors.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header},
};
use serde::Serialize;
use windlass::Time;

use crate::error::Error;

/// The header with the store's clock.
const NOW: HeaderName = HeaderName::from_static("windlass-now");

/// What a route answers with.
pub(crate) enum Reply {
    /// JSON with a status, and the store's clock if the value depends on the time.
    Json(StatusCode, Vec<u8>, Option<Time>),
    /// Text of another type.
    Text(&'static str, String),
    /// A stream that ends when the client or the server stops.
    Stream(Body),
}

impl Reply {
    /// 200 with a value.
    pub(crate) fn json(value: &impl Serialize) -> Result<Reply, Error> {
        Reply::json_with(StatusCode::OK, value)
    }

    /// 200 with a value that was read at this time by the store's clock: a client says `3 minutes ago` by it. It is a header, so that
    /// an unchanged value has an unchanged ETag.
    pub(crate) fn json_at(value: &impl Serialize, now: Time) -> Result<Reply, Error> {
        match Reply::json(value)? {
            Reply::Json(status, bytes, _) => Ok(Reply::Json(status, bytes, Some(now))),
            other => Ok(other),
        }
    }

    /// A value with another status.
    pub(crate) fn json_with(status: StatusCode, value: &impl Serialize) -> Result<Reply, Error> {
        serde_json::to_vec(value)
            .map(|bytes| Reply::Json(status, bytes, None))
            .map_err(|error| Error::internal(&error))
    }

    /// The response to a request with these headers. `tagged` adds an ETag, and answers 304 if the client has the same.
    pub(crate) fn into_response(self, request: &HeaderMap, tagged: bool) -> Response<Body> {
        let (status, content_type, body) = match self {
            Reply::Json(status, bytes, now) => {
                let etag = etag(&bytes);
                let mut response = match tagged && status == StatusCode::OK && has(request, &etag) {
                    true => response(StatusCode::NOT_MODIFIED, None, Body::empty()),
                    false => response(status, Some("application/json"), Body::from(bytes)),
                };
                if tagged {
                    set(&mut response, header::ETAG, &etag);
                }
                if let Some(now) = now {
                    set(&mut response, NOW, &now.to_string());
                }
                return response;
            }
            Reply::Text(content_type, text) => (StatusCode::OK, content_type, Body::from(text)),
            Reply::Stream(body) => (StatusCode::OK, "text/event-stream", body),
        };
        response(status, Some(content_type), body)
    }
}

fn response(status: StatusCode, content_type: Option<&'static str>, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", &blake3::hash(bytes).to_hex()[..32])
}

/// Whether the client has a response with this tag.
fn has(request: &HeaderMap, etag: &str) -> bool {
    let sent = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|list| list.split(','))
        .map(str::trim)
        .any(|tag| tag == etag || tag == "*" || tag.strip_prefix("W/") == Some(etag))
}
