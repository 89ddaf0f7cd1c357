//! Changing one job: cancel, retry, pause, resume, priority, signals, redrive, fork.

use axum::http::Method;
use serde_json::{Value, json};
use windlass::{
    ControlOutcome, Delivery, JobId,
    operate::{Acted, GRACE, JobAction, RedriveProgress},
};

use super::{ACT, Answer, NoteInput, Route, bulk::fork_point};
use crate::{
    answers::{ForkedJob, SignalSent},
    call::Call,
    error::{Error, JOB, accepted},
    input::{Span, input},
    progress,
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    let post = Method::POST;
    let cancel_what = "Cancel a job. A running attempt is requested to end";
    let signal_what = "Send a signal to a job. When this is answered, the signal is durably in its inbox";
    let drop_what = "Delete a signal from the inbox of a job, by its number there";
    let fork_what = "Start a new job from part of the journal of another";
    vec![
        Route::new(post.clone(), "/v1/jobs/{job}/cancel", ACT, "cancel", cancel_what, cancel)
            .returns::<Acted>()
            .optional_body::<CancelInput>(),
        Route::new(
            post.clone(),
            "/v1/jobs/{job}/retry",
            ACT,
            "retry",
            "Retry a failed or cancelled job",
            retry,
        )
        .returns::<Acted>()
        .optional_body::<NoteInput>(),
        Route::new(
            post.clone(),
            "/v1/jobs/{job}/pause",
            ACT,
            "pauseJob",
            "Pause a job: it is not claimed",
            pause,
        )
        .returns::<Acted>()
        .optional_body::<NoteInput>(),
        Route::new(post.clone(), "/v1/jobs/{job}/resume", ACT, "resumeJob", "Resume a paused job", resume)
            .returns::<Acted>()
            .optional_body::<NoteInput>(),
        Route::new(
            post.clone(),
            "/v1/jobs/{job}/priority",
            ACT,
            "priority",
            "Change the priority of a job",
            priority,
        )
        .returns::<Acted>()
        .body::<PriorityInput>(),
        Route::new(post.clone(), "/v1/jobs/{job}/signals/{name}", ACT, "signal", signal_what, signal)
            .returns::<SignalSent>()
            .optional_body::<SignalBody>()
            .answers(
                "Whether it was delivered, or is a duplicate; and `note`, if the job may not consume it soon",
            ),
        Route::new(
            Method::DELETE,
            "/v1/jobs/{job}/inbox/{number}",
            ACT,
            "dropSignal",
            drop_what,
            drop_signal,
        )
        .returns::<Acted>()
        .optional_body::<NoteInput>(),
        Route::new(
            post.clone(),
            "/v1/jobs/{job}/inbox/{number}/restore",
            ACT,
            "restoreSignal",
            "Restore an unreadable signal",
            restore_signal,
        )
        .returns::<Acted>()
        .optional_body::<NoteInput>(),
        Route::new(
            post.clone(),
            "/v1/jobs/{job}/redrive",
            ACT,
            "redrive",
            "Retry the unsuccessful children of a job's branches",
            redrive,
        )
        .returns::<RedriveProgress>()
        .optional_body::<RedriveInput>()
        .answers("How many were retried and refused; `interrupted` if it must be repeated for the rest")
        .progresses(),
        Route::new(post, "/v1/jobs/{job}/fork", ACT, "fork", fork_what, fork)
            .returns::<ForkedJob>()
            .optional_body::<ForkInput>()
            .answers("The new job"),
    ]
}

async fn act(call: &Call, action: JobAction, note: Option<String>) -> Answer {
    super::jobs::no_query(call)?;
    let id = call.job_id().await?;
    let acted = call.control(note).act_on_each(&[id], action).await?.remove(0);
    answer(call, acted)
}

fn answer(call: &Call, mut acted: Acted) -> Answer {
    let outcome = accepted(acted.outcome, "such job");
    acted.outcome = outcome.map_err(|error| if error.is_not_found() { error.about(JOB) } else { error })?;
    // Its children may be outside of the scope of the token.
    if !call.principal.scope.is_unlimited() {
        acted.children_cancelled = None;
    }
    Reply::json(&acted)
}

input! {
    /// How to cancel.
    CancelInput {
        /// How long a running attempt may take to end [default: 10s].
        grace: Option<Span>,
        /// Whether to cancel all its descendants too [default: false].
        children: Option<bool>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn cancel(call: Call) -> Answer {
    let CancelInput { grace, children, note } = call.optional_body()?;
    let grace = grace.map_or(GRACE, |span| span.0);
    if children != Some(true) {
        return act(&call, JobAction::Cancel { grace }, note).await;
    }
    call.principal.check_unlimited("descendants")?;
    let id = match call.job_id().await {
        // A job that was pruned may have left descendants.
        Err(error) if error.is_no_such_job() => call.path("job").parse().map_err(|_| error)?,
        id => id?,
    };
    let acted = call.control(note).cancel_tree(id, grace).await?;
    match (&acted.outcome, acted.children) {
        (ControlOutcome::Unknown, Some(1..)) => Reply::json(&acted),
        _ => answer(&call, acted),
    }
}

async fn retry(call: Call) -> Answer {
    let NoteInput { note } = call.optional_body()?;
    act(&call, JobAction::Retry, note).await
}

async fn pause(call: Call) -> Answer {
    let NoteInput { note } = call.optional_body()?;
    act(&call, JobAction::Pause, note).await
}

async fn resume(call: Call) -> Answer {
    let NoteInput { note } = call.optional_body()?;
    act(&call, JobAction::Resume, note).await
}

input! {
    /// A priority.
    PriorityInput {
        /// From -100 (most urgent) to 100 (least urgent).
        priority: i16,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn priority(call: Call) -> Answer {
    let PriorityInput { priority, note } = call.body()?;
    act(&call, JobAction::Priority(priority), note).await
}

input! {
    /// The payload of a signal.
    SignalBody {
        /// Any JSON [default: null].
        payload: Option<Value>,
        /// Deliver it once: a signal with this name and dedup id that was sent before is not delivered again.
        dedup: Option<String>,
    }
}

async fn signal(call: Call) -> Answer {
    super::jobs::no_query(&call)?;
    let SignalBody { payload, dedup } = call.optional_body()?;
    let (id, name) = (call.job_id().await?, call.path("name"));
    let signal = call.engine().signal(id, name, payload.unwrap_or_default());
    let delivery = match dedup {
        Some(dedup) => signal.dedup(dedup).await?,
        None => signal.await?,
    };
    if delivery != Delivery::Duplicate {
        call.note_act(format!("signal {name}"), id).await;
    }
    let note = call.operator().why_not_awaited(id, name).await?;
    let mut answer = json!({ "job": id, "name": name, "delivery": delivery });
    if let Some(note) = note {
        answer["note"] = note.into();
    }
    Reply::json(&answer)
}

/// The number of a signal in the path.
fn signal_number(call: &Call) -> Result<i64, Error> {
    let text = call.path("number");
    text.parse().map_err(|_| {
        Error::invalid(
            format!("{text:?} is not the number of a signal"),
            "GET /v1/jobs/{job} lists the inbox",
        )
    })
}

async fn drop_signal(call: Call) -> Answer {
    let NoteInput { note } = call.optional_body()?;
    let number = signal_number(&call)?;
    act(&call, JobAction::DropSignal(number), note).await
}

async fn restore_signal(call: Call) -> Answer {
    let NoteInput { note } = call.optional_body()?;
    let number = signal_number(&call)?;
    act(&call, JobAction::RestoreSignal(number), note).await
}

input! {
    /// Which children to retry.
    RedriveInput {
        /// Only those of the branch of this name.
        branch: Option<String>,
        /// At most this many per second.
        rate: Option<u32>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn redrive(call: Call) -> Answer {
    super::jobs::no_query(&call)?;
    let RedriveInput { branch, rate, note } = call.optional_body()?;
    call.principal.check_unlimited("children of branches")?;
    let redrive = call.control(note).redrive(call.job_id().await?, branch.as_deref());
    let redrive = match rate {
        Some(rate) => redrive.per_second(rate),
        None => redrive,
    };
    progress::run(&call, |on_progress| redrive.run(on_progress)).await
}

input! {
    /// Where a fork starts. Without any of these, at the end of the journal.
    ForkInput {
        /// Drawn by the client, a UUID of version 7: a repeat with the same id makes no other fork. The id of the new job is made of it.
        id: Option<JobId>,
        /// At the call of this name, which runs again.
        before: Option<String>,
        /// With `before`: the call with this key.
        step_key: Option<String>,
        /// At this entry of the journal, which is not copied.
        before_entry: Option<i32>,
        /// At the beginning.
        from_beginning: Option<bool>,
        /// The key of the new job.
        new_key: Option<String>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn fork(call: Call) -> Answer {
    super::jobs::no_query(&call)?;
    let ForkInput { id: request, before, step_key, before_entry, from_beginning, new_key, note } =
        call.optional_body()?;
    let mut fork = call.control(note).fork().at(fork_point(before, step_key, before_entry, from_beginning)?);
    if let Some(request) = request {
        fork = fork.request(request);
    }
    if let Some(key) = new_key {
        fork = fork.key(key);
    }
    let id = call.job_id().await?;
    Reply::json(&json!({ "job": fork.run(id).await?, "from": id }))
}
