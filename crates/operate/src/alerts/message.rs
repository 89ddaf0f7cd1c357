//! Messages about alerts: jobs of the engine that post them to a webhook.

use serde::{Deserialize, Serialize};
use windlass_model::{NewJob, Payload, Time};
use windlass_store::{ALERT_KIND, ALERT_QUEUE, Alert, Severity};
use windlass_workflow::Error;

use super::{Rule, state::Announcement};
use crate::Operator;

/// The input of a job that posts a message. It names the webhook; only workers know its address and its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AlertMessage {
    /// The name of the webhook.
    pub webhook: String,
    /// What is posted.
    pub body: AlertBody,
}

/// What a webhook gets, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AlertBody {
    /// The rule.
    pub rule: String,
    /// What the alert is about.
    pub subject: String,
    /// How bad it is.
    pub severity: Severity,
    /// `firing`, `resolved` or `test`.
    pub state: String,
    /// Since when the condition holds, or held.
    pub since: Time,
    /// What is wrong, as a sentence.
    pub text: String,
    /// The number or the span that the rule compares.
    pub value: String,
    /// Where to look, if the server knows its own address.
    pub url: Option<String>,
}

impl AlertMessage {
    /// The message about an alert; `None` if its rule names no webhook.
    pub(super) fn about(
        rule: &Rule,
        alert: &Alert,
        announcement: Announcement,
        url: Option<String>,
    ) -> Option<AlertMessage> {
        let body = AlertBody {
            rule: alert.rule.clone(),
            subject: alert.subject.clone(),
            severity: alert.severity,
            state: announcement.name().into(),
            since: alert.since,
            text: alert.text.clone(),
            value: alert.value.clone(),
            url,
        };
        Some(AlertMessage { webhook: rule.webhook.clone()?, body })
    }

    /// A message that tests how those of a rule arrive; `None` if it names no webhook.
    pub(super) fn test(rule: &Rule, now: Time, url: Option<String>) -> Option<AlertMessage> {
        let body = AlertBody {
            rule: rule.name.clone(),
            subject: "test".into(),
            severity: rule.severity,
            state: "test".into(),
            since: now,
            text: format!("this is a test of the alert rule {}: {}", rule.name, rule.when),
            value: String::new(),
            url,
        };
        Some(AlertMessage { webhook: rule.webhook.clone()?, body })
    }

    /// The job that posts it.
    pub(super) fn job(&self, operator: &Operator, key: Option<String>) -> Result<NewJob, Error> {
        let input =
            serde_json::to_vec(self).map_err(|source| Error::Encode { kind: ALERT_KIND.into(), source })?;
        let job = NewJob::new(operator.new_id(), ALERT_KIND, ALERT_QUEUE, Payload::json(input));
        operator.codecs().encoded(NewJob { key, ..job })
    }
}

impl Announcement {
    /// The state in the message.
    pub(super) fn name(self) -> &'static str {
        match self {
            Announcement::Firing => "firing",
            Announcement::Resolved => "resolved",
        }
    }
}

/// The key of the job: the same for all who find that this message is due, and of no other message.
pub(super) fn key(alert: &Alert, announcement: Announcement) -> String {
    let fired_at = alert.fired_at.unwrap_or(alert.since);
    format!("{}/{}/{fired_at}/{}", alert.rule, alert.subject, announcement.name())
}
