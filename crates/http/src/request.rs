//! A request: method, path, headers, body, and how it may be sent.

use std::time::Duration;

use bytes::Bytes;
use hyper::{
    HeaderMap, Method,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde::Serialize;

use crate::Error;

/// A request to be sent by [`crate::Client::send`].
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) limit: Option<Duration>,
    pub(crate) is_repeatable: bool,
}

impl Request {
    /// A request to a path, which begins with a slash and may have a query. Names in it are encoded with [`encode_segment`].
    pub fn new(method: Method, path: impl Into<String>) -> Request {
        let is_repeatable = method.is_safe();
        let (path, headers) = (path.into(), HeaderMap::new());
        Request { method, path, headers, body: Bytes::new(), limit: None, is_repeatable }
    }

    /// A GET request.
    pub fn get(path: impl Into<String>) -> Request {
        Request::new(Method::GET, path)
    }

    /// A POST request.
    pub fn post(path: impl Into<String>) -> Request {
        Request::new(Method::POST, path)
    }

    /// The path with its query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Adds a parameter to the query.
    pub fn query(mut self, name: &str, value: &str) -> Request {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path += &format!("{separator}{}={}", encode_segment(name), encode_segment(value));
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: HeaderName, value: &str) -> Result<Request, Error> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            Error::Request(format!("the header {name} has characters that no header may have"))
        })?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sets the body to JSON.
    pub fn json(self, value: &impl Serialize) -> Result<Request, Error> {
        let body = serde_json::to_vec(value)
            .map_err(|error| Error::Request(format!("its body cannot be written as JSON ({error})")))?;
        Ok(self.body("application/json", body))
    }

    /// Sets the body.
    pub fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Request {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.body = body.into();
        self
    }

    /// Waits this long for the head of the response, in place of [`crate::Options::timeout`]. A connection that must be opened is opened
    /// within this time too.
    pub fn timeout(self, limit: Duration) -> Request {
        Request { limit: Some(limit), ..self }
    }

    /// Says that sending it twice has the effect of once. If a pooled connection turns out to be closed, such a request is sent again on a
    /// new one even if it may have arrived. GET requests are repeatable.
    pub fn repeatable(self) -> Request {
        Request { is_repeatable: true, ..self }
    }
}

/// Encodes a name for use as one segment of a path, or in a query.
pub fn encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            byte => encoded += &format!("%{byte:02X}"),
        }
    }
    // A proxy would resolve these.
    match encoded.as_str() {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => encoded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_so_that_they_stay_one_segment() {
        assert_eq!(encode_segment("order/17 $a?b=ü%"), "order%2F17%20%24a%3Fb%3D%C3%BC%25");
        assert_eq!(
            (encode_segment(".."), encode_segment("a.b-c_d~e")),
            ("%2E%2E".into(), "a.b-c_d~e".into())
        );
        let request = Request::get("/v1/jobs").query("kind", "a&b").query("limit", "3");
        assert_eq!(request.path, "/v1/jobs?kind=a%26b&limit=3");
    }

    #[test]
    fn only_requests_that_change_nothing_are_repeatable_by_themselves() {
        assert!(Request::get("/").is_repeatable && !Request::post("/").is_repeatable);
        assert!(Request::post("/").repeatable().is_repeatable);
    }
}
