//! Diagrams of what machines and workflows did.

use axum::http::Method;
use windlass::operate::diagram::{JobDiagram, KindDiagrams};

use super::{Answer, READ, Route, jobs::no_query, limit_up_to};
use crate::{call::Call, input::input, reply::Reply};

/// The most jobs of a kind that one request reads.
const MOST_JOBS: u32 = 100_000;

pub(super) fn routes() -> Vec<Route> {
    let job_what = "The transitions of a machine, or the calls of a workflow, as a graph";
    let kind_what = "The transitions of the machines of a kind, or the calls of its workflows, as a graph for each version";
    vec![
        Route::new(Method::GET, "/v1/jobs/{job}/diagram", READ, "diagram", job_what, of_job)
            .returns::<JobDiagram>()
            .answers("`machine` or `workflow`; neither for a task, or a job that has not started"),
        Route::new(Method::GET, "/v1/diagrams", READ, "kindDiagrams", kind_what, of_kind)
            .returns::<KindDiagrams>()
            .query::<DiagramsQuery>()
            .answers("`machines` or `workflows`, by version"),
    ]
}

async fn of_job(call: Call) -> Answer {
    no_query(&call)?;
    let id = call.job_id().await?;
    let diagram = JobDiagram::read(call.operator(), id).await?;
    Reply::json(&diagram.ok_or(windlass::Error::NoSuchJob(id))?)
}

input! {
    /// Of which jobs.
    DiagramsQuery {
        /// Their kind.
        kind: String,
        /// Only this version.
        version: Option<i32>,
        /// Read this many of the newest jobs [default: 1000 machines, 200 workflows].
        limit: Option<u32>,
    }
}

async fn of_kind(call: Call) -> Answer {
    let DiagramsQuery { kind, version, limit } = call.query()?;
    call.principal.check_kind(&kind)?;
    let limit = limit.map(|limit| limit_up_to(Some(limit), MOST_JOBS)).transpose()?;
    Reply::json(&KindDiagrams::read(call.operator(), &kind, version, limit).await?)
}
