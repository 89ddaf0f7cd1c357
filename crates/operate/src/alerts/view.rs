//! Alerts as people see them, and what people do with them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_model::Time;
use windlass_store::{Alert, AlertMute, AlertState, ControlOutcome, NewAlertMute, Severity};
use windlass_workflow::Error;

use super::{AlertMessage, Rule, state::STALE_AFTER};
use crate::{Control, Operator};

/// The alerts of a store: those that are open first, and among them the worst and the newest; then those that are resolved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AlertsView {
    /// The alerts.
    pub alerts: Vec<AlertRow>,
    /// All mutes that have not ended.
    pub mutes: Vec<AlertMute>,
    /// The store's clock.
    #[serde(skip)]
    pub now: Time,
}

/// An alert.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AlertRow {
    /// The alert.
    #[serde(flatten)]
    pub alert: Alert,
    /// The mute that keeps its messages, if there is one.
    pub muted: Option<AlertMute>,
    /// Whether no server has evaluated its rule for a while, so that it may no longer be true.
    pub is_stale: bool,
}

impl AlertRow {
    /// Whether it fires.
    pub fn fires(&self) -> bool {
        matches!(self.alert.state, AlertState::Firing | AlertState::Resolving)
    }
}

impl AlertsView {
    /// Reads at most `limit` alerts; with `only_open`, none that is resolved.
    pub async fn read(operator: &Operator, limit: usize, only_open: bool) -> Result<AlertsView, Error> {
        let (store, now) = (operator.store(), operator.inspect().clock().await?);
        let mut alerts = store.open_alerts(limit).await?;
        // One that waits for a message to be posted is resolved for people.
        if only_open {
            alerts.retain(|alert| alert.state != AlertState::Resolved);
        } else if alerts.len() < limit {
            alerts.extend(store.resolved_alerts(limit - alerts.len()).await?);
        }
        let mutes = store.alert_mutes(None).await?;
        alerts.sort_by_key(order);
        let row = |alert: Alert| {
            let applies = |mute: &&AlertMute| mute.applies(&alert.rule, &alert.subject, now);
            let muted = mutes.iter().find(applies).cloned();
            let is_open = alert.state != AlertState::Resolved;
            AlertRow { is_stale: is_open && now - alert.updated_at > STALE_AFTER, alert, muted }
        };
        Ok(AlertsView { alerts: alerts.into_iter().map(row).collect(), mutes, now })
    }
}

/// What fires before what is pending, what is bad before what is not, the newest first.
fn order(alert: &Alert) -> (u8, Severity, std::cmp::Reverse<Time>) {
    let (state, at) = match alert.state {
        AlertState::Firing | AlertState::Resolving => (0, alert.fired_at),
        AlertState::Pending => (1, Some(alert.since)),
        AlertState::Resolved => (2, alert.resolved_at),
    };
    // Resolved ones are in the order of time alone.
    let severity = if state == 2 { Severity::Bad } else { alert.severity };
    (state, severity, std::cmp::Reverse(at.unwrap_or(alert.updated_at)))
}

/// Among how many alerts a rule is looked for that is not in the settings.
const KNOWN: usize = 1_000;

impl Control {
    /// Keeps messages about a rule, or one subject of it, from being posted, for a while or until it is unmuted. `rules` are those that the
    /// caller knows; [`ControlOutcome::Unknown`] if the rule is none of them and the store has no alert of it.
    pub async fn mute_alerts(
        &self,
        rules: &[Rule],
        rule: &str,
        subject: Option<&str>,
        span: Option<Duration>,
    ) -> Result<ControlOutcome, Error> {
        let operator = self.operator();
        if rules.iter().all(|known| known.name != rule) {
            let view = AlertsView::read(operator, KNOWN, false).await?;
            if view.alerts.iter().all(|row| row.alert.rule != rule) {
                return Ok(ControlOutcome::Unknown);
            }
        }
        let until = match span {
            Some(span) => Some(operator.inspect().clock().await? + span),
            None => None,
        };
        let mute = NewAlertMute { rule: rule.into(), subject: subject.map(str::to_owned), until };
        Ok(operator.store().mute_alerts(None, &mute, self.actor()).await?)
    }

    /// JobSelection such a mute. A message that was due meanwhile is posted if it is still true.
    pub async fn unmute_alerts(&self, rule: &str, subject: Option<&str>) -> Result<ControlOutcome, Error> {
        Ok(self.operator().store().unmute_alerts(None, rule, subject, self.actor()).await?)
    }

    /// Submits a job that posts a test message to the webhook of a rule. Returns [`ControlOutcome::Created`] with the job.
    pub async fn test_alert(&self, rule: &Rule, url: Option<String>) -> Result<ControlOutcome, Error> {
        let operator = self.operator();
        let now = operator.inspect().clock().await?;
        let Some(message) = AlertMessage::test(rule, now, url) else {
            return Ok(ControlOutcome::Refused(format!(
                "the rule {} names no webhook; add `webhook = \"NAME\"` to it, or settings for [webhooks.default]",
                rule.name
            )));
        };
        let job = message.job(operator, None)?;
        let outcome = operator.store().test_alert(None, &rule.name, &job, self.actor()).await?;
        operator.poke();
        Ok(outcome)
    }
}

impl Operator {
    /// Deletes alerts that were resolved, and mutes that ended, longer ago than `age`. Returns how many.
    pub async fn prune_alerts(&self, age: Duration) -> Result<usize, Error> {
        const BATCH: usize = 1_000;
        let before = self.inspect().clock().await? - age;
        Ok(self.store().prune_alerts(before, BATCH).await?)
    }
}
