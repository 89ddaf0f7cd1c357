//! Alerts: what the rules of a server find wrong, since when, and whether a message said so.
//!
//! The store keeps one row per rule and subject. Which rules there are, and what follows from a finding, is decided by the crate
//! `windlass-operate`; the store makes sure that of several servers only one records a change, and that its message is a job exactly if the
//! change is recorded.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use windlass_model::{
    Invalid, JobId, Limits, NewJob, Time, WorkerId,
    limits::{MAX_NAME_BYTES, check_text},
};

use crate::{Actor, ControlOutcome, Error, Fut, Miss, Now, control::check_actor};

/// The kind of the jobs that post messages. Its name is reserved, so that a submit cannot make one.
pub const ALERT_KIND: &str = "windlass.alert";
/// Their queue. Its name is reserved, so that it cannot be paused.
pub const ALERT_QUEUE: &str = "windlass.alerts";

/// How many records of missed ticks of a schedule [`Alerts::latest_misses`] looks at.
pub const MISSES_READ: usize = 20;

/// The alerts of a store. Called by the crate `windlass-operate`, for servers and for `windlass alerts`.
pub trait Alerts: Send + Sync + 'static {
    /// Writes changes of alerts, and submits their messages, in one transaction: a crash before its commit leaves neither, a crash after
    /// leaves both. Returns for each change whether it was written. It was not if the alert is no longer as the change knows it, because
    /// another server has changed it; then its message is not submitted either.
    fn write_alerts<'a>(&'a self, now: Now, changes: &'a [AlertChange]) -> Fut<'a, Vec<bool>>;

    /// The alerts that rules must consider, by rule and subject, at most `limit`: those that are not resolved, and those whose last
    /// message says that they fire.
    fn open_alerts(&self, limit: usize) -> Fut<'_, Vec<Alert>>;

    /// All other alerts, the one resolved last first, at most `limit`.
    fn resolved_alerts(&self, limit: usize) -> Fut<'_, Vec<Alert>>;

    /// Submits a message that tests how those of a rule arrive, and belongs to no change. Returns [`ControlOutcome::Created`] with its job.
    fn test_alert<'a>(
        &'a self,
        now: Now,
        rule: &'a str,
        message: &'a NewJob,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome>;

    /// Mutes a rule, or one subject of it, until a time or until it is unmuted. Replaces a mute of the same.
    fn mute_alerts<'a>(
        &'a self,
        now: Now,
        mute: &'a NewAlertMute,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome>;

    /// Ends the mute of a rule, or of one subject of it.
    fn unmute_alerts<'a>(
        &'a self,
        now: Now,
        rule: &'a str,
        subject: Option<&'a str>,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome>;

    /// All mutes that have not ended, by rule and subject.
    fn alert_mutes(&self, now: Now) -> Fut<'_, Vec<AlertMute>>;

    /// Deletes alerts that were resolved before a time, and mutes that ended before it, at most `limit` of each. Returns how many.
    fn prune_alerts(&self, before: Time, limit: usize) -> Fut<'_, usize>;

    /// The last ticks that each schedule missed, by its name, for another reason than that the job before had not ended: that is the
    /// schedule's own policy. Looks at the newest [`MISSES_READ`] records of each schedule.
    fn latest_misses(&self) -> Fut<'_, Vec<(String, Miss)>>;
}

/// What a rule has found about one subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alert {
    /// The name of the rule.
    pub rule: String,
    /// What it is about, unique within the rule: the name of a queue, a kind or a schedule, the id of a worker, or a job and its branch.
    pub subject: String,
    /// How bad it is, by the rule.
    pub severity: Severity,
    /// Whether it holds.
    pub state: AlertState,
    /// The number or the span that the rule compares, as text: `12m`, `31 failed`.
    pub value: String,
    /// What is wrong, as a sentence.
    pub text: String,
    /// Where to look.
    pub target: AlertTarget,
    /// Since when the condition of the rule has held.
    pub since: Time,
    /// When it fired last. An alert that is pending may have fired before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fired_at: Option<Time>,
    /// Since when the condition no longer holds, while the alert is resolving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clear_since: Option<Time>,
    /// When it was resolved last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Time>,
    /// When this was written. A server that evaluates the rule writes what is open every few minutes.
    pub updated_at: Time,
    /// Whether the last message about it says that it fires.
    pub posted: bool,
    /// How often it was changed. In a change: the number that the change follows, or 0 if the alert was not among the open ones.
    pub rev: i64,
}

impl Alert {
    /// Whether rules must consider it; see [`Alerts::open_alerts`].
    pub fn is_open(&self) -> bool {
        self.state != AlertState::Resolved || self.posted
    }
}

/// How bad an alert is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something is broken.
    Bad,
    /// Something needs attention.
    Warn,
}

/// Whether an alert holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    /// The condition holds, and not for as long as the rule wants before it fires.
    Pending,
    /// It fires.
    Firing,
    /// It fires, and its condition has not held for less time than the rule wants before it is resolved.
    Resolving,
    /// It does not hold any more.
    Resolved,
}

/// Declares names and numbers of an enum, as they are stored.
macro_rules! stored {
    ($type:ident { $($variant:ident = $number:literal, $name:literal;)+ }) => {
        impl $type {
            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)+ }
            }

            pub(crate) fn number(self) -> i16 {
                match self { $($type::$variant => $number,)+ }
            }

            pub(crate) fn of_number(number: i16) -> Option<$type> {
                match number { $($number => Some($type::$variant),)+ _ => None }
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                match text {
                    $($name => Ok($type::$variant),)+
                    _ => Err(format!("{text:?} is none of {}", [$($name),+].join(", "))),
                }
            }
        }
    };
}

stored! {
    Severity {
        Bad = 0, "bad";
        Warn = 1, "warn";
    }
}

stored! {
    AlertState {
        Pending = 0, "pending";
        Firing = 1, "firing";
        Resolving = 2, "resolving";
        Resolved = 3, "resolved";
    }
}

/// Where to look when an alert fires.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum AlertTarget {
    /// A queue.
    Queue {
        /// Its name.
        queue: String,
    },
    /// The jobs of a kind.
    Kind {
        /// Its name.
        kind: String,
    },
    /// A job.
    Job {
        /// Its id.
        job: JobId,
    },
    /// A branch of a job.
    Branch {
        /// The job that opened it.
        job: JobId,
        /// Its name.
        branch: String,
    },
    /// A schedule.
    Schedule {
        /// Its name.
        schedule: String,
    },
    /// A worker.
    Worker {
        /// Its id.
        worker: WorkerId,
    },
}

/// A change of an alert, with the message that says so.
#[derive(Clone, PartialEq, Debug)]
pub enum AlertChange {
    /// The alert is now so. With [`Alert::rev`] 0 it is new, or replaces one that is resolved and was written before
    /// [`Alert::updated_at`]; a pending one then keeps when that fired and was resolved.
    Set {
        /// The alert.
        alert: Box<Alert>,
        /// The job that posts the message, of [`ALERT_KIND`] in [`ALERT_QUEUE`].
        message: Option<Box<NewJob>>,
    },
    /// There is no such alert any more.
    Delete {
        /// Its rule.
        rule: String,
        /// Its subject.
        subject: String,
        /// The number that this follows.
        rev: i64,
    },
}

impl AlertChange {
    /// The message.
    pub(crate) fn message(&self) -> Option<&NewJob> {
        match self {
            AlertChange::Set { message, .. } => message.as_deref(),
            AlertChange::Delete { .. } => None,
        }
    }
}

/// A mute to be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewAlertMute {
    /// The rule.
    pub rule: String,
    /// The subject; `None` for all of the rule.
    pub subject: Option<String>,
    /// When it ends; `None` if it does not end by itself.
    pub until: Option<Time>,
}

/// Keeps messages about alerts from being posted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AlertMute {
    /// The rule.
    pub rule: String,
    /// The subject; `None` for all of the rule.
    pub subject: Option<String>,
    /// When it ends; `None` if it does not end by itself.
    pub until: Option<Time>,
    /// When it was set.
    pub at: Time,
    /// Who set it.
    pub author: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl AlertMute {
    /// Whether it holds for a subject of a rule at a time.
    pub fn applies(&self, rule: &str, subject: &str, now: Time) -> bool {
        self.rule == rule
            && self.subject.as_deref().is_none_or(|muted| muted == subject)
            && self.until.is_none_or(|until| until > now)
    }
}

/// The longest name of a subject, in bytes: a job's id and the name of a branch fit.
const MAX_SUBJECT: usize = 300;
/// The longest text, in bytes.
const MAX_TEXT: usize = 2_000;

/// Refuses changes that cannot be stored.
pub(crate) fn check(changes: &[AlertChange], limits: &Limits) -> Result<(), Error> {
    for change in changes {
        match change {
            AlertChange::Set { alert, message } => {
                check_names(&alert.rule, Some(&alert.subject))?;
                check_text("value of the alert", &alert.value, MAX_TEXT)?;
                check_text("text of the alert", &alert.text, MAX_TEXT)?;
                message.iter().try_for_each(|message| check_message(message, limits))?;
            }
            AlertChange::Delete { rule, subject, .. } => check_names(rule, Some(subject))?,
        }
    }
    Ok(())
}

/// Refuses names that cannot be stored.
pub(crate) fn check_names(rule: &str, subject: Option<&str>) -> Result<(), Error> {
    let texts = [
        ("name of the alert rule", Some(rule), MAX_NAME_BYTES),
        ("subject of the alert", subject, MAX_SUBJECT),
    ];
    for (what, text, most) in texts {
        let Some(text) = text else { continue };
        if text.is_empty() {
            return Err(Error::Invalid(Invalid {
                what: format!("the {what}"),
                why: "is empty".into(),
                hint: "name one".into(),
            }));
        }
        check_text(what, text, most)?;
    }
    Ok(())
}

/// Refuses a job that is no message, and one that no submit would accept but for its reserved names.
pub(crate) fn check_message(message: &NewJob, limits: &Limits) -> Result<(), Error> {
    if message.kind.kind != ALERT_KIND || message.queue != ALERT_QUEUE {
        return Err(Error::Misuse(format!(
            "a message about an alert is a job of the kind {ALERT_KIND} in the queue {ALERT_QUEUE}, and not of {:?} in {:?}",
            message.kind.kind, message.queue
        )));
    }
    let mut plain = message.clone();
    (plain.kind.kind, plain.queue) = ("alert".into(), "alerts".into());
    Ok(limits.check(&plain)?)
}

/// Refuses a mute that cannot be stored.
pub(crate) fn check_mute(mute: &NewAlertMute, actor: &Actor) -> Result<(), Error> {
    check_actor(actor)?;
    check_names(&mute.rule, mute.subject.as_deref())
}

/// What the databases return of an alert, in the order of the columns.
pub(crate) struct Columns {
    pub(crate) rule: String,
    pub(crate) subject: String,
    pub(crate) severity: i16,
    pub(crate) state: i16,
    pub(crate) value: String,
    pub(crate) text: String,
    pub(crate) target: String,
    pub(crate) since: i64,
    pub(crate) fired_at: Option<i64>,
    pub(crate) clear_since: Option<i64>,
    pub(crate) resolved_at: Option<i64>,
    pub(crate) updated_at: i64,
    pub(crate) posted: bool,
    pub(crate) rev: i64,
}

impl Columns {
    /// Decodes a row.
    pub(crate) fn decode(self) -> Result<Alert, Error> {
        let fault = |column: &str| {
            let Columns { rule, subject, .. } = &self;
            Error::Fault(format!(
                "the column {column} of the alert {rule:?} about {subject:?} does not decode"
            ))
        };
        let severity = Severity::of_number(self.severity).ok_or_else(|| fault("severity"))?;
        let state = AlertState::of_number(self.state).ok_or_else(|| fault("state"))?;
        let target = serde_json::from_str(&self.target).map_err(|_| fault("target"))?;
        Ok(Alert {
            severity,
            state,
            target,
            rule: self.rule,
            subject: self.subject,
            value: self.value,
            text: self.text,
            since: Time(self.since),
            fired_at: self.fired_at.map(Time),
            clear_since: self.clear_since.map(Time),
            resolved_at: self.resolved_at.map(Time),
            updated_at: Time(self.updated_at),
            posted: self.posted,
            rev: self.rev,
        })
    }
}

/// The target of an alert as it is stored.
pub(crate) fn target_text(target: &AlertTarget) -> String {
    serde_json::to_string(target).unwrap_or_default()
}

/// The subject of a mute as it is stored: empty for all of the rule. No alert has an empty subject.
pub(crate) fn subject_text(subject: Option<&str>) -> &str {
    subject.unwrap_or_default()
}

/// The subject of a mute as it was stored.
pub(crate) fn subject_of_text(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// What the audit log has as the subject.
pub(crate) fn audit_subject(rule: &str, subject: Option<&str>) -> String {
    match subject {
        Some(subject) => format!("{rule}/{subject}"),
        None => rule.to_owned(),
    }
}

/// Outcomes with their texts, the same for every backend.
pub(crate) mod outcome {
    use crate::ControlOutcome;

    pub(crate) fn not_muted() -> ControlOutcome {
        ControlOutcome::Already("it is not muted".into())
    }
}

/// The entries of the audit log.
pub(crate) const MUTED: &str = "mute alert";
pub(crate) const UNMUTED: &str = "unmute alert";
pub(crate) const TESTED: &str = "test alert";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_as_they_are_written() {
        for state in [AlertState::Pending, AlertState::Firing, AlertState::Resolving, AlertState::Resolved] {
            assert_eq!(AlertState::of_number(state.number()), Some(state));
            assert_eq!(serde_json::to_value(state).expect("JSON"), state.name());
        }
        for severity in [Severity::Bad, Severity::Warn] {
            assert_eq!(Severity::of_number(severity.number()), Some(severity));
            assert_eq!(severity.name().parse(), Ok(severity));
        }
        assert_eq!((AlertState::of_number(9), Severity::of_number(9)), (None, None));
    }

    #[test]
    fn a_mute_of_a_rule_holds_for_all_of_its_subjects_until_it_ends() {
        let mute = |subject: Option<&str>, until| AlertMute {
            rule: "r".into(),
            subject: subject.map(Into::into),
            until,
            at: Time(0),
            author: "ada".into(),
            note: None,
        };
        assert!(
            mute(None, None).applies("r", "a", Time(9)) && mute(Some("a"), None).applies("r", "a", Time(9))
        );
        assert!(
            !mute(None, None).applies("q", "a", Time(9)) && !mute(Some("b"), None).applies("r", "a", Time(9))
        );
        let until = mute(None, Some(Time(5)));
        assert!(until.applies("r", "a", Time(4)) && !until.applies("r", "a", Time(5)));
    }
}
