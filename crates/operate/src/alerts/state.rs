//! How alerts go from one state to the next, and when a message is due. Pure: the time is an argument.
//!
//! | state | the condition holds | it does not hold |
//! |---|---|---|
//! | none, or resolved | pending, or firing if the rule waits for nothing | – |
//! | pending | firing, once it has held for [`Rule::fire_after`] | as before it was pending |
//! | firing | – | resolving, or resolved if the rule waits for nothing |
//! | resolving | firing | resolved, once it has not held for [`Rule::clear_for`] |
//!
//! A condition that comes and goes therefore fires once, and is resolved once.
//!
//! Messages follow from the state and from what the last one said, not from the change: a message that was not due because the alert was
//! muted is due when that ends, if it is still true. So the receiver gets two messages in turn about every alert: that it fires, and that it is resolved.

use std::time::Duration;

use windlass_model::Time;
use windlass_store::{Alert, AlertState};

use super::{Finding, Rule, rule::CLEAR_FOR};

/// The value and the text of an alert that does not change otherwise are written this often.
const REFRESH: Duration = Duration::from_secs(60);
/// An open alert is written at least this often, so that people see that somebody still evaluates its rule.
const CONFIRM: Duration = Duration::from_secs(5 * 60);
/// An open alert that was not written for so long is not being evaluated.
pub const STALE_AFTER: Duration = Duration::from_secs(15 * 60);

/// What becomes of an alert.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing is written.
    Keep,
    /// It is now so.
    Set {
        /// The alert.
        alert: Box<Alert>,
        /// What a message announces, if one is due.
        announcement: Option<Announcement>,
    },
    /// There is no alert any more.
    Delete,
}

/// What a message announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announcement {
    /// It fires.
    Firing,
    /// It is resolved.
    Resolved,
}

/// Decides what becomes of an alert: `alert` if it is open, of which `finding` says that its condition holds. There is one of both. An alert
/// without a rule is one whose rule was removed from the settings.
pub fn step(
    rule: Option<&Rule>,
    alert: Option<&Alert>,
    finding: Option<&Finding>,
    is_muted: bool,
    now: Time,
) -> Step {
    let next = match (alert, finding, rule) {
        (alert, Some(finding), Some(rule)) => while_it_holds(rule, alert, finding, now),
        (Some(alert), _, rule) => match while_it_does_not(rule, alert, now) {
            Some(next) => next,
            None => return Step::Delete,
        },
        (None, ..) => return Step::Keep,
    };
    let (posted, announcement) = message(rule, &next, is_muted);
    let next = Alert { posted, ..next };
    match alert {
        Some(alert) if !must_be_written(alert, &next, now) => Step::Keep,
        _ => Step::Set { alert: Box::new(Alert { updated_at: now, ..next }), announcement },
    }
}

/// The alert whose condition holds.
fn while_it_holds(rule: &Rule, alert: Option<&Alert>, finding: &Finding, now: Time) -> Alert {
    let new = || Alert {
        rule: finding.rule.clone(),
        subject: finding.subject.clone(),
        severity: rule.severity,
        state: AlertState::Pending,
        value: String::new(),
        text: String::new(),
        target: finding.link.clone(),
        since: now,
        fired_at: None,
        clear_since: None,
        resolved_at: None,
        updated_at: now,
        posted: false,
        rev: 0,
    };
    let mut next = alert.cloned().unwrap_or_else(new);
    next.severity = rule.severity;
    (next.value, next.text, next.target) =
        (finding.value.clone(), finding.text.clone(), finding.link.clone());
    match next.state {
        AlertState::Firing => {}
        AlertState::Resolving => (next.state, next.clear_since) = (AlertState::Firing, None),
        AlertState::Resolved => (next.state, next.since) = (AlertState::Pending, now),
        AlertState::Pending => {}
    }
    if next.state == AlertState::Pending && now - next.since >= rule.fire_after {
        (next.state, next.fired_at, next.resolved_at) = (AlertState::Firing, Some(now), None);
    }
    next
}

/// The alert whose condition does not hold; `None` if there is nothing left to be known of it.
fn while_it_does_not(rule: Option<&Rule>, alert: &Alert, now: Time) -> Option<Alert> {
    let clear_for = rule.map_or(CLEAR_FOR, |rule| rule.clear_for);
    let mut next = alert.clone();
    match next.state {
        AlertState::Resolved => {}
        // It has fired before this time, and keeps when.
        AlertState::Pending if next.fired_at.is_some() => {
            next.state = AlertState::Resolved;
            next.resolved_at = next.resolved_at.or(Some(now));
        }
        AlertState::Pending => return None,
        AlertState::Firing => (next.state, next.clear_since) = (AlertState::Resolving, Some(now)),
        AlertState::Resolving => {}
    }
    if next.state == AlertState::Resolving && now - next.clear_since.unwrap_or(now) >= clear_for {
        (next.state, next.clear_since, next.resolved_at) = (AlertState::Resolved, None, Some(now));
    }
    Some(next)
}

/// Whether the last message says that the alert fires, and what a message that is due now announces.
fn message(rule: Option<&Rule>, next: &Alert, is_muted: bool) -> (bool, Option<Announcement>) {
    let is_posted = rule.is_some_and(|rule| rule.webhook.is_some() && !rule.is_muted);
    match (next.state, next.posted) {
        (AlertState::Resolved, true) if !is_posted => (false, None),
        (AlertState::Resolved, true) if !is_muted => (false, Some(Announcement::Resolved)),
        (AlertState::Firing, false) if is_posted && !is_muted => (true, Some(Announcement::Firing)),
        (_, posted) => (posted, None),
    }
}

fn must_be_written(alert: &Alert, next: &Alert, now: Time) -> bool {
    let age = now - alert.updated_at;
    let as_text =
        |alert: &Alert| (alert.value.clone(), alert.text.clone(), alert.severity, alert.target.clone());
    let Alert { state, since, fired_at, clear_since, resolved_at, posted, .. } = alert;
    let is_moved = (*state, *since, *fired_at) != (next.state, next.since, next.fired_at)
        || (*clear_since, *resolved_at, *posted) != (next.clear_since, next.resolved_at, next.posted);
    is_moved || (age >= REFRESH && as_text(alert) != as_text(next)) || age >= CONFIRM
}

#[cfg(test)]
mod tests;
