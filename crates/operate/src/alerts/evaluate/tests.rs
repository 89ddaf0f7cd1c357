//! What each condition finds.

use windlass_model::{BranchCounts, JobId, Merge, WorkerId, calendar::Missed};
use windlass_store::{Miss, Pause, QueueView, Severity, WorkerView};

use super::*;

const NOW: Time = Time(1_798_761_600_000_000);

fn ago(minutes: u64) -> Time {
    NOW - Duration::from_secs(minutes * 60)
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

fn queue(name: &str, oldest_ready: Option<Time>, paused: Option<Time>) -> QueueView {
    let paused = paused.map(|at| Pause { at, author: "ada".into(), note: Some("a move".into()) });
    QueueView { name: name.into(), paused, oldest_ready }
}

fn ended(queue: &str, kind: &str, done: u64, failed: u64, retried: u64) -> EndedOfKind {
    EndedOfKind { queue: queue.into(), kind: kind.into(), done, failed, retried }
}

fn branch(name: &str, spawned: i64, done: i64, failed: i64, idle_since: Time) -> ObservedBranch {
    let branch = BranchHealth {
        job: JobId::from_parts(1, 0, 0),
        name: name.into(),
        merge: Some(Merge::all()),
        spawned,
        counts: BranchCounts { started: 0, done, failed, cancelled: 0 },
        poll_at: None,
    };
    ObservedBranch { branch, idle_since }
}

fn schedule(name: &str, next_at: Option<Time>, missed_at: Option<Time>) -> ObservedSchedule {
    let miss = |at| Miss {
        at,
        missed: Missed { from: at, to: at, count: 3, at_least: true },
        why: "no worker was running".into(),
    };
    ObservedSchedule { name: name.into(), next_at, missed: missed_at.map(miss) }
}

fn worker(id: i64, name: &str, lost_at: Option<Time>) -> WorkerView {
    WorkerView {
        id: WorkerId(id),
        name: name.into(),
        liveness_file: None,
        alive: false,
        lease_until: ago(5),
        lost_at,
        claims: 0,
        serves: Vec::new(),
    }
}

/// What one rule finds: subject, value and text.
fn found(when: Condition, snapshot: Snapshot) -> Vec<(String, String, String)> {
    let findings = evaluate(&[Rule::new("r", when)], &Snapshot { now: NOW, ..snapshot });
    findings.into_iter().map(|finding| (finding.subject, finding.value, finding.text)).collect()
}

fn subjects(when: Condition, snapshot: Snapshot) -> Vec<String> {
    found(when, snapshot).into_iter().map(|(subject, ..)| subject).collect()
}

#[test]
fn a_queue_is_behind_when_its_oldest_ready_job_has_waited_too_long() {
    let snapshot = || Snapshot {
        queues: vec![
            queue("fine", Some(ago(10)), None),
            queue("mail", Some(ago(11)), None),
            queue("empty", None, None),
            queue("paused", Some(ago(99)), Some(ago(1))),
            queue("windlass.alerts", Some(ago(99)), None),
        ],
        ..Snapshot::default()
    };
    let rule =
        |queue: Option<&str>| Condition::OldestReady { queue: queue.map(Into::into), above: minutes(10) };
    let [(subject, value, text)] = found(rule(None), snapshot()).try_into().expect("one");
    assert_eq!((subject.as_str(), value.as_str()), ("mail", "11m"));
    assert_eq!(text, "the oldest ready job of queue mail has waited for 11m, longer than 10m");
    assert_eq!(subjects(rule(Some("mail")), snapshot()), ["mail"]);
    assert_eq!(subjects(rule(Some("fine")), snapshot()), [""; 0]);
    let ahead = Snapshot { queues: vec![queue("mail", Some(NOW + minutes(1)), None)], ..Snapshot::default() };
    assert_eq!(subjects(rule(None), ahead), [""; 0], "a clock that is ahead is no wait");
}

#[test]
fn failures_are_counted_per_kind_in_the_queues_that_are_meant() {
    let snapshot = || {
        let rows = vec![
            ended("default", "mail", 0, 6, 0),
            ended("bulk", "mail", 9, 5, 9),
            ended("default", "sms", 0, 10, 0),
            ended("windlass.alerts", "windlass.alert", 0, 99, 0),
        ];
        let other_span = (minutes(60), vec![ended("default", "sms", 0, 99, 0)]);
        Snapshot { ended: vec![(minutes(10), rows), other_span], ..Snapshot::default() }
    };
    let rule = |kind: Option<&str>, queue: Option<&str>, above| {
        let of = JobSelection { kind: kind.map(Into::into), queue: queue.map(Into::into) };
        Condition::Failures { of, above, within: minutes(10) }
    };
    let [(subject, value, text)] = found(rule(None, None, 10), snapshot()).try_into().expect("one");
    assert_eq!((subject.as_str(), value.as_str()), ("mail", "11 failed"));
    assert_eq!(text, "11 jobs of kind mail failed within 10m, more than 10");
    assert_eq!(subjects(rule(None, None, 9), snapshot()), ["mail", "sms"]);
    assert_eq!(subjects(rule(Some("sms"), None, 9), snapshot()), ["sms"]);
    let [(_, _, text)] = found(rule(Some("mail"), Some("bulk"), 4), snapshot()).try_into().expect("one");
    assert_eq!(text, "5 jobs of kind mail in queue bulk failed within 10m, more than 4");
    assert_eq!(subjects(rule(Some("mail"), Some("bulk"), 5), snapshot()), [""; 0]);
}

#[test]
fn an_error_rate_needs_enough_ends() {
    let snapshot = |done, failed, retried| {
        let rows = vec![ended("default", "mail", done, failed, retried)];
        Snapshot { ended: vec![(minutes(10), rows)], ..Snapshot::default() }
    };
    let rule = |count, at_least| Condition::ErrorRate {
        of: JobSelection::default(),
        count,
        percent: 50,
        at_least,
        within: minutes(10),
    };
    let [(_, value, text)] = found(rule(RateUnit::Attempts, 20), snapshot(8, 4, 9)).try_into().expect("one");
    assert_eq!(value, "61 %");
    assert_eq!(text, "61 % of 21 attempts of kind mail failed within 10m, more than 50 %");
    assert_eq!(subjects(rule(RateUnit::Attempts, 22), snapshot(8, 4, 9)), [""; 0], "too few");
    assert_eq!(subjects(rule(RateUnit::Jobs, 1), snapshot(8, 4, 9)), [""; 0], "a third of the jobs");
    assert_eq!(subjects(rule(RateUnit::Jobs, 1), snapshot(4, 4, 0)), [""; 0], "no more than half");
    assert_eq!(subjects(rule(RateUnit::Jobs, 1), snapshot(4, 5, 0)), ["mail"]);
    assert_eq!(subjects(rule(RateUnit::Attempts, 1), snapshot(0, 0, 0)), [""; 0]);
}

#[test]
fn a_branch_is_stuck_if_nothing_ends_or_its_merge_waits_for_unsuccessful_children() {
    let rule = || Condition::StuckBranch { above: minutes(60) };
    let snapshot = |seen| Snapshot { branches: vec![seen], ..Snapshot::default() };
    let [(subject, value, text)] =
        found(rule(), snapshot(branch("items", 1_000, 10, 2, ago(61)))).try_into().expect("one");
    assert!(subject.ends_with("/items"), "{subject}");
    assert_eq!(value, "61m");
    assert!(text.ends_with("has ended for 61m, and 988 of 1,000 have not ended"), "{text}");
    assert_eq!(subjects(rule(), snapshot(branch("items", 1_000, 10, 2, ago(60)))), [""; 0]);
    assert_eq!(subjects(rule(), snapshot(branch("items", 12, 12, 0, ago(99)))), [""; 0], "it will be merged");
    let [(_, value, text)] =
        found(rule(), snapshot(branch("items", 12, 10, 2, ago(0)))).try_into().expect("one");
    assert_eq!(value, "2 unsuccessful children");
    assert!(text.contains("`windlass redrive"), "{text}");
}

#[test]
fn a_schedule_missed_ticks_lately_or_is_late_now() {
    let rule = |only: Option<&str>| Condition::ScheduleMissed {
        schedule: only.map(Into::into),
        within: minutes(60),
    };
    let snapshot = || Snapshot {
        schedules: vec![
            schedule("fine", Some(NOW + minutes(5)), None),
            schedule("long ago", Some(ago(4)), Some(ago(61))),
            schedule("missed", None, Some(ago(60))),
            schedule("late", Some(ago(6)), Some(ago(1))),
        ],
        ..Snapshot::default()
    };
    let all = found(rule(None), snapshot());
    assert_eq!(
        all[0],
        (
            "missed".into(),
            "3 ticks or more".into(),
            "schedule missed missed 3 ticks or more: no worker was running".into()
        )
    );
    assert_eq!((all[1].0.as_str(), all[1].1.as_str(), all.len()), ("late", "6m late", 2));
    assert_eq!(subjects(rule(Some("late")), snapshot()), ["late"]);
}

#[test]
fn workers_that_were_declared_dead_lately_are_lost() {
    let snapshot = Snapshot {
        workers: vec![
            worker(1, "retired", None),
            worker(2, "lost", Some(ago(10))),
            worker(3, "long ago", Some(ago(11))),
        ],
        ..Snapshot::default()
    };
    let [(subject, value, _)] =
        found(Condition::WorkerLost { within: minutes(10) }, snapshot).try_into().expect("one");
    assert_eq!((subject, value.as_str()), (WorkerId(2).to_string(), "lost"));
}

#[test]
fn a_queue_that_is_paused_for_long_is_named_with_who_did_it() {
    let snapshot = Snapshot {
        queues: vec![queue("mail", None, Some(ago(121))), queue("sms", None, Some(ago(120)))],
        ..Snapshot::default()
    };
    let rule = Condition::QueuePaused { queue: None, above: minutes(120) };
    let [(subject, value, text)] = found(rule, snapshot).try_into().expect("one");
    assert_eq!((subject.as_str(), value.as_str()), ("mail", "2h"));
    assert_eq!(text, "queue mail has been paused by ada for 2h: a move");
}

#[test]
fn findings_are_of_their_rule_and_link_to_their_subject() {
    let rules = [
        Rule {
            severity: Severity::Bad,
            ..Rule::new("one", Condition::QueuePaused { queue: None, above: minutes(1) })
        },
        Rule::new("two", Condition::WorkerLost { within: minutes(10) }),
    ];
    let snapshot = Snapshot {
        now: NOW,
        queues: vec![queue("mail", None, Some(ago(2)))],
        workers: vec![worker(2, "lost", Some(ago(1)))],
        ..Snapshot::default()
    };
    let findings = evaluate(&rules, &snapshot);
    let links: Vec<_> =
        findings.iter().map(|finding| (finding.rule.as_str(), finding.link.clone())).collect();
    assert_eq!(
        links,
        [
            ("one", AlertTarget::Queue { queue: "mail".into() }),
            ("two", AlertTarget::Worker { worker: WorkerId(2) }),
        ]
    );
    assert_eq!(evaluate(&[], &snapshot), []);
}
