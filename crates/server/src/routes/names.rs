//! Names: the job that a name means, and the kinds that this server knows.

use axum::http::Method;
use serde_json::json;
use windlass::{
    model::{KindVersion, limits::RESERVED_PREFIX},
    operate::Found,
};

use super::{Answer, READ, Route, jobs::no_query};
use crate::{answers::FoundName, call::Call, input::input, reply::Reply};

pub(super) fn routes() -> Vec<Route> {
    let find_what =
        "The job that a name means: its id, kind/key, its key, or its name as a child of a branch";
    let kinds_what = "The kinds whose code this server has: their inputs are checked at the submit. Other workers may serve others";
    vec![
        Route::new(Method::GET, "/v1/find", READ, "find", find_what, find)
            .returns::<FoundName>()
            .query::<FindQuery>()
            .answers("`job`, the id; or `item`, if it is a child that is packed into a block with others"),
        Route::new(Method::GET, "/v1/kinds", READ, "listKinds", kinds_what, kinds)
            .returns::<Vec<KindVersion>>()
            .answers("The kinds with their versions, by name"),
    ]
}

input! {
    /// What to find.
    FindQuery {
        /// The name.
        name: String,
    }
}

async fn find(call: Call) -> Answer {
    let FindQuery { name } = call.query()?;
    if !call.principal.scope.is_unlimited() {
        return Reply::json(&json!({ "job": call.find(&name).await?.summary.id }));
    }
    Reply::json(&match call.operator().find(&name).await? {
        Found::Job(id) => json!({ "job": id }),
        Found::Packed(item) => json!({ "item": item }),
    })
}

async fn kinds(call: Call) -> Answer {
    no_query(&call)?;
    let allowed = &call.principal.scope.kinds;
    let is_allowed = |kind: &KindVersion| {
        // The engine's own are submitted by nobody.
        !kind.kind.starts_with(RESERVED_PREFIX) && (allowed.is_empty() || allowed.contains(&kind.kind))
    };
    let kinds: Vec<KindVersion> = call.engine().kinds().into_iter().filter(is_allowed).collect();
    Reply::json(&kinds)
}
