//! Serial keys: as many jobs run at once as a key has slots, in the order in which they became due, however earlier jobs end.

use windlass_model::{
    ClaimedJob, CommitOutcome, NewJob, Outcome, Reason, Serial, State, SubmitOutcome, When, WorkerId,
};

use super::kit::*;
use crate::{AdminAction, ClaimRequest, ControlOutcome, JobAction, ReapRequest};

const KEY: &str = "account 7";

/// Jobs of the key, numbered from `from`.
fn serial_jobs(from: u32, count: u32) -> Vec<NewJob> {
    (from..from + count).map(|n| serial_job(n, KEY)).collect()
}

/// The same job with other settings of the key.
fn with_slots(mut job: NewJob, slots: Option<u32>, keeps_slot: bool) -> NewJob {
    job.settings.serial = Some(Box::new(Serial { key: KEY.into(), slots, keeps_slot }));
    job
}

/// Claims all jobs that can be claimed.
async fn claim_all(store: &Handle, now: u64, worker: WorkerId, number: i64) -> Vec<ClaimedJob> {
    claim(store, at(now), &claim_request(worker, number, 99)).await
}

/// Claims, and expects to get only job `n`.
async fn claim_only(store: &Handle, now: u64, worker: WorkerId, number: i64, n: u32) -> ClaimedJob {
    let mut claimed = claim_all(store, now, worker, number).await;
    assert_eq!(ids(&claimed), [id(n)], "of claim {number}");
    claimed.remove(0)
}

pub async fn jobs_of_a_key_run_one_at_a_time_in_the_order_they_became_due(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &serial_jobs(5, 2)).await;
    submit(&store, &serial_jobs(1, 2)).await;
    store.submit(at(1), &serial_jobs(0, 1), None).await.expect("submit");
    for (number, n) in [(1, 5), (2, 1), (3, 2), (4, 6), (5, 0)] {
        let claimed = claim_only(&store, 2, worker, number, n).await;
        assert!(claim_all(&store, 2, worker, 90 + number).await.is_empty(), "one at a time");
        assert_eq!(commit(&store, 2, change(worker, &claimed, done("x"))).await, CommitOutcome::Committed);
    }
    assert!(
        store.inspect().serial_keys(None, 9).await.expect("keys").is_empty(),
        "no slot is held and no job waits"
    );
}

pub async fn priority_does_not_reorder_a_line(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut batch = serial_jobs(1, 4);
    for (job, priority) in batch.iter_mut().zip([0, 50, 0, -100]) {
        job.priority = priority;
    }
    submit(&store, &batch).await;
    assert_eq!(act_on_job(&store, 1, 3, JobAction::Priority(-50)).await, ControlOutcome::Done);
    for n in 1..=4 {
        let claimed = claim_only(&store, 2, worker, i64::from(n), n).await;
        apply(&store, 2, change(worker, &claimed, done("x"))).await;
    }
}

pub async fn the_position_in_line_is_the_time_when_a_job_is_due(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &serial_jobs(9, 1)).await;
    submit(&store, &[NewJob { when: When::At(t(10)), ..serial_job(1, KEY) }]).await;
    store.submit(at(5), &serial_jobs(2, 1), None).await.expect("submit");
    store.submit(at(20), &serial_jobs(0, 1), None).await.expect("submit");
    assert_eq!(
        fire_timers(&store, 30, 9).await.woken,
        1,
        "after the others were submitted, but its position is at 10"
    );
    for (number, n) in [(1, 9), (2, 2), (3, 1), (4, 0)] {
        let claimed = claim_only(&store, 30, worker, number, n).await;
        apply(&store, 30, change(worker, &claimed, done("x"))).await;
    }
}

pub async fn a_key_runs_as_many_jobs_as_it_has_slots(store: Handle) {
    let worker = worker(&store, 1).await;
    let batch: Vec<_> = serial_jobs(1, 5).into_iter().map(|job| with_slots(job, Some(3), false)).collect();
    submit(&store, &batch).await;
    let claimed = claim_all(&store, 1, worker, 1).await;
    assert_eq!(ids(&claimed), [1, 2, 3].map(id));
    apply(&store, 2, change(worker, &claimed[1], done("x"))).await;
    claim_only(&store, 2, worker, 2, 4).await;
    let keys = store.inspect().serial_keys(Some(KEY), 9).await.expect("keys");
    assert_eq!((keys[0].slots, keys[0].held, keys[0].waiting), (3, 3, 1));
}

pub async fn keys_are_independent_and_span_queues_and_kinds(store: Handle) {
    let worker = worker(&store, 1).await;
    let elsewhere = NewJob { queue: "bulk".into(), ..serial_job(2, KEY) };
    let other_kind = NewJob { kind: kind("other", 3), ..serial_job(3, KEY) };
    submit(&store, &[serial_job(1, KEY), elsewhere, other_kind, serial_job(4, "account 8"), job(5)]).await;
    let claimed = claim_all(&store, 1, worker, 1).await;
    assert_eq!(ids(&claimed), [1, 4, 5].map(id));
    let other_queue = ClaimRequest { queue: "bulk".into(), ..claim_request(worker, 2, 9) };
    assert!(claim(&store, at(1), &other_queue).await.is_empty(), "a key spans all queues");
    let before = gates(&store, &[QUEUE, "bulk"]).await;
    apply(&store, 2, change(worker, &claimed[0], done("x"))).await;
    let after = gates(&store, &[QUEUE, "bulk"]).await;
    assert!(
        after[0] == before[0] && after[1] != before[1],
        "the gate of the queue whose job got the slot moved"
    );
    let next =
        claim(&store, at(2), &ClaimRequest { number: windlass_model::ClaimNo(3), ..other_queue }).await;
    apply(&store, 3, change(worker, &next[0], done("x"))).await;
    let others = ClaimRequest { kinds: [kind("other", 3)].into(), ..claim_request(worker, 4, 9) };
    assert_eq!(ids(&claim(&store, at(3), &others).await), [id(3)]);
}

/// One job runs and another waits in line; `free` ends or pauses the first, which must give its slot to the second.
async fn expect_slot_passed_on<F: Future<Output = ()>>(
    store: &Handle,
    what: &str,
    n: u32,
    free: impl FnOnce(WorkerId, ClaimedJob) -> F,
) {
    let (one, two) = (worker(store, i64::from(n)).await, worker(store, i64::from(n) + 1).await);
    let key = format!("key {n}");
    let deadline_at = (what == "expire").then(|| t(5));
    submit(store, &[NewJob { deadline_at, ..serial_job(n, &key) }, serial_job(n + 1, &key)]).await;
    let claimed = claim_only(store, 1, one, 1, n).await;
    assert_eq!(holds(store, n + 1).await.serial.expect("it has a key").ahead, 0);
    let before = gates(store, &[QUEUE]).await;
    free(one, claimed).await;
    assert_ne!(gates(store, &[QUEUE]).await, before, "{what}: the gate moved");
    let next = claim_only(store, 6, two, 1, n + 1).await;
    apply(store, 6, change(two, &next, done("x"))).await;
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
        expect_slot_passed_on(store, what, 10 * (round as u32 + 1), |worker, claimed| async move {
            assert_eq!(commit(store, 5, change(worker, &claimed, outcome)).await, CommitOutcome::Committed);
        })
        .await;
    }
}

pub async fn every_other_end_and_every_pause_frees_the_slot(store: Handle) {
    let store = &store;
    expect_slot_passed_on(store, "expire", 10, |_, _| async move {
        assert_eq!(fire_timers(store, 5, 9).await.expired, 1);
    })
    .await;
    expect_slot_passed_on(store, "poison", 20, |worker, claimed| async move {
        let solo = super::kit::worker(store, 99).await;
        reap(store, 5, worker).await;
        let again = claim(store, at(5), &solo_claim_request(solo, 1)).await;
        assert_eq!(ids(&again), [claimed.id], "it keeps its slot after the first death");
        let request = ReapRequest { dead: vec![solo], lapsed: false, limit: 9, max_crashes: 1 };
        assert_eq!(store.reap(at(5), &request).await.expect("reap").poisoned, 1);
    })
    .await;
    expect_slot_passed_on(store, "cancel", 30, |worker, claimed| async move {
        store.release(at(5), &[job_claim(worker, &claimed)]).await.expect("release");
        assert_eq!(act_on_job(store, 5, 30, cancel(9)).await, ControlOutcome::Done);
    })
    .await;
    expect_slot_passed_on(store, "cancel request", 40, |_, _| async move {
        assert_eq!(act_on_job(store, 5, 40, cancel(0)).await, ControlOutcome::CancelRequested);
        assert_eq!(fire_timers(store, 5, 9).await.cancelled, 1);
    })
    .await;
    expect_slot_passed_on(store, "pause", 50, |worker, claimed| async move {
        store.release(at(5), &[job_claim(worker, &claimed)]).await.expect("release");
        assert_eq!(act_on_job(store, 5, 50, JobAction::Pause).await, ControlOutcome::Done);
    })
    .await;
    expect_slot_passed_on(store, "pause and release", 60, |worker, claimed| async move {
        assert_eq!(act_on_job(store, 5, 60, JobAction::Pause).await, ControlOutcome::Done);
        store.release(at(5), &[job_claim(worker, &claimed)]).await.expect("release");
        assert_eq!(state(store, id(60)).await, State::Ready, "it is held");
    })
    .await;
}

pub async fn a_retried_job_keeps_its_position_in_line(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &serial_jobs(1, 4)).await;
    let first = claim_only(&store, 1, worker, 1, 1).await;
    apply(&store, 2, change(worker, &first, retry(secs(8), &[]))).await;
    let second = claim_only(&store, 2, worker, 2, 2).await;
    assert_eq!(fire_timers(&store, 10, 9).await.woken, 1);
    assert!(claim_all(&store, 10, worker, 3).await.is_empty(), "it waits in line again");
    assert_eq!(holds(&store, 1).await.serial.expect("it has a key").ahead, 0);
    assert_eq!(holds(&store, 4).await.serial.expect("it has a key").ahead, 2);
    apply(&store, 11, change(worker, &second, done("x"))).await;
    claim_only(&store, 11, worker, 4, 1).await;
}

pub async fn a_retry_without_delay_keeps_its_slot(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &serial_jobs(1, 2)).await;
    let first = claim_only(&store, 1, worker, 1, 1).await;
    apply(&store, 2, change(worker, &first, retry(secs(0), &[]))).await;
    claim_only(&store, 2, worker, 2, 1).await;
}

pub async fn a_job_with_keep_slot_keeps_it_while_it_waits_for_its_retry(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[with_slots(job(1), None, true), serial_job(2, KEY)]).await;
    let first = claim_only(&store, 1, worker, 1, 1).await;
    apply(&store, 2, change(worker, &first, retry(secs(8), &[]))).await;
    assert!(claim_all(&store, 2, worker, 2).await.is_empty());
    assert!(holds(&store, 1).await.serial.expect("it has a key").held);
    fire_timers(&store, 10, 9).await;
    let again = claim_only(&store, 10, worker, 3, 1).await;
    apply(&store, 11, change(worker, &again, failed(Reason::Exhausted))).await;
    claim_only(&store, 11, worker, 4, 2).await;
}

pub async fn released_and_reaped_jobs_keep_their_slots(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &serial_jobs(1, 2)).await;
    let first = claim_only(&store, 1, one, 1, 1).await;
    store.release(at(2), &[job_claim(one, &first)]).await.expect("release");
    claim_only(&store, 2, one, 2, 1).await;
    assert_eq!(reap(&store, 3, one).await.returned, 1);
    assert!(claim_all(&store, 3, two, 1).await.is_empty(), "the suspect holds the slot");
    let again = claim(&store, at(3), &solo_claim_request(two, 2)).await;
    assert_eq!(ids(&again), [id(1)]);
    assert_eq!(store.retire_worker(at(4), two).await.expect("retire"), 1);
    let three = worker(&store, 3).await;
    assert!(claim_all(&store, 4, three, 1).await.is_empty());
    assert_eq!(ids(&claim(&store, at(4), &solo_claim_request(three, 2)).await), [id(1)]);
}

pub async fn more_slots_admit_more_jobs_and_fewer_slots_end_none(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &serial_jobs(1, 5)).await;
    let mut running_jobs = claim_all(&store, 1, worker, 1).await;
    assert_eq!(running_jobs.len(), 1);
    let before = gates(&store, &[QUEUE]).await;
    administer(&store, 2, AdminAction::Slots { key: KEY.into(), slots: 3 }).await;
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    running_jobs.extend(claim_all(&store, 2, worker, 2).await);
    assert_eq!(ids(&running_jobs), [1, 2, 3].map(id));
    administer(&store, 3, AdminAction::Slots { key: KEY.into(), slots: 1 }).await;
    for (number, job) in running_jobs.iter().enumerate() {
        assert_eq!(state(&store, job.id).await, State::Running);
        assert!(
            claim_all(&store, 3, worker, number as i64 + 3).await.is_empty(),
            "none follows while more run than there are slots"
        );
        apply(&store, 3, change(worker, job, done("x"))).await;
    }
    claim_only(&store, 4, worker, 9, 4).await;
}

pub async fn the_newest_submit_sets_the_slots_even_if_it_is_a_repeat(store: Handle) {
    let expect_slots = async |expected: u32| {
        let keys = store.inspect().serial_keys(Some(KEY), 9).await.expect("keys");
        assert_eq!(keys[0].slots, expected);
    };
    submit(&store, &[with_slots(job(1), Some(2), false)]).await;
    expect_slots(2).await;
    submit(&store, &[serial_job(2, KEY)]).await;
    expect_slots(2).await;
    let repeated = store.submit(at(1), &[with_slots(job(1), Some(4), false)], None).await.expect("submit");
    assert_eq!(repeated, [SubmitOutcome::Repeated]);
    expect_slots(4).await;
    assert!(store.inspect().serial_keys(Some("unknown"), 9).await.expect("keys").is_empty());
}

pub async fn a_job_in_line_is_ready_and_reports_who_is_ahead(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &serial_jobs(1, 3)).await;
    claim_only(&store, 1, worker, 1, 1).await;
    assert_eq!((state(&store, id(1)).await, state(&store, id(3)).await), (State::Running, State::Ready));
    assert_eq!(count(&store, State::Ready).await, 2);
    let counts = store.inspect().state_counts().await.expect("state counts");
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
    submit(&store, &serial_jobs(4, 1)).await;
    let first = claim_only(&store, 1, worker, 1, 1).await;
    assert_eq!(act_on_job(&store, 2, 2, cancel(9)).await, ControlOutcome::Done);
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    assert_eq!(holds(&store, 4).await.serial.expect("it has a key").ahead, 0);
    apply(&store, 6, change(worker, &first, done("x"))).await;
    claim_only(&store, 6, worker, 2, 4).await;
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
    claim_only(&store, 1, worker, 2, 1).await;
}

pub async fn a_repair_finds_nothing_to_do(store: Handle) {
    let worker = worker(&store, 1).await;
    assert_eq!(store.repair(at(0)).await.expect("repair"), 0);
    submit(&store, &serial_jobs(1, 3)).await;
    let first = claim_only(&store, 1, worker, 1, 1).await;
    assert_eq!(store.repair(at(1)).await.expect("repair"), 0);
    apply(&store, 2, change(worker, &first, retry(secs(60), &[]))).await;
    assert_eq!(store.repair(at(2)).await.expect("repair"), 0);
    claim_only(&store, 3, worker, 2, 2).await;
}
