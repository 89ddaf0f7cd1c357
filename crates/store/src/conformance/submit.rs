//! Submits: new jobs, repeats and taken keys, due times, jobs claimed at submit.

use windlass_model::{
    Epoch, NewJob, Retry, Rev, State, SubmitOutcome, Time, When, WorkerId, limits, trace::EXAMPLE as TRACE,
};

use super::kit::*;

const NEW: SubmitOutcome = SubmitOutcome::New { claimed: None };
const CLAIMED: SubmitOutcome = SubmitOutcome::New { claimed: Some(Epoch(0)) };

async fn submit_all(store: &Handle, jobs: &[NewJob]) -> Vec<SubmitOutcome> {
    store.submit(at(0), jobs, None).await.expect("submit")
}

pub async fn a_new_job_is_ready_and_every_field_is_kept(store: Handle) {
    let mut new = job(1);
    new.kind.version = 7;
    new.key = Some("order 17".into());
    new.priority = -3;
    new.deadline_at = Some(t(500));
    new.tags = vec!["red".into(), "blau".into()];
    new.options = Some(r#"{"b": 1, "a": [null]}"#.into());
    new.settings.retry = Some(Retry::times(4).on("busy", 2));
    new.settings.timeout = Some(secs(9));
    new.settings.trace = Some(TRACE.into());
    assert_eq!(submit_all(&store, &[new.clone()]).await, [NEW]);
    let kept = view(&store, id(1)).await;
    assert_eq!(kept.summary.state, State::Ready);
    assert_eq!((kept.summary.kind.as_str(), kept.summary.version), (KIND, 7));
    assert_eq!(kept.summary.queue, QUEUE);
    assert_eq!(kept.summary.key, new.key);
    assert_eq!(kept.summary.priority, -3);
    assert_eq!((kept.summary.submitted_at, kept.summary.due_at), (t(0), t(0)));
    assert_eq!((kept.summary.finished_at, kept.summary.reason, kept.summary.attempts), (None, None, 0));
    assert_eq!(kept.deadline_at, new.deadline_at);
    assert_eq!(kept.tags, new.tags);
    assert_eq!(kept.options, new.options);
    assert_eq!(kept.settings, new.settings);
    assert_eq!(kept.input, new.input);
    assert_eq!((kept.epoch, kept.rev, kept.worker_deaths, kept.solo_crashes), (Epoch(0), Rev(0), 0, 0));
    assert_eq!((kept.worker, kept.started_at, kept.output, kept.failure), (None, None, None, None));
    assert!(kept.retry_counts.is_empty() && history(&store, id(1)).await.is_empty());
}

pub async fn a_repeated_submit_is_recognised_by_id_and_digest(store: Handle) {
    submit(&store, &[job(1)]).await;
    let before = view(&store, id(1)).await;
    let outcomes = store.submit(at(9), &[job(1), job(2)], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::Repeated, NEW]);
    assert_eq!(view(&store, id(1)).await, before);
    let worker = worker(&store, 1).await;
    assert_eq!(
        claim(&store, at(9), &claim_request(worker, 1, 9)).await.len(),
        2,
        "the repeat is in the ready set once"
    );
}

pub async fn another_input_under_the_same_id_is_refused(store: Handle) {
    submit(&store, &[job(1)]).await;
    let before = view(&store, id(1)).await;
    let other = NewJob::new(id(1), KIND, QUEUE, payload("other"));
    assert_eq!(submit_all(&store, &[other, job(2)]).await, [SubmitOutcome::IdTaken, NEW]);
    assert_eq!(view(&store, id(1)).await, before);
}

pub async fn a_key_belongs_to_the_first_job_of_its_kind(store: Handle) {
    let with_key = |n: u32, kind: &str, input: &str| NewJob {
        key: Some("k".into()),
        ..NewJob::new(id(n), kind, QUEUE, payload(input))
    };
    assert_eq!(submit_all(&store, &[with_key(1, "a", "x")]).await, [NEW]);
    let outcomes =
        submit_all(&store, &[with_key(2, "a", "x"), with_key(3, "a", "y"), with_key(4, "b", "x"), job(5)])
            .await;
    let existing = |same_input| SubmitOutcome::Existing { id: id(1), same_input };
    assert_eq!(outcomes, [existing(true), existing(false), NEW, NEW]);
    assert_eq!(list(&store, all_jobs()).await, [id(5), id(4), id(1)]);
    let same_id = NewJob { key: Some("k".into()), ..NewJob::new(id(1), "a", QUEUE, payload("x")) };
    assert_eq!(
        submit_all(&store, &[same_id]).await,
        [SubmitOutcome::Repeated],
        "the id is checked before the key"
    );
    let version = NewJob { kind: kind("a", 2), ..with_key(6, "a", "x") };
    assert_eq!(
        submit_all(&store, &[version]).await,
        [existing(true)],
        "a key belongs to a kind, in all its versions"
    );
    let queue = NewJob { queue: "other".into(), ..with_key(7, "a", "x") };
    assert_eq!(submit_all(&store, &[queue]).await, [existing(true)], "and in all queues");
}

pub async fn duplicates_within_one_call_are_treated_like_repeats(store: Handle) {
    let with_key = |n: u32, input: &str| NewJob {
        key: Some("k".into()),
        ..NewJob::new(id(n), KIND, QUEUE, payload(input))
    };
    let other = NewJob::new(id(1), KIND, QUEUE, payload("other"));
    let batch =
        [job(1), job(1), other, with_key(2, "x"), with_key(3, "x"), with_key(4, "y"), with_key(2, "x")];
    let existing = |same_input| SubmitOutcome::Existing { id: id(2), same_input };
    let expected = [
        NEW,
        SubmitOutcome::Repeated,
        SubmitOutcome::IdTaken,
        NEW,
        existing(true),
        existing(false),
        SubmitOutcome::Repeated,
    ];
    assert_eq!(submit_all(&store, &batch).await, expected);
    assert_eq!(list(&store, all_jobs()).await, [id(2), id(1)]);
    let other_key = |n| NewJob { key: Some("other".into()), ..job(n) };
    let first = SubmitOutcome::Existing { id: id(30), same_input: false };
    assert_eq!(
        submit_all(&store, &[other_key(30), other_key(20)]).await,
        [NEW, first],
        "the first of the call, not the smallest id"
    );
    let worker = worker(&store, 1).await;
    let outcomes = store.submit(at(0), &[job(5), job(5)], claim_on_submit(worker, 1)).await.expect("submit");
    assert_eq!(outcomes, [CLAIMED, SubmitOutcome::Repeated]);
    assert_eq!(ids(&claim(&store, at(0), &claim_request(worker, 1, 9)).await), [id(5)]);
}

pub async fn keys_and_ids_stay_taken_after_a_job_has_ended(store: Handle) {
    let worker = worker(&store, 1).await;
    let with_key = |n: u32| NewJob { key: Some("k".into()), ..NewJob::new(id(n), KIND, QUEUE, payload("x")) };
    submit(&store, &[with_key(1)]).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    apply(&store, 1, change(worker, &claimed, done("y"))).await;
    let outcomes = submit_all(&store, &[with_key(1), with_key(2)]).await;
    assert_eq!(outcomes, [SubmitOutcome::Repeated, SubmitOutcome::Existing { id: id(1), same_input: true }]);
    assert_eq!(state(&store, id(1)).await, State::Done);
}

pub async fn a_job_due_in_the_past_is_ready_and_one_due_later_is_scheduled(store: Handle) {
    let when = |n, when| NewJob { when, ..job(n) };
    let batch = [
        when(1, When::At(t(0) - secs(50))),
        when(2, When::At(t(0))),
        when(3, When::At(t(50))),
        when(4, When::At(Time(i64::MIN))),
    ];
    submit(&store, &batch).await;
    for n in [1, 2, 4] {
        let kept = view(&store, id(n)).await.summary;
        assert_eq!((kept.state, kept.due_at), (State::Ready, t(0)), "job {n}");
    }
    let kept = view(&store, id(3)).await.summary;
    assert_eq!((kept.state, kept.due_at, kept.submitted_at), (State::Scheduled, t(50), t(0)));
    let worker = worker(&store, 1).await;
    assert_eq!(
        ids(&claim(&store, at(60), &claim_request(worker, 1, 9)).await),
        [id(1), id(2), id(4)],
        "only a timer makes it ready"
    );
}

pub async fn a_delay_counts_from_the_submit(store: Handle) {
    let mut batch = jobs(1, 2);
    (batch[0].when, batch[1].when) = (When::After(secs(30)), When::After(secs(0)));
    store.submit(at(100), &batch, None).await.expect("submit");
    let waiting = view(&store, id(1)).await.summary;
    assert_eq!((waiting.state, waiting.due_at), (State::Scheduled, t(130)));
    assert_eq!(state(&store, id(2)).await, State::Ready);
    assert_eq!(fire_timers(&store, 129, 9).await.woken, 0);
    assert_eq!(fire_timers(&store, 130, 9).await.woken, 1);
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

pub async fn the_longest_delay_and_the_latest_time_are_kept(store: Handle) {
    let mut batch = jobs(1, 2);
    batch[0].when = When::After(limits::MAX_DELAY);
    (batch[1].when, batch[1].deadline_at) = (When::At(Time::MAX), Some(Time::MAX));
    submit(&store, &batch).await;
    assert_eq!(view(&store, id(1)).await.summary.due_at, t(0) + limits::MAX_DELAY);
    let last = view(&store, id(2)).await;
    assert_eq!((last.summary.due_at, last.deadline_at), (Time::MAX, Some(Time::MAX)));
    assert_eq!(fire_timers(&store, 1, 9).await.next_at, Some(t(0) + limits::MAX_DELAY));
}

pub async fn a_job_claimed_at_submit_belongs_to_its_submitter(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    let outcomes = store.submit(at(3), &jobs(1, 2), claim_on_submit(one, 1)).await.expect("submit");
    assert_eq!(outcomes, [CLAIMED, CLAIMED]);
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.state, kept.worker, kept.started_at), (State::Running, Some(one), Some(t(3))));
    assert!(claim(&store, at(3), &claim_request(two, 1, 9)).await.is_empty(), "no other worker gets it");
    let claimed = claim(&store, at(3), &claim_request(one, 1, 9)).await;
    assert_eq!(ids(&claimed), [id(1), id(2)]);
    assert_eq!(
        commit(&store, 4, change(one, &claimed[0], done("x"))).await,
        windlass_model::CommitOutcome::Committed
    );
    reap(&store, 5, one).await;
    assert_eq!((state(&store, id(1)).await, state(&store, id(2)).await), (State::Done, State::Ready));
}

pub async fn a_scheduled_job_is_not_claimed_at_submit(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut batch = jobs(1, 2);
    batch[0].when = When::After(secs(5));
    let outcomes = store.submit(at(0), &batch, claim_on_submit(worker, 1)).await.expect("submit");
    assert_eq!(outcomes, [NEW, CLAIMED]);
    assert_eq!(state(&store, id(1)).await, State::Scheduled);
    batch = vec![NewJob { when: When::After(secs(5)), ..job(3) }];
    assert_eq!(store.submit(at(0), &batch, claim_on_submit(worker, 2)).await.expect("submit"), [NEW]);
    assert_eq!(claim_count(&store, worker).await, 1, "an empty claim is not recorded");
}

pub async fn a_dead_lapsed_or_unknown_worker_claims_nothing_at_submit(store: Handle) {
    let (dead, lapsed, retired) = (worker(&store, 1).await, worker(&store, 2).await, worker(&store, 3).await);
    reap(&store, 0, dead).await;
    store.retire_worker(at(0), retired).await.expect("retire");
    for (n, worker) in [(1, dead), (3, retired), (4, WorkerId(99))] {
        let outcomes = store.submit(at(0), &[job(n)], claim_on_submit(worker, 1)).await.expect("submit");
        assert_eq!(outcomes, [NEW], "worker {worker}");
        assert_eq!(state(&store, id(n)).await, State::Ready);
    }
    let end = LEASE.as_secs();
    assert_eq!(store.submit(at(end), &[job(5)], claim_on_submit(lapsed, 1)).await.expect("submit"), [NEW]);
    assert_eq!(
        store.submit(at(end - 1), &[job(6)], claim_on_submit(lapsed, 2)).await.expect("submit"),
        [CLAIMED]
    );
    assert_eq!(super::kit::reports_lapsed(&renew(&store, end, lapsed).await), Some(false));
    assert_eq!(
        store.submit(at(end), &[job(7)], claim_on_submit(lapsed, 3)).await.expect("submit"),
        [CLAIMED]
    );
}

pub async fn a_repeated_submit_with_a_claim_returns_the_first_outcome(store: Handle) {
    let worker = worker(&store, 1).await;
    let batch = jobs(1, 3);
    let first = store.submit(at(0), &batch, claim_on_submit(worker, 1)).await.expect("submit");
    assert_eq!(first, [CLAIMED, CLAIMED, CLAIMED]);
    assert_eq!(store.submit(at(1), &batch, claim_on_submit(worker, 1)).await.expect("submit"), first);
    assert_eq!(claim_count(&store, worker).await, 1);
    assert_eq!(count(&store, State::Running).await, 3);
    assert_eq!(
        store.submit(at(1), &batch, claim_on_submit(worker, 2)).await.expect("submit"),
        [SubmitOutcome::Repeated; 3]
    );
    assert_eq!(submit_all(&store, &batch).await, [SubmitOutcome::Repeated; 3]);
    store.retire_worker(at(2), worker).await.expect("retire");
    assert_eq!(count(&store, State::Ready).await, 3, "each was returned once");
}

pub async fn a_claim_made_at_submit_can_be_repeated_and_settled(store: Handle) {
    let worker = worker(&store, 1).await;
    store.submit(at(0), &jobs(1, 2), claim_on_submit(worker, 1)).await.expect("submit");
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 9)).await;
    apply(&store, 1, change(worker, &claimed[1], done("x"))).await;
    assert_eq!(ids(&claim(&store, at(1), &claim_request(worker, 1, 9)).await), [id(1)]);
    apply(&store, 1, change(worker, &claimed[0], done("x"))).await;
    claim(
        &store,
        at(2),
        &crate::ClaimRequest { settled: vec![windlass_model::ClaimNo(1)], ..claim_request(worker, 2, 9) },
    )
    .await;
    assert_eq!(claim_count(&store, worker).await, 0);
}

pub async fn an_empty_submit_does_nothing(store: Handle) {
    let worker = worker(&store, 1).await;
    assert!(submit_all(&store, &[]).await.is_empty());
    assert!(store.submit(at(0), &[], claim_on_submit(worker, 1)).await.expect("submit").is_empty());
    assert_eq!(claim_count(&store, worker).await, 0);
}

pub async fn a_thousand_jobs_are_submitted_in_one_call(store: Handle) {
    submit(&store, &jobs(0, 1_000)).await;
    let again = submit_all(&store, &jobs(500, 1_000)).await;
    assert!(again[..500].iter().all(|outcome| *outcome == SubmitOutcome::Repeated));
    assert!(again[500..].iter().all(|outcome| *outcome == NEW));
    let worker = worker(&store, 1).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 2_000)).await;
    assert_eq!(ids(&claimed), (0..1_500).map(id).collect::<Vec<_>>());
}
