//! Schedules.

use axum::http::Method;
use serde_json::Value;
use windlass::{
    Calendar, CatchUp, ControlOutcome, JobId, Overlap,
    operate::views::{ScheduleDetails, ScheduleRow, Schedules},
    store::AdminAction,
};

use super::{
    ACT, Answer, NoteInput, READ, Route,
    jobs::no_query,
    page_limit,
    submit::{RateInput, SerialInput},
};
use crate::{
    call::Call,
    error::{Error, ErrorKind, accepted},
    input::{Parsed, Span, input},
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    let (post, path) = (Method::POST, "/v1/schedules/{name}");
    let drop_what = "Delete a schedule; its jobs stay";
    let trigger_what = "Submit the job of a schedule now, whatever its calendar says";
    vec![
        Route::new(
            Method::GET,
            "/v1/schedules",
            READ,
            "listSchedules",
            "The schedules, and when they fire next",
            list,
        )
        .returns::<Vec<ScheduleRow>>()
        .answers("The schedules, by name"),
        Route::new(Method::GET, path, READ, "showSchedule", "A schedule with what it fired and missed", show)
            .returns::<ScheduleDetails>()
            .query::<ShowQuery>()
            .answers("The schedule, its latest firings and misses"),
        Route::new(
            Method::PUT,
            path,
            ACT,
            "setSchedule",
            "Create a schedule, or replace all its settings",
            set,
        )
        .returns::<ControlOutcome>()
        .body::<ScheduleInput>(),
        Route::new(Method::DELETE, path, ACT, "dropSchedule", drop_what, drop_schedule)
            .returns::<ControlOutcome>()
            .optional_body::<NoteInput>(),
        Route::new(
            post.clone(),
            "/v1/schedules/{name}/pause",
            ACT,
            "pauseSchedule",
            "Pause a schedule",
            pause,
        )
        .returns::<ControlOutcome>()
        .optional_body::<NoteInput>(),
        Route::new(
            post.clone(),
            "/v1/schedules/{name}/resume",
            ACT,
            "resumeSchedule",
            "Resume a paused schedule",
            resume,
        )
        .returns::<ControlOutcome>()
        .optional_body::<NoteInput>(),
        Route::new(post, "/v1/schedules/{name}/trigger", ACT, "triggerSchedule", trigger_what, trigger)
            .returns::<ControlOutcome>()
            .optional_body::<TriggerInput>(),
    ]
}

async fn list(call: Call) -> Answer {
    no_query(&call)?;
    let mut schedules = Schedules::read(call.operator()).await?;
    let scope = &call.principal.scope;
    schedules.schedules.retain(|row| scope.has_job(&row.view.schedule.kind.kind, &row.view.schedule.queue));
    Reply::json_at(&schedules, schedules.now)
}

/// The schedule that the path names, if it may be seen.
async fn find(call: &Call, limit: usize) -> Result<ScheduleDetails, Error> {
    let name = call.path("name");
    let details = ScheduleDetails::read(call.operator(), name, limit).await?;
    let scope = &call.principal.scope;
    details
        .filter(|details| {
            let schedule = &details.row.view.schedule;
            scope.has_job(&schedule.kind.kind, &schedule.queue)
        })
        .ok_or_else(|| {
            let message = format!("there is no schedule {name:?}");
            Error::new(ErrorKind::NotFound, message, "GET /v1/schedules lists them")
        })
}

input! {
    /// How much of a schedule to show.
    ShowQuery {
        /// At most this many firings and misses, from 1 to 1,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn show(call: Call) -> Answer {
    let ShowQuery { limit } = call.query()?;
    let details = find(&call, page_limit(limit)?).await?;
    Reply::json_at(&details, details.now)
}

input! {
    /// A schedule.
    ScheduleInput {
        /// When it fires.
        calendar: Parsed<Calendar>,
        /// The kind of its jobs.
        kind: String,
        /// The version of the kind [default: the newest that the server knows, or 1].
        version: Option<i32>,
        /// The input of its jobs: any JSON [default: null].
        input: Option<Value>,
        /// Their queue [default: that of the kind].
        queue: Option<String>,
        /// What a tick does while the job of the previous tick has not ended [default: skip].
        overlap: Option<Parsed<Overlap>>,
        /// What happens to ticks that passed while no worker ran [default: one].
        catch_up: Option<Parsed<CatchUp>>,
        /// From -100 (most urgent) to 100 (least urgent) [default: 0].
        priority: Option<i16>,
        /// Tags of the jobs.
        tags: Option<Vec<String>>,
        /// The number of attempts in total [default: the kind's].
        attempts: Option<u32>,
        /// How long one attempt may run [default: the kind's].
        timeout: Option<Span>,
        /// The serial key of the jobs.
        serial: Option<SerialInput>,
        /// The rate limit that the jobs start under.
        rate: Option<RateInput>,
        /// Accept an input that the server's own code of the kind cannot decode [default: false].
        any_input: Option<bool>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn set(call: Call) -> Answer {
    no_query(&call)?;
    // The schedule of this name may be one of another kind or queue.
    call.principal.check_unlimited("schedules")?;
    let input: ScheduleInput = call.body()?;
    let kind = &input.kind;
    let known =
        call.engine().kinds().into_iter().filter(|known| known.kind == *kind).map(|known| known.version);
    let version = input.version.unwrap_or_else(|| known.max().unwrap_or(1));
    let payload = input.input.unwrap_or_default();
    let attempts = super::attempts(input.attempts)?;
    let (name, calendar) = (call.path("name"), input.calendar.0);
    let mut schedule = call
        .engine()
        .schedule_json(name, calendar, kind, version, &payload)
        .priority(input.priority.unwrap_or(0))
        .by(&call.principal.author)
        .settings(|settings| {
            settings.retry = attempts;
            settings.timeout = input.timeout.map(|span| span.0);
            settings.serial = input.serial.map(|serial| Box::new(serial.into_serial()));
            settings.rate = input.rate.map(|rate| Box::new(rate.into_charge()));
        });
    if input.any_input == Some(true) {
        schedule = schedule.unchecked();
    }
    if let Some(overlap) = input.overlap {
        schedule = schedule.overlap(overlap.0);
    }
    if let Some(catch_up) = input.catch_up {
        schedule = schedule.catch_up(catch_up.0);
    }
    if let Some(queue) = input.queue {
        schedule = schedule.queue(queue);
    }
    for tag in input.tags.unwrap_or_default() {
        schedule = schedule.tag(tag);
    }
    if let Some(note) = input.note {
        schedule = schedule.note(note);
    }
    let outcome = match schedule.await? {
        true => ControlOutcome::Done,
        false => ControlOutcome::Already("it is so already".into()),
    };
    Reply::json_at(&outcome, call.engine().inspect().clock().await?)
}

async fn administer(call: Call, action: fn(String) -> AdminAction) -> Answer {
    no_query(&call)?;
    let NoteInput { note } = call.optional_body()?;
    let name = find(&call, 1).await?.row.view.schedule.name;
    let subject = format!("schedule {name:?}");
    let outcome = call.control(note).administer(&action(name)).await?;
    Reply::json(&accepted(outcome, &subject)?)
}

async fn drop_schedule(call: Call) -> Answer {
    administer(call, AdminAction::DropSchedule).await
}

async fn pause(call: Call) -> Answer {
    administer(call, AdminAction::PauseSchedule).await
}

async fn resume(call: Call) -> Answer {
    administer(call, AdminAction::ResumeSchedule).await
}

input! {
    /// Once or again.
    TriggerInput {
        /// Drawn by the client, a UUID of version 7: a repeat with the same id submits no other job. The id of the job is made of it.
        id: Option<JobId>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn trigger(call: Call) -> Answer {
    no_query(&call)?;
    let TriggerInput { id, note } = call.optional_body()?;
    let name = find(&call, 1).await?.row.view.schedule.name;
    let control = call.control(note);
    let outcome = match id {
        Some(id) => control.trigger_once(&name, id).await?,
        None => control.trigger(&name).await?,
    };
    Reply::json(&accepted(outcome, &format!("schedule {name:?}"))?)
}
