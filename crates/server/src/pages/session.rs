//! Logging in and out: a name and a password become a session, whose secret the browser keeps in a cookie.

use std::{net::IpAddr, time::Instant};

use axum::http::{HeaderMap, Method, StatusCode};
use windlass::{
    model::Scope,
    operate::{LoginRefusal, Operator},
};

use super::{
    cookies::{self, SESSION},
    form::Form,
    frame::Preferences,
    page::{back, html},
};
use crate::{
    access::Principal,
    call::Call,
    error::Error,
    reply::Reply,
    routes::{Access, Answer, Route},
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

/// A key that nobody outside of this process knows.
pub(super) fn new_key() -> String {
    use std::hash::{BuildHasher, RandomState};
    // Each state has keys of its own from the operating system.
    let parts = (0..4_u64).map(|number| RandomState::new().hash_one(number));
    parts.map(|part| format!("{part:016x}")).collect()
}

/// Who has the session that a request carries, if it carries one that has not ended.
pub(crate) async fn principal(
    operator: &Operator,
    headers: &HeaderMap,
    client: IpAddr,
) -> Result<Option<Principal>, Error> {
    let Some(secret) = cookies::cookie(headers, SESSION) else { return Ok(None) };
    let session = operator.session(&secret).await?;
    Ok(session.map(|session| Principal {
        author: format!("{}@{client}", session.user),
        token: None,
        role: session.role,
        scope: Scope::default(),
        user: Some(session.user),
        session: Some(secret),
    }))
}

#[derive(askama::Template)]
#[template(path = "login.html")]
struct LoginPage {
    title: &'static str,
    theme: &'static str,
    back: String,
    name: String,
    /// Why the last try was refused, and what to do.
    refusal: Option<String>,
    /// Whether nobody has to log in here.
    is_open: bool,
}

/// The form.
async fn ask(call: Call) -> Answer {
    let query = Form::parse(call.uri.query().unwrap_or_default().as_bytes());
    page(&call, StatusCode::OK, &query, None)
}

fn page(call: &Call, status: StatusCode, form: &Form, refusal: Option<String>) -> Answer {
    let page = LoginPage {
        title: "Log in",
        theme: Preferences::of(&call.headers).theme(),
        back: back(form),
        name: form.text("name").unwrap_or_default().chars().take(100).collect(),
        refusal,
        is_open: !call.shared.settings.needs_login(),
    };
    Ok(Reply::Page(status, html(&page)?, Vec::new()))
}

/// Checks name and password. Tries are limited by name and by address, so that nobody guesses.
async fn log_in(call: Call) -> Answer {
    let form = Form::parse(&call.body);
    let short = |text: &str| if text.len() <= MAX_FIELD { text.to_owned() } else { String::new() };
    // A password may begin or end with a space.
    let (name, password) = (short(form.text("name").unwrap_or_default()), short(form.raw("password")));
    let address = call.address;
    if let Err(wait) = call.shared.pages.logins.begin(&name, address, Instant::now()) {
        let wait = windlass::operate::text::duration(wait);
        let why =
            format!("Too many log-ins failed. Try again in {wait}, or ask an administrator to log you in.");
        return page(&call, StatusCode::TOO_MANY_REQUESTS, &form, Some(why));
    }
    match call.operator().log_in(&name, &password, &address.to_string()).await? {
        Ok(logged_in) => {
            call.shared.pages.logins.succeeded(&name, address);
            let cookie = cookies::session(&logged_in.secret, call.is_secure);
            tracing::info!(user = name, %address, "logged in");
            Ok(Reply::SeeOther(back(&form), vec![cookie]))
        }
        Err(refusal) => {
            tracing::warn!(user = name, %address, ?refusal, "a log-in was refused");
            let why = match refusal {
                LoginRefusal::Wrong => "The name or the password is wrong.",
                LoginRefusal::Disabled => {
                    "This user is disabled. An administrator can enable it with `windlass users enable`."
                }
            };
            page(&call, StatusCode::FORBIDDEN, &form, Some(why.to_owned()))
        }
    }
}

/// Ends the session. A page of another site could only log somebody out, and not even that: the cookie is not sent along.
async fn log_out(call: Call) -> Answer {
    if let Some(secret) = cookies::cookie(&call.headers, SESSION) {
        let _ = call.operator().log_out(&secret).await?;
    }
    Ok(Reply::SeeOther("/login".to_owned(), vec![cookies::session("", call.is_secure)]))
}
