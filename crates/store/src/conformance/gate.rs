//! Gates move exactly when a queue gains ready jobs or a timer is set.

use windlass_model::{NewJob, When};

use super::kit::*;
use crate::{ReapRequest, TIMER_GATE};

const ALL: [&str; 3] = ["main", "bulk", TIMER_GATE];

/// Which of the gates of main, bulk and timers moved since `last`, which is updated.
async fn moved(store: &Handle, last: &mut Vec<u64>) -> [bool; 3] {
    let now = gates(store, &ALL).await;
    let moved = [now[0] != last[0], now[1] != last[1], now[2] != last[2]];
    *last = now;
    moved
}

pub async fn a_gate_moves_exactly_when_its_queue_gains_a_job(store: Handle) {
    let mut last = gates(&store, &ALL).await;
    submit(&store, &[job(1)]).await;
    assert_eq!(moved(&store, &mut last).await, [true, false, false]);
    submit(&store, &[job_in(2, KIND, "bulk")]).await;
    assert_eq!(moved(&store, &mut last).await, [false, true, false]);
    submit(&store, &[job(3), job_in(4, "other", "bulk")]).await;
    assert_eq!(moved(&store, &mut last).await, [true, true, false]);
    assert_eq!(moved(&store, &mut last).await, [false; 3], "reading moves nothing");
}

pub async fn the_timer_gate_moves_when_a_timer_is_set(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut last = gates(&store, &ALL).await;
    submit(&store, &[NewJob { when: When::After(secs(5)), ..job(1) }]).await;
    assert_eq!(moved(&store, &mut last).await, [false, false, true]);
    submit(&store, &[NewJob { deadline_at: Some(t(99)), ..job(2) }]).await;
    assert_eq!(moved(&store, &mut last).await, [true, false, true]);
    let claimed = claim_one(&store, 0, worker, 1).await;
    assert_eq!(moved(&store, &mut last).await, [false; 3]);
    apply(&store, 1, change(worker, &claimed, retry(secs(9), &[]))).await;
    assert_eq!(moved(&store, &mut last).await, [false, false, true]);
    fire_timers(&store, 5, 9).await;
    assert_eq!(moved(&store, &mut last).await, [true, false, false], "a wake moves the queue's gate");
}

pub async fn every_return_of_a_job_moves_the_gate(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut last = gates(&store, &ALL).await;
    submit(&store, &[job(1)]).await;
    moved(&store, &mut last).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    store.release(at(1), &[job_claim(worker, &claimed)]).await.expect("release");
    assert_eq!(moved(&store, &mut last).await, [true, false, false], "release");
    let claimed = claim_one(&store, 1, worker, 2).await;
    apply(&store, 2, change(worker, &claimed, retry(secs(0), &[]))).await;
    assert_eq!(moved(&store, &mut last).await, [true, false, false], "retry at once");
    claim_one(&store, 2, worker, 3).await;
    moved(&store, &mut last).await;
    store.retire_worker(at(3), worker).await.expect("retire");
    assert_eq!(moved(&store, &mut last).await, [true, false, false], "retire");
    let other = super::kit::worker(&store, 2).await;
    claim_one(&store, 3, other, 1).await;
    moved(&store, &mut last).await;
    reap(&store, 4, other).await;
    assert_eq!(moved(&store, &mut last).await, [true, false, false], "reap: a suspect is ready");
}

pub async fn calls_that_add_no_ready_job_move_no_gate(store: Handle) {
    let worker = worker(&store, 1).await;
    let with_key = NewJob { key: Some("k".into()), ..job(1) };
    submit(&store, &[with_key, job(2), NewJob { deadline_at: Some(t(9)), ..job(3) }]).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 3)).await;
    let mut last = gates(&store, &ALL).await;
    let repeated = [job(2), NewJob { key: Some("k".into()), ..job(7) }];
    store.submit(at(1), &repeated, None).await.expect("submit");
    store.submit(at(1), &[job(8)], claim_on_submit(worker, 2)).await.expect("submit");
    assert_eq!(moved(&store, &mut last).await, [false; 3], "repeats, taken keys, and jobs claimed at submit");
    apply(&store, 1, change(worker, &claimed[0], done("x"))).await;
    store.release(at(1), &[job_claim(worker, &claimed[0])]).await.expect("release");
    fire_timers(&store, 9, 9).await;
    assert_eq!(moved(&store, &mut last).await, [false; 3], "an end, a stale release, an expiry");
    renew(&store, 10, worker).await;
    claim(&store, at(10), &claim_request(worker, 3, 3)).await;
    let lapsed_only = ReapRequest { dead: vec![], lapsed: true, limit: 9, max_crashes: MAX_CRASHES };
    store.reap(at(11), &lapsed_only).await.expect("reap");
    store.inspect().jobs(&all_jobs()).await.expect("jobs");
    assert_eq!(moved(&store, &mut last).await, [false; 3]);
    let stale = change(worker, &claimed[2], retry(secs(0), &[]));
    assert_eq!(commit(&store, 12, stale).await, windlass_model::CommitOutcome::Fenced);
    assert_eq!(moved(&store, &mut last).await, [false; 3], "a fenced change");
}

pub async fn gates_of_unknown_queues_do_not_move(store: Handle) {
    let before = gates(&store, &["unknown", QUEUE, "nothing"]).await;
    submit(&store, &[job(1)]).await;
    let after = gates(&store, &["unknown", QUEUE, "nothing"]).await;
    assert_eq!((after[0], after[2]), (before[0], before[2]));
    assert_ne!(after[1], before[1], "the first job of a queue also moves its gate");
    assert!(gates(&store, &[]).await.is_empty());
    let twice = gates(&store, &[QUEUE, QUEUE]).await;
    assert_eq!(twice, [after[1], after[1]]);
}

pub async fn all_handles_move_and_read_the_same_gate(store: Handle) {
    let other = store.sibling().await.expect("sibling");
    let mut seen = gates(&store, &[QUEUE]).await;
    for n in 0..10 {
        let (writer, reader) = if n % 2 == 0 { (&store, &other) } else { (&other, &store) };
        submit(writer, &[job(n)]).await;
        let next = gates(reader, &[QUEUE]).await;
        assert!(!seen.contains(&next[0]), "no value is used twice");
        assert_eq!(gates(writer, &[QUEUE]).await, next, "both handles see the same");
        seen.extend(next);
    }
}
