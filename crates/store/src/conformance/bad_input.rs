//! What must not get in, and what is odd but legal.

use std::time::Duration;

use windlass_model::{Conflict, NewJob, Payload, RateCharge, Serial, States, Time, Unique, When, limits};

use super::kit::*;
use crate::{ClaimRequest, Error};

type Spoil = fn(&mut NewJob);

/// Every way to spoil a job, and what the error must say.
const SPOILS: [(Spoil, &str); 37] = [
    (|j| j.kind.kind = String::new(), "the kind is empty"),
    (|j| j.kind.kind = "k".repeat(129), "129 bytes long"),
    (|j| j.kind.kind = "a b".into(), "contains ' '"),
    (|j| j.kind.kind = "a$b".into(), "contains '$'"),
    (|j| j.kind.kind = "windlass.poll".into(), "reserved"),
    (|j| j.kind.version = 0, "not positive"),
    (|j| j.kind.version = i32::MIN, "not positive"),
    (|j| j.queue = String::new(), "the queue is empty"),
    (|j| j.queue = "a\0b".into(), "contains '\\0'"),
    (|j| j.queue = "a\nb".into(), "contains '\\n'"),
    (|j| j.queue = "windlass.timers".into(), "reserved"),
    (|j| j.key = Some(String::new()), "the key is empty"),
    (|j| j.key = Some("k".repeat(1 << 20)), "1048576 bytes long"),
    (|j| j.key = Some("a\0".into()), "NUL"),
    (|j| j.priority = 101, "out of range"),
    (|j| j.priority = -32_767, "out of range"),
    (|j| j.when = When::After(Duration::MAX), "100 years"),
    (|j| j.when = When::At(Time(Time::MAX.0 + 1)), "9999"),
    (|j| j.when = When::At(Time(i64::MAX)), "9999"),
    (|j| j.deadline_at = Some(Time(i64::MAX)), "9999"),
    (|j| j.tags = vec!["t".into(); 33], "more than the 32"),
    (|j| j.tags = vec!["a\0".into()], "NUL"),
    (|j| j.tags = vec![String::new()], "empty"),
    (|j| j.tags = vec!["windlass.x".into()], "reserved"),
    (|j| j.options = Some("{\"a\":".into()), "not JSON"),
    (|j| j.options = Some(format!("\"{}\"", "x".repeat(limits::MAX_OPTIONS_BYTES))), "bytes long"),
    (|j| j.settings.timeout = Some(Duration::ZERO), "timeout"),
    (|j| j.settings.unique = name("", States::LIVE, None), "the unique key is empty"),
    (|j| j.settings.unique = name("a\0", States::LIVE, None), "NUL"),
    (|j| j.settings.unique = name("a", States::of([]), None), "has no states"),
    (|j| j.settings.unique = name("a", States::LIVE, Some(Duration::ZERO)), "is zero"),
    (|j| j.settings.serial = serial("", None), "the serial key is empty"),
    (|j| j.settings.serial = serial("windlass.x", None), "reserved"),
    (|j| j.settings.serial = serial("k", Some(0)), "are 0"),
    (|j| j.settings.serial = serial("k", Some(10_001)), "are 10001"),
    (|j| j.settings.rate = Some(Box::new(RateCharge { limit: "api".into(), weight: 0 })), "is zero"),
    (|j| j.parent = Some(j.id), "the job itself"),
];

fn name(key: &str, scope: States, within: Option<Duration>) -> Option<Box<Unique>> {
    Some(Box::new(Unique { key: key.into(), scope, within, conflict: Conflict::Keep }))
}

fn serial(key: &str, slots: Option<u32>) -> Option<Box<Serial>> {
    Some(Box::new(Serial { key: key.into(), slots, keeps_slot: false }))
}

pub async fn every_limit_is_an_error_that_says_so(store: Handle) {
    let refused = async |bad: NewJob, text: &str| {
        let error = store.submit(at(0), &[bad], None).await.expect_err(text);
        assert!(matches!(error, Error::Invalid(_)) && !error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains(text), "{error} lacks {text:?}");
    };
    for (spoil, text) in SPOILS {
        let mut bad = job(1);
        spoil(&mut bad);
        refused(bad, text).await;
    }
    let mut large = job(1);
    large.input = Payload::json(vec![b'1'; store.limits().payload + 1]);
    refused(large, "the input").await;
    assert!(list(&store, all_jobs()).await.is_empty());
}

pub async fn one_invalid_job_refuses_the_whole_call(store: Handle) {
    let worker = worker(&store, 1).await;
    let before = gates(&store, &[QUEUE, crate::TIMER_GATE]).await;
    let mut batch = jobs(1, 3);
    batch[1].deadline_at = Some(t(50));
    batch[2].key = Some("a\0".into());
    for born in [None, claim_on_submit(worker, 1)] {
        let error = store.submit(at(0), &batch, born).await.expect_err("refused");
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }
    assert!(list(&store, all_jobs()).await.is_empty());
    assert_eq!(claim_count(&store, worker).await, 0);
    assert_eq!(fire_timers(&store, 99, 9).await.next_at, None);
    assert_eq!(gates(&store, &[QUEUE, crate::TIMER_GATE]).await, before);
    assert!(claim(&store, at(0), &claim_request(worker, 1, 9)).await.is_empty());
}

pub async fn what_is_just_legal_is_taken(store: Handle) {
    let mut most = job(1);
    most.kind = kind(&"k".repeat(limits::MAX_NAME_BYTES), i32::MAX);
    most.queue = "q".repeat(limits::MAX_NAME_BYTES);
    most.key = Some("ü".repeat(limits::MAX_KEY_BYTES / 2));
    most.priority = 100;
    most.deadline_at = Some(Time(i64::MIN));
    most.tags = (0..limits::MAX_TAGS).map(|n| format!("{n:0>128}")).collect();
    most.options = Some(format!("\"{}\"", "x".repeat(limits::MAX_OPTIONS_BYTES - 2)));
    most.settings.unique = name(&"n".repeat(limits::MAX_KEY_BYTES), States::KEPT, Some(Duration::MAX));
    most.settings.serial = serial(&"s".repeat(limits::MAX_KEY_BYTES), Some(10_000));
    most.parent = Some(id(99));
    most.input = Payload { codec: 255, bytes: vec![0; store.limits().payload] };
    let mut least = job(2);
    (least.priority, least.input) = (-100, Payload::default());
    (least.tags, least.options) = (vec!["a".into(), "a".into()], Some(" null ".into()));
    submit(&store, &[most.clone(), least.clone()]).await;
    for new in [most, least] {
        let kept = view(&store, new.id).await;
        assert_eq!((kept.summary.kind, kept.summary.version), (new.kind.kind, new.kind.version));
        assert_eq!((kept.summary.queue, kept.summary.key), (new.queue, new.key));
        assert_eq!((kept.summary.priority, kept.deadline_at), (new.priority, new.deadline_at));
        assert_eq!((kept.tags, kept.options), (new.tags, new.options));
        assert!(kept.input == new.input, "the input is as it was");
    }
    assert_eq!(fire_timers(&store, 1, 9).await.expired, 1, "a deadline before all time has passed");
}

pub async fn odd_text_and_bytes_come_back_as_they_were(store: Handle) {
    let worker = worker(&store, 1).await;
    let odd = [
        "'; drop table jobs; --",
        "\\x00",
        "%_{}[]\",\"",
        "\u{1f980} e\u{301} \u{202e}",
        "null",
        " a ",
        "\t\r\n",
    ];
    for (n, text) in odd.into_iter().enumerate() {
        let mut new = job(n as u32);
        new.key = Some(text.into());
        new.tags = vec![text.into(), "x".into()];
        new.options = Some(serde_json::to_string(text).expect("text is JSON"));
        new.input.bytes = [text.as_bytes(), &[0, 255, 254]].concat();
        submit(&store, &[new.clone()]).await;
        let kept = view(&store, new.id).await;
        assert_eq!((kept.summary.key, kept.tags, kept.options), (new.key, new.tags, new.options));
        assert_eq!(kept.input, new.input);
        for filter in [
            crate::Filter { key: Some(text.into()), ..all_jobs() },
            crate::Filter { tag: Some(text.into()), ..all_jobs() },
        ] {
            assert_eq!(list(&store, filter).await, [new.id], "{text:?}");
        }
        let claimed = claim_one(&store, 0, worker, n as i64 + 1).await;
        assert_eq!(
            (claimed.key.as_deref(), claimed.input.bytes.ends_with(&[0, 255, 254])),
            (Some(text), true)
        );
        let output = Payload { codec: 9, bytes: claimed.input.bytes.clone() };
        commit(&store, 1, change(worker, &claimed, windlass_model::Outcome::Done(output.clone()))).await;
        assert_eq!(view(&store, new.id).await.output, Some(output));
    }
}

pub async fn a_claim_of_names_nobody_used_is_empty(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[job(1)]).await;
    let kinds = [kind("nobody", 1), kind(KIND, 99), kind("'; --", 1)];
    let nobody = ClaimRequest { kinds: kinds.into(), ..claim_request(worker, 1, 9) };
    assert!(claim(&store, at(0), &nobody).await.is_empty());
    let nowhere = ClaimRequest { queue: "no such queue".into(), ..claim_request(worker, 2, 9) };
    assert!(claim(&store, at(0), &nowhere).await.is_empty());
    assert_eq!(claim(&store, at(0), &claim_request(worker, 3, 9)).await.len(), 1);
}
