//! What is done with users, tokens, mutes and passwords. The audit log has each, with who did it.

use std::time::Instant;

use axum::http::{Method, StatusCode, Uri};
use windlass::{
    ControlOutcome,
    model::{Permission, Role, Scope},
    operate::TokenRequest,
};

use super::render;
use crate::{
    call::Call,
    error::{Error, ErrorKind, accepted},
    pages::{
        cookies::{self, Notice},
        form::Form,
        page::{Done, PageCall, Posted, back, check_form, form_route},
    },
    reply::Reply,
    routes::{Access, Answer, Route},
};

/// The most bytes of a password that is looked at.
const MAX_PASSWORD: usize = 10_000;

pub(in crate::pages) fn routes() -> Vec<Route> {
    let administer = Permission::Administer;
    vec![
        form_route("/access/users", administer, create_user),
        form_route("/access/users/role", administer, set_role),
        form_route("/access/users/password", administer, set_password),
        form_route("/access/users/disable", administer, disable),
        form_route("/access/users/enable", administer, enable),
        form_route("/access/users/sessions", administer, end_sessions),
        Route::page(Method::POST, "/access/tokens", Access::Page(administer), create_token),
        form_route("/access/tokens/revoke", administer, revoke),
        form_route("/access/alerts/mute", administer, mute),
        form_route("/access/alerts/unmute", administer, unmute),
        Route::page(Method::POST, "/access/password", Access::Page(Permission::Read), change_password),
    ]
}

fn control(posted: &Posted) -> windlass::Control {
    posted.call.control(posted.form.text("note").map(str::to_owned))
}

/// A password as it was typed: it may begin or end with a space.
fn password<'a>(form: &'a Form, name: &str) -> Result<&'a str, Error> {
    match form.raw(name) {
        "" => Err(Error::invalid("the password is empty", "type one")),
        text if text.len() > MAX_PASSWORD => {
            Err(Error::invalid("the password is too long", "choose another one"))
        }
        text => Ok(text),
    }
}

fn done(text: String) -> Result<Done, Error> {
    Ok(Done { text, next: Some("/access".into()) })
}

async fn create_user(posted: Posted) -> Result<Done, Error> {
    let name = posted.form.required("name")?;
    let role: Role = posted.form.parsed("role")?.unwrap_or(Role::Viewer);
    let created = control(&posted).create_user(name, role, password(&posted.form, "password")?).await?;
    let user = created.map_err(|why| Error::of_text(ErrorKind::Conflict, &why))?;
    done(format!("The user {} may log in as {role}.", user.name))
}

/// The user that a form is about.
fn user(posted: &Posted) -> Result<&str, Error> {
    posted.form.required("user")
}

/// Refuses what would lock out whoever does it.
fn check_other(posted: &Posted, what: &str) -> Result<(), Error> {
    if posted.call.principal.user.as_deref() != Some(user(posted)?) {
        return Ok(());
    }
    let hint = "ask another administrator, or use `windlass users` on the server";
    Err(Error::new(ErrorKind::Conflict, format!("nobody {what} themselves"), hint))
}

/// Says what became of a change of a user.
fn changed(posted: &Posted, outcome: ControlOutcome, text: &str) -> Result<Done, Error> {
    let user = user(posted)?;
    match accepted(outcome, &format!("user {user:?}"))? {
        ControlOutcome::Already(why) => done(format!("Nothing to do: {why}.")),
        _ => done(format!("The user {user} {text}.")),
    }
}

async fn set_role(posted: Posted) -> Result<Done, Error> {
    check_other(&posted, "changes the role of")?;
    let role: Role = posted.form.required("role")?.parse().map_err(|why: String| {
        Error::invalid(format!("the role is wrong: {why}"), "choose viewer, operator or admin")
    })?;
    let outcome = control(&posted).set_role(user(&posted)?, role).await?;
    changed(&posted, outcome, &format!("is {role} now, and has to log in again"))
}

async fn set_password(posted: Posted) -> Result<Done, Error> {
    let outcome = control(&posted).set_password(user(&posted)?, password(&posted.form, "password")?).await?;
    changed(&posted, outcome, "has another password, and has to log in again")
}

async fn disable(posted: Posted) -> Result<Done, Error> {
    check_other(&posted, "disables")?;
    let outcome = control(&posted).disable_user(user(&posted)?).await?;
    changed(&posted, outcome, "is disabled, and is logged out")
}

async fn enable(posted: Posted) -> Result<Done, Error> {
    let outcome = control(&posted).enable_user(user(&posted)?).await?;
    changed(&posted, outcome, "may log in again")
}

async fn end_sessions(posted: Posted) -> Result<Done, Error> {
    let outcome = control(&posted).end_sessions(user(&posted)?).await?;
    changed(&posted, outcome, "is logged out everywhere")
}

/// Names between spaces and commas.
fn names(form: &Form, field: &str) -> Vec<String> {
    let text = form.text(field).unwrap_or_default();
    text.split([' ', ',', '\n', '\r']).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Creates a token, and answers with the page that shows its text. Nothing else ever has it: no address, no cookie.
async fn create_token(call: Call) -> Answer {
    call.principal.check_unlimited("pages")?;
    let form = Form::parse(&call.body);
    check_form(&call, &form)?;
    match token_of(&call, &form).await {
        Ok(created) => {
            call.shared.pages.forget();
            let mut view = call.again();
            view.uri = Uri::from_static("/access");
            let page = render(&PageCall::new(view).await?, Some(created)).await?;
            Ok(Reply::Page(StatusCode::OK, page, Vec::new()))
        }
        Err(error) if error.is_refusal() => Ok(refused(&call, &form, error.text())),
        Err(error) => Err(error),
    }
}

async fn token_of(call: &Call, form: &Form) -> Result<windlass::operate::CreatedToken, Error> {
    let request = TokenRequest {
        name: form.required("name")?.to_owned(),
        role: form.parsed("role")?.unwrap_or(Role::Viewer),
        scope: Scope { kinds: names(form, "kinds"), queues: names(form, "queues") },
        expires_in: form.duration("expires_in")?,
    };
    let created = call.control(form.text("note").map(str::to_owned)).create_token(&request).await?;
    created.map_err(|why| Error::of_text(ErrorKind::Conflict, &why))
}

/// Back to the page that the form is on, which says why it was refused.
fn refused(call: &Call, form: &Form, text: String) -> Reply {
    Reply::SeeOther(back(form), vec![Notice { text, is_error: true }.cookie(call.is_secure)])
}

async fn revoke(posted: Posted) -> Result<Done, Error> {
    let token = posted.form.required("token")?;
    let outcome = control(&posted).revoke_token(token).await?;
    match accepted(outcome, "such token")? {
        ControlOutcome::Already(why) => done(format!("Nothing to do: {why}.")),
        _ => done("The token is revoked: its next request is refused.".into()),
    }
}

async fn mute(posted: Posted) -> Result<Done, Error> {
    let (rule, subject) = (posted.form.required("rule")?, posted.form.text("subject"));
    let span = posted.form.duration("span")?;
    let settings = posted.call.shared.settings.alerts.as_ref();
    let rules = settings.map_or(&[][..], |settings| &settings.rules);
    let outcome = control(&posted).mute_alerts(rules, rule, subject, span).await?;
    let _ = accepted(outcome, &format!("alert rule {rule:?}"))?;
    done(format!("The rule {rule} posts no messages{}.", about(subject)))
}

async fn unmute(posted: Posted) -> Result<Done, Error> {
    let (rule, subject) = (posted.form.required("rule")?, posted.form.text("subject"));
    let outcome = control(&posted).unmute_alerts(rule, subject).await?;
    match accepted(outcome, &format!("alert rule {rule:?}"))? {
        ControlOutcome::Already(why) => done(format!("Nothing to do: {why}.")),
        _ => done(format!("The rule {rule} posts messages again{}.", about(subject))),
    }
}

fn about(subject: Option<&str>) -> String {
    subject.map(|subject| format!(" about {subject}")).unwrap_or_default()
}

/// Changes the password of whoever is logged in, and logs them in with it: all of their sessions end. Tries are limited as log-ins are, so
/// that a browser left open is no way to guess.
async fn change_password(call: Call) -> Answer {
    call.principal.check_unlimited("pages")?;
    let form = Form::parse(&call.body);
    check_form(&call, &form)?;
    let (address, is_secure) = (call.address, call.is_secure);
    let Some(user) = call.principal.user.clone() else {
        return Ok(refused(&call, &form, "nobody is logged in here, and so has no password".into()));
    };
    let new = match (password(&form, "password"), form.raw("password") == form.raw("again")) {
        (Ok(new), true) => new,
        (Ok(_), false) => {
            return Ok(refused(&call, &form, "the two new passwords differ; type the same twice".into()));
        }
        (Err(error), _) => return Ok(refused(&call, &form, error.text())),
    };
    if let Err(wait) = call.shared.pages.logins.begin(&user, address, Instant::now()) {
        let wait = windlass::operate::text::duration(wait);
        return Ok(refused(&call, &form, format!("the password was wrong too often; try again in {wait}")));
    }
    match call.control(None).change_own_password(&user, form.raw("current"), new).await? {
        ControlOutcome::Refused(why) => return Ok(refused(&call, &form, why)),
        outcome => {
            let _ = accepted(outcome, "such user")?;
        }
    }
    call.shared.pages.logins.succeeded(&user, address);
    let notice =
        Notice { text: "Your password is changed. Your other sessions have ended.".into(), is_error: false };
    let mut cookies = vec![notice.cookie(is_secure)];
    if let Ok(logged_in) = call.operator().log_in(&user, new, &address.to_string()).await? {
        cookies.push(cookies::session(&logged_in.secret, is_secure));
    }
    Ok(Reply::SeeOther("/access".into(), cookies))
}
