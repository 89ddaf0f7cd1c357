//! Lost claims: a store that was restored from a backup, or a standby that took over before it had received everything, has no
//! record of recent claims. Their jobs are claimed again, with the same epoch and revision.
//!
//! The cases make the lost claim on a memory store with the same jobs, so that the store under test has no record of it.

use std::sync::Arc;

use windlass_model::{
    ClaimNo, ClaimedJob, CommitOutcome, Failure, Outcome, Reason, State, StepWrites, Unwind, WorkerId,
};

use super::kit::*;
use crate::{ClaimRequest, RenewRequest, Renewal, memory::Memory};

/// Job 1 as a worker claimed it, by a claim that the store under test has no record of.
async fn lost_claim(worker: i64, number: i64) -> (WorkerId, ClaimedJob) {
    let other: Handle = Arc::new(Memory::new());
    let holder = self::worker(&other, worker).await;
    submit(&other, &[job(1)]).await;
    (holder, claim_one(&other, 0, holder, number).await)
}

pub async fn a_lost_claim_commits_nothing(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1)]).await;
    let (_, lost) = lost_claim(1, 1).await;
    let current = claim_one(&store, 0, two, 1).await;
    assert_eq!(
        (lost.id, lost.epoch, lost.rev),
        (current.id, current.epoch, current.rev),
        "they differ only in worker and claim"
    );

    for outcome in [
        Outcome::Next,
        done("lost"),
        failed(Reason::Stopped),
        retry(secs(1), &[1]),
        wait_for_signal("go", None),
    ] {
        let result = commit(&store, 1, change(one, &lost, outcome.clone())).await;
        assert_eq!(result, CommitOutcome::Fenced, "{outcome:?}");
    }
    assert_eq!(state(&store, id(1)).await, State::Running);
    assert_eq!(commit(&store, 2, change(two, &current, done("current"))).await, CommitOutcome::Committed);
    assert_eq!(commit(&store, 3, change(one, &lost, done("current"))).await, CommitOutcome::Fenced);
}

pub async fn no_part_of_a_change_of_a_lost_claim_is_written(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1)]).await;
    let (_, lost) = lost_claim(1, 1).await;
    let current = claim_one(&store, 0, two, 1).await;
    let kept = StepWrites {
        context: vec![("name".into(), payload("kept"))],
        ..journal_writes(vec![entry(0, "kept", "x")])
    };
    assert_eq!(
        commit(&store, 1, with_step(change(two, &current, Outcome::Next), kept)).await,
        CommitOutcome::Committed
    );

    let lost = after_step(&lost);
    let unwind = Unwind { reason: Some(Reason::Stopped), failure: Failure::stop("lost") };
    let steps = [
        StepWrites { continue_as_new: true, ..step("First", "Second", "lost") },
        StepWrites { forget_entries: vec![0], ..StepWrites::default() },
        StepWrites { context: vec![("name".into(), payload("lost"))], ..StepWrites::default() },
        StepWrites { unwind: Some(Box::new(unwind)), ..StepWrites::default() },
        spawn_children(&[job(2)]),
        journal_writes(vec![entry(1, "lost", "x"), entry(2, "lost", "x")]),
        journal_writes(vec![entry(1, "lost", "x")]),
    ];
    for step in steps {
        let result = commit(&store, 2, with_step(change(one, &lost, Outcome::Next), step.clone())).await;
        assert_eq!(result, CommitOutcome::Fenced, "{step:?}");
    }
    assert_eq!(journal(&store, 1).await, [entry(0, "kept", "x")]);
    assert_eq!(context(&store, 1).await, [("name".to_owned(), payload("kept"))]);
    assert!(store.inspect().job(id(2)).await.expect("job").is_none());
    let last = commit(&store, 3, change(two, &after_step(&current), done("current"))).await;
    assert_eq!(last, CommitOutcome::Committed);
}

pub async fn a_change_that_another_claim_wrote_is_not_a_repeat(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1)]).await;
    let (_, lost) = lost_claim(1, 1).await;
    let current = claim_one(&store, 0, two, 1).await;
    assert_eq!(commit(&store, 1, change(two, &current, Outcome::Next)).await, CommitOutcome::Committed);
    assert_eq!(
        commit(&store, 2, change(one, &lost, Outcome::Next)).await,
        CommitOutcome::Fenced,
        "another claim wrote this revision"
    );
    assert_eq!(
        commit(&store, 2, change(two, &current, Outcome::Next)).await,
        CommitOutcome::Committed,
        "its own repeat"
    );
}

pub async fn a_lost_claim_is_distinguished_from_a_later_one_of_the_same_worker(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[job(1)]).await;
    let (_, lost) = lost_claim(1, 1).await;
    let current = claim_one(&store, 0, me, 2).await;
    assert_eq!(commit(&store, 1, change(me, &lost, Outcome::Next)).await, CommitOutcome::Fenced);
    assert_eq!(commit(&store, 1, change(me, &current, Outcome::Next)).await, CommitOutcome::Committed);
    assert_eq!(commit(&store, 1, change(me, &lost, Outcome::Next)).await, CommitOutcome::Fenced);
    assert_eq!(commit(&store, 1, change(me, &current, Outcome::Next)).await, CommitOutcome::Committed);
}

pub async fn a_job_of_a_lost_claim_is_reaped_with_the_worker_that_holds_it(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1)]).await;
    let (_, lost) = lost_claim(1, 1).await;
    let current = claim_one(&store, 0, two, 1).await;
    assert_eq!(commit(&store, 1, change(one, &lost, Outcome::Next)).await, CommitOutcome::Fenced);
    assert_eq!(reap(&store, 2, two).await.returned, 1);
    assert_eq!(commit(&store, 3, change(two, &current, done("late"))).await, CommitOutcome::Fenced);
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

pub async fn a_repeated_commit_is_recognised_after_its_claim_was_settled(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 3)).await;
    let outcomes = [done("x"), retry(secs(9), &[1]), wait_for_signal("go", None)];
    for (number, outcome) in (1..).zip(outcomes) {
        let job = claim_one(&store, 0, me, number).await;
        let change = change(me, &job, outcome);
        assert_eq!(commit(&store, 1, change.clone()).await, CommitOutcome::Committed);
        let renewal = RenewRequest { settled: vec![ClaimNo(number)], ..renew_request(me) };
        store.renew(at(1), &renewal).await.expect("renew");
        assert_eq!(commit(&store, 2, change).await, CommitOutcome::Committed);
    }
    store.retire_worker(at(3), me).await.expect("retire");
}

pub async fn a_lost_claim_releases_nothing(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1)]).await;
    let (_, lost) = lost_claim(1, 1).await;
    let claims = [job_claim(one, &lost)];
    assert_eq!(store.release(at(0), &claims).await.expect("release"), 0, "the job is ready");
    let current = claim_one(&store, 0, two, 1).await;
    assert_eq!(store.release(at(1), &claims).await.expect("release"), 0, "another worker holds it");
    assert_eq!(state(&store, id(1)).await, State::Running);
    assert_eq!(commit(&store, 2, change(two, &current, done("current"))).await, CommitOutcome::Committed);
    assert_eq!(store.release(at(3), &claims).await.expect("release"), 0);
    assert_eq!(state(&store, id(1)).await, State::Done);
}

pub async fn a_lost_claim_releases_no_waiting_job(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[machine(1, "Begin")]).await;
    let job = claim_one(&store, 0, two, 1).await;
    apply(&store, 1, change(two, &job, wait_for_signal("go", None))).await;
    let epoch = view(&store, id(1)).await.epoch;
    // The job was woken and claimed after the time of the backup; neither raises the epoch.
    let claims = [windlass_model::JobClaim { epoch, ..job_claim(one, &job) }];
    assert_eq!(store.release(at(2), &claims).await.expect("release"), 0);
    assert_eq!((state(&store, id(1)).await, view(&store, id(1)).await.epoch), (State::Waiting, epoch));
}

pub async fn a_claim_with_running_jobs_is_not_settled(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 4)).await;
    for number in [1, 2] {
        let claimed = claim(&store, at(0), &claim_request(me, number, 2)).await;
        apply(&store, 1, change(me, &claimed[1], done("x"))).await;
    }
    // A server that was lost had confirmed to the worker that all of them ended.
    let store = store.sibling().await.expect("sibling");
    let settled = ClaimRequest { settled: vec![ClaimNo(1)], ..claim_request(me, 3, 1) };
    assert!(claim(&store, at(2), &settled).await.is_empty());
    let settled = RenewRequest { settled: vec![ClaimNo(1), ClaimNo(2)], ..renew_request(me) };
    for _ in 0..2 {
        let Renewal::Held { claims, .. } = store.renew(at(2), &settled).await.expect("renew") else {
            panic!("the lease is held")
        };
        assert_eq!(claims, [ClaimNo(1), ClaimNo(2)], "they contain running jobs");
    }
    assert_eq!(store.release_claims(at(3), me, &[ClaimNo(1)]).await.expect("release"), 1);
    assert_eq!(reap(&store, 3, me).await.returned, 1);
    for n in [1, 3] {
        assert_eq!(state(&store, id(n)).await, State::Ready, "job {n}");
    }
}
