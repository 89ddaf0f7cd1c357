//! One action on all jobs that match a filter, and forks of all.

use std::future::Future;

use axum::http::Method;
use serde_json::{Value, json};
use windlass::{
    Filter, JobId,
    operate::{BulkProgress, ForkPoint, ForkProgress, GRACE, JobAction, Preview},
};

use super::{ACT, Answer, Route, filter::FilterInput};
use crate::{
    answers::Either,
    call::Call,
    error::{Error, ErrorKind},
    input::{Described, Span, input},
    progress,
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    let what = "Cancel, retry, pause, resume or reprioritise all jobs that match a filter; with `dry_run` only count them";
    vec![
        Route::new(Method::POST, "/v1/jobs/bulk", ACT, "bulk", what, bulk)
            .returns::<Either<BulkProgress, Preview>>()
            .body::<BulkInput>()
            .answers(BULK_ANSWER)
            .progresses(),
        Route::new(
            Method::POST,
            "/v1/forks",
            ACT,
            "forkMany",
            "Start a new job from part of the journal of each job that matches a filter",
            fork_many,
        )
        .returns::<Either<ForkProgress, Preview>>()
        .body::<ForksInput>()
        .answers("The new jobs. With `dry_run`: how many match, and some of them")
        .progresses(),
    ]
}

const BULK_ANSWER: &str = "How many jobs were changed; if it was `interrupted`, repeat it with `next_before` as the filter's `before`. With `dry_run`: how many match, and some of them";

/// What is done to each job.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Cancel,
    Retry,
    Pause,
    Resume,
    Priority,
}

impl Described for Action {
    fn schema() -> Value {
        json!({ "type": "string", "enum": ["cancel", "retry", "pause", "resume", "priority"] })
    }
}

input! {
    /// An action on many jobs.
    BulkInput {
        /// What to do.
        action: Action,
        /// Which jobs. An empty filter needs `all`.
        filter: FilterInput,
        /// Whether every job is meant: needed if the filter is empty.
        all: Option<bool>,
        /// Only count the jobs [default: false].
        dry_run: Option<bool>,
        /// At most this many per second.
        rate: Option<u32>,
        /// For `priority`: the priority.
        priority: Option<i16>,
        /// For `cancel`: how long a running attempt may take to end [default: 10s].
        grace: Option<Span>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

/// Refuses a filter that means every job by mistake.
fn check_all(filter: &FilterInput, all: Option<bool>) -> Result<(), Error> {
    if filter.is_empty() == all.unwrap_or(false) {
        return Ok(());
    }
    let message = "every job is meant by an empty filter together with `all`, and by nothing else";
    Err(Error::invalid(message, "add a condition to the filter, or set `all`, not both"))
}

async fn bulk(call: Call) -> Answer {
    super::jobs::no_query(&call)?;
    let BulkInput { action, filter, all, dry_run, rate, priority, grace, note } = call.body()?;
    check_all(&filter, all)?;
    let action = match (action, priority, grace) {
        (Action::Cancel, None, grace) => JobAction::Cancel { grace: grace.map_or(GRACE, |span| span.0) },
        (Action::Priority, Some(priority), None) => JobAction::Priority(priority),
        (Action::Retry, None, None) => JobAction::Retry,
        (Action::Pause, None, None) => JobAction::Pause,
        (Action::Resume, None, None) => JobAction::Resume,
        _ => {
            let message = "`priority` belongs to the action priority, and `grace` to cancel";
            return Err(Error::invalid(message, "leave the other out"));
        }
    };
    let filter = call.principal.limit(filter.into_filter(0))?;
    let bulk = call.control(note).bulk(filter, action);
    if dry_run == Some(true) {
        return preview(&call, bulk.preview()).await;
    }
    let bulk = match rate {
        Some(rate) => bulk.per_second(rate),
        None => bulk,
    };
    progress::run(&call, |on_progress| bulk.run(on_progress)).await
}

/// Counts jobs, as long as a request may take.
async fn preview(call: &Call, counting: impl Future<Output = Result<Preview, windlass::Error>>) -> Answer {
    call.permit.limits_itself();
    let limit = call.shared.settings.request_timeout;
    let Ok(preview) = tokio::time::timeout(limit, counting).await else {
        let message = format!("counting took longer than {limit:?}");
        return Err(Error::new(ErrorKind::Timeout, message, "add a condition to the filter"));
    };
    let preview = preview?;
    Reply::json_at(&preview, preview.now)
}

input! {
    /// Forks of many jobs. Without `before`, `before_entry` and `from_beginning` they start at the ends of the journals.
    ForksInput {
        /// Drawn by the client, a UUID of version 7: a repeat with the same id makes no second fork of a job, and leaves jobs alone that were
        /// submitted after it was drawn. The ids of the new jobs are made of it.
        id: Option<JobId>,
        /// Which jobs. An empty filter needs `all`.
        filter: FilterInput,
        /// Whether every job is meant: needed if the filter is empty.
        all: Option<bool>,
        /// Only count the jobs [default: false].
        dry_run: Option<bool>,
        /// At the call of this name, which runs again.
        before: Option<String>,
        /// With `before`: the call with this key.
        step_key: Option<String>,
        /// At this entry of the journal, which is not copied.
        before_entry: Option<i32>,
        /// At the beginning.
        from_beginning: Option<bool>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn fork_many(call: Call) -> Answer {
    super::jobs::no_query(&call)?;
    let ForksInput { id, filter, all, dry_run, before, step_key, before_entry, from_beginning, note } =
        call.body()?;
    check_all(&filter, all)?;
    let filter: Filter = call.principal.limit(filter.into_filter(0))?;
    let fork = call.control(note).fork().at(fork_point(before, step_key, before_entry, from_beginning)?);
    let fork = match id {
        Some(id) => fork.request(id),
        None => fork,
    };
    if dry_run == Some(true) {
        return preview(&call, fork.preview(&filter)).await;
    }
    progress::run(&call, |on_progress| async move { fork.each(filter, on_progress).await }).await
}

/// Where a fork starts; at most one place may be given.
pub(super) fn fork_point(
    before: Option<String>,
    step_key: Option<String>,
    before_entry: Option<i32>,
    from_beginning: Option<bool>,
) -> Result<ForkPoint, Error> {
    Ok(match (before, step_key, before_entry, from_beginning.unwrap_or(false)) {
        (None, None, None, false) => ForkPoint::End,
        (Some(name), key, None, false) => ForkPoint::Call { name, key },
        (None, None, Some(seq), false) => ForkPoint::Entry(seq),
        (None, None, None, true) => ForkPoint::Beginning,
        _ => {
            let message = "the start of the fork is given in several ways";
            return Err(Error::invalid(
                message,
                "use one of before, before_entry and from_beginning; step_key needs before",
            ));
        }
    })
}
