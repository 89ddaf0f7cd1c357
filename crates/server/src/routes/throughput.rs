//! What ended, and how long jobs waited and ran; how long waits for signals take.

use std::time::Duration;

use axum::http::Method;
use windlass::{
    operate::views::{MAX_SPAN, SignalWaitsRow, SignalWaitsView, ThroughputRequest, ThroughputView},
    store::ThroughputBy,
};

use super::{Answer, READ, Route};
use crate::{
    call::Call,
    error::Error,
    input::{Parsed, Span, input},
    reply::Reply,
};

/// The span of the throughput that is answered by default.
const HOUR: Duration = Duration::from_secs(3_600);
/// That of waits for signals.
const MONTH: Duration = Duration::from_secs(30 * 86_400);

pub(super) fn routes() -> Vec<Route> {
    let throughput_what = "What ended, by minute, hour or kind, and how long jobs waited and ran";
    let waits_what = "How long jobs waited for signals, by kind and signal";
    vec![
        Route::new(Method::GET, "/v1/throughput", READ, "throughput", throughput_what, throughput)
            .returns::<ThroughputView>()
            .query::<ThroughputQuery>()
            .answers("A row for each minute, hour or kind in which something ended, and the total"),
        Route::new(Method::GET, "/v1/signal-waits", READ, "signalWaits", waits_what, signal_waits)
            .returns::<Vec<SignalWaitsRow>>()
            .query::<SignalWaitsQuery>()
            .answers("The waits, by kind and signal"),
    ]
}

input! {
    /// Which throughput to show.
    ThroughputQuery {
        /// Only of these queues, separated by commas.
        queue: Option<String>,
        /// Only of these kinds, separated by commas.
        kind: Option<String>,
        /// How long ago it begins; at most 366 days [default: 1h].
        since: Option<Span>,
        /// What a row sums up [default: minute].
        by: Option<Parsed<ThroughputBy>>,
    }
}

async fn throughput(call: Call) -> Answer {
    let ThroughputQuery { queue, kind, since, by } = call.query()?;
    let scope = &call.principal.scope;
    let request = ThroughputRequest {
        queues: within(&scope.queues, list(queue), "queue")?,
        kinds: within(&scope.kinds, list(kind), "kind")?,
        since: span(since, HOUR)?,
        by: by.map_or(ThroughputBy::Minute, |by| by.0),
    };
    Reply::json(&ThroughputView::read(call.operator(), &request).await?)
}

input! {
    /// Which waits to show.
    SignalWaitsQuery {
        /// Only of jobs of these kinds, separated by commas.
        kind: Option<String>,
        /// Only for this signal.
        signal: Option<String>,
        /// How long ago the waits ended at most, to the day; at most 366 days [default: 30d].
        since: Option<Span>,
    }
}

async fn signal_waits(call: Call) -> Answer {
    let SignalWaitsQuery { kind, signal, since } = call.query()?;
    if !call.principal.scope.queues.is_empty() {
        call.principal.check_unlimited("waits")?;
    }
    let kinds = within(&call.principal.scope.kinds, list(kind), "kind")?;
    let since = span(since, MONTH)?;
    Reply::json(&SignalWaitsView::read(call.operator(), kinds, signal, since).await?)
}

fn list(names: Option<String>) -> Vec<String> {
    let names = names.unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The names that are asked for, or all that the token is limited to.
fn within(allowed: &[String], asked: Vec<String>, what: &str) -> Result<Vec<String>, Error> {
    match asked.iter().find(|name| !allowed.is_empty() && !allowed.contains(name)) {
        Some(name) => {
            let message = format!("this token is limited to another {what} than {name:?}");
            Err(crate::access::forbidden(message, "leave it out"))
        }
        None if asked.is_empty() => Ok(allowed.to_vec()),
        None => Ok(asked),
    }
}

fn span(asked: Option<Span>, default: Duration) -> Result<Duration, Error> {
    match asked.map_or(default, |span| span.0) {
        span if span.is_zero() || span > MAX_SPAN => {
            Err(Error::invalid("`since` is not between 1us and 366d", "write it as 1h or 7d"))
        }
        span => Ok(span),
    }
}
