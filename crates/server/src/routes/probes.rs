//! For whoever watches the server: probes, metrics, and the API description.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;

use super::{Access, Answer, READ, Route};
use crate::{
    answers::Health,
    call::Call,
    error::{Error, ErrorKind},
    openapi,
    reply::Reply,
};

/// How long the store may take to answer a probe.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<Route> {
    let (get, probe) = (Method::GET, Access::Probe);
    let ready_when = "Whether the store answers and the server is not stopping";
    let metrics_of = "The metrics of the store and of the worker in this process";
    vec![
        Route::new(get.clone(), "/healthz", probe, "health", "Whether the process lives", health)
            .returns::<Health>(),
        Route::new(get.clone(), "/readyz", probe, "ready", ready_when, ready).returns::<Health>(),
        Route::new(get.clone(), "/metrics", READ, "metrics", metrics_of, metrics)
            .answers("Text in the format of Prometheus")
            .untagged(),
        Route::new(get, "/openapi.json", Access::Open, "openapi", "This description", description)
            .returns::<serde_json::Map<String, serde_json::Value>>()
            .answers("OpenAPI 3.1"),
    ]
}

async fn health(_call: Call) -> Answer {
    Reply::json(&json!({ "status": "ok" }))
}

async fn ready(call: Call) -> Answer {
    let unready = |message: &str, hint: &str| Err(Error::new(ErrorKind::Unavailable, message, hint));
    if *call.shared.stopping.borrow() {
        return unready("the server is stopping", "use another one");
    }
    match tokio::time::timeout(STORE_TIMEOUT, call.engine().inspect().clock()).await {
        Ok(Ok(_)) => Reply::json(&json!({ "status": "ok" })),
        _ => unready("the store does not answer", "see the server's log; it keeps trying"),
    }
}

async fn metrics(call: Call) -> Answer {
    call.principal.check_unlimited("metrics")?;
    Ok(Reply::Text("text/plain; version=0.0.4; charset=utf-8", call.engine().metrics().await))
}

async fn description(_call: Call) -> Answer {
    Reply::json(&openapi::document())
}
