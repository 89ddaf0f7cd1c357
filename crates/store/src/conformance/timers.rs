//! Timers: order, limits, deadlines.

use windlass_model::{CommitOutcome, Epoch, NewJob, Reason, State, When, failure::class};

use super::kit::*;

fn delayed(n: u32, delay: u64) -> NewJob {
    NewJob { when: When::After(secs(delay)), ..job(n) }
}

fn with_deadline(n: u32, delay: u64, deadline: u64) -> NewJob {
    NewJob { deadline_at: Some(t(deadline)), ..delayed(n, delay) }
}

pub async fn timers_fire_in_order_up_to_the_limit(store: Handle) {
    submit(&store, &[delayed(1, 30), delayed(2, 10), delayed(3, 20), delayed(4, 20), delayed(5, 99)]).await;
    let first = fire_timers(&store, 50, 3).await;
    assert_eq!((first.woken, first.expired, first.now), (3, 0, t(50)));
    assert_eq!(first.next_at, Some(t(30)), "the limit was reached: the next timer is overdue");
    assert_eq!(
        list(&store, crate::Filter { state: Some(State::Ready), ..all_jobs() }).await,
        [4, 3, 2].map(id)
    );
    let second = fire_timers(&store, 50, 3).await;
    assert_eq!((second.woken, second.next_at), (1, Some(t(99))));
    let worker = worker(&store, 1).await;
    let order = ids(&claim(&store, at(50), &claim_request(worker, 1, 9)).await);
    assert_eq!(order, [2, 3, 4, 1].map(id), "they are ranked by the time when they were due");
}

pub async fn next_at_is_the_time_of_the_next_timer(store: Handle) {
    assert_eq!(fire_timers(&store, 0, 9).await.next_at, None);
    submit(&store, &[delayed(1, 30), with_deadline(2, 0, 20)]).await;
    assert_eq!(fire_timers(&store, 1, 9).await.next_at, Some(t(20)), "a deadline is a timer");
    let fired = fire_timers(&store, 20, 9).await;
    assert_eq!((fired.expired, fired.next_at), (1, Some(t(30))));
    assert_eq!(fire_timers(&store, 29, 9).await.woken, 0);
    let fired = fire_timers(&store, 30, 9).await;
    assert_eq!((fired.woken, fired.next_at), (1, None));
}

pub async fn a_scheduled_ready_or_running_job_expires(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[with_deadline(1, 0, 50)]).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    submit(&store, &[with_deadline(2, 0, 50), with_deadline(3, 80, 50)]).await;
    let fired = fire_timers(&store, 50, 9).await;
    assert_eq!(
        (fired.woken, fired.expired, fired.next_at),
        (0, 3, None),
        "the other timer of an ended job is removed"
    );
    for n in 1..=3 {
        let kept = view(&store, id(n)).await;
        assert_eq!(
            (kept.summary.state, kept.summary.reason),
            (State::Failed, Some(Reason::Expired)),
            "job {n}"
        );
        assert_eq!((kept.epoch, kept.summary.finished_at, kept.summary.attempts), (Epoch(1), Some(t(50)), 0));
        let failure = kept.failure.expect("a failure is kept");
        assert_eq!(failure.class, class::EXPIRED);
        assert!(failure.message.contains(&t(50).to_string()), "{}", failure.message);
    }
    assert_eq!(commit(&store, 51, change(worker, &claimed, done("x"))).await, CommitOutcome::Fenced);
    let batch = store.claim(at(51), &claim_request(worker, 2, 9)).await.expect("claim");
    assert!(batch.jobs.is_empty() && !batch.suspects, "it was removed from the ready set");
    assert_eq!(store.retire_worker(at(52), worker).await.expect("retire"), 0);
}

pub async fn a_due_time_and_a_deadline_may_fire_in_the_same_batch(store: Handle) {
    submit(
        &store,
        &[
            with_deadline(1, 20, 40),
            with_deadline(2, 40, 20),
            with_deadline(3, 30, 30),
            with_deadline(4, 20, 99),
        ],
    )
    .await;
    let fired = fire_timers(&store, 60, 99).await;
    assert_eq!((fired.woken, fired.expired, fired.next_at), (3, 3, Some(t(99))));
    for n in 1..=3 {
        assert_eq!(view(&store, id(n)).await.summary.reason, Some(Reason::Expired), "job {n}");
    }
    let worker = worker(&store, 1).await;
    assert_eq!(ids(&claim(&store, at(60), &claim_request(worker, 1, 9)).await), [id(4)]);
}

pub async fn an_expired_suspect_is_removed_from_its_lane(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[with_deadline(1, 0, 50)]).await;
    claim_one(&store, 0, one, 1).await;
    reap(&store, 1, one).await;
    assert_eq!(fire_timers(&store, 50, 9).await.expired, 1);
    let batch = store.claim(at(51), &solo_claim_request(two, 1)).await.expect("claim");
    assert!(batch.jobs.is_empty() && !batch.suspects);
    assert_eq!(view(&store, id(1)).await.epoch, Epoch(2));
}

pub async fn a_retried_job_wakes_once(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    apply(&store, 1, change(worker, &job, retry(secs(10), &[]))).await;
    assert_eq!(fire_timers(&store, 11, 9).await.woken, 1);
    assert_eq!(fire_timers(&store, 12, 9).await.woken, 0);
    assert_eq!(claim(&store, at(12), &claim_request(worker, 2, 9)).await.len(), 1);
}

pub async fn nothing_changes_before_a_timer_is_due(store: Handle) {
    submit(&store, &[job(1), delayed(2, 10)]).await;
    let before = (view(&store, id(1)).await, view(&store, id(2)).await);
    let fired = fire_timers(&store, 9, 9).await;
    assert_eq!((fired.woken, fired.expired, fired.next_at, fired.now), (0, 0, Some(t(10)), t(9)));
    assert_eq!((view(&store, id(1)).await, view(&store, id(2)).await), before);
    let none = fire_timers(&store, 10, 0).await;
    assert_eq!((none.woken, none.next_at), (0, Some(t(10))), "a limit of 0 fires none");
}

pub async fn an_expiry_adds_no_attempt_to_the_history(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[with_deadline(1, 0, 50)]).await;
    let job = claim_one(&store, 0, worker, 1).await;
    apply(&store, 1, change(worker, &job, retry(secs(0), &[]))).await;
    fire_timers(&store, 50, 9).await;
    let attempts = history(&store, id(1)).await;
    assert_eq!(
        (attempts.len(), attempts[0].failure.class.as_ref()),
        (1, "busy"),
        "only the attempt that failed"
    );
}
