//! What the types of the protocol keep, refuse and ignore.

use std::time::Duration;

use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use windlass_model::{
    BranchMember, BranchNo, BranchPosition, BranchUpdate, BranchWatch, ClaimNo, ClaimedJob, Epoch, Failure,
    FirstAttempt, JobId, JournalEntry, KindVersion, NewJob, NewSignal, Outcome, Payload, RateCharge, Reason,
    Retry, Rev, Serial, Settings, Signal, State, States, StepWrites, Time, Unique, UnreadableSignal, Unwind,
    Wait, WaitCondition, When, WorkerId,
    branch::PollInterval,
    journal::{CallEvent, CallKind},
    wait::SignalName,
};

use super::{
    calls::*,
    change::{self, JobFacts, RetryState},
    job::{Claimed, Job},
    reads,
    shared::{answer, request},
};

fn through<T: Serialize, U: DeserializeOwned>(value: &T) -> U {
    let text = serde_json::to_string(value).expect("plain data");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn id(number: u32) -> JobId {
    JobId::from_parts(1_800_000_000_000, number, 1)
}

fn settings() -> Settings {
    let retry =
        Retry::rules().on("busy", 3).backoff(Duration::from_secs(2), Duration::from_secs(9)).otherwise(2);
    Settings {
        retry: Some(retry.jitter(0.5)),
        timeout: Some(Duration::from_millis(1_500)),
        unique: Some(Box::new(
            Unique::new("name").scope(States::KEPT).within(Duration::from_secs(60)).or_replace(),
        )),
        serial: Some(Box::new(Serial::new("key").slots(3).keep_slot())),
        rate: Some(Box::new(RateCharge::new("api").weight(4))),
        tick: Some(Time(7_000_000)),
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
    }
}

fn payload(text: &str) -> Payload {
    Payload::json(text.as_bytes().to_vec())
}

/// A job with every field.
fn new_job() -> NewJob {
    let position = BranchPosition { branch: BranchNo(7), spawn: 2, item: "ü".into(), items: 9 };
    NewJob {
        kind: KindVersion { kind: "k".into(), version: 4 },
        key: Some("key".into()),
        priority: -7,
        when: When::After(Duration::from_secs(5)),
        deadline_at: Some(Time(9_000_001)),
        parent: Some(id(2)),
        parent_rev: Some(Rev::DETACHED),
        branch_position: Some(Box::new(position)),
        stage: Some("Begin".into()),
        signals: vec![NewSignal {
            job: id(1),
            name: "go".into(),
            dedup: "1".into(),
            payload: payload("null"),
        }],
        tags: vec!["red".into()],
        options: Some("{\"a\":1}".into()),
        settings: settings(),
        digest: [0xab; 16],
        ..NewJob::new(id(1), "k", "q", Payload { codec: 3, bytes: vec![0, 255] })
    }
}

fn condition() -> WaitCondition {
    let names =
        vec![SignalName { name: "a".into(), every: true }, SignalName { name: "b".into(), every: false }];
    WaitCondition::Signals { names, needs: 2 }
}

/// A claimed job with every field.
fn claimed_job() -> ClaimedJob {
    let signal = Signal { number: 3, name: "a".into(), at: Time(5), payload: payload("1"), unreadable: None };
    ClaimedJob {
        rev: Rev(4),
        attempts: 2,
        retry_counts: vec![1, 0],
        worker_deaths: 1,
        parent: Some(id(5)),
        branch_member: Some(BranchMember { parent: id(5), branch: BranchNo(7), items: 9 }),
        stage_rev: Rev(3),
        steps_since_wait: 8,
        data: Some(payload("[2]")),
        wait: Some(condition()),
        wait_until: Some(Time(8)),
        pending_children: 6,
        inbox: vec![signal],
        unwind: Some(Box::new(Unwind { reason: Some(Reason::Expired), failure: Failure::stop("late") })),
        fault: Some("settings".into()),
        ..NewJob { settings: settings(), ..new_job() }.claimed_at_submit(ClaimNo(2), Epoch(3), Time(1))
    }
}

fn entry() -> JournalEntry {
    JournalEntry {
        seq: 5,
        call_kind: CallKind::WaitUntil,
        event: CallEvent::DoneWithUndo,
        name: "n".into(),
        key: Some("k".into()),
        line: Some("a.rs:1".into()),
        at: Time(1),
        payload: payload("{}"),
    }
}

/// A step with every field.
fn step() -> StepWrites {
    let watch = BranchWatch {
        done: Some(1),
        unsuccessful: Some(2),
        ended: Some(3),
        poll_interval: PollInterval { min: Duration::from_secs(1), max: Duration::from_secs(2) },
    };
    let failed = Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop("no").class("busy") };
    StepWrites {
        from_stage: Some("A".into()),
        stage: Some(("B".into(), payload("1"))),
        unchanged: true,
        partial: true,
        consumed: vec![1, 2],
        unreadable: vec![UnreadableSignal::new(3, "why")],
        children: vec![new_job()],
        signal_child_ends: true,
        branches: vec![BranchUpdate {
            number: BranchNo(9),
            opened_as: Some("parts".into()),
            spawns: Some(vec!["part".into()]),
            cursor: Some(payload("5")),
            seal: true,
            watch: Some(watch),
            merge_record: Some("{}".into()),
            merged: true,
            cancel_children: true,
        }],
        items: 4,
        promoted: vec![NewJob { when: When::At(Time(3)), ..new_job() }],
        first_attempts: vec![FirstAttempt { job: id(6), started_at: Time(2), outcome: failed }],
        entries: vec![entry()],
        forget_entries: vec![1],
        context: vec![("color".into(), payload("\"red\""))],
        continue_as_new: true,
        has_undo: true,
        unwind: Some(Box::new(Unwind { reason: None, failure: Failure::cancel("enough") })),
    }
}

const NO_POLICY: RetryState<'_> = RetryState { own: None, counts: &[], random: 0.0 };

#[test]
fn jobs_arrive_as_they_were_sent() {
    let job: Job = through(&Job::from(new_job()));
    assert_eq!(NewJob::try_from(job), Ok(new_job()));
    let plain = NewJob::new(id(1), "k", "q", payload("1"));
    let text = serde_json::to_string(&Job::from(plain.clone())).expect("plain data");
    assert_eq!(
        text,
        format!("{{\"id\":\"{}\",\"kind\":\"k\",\"queue\":\"q\",\"input\":{{\"json\":1}}}}", id(1))
    );
    assert_eq!(
        NewJob::try_from(serde_json::from_str::<Job>(&text).expect("as sent")),
        Ok(plain),
        "the digest is made"
    );
    let claimed: Claimed = through(&Claimed::from(claimed_job()));
    assert_eq!(ClaimedJob::try_from(claimed), Ok(claimed_job()));
}

#[test]
fn changes_arrive_with_what_the_attempt_did_and_what_the_server_knows() {
    let job = claimed_job();
    let outcomes = [
        Outcome::Done(payload("1")),
        Outcome::Failed {
            reason: Reason::Diverged,
            failure: Failure::retry("x").retry_after(Duration::from_secs(3)),
        },
        Outcome::Retry { after: Duration::from_secs(4), retry_counts: vec![2], failure: None },
        Outcome::Cancelled(Failure::cancel("no").class("mine").with_detail(&json!({ "a": [1] }))),
        Outcome::Next,
        Outcome::Wait(Wait { condition: condition(), timeout: Some(Duration::from_secs(5)) }),
        Outcome::Wait(Wait { condition: WaitCondition::Children { rev: Rev(8) }, timeout: None }),
        Outcome::Wait(Wait::YIELD),
    ];
    for outcome in outcomes {
        let mut change = windlass_model::Change::new(&job, WorkerId(5), Time(6), outcome);
        change.writes = Some(Box::new(step()));
        let sent: change::Change = through(&change::Change::of(change.clone()));
        let facts = JobFacts::from(&job);
        assert_eq!(sent.clone().into_change(WorkerId(5), &facts, &NO_POLICY), Ok(change.clone()));
        let unknown = sent.into_change(WorkerId(5), &JobFacts::default(), &NO_POLICY).expect("a change");
        let none = (unknown.parent, unknown.branch_member, unknown.deadline_at, unknown.is_serial);
        assert_eq!(none, (None, None, None, false), "nothing of it is in the request");
    }
}

#[test]
fn an_error_is_decided_by_the_own_policy_then_that_of_the_kind_then_the_default() {
    let end = |policy: Option<Retry>| change::End {
        error: Some(Failure::retry("x").class("busy").into()),
        policy: policy.as_ref().map(request::retry_rules),
        ..change::End::default()
    };
    let decide = |end: change::End, own: Option<&Retry>, counts: &[u32]| {
        end.into_outcome(&RetryState { own, counts, random: 0.0 }).expect("an outcome")
    };
    let (once, twice) = (Retry::times(1), Retry::times(2));
    assert!(decide(end(Some(once.clone())), None, &[]).ends());
    assert!(!decide(end(Some(once.clone())), Some(&twice), &[]).ends());
    assert!(decide(end(Some(once)), Some(&twice), &[1]).ends(), "the second failure");
    assert!(!decide(end(None), None, &[5]).ends(), "20 attempts");
}

#[test]
fn reads_arrive_as_they_were_sent() {
    let failure = Failure::stop("no").class("mine");
    for end in [
        windlass_store::JobEnd::Done(Payload { codec: 1, bytes: vec![9] }),
        windlass_store::JobEnd::Failed { reason: Reason::Poison, failure: failure.clone() },
        windlass_store::JobEnd::Cancelled(failure),
        windlass_store::JobEnd::Gone,
    ] {
        assert_eq!(windlass_store::JobEnd::from(through::<_, Ended>(&Ended::from(end.clone()))), end);
    }
    assert_eq!(JournalEntry::from(through::<_, answer::Entry>(&answer::Entry::from(entry()))), entry());
    let branch = windlass_store::Branch {
        job: id(1),
        number: BranchNo(2),
        name: "parts".into(),
        spawns: vec!["part".into()],
        cursor: Some(payload("3")),
        sealed: true,
        merged: true,
        cancels_children: true,
        spawned: 9,
        counts: windlass_model::BranchCounts { started: 8, done: 5, failed: 2, cancelled: 1 },
        watch: Some(BranchWatch { done: Some(1), ..BranchWatch::default() }),
        merge_record: Some("{}".into()),
        opened_at: Time(1),
        sealed_at: Some(Time(3)),
        merged_at: Some(Time(2)),
        poll: windlass_model::BranchPoll { polls: 3, missing: 2, ..Default::default() },
    };
    assert_eq!(
        windlass_store::Branch::from(through::<_, reads::Branch>(&reads::Branch::from(branch.clone()))),
        branch
    );
    let child = windlass_store::BranchChild {
        summary: windlass_store::Summary {
            id: id(3),
            kind: "k".into(),
            version: 2,
            queue: "q".into(),
            key: Some("a".into()),
            state: State::Failed,
            stage: Some("S".into()),
            reason: Some(Reason::Timeout),
            priority: 3,
            attempts: 4,
            submitted_at: Time(1),
            due_at: Time(2),
            finished_at: Some(Time(3)),
        },
        branch_position: BranchPosition { branch: BranchNo(2), spawn: 1, item: "i".into(), items: 5 },
        items_done: 2,
        ended: Some(windlass_store::JobEnd::Gone),
        input: payload("1"),
        data: Some(payload("2")),
    };
    let sent: reads::BranchChild = through(&reads::BranchChild::from(child.clone()));
    assert_eq!(windlass_store::BranchChild::from(sent), child);
}

/// The name of a call, its smallest request, and whether a value is a request of the call.
type Sample = (&'static str, Value, fn(Value) -> bool);

/// All requests, each as small as it may be.
fn samples() -> Vec<Sample> {
    fn parses<R: Request + DeserializeOwned>(value: Value) -> bool {
        serde_json::from_value::<R>(value).is_ok()
    }
    let (worker, job) = ("w1", id(1));
    vec![
        ("hello", json!({}), parses::<Hello>),
        ("register", json!({ "name": "a", "lease_ms": 1 }), parses::<Register>),
        (
            "claim",
            json!({ "worker": worker, "number": 1, "queue": "q", "kinds": [{ "kind": "k" }], "limit": 1 }),
            parses::<Claim>,
        ),
        ("renew", json!({ "worker": worker, "lease_ms": 1 }), parses::<Renew>),
        ("release-claims", json!({ "worker": worker, "numbers": [1] }), parses::<ReleaseClaims>),
        (
            "release",
            json!({ "worker": worker, "jobs": [{ "job": job, "epoch": 0, "claim": 1 }] }),
            parses::<Release>,
        ),
        ("retire", json!({ "worker": worker }), parses::<Retire>),
        (
            "commit",
            json!({ "worker": worker, "changes": [{ "job": job, "claim": 1, "epoch": 0, "rev": 0, "started_at": "2026-11-19T04:00:00Z", "outcome": { "done": { "json": 1 } } }] }),
            parses::<Commit>,
        ),
        ("gates", json!({ "queues": ["q"] }), parses::<Gates>),
        ("cancels", json!({ "worker": worker }), parses::<Cancels>),
        ("end-cancelled", json!({ "worker": worker, "jobs": [job] }), parses::<EndCancelled>),
        (
            "submit",
            json!({ "jobs": [{ "id": job, "kind": "k", "queue": "q", "input": { "json": 1 } }] }),
            parses::<Submit>,
        ),
        (
            "signal",
            json!({ "signals": [{ "job": job, "name": "a", "dedup": "1", "payload": { "json": 1 } }] }),
            parses::<Deliver>,
        ),
        ("ends", json!({ "jobs": [job] }), parses::<Ends>),
        ("journal", json!({ "job": job }), parses::<reads::Journal>),
        ("journals", json!({ "jobs": [job] }), parses::<reads::Journals>),
        ("context", json!({ "job": job }), parses::<reads::Context>),
        ("inbox", json!({ "job": job }), parses::<reads::Inbox>),
        ("child-ends", json!({ "job": job, "rev": 1 }), parses::<reads::ChildEnds>),
        ("branches", json!({ "job": job }), parses::<reads::Branches>),
        ("branch-children", json!({ "job": job, "branch": 1 }), parses::<reads::BranchChildren>),
        ("clock", json!({}), parses::<reads::Clock>),
    ]
}

/// Calls `check` with copies of a value that have an unknown field, each in another object.
fn with_unknown_fields(value: &Value, check: &mut dyn FnMut(Value)) {
    fn walk(whole: &Value, path: &str, at: &Value, check: &mut dyn FnMut(Value)) {
        match at {
            Value::Object(fields) => {
                // A payload has exactly its fields, in requests and in answers; what is in it is the program's own.
                if !fields.contains_key("json") && !fields.contains_key("base64") {
                    let mut copy = whole.clone();
                    copy.pointer_mut(path).expect("it is there")["unknown"] = json!(1);
                    check(copy);
                }
                for (name, inner) in fields.iter().filter(|(name, _)| *name != "json") {
                    walk(whole, &format!("{path}/{name}"), inner, check);
                }
            }
            Value::Array(items) => {
                for (index, inner) in items.iter().enumerate() {
                    walk(whole, &format!("{path}/{index}"), inner, check);
                }
            }
            _ => {}
        }
    }
    walk(value, "", value, check);
}

#[test]
fn requests_refuse_unknown_and_missing_fields() {
    for (call, body, parses) in samples() {
        assert!(parses(body.clone()), "{call}: {body}");
        with_unknown_fields(&body, &mut |wrong| assert!(!parses(wrong.clone()), "{call}: {wrong}"));
        for field in body.as_object().expect("an object").keys() {
            let mut less = body.clone();
            less.as_object_mut().expect("an object").remove(field);
            assert!(!parses(less.clone()), "{call}: {less}");
        }
    }
    let full = serde_json::to_value(Commit {
        worker: WorkerId(1),
        changes: vec![change::Change::of(windlass_model::Change {
            writes: Some(Box::new(step())),
            ..windlass_model::Change::new(&claimed_job(), WorkerId(1), Time(1), Outcome::Next)
        })],
    });
    let mut tried = 0;
    with_unknown_fields(&full.expect("plain data"), &mut |wrong| {
        // An error's own data may have any fields.
        tried += 1;
        assert!(serde_json::from_value::<Commit>(wrong.clone()).is_err(), "{wrong}");
    });
    assert!(tried > 20, "{tried}");
}

#[test]
fn answers_ignore_unknown_fields() {
    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(answer: T) {
        let value = serde_json::to_value(&answer).expect("plain data");
        with_unknown_fields(&value, &mut |more| {
            let read: T =
                serde_json::from_value(more.clone()).unwrap_or_else(|error| panic!("{error}: {more}"));
            assert_eq!(read, answer);
        });
    }
    let job = ClaimedJob { branch_member: None, ..claimed_job() };
    check(ClaimAnswer {
        jobs: vec![job.into()],
        more: true,
        suspects: true,
        refill_at: Some(Time(1)),
        now: Time(2),
    });
    check(Renewed { held: true, lapsed: false, claims: vec![ClaimNo(1)], cancels: Vec::new() });
    check(SubmitAnswer {
        outcomes: vec![Submitted::Existing { job: id(1), same_input: true }, Submitted::IdTaken],
    });
    check(EndsAnswer {
        ends: vec![None, Some(windlass_store::JobEnd::Cancelled(Failure::cancel("x")).into())],
    });
    check(reads::JournalPage { entries: vec![entry().into()], more: false });
}

/// Any JSON of few values, so that names of fields are met.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "worker", "job", "jobs", "changes", "outcome", "done", "json", "base64", "codec", "error", "step",
        "claim", "epoch", "rev", "kind", "kinds", "queue", "number", "limit", "input", "id", "message",
        "children", "x",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9=:.-]{0,12}".prop_map(Value::from),
        Just(json!("w1")),
        Just(json!(id(1))),
        Just(json!("2026-11-19T04:00:00Z")),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever is sent is parsed or refused; and what is parsed is converted or refused.
    #[test]
    fn no_text_breaks_a_parser(value in any_json(), cut in 0usize..200) {
        let text = value.to_string();
        for (_, _, parses) in samples() {
            let _ = parses(value.clone());
        }
        let part = text.get(..cut.min(text.len())).unwrap_or_default();
        let _ = serde_json::from_str::<Commit>(part);
        if let Ok(job) = serde_json::from_value::<Job>(value.clone()) {
            let _ = NewJob::try_from(job);
        }
        if let Ok(end) = serde_json::from_value::<change::End>(value.clone()) {
            let _ = end.into_outcome(&NO_POLICY);
        }
        let _ = serde_json::from_value::<ClaimAnswer>(value).map(|answer| {
            answer.jobs.into_iter().map(ClaimedJob::try_from).collect::<Vec<_>>()
        });
    }

    /// A good request with one value replaced is parsed or refused.
    #[test]
    fn no_wrong_value_breaks_a_parser(wrong in any_json(), at in 0usize..40) {
        for (_, body, parses) in samples() {
            let text = body.to_string();
            let places: Vec<usize> = text.match_indices(':').map(|(index, _)| index + 1).collect();
            if let Some(place) = places.get(at) {
                let end = text[*place..].find([',', '}']).map_or(text.len(), |end| place + end);
                let changed = format!("{}{wrong}{}", &text[..*place], &text[end..]);
                if let Ok(value) = serde_json::from_str(&changed) {
                    let _ = parses(value);
                }
            }
        }
    }
}
