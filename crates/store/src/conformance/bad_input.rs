//! Invalid input is refused; unusual but valid input is stored unchanged.

use std::time::Duration;

use windlass_model::{Conflict, NewJob, Payload, RateCharge, Serial, States, Time, Unique, When, limits};

use super::kit::*;
use crate::{ClaimRequest, Error};

type Edit = fn(&mut NewJob);

/// Edits that make a job invalid, and what the error must contain.
const INVALID_EDITS: [(Edit, &str); 37] = [
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
    (|j| j.settings.unique = unique("", States::LIVE, None), "the unique key is empty"),
    (|j| j.settings.unique = unique("a\0", States::LIVE, None), "NUL"),
    (|j| j.settings.unique = unique("a", States::of([]), None), "has no states"),
    (|j| j.settings.unique = unique("a", States::LIVE, Some(Duration::ZERO)), "is zero"),
    (|j| j.settings.serial = serial("", None), "the serial key is empty"),
    (|j| j.settings.serial = serial("windlass.x", None), "reserved"),
    (|j| j.settings.serial = serial("k", Some(0)), "are 0"),
    (|j| j.settings.serial = serial("k", Some(10_001)), "are 10001"),
    (|j| j.settings.rate = Some(Box::new(RateCharge { limit: "api".into(), weight: 0 })), "is zero"),
    (|j| j.parent = Some(j.id), "the job itself"),
];

fn unique(key: &str, scope: States, within: Option<Duration>) -> Option<Box<Unique>> {
    Some(Box::new(Unique { key: key.into(), scope, within, conflict: Conflict::Keep }))
}

fn serial(key: &str, slots: Option<u32>) -> Option<Box<Serial>> {
    Some(Box::new(Serial { key: key.into(), slots, keeps_slot: false }))
}

pub async fn every_exceeded_limit_is_an_error_with_a_reason(store: Handle) {
    let refused = async |bad: NewJob, text: &str| {
        let error = store.submit(at(0), &[bad], None).await.expect_err(text);
        assert!(matches!(error, Error::Invalid(_)) && !error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains(text), "{error} lacks {text:?}");
    };
    for (edit, text) in INVALID_EDITS {
        let mut bad = job(1);
        edit(&mut bad);
        refused(bad, text).await;
    }
    let mut large = job(1);
    large.input = Payload::json(vec![b'1'; store.limits().payload + 1]);
    refused(large, "the input").await;
    assert!(list(&store, all_jobs()).await.is_empty());
}

pub async fn one_invalid_job_refuses_the_call(store: Handle) {
    let worker = worker(&store, 1).await;
    let before = gates(&store, &[QUEUE, crate::TIMER_GATE]).await;
    let mut batch = jobs(1, 3);
    batch[1].deadline_at = Some(t(50));
    batch[2].key = Some("a\0".into());
    for claim_on_submit in [None, claim_on_submit(worker, 1)] {
        let error = store.submit(at(0), &batch, claim_on_submit).await.expect_err("refused");
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }
    assert!(list(&store, all_jobs()).await.is_empty());
    assert_eq!(claim_count(&store, worker).await, 0);
    assert_eq!(fire_timers(&store, 99, 9).await.next_at, None);
    assert_eq!(gates(&store, &[QUEUE, crate::TIMER_GATE]).await, before);
    assert!(claim(&store, at(0), &claim_request(worker, 1, 9)).await.is_empty());
}

pub async fn values_at_the_limits_are_accepted(store: Handle) {
    let mut largest = job(1);
    largest.kind = kind(&"k".repeat(limits::MAX_NAME_BYTES), i32::MAX);
    largest.queue = "q".repeat(limits::MAX_NAME_BYTES);
    largest.key = Some("ü".repeat(limits::MAX_KEY_BYTES / 2));
    largest.priority = 100;
    largest.deadline_at = Some(Time(i64::MIN));
    largest.tags = (0..limits::MAX_TAGS).map(|n| format!("{n:0>128}")).collect();
    largest.options = Some(format!("\"{}\"", "x".repeat(limits::MAX_OPTIONS_BYTES - 2)));
    largest.settings.unique = unique(&"n".repeat(limits::MAX_KEY_BYTES), States::KEPT, Some(Duration::MAX));
    largest.settings.serial = serial(&"s".repeat(limits::MAX_KEY_BYTES), Some(10_000));
    largest.parent = Some(id(99));
    largest.input = Payload { codec: 255, bytes: vec![0; store.limits().payload] };
    let mut smallest = job(2);
    (smallest.priority, smallest.input) = (-100, Payload::default());
    (smallest.tags, smallest.options) = (vec!["a".into(), "a".into()], Some(" null ".into()));
    submit(&store, &[largest.clone(), smallest.clone()]).await;
    for new in [largest, smallest] {
        let kept = view(&store, new.id).await;
        assert_eq!((kept.summary.kind, kept.summary.version), (new.kind.kind, new.kind.version));
        assert_eq!((kept.summary.queue, kept.summary.key), (new.queue, new.key));
        assert_eq!((kept.summary.priority, kept.deadline_at), (new.priority, new.deadline_at));
        assert_eq!((kept.tags, kept.options), (new.tags, new.options));
        assert!(kept.input == new.input, "the input is unchanged");
    }
    assert_eq!(fire_timers(&store, 1, 9).await.expired, 1, "a deadline in the distant past has passed");
}

pub async fn unusual_text_and_bytes_are_returned_unchanged(store: Handle) {
    let worker = worker(&store, 1).await;
    let unusual = [
        "'; drop table jobs; --",
        "\\x00",
        "%_{}[]\",\"",
        "\u{1f980} e\u{301} \u{202e}",
        "null",
        " a ",
        "\t\r\n",
    ];
    for (n, text) in unusual.into_iter().enumerate() {
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
        apply(&store, 1, change(worker, &claimed, windlass_model::Outcome::Done(output.clone()))).await;
        assert_eq!(view(&store, new.id).await.output, Some(output));
    }
}

pub async fn a_claim_of_unknown_kinds_or_queues_is_empty(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[job(1)]).await;
    let kinds = [kind("unknown", 1), kind(KIND, 99), kind("'; --", 1)];
    let unknown_kinds = ClaimRequest { kinds: kinds.into(), ..claim_request(worker, 1, 9) };
    assert!(claim(&store, at(0), &unknown_kinds).await.is_empty());
    let unknown_queue = ClaimRequest { queue: "no such queue".into(), ..claim_request(worker, 2, 9) };
    assert!(claim(&store, at(0), &unknown_queue).await.is_empty());
    assert_eq!(claim(&store, at(0), &claim_request(worker, 3, 9)).await.len(), 1);
}
