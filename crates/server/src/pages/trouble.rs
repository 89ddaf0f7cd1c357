//! Pages for errors: what is wrong, why, and what to do next.

use axum::{
    body::Body,
    http::{HeaderMap, Response, StatusCode, Uri, header},
};

use super::{
    form::url,
    frame::{self, Preferences},
};
use crate::{
    error::{Error, ErrorKind},
    reply,
};

#[derive(askama::Template)]
#[template(path = "trouble.html")]
struct TroublePage {
    title: &'static str,
    theme: &'static str,
    status: u16,
    message: String,
    hint: String,
    /// Whether a log-in may help.
    is_login: bool,
}

/// The answer to a request for a page that failed. Whoever has to log in is asked to.
pub(crate) fn trouble(headers: &HeaderMap, uri: &Uri, is_get: bool, error: Error) -> Response<Body> {
    if error.kind() == ErrorKind::Unauthorized && is_get && wants_html(headers) {
        let back = uri.path_and_query().map_or("/", |here| here.as_str());
        let back = Some(back).filter(|back| *back != "/");
        return reply::see_other(&url("/login", [("back", back)]), &[]);
    }
    // A script or a stream reads the status alone.
    if !wants_html(headers) {
        return error.into_response();
    }
    let status = error.kind().status();
    render(headers, status, error)
}

/// The answer to a path that does not exist.
pub(crate) fn no_such_page(headers: &HeaderMap, error: Error) -> Response<Body> {
    match wants_html(headers) {
        true => render(headers, StatusCode::NOT_FOUND, error),
        false => error.into_response(),
    }
}

fn render(headers: &HeaderMap, status: StatusCode, error: Error) -> Response<Body> {
    let page = TroublePage {
        title: status.canonical_reason().unwrap_or("Error"),
        theme: Preferences::of(headers).theme(),
        status: status.as_u16(),
        message: sentence(error.message()),
        hint: sentence(error.hint()),
        is_login: matches!(error.kind(), ErrorKind::Unauthorized | ErrorKind::Forbidden),
    };
    match frame::render(&page) {
        Ok(html) => reply::page(status, html, &[]),
        Err(_) => error.into_response(),
    }
}

/// A text with a capital letter at its beginning and a full stop at its end.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return String::new() };
    let mut sentence: String = first.to_uppercase().chain(letters).collect();
    if !sentence.ends_with(['.', '?', '!', ':']) {
        sentence.push('.');
    }
    sentence
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}
