//! Races for flow control: several handles use one serial key, one unique name, one rate limit or one job at once.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use windlass_model::{
    CommitOutcome, Conflict, JobId, NewJob, RateCharge, RateLimit, Serial, State, States, SubmitOutcome,
    Unique,
};

use super::{
    kit::*,
    races::{ROUNDS, drain, race, run_concurrently},
};
use crate::{AdminAction, ControlOutcome, JobAction};

pub async fn jobs_of_one_serial_key_from_eight_submitters_run_one_at_a_time(store: Handle) {
    const EACH: u32 = 12;
    const JOBS: usize = 8 * EACH as usize;
    let (running, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let orders = run_concurrently(&store, 10, |task, store| {
        let (running, finished) = (running.clone(), finished.clone());
        async move {
            let mut order: Vec<JobId> = Vec::new();
            if task < 8 {
                for n in 0..EACH / 2 {
                    let first = task as u32 * 1_000 + n * 2;
                    submit(&store, &[serial_job(first, "k"), serial_job(first + 1, "k")]).await;
                }
                return order;
            }
            let me = worker(&store, task as i64).await;
            for number in 1..2_000_000 {
                let claimed = claim(&store, at(1), &claim_request(me, number, 9)).await;
                // The memory store never waits, so the submitters must be let run.
                tokio::task::yield_now().await;
                assert!(claimed.len() <= 1, "one at a time");
                for job in claimed {
                    assert_eq!(running.fetch_add(1, SeqCst), 0, "no other job of this key runs");
                    order.push(job.id);
                    running.fetch_sub(1, SeqCst);
                    let result = commit(&store, 1, change(me, &job, done("x"))).await;
                    assert_eq!(result, CommitOutcome::Committed);
                    finished.fetch_add(1, SeqCst);
                }
                if finished.load(SeqCst) == JOBS {
                    break;
                }
                tokio::task::yield_now().await;
            }
            order
        }
    })
    .await;
    let all: BTreeSet<JobId> = orders.iter().flatten().copied().collect();
    assert_eq!((all.len(), finished.load(SeqCst)), (JOBS, JOBS), "each ran once");
    assert_eq!(count(&store, State::Done).await, JOBS);
    assert_eq!(store.repair(at(2)).await.expect("repair"), 0);
}

pub async fn jobs_of_one_serial_key_from_eight_submitters_run_in_order(store: Handle) {
    run_concurrently(&store, 8, |task, store| async move {
        for n in 0..10 {
            let second = n * 8 + task as u64;
            let job = serial_job(task as u32 * 100 + n as u32, "k");
            store.submit(at(second), &[job], None).await.expect("submit");
        }
    })
    .await;
    let me = worker(&store, 99).await;
    let first = claim_one(&store, 100, me, 1).await;
    apply(&store, 100, change(me, &first, done("x"))).await;
    let mut due_times = Vec::new();
    for number in 2..=80 {
        let job = claim_one(&store, 100, me, number).await;
        due_times.push(view(&store, job.id).await.summary.due_at);
        apply(&store, 100, change(me, &job, done("x"))).await;
    }
    // The first found the slot free; all others waited in line.
    assert!(due_times.is_sorted(), "{due_times:?}");
}

pub async fn eight_workers_run_at_most_three_jobs_of_a_key_with_three_slots(store: Handle) {
    let mut batch: Vec<NewJob> = jobs(0, 120);
    let serial = Serial { slots: Some(3), ..Serial::new("k") };
    batch.iter_mut().for_each(|job| job.settings.serial = Some(Box::new(serial.clone())));
    submit(&store, &batch).await;
    let (running, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    run_concurrently(&store, 8, |task, store| {
        let (running, finished) = (running.clone(), finished.clone());
        async move {
            let me = worker(&store, task as i64 + 1).await;
            for number in 1..2_000_000 {
                let claimed = claim(&store, at(1), &claim_request(me, number, 2)).await;
                assert!(running.fetch_add(claimed.len(), SeqCst) + claimed.len() <= 3);
                tokio::task::yield_now().await;
                running.fetch_sub(claimed.len(), SeqCst);
                for (n, job) in claimed.iter().enumerate() {
                    if (n + number as usize).is_multiple_of(5) {
                        store.release(at(1), &[job_claim(me, job)]).await.expect("release");
                    } else {
                        apply(&store, 1, change(me, job, done("x"))).await;
                        finished.fetch_add(1, SeqCst);
                    }
                }
                if finished.load(SeqCst) == 120 {
                    break;
                }
            }
        }
    })
    .await;
    assert_eq!(count(&store, State::Done).await, 120);
}

fn named(n: u32, name: u32, conflict: Conflict) -> NewJob {
    let unique = Unique { key: format!("name {name}"), scope: States::LIVE, within: None, conflict };
    let mut new = job(n);
    new.settings.unique = Some(Box::new(unique));
    new
}

pub async fn eight_submitters_of_one_unique_name_create_one_job(store: Handle) {
    for round in 0..ROUNDS {
        let outcomes = run_concurrently(&store, 8, |task, store| async move {
            let n = round * 8 + task as u32;
            let conflict = if task % 2 == 0 { Conflict::Keep } else { Conflict::Reject };
            (id(n), store.submit(at(0), &[named(n, round, conflict)], None).await.expect("submit").remove(0))
        })
        .await;
        let created: Vec<JobId> = outcomes
            .iter()
            .filter(|(_, outcome)| matches!(outcome, SubmitOutcome::New { .. }))
            .map(|(id, _)| *id)
            .collect();
        let [owner] = created[..] else { panic!("round {round}: {outcomes:?}") };
        for (_, outcome) in outcomes {
            match outcome {
                SubmitOutcome::New { .. } => {}
                SubmitOutcome::Existing { id, .. } | SubmitOutcome::Rejected { id } => assert_eq!(id, owner),
                outcome => panic!("round {round}: {outcome:?}"),
            }
        }
        assert_eq!(drain(&store, round).await.len(), 1, "round {round}");
    }
}

pub async fn eight_replacers_of_one_unique_name_leave_one_job(store: Handle) {
    for round in 0..ROUNDS {
        let outcomes = run_concurrently(&store, 8, |task, store| async move {
            let new = named(round * 8 + task as u32, round, Conflict::Replace);
            store.submit(at(0), &[new], None).await.expect("submit").remove(0)
        })
        .await;
        let new = outcomes.iter().filter(|outcome| matches!(outcome, SubmitOutcome::New { .. })).count();
        let replaced: BTreeSet<JobId> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                SubmitOutcome::Replaced { id } => Some(*id),
                _ => None,
            })
            .collect();
        assert_eq!((new, replaced.len()), (1, 7), "round {round}: each replaces another: {outcomes:?}");
        assert_eq!(count(&store, State::Cancelled).await, 7 * (round as usize + 1));
        assert_eq!(drain(&store, round).await.len(), 1, "round {round}");
    }
}

pub async fn eight_claimers_share_one_bucket(store: Handle) {
    administer(&store, 0, AdminAction::Limit(RateLimit::per("api", 50, secs(10)))).await;
    let mut batch = jobs(0, 400);
    let charge = RateCharge { limit: "api".into(), weight: 1 };
    batch.iter_mut().for_each(|job| job.settings.rate = Some(Box::new(charge.clone())));
    submit(&store, &batch).await;
    for second in 0..4 {
        let claimed = run_concurrently(&store, 8, |task, store| async move {
            let me = worker(&store, second * 10 + task as i64 + 1).await;
            let mut claimed = 0;
            for number in 1..=12 {
                claimed += claim(&store, at(second as u64 * 10), &claim_request(me, number, 7)).await.len();
            }
            claimed
        })
        .await;
        assert_eq!(claimed.iter().sum::<usize>(), 50, "at {second}: {claimed:?}");
    }
}

pub async fn a_commit_racing_a_cancel_has_one_winner(store: Handle) {
    for n in 0..ROUNDS {
        let (worker, claimed) = running_job(&store, n + 1).await;
        let change = change(worker, &claimed, done("x"));
        let (result, outcome) = race(
            &store,
            |store| async move { commit(&store, 2, change).await },
            |store| async move {
                let outcome = act_on_job(&store, 2, n + 1, cancel(0)).await;
                store.fire_timers(at(2), 9).await.expect("timers");
                outcome
            },
        )
        .await;
        let ended = state(&store, id(n + 1)).await;
        match (result, ended) {
            (CommitOutcome::Committed, State::Done) => {}
            (CommitOutcome::Fenced, State::Cancelled) => assert_eq!(outcome, ControlOutcome::CancelRequested),
            other => panic!("round {n}: {other:?}, {outcome:?}"),
        }
        assert!(store.cancel_requests(worker).await.expect("cancel requests").is_empty(), "round {n}");
        assert_eq!(fire_timers(&store, 3, 9).await.next_at, None, "round {n}");
    }
}

pub async fn a_pause_racing_a_claim_leaves_the_job_running_or_held(store: Handle) {
    for n in 1..=ROUNDS {
        let me = worker(&store, i64::from(n)).await;
        submit(&store, &[job(n)]).await;
        let (claimed, outcome) = race(
            &store,
            |store| async move { claim(&store, at(1), &claim_request(me, 1, 9)).await },
            |store| async move { act_on_job(&store, 1, n, JobAction::Pause).await },
        )
        .await;
        assert_eq!(outcome, ControlOutcome::Done, "round {n}");
        let expected = if claimed.is_empty() { State::Ready } else { State::Running };
        assert_eq!(state(&store, id(n)).await, expected, "round {n}");
        if let Some(job) = claimed.first() {
            apply(&store, 2, change(me, job, retry(secs(0), &[]))).await;
        }
        assert!(claim(&store, at(2), &claim_request(me, 2, 9)).await.is_empty(), "round {n}: it is held");
        assert_eq!(act_on_job(&store, 3, n, JobAction::Resume).await, ControlOutcome::Done);
        assert_eq!(claim(&store, at(3), &claim_request(me, 3, 9)).await.len(), 1, "round {n}");
    }
}
