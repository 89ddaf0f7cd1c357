//! Alerts: what rules find wrong, which rules there are, and muting them.

use axum::http::{Method, StatusCode};
use windlass::{
    ControlOutcome,
    operate::alerts::{AlertsView, Rule, RuleView},
};

use super::{ACT, Answer, READ, Route, jobs::no_query, page_limit};
use crate::{
    alerts::link,
    call::Call,
    error::accepted,
    input::{Span, input},
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    let list_what = "Alerts: what rules find wrong, what fires first, then what was resolved";
    let test_what = "Post a test message to the webhook of an alert rule, by a job";
    vec![
        Route::new(Method::GET, "/v1/alerts", READ, "listAlerts", list_what, list)
            .returns::<AlertsView>()
            .query::<AlertsQuery>()
            .answers("`alerts`, and `mutes`, the mutes that have not ended"),
        Route::new(
            Method::GET,
            "/v1/alerts/rules",
            READ,
            "listAlertRules",
            "The alert rules that this server evaluates",
            rules,
        )
        .returns::<Vec<RuleView>>()
        .answers("The rules, in the order of the settings"),
        Route::new(
            Method::POST,
            "/v1/alerts/mute",
            ACT,
            "muteAlerts",
            "Post no messages about an alert rule, or about one subject of it, for a while",
            mute,
        )
        .returns::<ControlOutcome>()
        .body::<MuteInput>(),
        Route::new(
            Method::POST,
            "/v1/alerts/unmute",
            ACT,
            "unmuteAlerts",
            "End a mute: messages that were due meanwhile are posted if they are still true",
            unmute,
        )
        .returns::<ControlOutcome>()
        .body::<UnmuteInput>(),
        Route::new(Method::POST, "/v1/alerts/test", ACT, "testAlert", test_what, test)
            .returns::<ControlOutcome>()
            .also_returns::<ControlOutcome>(StatusCode::CREATED, "The job is submitted")
            .body::<TestInput>()
            .answers("The outcome `created`, with the job; its result says whether the message arrived"),
    ]
}

/// The rules of this server.
fn known(call: &Call) -> &[Rule] {
    call.shared.settings.alerts.as_ref().map_or(&[], |alerts| &alerts.rules)
}

fn no_such_rule(name: &str) -> String {
    format!("alert rule {name:?}")
}

input! {
    /// Which alerts to list.
    AlertsQuery {
        /// Only those that are not resolved.
        open: Option<bool>,
        /// At most this many, from 1 to 1,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn list(call: Call) -> Answer {
    let AlertsQuery { open, limit } = call.query()?;
    call.principal.check_unlimited("alerts")?;
    let view = AlertsView::read(call.operator(), page_limit(limit)?, open.unwrap_or(false)).await?;
    Reply::json_at(&view, view.now)
}

async fn rules(call: Call) -> Answer {
    no_query(&call)?;
    call.principal.check_unlimited("alert rules")?;
    let rules: Vec<RuleView> = known(&call).iter().map(RuleView::from).collect();
    Reply::json(&rules)
}

input! {
    /// What to mute.
    MuteInput {
        /// The rule.
        rule: String,
        /// Only this subject of it [default: all].
        subject: Option<String>,
        /// For how long [default: until it is unmuted].
        expires_in: Option<Span>,
        /// The reason, for the audit log and for people who see the alert.
        note: Option<String>,
    }
}

async fn mute(call: Call) -> Answer {
    no_query(&call)?;
    let MuteInput { rule, subject, expires_in, note } = call.body()?;
    call.principal.check_unlimited("alerts")?;
    let span = expires_in.map(|span| span.0);
    let muting = call.control(note).mute_alerts(known(&call), &rule, subject.as_deref(), span).await?;
    Reply::json(&accepted(muting, &no_such_rule(&rule))?)
}

input! {
    /// What to unmute.
    UnmuteInput {
        /// The rule.
        rule: String,
        /// The subject of it that was muted [default: the mute of all of them].
        subject: Option<String>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn unmute(call: Call) -> Answer {
    no_query(&call)?;
    let UnmuteInput { rule, subject, note } = call.body()?;
    call.principal.check_unlimited("alerts")?;
    let outcome = call.control(note).unmute_alerts(&rule, subject.as_deref()).await?;
    Reply::json(&accepted(outcome, &no_such_rule(&rule))?)
}

input! {
    /// Which rule to test.
    TestInput {
        /// The rule.
        rule: String,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn test(call: Call) -> Answer {
    no_query(&call)?;
    let TestInput { rule, note } = call.body()?;
    call.principal.check_unlimited("alerts")?;
    let found = known(&call).iter().find(|known| known.name == rule);
    let outcome = match found {
        Some(found) => {
            let url = link::base(&call.shared.settings, call.shared.address);
            call.control(note).test_alert(found, url).await?
        }
        None => ControlOutcome::Unknown,
    };
    Reply::json_with(StatusCode::CREATED, &accepted(outcome, &no_such_rule(&rule))?)
}
