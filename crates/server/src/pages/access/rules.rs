//! Alert rules, with what they find wrong now and who has muted them. Pure.

use windlass::{
    operate::alerts::{AlertRow, AlertsView, Rule, RuleView},
    store::{AlertMute, AlertState, Severity},
};

use super::{Html, Icon, Pill, Tone};
use crate::{
    alerts::link::path_of,
    pages::{
        form::url,
        format::{Clock, span},
    },
};

/// How many subjects of a rule are shown.
const SUBJECTS: usize = 5;
/// How many mutes of subjects without an alert are shown.
const MUTES: usize = 5;

/// A rule in the list.
pub(super) struct RuleRow {
    pub(super) name: String,
    /// What it finds wrong, and for how long that must be so.
    pub(super) text: String,
    pub(super) pill: Pill,
    /// The number that it compares, of its worst subject.
    pub(super) value: String,
    /// Who is told.
    pub(super) tells: String,
    pub(super) subjects: Vec<Subject>,
    /// How many more there are.
    pub(super) more: usize,
    /// Mutes of the rule, and of subjects that no alert is about.
    pub(super) mutes: Vec<Mute>,
    /// Whether there is a mute of all of it.
    pub(super) is_muted: bool,
    /// Where it is muted.
    pub(super) href: String,
}

/// What a rule finds wrong.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) pill: Pill,
    /// What is wrong, as a link to it, for how long, and who muted it.
    pub(super) text: Html,
    /// Whether there is a mute of it alone.
    pub(super) is_muted: bool,
    /// Where it is muted.
    pub(super) href: String,
}

/// A mute that has not ended.
pub(super) struct Mute {
    pub(super) subject: Option<String>,
    /// Who set it, when it ends, and why.
    pub(super) text: Html,
}

/// The rules of this server, in their order; then those that only alerts or mutes name.
pub(super) fn rows(rules: &[Rule], view: &AlertsView, clock: Clock) -> Vec<RuleRow> {
    let mut rows: Vec<RuleRow> =
        rules.iter().map(|rule| row(&rule.name, Some(&RuleView::from(rule)), view, clock)).collect();
    let named = view.alerts.iter().map(|row| &row.alert.rule).chain(view.mutes.iter().map(|mute| &mute.rule));
    let mut others: Vec<&String> =
        named.filter(|name| rules.iter().all(|rule| rule.name != **name)).collect();
    others.sort();
    others.dedup();
    rows.extend(others.into_iter().take(SUBJECTS).map(|name| row(name, None, view, clock)));
    rows
}

fn row(name: &str, rule: Option<&RuleView>, view: &AlertsView, clock: Clock) -> RuleRow {
    let alerts: Vec<&AlertRow> = view.alerts.iter().filter(|row| row.alert.rule == name).collect();
    let mutes = || view.mutes.iter().filter(|mute| mute.rule == name);
    let of_none = |mute: &&AlertMute| {
        mute.subject.as_ref().is_none_or(|subject| alerts.iter().all(|row| row.alert.subject != *subject))
    };
    RuleRow {
        name: name.to_owned(),
        text: match rule {
            None => "not in the settings of this server".to_owned(),
            Some(rule) if rule.for_seconds == 0 => rule.text.clone(),
            Some(rule) => {
                let holds = span(std::time::Duration::from_secs(rule.for_seconds));
                format!("{}, for {holds}", rule.text)
            }
        },
        pill: rule_pill(&alerts),
        value: alerts.first().map_or("–".to_owned(), |row| row.alert.value.clone()),
        tells: match rule.and_then(|rule| rule.webhook.as_deref()) {
            Some(_) if rule.is_some_and(|rule| rule.muted) => "nobody: muted in the settings".to_owned(),
            Some(webhook) => format!("webhook {webhook}"),
            None => "this page only".to_owned(),
        },
        more: alerts.len().saturating_sub(SUBJECTS),
        subjects: alerts.iter().take(SUBJECTS).map(|row| subject(row, clock)).collect(),
        is_muted: mutes().any(|mute| mute.subject.is_none()),
        href: mute_href(name, None),
        mutes: mutes().filter(of_none).take(MUTES).map(|mute| Mute::new(mute, clock)).collect(),
    }
}

/// The worst state of its alerts, and how many there are.
fn rule_pill(alerts: &[&AlertRow]) -> Pill {
    let firing: Vec<_> = alerts.iter().filter(|row| row.fires()).collect();
    let is_bad = firing.iter().any(|row| row.alert.severity == Severity::Bad);
    let word = match firing.len() {
        1 => "fires".to_owned(),
        count => format!("{count} fire"),
    };
    match (firing.is_empty(), is_bad) {
        (true, _) if alerts.is_empty() => Pill::new(Tone::Idle, Icon::Ready, "quiet"),
        (true, _) => Pill::new(Tone::Idle, Icon::Scheduled, "pending"),
        (false, true) => Pill::new(Tone::Bad, Icon::Failed, &word),
        (false, false) => Pill::new(Tone::Warn, Icon::Warn, &word),
    }
}

fn subject(row: &AlertRow, clock: Clock) -> Subject {
    let alert = &row.alert;
    let pill = match (alert.state, alert.severity) {
        _ if row.is_stale => Pill::new(Tone::Idle, Icon::Lost, "not evaluated lately"),
        (AlertState::Pending, _) => Pill::new(Tone::Idle, Icon::Scheduled, "pending"),
        (AlertState::Resolving, _) => Pill::new(Tone::Warn, Icon::Drain, "clears"),
        (_, Severity::Bad) => Pill::new(Tone::Bad, Icon::Failed, "fires"),
        (_, Severity::Warn) => Pill::new(Tone::Warn, Icon::Warn, "fires"),
    };
    let mut text = Html::new().link(&path_of(&alert.target), &alert.text);
    text = text.text(", for ").add(clock.lasts(alert.since)).text(".");
    let own = row.muted.as_ref().filter(|mute| mute.subject.is_some());
    if let Some(mute) = own {
        text = text.text(" Muted ").add(Mute::new(mute, clock).text);
    }
    Subject {
        name: alert.subject.clone(),
        pill,
        text,
        is_muted: own.is_some(),
        href: mute_href(&alert.rule, Some(&alert.subject)),
    }
}

impl Mute {
    fn new(mute: &AlertMute, clock: Clock) -> Mute {
        let mut text = Html::words("by ").user(&mute.author).text(", ").add(clock.ago(mute.at));
        text = match mute.until {
            Some(until) => text.text(", until ").add(clock.at(until)),
            None => text.text(", until somebody unmutes it"),
        };
        text = match &mute.note {
            Some(note) => text.text(": “").user(note).text("”"),
            None => text.text("."),
        };
        Mute { subject: mute.subject.clone(), text }
    }
}

/// Where a rule, or one subject of it, is muted.
fn mute_href(rule: &str, subject: Option<&str>) -> String {
    url("/access", [("mute", Some(rule)), ("subject", subject)])
}

#[cfg(test)]
mod tests {
    use windlass::{
        Time,
        store::{Alert, AlertTarget},
    };

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);
    const CLOCK: Clock = Clock { now: NOW, relative: true };

    fn alert(rule: &str, subject: &str, state: AlertState) -> AlertRow {
        let alert = Alert {
            rule: rule.into(),
            subject: subject.into(),
            severity: Severity::Warn,
            state,
            value: "12m".into(),
            text: "The oldest ready job waits for 12m.".into(),
            target: AlertTarget::Queue { queue: subject.into() },
            since: NOW,
            fired_at: None,
            clear_since: None,
            resolved_at: None,
            updated_at: NOW,
            posted: false,
            rev: 1,
        };
        AlertRow { alert, muted: None, is_stale: false }
    }

    fn mute(rule: &str, subject: Option<&str>) -> AlertMute {
        let note = Some("<b>".into());
        AlertMute {
            rule: rule.into(),
            subject: subject.map(Into::into),
            until: None,
            at: NOW,
            author: "ada".into(),
            note,
        }
    }

    #[test]
    fn rules_are_shown_with_what_they_find() {
        let alerts = (0..9)
            .map(|n| alert("queue-behind", &format!("q{n}"), AlertState::Firing))
            .chain([alert("old", "x", AlertState::Pending)]);
        let mutes = vec![
            mute("queue-behind", None),
            mute("queue-behind", Some("gone")),
            mute("queue-behind", Some("q1")),
        ];
        let view = AlertsView { alerts: alerts.collect(), mutes, now: NOW };
        let rows = rows(&Rule::built_in(), &view, CLOCK);
        assert_eq!(rows.len(), Rule::built_in().len() + 1);
        let behind = &rows[0];
        assert_eq!((behind.pill.word.as_str(), behind.subjects.len(), behind.more), ("9 fire", SUBJECTS, 4));
        assert!(behind.is_muted && behind.text.ends_with(", for 1 min"), "{}", behind.text);
        let mutes: Vec<_> = behind.mutes.iter().map(|mute| mute.subject.as_deref()).collect();
        assert_eq!(mutes, [None, Some("gone")], "that of an alert is in its line");
        assert!(behind.mutes[0].text.as_str().contains("&lt;b&gt;"));
        assert_eq!((rows[1].pill.word.as_str(), rows[1].value.as_str()), ("quiet", "–"));
        let other = rows.last().expect("a row");
        assert_eq!((other.name.as_str(), other.pill.word.as_str()), ("old", "pending"));
        assert_eq!(other.subjects[0].href, "/access?mute=old&subject=x");
    }
}
