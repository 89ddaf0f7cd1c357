//! A form that submits a job, with what live workers serve.

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use windlass::{model::Permission, operate::views::Situation};

use super::{
    cookies::Notice,
    form::Form,
    format::counted,
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, check_form, html},
};
use crate::{
    access::forbidden,
    call::Call,
    error::Error,
    reply::Reply,
    routes::{Access, Answer, Route, submit::submit_form},
};

/// How many kinds are listed.
const KINDS: usize = 60;
/// The longest value of a field that the form shows again.
const SHOWN: usize = 20_000;

#[derive(Template)]
#[template(path = "submit.html")]
struct SubmitPage {
    frame: Frame,
    form: Form,
    served: Vec<Served>,
    queues: Vec<String>,
    /// Whether a live worker runs the kind that is chosen, and what is said about it.
    answer: Option<(bool, Html)>,
    command: Option<String>,
    refusal: Option<String>,
}

/// A kind that live workers serve in a queue.
struct Served {
    kind: String,
    version: i32,
    queue: String,
    workers: u64,
}

impl SubmitPage {
    fn value(&self, name: &str) -> String {
        self.form.raw(name).chars().take(SHOWN).collect()
    }

    fn workers(&self, served: &Served) -> String {
        counted(served.workers, "worker", "workers")
    }
}

pub(super) fn routes() -> Vec<Route> {
    vec![Route::page(Method::POST, "/submit", Access::Page(Permission::Act), post)]
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    if !call.may_act() {
        return Err(forbidden("a viewer submits no jobs", "ask an administrator for the role operator"));
    }
    let form = call.query.clone();
    render(&call, form, None).await
}

async fn render(call: &PageCall, form: Form, refusal: Option<String>) -> Result<String, Error> {
    let shared = Arc::clone(call.shared());
    let situation = shared.pages.situation(&shared).await?;
    let frame = call.frame("Submit a job", "submit").await?;
    let mut served = served(&situation);
    let mut queues: Vec<String> = served.iter().map(|served| served.queue.clone()).collect();
    queues.sort();
    queues.dedup();
    let answer = form.text("kind").map(|kind| answer(kind, form.text("queue"), &served));
    let command = form.text("kind").map(|_| command(&form));
    served.truncate(KINDS);
    html(&SubmitPage { frame, form, served, queues, answer, command, refusal })
}

fn served(situation: &Situation) -> Vec<Served> {
    let mut found: BTreeMap<(String, i32, String), u64> = BTreeMap::new();
    for worker in situation.workers.iter().filter(|worker| worker.alive && worker.lease_until > situation.now)
    {
        for pool in &worker.serves {
            for kind in &pool.kinds {
                *found.entry((kind.kind.clone(), kind.version, pool.queue.clone())).or_default() += 1;
            }
        }
    }
    let served = |((kind, version, queue), workers)| Served { kind, version, queue, workers };
    found.into_iter().map(served).collect()
}

/// Whether a live worker runs a kind, in a queue if one is named.
fn answer(kind: &str, queue: Option<&str>, served: &[Served]) -> (bool, Html) {
    let of_kind = || served.iter().filter(|served| served.kind == kind);
    let queues: Vec<&str> = of_kind().map(|served| served.queue.as_str()).collect();
    match queue {
        _ if queues.is_empty() => (
            false,
            Html::words("No live worker runs the kind ").bold(kind).text(". The job waits until one does."),
        ),
        Some(queue) if !queues.contains(&queue) => {
            let text = Html::words("No live worker runs ").bold(kind).text(" in the queue ").bold(queue);
            (false, text.text(", only in ").bold(&queues.join(", ")).text("."))
        }
        _ => (
            true,
            Html::words("Live workers run ")
                .bold(kind)
                .text(" in ")
                .bold(queue.unwrap_or(&queues.join(", ")))
                .text("."),
        ),
    }
}

/// The fields as the body of `POST /v1/jobs`.
fn body(form: &Form) -> Result<Value, Error> {
    let input = match form.text("input") {
        None => Value::Null,
        Some(text) => serde_json::from_str(text).map_err(|error| {
            Error::invalid(
                format!("the input is no JSON: {error}"),
                "write a JSON value: text needs quotation marks",
            )
        })?,
    };
    let mut job = json!({ "kind": form.required("kind")?, "input": input });
    for name in ["key", "queue", "delay"] {
        if let Some(text) = form.text(name) {
            job[name] = text.into();
        }
    }
    if let Some(priority) = form.parsed::<i16>("priority")? {
        job["priority"] = priority.into();
    }
    if let Some(version) = form.parsed::<i32>("version")? {
        job["version"] = version.into();
    }
    let tags = tags(form);
    if !tags.is_empty() {
        job["tags"] = json!(tags);
    }
    Ok(job)
}

fn tags(form: &Form) -> Vec<&str> {
    form.text("tags").unwrap_or_default().split([' ', ',']).filter(|tag| !tag.is_empty()).collect()
}

/// The same on the command line.
fn command(form: &Form) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let mut line = format!(
        "windlass submit {} {}",
        quote(form.text("kind").unwrap_or_default()),
        quote(form.text("input").unwrap_or("null"))
    );
    for name in ["key", "queue", "priority", "delay"] {
        if let Some(text) = form.text(name) {
            line += &format!(" --{name} {}", quote(text));
        }
    }
    for tag in tags(form) {
        line += &format!(" --tag {}", quote(tag));
    }
    line
}

async fn post(call: Call) -> Answer {
    call.principal.check_unlimited("pages")?;
    let form = Form::parse(&call.body);
    check_form(&call, &form)?;
    let is_secure = call.is_secure;
    let refusal = if form.has("check") {
        body(&form).err()
    } else {
        let submitted = match body(&form) {
            Ok(job) => submit_form(&call, job).await,
            Err(error) => Err(error),
        };
        match submitted {
            Ok(job) => {
                let text = match (job.is_new(), job.differs()) {
                    (true, _) => "The job is submitted.",
                    (false, false) => "A job with this key exists: this is it. Nothing was submitted.",
                    (false, true) => {
                        "A job with this key exists with another input: this is it. Nothing was submitted."
                    }
                };
                let notice = Notice { text: text.into(), is_error: false };
                return Ok(Reply::SeeOther(format!("/jobs/{}", job.id()), vec![notice.cookie(is_secure)]));
            }
            Err(error) if error.is_refusal() => Some(error),
            Err(error) => return Err(error),
        }
    };
    let status = if refusal.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let page = render(&PageCall::new(call).await?, form, refusal.map(|error| error.text())).await?;
    Ok(Reply::Page(status, page, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_quoted() {
        let form = Form::parse(b"kind=mail&input=%22it%27s%22&tags=a,+b&priority=-5");
        assert_eq!(
            command(&form),
            r#"windlass submit 'mail' '"it'\''s"' --priority '-5' --tag 'a' --tag 'b'"#
        );
    }
}
