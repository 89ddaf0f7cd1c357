//! Reaping: which workers are dead, and whether their jobs are returned or poisoned.

use windlass_model::{ClaimNo, CommitOutcome, Epoch, NewJob, Reason, Rev, State, WorkerId, failure::class};

use super::kit::*;
use crate::{Error, ReapReport, ReapRequest, RenewRequest};

fn request(dead: &[WorkerId], lapsed: bool, limit: usize) -> ReapRequest {
    ReapRequest { dead: dead.to_vec(), lapsed, limit, max_crashes: MAX_CRASHES }
}

async fn reap_with(store: &Handle, now: u64, request: &ReapRequest) -> ReapReport {
    store.reap(at(now), request).await.expect("reap")
}

pub async fn the_jobs_of_a_worker_reported_dead_are_returned(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &jobs(1, 3)).await;
    claim(&store, at(0), &claim_request(one, 1, 2)).await;
    claim(&store, at(0), &claim_request(two, 1, 1)).await;
    let reaped = reap_with(&store, 1, &request(&[one, one, WorkerId(99)], false, 10)).await;
    assert_eq!(reaped, ReapReport { workers: vec![one], returned: 2, poisoned: 0, more: false });
    for n in 1..=2 {
        let kept = view(&store, id(n)).await;
        assert_eq!((kept.summary.state, kept.epoch, kept.rev), (State::Ready, Epoch(1), Rev(0)));
        assert_eq!((kept.worker_deaths, kept.solo_crashes, kept.summary.attempts), (1, 0, 0));
    }
    assert_eq!(state(&store, id(3)).await, State::Running);
    let again = reap_with(&store, 2, &request(&[one], false, 10)).await;
    assert_eq!(again, ReapReport::default(), "once dead, it is not declared dead again");
    let workers = store.inspect().workers().await.expect("workers");
    let alive: Vec<_> = workers.iter().map(|worker| (worker.alive, worker.claims, worker.lost_at)).collect();
    assert_eq!(alive, [(false, 0, Some(t(1))), (true, 1, None)]);
}

pub async fn a_worker_whose_lease_lapsed_is_reaped_only_on_request(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &jobs(1, 2)).await;
    claim_one(&store, 0, one, 1).await;
    claim_one(&store, 0, two, 1).await;
    renew(&store, 500, two).await;
    let end = LEASE.as_secs();
    assert_eq!(
        reap_with(&store, end - 1, &request(&[], true, 10)).await,
        ReapReport::default(),
        "a second too early"
    );
    assert_eq!(
        reap_with(&store, end, &request(&[], false, 10)).await,
        ReapReport::default(),
        "not requested"
    );
    assert_eq!(state(&store, id(1)).await, State::Running);
    let reaped = reap_with(&store, end, &request(&[], true, 10)).await;
    assert_eq!(reaped, ReapReport { workers: vec![one], returned: 1, poisoned: 0, more: false });
    assert_eq!((state(&store, id(1)).await, state(&store, id(2)).await), (State::Ready, State::Running));
}

pub async fn jobs_that_left_their_claim_are_not_returned(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    let mut batch = jobs(1, 6);
    batch[4].deadline_at = Some(t(2));
    submit(&store, &batch).await;
    let claimed = claim(&store, at(0), &claim_request(one, 1, 6)).await;
    apply(&store, 1, change(one, &claimed[0], done("x"))).await;
    apply(&store, 1, change(one, &claimed[1], retry(secs(90), &[]))).await;
    let released: Vec<_> = claimed[2..4].iter().map(|job| job_claim(one, job)).collect();
    store.release(at(1), &released).await.expect("release");
    let third = claim_one(&store, 1, two, 1).await;
    assert_eq!(third.id, id(3));
    fire_timers(&store, 2, 9).await;
    assert_eq!(reap(&store, 3, one).await.returned, 1);
    let mut seen = Vec::new();
    for n in 1..=6 {
        let kept = view(&store, id(n)).await;
        seen.push((kept.summary.state, kept.worker_deaths));
    }
    let expected = [
        (State::Done, 0),
        (State::Scheduled, 0),
        (State::Running, 0),
        (State::Ready, 0),
        (State::Failed, 0),
        (State::Ready, 1),
    ];
    assert_eq!(seen, expected);
    assert_eq!(commit(&store, 4, change(two, &third, done("y"))).await, CommitOutcome::Committed);
}

pub async fn a_reap_is_bounded_and_reports_that_more_is_left(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &jobs(1, 20)).await;
    for number in 1..=5 {
        claim(&store, at(0), &claim_request(one, number, 2)).await;
        claim(&store, at(0), &claim_request(two, number, 2)).await;
    }
    let first = reap_with(&store, 1, &request(&[one, two], false, 3)).await;
    assert_eq!(first, ReapReport { workers: vec![one, two], returned: 6, poisoned: 0, more: true });
    assert!(
        matches!(store.claim(at(1), &claim_request(two, 9, 1)).await, Err(Error::Dead)),
        "it is dead before its claims are reaped"
    );
    let mut returned = first.returned;
    let mut calls = 1;
    loop {
        let next = reap_with(&store, 2, &request(&[], false, 3)).await;
        assert!(next.workers.is_empty());
        (returned, calls) = (returned + next.returned, calls + 1);
        if !next.more {
            break;
        }
    }
    assert_eq!((returned, calls), (20, 4), "ten claims, three at a time");
    assert_eq!(count(&store, State::Ready).await, 20);
}

pub async fn a_lost_attempt_is_in_the_history(store: Handle) {
    let one = worker(&store, 1).await;
    submit(&store, &[job(1)]).await;
    claim_one(&store, 3, one, 1).await;
    reap(&store, 8, one).await;
    let attempts = history(&store, id(1)).await;
    assert_eq!((attempts.len(), attempts[0].epoch, attempts[0].worker), (1, Epoch(0), one));
    assert_eq!((attempts[0].started_at, attempts[0].ended_at), (t(3), t(8)));
    assert_eq!(attempts[0].failure.class, class::LOST);
    assert!(attempts[0].failure.message.contains(&one.to_string()), "{}", attempts[0].failure.message);
    assert_eq!(view(&store, id(1)).await.failure, Some(attempts[0].failure.clone()));
}

pub async fn only_deaths_during_solo_runs_count_and_the_limit_poisons(store: Handle) {
    submit(&store, &[job(1)]).await;
    let first = worker(&store, 1).await;
    claim_one(&store, 0, first, 1).await;
    reap(&store, 1, first).await;
    for n in 2..=4 {
        let next = worker(&store, n).await;
        assert_eq!(claim(&store, at(1), &solo_claim_request(next, 1)).await.len(), 1);
        let reaped = reap(&store, 2, next).await;
        let kept = view(&store, id(1)).await;
        assert_eq!((i64::from(kept.worker_deaths), i64::from(kept.solo_crashes)), (n, n - 1));
        assert_eq!(i64::from(kept.epoch.0), n);
        if n < 4 {
            assert_eq!((reaped.returned, reaped.poisoned, kept.summary.state), (1, 0, State::Ready));
        } else {
            assert_eq!((reaped.returned, reaped.poisoned, kept.summary.state), (0, 1, State::Failed));
            assert_eq!((kept.summary.reason, kept.summary.finished_at), (Some(Reason::Poison), Some(t(2))));
        }
    }
    let attempts = history(&store, id(1)).await;
    assert_eq!(attempts.len(), 4);
    assert!(attempts.iter().all(|attempt| attempt.failure.class == class::LOST));
    let last = worker(&store, 9).await;
    let batch = store.claim(at(3), &claim_request(last, 1, 9)).await.expect("claim");
    assert!(batch.jobs.is_empty() && !batch.suspects);
    assert!(claim(&store, at(3), &solo_claim_request(last, 2)).await.is_empty());
}

pub async fn a_limit_of_zero_poisons_at_the_first_death_during_a_solo_run(store: Handle) {
    let (one, job) = running_job(&store, 1).await;
    let mut strict = ReapRequest { max_crashes: 0, ..request(&[one], false, 9) };
    assert_eq!(
        reap_with(&store, 1, &strict).await.returned,
        1,
        "a death that was not during a solo run counts as no crash"
    );
    let two = worker(&store, 2).await;
    claim(&store, at(1), &solo_claim_request(two, 1)).await;
    strict.dead = vec![two];
    assert_eq!(reap_with(&store, 2, &strict).await.poisoned, 1);
    assert_eq!(commit(&store, 3, change(one, &job, done("x"))).await, CommitOutcome::Fenced);
}

pub async fn poisoning_a_job_removes_its_deadline_timer(store: Handle) {
    let new = NewJob { deadline_at: Some(t(50)), ..job(1) };
    submit(&store, &[new]).await;
    let one = worker(&store, 1).await;
    claim_one(&store, 0, one, 1).await;
    reap(&store, 1, one).await;
    let two = worker(&store, 2).await;
    claim(&store, at(1), &solo_claim_request(two, 1)).await;
    let strict = ReapRequest { max_crashes: 1, ..request(&[two], false, 9) };
    assert_eq!(reap_with(&store, 2, &strict).await.poisoned, 1);
    assert_eq!(fire_timers(&store, 3, 9).await.next_at, None, "the timer is deleted");
    assert_eq!(fire_timers(&store, 60, 9).await.expired, 0);
    assert_eq!(view(&store, id(1)).await.summary.reason, Some(Reason::Poison));
}

pub async fn claims_of_a_dead_worker_are_refused(store: Handle) {
    let one = worker(&store, 1).await;
    submit(&store, &jobs(1, 2)).await;
    claim_one(&store, 0, one, 1).await;
    reap(&store, 1, one).await;
    for number in [1, 2] {
        assert!(
            matches!(store.claim(at(1), &claim_request(one, number, 1)).await, Err(Error::Dead)),
            "number {number}"
        );
    }
    let outcomes = store.submit(at(1), &[job(3)], claim_on_submit(one, 3)).await.expect("submit");
    assert_eq!(outcomes, [windlass_model::SubmitOutcome::New { claimed: None }]);
    assert_eq!(count(&store, State::Ready).await, 3);
}

pub async fn a_settled_claim_is_not_reaped(store: Handle) {
    let (one, job) = running_job(&store, 1).await;
    apply(&store, 1, change(one, &job, done("x"))).await;
    let settling = RenewRequest { settled: vec![ClaimNo(1)], ..renew_request(one) };
    store.renew(at(1), &settling).await.expect("renew");
    let reaped = reap(&store, 2, one).await;
    assert_eq!((reaped.workers, reaped.returned), (vec![one], 0));
}

pub async fn reaping_no_worker_does_nothing(store: Handle) {
    assert_eq!(reap_with(&store, 0, &request(&[], true, 9)).await, ReapReport::default());
    let one = worker(&store, 1).await;
    assert_eq!(reap_with(&store, 1, &request(&[], true, 9)).await, ReapReport::default());
    let reaped = reap_with(&store, 1, &request(&[one], false, 0)).await;
    assert_eq!((reaped.workers, reaped.more), (vec![one], false), "it had no claims");
}

pub async fn a_reaped_job_keeps_its_rank(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    let batch = [job(1), NewJob { priority: -5, ..job(2) }, NewJob { priority: 5, ..job(3) }];
    submit(&store, &batch).await;
    claim(&store, at(10), &claim_request(one, 1, 9)).await;
    reap(&store, 900, one).await;
    for n in [2, 1, 3] {
        assert_eq!(ids(&claim(&store, at(900), &solo_claim_request(two, n)).await), [id(n as u32)]);
    }
}
