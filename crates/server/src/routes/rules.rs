//! Rate limits and serial keys.

use axum::http::Method;
use serde_json::json;
use windlass::{
    ControlOutcome, RateLimit,
    operate::views::{RateLimits, SerialKeys},
    store::{AdminAction, LimitView},
};

use super::{ACT, Answer, NoteInput, READ, Route, jobs::no_query, limit_up_to};
use crate::{
    answers::SerialKeyList,
    call::Call,
    error::accepted,
    input::{Span, input},
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    let lift_what = "Lift a rate limit: its jobs start without paying until it is set again";
    vec![
        Route::new(
            Method::GET,
            "/v1/limits",
            READ,
            "listLimits",
            "The rate limits, and how many jobs wait for them",
            limits,
        )
        .returns::<Vec<LimitView>>()
        .answers("The limits, by name"),
        Route::new(
            Method::PUT,
            "/v1/limits/{name}",
            ACT,
            "setLimit",
            "Create or change a rate limit",
            set_limit,
        )
        .returns::<ControlOutcome>()
        .body::<LimitInput>(),
        Route::new(Method::POST, "/v1/limits/{name}/lift", ACT, "liftLimit", lift_what, lift_limit)
            .returns::<ControlOutcome>()
            .optional_body::<NoteInput>(),
        Route::new(
            Method::GET,
            "/v1/serial-keys",
            READ,
            "listSerialKeys",
            "Serial keys that jobs hold or wait for",
            serial_keys,
        )
        .returns::<SerialKeyList>()
        .query::<SerialQuery>()
        .answers("The keys, and whether there may be more"),
        Route::new(
            Method::PUT,
            "/v1/serial-keys/{key}",
            ACT,
            "setSlots",
            "Set how many jobs of a serial key run at once",
            set_slots,
        )
        .returns::<ControlOutcome>()
        .body::<SlotsInput>(),
    ]
}

async fn limits(call: Call) -> Answer {
    no_query(&call)?;
    call.principal.check_unlimited("rate limits")?;
    Reply::json(&RateLimits::read(call.operator()).await?)
}

async fn administer(call: &Call, action: AdminAction, note: Option<String>, subject: &str) -> Answer {
    no_query(call)?;
    call.principal.check_unlimited("rate limits and serial keys")?;
    let outcome = call.control(note).administer(&action).await?;
    Reply::json(&accepted(outcome, subject)?)
}

input! {
    /// A rate limit.
    LimitInput {
        /// How many tokens it gains per `per`.
        rate: u32,
        /// The span [default: 1s].
        per: Option<Span>,
        /// The most tokens that it keeps [default: the rate].
        burst: Option<u32>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn set_limit(call: Call) -> Answer {
    let LimitInput { rate, per, burst, note } = call.body()?;
    let per = per.map_or(std::time::Duration::from_secs(1), |span| span.0);
    let limit = RateLimit { burst: burst.unwrap_or(rate), ..RateLimit::per(call.path("name"), rate, per) };
    limit.check().map_err(windlass::Error::from)?;
    administer(&call, AdminAction::Limit(limit), note, "such limit").await
}

async fn lift_limit(call: Call) -> Answer {
    let NoteInput { note } = call.optional_body()?;
    let name = call.path("name").to_owned();
    administer(&call, AdminAction::Lift(name.clone()), note, &format!("limit {name:?}")).await
}

input! {
    /// Which serial keys to list.
    SerialQuery {
        /// Only this one.
        key: Option<String>,
        /// At most this many, from 1 to 10,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn serial_keys(call: Call) -> Answer {
    let SerialQuery { key, limit } = call.query()?;
    call.principal.check_unlimited("serial keys")?;
    let SerialKeys { keys, has_more } =
        SerialKeys::read(call.operator(), key.as_deref(), limit_up_to(limit, 10_000)?).await?;
    Reply::json(&json!({ "keys": keys, "has_more": has_more }))
}

input! {
    /// The slots of a serial key.
    SlotsInput {
        /// How many jobs run at once.
        slots: u32,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn set_slots(call: Call) -> Answer {
    let SlotsInput { slots, note } = call.body()?;
    let key = call.path("key").to_owned();
    administer(&call, AdminAction::Slots { key, slots }, note, "such key").await
}
