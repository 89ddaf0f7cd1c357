//! Alerts that come and go, that are muted, and whose subjects disappear.

use windlass_store::{AlertTarget, Severity};

use super::*;
use crate::alerts::Condition;

/// Ten minutes after the first of the year 2027.
const BEGIN: Time = Time(1_798_761_600_000_000);

fn at(minutes: u64) -> Time {
    BEGIN + Duration::from_secs(minutes * 60)
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// Fires after two minutes, is resolved after five.
fn rule() -> Rule {
    let when = Condition::OldestReady { queue: None, above: minutes(10) };
    let (fire_after, clear_for, webhook) = (minutes(2), minutes(5), Some("ops".into()));
    Rule { fire_after, clear_for, webhook, ..Rule::new("behind", when) }
}

fn finding(value: &str) -> Finding {
    Finding {
        rule: "behind".into(),
        subject: "mail".into(),
        value: value.into(),
        text: format!("it waits {value}"),
        link: AlertTarget::Queue { queue: "mail".into() },
    }
}

/// What an evaluator knows of one subject: what is in the store. Every call of [`Subject::pass`] could be by another server.
#[derive(Default)]
struct Subject {
    alert: Option<Alert>,
    writes: usize,
}

impl Subject {
    /// What the store returns: an alert that is not open is not read.
    fn open(&self) -> Option<&Alert> {
        self.alert.as_ref().filter(|alert| alert.is_open())
    }

    fn pass_with(
        &mut self,
        rule: Option<&Rule>,
        holds: bool,
        is_muted: bool,
        now: Time,
    ) -> Option<Announcement> {
        let finding = finding(&format!("{}", (now - BEGIN).as_secs()));
        match step(rule, self.open(), holds.then_some(&finding), is_muted, now) {
            Step::Keep => None,
            Step::Delete => {
                self.alert = None;
                self.writes += 1;
                None
            }
            Step::Set { alert, announcement } => {
                let mut alert = *alert;
                // As the store does with one that replaces a resolved one.
                if let Some(replaced) =
                    self.alert.as_ref().filter(|_| self.open().is_none() && alert.fired_at.is_none())
                {
                    (alert.fired_at, alert.resolved_at) = (replaced.fired_at, replaced.resolved_at);
                }
                self.alert = Some(alert);
                self.writes += 1;
                announcement
            }
        }
    }

    fn pass(&mut self, holds: bool, minutes: u64) -> Option<Announcement> {
        self.pass_with(Some(&rule()), holds, false, at(minutes))
    }

    fn state(&self) -> Option<AlertState> {
        self.alert.as_ref().map(|alert| alert.state)
    }
}

#[test]
fn an_alert_fires_once_it_has_held_and_is_resolved_once_it_has_not() {
    let mut subject = Subject::default();
    assert_eq!(subject.pass(false, 0), None);
    assert_eq!((subject.state(), subject.writes), (None, 0), "nothing is written of what is fine");
    assert_eq!((subject.pass(true, 1), subject.state()), (None, Some(AlertState::Pending)));
    assert_eq!((subject.pass(true, 2), subject.state()), (None, Some(AlertState::Pending)));
    assert_eq!(
        (subject.pass(true, 3), subject.state()),
        (Some(Announcement::Firing), Some(AlertState::Firing))
    );
    let fires = subject.alert.clone().expect("an alert");
    assert_eq!((fires.since, fires.fired_at, fires.posted), (at(1), Some(at(3)), true));
    assert_eq!(subject.pass(true, 4), None, "it said so");
    assert_eq!((subject.pass(false, 5), subject.state()), (None, Some(AlertState::Resolving)));
    assert_eq!((subject.pass(false, 9), subject.state()), (None, Some(AlertState::Resolving)));
    assert_eq!(
        (subject.pass(false, 10), subject.state()),
        (Some(Announcement::Resolved), Some(AlertState::Resolved))
    );
    let resolved = subject.alert.clone().expect("an alert");
    assert_eq!(
        (resolved.fired_at, resolved.resolved_at, resolved.posted),
        (Some(at(3)), Some(at(10)), false)
    );
    assert!(!resolved.is_open());
    assert_eq!(subject.pass(false, 11), None);
}

#[test]
fn a_condition_that_comes_and_goes_fires_once_and_is_resolved_once() {
    let mut subject = Subject::default();
    let announced: Vec<Announcement> =
        (0..60).filter_map(|minute| subject.pass(minute % 2 == 0, minute)).collect();
    assert_eq!(announced, [], "it never held for two minutes");
    let announced: Vec<Announcement> =
        (60..120).filter_map(|minute| subject.pass(minute % 4 != 3, minute)).collect();
    assert_eq!(announced, [Announcement::Firing], "it was never clear for five minutes");
    let announced: Vec<Announcement> = (120..140).filter_map(|minute| subject.pass(false, minute)).collect();
    assert_eq!(announced, [Announcement::Resolved]);
}

#[test]
fn one_that_is_only_pending_leaves_nothing_but_when_it_fired_before() {
    let mut subject = Subject::default();
    subject.pass(true, 0);
    subject.pass(false, 1);
    assert_eq!(subject.alert, None);
    for minute in 2..20 {
        subject.pass(minute < 6, minute);
    }
    let resolved = subject.alert.clone().expect("it fired");
    assert_eq!((resolved.fired_at, resolved.resolved_at), (Some(at(4)), Some(at(11))));
    subject.pass(true, 30);
    assert_eq!(subject.state(), Some(AlertState::Pending));
    subject.pass(false, 31);
    let again = subject.alert.clone().expect("kept");
    assert_eq!(
        (again.state, again.fired_at, again.resolved_at),
        (AlertState::Resolved, Some(at(4)), Some(at(11)))
    );
}

#[test]
fn a_server_that_starts_again_goes_on_where_the_last_one_stopped() {
    let mut subject = Subject::default();
    subject.pass(true, 0);
    assert_eq!(subject.pass(true, 60), Some(Announcement::Firing), "it held before and it holds now");
    assert_eq!(subject.pass(true, 600), None, "there is no second message");
    subject.pass(false, 601);
    assert_eq!(subject.pass(true, 660), None);
    assert_eq!(subject.state(), Some(AlertState::Firing), "it holds now, whatever was between");
    subject.pass(false, 661);
    assert_eq!(subject.pass(false, 720), Some(Announcement::Resolved));
}

#[test]
fn a_rule_that_waits_for_nothing_fires_and_is_resolved_at_once() {
    let rule = Rule { fire_after: Duration::ZERO, clear_for: Duration::ZERO, ..rule() };
    let mut subject = Subject::default();
    assert_eq!(subject.pass_with(Some(&rule), true, false, at(0)), Some(Announcement::Firing));
    assert_eq!(subject.pass_with(Some(&rule), false, false, at(1)), Some(Announcement::Resolved));
    assert_eq!(subject.pass_with(Some(&rule), true, false, at(2)), Some(Announcement::Firing), "a new one");
}

#[test]
fn a_muted_alert_says_nothing_and_says_what_is_still_true_afterwards() {
    let mut subject = Subject::default();
    let rule = rule();
    let muted =
        |subject: &mut Subject, holds, minute| subject.pass_with(Some(&rule), holds, true, at(minute));
    assert_eq!(muted(&mut subject, true, 0), None);
    assert_eq!(muted(&mut subject, true, 2), None);
    assert_eq!(subject.state(), Some(AlertState::Firing), "it is shown all the same");
    assert_eq!(subject.pass(true, 3), Some(Announcement::Firing), "the mute has ended, and it still fires");
    muted(&mut subject, false, 4);
    assert_eq!(muted(&mut subject, false, 9), None);
    assert_eq!(subject.state(), Some(AlertState::Resolved));
    assert_eq!(muted(&mut subject, false, 60), None);
    assert_eq!(subject.pass(false, 61), Some(Announcement::Resolved), "a message said that it fires");
    assert_eq!(subject.pass(false, 62), None);
}

#[test]
fn what_begins_and_ends_while_it_is_muted_has_no_message() {
    let mut subject = Subject::default();
    let rule = rule();
    for minute in 0..20 {
        assert_eq!(subject.pass_with(Some(&rule), minute < 5, true, at(minute)), None);
    }
    assert_eq!((subject.pass(false, 20), subject.state()), (None, Some(AlertState::Resolved)));
}

#[test]
fn one_that_comes_back_before_its_end_was_posted_is_the_same_for_the_receiver() {
    let mut subject = Subject::default();
    let rule = rule();
    subject.pass(true, 0);
    assert_eq!(subject.pass(true, 2), Some(Announcement::Firing));
    for minute in 3..10 {
        assert_eq!(subject.pass_with(Some(&rule), false, true, at(minute)), None);
    }
    assert_eq!(subject.state(), Some(AlertState::Resolved));
    subject.pass(true, 10);
    assert_eq!(
        (subject.pass(true, 12), subject.state()),
        (None, Some(AlertState::Firing)),
        "a message said so before"
    );
    subject.pass(false, 13);
    assert_eq!(subject.pass(false, 18), Some(Announcement::Resolved));
}

#[test]
fn a_rule_without_a_webhook_or_muted_in_the_settings_says_nothing() {
    for rule in [Rule { webhook: None, ..rule() }, Rule { is_muted: true, ..rule() }] {
        let mut subject = Subject::default();
        for minute in 0..20 {
            assert_eq!(subject.pass_with(Some(&rule), minute < 5, false, at(minute)), None);
        }
        assert_eq!(subject.state(), Some(AlertState::Resolved));
    }
    let mut subject = Subject::default();
    subject.pass(true, 0);
    subject.pass(true, 2);
    let silent = Rule { webhook: None, ..rule() };
    for minute in 3..12 {
        assert_eq!(subject.pass_with(Some(&silent), false, false, at(minute)), None);
    }
    assert!(!subject.alert.expect("kept").is_open(), "it does not wait for a message that nobody sends");
}

#[test]
fn an_alert_whose_rule_was_removed_is_resolved_in_silence() {
    let mut subject = Subject::default();
    subject.pass(true, 0);
    subject.pass(true, 2);
    assert_eq!(subject.pass_with(None, false, false, at(3)), None);
    assert_eq!(subject.state(), Some(AlertState::Resolving));
    assert_eq!(subject.pass_with(None, false, false, at(8)), None);
    assert_eq!(subject.state(), Some(AlertState::Resolved));
    assert!(!subject.alert.expect("kept").is_open());
    let mut pending = Subject::default();
    pending.pass(true, 0);
    pending.pass_with(None, false, false, at(1));
    assert_eq!(pending.alert, None);
}

#[test]
fn a_subject_that_disappears_is_resolved_as_one_that_is_fine_again() {
    // A queue that is gone, a worker that was forgotten, a job that was pruned: the rule finds nothing.
    let mut subject = Subject::default();
    subject.pass(true, 0);
    subject.pass(true, 2);
    assert_eq!(subject.pass(false, 3), None);
    assert_eq!(subject.pass(false, 8), Some(Announcement::Resolved));
}

#[test]
fn what_changes_all_the_time_is_written_once_a_minute_and_what_does_not_now_and_then() {
    let mut subject = Subject::default();
    let rule = rule();
    let seconds = |seconds: u64| BEGIN + Duration::from_secs(seconds);
    for second in (0..=150).step_by(15) {
        subject.pass_with(Some(&rule), true, false, seconds(second));
    }
    // Pending at 0 and again at 60, firing at 120.
    assert_eq!((subject.state(), subject.writes), (Some(AlertState::Firing), 3));
    assert_eq!(subject.alert.as_ref().map(|alert| alert.value.as_str()), Some("120"));
    subject.pass_with(Some(&rule), true, false, seconds(180));
    assert_eq!(subject.alert.as_ref().map(|alert| alert.value.as_str()), Some("180"));
    let same = finding("180");
    let alert = subject.alert.expect("it fires");
    let step = |seconds: u64| {
        step(Some(&rule), Some(&alert), Some(&same), false, at(3) + Duration::from_secs(seconds))
    };
    assert_eq!(step(299), Step::Keep);
    assert!(matches!(step(300), Step::Set { announcement: None, .. }));
}

#[test]
fn a_rule_that_changes_its_severity_changes_its_alerts() {
    let mut subject = Subject::default();
    subject.pass(true, 0);
    let worse = Rule { severity: Severity::Bad, ..rule() };
    assert_eq!(subject.pass_with(Some(&worse), true, false, at(2)), Some(Announcement::Firing));
    assert_eq!(subject.alert.expect("it fires").severity, Severity::Bad);
}
