//! A page: where it is, who may see it, and how it is rendered; and what all pages need of a request.

use std::{future::Future, pin::Pin, sync::Arc};

use axum::{
    body::Bytes,
    http::{Method, StatusCode},
};
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use windlass::{JobId, Time, model::Permission, operate::Operator};

use super::{
    cookies::Notice,
    form::Form,
    frame::{self, Frame, Preferences, User, navigation},
    html::Html,
    live::{self, fragments::Fragments},
    numbers::Numbers,
    parts::{Message, Tone},
};
use crate::{
    access::{self, Principal},
    call::Call,
    error::{Error, ErrorKind},
    per_client::BodyRoom,
    reply::Reply,
    routes::{Access, Answer, Route},
    server::Shared,
};

/// A page that people look at.
pub(crate) struct Page {
    /// Its path, with parameters as `{name}`.
    pub(crate) path: &'static str,
    /// How it is rendered.
    pub(crate) render: fn(PageCall) -> Rendering,
}

/// What renders a page.
pub(crate) type Rendering = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

/// Declares a page that a function renders.
macro_rules! page {
    ($path:literal, $render:path) => {
        $crate::pages::page::Page { path: $path, render: |call| Box::pin($render(call)) }
    };
}
pub(crate) use page;

/// A request for a page.
pub(crate) struct PageCall {
    pub(crate) call: Call,
    /// The fields of the query.
    pub(crate) query: Form,
    pub(crate) preferences: Preferences,
    /// What the last form did.
    pub(crate) notice: Option<Notice>,
    /// The store's clock.
    pub(crate) now: Time,
}

impl PageCall {
    pub(super) async fn new(call: Call) -> Result<PageCall, Error> {
        let query = Form::parse(call.uri.query().unwrap_or_default().as_bytes());
        let preferences = Preferences::of(&call.headers);
        let notice = Notice::of(&call.headers);
        let now = call.shared.pages.now(&call.shared).await?;
        Ok(PageCall { query, preferences, notice, now, call })
    }

    pub(crate) fn operator(&self) -> &Operator {
        self.call.operator()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.call.shared
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.call.principal
    }

    /// Whether the reader may change jobs.
    pub(crate) fn may_act(&self) -> bool {
        self.principal().role.may(Permission::Act)
    }

    /// Whether the reader may delete jobs and manage access.
    pub(crate) fn may_administer(&self) -> bool {
        self.principal().role.may(Permission::Administer)
    }

    /// The path with its query, as it was asked for.
    pub(crate) fn here(&self) -> String {
        self.call.uri.path_and_query().map_or("/", |here| here.as_str()).to_owned()
    }

    /// What is around the page. `part` is the entry of the navigation that it belongs to. The page has live updates, for which it is rendered
    /// with the same query.
    pub(crate) async fn frame(&self, title: impl Into<String>, part: &'static str) -> Result<Frame, Error> {
        self.frame_at(title, part, &self.here()).await
    }

    /// The same for a page whose live updates are rendered with another query: a list stays at its rows.
    pub(crate) async fn frame_at(
        &self,
        title: impl Into<String>,
        part: &'static str,
        live: &str,
    ) -> Result<Frame, Error> {
        let numbers = self.shared().pages.numbers(self.shared()).await?;
        let user = self.principal().user.clone();
        let message = self.notice.as_ref().map(|notice| {
            let tone = if notice.is_error { Tone::Bad } else { Tone::Ok };
            Message { tone, text: Html::words(&notice.text) }
        });
        Ok(Frame {
            title: title.into(),
            here: part,
            path: self.here(),
            nav: super::existing(navigation(|id| Numbers::of_part(&numbers, id))),
            user: user.map(|name| User { name, role: self.principal().role.to_string() }),
            may_act: self.may_act(),
            may_administer: self.may_administer(),
            csrf: access::form_token(&self.shared().pages.key, self.principal()),
            preferences: self.preferences,
            now: self.now,
            place: self.shared().settings.place.clone(),
            build: self.shared().pages.build.clone(),
            live: Some(super::form::url("/live", [("page", Some(live))])),
            message,
        })
    }
}

/// The HTML of a page's template.
pub(crate) fn html(page: &impl askama::Template) -> Result<String, Error> {
    frame::render(page).map_err(|error| Error::internal(&error))
}

/// The route of a page.
pub(crate) fn route(page: &'static Page) -> Route {
    Route::page(Method::GET, page.path, Access::Page(Permission::Read), move |call| answer(page, call))
}

async fn answer(page: &'static Page, call: Call) -> Answer {
    call.principal.check_unlimited("pages")?;
    let (is_secure, has_notice) = (call.is_secure, Notice::of(&call.headers).is_some());
    let html = rendered(page, call).await?;
    let cookies = has_notice.then(|| Notice::shown(is_secure)).into_iter().collect();
    Ok(Reply::Page(StatusCode::OK, html, cookies))
}

/// Renders a page.
pub(crate) async fn rendered(page: &Page, call: Call) -> Result<String, Error> {
    (page.render)(PageCall::new(call).await?).await
}

/// `/live?page=PATH`: the live updates of a page.
pub(crate) fn live_route() -> Route {
    Route::page(Method::GET, "/live", Access::Page(Permission::Read), live)
}

async fn live(call: Call) -> Answer {
    call.principal.check_unlimited("pages")?;
    let query = Form::parse(call.uri.query().unwrap_or_default().as_bytes());
    let unknown = || Error::new(ErrorKind::NotFound, "there is no such page", "open it in a browser");
    let uri: axum::http::Uri = query.required("page")?.parse().map_err(|_| unknown())?;
    let (page, path) = super::pages()
        .iter()
        .find_map(|page| Some((page, path_parameters(page.path, uri.path())?)))
        .ok_or_else(unknown)?;
    let mut view = call.again();
    // What a form did is shown once, and is no part of the view.
    (view.uri, view.path) = (uri, path);
    let preferences = Preferences::of(&call.headers);
    let key = format!("{} {} {preferences:?} {}", call.principal.role, call.principal.author, view.uri);
    let first = Fragments::of(&rendered(page, view.again()).await?);
    let permit = call.start_waiting()?;
    let job = view.path.iter().find(|(name, _)| name == "job").and_then(|(_, id)| id.parse::<JobId>().ok());
    let updates = call.shared.pages.live.watch(key, view, page, job, first.clone());
    let updates = updates.ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, "too many pages are open", "load it again later")
    })?;
    Ok(Reply::Stream(live::stream(updates, first, call.shared.stopping.clone(), permit)))
}

/// The parameters of a path that a pattern matches, decoded.
fn path_parameters(pattern: &str, path: &str) -> Option<Vec<(String, String)>> {
    let (mut patterns, mut parts) = (pattern.split('/'), path.split('/'));
    let mut found = Vec::new();
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return Some(found),
            (Some(pattern), Some(part)) => {
                match pattern.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                    Some(_) if part.is_empty() => return None,
                    Some(name) => found
                        .push((name.to_owned(), percent_decode_str(part).decode_utf8().ok()?.into_owned())),
                    None if pattern == part => {}
                    None => return None,
                }
            }
            _ => return None,
        }
    }
}

/// A form that a page posts: its fields, and whose it is.
pub(crate) struct Posted {
    pub(crate) call: Call,
    pub(crate) form: Form,
}

/// The route of a form. `handler` returns what it did, and the page to show next.
pub(crate) fn form_route<F>(path: &'static str, permission: Permission, handler: fn(Posted) -> F) -> Route
where
    F: Future<Output = Result<Done, Error>> + Send + 'static,
{
    Route::page(Method::POST, path, Access::Page(permission), move |call| async move {
        call.principal.check_unlimited("pages")?;
        let form = Form::parse(&call.body);
        check_form(&call, &form)?;
        let (is_secure, back) = (call.is_secure, back(&form));
        let shared = Arc::clone(&call.shared);
        let answered = handler(Posted { call, form }).await;
        shared.pages.forget();
        match answered {
            Ok(Done { text, next }) => {
                let notice = Notice { text, is_error: false };
                Ok(Reply::SeeOther(next.unwrap_or(back), vec![notice.cookie(is_secure)]))
            }
            // What is refused is said on the page where the form is.
            Err(error) if error.is_refusal() => {
                let notice = Notice { text: error.text(), is_error: true };
                Ok(Reply::SeeOther(back, vec![notice.cookie(is_secure)]))
            }
            Err(error) => Err(error),
        }
    })
}

/// What a form did.
pub(crate) struct Done {
    /// A sentence for the next page.
    pub(crate) text: String,
    /// The next page; `None` for the one that the form is on.
    pub(crate) next: Option<String>,
}

/// Refuses a form that a page of another site posts: such a page cannot read the token.
pub(super) fn check_form(call: &Call, form: &Form) -> Result<(), Error> {
    if access::is_form_token(&call.shared.pages.key, &call.principal, form.text("csrf").unwrap_or_default()) {
        return Ok(());
    }
    Err(access::forbidden(
        "the form is from before this login or from before the server was started",
        "go back, load the page again, and repeat it",
    ))
}

/// The page to go back to: a path of this server, whatever the form says.
pub(crate) fn back(form: &Form) -> String {
    let is_own =
        |path: &&str| path.starts_with('/') && !path.starts_with("//") && !path.contains(['\\', '\r', '\n']);
    form.text("back").filter(is_own).unwrap_or("/").to_owned()
}

impl Call {
    /// The same request again, for a page that is rendered anew: it counts among no requests.
    pub(crate) fn again(&self) -> Call {
        Call {
            shared: Arc::clone(&self.shared),
            principal: self.principal.clone(),
            path: self.path.clone(),
            uri: self.uri.clone(),
            headers: self.headers.clone(),
            body: Bytes::new(),
            permit: crate::server::Permit::none(),
            client: watch::channel(()).1,
            address: self.address,
            is_secure: self.is_secure,
            _room: BodyRoom::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_patterns() {
        let of = |pattern, path| path_parameters(pattern, path);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            of("/jobs/{job}/branches/{name}", "/jobs/a%2Fb/branches/c"),
            Some(vec![pair("job", "a/b"), pair("name", "c")])
        );
        assert_eq!(of("/", "/"), Some(Vec::new()));
        for (pattern, path) in [
            ("/jobs/{job}", "/jobs/"),
            ("/jobs/{job}", "/jobs/a/b"),
            ("/jobs", "/queues"),
            ("/jobs/{job}", "/jobs/%FF"),
        ] {
            assert_eq!(of(pattern, path), None, "{path}");
        }
    }

    #[test]
    fn a_form_leads_to_this_server_alone() {
        let of = |text: &str| back(&Form::parse(format!("back={text}").as_bytes()));
        assert_eq!(of("%2Fjobs%3Fstate%3Dfailed"), "/jobs?state=failed");
        for other in
            ["https://evil.example", "%2F%2Fevil.example", "%2F%5Cevil.example", "jobs", "", "%2Fa%0D%0Ab"]
        {
            assert_eq!(of(other), "/", "{other}");
        }
    }
}
