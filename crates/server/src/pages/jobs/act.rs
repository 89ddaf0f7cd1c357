//! What the preview of an action does: to ticked jobs at once, to all that match as an operation in the background.

use windlass::{
    model::Permission,
    operate::{Acted, operation::begin_bulk},
    ControlOutcome,
};

use super::{
    filter::ListFilter,
    preview::{action, ticked, verb},
};
use crate::{
    error::Error,
    pages::{
        format::counted,
        page::{Done, Posted, form_route},
    },
    routes::Route,
};

pub(crate) fn routes() -> Vec<Route> {
    vec![form_route("/jobs/act", Permission::Act, act)]
}

async fn act(posted: Posted) -> Result<Done, Error> {
    let Posted { call, form } = posted;
    let (job_action, name) = action(&form, form.required("action")?)?;
    let jobs = ticked(&form)?;
    let control = call.control(form.text("note").map(str::to_owned));
    if !jobs.is_empty() {
        let acted = control.act_on_each(&jobs, job_action).await?;
        return Ok(Done { text: summary(&acted), next: None });
    }
    let list = ListFilter::of(&form);
    let now = call.shared.pages.now(&call.shared).await?;
    let mut bulk = control.bulk(list.filter(None, now)?, job_action);
    if let Some(rate) = form.parsed::<u32>("rate")? {
        bulk = bulk.per_second(rate);
    }
    if let Some(first) = form.parsed::<usize>("first")? {
        bulk = bulk.first(first);
    }
    let preview = bulk.preview().await?;
    let operation = begin_bulk(bulk, Some((preview.matching as u64, preview.at_least))).await?;
    let id = operation.id();
    // It goes on when the request has been answered; its record says how it ends.
    tokio::spawn(async move {
        if let Err(error) = operation.run().await {
            tracing::warn!(%error, operation = %id, "an operation has failed");
        }
    });
    Ok(Done { text: format!("{} began", verb(name)), next: Some(format!("/operations/{id}")) })
}

/// What was done, in a sentence.
fn summary(acted: &[Acted]) -> String {
    let count = |is: fn(&ControlOutcome) -> bool| acted.iter().filter(|acted| is(&acted.outcome)).count() as u64;
    let changed = count(|outcome| matches!(outcome, ControlOutcome::Done | ControlOutcome::Created(_) | ControlOutcome::CancelRequested));
    let already = count(|outcome| matches!(outcome, ControlOutcome::Already(_)));
    let refused = acted.len() as u64 - changed - already;
    let mut text = counted(changed, "job was changed", "jobs were changed");
    if already > 0 {
        text += &format!(", {} so already", counted(already, "was", "were"));
    }
    if refused > 0 {
        text += &format!(", {} refused it", counted(refused, "job", "jobs"));
    }
    if let Some(why) = acted.iter().find_map(|acted| match &acted.outcome {
        ControlOutcome::Refused(why) => Some(why),
        _ => None,
    }) {
        text += &format!(": {why}");
    }
    text + "."
}
