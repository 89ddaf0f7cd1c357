//! Alerts: changes that follow a number, messages that are jobs, mutes.

use windlass_model::{
    Calendar, JobId, NewJob, Payload, Schedule, State,
    calendar::{CatchUp, Overlap, Unit},
    schedule::MISSED_WITHOUT_WORKER,
};

use super::kit::*;
use crate::{
    ALERT_KIND, ALERT_QUEUE, Actor, AdminAction, Alert, AlertChange, AlertMute, AlertState, AlertTarget,
    AuditFilter, ControlOutcome, Error, Filter, NewAlertMute, Severity,
};

fn alert(subject: &str, state: AlertState, seconds: u64) -> Alert {
    Alert {
        rule: "behind".into(),
        subject: subject.into(),
        severity: Severity::Warn,
        state,
        value: "12m".into(),
        text: format!("queue {subject}: \"12m\" ü"),
        target: AlertTarget::Queue { queue: subject.into() },
        since: t(seconds),
        fired_at: None,
        clear_since: None,
        resolved_at: None,
        updated_at: t(seconds),
        posted: false,
        rev: 0,
    }
}

fn firing(subject: &str, seconds: u64) -> Alert {
    Alert { fired_at: Some(t(seconds)), ..alert(subject, AlertState::Firing, seconds) }
}

fn resolved(alert: &Alert, seconds: u64) -> Alert {
    let (state, resolved_at) = (AlertState::Resolved, Some(t(seconds)));
    Alert { state, resolved_at, posted: false, updated_at: t(seconds), ..alert.clone() }
}

fn message(n: u32, key: &str) -> NewJob {
    let input = Payload::json(format!("{{\"rule\":\"{key}\"}}").into_bytes());
    NewJob { key: Some(key.into()), ..NewJob::new(id(n), ALERT_KIND, ALERT_QUEUE, input) }
}

fn set(alert: &Alert) -> AlertChange {
    AlertChange::Set { alert: Box::new(alert.clone()), message: None }
}

fn set_and_say(alert: &Alert, message: NewJob) -> AlertChange {
    AlertChange::Set { alert: Box::new(alert.clone()), message: Some(Box::new(message)) }
}

fn delete(alert: &Alert) -> AlertChange {
    AlertChange::Delete { rule: alert.rule.clone(), subject: alert.subject.clone(), rev: alert.rev }
}

async fn write(store: &Handle, seconds: u64, changes: &[AlertChange]) -> Vec<bool> {
    store.write_alerts(at(seconds), changes).await.expect("write")
}

async fn open(store: &Handle) -> Vec<Alert> {
    store.open_alerts(100).await.expect("read")
}

async fn only_open(store: &Handle) -> Alert {
    let mut open = open(store).await;
    assert_eq!(open.len(), 1, "{open:?}");
    open.remove(0)
}

async fn exists(store: &Handle, job: JobId) -> bool {
    store.inspect().job(job).await.expect("read").is_some()
}

pub async fn an_alert_is_kept_as_it_is_written(store: Handle) {
    assert_eq!(open(&store).await, []);
    let mut full = firing("mail", 5);
    (full.clear_since, full.resolved_at, full.posted) = (Some(t(6)), Some(t(7)), true);
    (full.severity, full.state) = (Severity::Bad, AlertState::Resolving);
    full.target = AlertTarget::Branch { job: id(9), branch: "items".into() };
    assert_eq!(
        write(&store, 9, &[set(&full), set(&alert("a\"b", AlertState::Pending, 8))]).await,
        [true, true]
    );
    let kept = Alert { rev: 1, ..alert("a\"b", AlertState::Pending, 8) };
    assert_eq!(open(&store).await, [kept.clone(), Alert { rev: 1, ..full }], "by rule and subject");
    assert_eq!(store.open_alerts(1).await.expect("read"), [kept]);
    assert_eq!(store.resolved_alerts(9).await.expect("read"), []);
}

pub async fn a_change_follows_the_number_that_it_knows(store: Handle) {
    assert_eq!(write(&store, 1, &[set(&alert("mail", AlertState::Pending, 1))]).await, [true]);
    let pending = only_open(&store).await;
    let fires = Alert { rev: pending.rev, ..firing("mail", 2) };
    let change = [set_and_say(&fires, message(1, "first"))];
    assert_eq!(write(&store, 2, &change).await, [true]);
    assert_eq!(
        write(&store, 2, &[set_and_say(&fires, message(2, "second"))]).await,
        [false],
        "it was changed"
    );
    assert_eq!(write(&store, 2, &[set_and_say(&firing("mail", 2), message(3, "third"))]).await, [false]);
    assert_eq!(write(&store, 2, &[delete(&pending)]).await, [false]);
    assert!(exists(&store, id(1)).await && !exists(&store, id(2)).await && !exists(&store, id(3)).await);
    let other = firing("sms", 3);
    let changes =
        [delete(&only_open(&store).await), set_and_say(&other, message(4, "fourth")), delete(&pending)];
    assert_eq!(write(&store, 3, &changes).await, [true, true, false], "each by itself");
    assert_eq!(only_open(&store).await.subject, "sms");
    assert!(exists(&store, id(4)).await);
}

pub async fn a_message_is_a_job_of_a_reserved_kind_that_workers_claim(store: Handle) {
    write(&store, 1, &[set_and_say(&firing("mail", 1), message(1, "behind/mail"))]).await;
    let job = view(&store, id(1)).await;
    assert_eq!((job.summary.kind.as_str(), job.summary.queue.as_str()), (ALERT_KIND, ALERT_QUEUE));
    assert_eq!((job.summary.state, job.summary.key.as_deref()), (State::Ready, Some("behind/mail")));
    let worker = worker(&store, 1).await;
    let mut request = claim_request(worker, 1, 9);
    (request.queue, request.kinds) = (ALERT_QUEUE.into(), [kind(ALERT_KIND, 1)].into());
    let claimed = claim(&store, at(2), &request).await;
    assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [id(1)]);
    let refused = store.submit(at(3), &[message(2, "own")], None).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "nobody else submits one: {refused:?}");
    for other in [
        NewJob { queue: "default".into(), ..message(3, "x") },
        NewJob { kind: kind("mail", 1), ..message(3, "x") },
    ] {
        let refused = store.write_alerts(at(3), &[set_and_say(&firing("sms", 3), other)]).await;
        assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    }
    let large = NewJob { input: Payload::json(vec![b' '; 2 << 20]), ..message(3, "x") };
    let refused = store.write_alerts(at(3), &[set_and_say(&firing("sms", 3), large)]).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(only_open(&store).await.subject, "mail", "what was refused is not written");
}

pub async fn a_message_with_a_known_key_is_submitted_once(store: Handle) {
    write(&store, 1, &[set_and_say(&firing("mail", 1), message(1, "same"))]).await;
    let fires = only_open(&store).await;
    assert_eq!(write(&store, 2, &[set_and_say(&fires, message(2, "same"))]).await, [true]);
    assert!(!exists(&store, id(2)).await);
}

pub async fn a_resolved_alert_is_kept_and_replaced_when_it_comes_back(store: Handle) {
    write(&store, 1, &[set(&firing("mail", 1)), set(&firing("sms", 2))]).await;
    let [mail, sms]: [Alert; 2] = open(&store).await.try_into().expect("two");
    assert_eq!(write(&store, 8, &[set(&resolved(&mail, 8)), set(&resolved(&sms, 7))]).await, [true, true]);
    assert_eq!(open(&store).await, []);
    let subjects = |alerts: Vec<Alert>| alerts.into_iter().map(|alert| alert.subject).collect::<Vec<_>>();
    assert_eq!(subjects(store.resolved_alerts(9).await.expect("read")), ["mail", "sms"], "the newest first");
    assert_eq!(subjects(store.resolved_alerts(1).await.expect("read")), ["mail"]);
    let late = write(&store, 9, &[set(&alert("mail", AlertState::Pending, 7))]).await;
    assert_eq!(late, [false], "whoever wrote this has not seen that it was resolved");
    write(&store, 20, &[set(&alert("mail", AlertState::Pending, 20))]).await;
    let pending = only_open(&store).await;
    assert_eq!((pending.since, pending.fired_at, pending.resolved_at), (t(20), Some(t(1)), Some(t(8))));
    assert_eq!(pending.rev, 3);
    write(&store, 21, &[set(&Alert { rev: pending.rev, ..firing("mail", 21) })]).await;
    let fires = only_open(&store).await;
    assert_eq!((fires.fired_at, fires.resolved_at, fires.rev), (Some(t(21)), None, 4));
    write(&store, 22, &[set(&firing("sms", 22))]).await;
    assert_eq!(open(&store).await[1].resolved_at, None, "one that fires at once keeps nothing");
}

pub async fn an_alert_stays_open_until_a_message_says_that_it_is_resolved(store: Handle) {
    write(&store, 1, &[set(&Alert { posted: true, ..firing("mail", 1) })]).await;
    let fires = only_open(&store).await;
    write(&store, 2, &[set(&Alert { posted: true, ..resolved(&fires, 2) })]).await;
    let silent = only_open(&store).await;
    assert_eq!((silent.state, silent.posted), (AlertState::Resolved, true));
    assert_eq!(write(&store, 3, &[set(&firing("mail", 3))]).await, [false], "it is open");
    assert_eq!(write(&store, 3, &[set(&resolved(&silent, 2))]).await, [true]);
    assert_eq!(open(&store).await, []);
}

pub async fn of_many_writers_one_records_a_change(store: Handle) {
    let writers = (0..8).map(|n| {
        let store = Handle::clone(&store);
        tokio::spawn(async move {
            let first =
                write(&store, 1, &[set_and_say(&firing("mail", 1), message(n, &format!("new{n}")))]).await;
            // Another writer may have resolved it by now, and no older change opens it again.
            let Some(fires) = open(&store).await.pop() else { return (first[0], false) };
            let key = format!("again{n}");
            let again = set_and_say(&Alert { rev: 1, ..resolved(&fires, 2) }, message(100 + n, &key));
            (first[0], write(&store, 2, &[again]).await[0])
        })
    });
    let (mut added, mut changed) = (0, 0);
    for writer in writers.collect::<Vec<_>>() {
        let (first, again) = writer.await.expect("no panic");
        (added, changed) = (added + u32::from(first), changed + u32::from(again));
    }
    assert_eq!((added, changed), (1, 1));
    let messages = list(&store, Filter { kind: Some(ALERT_KIND.into()), ..all_jobs() }).await;
    assert_eq!(messages.len() as u32, added + changed, "as many messages as changes");
}

pub async fn mutes_are_kept_until_they_end(store: Handle) {
    let ada = Actor::new("ada").note("known");
    let mute = |subject: Option<&str>, until: Option<u64>| NewAlertMute {
        rule: "behind".into(),
        subject: subject.map(Into::into),
        until: until.map(t),
    };
    for new in [mute(Some("mail"), Some(50)), mute(None, None)] {
        assert_eq!(store.mute_alerts(at(5), &new, &ada).await.expect("mute"), ControlOutcome::Done);
    }
    let mutes = async |seconds| store.alert_mutes(at(seconds)).await.expect("read");
    let kept = |subject: Option<&str>, until: Option<u64>| AlertMute {
        rule: "behind".into(),
        subject: subject.map(Into::into),
        until: until.map(t),
        at: t(5),
        author: "ada".into(),
        note: Some("known".into()),
    };
    assert_eq!(mutes(49).await, [kept(None, None), kept(Some("mail"), Some(50))]);
    assert_eq!(mutes(50).await, [kept(None, None)]);
    let bob = Actor::new("bob");
    assert_eq!(
        store.mute_alerts(at(6), &mute(None, Some(90)), &bob).await.expect("mute"),
        ControlOutcome::Done
    );
    let replaced = AlertMute { at: t(6), author: "bob".into(), note: None, ..kept(None, Some(90)) };
    assert_eq!(mutes(7).await[0], replaced);
    let unmute = async |seconds, subject| {
        store.unmute_alerts(at(seconds), "behind", subject, &bob).await.expect("unmute")
    };
    assert!(matches!(unmute(60, Some("mail")).await, ControlOutcome::Already(_)), "it has ended by itself");
    assert_eq!(unmute(60, None).await, ControlOutcome::Done);
    assert!(matches!(unmute(61, None).await, ControlOutcome::Already(_)));
    let entries = store.inspect().audit(&AuditFilter::default()).await.expect("audit");
    let entries: Vec<_> = entries
        .iter()
        .map(|entry| (entry.author.as_str(), entry.action.as_str(), entry.subject.as_str()))
        .collect();
    let expected = [
        ("bob", "unmute alert", "behind"),
        ("bob", "mute alert", "behind"),
        ("ada", "mute alert", "behind"),
        ("ada", "mute alert", "behind/mail"),
    ];
    assert_eq!(entries, expected, "what changed nothing is not in the audit log");
}

pub async fn a_test_message_is_a_job_and_in_the_audit_log(store: Handle) {
    let actor = Actor::new("ada");
    let sent = store.test_alert(at(1), "behind", &message(1, "test"), &actor).await.expect("test");
    assert_eq!(sent, ControlOutcome::Created(id(1)));
    assert_eq!(view(&store, id(1)).await.summary.state, State::Ready);
    let entries = store.inspect().audit(&AuditFilter::default()).await.expect("audit");
    assert_eq!((entries[0].action.as_str(), entries[0].subject.as_str()), ("test alert", "behind"));
    assert_eq!(open(&store).await, []);
    let plain = job(2);
    assert!(
        store.test_alert(at(1), "behind", &plain, &actor).await.is_err(),
        "no other job gets in this way"
    );
}

pub async fn old_alerts_and_mutes_are_pruned(store: Handle) {
    let subjects = ["a", "b", "c"];
    let changes: Vec<AlertChange> = subjects.iter().map(|subject| set(&firing(subject, 1))).collect();
    write(&store, 1, &changes).await;
    let fire = open(&store).await;
    write(&store, 9, &[set(&resolved(&fire[0], 9)), set(&resolved(&fire[1], 5))]).await;
    for (rule, until) in [("old", Some(5)), ("new", Some(9)), ("for_ever", None)] {
        let mute = NewAlertMute { rule: rule.into(), subject: None, until: until.map(t) };
        store.mute_alerts(at(1), &mute, &Actor::new("ada")).await.expect("mute").accepted().expect("done");
    }
    assert_eq!(store.prune_alerts(t(5), 9).await.expect("prune"), 0);
    assert_eq!(store.prune_alerts(t(9), 9).await.expect("prune"), 2);
    let left = store.resolved_alerts(9).await.expect("read");
    assert_eq!(left.iter().map(|alert| alert.subject.as_str()).collect::<Vec<_>>(), ["a"]);
    let mutes = store.alert_mutes(at(0)).await.expect("read");
    assert_eq!(mutes.iter().map(|mute| mute.rule.as_str()).collect::<Vec<_>>(), ["for_ever", "new"]);
    assert_eq!(only_open(&store).await.subject, "c", "open ones stay");
    write(&store, 10, &[set(&resolved(&only_open(&store).await, 10))]).await;
    assert_eq!(store.prune_alerts(t(99), 1).await.expect("prune"), 2, "one of each");
    assert_eq!(store.prune_alerts(t(99), 9).await.expect("prune"), 1);
}

pub async fn alerts_with_bad_names_are_refused(store: Handle) {
    let long = "x".repeat(5_000);
    let bad = [
        Alert { rule: String::new(), ..firing("a", 1) },
        firing("", 1),
        firing(&long, 1),
        Alert { rule: long.clone(), ..firing("a", 1) },
        Alert { text: long.clone(), ..firing("a", 1) },
        Alert { value: "nul\0".into(), ..firing("a", 1) },
    ];
    for alert in bad {
        let refused = store.write_alerts(at(1), &[set(&firing("good", 1)), set(&alert)]).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{alert:?}: {refused:?}");
    }
    assert_eq!(open(&store).await, []);
    let mute = NewAlertMute { rule: "r".into(), subject: Some(String::new()), until: None };
    assert!(store.mute_alerts(at(1), &mute, &Actor::new("ada")).await.is_err());
}

pub async fn the_latest_ticks_that_schedules_missed_are_read_at_once(store: Handle) {
    let every_ten = |name: &str, overlap| {
        let calendar = Calendar::every(10, Unit::Seconds).expect("a calendar");
        let schedule = Schedule::new(name, calendar, kind(KIND, 1), payload("7"));
        Schedule { overlap, catch_up: CatchUp::Skip, ..schedule }
    };
    for schedule in [every_ten("down", Overlap::Allow), every_ten("busy", Overlap::Skip)] {
        administer(&store, 0, AdminAction::Schedule(Box::new(schedule))).await;
    }
    assert_eq!(store.latest_misses().await.expect("read"), []);
    // The job of the first tick of `busy` never ends.
    for seconds in [10, 20, 30] {
        fire_timers(&store, seconds, 100).await;
    }
    assert_eq!(store.inspect().misses("busy", 9).await.expect("read").len(), 1);
    assert_eq!(store.latest_misses().await.expect("read"), [], "that is its policy");
    fire_timers(&store, 500, 100).await;
    let misses = store.latest_misses().await.expect("read");
    let names: Vec<&str> = misses.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["busy", "down"]);
    assert!(misses.iter().all(|(_, miss)| miss.why.contains(MISSED_WITHOUT_WORKER)), "{misses:?}");
    assert_eq!(misses[1].1, store.inspect().misses("down", 1).await.expect("read")[0]);
}
