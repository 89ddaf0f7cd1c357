//! Serial keys: so many at once, first come first served, whatever becomes of those before.

use windlass_model::{
    ClaimedJob, CommitOutcome, NewJob, Outcome, Reason, Serial, State, SubmitOutcome, When, WorkerId,
};

use super::kit::*;
use crate::{AdminAction, ClaimRequest, ControlOutcome, JobAction, ReapRequest};

const KEY: &str = "account 7";

/// Jobs of one key, numbered from `from`.
fn line(from: u32, count: u32) -> Vec<NewJob> {
    (from..from + count).map(|n| serial_job(n, KEY)).collect()
}

/// The same job with other settings of its key.
fn with_slots(mut job: NewJob, slots: Option<u32>, hold: bool) -> NewJob {
    job.settings.serial = Some(Box::new(Serial { key: KEY.into(), slots, keeps_slot: hold }));
    job
}

/// Claims all that may be claimed; `number` tells the claims of a worker apart.
async fn take(store: &Handle, now: u64, worker: WorkerId, number: i64) -> Vec<ClaimedJob> {
    claim(store, at(now), &claim_request(worker, number, 99)).await
}

/// Claims, expects the job numbered `n` and nothing else, and hands it over.
async fn only(store: &Handle, now: u64, worker: WorkerId, number: i64, n: u32) -> ClaimedJob {
    let mut claimed = take(store, now, worker, number).await;
    assert_eq!(ids(&claimed), [id(n)], "of claim {number}");
    claimed.remove(0)
}

pub async fn jobs_of_a_key_run_one_at_a_time_in_the_order_they_became_due(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &line(5, 2)).await;
    submit(&store, &line(1, 2)).await;
    store.submit(at(1), &line(0, 1), None).await.expect("submit");
    for (number, n) in [(1, 5), (2, 1), (3, 2), (4, 6), (5, 0)] {
        let claimed = only(&store, 2, worker, number, n).await;
        assert!(take(&store, 2, worker, 90 + number).await.is_empty(), "one at a time");
        assert_eq!(commit(&store, 2, change(worker, &claimed, done("x"))).await, CommitOutcome::Committed);
    }
    assert!(
        store.inspect().serial_keys(None, 9).await.expect("keys").is_empty(),
        "nothing is held or waited for"
    );
}

pub async fn priority_does_not_reorder_a_line(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut batch = line(1, 4);
    for (job, priority) in batch.iter_mut().zip([0, 50, 0, -100]) {
        job.priority = priority;
    }
    submit(&store, &batch).await;
    assert_eq!(act_on_job(&store, 1, 3, JobAction::Priority(-50)).await, ControlOutcome::Done);
    for n in 1..=4 {
        let claimed = only(&store, 2, worker, i64::from(n), n).await;
        commit(&store, 2, change(worker, &claimed, done("x"))).await;
    }
}

pub async fn the_position_in_line_is_the_time_when_a_job_is_due(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &line(9, 1)).await;
    submit(&store, &[NewJob { when: When::At(t(10)), ..serial_job(1, KEY) }]).await;
    store.submit(at(5), &line(2, 1), None).await.expect("submit");
    store.submit(at(20), &line(0, 1), None).await.expect("submit");
    assert_eq!(
        fire_timers(&store, 30, 9).await.woken,
        1,
        "after the others were submitted, but its place is at 10"
    );
    for (number, n) in [(1, 9), (2, 2), (3, 1), (4, 0)] {
        let claimed = only(&store, 30, worker, number, n).await;
        commit(&store, 30, change(worker, &claimed, done("x"))).await;
    }
}

pub async fn a_key_runs_as_many_jobs_as_it_has_slots(store: Handle) {
    let worker = worker(&store, 1).await;
    let batch: Vec<_> = line(1, 5).into_iter().map(|job| with_slots(job, Some(3), false)).collect();
    submit(&store, &batch).await;
    let claimed = take(&store, 1, worker, 1).await;
    assert_eq!(ids(&claimed), [1, 2, 3].map(id));
    commit(&store, 2, change(worker, &claimed[1], done("x"))).await;
    only(&store, 2, worker, 2, 4).await;
    let keys = store.inspect().serial_keys(Some(KEY), 9).await.expect("keys");
    assert_eq!((keys[0].slots, keys[0].held, keys[0].waiting), (3, 3, 1));
}

pub async fn keys_are_independent_and_span_queues_and_kinds(store: Handle) {
    let worker = worker(&store, 1).await;
    let elsewhere = NewJob { queue: "side".into(), ..serial_job(2, KEY) };
    let other_kind = NewJob { kind: kind("other", 3), ..serial_job(3, KEY) };
    submit(&store, &[serial_job(1, KEY), elsewhere, other_kind, serial_job(4, "account 8"), job(5)]).await;
    let claimed = take(&store, 1, worker, 1).await;
    assert_eq!(ids(&claimed), [1, 4, 5].map(id));
    let other_queue = ClaimRequest { queue: "side".into(), ..claim_request(worker, 2, 9) };
    assert!(claim(&store, at(1), &other_queue).await.is_empty(), "the key is one for the whole store");
    let before = gates(&store, &[QUEUE, "side"]).await;
    commit(&store, 2, change(worker, &claimed[0], done("x"))).await;
    let after = gates(&store, &[QUEUE, "side"]).await;
    assert!(after[0] == before[0] && after[1] != before[1], "the gate of whoever got the slot moved");
    let next =
        claim(&store, at(2), &ClaimRequest { number: windlass_model::ClaimNo(3), ..other_queue }).await;
    commit(&store, 3, change(worker, &next[0], done("x"))).await;
    let others = ClaimRequest { kinds: [kind("other", 3)].into(), ..claim_request(worker, 4, 9) };
    assert_eq!(ids(&claim(&store, at(3), &others).await), [id(3)]);
}

/// One job runs, the other waits in line; the first is made to give its slot up, which must let the second in.
async fn hands_over<F: Future<Output = ()>>(
    store: &Handle,
    what: &str,
    n: u32,
    free: impl FnOnce(WorkerId, ClaimedJob) -> F,
) {
    let (one, two) = (worker(store, i64::from(n)).await, worker(store, i64::from(n) + 1).await);
    let key = format!("key {n}");
    let deadline_at = (what == "expire").then(|| t(5));
    submit(store, &[NewJob { deadline_at, ..serial_job(n, &key) }, serial_job(n + 1, &key)]).await;
    let claimed = only(store, 1, one, 1, n).await;
    assert_eq!(holds(store, n + 1).await.serial.expect("it has a key").ahead, 0);
    let before = gates(store, &[QUEUE]).await;
    free(one, claimed).await;
    assert_ne!(gates(store, &[QUEUE]).await, before, "{what}: the gate moved");
    let next = only(store, 6, two, 1, n + 1).await;
    commit(store, 6, change(two, &next, done("x"))).await;
}

pub async fn the_commit_that_frees_a_slot_gives_it_to_the_next_job(store: Handle) {
    let outcomes: [(&str, Outcome); 4] = [
        ("done", done("x")),
        ("failed", failed(Reason::Stopped)),
        ("cancelled", cancelled()),
        ("retry", retry(secs(600), &[])),
    ];
    for (round, (what, outcome)) in outcomes.into_iter().enumerate() {
        let store = &store;
        hands_over(store, what, 10 * (round as u32 + 1), |worker, claimed| async move {
            assert_eq!(commit(store, 5, change(worker, &claimed, outcome)).await, CommitOutcome::Committed);
        })
        .await;
    }
}

pub async fn every_other_end_and_every_pause_frees_the_slot(store: Handle) {
    let store = &store;
    hands_over(store, "expire", 10, |_, _| async move {
        assert_eq!(fire_timers(store, 5, 9).await.expired, 1);
    })
    .await;
    hands_over(store, "poison", 20, |worker, claimed| async move {
        let alone = super::kit::worker(store, 99).await;
        reap(store, 5, worker).await;
        let again = claim(store, at(5), &solo_claim_request(alone, 1)).await;
        assert_eq!(ids(&again), [claimed.id], "it kept its slot through the first death");
        let sweep = ReapRequest { dead: vec![alone], lapsed: false, limit: 9, crashes: 1 };
        assert_eq!(store.reap(at(5), &sweep).await.expect("reap").poisoned, 1);
    })
    .await;
    hands_over(store, "cancel", 30, |worker, claimed| async move {
        store.release(at(5), &[job_claim(worker, &claimed)]).await.expect("release");
        assert_eq!(act_on_job(store, 5, 30, cancel(9)).await, ControlOutcome::Done);
    })
    .await;
    hands_over(store, "told", 40, |_, _| async move {
        assert_eq!(act_on_job(store, 5, 40, cancel(0)).await, ControlOutcome::CancelRequested);
        assert_eq!(fire_timers(store, 5, 9).await.cancelled, 1);
    })
    .await;
    hands_over(store, "pause", 50, |worker, claimed| async move {
        store.release(at(5), &[job_claim(worker, &claimed)]).await.expect("release");
        assert_eq!(act_on_job(store, 5, 50, JobAction::Pause).await, ControlOutcome::Done);
    })
    .await;
    hands_over(store, "pause and release", 60, |worker, claimed| async move {
        assert_eq!(act_on_job(store, 5, 60, JobAction::Pause).await, ControlOutcome::Done);
        store.release(at(5), &[job_claim(worker, &claimed)]).await.expect("release");
        assert_eq!(state(store, id(60)).await, State::Ready, "side");
    })
    .await;
}

pub async fn a_retried_job_keeps_its_position_in_line(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &line(1, 4)).await;
    let first = only(&store, 1, worker, 1, 1).await;
    commit(&store, 2, change(worker, &first, retry(secs(8), &[]))).await;
    let second = only(&store, 2, worker, 2, 2).await;
    assert_eq!(fire_timers(&store, 10, 9).await.woken, 1);
    assert!(take(&store, 10, worker, 3).await.is_empty(), "it waits in line again");
    assert_eq!(holds(&store, 1).await.serial.expect("it has a key").ahead, 0);
    assert_eq!(holds(&store, 4).await.serial.expect("it has a key").ahead, 2);
    commit(&store, 11, change(worker, &second, done("x"))).await;
    only(&store, 11, worker, 4, 1).await;
}

pub async fn a_retry_without_delay_keeps_its_slot(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &line(1, 2)).await;
    let first = only(&store, 1, worker, 1, 1).await;
    commit(&store, 2, change(worker, &first, retry(secs(0), &[]))).await;
    only(&store, 2, worker, 2, 1).await;
}

pub async fn a_job_with_keep_slot_keeps_it_while_it_waits_for_its_retry(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[with_slots(job(1), None, true), serial_job(2, KEY)]).await;
    let first = only(&store, 1, worker, 1, 1).await;
    commit(&store, 2, change(worker, &first, retry(secs(8), &[]))).await;
    assert!(take(&store, 2, worker, 2).await.is_empty());
    assert!(holds(&store, 1).await.serial.expect("it has a key").held);
    fire_timers(&store, 10, 9).await;
    let again = only(&store, 10, worker, 3, 1).await;
    commit(&store, 11, change(worker, &again, failed(Reason::Exhausted))).await;
    only(&store, 11, worker, 4, 2).await;
}

pub async fn released_and_reaped_jobs_keep_their_slots(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &line(1, 2)).await;
    let first = only(&store, 1, one, 1, 1).await;
    store.release(at(2), &[job_claim(one, &first)]).await.expect("release");
    only(&store, 2, one, 2, 1).await;
    assert_eq!(reap(&store, 3, one).await.returned, 1);
    assert!(take(&store, 3, two, 1).await.is_empty(), "the suspect has the slot");
    let again = claim(&store, at(3), &solo_claim_request(two, 2)).await;
    assert_eq!(ids(&again), [id(1)]);
    assert_eq!(store.retire_worker(at(4), two).await.expect("retire"), 1);
    let three = worker(&store, 3).await;
    assert!(take(&store, 4, three, 1).await.is_empty());
    assert_eq!(ids(&claim(&store, at(4), &solo_claim_request(three, 2)).await), [id(1)]);
}

pub async fn more_slots_admit_more_jobs_and_fewer_slots_end_none(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &line(1, 5)).await;
    let mut running = take(&store, 1, worker, 1).await;
    assert_eq!(running.len(), 1);
    let before = gates(&store, &[QUEUE]).await;
    administer(&store, 2, AdminAction::Slots { key: KEY.into(), slots: 3 }).await;
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    running.extend(take(&store, 2, worker, 2).await);
    assert_eq!(ids(&running), [1, 2, 3].map(id));
    administer(&store, 3, AdminAction::Slots { key: KEY.into(), slots: 1 }).await;
    for (number, job) in running.iter().enumerate() {
        assert_eq!(state(&store, job.id).await, State::Running);
        assert!(
            take(&store, 3, worker, number as i64 + 3).await.is_empty(),
            "until one is left, none follows"
        );
        commit(&store, 3, change(worker, job, done("x"))).await;
    }
    only(&store, 4, worker, 9, 4).await;
}

pub async fn the_newest_submit_sets_the_slots_even_if_it_is_a_repeat(store: Handle) {
    let slots = async |expected: u32| {
        let keys = store.inspect().serial_keys(Some(KEY), 9).await.expect("keys");
        assert_eq!(keys[0].slots, expected);
    };
    submit(&store, &[with_slots(job(1), Some(2), false)]).await;
    slots(2).await;
    submit(&store, &[serial_job(2, KEY)]).await;
    slots(2).await;
    let repeated = store.submit(at(1), &[with_slots(job(1), Some(4), false)], None).await.expect("submit");
    assert_eq!(repeated, [SubmitOutcome::Repeated]);
    slots(4).await;
    assert!(store.inspect().serial_keys(Some("nobody"), 9).await.expect("keys").is_empty());
}

pub async fn a_job_in_line_is_ready_and_reports_who_is_ahead(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &line(1, 3)).await;
    only(&store, 1, worker, 1, 1).await;
    assert_eq!((state(&store, id(1)).await, state(&store, id(3)).await), (State::Running, State::Ready));
    assert_eq!(count(&store, State::Ready).await, 2);
    let counts = store.inspect().state_counts(9).await.expect("state counts");
    let ready = counts.iter().find(|count| count.state == State::Ready).expect("counted");
    assert_eq!(ready.jobs, 2);
    let hold = holds(&store, 3).await.serial.expect("it has a key");
    assert_eq!((hold.key.as_str(), hold.slots, hold.held, hold.ahead), (KEY, 1, false, 1));
    assert_eq!(hold.holders, [id(1)]);
    assert!(holds(&store, 1).await.serial.expect("it has a key").held);
}

pub async fn jobs_leave_the_line_when_they_end(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(
        &store,
        &[serial_job(1, KEY), serial_job(2, KEY), NewJob { deadline_at: Some(t(5)), ..serial_job(3, KEY) }],
    )
    .await;
    submit(&store, &line(4, 1)).await;
    let first = only(&store, 1, worker, 1, 1).await;
    assert_eq!(act_on_job(&store, 2, 2, cancel(9)).await, ControlOutcome::Done);
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    assert_eq!(holds(&store, 4).await.serial.expect("it has a key").ahead, 0);
    commit(&store, 6, change(worker, &first, done("x"))).await;
    only(&store, 6, worker, 2, 4).await;
}

pub async fn a_job_with_a_serial_key_is_not_claimed_at_submit(store: Handle) {
    let worker = worker(&store, 1).await;
    let outcomes =
        store.submit(at(0), &[serial_job(1, KEY), job(2)], claim_on_submit(worker, 1)).await.expect("submit");
    let expected = [
        SubmitOutcome::New { claimed: None },
        SubmitOutcome::New { claimed: Some(windlass_model::Epoch(0)) },
    ];
    assert_eq!(outcomes, expected);
    only(&store, 1, worker, 2, 1).await;
}

pub async fn a_repair_finds_nothing_to_do(store: Handle) {
    let worker = worker(&store, 1).await;
    assert_eq!(store.repair(at(0)).await.expect("repair"), 0);
    submit(&store, &line(1, 3)).await;
    let first = only(&store, 1, worker, 1, 1).await;
    assert_eq!(store.repair(at(1)).await.expect("repair"), 0);
    commit(&store, 2, change(worker, &first, retry(secs(60), &[]))).await;
    assert_eq!(store.repair(at(2)).await.expect("repair"), 0);
    only(&store, 3, worker, 2, 2).await;
}
