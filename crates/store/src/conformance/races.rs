//! Races: several handles use the same rows at once. Whichever wins, nothing happens twice and no job is stuck.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::{sync::Barrier, task::JoinSet};
use windlass_model::{
    ClaimedJob, CommitOutcome, Epoch, JobId, NewJob, Rev, State, SubmitOutcome, When, WorkerId,
};

use super::kit::*;
use crate::{ClaimRequest, ReapReport, ReapRequest};

/// How often a race is repeated.
pub(super) const ROUNDS: u32 = 25;
/// Jobs per round.
pub(super) const JOBS_PER_ROUND: u32 = 8;

/// Runs `tasks` copies of `work` at once, each on its own handle. Returns their results in order.
pub(super) async fn run_concurrently<T, F>(
    store: &Handle,
    tasks: usize,
    work: impl Fn(usize, Handle) -> F,
) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(Barrier::new(tasks));
    let mut set = JoinSet::new();
    for n in 0..tasks {
        let handle = store.sibling().await.expect("sibling");
        let (start, work) = (start.clone(), work(n, handle));
        set.spawn(async move {
            start.wait().await;
            (n, work.await)
        });
    }
    let mut results: Vec<_> = set.join_all().await;
    results.sort_by_key(|(n, _)| *n);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs two futures at once, each on its own handle.
pub(super) async fn race<A, B>(
    store: &Handle,
    one: impl FnOnce(Handle) -> A,
    other: impl FnOnce(Handle) -> B,
) -> (A::Output, B::Output)
where
    A: Future<Output: Send> + Send + 'static,
    B: Future<Output: Send> + Send + 'static,
{
    let start = Arc::new(Barrier::new(2));
    let (first, second) = (store.sibling().await.expect("sibling"), store.sibling().await.expect("sibling"));
    let (one, other, ready) = (one(first), other(second), start.clone());
    let one = tokio::spawn(async move {
        ready.wait().await;
        one.await
    });
    let other = tokio::spawn(async move {
        start.wait().await;
        other.await
    });
    (one.await.expect("the first task"), other.await.expect("the second task"))
}

/// Declares a worker dead and reaps until nothing is left. Returns the sums.
pub(super) async fn reap_until_done(store: Handle, now: u64, dead: WorkerId) -> ReapReport {
    let mut request = ReapRequest { dead: vec![dead], lapsed: false, limit: 2, max_crashes: MAX_CRASHES };
    let mut sum = ReapReport::default();
    loop {
        let reaped = store.reap(at(now), &request).await.expect("reap");
        sum.workers.extend(reaped.workers);
        sum.returned += reaped.returned;
        sum.poisoned += reaped.poisoned;
        if !reaped.more {
            return sum;
        }
        request.dead.clear();
    }
}

/// Submits a round's jobs and claims them for a worker of that round.
pub(super) async fn claimed_round(store: &Handle, n: u32) -> (WorkerId, Vec<ClaimedJob>) {
    let worker = worker(store, 1_000 + i64::from(n)).await;
    submit(store, &jobs(n * JOBS_PER_ROUND, JOBS_PER_ROUND)).await;
    let claimed = claim(store, at(0), &claim_request(worker, 1, JOBS_PER_ROUND as usize)).await;
    assert_eq!(claimed.len(), JOBS_PER_ROUND as usize);
    (worker, claimed)
}

/// Claims all ready jobs and suspects, so that the next round starts with none.
pub(super) async fn drain(store: &Handle, n: u32) -> Vec<ClaimedJob> {
    let worker = worker(store, 2_000_000 + i64::from(n)).await;
    let mut claimed = claim(store, at(1), &claim_request(worker, 1, 100_000)).await;
    for number in 2.. {
        match claim(store, at(1), &solo_claim_request(worker, number)).await {
            suspects if suspects.is_empty() => return claimed,
            suspects => claimed.extend(suspects),
        }
    }
    claimed
}

pub(super) fn done_changes(worker: WorkerId, jobs: &[ClaimedJob]) -> Vec<windlass_model::Change> {
    jobs.iter().map(|job| change(worker, job, done("x"))).collect()
}

pub async fn eight_claimers_claim_each_job_once(store: Handle) {
    const JOBS: u32 = 2_000;
    submit(&store, &jobs(0, JOBS)).await;
    let claimed = Arc::new(AtomicUsize::new(0));
    let batches = run_concurrently(&store, 8, |n, store| {
        let claimed = claimed.clone();
        async move {
            let worker = worker(&store, n as i64 + 1).await;
            let mut mine: Vec<JobId> = Vec::new();
            // Jobs that others are claiming are skipped, so an empty claim does not mean that none is left.
            for number in 1..2_000 {
                let batch = claim(&store, at(1), &claim_request(worker, number, 37)).await;
                assert!(batch.len() <= 37 && batch.iter().all(|job| job.epoch == Epoch(0)));
                mine.extend(ids(&batch));
                if claimed.fetch_add(batch.len(), SeqCst) + batch.len() >= JOBS as usize {
                    break;
                }
            }
            mine
        }
    })
    .await;
    let all: Vec<JobId> = batches.into_iter().flatten().collect();
    assert_eq!(all.len(), JOBS as usize, "nothing was claimed twice or left");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), JOBS as usize);
    assert_eq!(count(&store, State::Running).await, JOBS as usize);
}

pub async fn eight_submitters_create_one_job_per_key(store: Handle) {
    const KEYS: u32 = 120;
    let outcomes = run_concurrently(&store, 8, |n, store| async move {
        let mut outcomes = Vec::new();
        // Each task starts at another key, and every second one goes backwards: locks are taken in different orders.
        let mut keys: Vec<u32> = (0..KEYS).map(|key| (key + n as u32 * 17) % KEYS).collect();
        if n % 2 == 1 {
            keys.reverse();
        }
        for chunk in keys.chunks(20) {
            let batch: Vec<NewJob> = chunk
                .iter()
                .map(|key| NewJob {
                    key: Some(format!("key {key}")),
                    ..NewJob::new(id(n as u32 * KEYS + key), KIND, QUEUE, payload(&key.to_string()))
                })
                .collect();
            let submitted = store.submit(at(0), &batch, None).await.expect("submit");
            outcomes.extend(chunk.iter().copied().zip(batch.iter().map(|job| job.id)).zip(submitted));
        }
        outcomes
    })
    .await;
    let mut owners: BTreeMap<u32, JobId> = BTreeMap::new();
    for ((key, id), outcome) in outcomes.iter().flatten() {
        if matches!(outcome, SubmitOutcome::New { .. }) {
            assert_eq!(owners.insert(*key, *id), None, "key {key} was given twice");
        }
    }
    assert_eq!(owners.len(), KEYS as usize);
    for ((key, _), outcome) in outcomes.iter().flatten() {
        match outcome {
            SubmitOutcome::New { .. } => {}
            SubmitOutcome::Existing { id, same_input } => assert_eq!((*id, *same_input), (owners[key], true)),
            other => panic!("key {key}: {other:?}"),
        }
    }
    assert_eq!(drain(&store, 0).await.len(), KEYS as usize);
}

pub async fn eight_submitters_of_the_same_ids_create_each_job_once(store: Handle) {
    for n in 0..6 {
        let outcomes = run_concurrently(&store, 8, |task, store| async move {
            let mut batch = jobs(n * 50, 50);
            if task % 2 == 1 {
                batch.reverse();
            }
            let submitted = store.submit(at(0), &batch, None).await.expect("submit");
            batch.into_iter().map(|job| job.id).zip(submitted).collect::<Vec<_>>()
        })
        .await;
        let mut new = BTreeSet::new();
        for (id, outcome) in outcomes.into_iter().flatten() {
            match outcome {
                SubmitOutcome::New { claimed: None } => assert!(new.insert(id), "{id} was new twice"),
                outcome => assert_eq!(outcome, SubmitOutcome::Repeated),
            }
        }
        assert_eq!((new.len(), drain(&store, n).await.len()), (50, 50));
    }
}

/// Expects that every job was returned exactly once.
pub(super) async fn expect_each_returned_once(store: &Handle, n: u32, claimed: &[ClaimedJob]) {
    for job in claimed {
        let kept = view(store, job.id).await;
        assert_eq!((kept.summary.state, kept.epoch), (State::Ready, Epoch(1)), "round {n}");
        assert_eq!(history(store, job.id).await.len(), usize::from(kept.worker_deaths), "round {n}");
    }
    assert_eq!(drain(store, n).await.len(), claimed.len(), "round {n}: each is ready once");
}

pub async fn two_reapers_return_each_job_once(store: Handle) {
    for n in 0..ROUNDS {
        let (worker, mut claimed) = claimed_round(&store, n).await;
        submit(&store, &jobs(1_000_000 + n * 10, 6)).await;
        for number in 2..5 {
            claimed.extend(claim(&store, at(0), &claim_request(worker, number, 2)).await);
        }
        let sums = run_concurrently(&store, 2, |_, store| reap_until_done(store, 1, worker)).await;
        let declared = sums.iter().map(|reaped| reaped.workers.len()).sum::<usize>();
        assert_eq!(declared, 1, "round {n}: it was declared dead once");
        // A reaper skips claims that the other has locked; what both skipped is left to the next call.
        let rest = reap_until_done(store.clone(), 1, worker).await;
        let returned = sums.iter().map(|reaped| reaped.returned).sum::<usize>() + rest.returned;
        assert_eq!(returned, claimed.len(), "round {n}");
        assert!(claimed.len() == JOBS_PER_ROUND as usize + 6);
        expect_each_returned_once(&store, n, &claimed).await;
    }
}

pub async fn two_concurrent_retirements_return_each_job_once(store: Handle) {
    for n in 0..ROUNDS {
        let (worker, claimed) = claimed_round(&store, n).await;
        let returned = run_concurrently(&store, 2, |_, store| async move {
            store.retire_worker(at(1), worker).await.expect("retire")
        });
        assert_eq!(returned.await.iter().sum::<usize>(), JOBS_PER_ROUND as usize, "round {n}");
        expect_each_returned_once(&store, n, &claimed).await;
    }
}

pub async fn eight_timekeepers_fire_each_timer_once(store: Handle) {
    for n in 0..4 {
        let waiting = |job| NewJob { when: When::At(t(50)), ..job };
        submit(&store, &jobs(n * 200, 200).into_iter().map(waiting).collect::<Vec<_>>()).await;
        let fired = run_concurrently(&store, 8, |_, store| async move {
            let mut woken = 0;
            for _ in 0..400 {
                let due = store.fire_timers(at(50), 15).await.expect("timers");
                woken += due.woken;
                if due.next_at.is_none() {
                    break;
                }
            }
            woken
        })
        .await;
        assert_eq!(fired.iter().sum::<usize>(), 200, "round {n}: {fired:?}");
        assert_eq!(drain(&store, n).await.len(), 200, "each is ready once");
    }
}

pub async fn two_concurrent_identical_commits_write_once(store: Handle) {
    for n in 0..ROUNDS {
        let (worker, claimed) = claimed_round(&store, n).await;
        let batch: Vec<_> = claimed
            .iter()
            .enumerate()
            .map(|(k, job)| change(worker, job, if k % 2 == 0 { done("x") } else { retry(secs(0), &[1]) }))
            .collect();
        let results = run_concurrently(&store, 2, |task, store| {
            let mut batch = batch.clone();
            if task == 1 {
                batch.reverse();
            }
            async move { store.commit(at(2), &batch).await.expect("commit") }
        })
        .await;
        assert!(
            results.iter().flatten().all(|result| *result == CommitOutcome::Committed),
            "round {n}: {results:?}"
        );
        for job in &claimed {
            assert_eq!(view(&store, job.id).await.rev, Rev(1), "round {n}");
        }
        assert_eq!(
            drain(&store, n).await.len(),
            JOBS_PER_ROUND as usize / 2,
            "round {n}: each retry is ready once"
        );
    }
}

pub async fn two_concurrent_identical_claims_claim_once(store: Handle) {
    for n in 0..ROUNDS {
        let worker = worker(&store, i64::from(n) + 1).await;
        submit(&store, &jobs(n * JOBS_PER_ROUND, JOBS_PER_ROUND)).await;
        let batches = run_concurrently(&store, 2, |_, store| async move {
            // The result of the first call was lost, and the store may still be executing it.
            loop {
                match store.claim(at(1), &claim_request(worker, 1, 3)).await {
                    Ok(batch) => return ids(&batch.jobs),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        })
        .await;
        assert_eq!(batches[0], batches[1], "round {n}");
        assert_eq!((batches[0].len(), claim_count(&store, worker).await), (3, 1), "round {n}");
        assert_eq!(drain(&store, n).await.len(), JOBS_PER_ROUND as usize - 3);
    }
}

pub async fn concurrent_calls_of_all_kinds_lose_no_job(store: Handle) {
    const JOBS: usize = 400;
    let finished = Arc::new(AtomicUsize::new(0));
    let next_worker = Arc::new(AtomicUsize::new(1));
    let mut batch = jobs(0, JOBS as u32);
    batch.iter_mut().step_by(3).for_each(|job| job.when = When::At(t(2)));
    submit(&store, &batch).await;
    run_concurrently(&store, 6, |task, store| {
        let (finished, next_worker) = (finished.clone(), next_worker.clone());
        async move {
            for turn in 0..400u64 {
                if finished.load(SeqCst) >= JOBS {
                    return;
                }
                store.fire_timers(at(5 + turn), 20).await.expect("timers");
                let me = WorkerId(next_worker.fetch_add(1, SeqCst) as i64);
                let new = crate::NewWorker { id: me, ..new_worker(0) };
                assert!(store.register_worker(at(0), &new).await.expect("register"));
                let request = ClaimRequest { solo: turn % 3 == 1, ..claim_request(me, 1, 9) };
                let claimed = claim(&store, at(0), &request).await;
                let outcome = |n: usize| match (n + turn as usize) % 5 {
                    0 => retry(secs(0), &[]),
                    1 => retry(secs(1), &[]),
                    _ => done("x"),
                };
                let changes: Vec<_> =
                    claimed.iter().enumerate().map(|(n, job)| change(me, job, outcome(n))).collect();
                let keep = changes.len() - changes.len() / 3;
                let results = store.commit(at(5 + turn), &changes[..keep]).await.expect("commit");
                assert!(
                    results.iter().all(|result| *result == CommitOutcome::Committed),
                    "only this worker holds them"
                );
                let ended =
                    changes[..keep].iter().filter(|c| matches!(c.outcome, windlass_model::Outcome::Done(_)));
                finished.fetch_add(ended.count(), SeqCst);
                // It loses the rest, because it retires or is reaped.
                match (task + turn as usize) % 3 {
                    0 => drop(store.retire_worker(at(5 + turn), me).await.expect("retire")),
                    _ => drop(reap_until_done(store.clone(), 5 + turn, me).await),
                }
            }
        }
    })
    .await;
    // What two reapers left to each other, and what is still scheduled.
    reap_until_done(store.clone(), 900, WorkerId(-1)).await;
    store.fire_timers(at(2_000), 100_000).await.expect("timers");
    let (done, ready) = (count(&store, State::Done).await, count(&store, State::Ready).await);
    assert_eq!(done, finished.load(SeqCst), "every commit is kept");
    let failed = count(&store, State::Failed).await;
    assert_eq!(done + ready + failed, JOBS, "nothing is lost or stuck");
    let counts = store.inspect().state_counts().await.expect("state counts");
    assert_eq!(counts.iter().map(|count| count.jobs).sum::<u64>(), JOBS as u64);
    assert_eq!(drain(&store, 0).await.len(), ready, "each ready job is in the ready set once");
}
