//! Two sides at the same jobs at once: each job goes to one of them, and what is left is whole.

use std::future::Future;

use windlass_model::{
    CommitOutcome, Epoch, JobClaim, NewJob, Reason, Rev, State, SubmitOutcome, When, WorkerId,
};

use super::{
    kit::*,
    races::{EACH, ROUNDS, all_done, at_once, both, drain, each_back_once, reap_all, round},
};
use crate::Error;

pub async fn a_claim_against_its_reaper_leaves_nothing_stuck(store: Handle) {
    for n in 0..ROUNDS {
        let victim = worker(&store, i64::from(n) + 1).await;
        submit(&store, &jobs(n * EACH, EACH)).await;
        let claimer = async move |store: Handle| {
            let mut taken = 0;
            for number in 1..=EACH {
                match store.claim(at(1), &claim_request(victim, i64::from(number), 1)).await {
                    Ok(haul) => taken += haul.jobs.len(),
                    Err(Error::Dead) => break,
                    Err(error) => panic!("{error}"),
                }
                tokio::task::yield_now().await;
            }
            taken
        };
        let reaper = async move |store: Handle| {
            for _ in 0..n % 7 {
                tokio::task::yield_now().await;
            }
            reap_all(store, 1, victim).await
        };
        let (taken, reaped) = both(&store, claimer, reaper).await;
        assert_eq!((reaped.workers, reaped.returned), (vec![victim], taken), "round {n}");
        assert_eq!(claim_count(&store, victim).await, 0, "no claim of a dead worker is left behind");
        assert_eq!(count(&store, State::Ready).await, EACH as usize, "round {n}: nothing is stuck");
        assert_eq!(drain(&store, n).await.len(), EACH as usize);
    }
}

pub async fn a_birth_against_its_reaper_leaves_nothing_stuck(store: Handle) {
    for n in 0..ROUNDS {
        let victim = worker(&store, i64::from(n) + 1).await;
        let submitter = async move |store: Handle| {
            let mut born_claimed = 0;
            for k in 0..EACH {
                let batch = [job(n * EACH + k)];
                let told = store
                    .submit(at(1), &batch, claim_on_submit(victim, i64::from(k) + 1))
                    .await
                    .expect("submit");
                born_claimed += usize::from(matches!(told[0], SubmitOutcome::New { claimed: Some(_) }));
                tokio::task::yield_now().await;
            }
            born_claimed
        };
        let (born_claimed, reaped) = both(&store, submitter, |store| reap_all(store, 1, victim)).await;
        assert_eq!(reaped.returned, born_claimed, "round {n}: all that was born claimed was returned");
        assert_eq!(count(&store, State::Ready).await, EACH as usize, "round {n}: nothing is stuck");
        drain(&store, n).await;
    }
}

/// Lets a commit of a round's jobs run against `other`, which answers how many jobs it got; each job must have
/// gone to exactly one of them.
async fn against_commit<F>(
    store: &Handle,
    n: u32,
    end: State,
    other: impl FnOnce(Handle, WorkerId, Vec<JobClaim>) -> F,
) where
    F: Future<Output = usize> + Send + 'static,
{
    let (worker, taken) = round(store, n).await;
    let changes = all_done(worker, &taken);
    let back = taken.iter().map(|job| job_claim(worker, job)).collect();
    let committer = async move |store: Handle| {
        let mut verdicts = Vec::new();
        for chunk in changes.chunks(2) {
            verdicts.extend(store.commit(at(100), chunk).await.expect("commit"));
        }
        verdicts
    };
    let (verdicts, lost) = both(store, committer, |store| other(store, worker, back)).await;
    let won = verdicts.iter().filter(|verdict| **verdict == CommitOutcome::Committed).count();
    assert_eq!(won + lost, EACH as usize, "round {n}: each job has one winner");
    for (job, verdict) in taken.iter().zip(verdicts) {
        let kept = view(store, job.id).await;
        let found = (kept.summary.state, kept.rev, kept.epoch);
        match verdict {
            CommitOutcome::Committed => assert_eq!(found, (State::Done, Rev(1), Epoch(0)), "round {n}"),
            CommitOutcome::Fenced => assert_eq!(found, (end, Rev(0), Epoch(1)), "round {n}"),
            CommitOutcome::Refused(why) => panic!("{why}"),
            CommitOutcome::Halted => panic!("nothing meant to go on"),
        }
    }
    drain(store, n).await;
}

pub async fn commit_against_reap_has_one_winner(store: Handle) {
    for n in 0..ROUNDS {
        let reaper = async |store, worker, _| reap_all(store, 100, worker).await.returned;
        against_commit(&store, n, State::Ready, reaper).await;
    }
}

pub async fn commit_against_release_has_one_winner(store: Handle) {
    for n in 0..ROUNDS {
        let releaser = async |store: Handle, _, mut back: Vec<JobClaim>| {
            back.reverse();
            store.release(at(100), &back).await.expect("release")
        };
        against_commit(&store, n, State::Ready, releaser).await;
    }
}

pub async fn commit_against_expiry_has_one_winner(store: Handle) {
    for n in 0..ROUNDS {
        let worker = worker(&store, i64::from(n) + 1).await;
        let with_deadline = |job| NewJob { deadline_at: Some(t(100)), ..job };
        submit(&store, &jobs(n * EACH, EACH).into_iter().map(with_deadline).collect::<Vec<_>>()).await;
        let taken = claim(&store, at(0), &claim_request(worker, 1, EACH as usize)).await;
        let mut changes = all_done(worker, &taken);
        changes.reverse();
        let wanted = changes.clone();
        let committer = async move |store: Handle| store.commit(at(100), &wanted).await.expect("commit");
        let timekeeper = async move |store: Handle| {
            let mut expired = 0;
            for _ in 0..EACH {
                expired += store.fire_timers(at(100), 2).await.expect("due").expired;
            }
            expired
        };
        let (verdicts, expired) = both(&store, committer, timekeeper).await;
        let won = verdicts.iter().filter(|verdict| **verdict == CommitOutcome::Committed).count();
        assert_eq!(won + expired, EACH as usize, "round {n}: each job has one winner");
        // A moment earlier, so that a timer left behind is seen and not fired in silence.
        assert_eq!(store.fire_timers(at(99), 99).await.expect("due").next_at, None, "no timer is left");
        for (change, verdict) in changes.iter().zip(verdicts) {
            let expected = if verdict == CommitOutcome::Committed { State::Done } else { State::Failed };
            assert_eq!(state(&store, change.job).await, expected, "round {n}");
        }
    }
}

/// Jobs that expired are gone for good: in no lane, with no timer.
async fn all_expired(store: &Handle, n: u32, first: u32, jobs: u32) {
    while store.fire_timers(at(100), 99).await.expect("due").expired > 0 {}
    for k in first..first + jobs {
        let kept = view(store, id(k)).await.summary;
        assert_eq!((kept.state, kept.reason), (State::Failed, Some(Reason::Expired)), "round {n}, job {k}");
    }
    assert!(drain(store, n).await.is_empty(), "round {n}: an expired job was still in the ready set");
    let next_at = store.fire_timers(at(100), 99).await.expect("due").next_at;
    assert_eq!(next_at, None, "round {n}: an expired job still had a timer");
}

pub async fn expiry_against_every_way_back_leaves_no_ghost(store: Handle) {
    for n in 0..ROUNDS {
        let worker = worker(&store, i64::from(n) + 1).await;
        let with_deadline = |job| NewJob { deadline_at: Some(t(100)), ..job };
        submit(&store, &jobs(n * EACH, EACH).into_iter().map(with_deadline).collect::<Vec<_>>()).await;
        let taken = claim(&store, at(0), &claim_request(worker, 1, EACH as usize)).await;
        let back = async move |store: Handle| {
            let back: Vec<_> = taken[..2].iter().map(|job| job_claim(worker, job)).collect();
            store.release(at(100), &back).await.expect("release");
            let changes = taken[2..6].iter().enumerate();
            let retried = |(k, job)| change(worker, job, retry(secs(k as u64 % 2 * 50), &[]));
            store.commit(at(100), &changes.map(retried).collect::<Vec<_>>()).await.expect("commit");
            reap_all(store, 100, worker).await;
        };
        let timekeeper = async move |store: Handle| {
            for _ in 0..EACH {
                store.fire_timers(at(100), 2).await.expect("due");
            }
        };
        both(&store, back, timekeeper).await;
        all_expired(&store, n, n * EACH, EACH).await;
    }
}

pub async fn wake_against_expiry_leaves_no_ghost(store: Handle) {
    for n in 0..ROUNDS {
        let short = |job| NewJob { when: When::At(t(100)), deadline_at: Some(t(100)), ..job };
        submit(&store, &jobs(n * EACH, EACH).into_iter().map(short).collect::<Vec<_>>()).await;
        at_once(&store, 4, |_, store| async move {
            for _ in 0..EACH {
                store.fire_timers(at(100), 1).await.expect("due");
            }
        })
        .await;
        all_expired(&store, n, n * EACH, EACH).await;
    }
}

pub async fn retire_against_reap_returns_each_job_once(store: Handle) {
    for n in 0..ROUNDS {
        let (worker, taken) = round(&store, n).await;
        let retirer = async move |store: Handle| store.retire_worker(at(1), worker).await.expect("retire");
        let (handed, reaped) = both(&store, retirer, |store| reap_all(store, 1, worker)).await;
        assert_eq!(handed + reaped.returned, EACH as usize, "round {n}");
        assert!(handed == 0 || reaped.returned == 0, "round {n}: one of them had the worker");
        each_back_once(&store, n, &taken).await;
    }
}
