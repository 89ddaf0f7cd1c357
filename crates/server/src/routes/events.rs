//! The stream of events.

use axum::http::Method;
use windlass::{JobId, model::Permission};

use super::{Access, Answer, Route};
use crate::{
    call::Call,
    error::Error,
    events::{Interest, MAX_JOBS, stream},
    input::input,
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    let what = "A stream of server-sent events: `gate` when jobs of a queue may have become ready, `job` when a job has ended";
    vec![
        Route::new(Method::GET, "/v1/events", Access::Needs(Permission::Read), "events", what, events)
            .query::<EventsQuery>()
            .answers("Events. `Last-Event-ID` resumes; `reset` says that events were missed, `dropped` that the client reads too slowly")
            .untagged(),
    ]
}

input! {
    /// Which events to receive.
    EventsQuery {
        /// Gates of these queues, separated by commas [default: of all; of those that the token is limited to; none with a token of some
        /// kinds].
        queue: Option<String>,
        /// Ends of these jobs, separated by commas: ids, kind/key or keys, at most 100.
        job: Option<String>,
    }
}

async fn events(call: Call) -> Answer {
    let EventsQuery { queue, job } = call.query()?;
    let list = |text: Option<String>| -> Option<Vec<String>> {
        Some(text?.split(',').filter(|name| !name.is_empty()).map(String::from).collect())
    };
    let (queues, names) = (list(queue), list(job).unwrap_or_default());
    if names.len() > MAX_JOBS {
        let message = format!("the request names {} jobs; at most {MAX_JOBS} are allowed", names.len());
        return Err(Error::invalid(message, "open several streams"));
    }
    let scope = &call.principal.scope;
    if let Some(other) = queues.iter().flatten().find(|queue| !scope.has_gate(queue)) {
        let message = format!("this token is limited to other queues than {other:?}");
        return Err(crate::access::forbidden(message, "leave it out"));
    }
    let queues = match queues {
        None if !scope.queues.is_empty() => Some(scope.queues.clone()),
        // The names of all queues are not for a token of some kinds: it names those that it knows.
        None if !scope.is_unlimited() => Some(Vec::new()),
        queues => queues,
    };
    let mut jobs: Vec<JobId> = Vec::new();
    for name in names {
        jobs.push(call.find(&name).await?.summary.id);
    }
    let permit = call.start_waiting()?;
    let last_id = call.headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(String::from);
    Ok(Reply::Stream(stream(&call.shared.events, Interest { queues, jobs }, last_id, permit)?))
}
