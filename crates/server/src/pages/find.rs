//! The search field: a job by its id, key or name, or else the jobs whose keys begin with the text.

use axum::http::Method;
use serde_json::json;
use windlass::{Filter, model::Permission, operate::Found, store::Summary};

use super::form::{Form, segment, url};
use crate::{
    call::Call,
    error::Error,
    reply::Reply,
    routes::{Access, Answer, Route},
};

/// How many jobs the command palette shows.
const SHOWN: usize = 8;
/// The most characters of a text that is looked for.
const MAX_TEXT: usize = 1_000;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::page(Method::GET, "/find", Access::Page(Permission::Read), find)]
}

async fn find(call: Call) -> Answer {
    call.principal.check_unlimited("pages")?;
    let query = Form::parse(call.uri.query().unwrap_or_default().as_bytes());
    let text: String = query.text("q").unwrap_or_default().chars().take(MAX_TEXT).collect();
    if query.has("json") {
        return suggestions(&call, &text).await;
    }
    let next = match named(&call, &text).await? {
        Some(job) => format!("/jobs/{}", segment(&job)),
        None if text.is_empty() => "/jobs".to_owned(),
        None => url("/jobs", [("key_prefix", Some(text.as_str()))]),
    };
    Ok(Reply::SeeOther(next, Vec::new()))
}

/// The id of the job with this name, if there is one.
async fn named(call: &Call, text: &str) -> Result<Option<String>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    match call.operator().find(text).await {
        Ok(Found::Job(id)) => Ok(Some(id.to_string())),
        Ok(Found::Packed(item)) => Ok(Some(item.id.to_string())),
        Err(windlass::Error::Store(error)) => Err(error.into()),
        // Several have the name, or none has: the list says which.
        Err(_) => Ok(None),
    }
}

async fn suggestions(call: &Call, text: &str) -> Answer {
    if text.is_empty() {
        return Reply::json(&json!([]));
    }
    let inspect = call.engine().inspect();
    let filter = Filter { key_prefix: Some(text.to_owned()), limit: SHOWN, ..Filter::default() };
    let mut jobs: Vec<Summary> = match inspect.jobs(&filter).await {
        Ok(page) => page.jobs,
        // The text is no beginning of a key.
        Err(windlass::store::Error::Invalid(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if let Some(id) = named(call, text).await?.and_then(|id| id.parse().ok())
        && jobs.iter().all(|job| job.id != id)
        && let Some(job) = inspect.job(id).await?
    {
        jobs.insert(0, job.summary);
    }
    let hits: Vec<_> = jobs
        .iter()
        .map(|job| {
            let name = job.key.clone().unwrap_or_else(|| job.id.to_string());
            json!({ "text": name, "more": format!("{} · {}", job.kind, job.state), "href": format!("/jobs/{}", job.id) })
        })
        .collect();
    Reply::json(&hits)
}
