//! Queues, their gates, and workers.

use axum::http::Method;
use serde_json::{Map, Value, json};
use windlass::{
    ControlOutcome,
    model::Permission,
    operate::views::{QueueRow, Queues},
    store::{AdminAction, WorkerView},
};

use super::{ACT, Access, Answer, NoteInput, READ, Route, jobs::no_query};
use crate::{
    answers::GateVersions,
    call::Call,
    error::{Error, accepted},
    input::input,
    reply::Reply,
};

/// The most gates that one request reads.
const MAX_GATES: usize = 1_000;

pub(super) fn routes() -> Vec<Route> {
    let gates_what = "The versions of queues' gates: a version changes when jobs of the queue may have become ready. One small read";
    let gates_access = Access::Needs(Permission::Gates);
    vec![
        Route::new(
            Method::GET,
            "/v1/queues",
            READ,
            "listQueues",
            "The queues, and how many jobs are in each",
            list,
        )
        .returns::<Vec<QueueRow>>()
        .answers("The queues, by name"),
        Route::new(Method::POST, "/v1/queues/{queue}/pause", ACT, "pauseQueue", "Pause a queue", pause)
            .returns::<ControlOutcome>()
            .optional_body::<NoteInput>(),
        Route::new(
            Method::POST,
            "/v1/queues/{queue}/resume",
            ACT,
            "resumeQueue",
            "Resume a paused queue",
            resume,
        )
        .returns::<ControlOutcome>()
        .optional_body::<NoteInput>(),
        Route::new(Method::GET, "/v1/gates", gates_access, "gates", gates_what, gates)
            .returns::<GateVersions>()
            .query::<GatesQuery>()
            .answers("The version of each queue's gate, by name"),
        Route::new(
            Method::GET,
            "/v1/workers",
            READ,
            "listWorkers",
            "Workers that serve or were lost lately",
            workers,
        )
        .returns::<Vec<WorkerView>>()
        .answers("The workers"),
    ]
}

async fn list(call: Call) -> Answer {
    no_query(&call)?;
    let scope = &call.principal.scope;
    if !scope.kinds.is_empty() {
        call.principal.check_unlimited("queues")?;
    }
    let mut queues = Queues::read(call.operator()).await?;
    queues.queues.retain(|queue| scope.has_queue(&queue.name));
    Reply::json_at(&queues, queues.now)
}

async fn set(call: Call, action: fn(String) -> AdminAction) -> Answer {
    no_query(&call)?;
    let NoteInput { note } = call.optional_body()?;
    let queue = call.path("queue").to_owned();
    call.principal.check_queue(&queue)?;
    let outcome = call.control(note).administer(&action(queue.clone())).await?;
    Reply::json(&accepted(outcome, &format!("queue {queue:?}"))?)
}

async fn pause(call: Call) -> Answer {
    set(call, AdminAction::PauseQueue).await
}

async fn resume(call: Call) -> Answer {
    set(call, AdminAction::ResumeQueue).await
}

input! {
    /// Which gates to read.
    GatesQuery {
        /// The queues, separated by commas.
        queue: String,
    }
}

async fn gates(call: Call) -> Answer {
    let GatesQuery { queue } = call.query()?;
    let queues: Vec<String> = queue.split(',').filter(|name| !name.is_empty()).map(String::from).collect();
    if queues.is_empty() || queues.len() > MAX_GATES {
        let message = format!("{} queues are named, and it must be from 1 to {MAX_GATES}", queues.len());
        return Err(Error::invalid(message, "write them as queue=a,b"));
    }
    if let Some(other) = queues.iter().find(|queue| !call.principal.scope.has_gate(queue)) {
        let message = format!("this token is limited to other queues than {other:?}");
        return Err(crate::access::forbidden(message, "leave it out"));
    }
    let versions = call.engine().store().gates(&queues).await?;
    let gates: Map<String, Value> =
        queues.into_iter().zip(versions).map(|(queue, version)| (queue, version.into())).collect();
    Reply::json(&json!({ "gates": gates }))
}

async fn workers(call: Call) -> Answer {
    no_query(&call)?;
    call.principal.check_unlimited("workers")?;
    Reply::json(&call.engine().inspect().workers().await?)
}
