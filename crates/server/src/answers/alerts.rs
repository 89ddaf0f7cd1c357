//! What alert rules have found, and the rules.

use serde_json::{Value, json};
use windlass::{
    JobId,
    model::WorkerId,
    operate::alerts::{AlertRow, AlertsView, RuleView},
    store::{Alert, AlertMute, AlertState, AlertTarget, Severity},
};
use windlass_remote::protocol::schema::{ObjectSchema, Schemas};

use super::{Answered, answers};

answers! {
    /// Alerts: those that are open first, and among them the worst and the newest; then those that are resolved.
    AlertsView {
        /// The alerts.
        alerts,
        /// All mutes that have not ended.
        mutes,
        now [-],
    }

    /// An alert, and whether its messages are posted.
    AlertRow {
        alert [+],
        /// The mute that keeps its messages from being posted.
        muted,
        /// Whether no server has evaluated its rule for a while, so that it may no longer be true.
        is_stale,
    }

    /// What a rule has found about one subject.
    Alert {
        /// The name of the rule.
        rule,
        /// What it is about, unique within the rule: the name of a queue, a kind or a schedule, the id of a worker, or a job and its branch.
        subject,
        /// How bad it is, by the rule.
        severity,
        /// Whether it holds.
        state,
        /// The number or the span that the rule compares, as text.
        value,
        /// What is wrong, as a sentence.
        text,
        /// Where to look.
        target,
        /// Since when the condition of the rule has held.
        since,
        /// When it fired last. An alert that is pending may have fired before.
        fired_at [?],
        /// Since when the condition no longer holds, while the alert is resolving.
        clear_since [?],
        /// When it was resolved last.
        resolved_at [?],
        /// When this was written. A server that evaluates the rule writes what is open every few minutes.
        updated_at,
        /// Whether the last message about it says that it fires.
        posted,
        /// How often it was changed.
        rev,
    }

    /// Keeps messages about alerts from being posted.
    AlertMute {
        /// The rule.
        rule,
        /// The subject; `null` for all of the rule.
        subject,
        /// When it ends; `null` if it does not end by itself.
        until,
        /// When it was set.
        at,
        /// Who set it.
        author,
        /// Why.
        note [?],
    }

    /// An alert rule.
    RuleView {
        /// Its name.
        name,
        /// The name of its condition.
        when,
        /// The condition in words.
        text,
        /// For how long it must hold, in seconds.
        for_seconds,
        /// For how long it must not hold before an alert is resolved, in seconds.
        clear_for_seconds,
        /// How bad it is.
        severity,
        /// The webhook that gets messages.
        webhook,
        /// Whether the settings mute it.
        muted,
    }
}

impl Answered for Severity {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "string", "enum": [Severity::Bad, Severity::Warn] })
    }
}

impl Answered for AlertState {
    fn schema(_: &mut Schemas) -> Value {
        use AlertState::{Firing, Pending, Resolved, Resolving};
        json!({ "type": "string", "enum": [Pending, Firing, Resolving, Resolved] })
    }
}

impl Answered for AlertTarget {
    fn schema(schemas: &mut Schemas) -> Value {
        let (text, job, worker) =
            (String::schema(schemas), JobId::schema(schemas), WorkerId::schema(schemas));
        let variant = |name: &str, fields: &[(&str, &Value)]| {
            let mut object = ObjectSchema::new("", false);
            object.field("type", "", json!({ "type": "string", "const": name }), true);
            for &(field, schema) in fields {
                object.field(field, "", schema.clone(), true);
            }
            object.into_schema()
        };
        schemas.named("AlertTarget", |_| {
            json!({
                "description": "Where to look when an alert fires.",
                "oneOf": [
                    variant("queue", &[("queue", &text)]),
                    variant("kind", &[("kind", &text)]),
                    variant("job", &[("job", &job)]),
                    variant("branch", &[("job", &job), ("branch", &text)]),
                    variant("schedule", &[("schedule", &text)]),
                    variant("worker", &[("worker", &worker)]),
                ],
            })
        })
    }
}
