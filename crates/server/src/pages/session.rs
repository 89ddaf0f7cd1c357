//! Logging in and out: a name and a password become a session, whose secret the browser keeps in a cookie.

use axum::http::{HeaderMap, Method, StatusCode};
use windlass::{Engine, env::Env, operate::{LogIn, LoginRefusal, Operator}};

use super::{
    cookies::{self, Notice, SESSION},
    form::{Form, url},
    frame::Frame,
    page::back,
};
use crate::{
    access::Principal,
    call::Call,
    error::{Error, ErrorKind},
    reply::Reply,
    routes::{Access, Answer, Route},
    server::Shared,
};

/// The most bytes of a name or a password that is looked at.
const MAX_FIELD: usize = 1_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::page(Method::GET, "/login", Access::OpenPage, ask),
        Route::page(Method::POST, "/login", Access::OpenPage, log_in),
        Route::page(Method::POST, "/logout", Access::OpenPage, log_out),
    ]
}

/// Who has the session that a request carries, if it carries one that has not ended.
pub(crate) async fn principal(
    operator: &Operator,
    headers: &HeaderMap,
    client: std::net::IpAddr,
) -> Result<Option<Principal>, Error> {
    let Some(secret) = cookies::cookie(headers, SESSION) else { return Ok(None) };
    let session = operator.session(&secret).await?;
    Ok(session.map(|session| Principal {
        author: format!("{}@{client}", session.user),
        token: None,
        role: session.role,
        scope: windlass::model::Scope::default(),
        session: Some(secret),
        user: Some(session.user),
    }))
}

#[derive(askama::Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    back: String,
    /// Why the last try was refused.
    refusal: Option<String>,
    name: String,
}
