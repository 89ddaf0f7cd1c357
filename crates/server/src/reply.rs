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
    /// A page, with the cookies that it sets.
    Page(StatusCode, String, Vec<String>),
    /// Another page to go to after a form, with the cookies that it sets.
    SeeOther(String, Vec<String>),
    /// A file that never changes: its path has a hash of its content.
    Asset(&'static str, &'static [u8]),
}

/// What pages may do in a browser: load the server's own style, script and images, and talk to this server alone.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);

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
            Reply::Page(status, html, cookies) => return page(status, html, &cookies),
            Reply::SeeOther(location, cookies) => return see_other(&location, &cookies),
            Reply::Asset(content_type, bytes) => {
                let mut response = response(StatusCode::OK, Some(content_type), Body::from(bytes));
                set(&mut response, header::CACHE_CONTROL, "public, max-age=31536000, immutable");
                return response;
            }
        };
        response(status, Some(content_type), body)
    }
}

/// The way to another page.
pub(crate) fn see_other(location: &str, cookies: &[String]) -> Response<Body> {
    let mut response = response(StatusCode::SEE_OTHER, None, Body::empty());
    set(&mut response, header::LOCATION, location);
    add_cookies(&mut response, cookies);
    response
}

/// A page.
pub(crate) fn page(status: StatusCode, html: String, cookies: &[String]) -> Response<Body> {
    let mut response = response(status, Some("text/html; charset=utf-8"), Body::from(html));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::VARY, HeaderValue::from_static("cookie"));
    add_cookies(&mut response, cookies);
    response
}

fn add_cookies(response: &mut Response<Body>, cookies: &[String]) {
    for cookie in cookies.iter().filter_map(|cookie| HeaderValue::from_str(cookie).ok()) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
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
