//! How far an operation on many jobs is.

use askama::Template;
use windlass::{
    model::Permission,
    operate::views::OperationView,
    store::{OperationId, OperationState},
};

use super::{
    format::{When, rate, span},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{Done, PageCall, Posted, form_route, html},
    parts::{Action, Operation, Pill, Tone},
};
use crate::{
    error::{Error, ErrorKind, accepted},
    routes::Route,
};

#[derive(Template)]
#[template(path = "operation.html")]
struct OperationPage {
    frame: Frame,
    view: OperationView,
    operation: Operation,
    /// What it is about, and how it is done: names and values.
    facts: Vec<(String, String)>,
}

impl OperationPage {
    fn began(&self) -> When {
        self.frame.clock().at(self.view.operation.started_at)
    }
}

pub(super) fn routes() -> Vec<Route> {
    vec![form_route("/operations/{id}/stop", Permission::Act, stop)]
}

fn unknown() -> Error {
    Error::new(ErrorKind::NotFound, "there is no such operation", "its record was deleted after its retention; the audit log has what it did")
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let id: OperationId = call.call.path("id").parse().map_err(|_| unknown())?;
    let view = OperationView::read(call.operator(), id).await?.ok_or_else(unknown)?;
    let frame = call.frame(format!("Operation: {}", view.operation.action), "jobs").await?;
    let operation = part(&view, &frame);
    let facts = facts(&view);
    html(&OperationPage { frame, view, operation, facts })
}

fn part(view: &OperationView, frame: &Frame) -> Operation {
    let progress = &view.operation.progress;
    let (tone, icon, word) = match view.operation.state {
        OperationState::Running if view.operation.stop_requested => (Tone::Warn, Icon::Drain, "stopping"),
        OperationState::Running => (Tone::Run, Icon::Running, "running"),
        OperationState::Done => (Tone::Ok, Icon::Done, "done"),
        OperationState::Stopped => (Tone::Warn, Icon::Paused, "stopped"),
        OperationState::Interrupted => (Tone::Bad, Icon::Lost, "interrupted"),
        OperationState::Failed => (Tone::Bad, Icon::Failed, "failed"),
    };
    let seconds = |seconds: f64| span(std::time::Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default());
    let pace = match (view.operation.ended_at, progress.rate, view.eta_seconds) {
        (Some(at), ..) => Html::words("ended ").add(frame.clock().ago(at)).text(&format!(", took {}", seconds(view.seconds))),
        (None, Some(per_second), Some(left)) => Html::words(&format!("{}, {} left", rate(per_second), seconds(left))),
        (None, Some(per_second), None) => Html::words(&rate(per_second)),
        (None, None, _) => Html::words("has just begun"),
    };
    let stop = (view.can_stop && frame.may_act)
        .then(|| Action::post("Stop", &format!("/operations/{}/stop", view.operation.id), &frame.csrf).field("back", &frame.path));
    Operation {
        pill: Pill::new(tone, icon, word).boxed(),
        title: super::trouble::sentence(&view.operation.action).trim_end_matches('.').to_owned(),
        done: progress.done,
        already: progress.already,
        refused: progress.refused,
        left: progress.left.unwrap_or(0),
        pace,
        stop,
    }
}

fn facts(view: &OperationView) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let of = |value: &serde_json::Value| -> Vec<(String, String)> {
        let fields = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        fields.map(|(name, value)| (name.replace('_', " "), text(value))).collect()
    };
    let mut facts = of(&view.operation.filter);
    facts.extend(of(&view.operation.parameters));
    facts
}

async fn stop(posted: Posted) -> Result<Done, Error> {
    let id: OperationId = posted.call.path("id").parse().map_err(|_| unknown())?;
    let control = posted.call.control(posted.form.text("note").map(str::to_owned));
    let _ = accepted(control.stop_operation(id).await?, "such operation")?;
    Ok(Done { text: "The operation stops after the jobs that it is changing now.".into(), next: Some(format!("/operations/{id}")) })
}
