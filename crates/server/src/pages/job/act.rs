//! What can be done with one job.

use serde_json::Value;
use windlass::{
    ControlOutcome, Delivery, JobId,
    model::Permission,
    operate::{ForkPoint, GRACE, JobAction},
};

use crate::{
    error::{Error, accepted},
    pages::{
        format::counted,
        page::{Done, Posted, form_route},
    },
    routes::Route,
};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        form_route("/jobs/{job}/retry", Permission::Act, retry),
        form_route("/jobs/{job}/pause", Permission::Act, pause),
        form_route("/jobs/{job}/resume", Permission::Act, resume),
        form_route("/jobs/{job}/cancel", Permission::Act, cancel),
        form_route("/jobs/{job}/signal", Permission::Act, signal),
        form_route("/jobs/{job}/fork", Permission::Act, fork),
    ]
}

async fn id(posted: &Posted) -> Result<JobId, Error> {
    posted.call.job_id().await
}

async fn act(posted: Posted, action: JobAction, text: &str) -> Result<Done, Error> {
    let job = id(&posted).await?;
    let control = posted.call.control(posted.form.text("note").map(str::to_owned));
    let outcome = accepted(control.act_on_job(job, action).await?, "such job")?;
    let text = match outcome {
        ControlOutcome::Already(why) => format!("Nothing to do: {why}."),
        ControlOutcome::CancelRequested => "The running attempt was requested to end.".to_owned(),
        _ => text.to_owned(),
    };
    Ok(Done { text, next: None })
}

async fn retry(posted: Posted) -> Result<Done, Error> {
    act(posted, JobAction::Retry, "The job runs again.").await
}

async fn pause(posted: Posted) -> Result<Done, Error> {
    act(posted, JobAction::Pause, "The job is paused.").await
}

async fn resume(posted: Posted) -> Result<Done, Error> {
    act(posted, JobAction::Resume, "The job is resumed.").await
}

async fn cancel(posted: Posted) -> Result<Done, Error> {
    if !posted.form.has("children") {
        return act(posted, JobAction::Cancel { grace: GRACE }, "The job is cancelled.").await;
    }
    let job = id(&posted).await?;
    let control = posted.call.control(posted.form.text("note").map(str::to_owned));
    let acted = control.cancel_tree(job, GRACE).await?;
    let children = acted.children.unwrap_or(0);
    let _ = accepted(acted.outcome, "such job")?;
    Ok(Done {
        text: format!("The job is cancelled, and {}.", counted(children, "descendant", "descendants")),
        next: None,
    })
}

async fn signal(posted: Posted) -> Result<Done, Error> {
    let job = id(&posted).await?;
    let name = posted.form.required("name")?.to_owned();
    let payload = match posted.form.text("payload") {
        Some(text) => serde_json::from_str::<Value>(text).map_err(|error| {
            Error::invalid(
                format!("the payload is no JSON: {error}"),
                "write text between quotes, or leave it empty",
            )
        })?,
        None => Value::Null,
    };
    let mut sending = posted.call.engine().signal(job, &name, payload);
    if let Some(dedup) = posted.form.text("dedup") {
        sending = sending.dedup(dedup);
    }
    if sending.await? != Delivery::Duplicate {
        posted.call.note_act(format!("signal {name}"), job).await;
    }
    Ok(Done { text: format!("The signal {name} is in the inbox of the job."), next: None })
}

async fn fork(posted: Posted) -> Result<Done, Error> {
    let job = id(&posted).await?;
    let from = match posted.form.text("from") {
        None | Some("end") => ForkPoint::End,
        Some("beginning") => ForkPoint::Beginning,
        Some(entry) => ForkPoint::Entry(
            entry.parse().map_err(|_| Error::invalid("the place is no entry", "choose one of the list"))?,
        ),
    };
    let control = posted.call.control(posted.form.text("note").map(str::to_owned));
    let mut fork = control.fork().at(from);
    if let Some(key) = posted.form.text("key") {
        fork = fork.key(key);
    }
    let forked = fork.run(job).await?;
    let next = Some(format!("/jobs/{forked}"));
    Ok(Done { text: "This is the new job. The original is as it was.".to_owned(), next })
}
