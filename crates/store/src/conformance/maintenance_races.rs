//! Races between two calls for the same jobs: each job goes to exactly one of them, and no job is stuck or in two states.

use std::future::Future;

use windlass_model::{
    CommitOutcome, Epoch, JobClaim, NewJob, Reason, Rev, State, SubmitOutcome, When, WorkerId,
};

use super::{
    kit::*,
    races::{
        JOBS_PER_ROUND, ROUNDS, claimed_round, done_changes, drain, expect_each_returned_once, race,
        reap_until_done, run_concurrently,
    },
};
use crate::Error;

pub async fn a_claim_racing_a_reap_leaves_no_job_stuck(store: Handle) {
    for n in 0..ROUNDS {
        let dying = worker(&store, i64::from(n) + 1).await;
        submit(&store, &jobs(n * JOBS_PER_ROUND, JOBS_PER_ROUND)).await;
        let claimer = async move |store: Handle| {
            let mut claimed = 0;
            for number in 1..=JOBS_PER_ROUND {
                match store.claim(at(1), &claim_request(dying, i64::from(number), 1)).await {
                    Ok(batch) => claimed += batch.jobs.len(),
                    Err(Error::Dead) => break,
                    Err(error) => panic!("{error}"),
                }
                tokio::task::yield_now().await;
            }
            claimed
        };
        let reaper = async move |store: Handle| {
            for _ in 0..n % 7 {
                tokio::task::yield_now().await;
            }
            reap_until_done(store, 1, dying).await
        };
        let (claimed, reaped) = race(&store, claimer, reaper).await;
        assert_eq!((reaped.workers, reaped.returned), (vec![dying], claimed), "round {n}");
        assert_eq!(claim_count(&store, dying).await, 0, "no claim of the dead worker is left");
        assert_eq!(count(&store, State::Ready).await, JOBS_PER_ROUND as usize, "round {n}: nothing is stuck");
        assert_eq!(drain(&store, n).await.len(), JOBS_PER_ROUND as usize);
    }
}

pub async fn a_claim_at_submit_racing_a_reap_leaves_no_job_stuck(store: Handle) {
    for n in 0..ROUNDS {
        let dying = worker(&store, i64::from(n) + 1).await;
        let submitter = async move |store: Handle| {
            let mut claimed_at_submit = 0;
            for k in 0..JOBS_PER_ROUND {
                let batch = [job(n * JOBS_PER_ROUND + k)];
                let outcomes = store
                    .submit(at(1), &batch, claim_on_submit(dying, i64::from(k) + 1))
                    .await
                    .expect("submit");
                claimed_at_submit +=
                    usize::from(matches!(outcomes[0], SubmitOutcome::New { claimed: Some(_) }));
                tokio::task::yield_now().await;
            }
            claimed_at_submit
        };
        let (claimed_at_submit, reaped) =
            race(&store, submitter, |store| reap_until_done(store, 1, dying)).await;
        assert_eq!(reaped.returned, claimed_at_submit, "round {n}: every job claimed at submit was returned");
        assert_eq!(count(&store, State::Ready).await, JOBS_PER_ROUND as usize, "round {n}: nothing is stuck");
        drain(&store, n).await;
    }
}

/// Races a commit of a round's jobs with `other`, which returns how many jobs it got. Expects that each job went to
/// exactly one of them; those of `other` end in `state`.
async fn race_with_commit<F>(
    store: &Handle,
    n: u32,
    state: State,
    other: impl FnOnce(Handle, WorkerId, Vec<JobClaim>) -> F,
) where
    F: Future<Output = usize> + Send + 'static,
{
    let (worker, claimed) = claimed_round(store, n).await;
    let changes = done_changes(worker, &claimed);
    let claims = claimed.iter().map(|job| job_claim(worker, job)).collect();
    let committer = async move |store: Handle| {
        let mut results = Vec::new();
        for chunk in changes.chunks(2) {
            results.extend(store.commit(at(100), chunk).await.expect("commit"));
        }
        results
    };
    let (results, lost) = race(store, committer, |store| other(store, worker, claims)).await;
    let won = results.iter().filter(|result| **result == CommitOutcome::Committed).count();
    assert_eq!(won + lost, JOBS_PER_ROUND as usize, "round {n}: each job has one winner");
    for (job, result) in claimed.iter().zip(results) {
        let kept = view(store, job.id).await;
        let found = (kept.summary.state, kept.rev, kept.epoch);
        match result {
            CommitOutcome::Committed => assert_eq!(found, (State::Done, Rev(1), Epoch(0)), "round {n}"),
            CommitOutcome::Fenced => assert_eq!(found, (state, Rev(0), Epoch(1)), "round {n}"),
            CommitOutcome::Refused(why) => panic!("{why}"),
            CommitOutcome::Halted => panic!("no job was paused"),
        }
    }
    drain(store, n).await;
}

pub async fn a_commit_racing_a_reap_has_one_winner(store: Handle) {
    for n in 0..ROUNDS {
        let reaper = async |store, worker, _| reap_until_done(store, 100, worker).await.returned;
        race_with_commit(&store, n, State::Ready, reaper).await;
    }
}

pub async fn a_commit_racing_a_release_has_one_winner(store: Handle) {
    for n in 0..ROUNDS {
        let releaser = async |store: Handle, _, mut claims: Vec<JobClaim>| {
            claims.reverse();
            store.release(at(100), &claims).await.expect("release")
        };
        race_with_commit(&store, n, State::Ready, releaser).await;
    }
}

pub async fn a_commit_racing_an_expiry_has_one_winner(store: Handle) {
    for n in 0..ROUNDS {
        let worker = worker(&store, i64::from(n) + 1).await;
        let with_deadline = |job| NewJob { deadline_at: Some(t(100)), ..job };
        submit(
            &store,
            &jobs(n * JOBS_PER_ROUND, JOBS_PER_ROUND).into_iter().map(with_deadline).collect::<Vec<_>>(),
        )
        .await;
        let claimed = claim(&store, at(0), &claim_request(worker, 1, JOBS_PER_ROUND as usize)).await;
        let mut changes = done_changes(worker, &claimed);
        changes.reverse();
        let batch = changes.clone();
        let committer = async move |store: Handle| store.commit(at(100), &batch).await.expect("commit");
        let timekeeper = async move |store: Handle| {
            let mut expired = 0;
            for _ in 0..JOBS_PER_ROUND {
                expired += store.fire_timers(at(100), 2).await.expect("timers").expired;
            }
            expired
        };
        let (results, expired) = race(&store, committer, timekeeper).await;
        let won = results.iter().filter(|result| **result == CommitOutcome::Committed).count();
        assert_eq!(won + expired, JOBS_PER_ROUND as usize, "round {n}: each job has one winner");
        // Before the deadline, so that a timer that was left is reported and not fired.
        assert_eq!(store.fire_timers(at(99), 99).await.expect("timers").next_at, None, "no timer is left");
        for (change, result) in changes.iter().zip(results) {
            let expected = if result == CommitOutcome::Committed { State::Done } else { State::Failed };
            assert_eq!(state(&store, change.job).await, expected, "round {n}");
        }
    }
}

/// Expects that all these jobs have expired, are not in the ready set and have no timer.
async fn expect_expired(store: &Handle, n: u32, first: u32, jobs: u32) {
    while store.fire_timers(at(100), 99).await.expect("timers").expired > 0 {}
    for k in first..first + jobs {
        let kept = view(store, id(k)).await.summary;
        assert_eq!((kept.state, kept.reason), (State::Failed, Some(Reason::Expired)), "round {n}, job {k}");
    }
    assert!(drain(store, n).await.is_empty(), "round {n}: an expired job was still in the ready set");
    let next_at = store.fire_timers(at(100), 99).await.expect("timers").next_at;
    assert_eq!(next_at, None, "round {n}: an expired job still had a timer");
}

pub async fn an_expiry_racing_a_return_leaves_no_ready_row_and_no_timer(store: Handle) {
    for n in 0..ROUNDS {
        let worker = worker(&store, i64::from(n) + 1).await;
        let with_deadline = |job| NewJob { deadline_at: Some(t(100)), ..job };
        submit(
            &store,
            &jobs(n * JOBS_PER_ROUND, JOBS_PER_ROUND).into_iter().map(with_deadline).collect::<Vec<_>>(),
        )
        .await;
        let claimed = claim(&store, at(0), &claim_request(worker, 1, JOBS_PER_ROUND as usize)).await;
        let returns = async move |store: Handle| {
            let released: Vec<_> = claimed[..2].iter().map(|job| job_claim(worker, job)).collect();
            store.release(at(100), &released).await.expect("release");
            let changes = claimed[2..6].iter().enumerate();
            let retried = |(k, job)| change(worker, job, retry(secs(k as u64 % 2 * 50), &[]));
            store.commit(at(100), &changes.map(retried).collect::<Vec<_>>()).await.expect("commit");
            reap_until_done(store, 100, worker).await;
        };
        let timekeeper = async move |store: Handle| {
            for _ in 0..JOBS_PER_ROUND {
                store.fire_timers(at(100), 2).await.expect("timers");
            }
        };
        race(&store, returns, timekeeper).await;
        expect_expired(&store, n, n * JOBS_PER_ROUND, JOBS_PER_ROUND).await;
    }
}

pub async fn a_due_time_racing_an_expiry_leaves_no_ready_row_and_no_timer(store: Handle) {
    for n in 0..ROUNDS {
        let short = |job| NewJob { when: When::At(t(100)), deadline_at: Some(t(100)), ..job };
        submit(&store, &jobs(n * JOBS_PER_ROUND, JOBS_PER_ROUND).into_iter().map(short).collect::<Vec<_>>())
            .await;
        run_concurrently(&store, 4, |_, store| async move {
            for _ in 0..JOBS_PER_ROUND {
                store.fire_timers(at(100), 1).await.expect("timers");
            }
        })
        .await;
        expect_expired(&store, n, n * JOBS_PER_ROUND, JOBS_PER_ROUND).await;
    }
}

pub async fn a_retirement_racing_a_reap_returns_each_job_once(store: Handle) {
    for n in 0..ROUNDS {
        let (worker, claimed) = claimed_round(&store, n).await;
        let retirer = async move |store: Handle| store.retire_worker(at(1), worker).await.expect("retire");
        let (returned, reaped) = race(&store, retirer, |store| reap_until_done(store, 1, worker)).await;
        assert_eq!(returned + reaped.returned, JOBS_PER_ROUND as usize, "round {n}");
        assert!(returned == 0 || reaped.returned == 0, "round {n}: only one of them returned jobs");
        expect_each_returned_once(&store, n, &claimed).await;
    }
}
