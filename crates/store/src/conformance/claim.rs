//! Claims: order, limits, repeats, suspects, and workers that may not claim.

use windlass_model::{
    ClaimNo, CommitOutcome, Epoch, NewJob, Outcome, RateCharge, RateLimit, Retry, Rev, Settings, State, When,
    WorkerId, trace::EXAMPLE as TRACE,
};

use super::kit::*;
use crate::{AdminAction, ClaimRequest, Error};

pub async fn jobs_are_claimed_by_rank_across_kinds(store: Handle) {
    let worker = worker(&store, 1).await;
    // Submitted one per second, the kinds in turn, with descending ids, so that the order is not the order of ids.
    for n in 0..12u32 {
        let new = job_in(100 - n, ["a", "b", "c"][n as usize % 3], QUEUE);
        store.submit(at(u64::from(n)), &[new], None).await.expect("submit");
    }
    let kinds = [kind("c", 1), kind("a", 1), kind("b", 1)];
    let all = ClaimRequest { kinds: kinds.into(), ..claim_request(worker, 1, 7) };
    let first = claim(&store, at(20), &all).await;
    assert_eq!(ids(&first), (0..7).map(|n| id(100 - n)).collect::<Vec<_>>());
    let kinds: Vec<_> = first.iter().map(|job| job.kind.kind.as_str()).collect();
    assert_eq!(kinds, ["a", "b", "c", "a", "b", "c", "a"]);
    let rest = claim(&store, at(20), &ClaimRequest { number: ClaimNo(2), limit: 100, ..all }).await;
    assert_eq!(ids(&rest), (7..12).map(|n| id(100 - n)).collect::<Vec<_>>());
}

pub async fn urgent_jobs_are_claimed_first_but_age_overtakes_priority(store: Handle) {
    let worker = worker(&store, 1).await;
    let with_priority = |n, priority| NewJob { priority, ..job(n) };
    store
        .submit(
            at(0),
            &[with_priority(1, 5), with_priority(2, 0), with_priority(3, -1), with_priority(4, 100)],
            None,
        )
        .await
        .expect("submit");
    // Six ageing intervals later a job of priority 0 ranks behind the one of priority 5.
    store
        .submit(at(360), &[with_priority(5, 0), with_priority(6, -8), with_priority(7, -6)], None)
        .await
        .expect("submit");
    let order = ids(&claim(&store, at(361), &claim_request(worker, 1, 99)).await);
    assert_eq!(order, [6, 3, 2, 7, 1, 5, 4].map(id));
}

pub async fn jobs_of_equal_rank_are_claimed_in_the_order_of_ids(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut batch = [job(3), job_in(1, "b", QUEUE), job(4), job_in(2, "b", QUEUE)];
    batch[0].tags = vec!["x".into()];
    submit(&store, &batch).await;
    let both = ClaimRequest { kinds: [kind("b", 1), kind(KIND, 1)].into(), ..claim_request(worker, 1, 3) };
    assert_eq!(ids(&claim(&store, at(0), &both).await), [id(1), id(2), id(3)]);
}

pub async fn only_the_requested_kinds_versions_and_queue_are_claimed(store: Handle) {
    let worker = worker(&store, 1).await;
    let newer = NewJob { kind: kind(KIND, 2), ..job(2) };
    let others = [newer, job_in(3, "other", QUEUE), job_in(4, KIND, "bulk")];
    submit(&store, &others).await;
    submit(&store, &[job(1)]).await;
    let mut before = Vec::new();
    for n in 2..=4 {
        before.push(view(&store, id(n)).await);
    }
    let batch = store.claim(at(0), &claim_request(worker, 1, 99)).await.expect("claim");
    assert_eq!(ids(&batch.jobs), [id(1)]);
    assert!(!batch.suspects);
    for n in 2..=4u32 {
        assert_eq!(view(&store, id(n)).await, before[n as usize - 2], "job {n} is unchanged");
    }
    let none = ClaimRequest { kinds: [].into(), ..claim_request(worker, 2, 99) };
    assert!(claim(&store, at(0), &none).await.is_empty());
    let versions =
        ClaimRequest { kinds: [kind(KIND, 3), kind(KIND, 2)].into(), ..claim_request(worker, 3, 99) };
    assert_eq!(ids(&claim(&store, at(0), &versions).await), [id(2)]);
    let other_queue = ClaimRequest { queue: "bulk".into(), ..claim_request(worker, 4, 99) };
    assert_eq!(ids(&claim(&store, at(0), &other_queue).await), [id(4)]);
}

pub async fn the_limit_is_kept_and_no_job_is_claimed_twice(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &jobs(1, 10)).await;
    assert_eq!(ids(&claim(&store, at(0), &claim_request(one, 1, 4)).await), [1, 2, 3, 4].map(id));
    assert_eq!(ids(&claim(&store, at(0), &claim_request(two, 1, 4)).await), [5, 6, 7, 8].map(id));
    assert!(claim(&store, at(0), &claim_request(one, 2, 0)).await.is_empty());
    assert_eq!(ids(&claim(&store, at(0), &claim_request(one, 3, 4)).await), [9, 10].map(id));
    assert!(claim(&store, at(0), &claim_request(two, 2, 4)).await.is_empty());
    assert_eq!(
        (claim_count(&store, one).await, claim_count(&store, two).await),
        (2, 1),
        "empty claims are not recorded"
    );
}

pub async fn a_claimed_job_has_everything_that_a_worker_needs(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut new = job(1);
    new.key = Some("k".into());
    new.deadline_at = Some(t(900));
    new.settings = Settings {
        retry: Some(Retry::never()),
        timeout: Some(secs(2)),
        trace: Some(TRACE.into()),
        ..Settings::default()
    };
    new.input.codec = 3;
    submit(&store, &[new.clone()]).await;
    let first = claim_one(&store, 0, worker, 1).await;
    assert_eq!((first.id, first.kind.clone(), first.input.clone()), (new.id, new.kind, new.input));
    assert_eq!(
        (first.key.clone(), first.deadline_at, first.settings.clone()),
        (new.key, new.deadline_at, new.settings)
    );
    assert_eq!((first.epoch, first.rev, first.attempts, first.worker_deaths), (Epoch(0), Rev(0), 0, 0));
    assert_eq!((first.due_at, first.retry_counts.len()), (t(0), 0));
    apply(&store, 1, change(worker, &first, retry(secs(0), &[0, 2]))).await;
    let second = claim_one(&store, 1, worker, 2).await;
    assert_eq!((second.epoch, second.rev, second.attempts), (Epoch(1), Rev(1), 1));
    assert_eq!((second.due_at, second.retry_counts), (t(1), vec![0, 2]));
    reap(&store, 2, worker).await;
    let next = super::kit::worker(&store, 2).await;
    let third = claim(&store, at(2), &solo_claim_request(next, 1)).await;
    assert_eq!(
        (third[0].epoch, third[0].rev, third[0].attempts, third[0].worker_deaths),
        (Epoch(2), Rev(1), 1, 1)
    );
}

pub async fn a_repeated_claim_returns_the_same_jobs(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 10)).await;
    let first = claim(&store, at(0), &claim_request(worker, 1, 4)).await;
    let again = claim(&store, at(5), &claim_request(worker, 1, 9)).await;
    assert_eq!(first, again);
    assert_eq!(count(&store, State::Ready).await, 6, "the repeat claimed no more");
    assert_eq!(view(&store, id(1)).await.started_at, Some(t(0)));
    assert_eq!(claim_count(&store, worker).await, 1);
}

pub async fn a_repeated_claim_returns_only_jobs_that_are_still_claimed(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut batch = jobs(1, 7);
    batch[5].deadline_at = Some(t(2));
    submit(&store, &batch).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 7)).await;
    apply(&store, 1, change(worker, &claimed[0], done("x"))).await;
    apply(&store, 1, change(worker, &claimed[1], retry(secs(0), &[]))).await;
    apply(&store, 1, change(worker, &claimed[2], retry(secs(9), &[]))).await;
    store.release(at(1), &[job_claim(worker, &claimed[3])]).await.expect("release");
    assert_eq!(fire_timers(&store, 2, 9).await.expired, 1);
    assert_eq!(ids(&claim(&store, at(3), &claim_request(worker, 1, 7)).await), [id(5), id(7)]);
    // A job that was returned and claimed again belongs only to the newer claim.
    assert_eq!(ids(&claim(&store, at(3), &claim_request(worker, 2, 7)).await), [id(4), id(2)]);
    assert_eq!(ids(&claim(&store, at(3), &claim_request(worker, 1, 7)).await), [id(5), id(7)]);
}

pub async fn a_repeat_of_an_empty_claim_may_claim_jobs(store: Handle) {
    let worker = worker(&store, 1).await;
    assert!(claim(&store, at(0), &claim_request(worker, 1, 4)).await.is_empty());
    submit(&store, &[job(1)]).await;
    assert_eq!(ids(&claim(&store, at(0), &claim_request(worker, 1, 4)).await), [id(1)]);
}

pub async fn settled_claims_are_deleted(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &jobs(1, 4)).await;
    for number in 1..=2 {
        let job = claim_one(&store, 0, one, number).await;
        assert_eq!(commit(&store, 1, change(one, &job, done("x"))).await, CommitOutcome::Committed);
    }
    claim_one(&store, 0, two, 1).await;
    assert_eq!(claim_count(&store, one).await, 2);
    let settling =
        ClaimRequest { settled: vec![ClaimNo(1), ClaimNo(2), ClaimNo(77)], ..claim_request(one, 3, 1) };
    assert_eq!(claim(&store, at(1), &settling).await.len(), 1);
    assert_eq!(
        (claim_count(&store, one).await, claim_count(&store, two).await),
        (1, 1),
        "only its own claims are deleted"
    );
}

pub async fn a_dead_or_unknown_worker_claims_nothing(store: Handle) {
    let (dead, retired) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1)]).await;
    reap(&store, 0, dead).await;
    store.retire_worker(at(0), retired).await.expect("retire");
    for worker in [dead, retired, WorkerId(77)] {
        let error = store.claim(at(0), &claim_request(worker, 1, 1)).await.expect_err("refused");
        assert!(matches!(error, Error::Dead), "{worker}: {error}");
    }
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

pub async fn a_worker_whose_lease_lapsed_claims_nothing_until_it_renews(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 2)).await;
    let end = LEASE.as_secs();
    assert_eq!(claim(&store, at(end - 1), &claim_request(worker, 1, 1)).await.len(), 1);
    for number in [1, 2] {
        let error = store.claim(at(end), &claim_request(worker, number, 1)).await.expect_err("refused");
        assert!(matches!(error, Error::Unavailable(_)) && error.is_retryable(), "{error}");
    }
    assert_eq!(state(&store, id(2)).await, State::Ready);
    assert_eq!(reports_lapsed(&renew(&store, end, worker).await), Some(false));
    assert_eq!(ids(&claim(&store, at(end), &claim_request(worker, 2, 1)).await), [id(2)]);
}

pub async fn suspects_are_reported_and_claimed_only_by_solo_claims(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1), job_in(2, "other", QUEUE), job_in(3, KIND, "bulk")]).await;
    claim_one(&store, 0, one, 1).await;
    let batch = store.claim(at(0), &claim_request(two, 1, 9)).await.expect("claim");
    assert!(batch.jobs.is_empty() && !batch.suspects);
    reap(&store, 1, one).await;
    submit(&store, &[job(4)]).await;
    let batch = store.claim(at(2), &claim_request(two, 1, 9)).await.expect("claim");
    assert_eq!((ids(&batch.jobs), batch.suspects), (vec![id(4)], true));
    let elsewhere = [
        ClaimRequest { kinds: [kind("other", 1)].into(), ..claim_request(two, 2, 9) },
        ClaimRequest { queue: "bulk".into(), ..claim_request(two, 3, 9) },
    ];
    for request in &elsewhere {
        assert!(!store.claim(at(2), request).await.expect("claim").suspects, "{request:?}");
    }
    let batch = store.claim(at(2), &solo_claim_request(two, 4)).await.expect("claim");
    assert_eq!((ids(&batch.jobs), batch.suspects), (vec![id(1)], false));
    assert!(
        claim(&store, at(2), &solo_claim_request(two, 5)).await.is_empty(),
        "solo claims take no ordinary jobs"
    );
}

pub async fn a_solo_claim_takes_one_suspect_by_rank(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    let batch = [job(1), NewJob { priority: -1, ..job(2) }, job(3)];
    submit(&store, &batch).await;
    claim(&store, at(0), &claim_request(one, 1, 9)).await;
    reap(&store, 1, one).await;
    submit(&store, &[job(4)]).await;
    let solo = ClaimRequest { limit: 9, ..solo_claim_request(two, 1) };
    let batch = store.claim(at(1), &solo).await.expect("claim");
    assert_eq!((ids(&batch.jobs), batch.suspects), (vec![id(2)], true));
    let again = store.claim(at(1), &solo).await.expect("claim");
    assert_eq!(ids(&again.jobs), [id(2)], "a solo claim can be repeated");
}

pub async fn a_retried_suspect_is_an_ordinary_job_again(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1)]).await;
    claim_one(&store, 0, one, 1).await;
    reap(&store, 1, one).await;
    let suspect = claim(&store, at(1), &solo_claim_request(two, 1)).await.remove(0);
    apply(&store, 2, change(two, &suspect, retry(secs(5), &[1]))).await;
    fire_timers(&store, 7, 9).await;
    let batch = store.claim(at(7), &claim_request(two, 2, 9)).await.expect("claim");
    assert_eq!((ids(&batch.jobs), batch.suspects), (vec![id(1)], false));
    assert_eq!(batch.jobs[0].worker_deaths, 1, "its deaths are not forgotten");
}

fn only(worker: WorkerId, number: i64, n: u32) -> ClaimRequest {
    ClaimRequest { only: Some(id(n)), ..claim_request(worker, number, 9) }
}

pub async fn a_claim_of_one_job_takes_it_ahead_of_others_and_can_be_repeated(store: Handle) {
    let worker = worker(&store, 1).await;
    let late = NewJob { priority: 50, ..job(3) };
    submit(&store, &[job(1), job(2), late]).await;
    // A claim before it, so that a store that remembers how far the last claim came does not skip the job.
    claim_one(&store, 0, worker, 1).await;
    let batch = store.claim(at(1), &only(worker, 2, 3)).await.expect("claim");
    assert_eq!((ids(&batch.jobs), batch.more), (vec![id(3)], false));
    assert_eq!((batch.jobs[0].epoch, batch.jobs[0].claim), (Epoch(0), ClaimNo(2)));
    assert_eq!(state(&store, id(3)).await, State::Running);
    assert_eq!(ids(&claim(&store, at(1), &only(worker, 2, 3)).await), [id(3)], "the answer was lost");
    assert!(claim(&store, at(1), &only(worker, 3, 3)).await.is_empty(), "it is claimed");
    let first = batch.jobs[0].clone();
    assert_eq!(commit(&store, 2, change(worker, &first, done("x"))).await, CommitOutcome::Committed);
    assert!(claim(&store, at(2), &only(worker, 4, 3)).await.is_empty(), "it has ended");
    assert_eq!(
        ids(&claim(&store, at(2), &claim_request(worker, 5, 9)).await),
        [id(2)],
        "the others are left"
    );
}

pub async fn a_claim_of_one_job_obeys_queues_kinds_pauses_and_flow_control(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    administer(&store, 0, AdminAction::Limit(RateLimit::per("api", 9, secs(60)))).await;
    let mut limited = job(3);
    limited.settings.rate = Some(Box::new(RateCharge::new("api")));
    let scheduled = NewJob { when: When::After(secs(9)), ..job(4) };
    submit(&store, &[job_in(1, "other", QUEUE), job_in(2, KIND, "bulk"), limited, scheduled]).await;
    submit(&store, &[serial_job(5, "key"), serial_job(6, "key"), job(7), job(8)]).await;
    for (number, n) in (1..).zip([1, 2, 3, 4, 6, 99]) {
        assert!(claim(&store, at(1), &only(one, number, n)).await.is_empty(), "job {n}");
    }
    assert_eq!(ids(&claim(&store, at(1), &only(one, 10, 5)).await), [id(5)], "it has the slot of its key");
    assert_eq!(ids(&claim(&store, at(1), &only(two, 1, 7)).await), [id(7)]);
    reap(&store, 2, two).await;
    assert!(claim(&store, at(3), &only(one, 11, 7)).await.is_empty(), "a suspect runs alone");
    administer(&store, 3, AdminAction::PauseQueue(QUEUE.into())).await;
    assert!(claim(&store, at(3), &only(one, 12, 8)).await.is_empty(), "the queue is paused");
    administer(&store, 3, AdminAction::ResumeQueue(QUEUE.into())).await;
    assert_eq!(ids(&claim(&store, at(3), &only(one, 12, 8)).await), [id(8)]);
    assert!(matches!(store.claim(at(3), &only(two, 2, 8)).await, Err(Error::Dead)));
}

pub async fn the_jobs_of_a_claim_can_be_read_until_they_leave_it(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[job(1), machine(2, "A"), job(3)]).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 9)).await;
    let read = async |number| store.claimed_jobs(worker, ClaimNo(number)).await.expect("read");
    assert_eq!(read(1).await, claimed, "as the claim returned them");
    assert_eq!(read(2).await, [], "a claim that was not made");
    let other = store.claimed_jobs(WorkerId(99), ClaimNo(1)).await.expect("read");
    assert_eq!(other, [], "a worker that does not exist");

    apply(&store, 1, change(worker, &claimed[0], done("1"))).await;
    apply(&store, 1, with_step(change(worker, &claimed[1], Outcome::Next), step("A", "B", "data"))).await;
    assert_eq!(store.release(at(1), &[job_claim(worker, &claimed[2])]).await.expect("release"), 1);
    let left = read(1).await;
    assert_eq!(ids(&left), [claimed[1].id], "the others have left the claim");
    assert_eq!((left[0].rev, left[0].stage.as_deref()), (Rev(1), Some("B")), "as it is now");

    submit(&store, &[job(9)]).await;
    assert_eq!(read(2).await, [], "a read claims nothing");
}

pub async fn which_claims_still_have_jobs_is_one_read(store: Handle) {
    let (me, other) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &jobs(1, 7)).await;
    let mut claims = Vec::new();
    for number in 1..=3 {
        claims.push(claim(&store, at(0), &claim_request(me, number, 2)).await);
    }
    claim(&store, at(0), &claim_request(other, 9, 1)).await;
    let with_jobs = async |numbers: &[i64]| {
        let numbers: Vec<ClaimNo> = numbers.iter().copied().map(ClaimNo).collect();
        let mut found = store.claims_with_jobs(me, &numbers).await.expect("read");
        found.sort_unstable();
        found.into_iter().map(|number| number.0).collect::<Vec<_>>()
    };
    assert_eq!(with_jobs(&[3, 1, 2, 9, 10]).await, [1, 2, 3], "9 is another worker's");
    apply(&store, 1, change(me, &claims[0][0], done("1"))).await;
    apply(&store, 1, change(me, &claims[1][0], done("1"))).await;
    apply(&store, 1, change(me, &claims[1][1], retry(secs(9), &[1]))).await;
    assert_eq!(with_jobs(&[1, 2, 3]).await, [1, 3], "one job of 1 is left, none of 2");
    assert_eq!(with_jobs(&[2, 3]).await, [3]);
    assert_eq!(with_jobs(&[]).await, [0; 0]);
}
