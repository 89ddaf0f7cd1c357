//! One action on all jobs that match a filter.

use std::time::Instant;

use axum::http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use windlass::operate::{BulkProgress, GRACE, JobAction, Preview};

use super::{ACT, Answer, FilterInput, Route};
use crate::{
    call::Call,
    error::{Error, ErrorKind},
    input::{Described, Span, input},
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    let what = "Cancel, retry, pause, resume or reprioritise all jobs that match a filter; with `dry_run` only count them";
    vec![
        Route::new(Method::POST, "/v1/jobs/bulk", ACT, "bulk", what, bulk)
            .body::<BulkInput>()
            .answers("How many jobs were changed; `interrupted` if it must be repeated for the rest. With `dry_run`: how many match, and some of them")
            .waits(),
    ]
}

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

async fn bulk(call: Call) -> Answer {
    super::jobs::no_query(&call)?;
    let BulkInput { action, filter, all, dry_run, rate, priority, grace, note } = call.body()?;
    if filter.is_empty() != all.unwrap_or(false) {
        let message = "every job is meant by an empty filter together with `all`, and by nothing else";
        return Err(Error::invalid(message, "add a condition to the filter, or set `all`, not both"));
    }
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
        let limit = call.shared.settings.request_timeout;
        let Ok(preview) = tokio::time::timeout(limit, bulk.preview()).await else {
            let message = format!("counting took longer than {limit:?}");
            return Err(Error::new(ErrorKind::Timeout, message, "add a condition to the filter"));
        };
        let Preview { matching, at_least, sample } = preview?;
        return Reply::json(&json!({ "matching": matching, "at_least": at_least, "sample": sample }));
    }
    let bulk = match rate {
        Some(rate) => bulk.per_second(rate),
        None => bulk,
    };
    let deadline = Deadline::new(&call);
    let BulkProgress { seen, done, cancel_requested, already, refused, interrupted } =
        bulk.run(move |_| !deadline.is_over()).await?;
    Reply::json(&json!({
        "seen": seen, "done": done, "cancel_requested": cancel_requested, "unchanged": already, "refused": refused,
        "interrupted": interrupted,
    }))
}

/// When work in batches must stop: a little before the request takes too long, or when the server stops.
pub(super) struct Deadline {
    at: Instant,
    stopping: watch::Receiver<bool>,
}

impl Deadline {
    pub(super) fn new(call: &Call) -> Deadline {
        // The last batch and the answer take time too.
        let time = call.shared.settings.request_timeout.mul_f64(0.8);
        Deadline { at: Instant::now() + time, stopping: call.shared.stopping.clone() }
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.at || *self.stopping.borrow()
    }
}
