//! Signals, timeouts and ends of children race with the parks they end: every job is woken, once.

use windlass_model::{
    BranchCounts, BranchNo, BranchUpdate, BranchWatch, Change, ClaimedJob, CommitOutcome, JobId, NewJob,
    Outcome, Reason, Rev, State, Wait, WaitCondition, WorkerId, branch::BRANCH_SIGNAL,
};

use super::{
    branch_kit::{BRANCH, branch, branch_child, branch_writes, open_branch},
    kit::*,
    races::{JOBS_PER_ROUND, ROUNDS, claimed_round, drain, race, run_concurrently},
};
use crate::{JobAction, SignalOutcome};

/// No job stays parked although its wait is over.
async fn assert_none_parked(store: &Handle, n: u32) {
    assert_eq!(count(store, State::Waiting).await, 0, "round {n}: no job is parked");
    assert_eq!(store.repair(at(200)).await.expect("repair"), 0, "round {n}: nothing was left to repair");
}

fn parks(me: WorkerId, jobs: &[ClaimedJob], wait: &Outcome) -> Vec<Change> {
    jobs.iter().map(|job| change(me, job, wait.clone())).collect()
}

pub async fn a_job_that_parks_while_signals_arrive_is_woken(store: Handle) {
    for n in 0..ROUNDS {
        let (me, taken) = claimed_round(&store, n).await;
        let changes = parks(me, &taken, &wait_for_signal("go", Some(secs(1_000))));
        let jobs: Vec<JobId> = taken.iter().map(|job| job.id).collect();
        let delivered = run_concurrently(&store, 4, |task, store| {
            let (changes, mut jobs) = (changes.clone(), jobs.clone());
            async move {
                if task == 0 {
                    for chunk in changes.chunks(1 + n as usize % 3) {
                        let outcomes = store.commit(at(100), chunk).await.expect("commit");
                        assert!(outcomes.iter().all(|outcome| *outcome == CommitOutcome::Committed));
                    }
                    return 0;
                }
                // Two send the same signal, the third another. One of them locks the jobs in reverse order.
                if task == 2 {
                    jobs.reverse();
                }
                let dedup = if task == 3 { "other" } else { "same" };
                let mut delivered = 0;
                for chunk in jobs.chunks(3) {
                    let signals: Vec<_> = chunk.iter().map(|job| signal(*job, "go", dedup, dedup)).collect();
                    let outcomes = send(&store, 100, &signals).await;
                    delivered += outcomes
                        .iter()
                        .filter(|outcome| matches!(outcome, SignalOutcome::Delivered { .. }))
                        .count();
                }
                delivered
            }
        })
        .await;
        assert_eq!(
            delivered.iter().sum::<usize>(),
            2 * JOBS_PER_ROUND as usize,
            "round {n}: each signal was delivered once"
        );
        assert_none_parked(&store, n).await;
        let woken = drain(&store, n).await;
        assert_eq!(woken.len(), JOBS_PER_ROUND as usize, "round {n}: each job is ready once");
        for job in &woken {
            assert_eq!(job.inbox.len(), 1, "round {n}: the claim holds one signal");
            let kept = store.inspect().inbox(job.id, 9).await.expect("inbox");
            let mut kept = texts(&kept);
            kept.sort();
            assert_eq!(kept, ["other", "same"], "round {n}: both signals are kept");
        }
        assert_eq!(fire_timers(&store, 5_000, 99).await.woken, 0, "round {n}: no timer is left");
    }
}

pub async fn a_wait_for_two_signals_is_ended_by_one_of_two_senders(store: Handle) {
    for n in 0..ROUNDS {
        let (me, taken) = claimed_round(&store, n).await;
        let changes = parks(me, &taken, &wait_for_signals(&["a", "b"], 2, None));
        store.commit(at(1), &changes).await.expect("commit");
        let jobs: Vec<JobId> = taken.iter().map(|job| job.id).collect();
        let woke = run_concurrently(&store, 2, |task, store| {
            let jobs = jobs.clone();
            async move {
                let name = ["a", "b"][task];
                let mut woke = 0;
                for job in jobs {
                    let outcomes = send(&store, 2, &[signal(job, name, "1", name)]).await;
                    woke += usize::from(outcomes == [SignalOutcome::Delivered { woke: true }]);
                }
                woke
            }
        })
        .await;
        assert_eq!(
            woke.iter().sum::<usize>(),
            JOBS_PER_ROUND as usize,
            "round {n}: one of the two senders woke each job"
        );
        assert_none_parked(&store, n).await;
        assert_eq!(drain(&store, n).await.len(), JOBS_PER_ROUND as usize);
    }
}

pub async fn a_signal_and_the_timeout_of_its_wait_wake_a_job_once(store: Handle) {
    for n in 0..ROUNDS {
        let (me, taken) = claimed_round(&store, n).await;
        store.commit(at(1), &parks(me, &taken, &wait_for_signal("go", Some(secs(9))))).await.expect("commit");
        let jobs: Vec<JobId> = taken.iter().map(|job| job.id).collect();
        let sender = async move |store: Handle| {
            let mut woke = 0;
            for job in jobs {
                let outcomes = send(&store, 10, &[signal(job, "go", "1", "x")]).await;
                woke += usize::from(outcomes == [SignalOutcome::Delivered { woke: true }]);
            }
            woke
        };
        let timers = async move |store: Handle| {
            let mut woken = 0;
            for _ in 0..JOBS_PER_ROUND {
                woken += store.fire_timers(at(10), 2).await.expect("timers").woken;
            }
            woken
        };
        let (woke, woken) = race(&store, sender, timers).await;
        let rest = fire_timers(&store, 10, 99).await.woken;
        assert_eq!(woke + woken + rest, JOBS_PER_ROUND as usize, "round {n}: each job was woken once");
        assert_none_parked(&store, n).await;
        let taken = drain(&store, n).await;
        assert_eq!(taken.len(), JOBS_PER_ROUND as usize, "round {n}: each job is ready once");
        assert!(taken.iter().all(|job| texts(&job.inbox) == ["x"]));
    }
}

/// A running parent and its running children.
async fn running_parent(store: &Handle, n: u32) -> (WorkerId, ClaimedJob, Vec<ClaimedJob>) {
    let me = worker(store, 1_000 + i64::from(n)).await;
    let first = n * 100;
    submit(store, &[job(first)]).await;
    let parent = claim_one(store, 0, me, 1).await;
    let children: Vec<NewJob> = jobs(first + 1, JOBS_PER_ROUND);
    apply(store, 1, with_step(change(me, &parent, Outcome::Next), spawn_children(&children))).await;
    let children = claim(store, at(1), &claim_request(me, 2, 99)).await;
    assert_eq!(children.len(), JOBS_PER_ROUND as usize);
    (me, after_step(&parent), children)
}

/// Commits the park of a parent and the ends of its children at the same time. The parent is then ready, once, and is returned.
async fn park_while_children_end(store: &Handle, n: u32, park: &Change, ends: &[Change]) -> Vec<ClaimedJob> {
    run_concurrently(store, 4, |task, store| {
        let (park, ends) = (park.clone(), ends.to_vec());
        async move {
            let mine: Vec<Change> = match task {
                0 => vec![park],
                task => ends.into_iter().skip(task - 1).step_by(3).collect(),
            };
            for chunk in mine.chunks(1 + n as usize % 2) {
                let outcomes = store.commit(at(2), chunk).await.expect("commit");
                assert!(outcomes.iter().all(|outcome| *outcome == CommitOutcome::Committed));
            }
        }
    })
    .await;
    assert_none_parked(store, n).await;
    let woken = drain(store, n).await;
    assert_eq!(ids(&woken), [park.job], "round {n}: the parent is ready once");
    woken
}

pub async fn a_parent_that_parks_while_its_children_end_is_woken(store: Handle) {
    for n in 0..ROUNDS {
        let (me, parent, children) = running_parent(&store, n).await;
        let wait = Wait { condition: WaitCondition::Children { rev: Rev(1) }, timeout: None };
        let park = change(me, &parent, Outcome::Wait(wait));
        let ends: Vec<Change> = children.iter().map(|child| change(me, child, done("x"))).collect();
        let woken = park_while_children_end(&store, n, &park, &ends).await;
        assert_eq!(woken[0].pending_children, 0);
    }
}

pub async fn a_child_that_ends_while_it_is_cancelled_counts_once(store: Handle) {
    for n in 0..ROUNDS {
        let (me, parent, children) = running_parent(&store, n).await;
        let wait = Wait { condition: WaitCondition::Children { rev: Rev(1) }, timeout: None };
        apply(&store, 2, change(me, &parent, Outcome::Wait(wait))).await;
        let children_ids: Vec<JobId> = children.iter().map(|child| child.id).collect();
        let outcomes =
            store.control().act_on_jobs(at(2), &children_ids, cancel(0), &actor()).await.expect("act");
        assert!(outcomes.iter().all(|outcome| *outcome == crate::ControlOutcome::CancelRequested));
        let ends: Vec<Change> = children.iter().map(|child| change(me, child, done("x"))).collect();
        let committer = async move |store: Handle| {
            for end in ends {
                store.commit(at(3), &[end]).await.expect("commit");
            }
        };
        let timers = async move |store: Handle| {
            for _ in 0..JOBS_PER_ROUND {
                store.fire_timers(at(3), 2).await.expect("timers");
            }
        };
        race(&store, committer, timers).await;
        fire_timers(&store, 3, 99).await;
        assert_none_parked(&store, n).await;
        assert_eq!(view(&store, parent.id).await.pending_children, 0, "round {n}");
        assert_eq!(ids(&drain(&store, n).await), [parent.id], "round {n}: the parent is ready once");
    }
}

/// A running parent and its running children, which are in a branch.
async fn running_branch_parent(store: &Handle, n: u32) -> (WorkerId, ClaimedJob, Vec<ClaimedJob>) {
    let me = worker(store, 1_000 + i64::from(n)).await;
    let first = n * 100;
    submit(store, &[job(first)]).await;
    let parent = claim_one(store, 0, me, 1).await;
    let children: Vec<NewJob> =
        (first + 1..=first + JOBS_PER_ROUND).map(|n| branch_child(n, BRANCH)).collect();
    let step = branch_writes(vec![open_branch(BRANCH, "all")], children);
    apply(store, 1, with_step(change(me, &parent, Outcome::Next), step)).await;
    let children = claim(store, at(1), &claim_request(me, 2, 99)).await;
    assert_eq!(children.len(), JOBS_PER_ROUND as usize);
    (me, after_step(&parent), children)
}

pub async fn a_parent_that_parks_while_its_branch_ends_is_woken_once(store: Handle) {
    for n in 0..ROUNDS {
        let (me, parent, children) = running_branch_parent(&store, n).await;
        let watch = BranchWatch { ended: Some(u64::from(JOBS_PER_ROUND)), ..BranchWatch::default() };
        let watch =
            branch_writes(vec![BranchUpdate { watch: Some(watch), ..BranchUpdate::new(BRANCH) }], vec![]);
        let park = with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), watch);
        let outcome = |n: usize| if n.is_multiple_of(3) { failed(Reason::Stopped) } else { done("x") };
        let ends = children.iter().enumerate().map(|(n, child)| change(me, child, outcome(n)));
        let ends: Vec<Change> = ends.collect();
        let woken = park_while_children_end(&store, n, &park, &ends).await;
        assert_eq!(texts(&woken[0].inbox), ["7"], "round {n}: one signal");
        let each = i64::from(JOBS_PER_ROUND);
        let counts = branch(&store, n * 100, BRANCH).await.counts;
        let failed = (each + 2) / 3;
        assert_eq!(
            counts,
            BranchCounts { started: each, done: each - failed, failed, cancelled: 0 },
            "round {n}"
        );
    }
}

pub async fn concurrent_ends_retries_and_cancels_of_a_child_are_counted_once(store: Handle) {
    for n in 0..ROUNDS {
        let (me, parent, children) = running_branch_parent(&store, n).await;
        let ends: Vec<Change> = children.iter().map(|child| change(me, child, cancelled())).collect();
        let children_ids: Vec<JobId> = children.iter().map(|child| child.id).collect();
        // Two tasks commit the same ends, one retries what has ended, and one cancels what was retried.
        run_concurrently(&store, 4, |task, store| {
            let (ends, children_ids) = (ends.clone(), children_ids.clone());
            async move {
                for (end, id) in ends.into_iter().zip(children_ids) {
                    match task {
                        0 | 1 => _ = store.commit(at(2), &[end]).await.expect("commit"),
                        2 => {
                            let outcomes =
                                store.control().act_on_jobs(at(2), &[id], JobAction::Retry, &actor()).await;
                            outcomes.expect("act");
                        }
                        _ => {
                            let outcomes =
                                store.control().act_on_jobs(at(2), &[id], cancel(0), &actor()).await;
                            outcomes.expect("act");
                        }
                    }
                }
            }
        })
        .await;
        let mut counted = BranchCounts::default();
        for child in &children {
            let state = state(&store, child.id).await;
            counted.add(BranchCounts::of(state, 1));
        }
        let counts = branch(&store, n * 100, BRANCH).await.counts;
        assert_eq!(counts.ends(), counted.ends(), "round {n}");
        let most = children.len() as i64;
        assert!((0..=most).contains(&counts.started), "round {n}: {counts:?}");
        apply(&store, 3, change(me, &parent, done("x"))).await;
        drain(&store, n).await;
        fire_timers(&store, 3, 99).await;
    }
}

pub async fn concurrent_polls_poll_each_branch_once(store: Handle) {
    let (me, mut job) = running_job(&store, 1).await;
    for number in 0..20 {
        let watch = Some(BranchWatch { ended: Some(1), ..BranchWatch::default() });
        let open = BranchUpdate { watch, ..open_branch(BranchNo(number), "some") };
        apply(&store, 1, with_step(change(me, &job, Outcome::Next), branch_writes(vec![open], vec![]))).await;
        job = after_step(&job);
    }
    for now in [10, 100, 1_000] {
        let polled = run_concurrently(&store, 4, |_, store| async move {
            let mut polled = 0;
            loop {
                let report = store.poll_branches(at(now), 3).await.expect("poll");
                polled += report.polled;
                if report.next_at.is_none_or(|at| at > t(now)) {
                    return polled;
                }
            }
        })
        .await;
        assert_eq!(polled.iter().sum::<usize>(), 20, "{polled:?}");
    }
    let all = store.inspect().branches(id(1)).await.expect("branches");
    assert!(all.iter().all(|branch| branch.poll.polls == 3));
}
