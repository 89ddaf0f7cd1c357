//! Responses that are no errors.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use serde::Serialize;

use crate::error::Error;

/// What a route answers with.
pub(crate) enum Reply {
    /// JSON with a status.
    Json(StatusCode, Vec<u8>),
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

    /// A value with another status.
    pub(crate) fn json_with(status: StatusCode, value: &impl Serialize) -> Result<Reply, Error> {
        serde_json::to_vec(value)
            .map(|bytes| Reply::Json(status, bytes))
            .map_err(|error| Error::internal(&error))
    }

    /// The response to a request with these headers. `tagged` adds an ETag, and answers 304 if the client has the same.
    pub(crate) fn into_response(self, request: &HeaderMap, tagged: bool) -> Response<Body> {
        let (status, content_type, body) = match self {
            Reply::Json(status, bytes) => {
                let etag = etag(&bytes);
                if tagged && status == StatusCode::OK && has(request, &etag) {
                    return with_etag(response(StatusCode::NOT_MODIFIED, None, Body::empty()), &etag);
                }
                let response = response(status, Some("application/json"), Body::from(bytes));
                return if tagged { with_etag(response, &etag) } else { response };
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

fn with_etag(mut response: Response<Body>, etag: &str) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
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
