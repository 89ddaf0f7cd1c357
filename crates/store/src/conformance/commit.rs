//! Commits: outcomes, repeats, fenced and refused changes.

use std::time::Duration;

use windlass_model::{
    Change, CommitOutcome, Epoch, Failure, NewJob, Outcome, Payload, Reason, Rev, State, Time,
    failure::class, limits,
};

use super::kit::*;
use crate::JobEnd;

async fn ended(store: &Handle, n: u32) -> Option<JobEnd> {
    store.job_ends(&[id(n)]).await.expect("ended").remove(0)
}

pub async fn a_done_job_keeps_its_output(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    let output = Payload { codec: 5, bytes: vec![0, 255, 7] };
    assert_eq!(
        commit(&store, 9, change(worker, &job, Outcome::Done(output.clone()))).await,
        CommitOutcome::Committed
    );
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.state, kept.summary.finished_at), (State::Done, Some(t(9))));
    assert_eq!((kept.rev, kept.worker, kept.started_at), (Rev(1), Some(worker), Some(t(1))));
    assert_eq!((kept.summary.attempts, kept.summary.reason, kept.failure), (0, None, None));
    assert_eq!(kept.output, Some(output.clone()));
    assert_eq!(ended(&store, 1).await, Some(JobEnd::Done(output)));
    assert!(
        history(&store, id(1)).await.is_empty(),
        "a job that is done at its first attempt has no history"
    );
}

pub async fn a_failed_job_keeps_its_reason_and_failure(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    let failure = Failure::stop("no such image").class("image").with_detail(&vec![1, 2]);
    let outcome = Outcome::Failed { reason: Reason::Stopped, failure: failure.clone() };
    assert_eq!(commit(&store, 9, change(worker, &job, outcome)).await, CommitOutcome::Committed);
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.state, kept.summary.reason), (State::Failed, Some(Reason::Stopped)));
    assert_eq!((kept.summary.attempts, kept.summary.finished_at), (1, Some(t(9))));
    assert_eq!(kept.failure.as_ref(), Some(&failure));
    let attempts = history(&store, id(1)).await;
    assert_eq!((attempts.len(), attempts[0].epoch, attempts[0].worker), (1, Epoch(0), worker));
    assert_eq!((attempts[0].started_at, attempts[0].ended_at), (t(1), t(9)));
    assert_eq!(attempts[0].failure, failure);
    assert_eq!(ended(&store, 1).await, Some(JobEnd::Failed { reason: Reason::Stopped, failure }));
}

/// A worker answers callers from the change itself, without a read.
pub async fn a_committed_end_is_what_a_read_returns(store: Handle) {
    let worker = worker(&store, 1).await;
    let long = Failure::stop("a\0b".repeat(20_000)).class("c\0").with_detail(&"d".repeat(100_000));
    let outcomes = [
        Outcome::Done(Payload { codec: 5, bytes: vec![0, 255, 7] }),
        Outcome::Done(Payload::json(vec![b'7'; 100_000])),
        failed(Reason::Exhausted),
        Outcome::Failed { reason: Reason::Stopped, failure: long.clone() },
        cancelled(),
        Outcome::Cancelled(long),
    ];
    submit(&store, &jobs(0, outcomes.len() as u32)).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 99)).await;
    for (n, (job, outcome)) in claimed.iter().zip(outcomes).enumerate() {
        let committed = commit(&store, 1, change(worker, job, outcome.clone())).await;
        assert_eq!(committed, CommitOutcome::Committed);
        assert_eq!(JobEnd::of_committed(outcome), ended(&store, n as u32).await, "outcome {n}");
    }
    assert_eq!(JobEnd::of_committed(Outcome::Next), None);
}

pub async fn every_reason_is_kept(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(0, Reason::ALL.len() as u32)).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 99)).await;
    let changes: Vec<_> =
        claimed.iter().zip(Reason::ALL).map(|(job, reason)| change(worker, job, failed(reason))).collect();
    let results = store.commit(at(1), &changes).await.expect("commit");
    assert!(results.iter().all(|result| *result == CommitOutcome::Committed));
    for (n, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(view(&store, id(n as u32)).await.summary.reason, Some(reason));
    }
}

pub async fn a_cancelled_attempt_does_not_count(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    assert_eq!(commit(&store, 9, change(worker, &job, cancelled())).await, CommitOutcome::Committed);
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.state, kept.summary.reason, kept.summary.attempts), (State::Cancelled, None, 0));
    assert_eq!((kept.rev, kept.summary.finished_at), (Rev(1), Some(t(9))));
    assert_eq!(ended(&store, 1).await, Some(JobEnd::Cancelled(Failure::cancel("no longer wanted"))));
    assert_eq!(history(&store, id(1)).await.len(), 1);
}

pub async fn a_retried_job_is_ready_after_its_delay(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    assert_eq!(
        commit(&store, 10, change(worker, &job, retry(secs(20), &[1, 0]))).await,
        CommitOutcome::Committed
    );
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.state, kept.summary.due_at), (State::Scheduled, t(30)));
    assert_eq!((kept.rev, kept.epoch, kept.summary.attempts), (Rev(1), Epoch(1), 1));
    assert_eq!((kept.retry_counts, kept.summary.finished_at), (vec![1, 0], None));
    assert_eq!(kept.failure, Some(Failure::retry("once more").class("busy")));
    assert_eq!(ended(&store, 1).await, None);
    assert!(claim(&store, at(29), &claim_request(worker, 2, 9)).await.is_empty());
    assert_eq!(fire_timers(&store, 30, 9).await.woken, 1);
    let again = claim_one(&store, 30, worker, 2).await;
    assert_eq!(
        (again.epoch, again.rev, again.attempts, again.retry_counts),
        (Epoch(1), Rev(1), 1, vec![1, 0])
    );
}

pub async fn a_job_retried_without_delay_is_ready_at_once(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    apply(&store, 10, change(worker, &job, retry(secs(0), &[]))).await;
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.state, kept.summary.due_at), (State::Ready, t(10)));
    assert_eq!(fire_timers(&store, 10, 9).await.next_at, None, "no timer was set");
    assert_eq!(claim_one(&store, 10, worker, 2).await.epoch, Epoch(1));
}

pub async fn the_longest_delay_of_a_retry_ends_at_the_latest_time(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    assert_eq!(
        commit(&store, 1, change(worker, &job, retry(Duration::MAX, &[]))).await,
        CommitOutcome::Committed
    );
    let kept = view(&store, id(1)).await.summary;
    assert_eq!((kept.state, kept.due_at), (State::Scheduled, Time::MAX));
}

pub async fn an_undecodable_input_counts_no_attempt(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    apply(&store, 1, change(worker, &job, failed(Reason::Undecodable))).await;
    let kept = view(&store, id(1)).await.summary;
    assert_eq!((kept.state, kept.reason, kept.attempts), (State::Failed, Some(Reason::Undecodable), 0));
    assert_eq!(history(&store, id(1)).await.len(), 1);
}

pub async fn a_repeated_commit_returns_committed_and_writes_nothing(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 5)).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 9)).await;
    let outcomes =
        [done("x"), failed(Reason::Stopped), cancelled(), retry(secs(9), &[1]), retry(secs(0), &[1])];
    let batch: Vec<Change> =
        claimed.iter().zip(outcomes).map(|(job, how)| change(worker, job, how)).collect();
    assert_eq!(store.commit(at(2), &batch).await.expect("commit"), vec![CommitOutcome::Committed; 5]);
    let mut before = Vec::new();
    for n in 1..=5 {
        before.push((view(&store, id(n)).await, history(&store, id(n)).await));
    }
    let gates_before = gates(&store, &[QUEUE, crate::TIMER_GATE]).await;
    assert_eq!(store.commit(at(50), &batch).await.expect("commit"), vec![CommitOutcome::Committed; 5]);
    for n in 1..=5 {
        let after = (view(&store, id(n)).await, history(&store, id(n)).await);
        assert_eq!(after, before[n as usize - 1], "job {n} is as the first commit left it");
    }
    assert_eq!(gates(&store, &[QUEUE, crate::TIMER_GATE]).await, gates_before);
    assert_eq!(fire_timers(&store, 60, 9).await.woken, 1, "one timer, not two");
    assert_eq!(claim(&store, at(60), &claim_request(worker, 2, 9)).await.len(), 2, "each is ready once");
}

pub async fn a_repeated_retry_returns_committed_until_the_next_change(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    let first = change(worker, &job, retry(secs(0), &[1]));
    apply(&store, 1, first.clone()).await;
    let again = claim_one(&store, 2, worker, 2).await;
    assert_eq!(commit(&store, 3, first.clone()).await, CommitOutcome::Committed, "although it runs again");
    assert_eq!(state(&store, id(1)).await, State::Running);
    assert_eq!(commit(&store, 4, change(worker, &again, done("x"))).await, CommitOutcome::Committed);
    assert_eq!(commit(&store, 5, first).await, CommitOutcome::Fenced, "another change followed");
    assert_eq!(view(&store, id(1)).await.rev, Rev(2));
}

/// Expects that every outcome of an outdated claim is fenced and changes nothing.
async fn expect_fenced(store: &Handle, stale: &[Change]) {
    for change in stale {
        let before = (view(store, change.job).await, history(store, change.job).await);
        for outcome in [done("zombie"), failed(Reason::Stopped), retry(secs(0), &[9]), cancelled()] {
            let result = commit(store, 90, Change { outcome, ..change.clone() }).await;
            assert_eq!(result, CommitOutcome::Fenced, "{change:?}");
        }
        assert_eq!((view(store, change.job).await, history(store, change.job).await), before);
    }
}

pub async fn a_released_claim_is_fenced(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    store.release(at(1), &[job_claim(worker, &job)]).await.expect("release");
    expect_fenced(&store, &[change(worker, &job, done("x"))]).await;
    claim_one(&store, 2, worker, 2).await;
    expect_fenced(&store, &[change(worker, &job, done("x"))]).await;
}

pub async fn a_reaped_claim_is_fenced(store: Handle) {
    let (one, job) = running_job(&store, 1).await;
    reap(&store, 1, one).await;
    expect_fenced(&store, &[change(one, &job, done("x"))]).await;
    let two = worker(&store, 2).await;
    let again = claim(&store, at(2), &solo_claim_request(two, 1)).await.remove(0);
    expect_fenced(&store, &[change(one, &job, done("x"))]).await;
    assert_eq!(commit(&store, 3, change(two, &again, done("y"))).await, CommitOutcome::Committed);
    expect_fenced(&store, &[change(one, &job, done("x"))]).await;
}

pub async fn an_expired_job_is_fenced(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut new = job(1);
    new.deadline_at = Some(t(5));
    submit(&store, &[new]).await;
    let job = claim_one(&store, 0, worker, 1).await;
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    expect_fenced(&store, &[change(worker, &job, done("x"))]).await;
    assert_eq!(view(&store, id(1)).await.summary.reason, Some(Reason::Expired));
}

pub async fn a_retired_claim_is_fenced(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    assert_eq!(store.retire_worker(at(1), worker).await.expect("retire"), 1);
    expect_fenced(&store, &[change(worker, &job, done("x"))]).await;
}

pub async fn the_same_worker_with_an_older_epoch_is_fenced(store: Handle) {
    let (worker, first) = running_job(&store, 1).await;
    store.release(at(1), &[job_claim(worker, &first)]).await.expect("release");
    let second = claim_one(&store, 1, worker, 2).await;
    assert!(second.epoch > first.epoch && second.rev == first.rev, "they differ only in the epoch");
    expect_fenced(&store, &[change(worker, &first, done("x"))]).await;
    assert_eq!(state(&store, id(1)).await, State::Running);
    assert_eq!(commit(&store, 2, change(worker, &second, done("y"))).await, CommitOutcome::Committed);
}

pub async fn a_stale_rev_is_fenced(store: Handle) {
    let (worker, first) = running_job(&store, 1).await;
    apply(&store, 1, change(worker, &first, retry(secs(0), &[]))).await;
    let second = claim_one(&store, 1, worker, 2).await;
    let with_rev = |rev| Change { rev, ..change(worker, &second, done("x")) };
    expect_fenced(&store, &[with_rev(Rev(0)), with_rev(Rev(2)), with_rev(Rev(7))]).await;
    assert_eq!(commit(&store, 2, with_rev(Rev(1))).await, CommitOutcome::Committed);
}

pub async fn an_unknown_job_is_fenced(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    let unknown = Change { job: id(99), ..change(worker, &job, done("x")) };
    let results = store.commit(at(1), &[unknown, change(worker, &job, done("x"))]).await.expect("commit");
    assert_eq!(results, [CommitOutcome::Fenced, CommitOutcome::Committed]);
}

pub async fn an_output_above_the_limit_is_refused_alone(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 3)).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 9)).await;
    let most = store.limits().payload;
    let sized = |len| Outcome::Done(Payload::json(vec![b'1'; len]));
    let batch = [
        change(worker, &claimed[0], done("x")),
        change(worker, &claimed[1], sized(most + 1)),
        change(worker, &claimed[2], sized(most)),
    ];
    let results = store.commit(at(1), &batch).await.expect("commit");
    assert_eq!((&results[0], &results[2]), (&CommitOutcome::Committed, &CommitOutcome::Committed));
    let CommitOutcome::Refused(why) = &results[1] else { panic!("{:?}", results[1]) };
    assert!(why.contains("the output") && why.contains(&most.to_string()), "{why}");
    assert_eq!((state(&store, id(2)).await, view(&store, id(2)).await.rev), (State::Running, Rev(0)));
    let small = change(worker, &claimed[1], failed(Reason::Refused));
    assert_eq!(commit(&store, 2, small).await, CommitOutcome::Committed, "a smaller change is accepted");
}

pub async fn five_hundred_mixed_changes_are_committed_in_one_batch(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(0, 500)).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 500)).await;
    let stale: Vec<_> =
        claimed.iter().filter(|job| job.input.bytes.ends_with(b"7")).map(|j| job_claim(worker, j)).collect();
    assert_eq!(store.release(at(1), &stale).await.expect("release"), 50);
    let too_large = Outcome::Done(Payload::json(vec![b'1'; store.limits().payload + 1]));
    let outcome = |n: usize| match n % 10 {
        0 | 7 => done(&n.to_string()),
        1 => failed(Reason::Exhausted),
        2 => failed(Reason::Undecodable),
        3 => retry(secs(60), &[n as u32]),
        4 => retry(secs(0), &[]),
        5 => cancelled(),
        6 if n == 256 => too_large.clone(),
        _ => done("x"),
    };
    let batch: Vec<_> = claimed.iter().enumerate().map(|(n, job)| change(worker, job, outcome(n))).collect();
    let results = store.commit(at(2), &batch).await.expect("commit");
    for (n, result) in results.iter().enumerate() {
        let kept = view(&store, id(n as u32)).await;
        let (expected, attempts) = match n % 10 {
            7 => (State::Ready, 0),
            1 => (State::Failed, 1),
            2 => (State::Failed, 0),
            3 => (State::Scheduled, 1),
            4 => (State::Ready, 1),
            5 => (State::Cancelled, 0),
            _ if n == 256 => (State::Running, 0),
            _ => (State::Done, 0),
        };
        assert_eq!((kept.summary.state, kept.summary.attempts), (expected, attempts), "job {n}");
        match n {
            256 => assert!(matches!(result, CommitOutcome::Refused(_)), "job {n}: {result:?}"),
            _ if n % 10 == 7 => assert_eq!(*result, CommitOutcome::Fenced, "job {n}"),
            _ => assert_eq!((result, kept.rev), (&CommitOutcome::Committed, Rev(1)), "job {n}"),
        }
    }
    assert_eq!(store.commit(at(3), &batch).await.expect("commit"), results, "the same when repeated");
}

pub async fn the_end_of_a_job_removes_its_deadline_timer(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut batch = jobs(1, 4);
    batch.iter_mut().for_each(|job| job.deadline_at = Some(t(100)));
    submit(&store, &batch).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 9)).await;
    let outcomes = [done("x"), failed(Reason::Stopped), cancelled(), retry(secs(0), &[])];
    for (job, outcome) in claimed.iter().zip(outcomes) {
        apply(&store, 1, change(worker, job, outcome)).await;
    }
    assert_eq!(fire_timers(&store, 2, 9).await.next_at, Some(t(100)), "the retried job keeps its deadline");
    let again = claim_one(&store, 2, worker, 2).await;
    apply(&store, 3, change(worker, &again, done("x"))).await;
    assert_eq!(fire_timers(&store, 4, 9).await.next_at, None, "the timers are deleted");
    store
        .submit(at(5), &[NewJob { deadline_at: Some(t(200)), ..job(9) }], claim_on_submit(worker, 3))
        .await
        .expect("submit");
    let claimed_at_submit = claim(&store, at(5), &claim_request(worker, 3, 1)).await.remove(0);
    apply(&store, 6, change(worker, &claimed_at_submit, done("x"))).await;
    assert_eq!(fire_timers(&store, 7, 9).await.next_at, None, "also that of a job claimed at submit");
    assert_eq!(fire_timers(&store, 300, 9).await.expired, 0);
    assert_eq!(state(&store, id(1)).await, State::Done);
}

pub async fn a_lapsed_lease_does_not_fence_a_commit(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    let late = LEASE.as_secs() + 50;
    assert_eq!(commit(&store, late, change(worker, &job, done("x"))).await, CommitOutcome::Committed);
}

pub async fn the_history_keeps_every_failed_attempt(store: Handle) {
    let (worker, mut job) = running_job(&store, 1).await;
    for n in 1..=4u32 {
        let failure = Failure::retry(format!("try {n}"));
        let outcome = Outcome::Retry { after: secs(0), retry_counts: vec![n], failure: Some(failure) };
        let started = Change { started_at: t(u64::from(n) * 10), ..change(worker, &job, outcome) };
        assert_eq!(commit(&store, u64::from(n) * 10 + 5, started).await, CommitOutcome::Committed);
        job = claim_one(&store, u64::from(n) * 10 + 5, worker, i64::from(n) + 1).await;
    }
    apply(&store, 60, change(worker, &job, done("x"))).await;
    let attempts = history(&store, id(1)).await;
    let seen: Vec<_> =
        attempts.iter().map(|a| (a.epoch.0, a.started_at, a.ended_at, a.failure.message.as_str())).collect();
    let expected = [
        (0, t(10), t(15), "try 1"),
        (1, t(20), t(25), "try 2"),
        (2, t(30), t(35), "try 3"),
        (3, t(40), t(45), "try 4"),
    ];
    assert_eq!(seen, expected);
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.attempts, kept.rev, kept.summary.state), (4, Rev(5), State::Done));
    assert_eq!(kept.output, Some(payload("x")));
}

pub async fn failures_are_cleaned_before_they_are_stored(store: Handle) {
    let (worker, job) = running_job(&store, 1).await;
    let failure = Failure::retry("a\0b".to_owned() + &"é".repeat(limits::MAX_MESSAGE_BYTES))
        .class("c\0".to_owned() + &"d".repeat(500))
        .with_detail(&"nul \0 and quote \" and ü");
    let outcome = Outcome::Retry { after: secs(0), retry_counts: vec![], failure: Some(failure.clone()) };
    assert_eq!(commit(&store, 1, change(worker, &job, outcome)).await, CommitOutcome::Committed);
    let kept = view(&store, id(1)).await.failure.expect("kept");
    assert!(kept.message.starts_with("a\u{fffd}bé") && kept.message.len() < limits::MAX_MESSAGE_BYTES + 64);
    assert!(!kept.class.contains('\0') && kept.class.len() <= limits::MAX_NAME_BYTES, "{:?}", kept.class);
    assert_eq!(kept.detail, failure.detail);
    assert_eq!(history(&store, id(1)).await[0].failure, kept);
    assert_ne!(kept.class, class::ERROR);
}

pub async fn an_empty_commit_does_nothing(store: Handle) {
    assert!(store.commit(at(0), &[]).await.expect("commit").is_empty());
}

pub async fn another_outcome_of_the_same_claim_and_revision_is_fenced(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &(1..=5).map(|n| machine(n, "Begin")).collect::<Vec<_>>()).await;
    let outcomes =
        [done("x"), failed(Reason::Stopped), cancelled(), retry(secs(1), &[]), wait_for_signal("go", None)];
    for (number, outcome) in (1..).zip(outcomes) {
        let job = claim_one(&store, 0, me, number).await;
        apply(&store, 1, change(me, &job, Outcome::Next)).await;
        // Made by the code that gives the attempt up, before it knows the result of the first commit.
        let other = change(me, &job, outcome.clone());
        for _ in 0..2 {
            assert_eq!(commit(&store, 2, other.clone()).await, CommitOutcome::Fenced, "{outcome:?}");
        }
        assert_eq!(state(&store, job.id).await, State::Running, "{outcome:?}");
        assert_eq!(store.release(at(3), &[job_claim(me, &job)]).await.expect("release"), 1, "{outcome:?}");
        assert_eq!(commit(&store, 4, change(me, &job, Outcome::Next)).await, CommitOutcome::Halted);
        store
            .control()
            .act_on_jobs(at(4), &[job.id], crate::JobAction::Pause, &crate::Actor::new("me"))
            .await
            .expect("paused");
    }
}
