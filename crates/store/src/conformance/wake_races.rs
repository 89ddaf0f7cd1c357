//! Signals, timeouts and children against jobs that park at the same moment: none of them sleeps through it.

use windlass_model::{
    BranchCounts, BranchNo, BranchUpdate, BranchWatch, Change, ClaimedJob, CommitOutcome, JobId, NewJob,
    Outcome, Reason, Rev, State, Wait, WaitCondition, WorkerId, branch::BRANCH_SIGNAL,
};

use super::{
    branch_kit::{BRANCH, branch, branch_child, branch_writes, open_branch},
    kit::*,
    races::{EACH, ROUNDS, at_once, both, drain, round},
};
use crate::{JobAction, SignalOutcome};

/// Nothing is parked that has what it waits for.
async fn nobody_sleeps(store: &Handle, n: u32) {
    assert_eq!(count(store, State::Waiting).await, 0, "round {n}: nobody is parked");
    assert_eq!(store.repair(at(200)).await.expect("sweep"), 0, "round {n}: nothing was left to the sweep");
}

fn parks(me: WorkerId, jobs: &[ClaimedJob], wait: &Outcome) -> Vec<Change> {
    jobs.iter().map(|job| change(me, job, wait.clone())).collect()
}

pub async fn signals_against_a_park_wake_it(store: Handle) {
    for n in 0..ROUNDS {
        let (me, taken) = round(&store, n).await;
        let changes = parks(me, &taken, &wait_for_signal("go", Some(secs(1_000))));
        let jobs: Vec<JobId> = taken.iter().map(|job| job.id).collect();
        let told = at_once(&store, 4, |task, store| {
            let (changes, mut jobs) = (changes.clone(), jobs.clone());
            async move {
                if task == 0 {
                    for chunk in changes.chunks(1 + n as usize % 3) {
                        let verdicts = store.commit(at(100), chunk).await.expect("commit");
                        assert!(verdicts.iter().all(|verdict| *verdict == CommitOutcome::Committed));
                    }
                    return 0;
                }
                // Two send the same signal, the third another; locks meet in both orders.
                if task == 2 {
                    jobs.reverse();
                }
                let dedup = if task == 3 { "other" } else { "same" };
                let mut delivered = 0;
                for chunk in jobs.chunks(3) {
                    let signals: Vec<_> = chunk.iter().map(|job| signal(*job, "go", dedup, dedup)).collect();
                    let told = send(&store, 100, &signals).await;
                    delivered +=
                        told.iter().filter(|told| matches!(told, SignalOutcome::Delivered { .. })).count();
                }
                delivered
            }
        })
        .await;
        assert_eq!(told.iter().sum::<usize>(), 2 * EACH as usize, "round {n}: each was delivered once");
        nobody_sleeps(&store, n).await;
        let woken = drain(&store, n).await;
        assert_eq!(woken.len(), EACH as usize, "round {n}: each is ready once");
        for job in &woken {
            assert_eq!(job.inbox.len(), 1, "round {n}: one is shown");
            let kept = store.inspect().inbox(job.id, 9).await.expect("inbox");
            let mut said = texts(&kept);
            said.sort();
            assert_eq!(said, ["other", "same"], "round {n}: both are kept");
        }
        assert_eq!(fire_timers(&store, 5_000, 99).await.woken, 0, "round {n}: no timer is left behind");
    }
}

pub async fn a_wait_for_two_is_woken_by_the_last_of_two_senders(store: Handle) {
    for n in 0..ROUNDS {
        let (me, taken) = round(&store, n).await;
        let changes = parks(me, &taken, &wait_for_signals(&["a", "b"], 2, None));
        store.commit(at(1), &changes).await.expect("commit");
        let jobs: Vec<JobId> = taken.iter().map(|job| job.id).collect();
        let woke = at_once(&store, 2, |task, store| {
            let jobs = jobs.clone();
            async move {
                let name = ["a", "b"][task];
                let mut woke = 0;
                for job in jobs {
                    let told = send(&store, 2, &[signal(job, name, "1", name)]).await;
                    woke += usize::from(told == [SignalOutcome::Delivered { woke: true }]);
                }
                woke
            }
        })
        .await;
        assert_eq!(woke.iter().sum::<usize>(), EACH as usize, "round {n}: one of the two woke each");
        nobody_sleeps(&store, n).await;
        assert_eq!(drain(&store, n).await.len(), EACH as usize);
    }
}

pub async fn a_signal_against_its_timeout_wakes_once(store: Handle) {
    for n in 0..ROUNDS {
        let (me, taken) = round(&store, n).await;
        store.commit(at(1), &parks(me, &taken, &wait_for_signal("go", Some(secs(9))))).await.expect("commit");
        let jobs: Vec<JobId> = taken.iter().map(|job| job.id).collect();
        let signaller = async move |store: Handle| {
            let mut woke = 0;
            for job in jobs {
                let told = send(&store, 10, &[signal(job, "go", "1", "x")]).await;
                woke += usize::from(told == [SignalOutcome::Delivered { woke: true }]);
            }
            woke
        };
        let keeper = async move |store: Handle| {
            let mut woken = 0;
            for _ in 0..EACH {
                woken += store.fire_timers(at(10), 2).await.expect("due").woken;
            }
            woken
        };
        let (woke, woken) = both(&store, signaller, keeper).await;
        let rest = fire_timers(&store, 10, 99).await.woken;
        assert_eq!(woke + woken + rest, EACH as usize, "round {n}: each was woken once");
        nobody_sleeps(&store, n).await;
        let taken = drain(&store, n).await;
        assert_eq!(taken.len(), EACH as usize, "round {n}: each is ready once");
        assert!(taken.iter().all(|job| texts(&job.inbox) == ["x"]));
    }
}

/// A job that submitted children and goes on, and the children as they run.
async fn family(store: &Handle, n: u32) -> (WorkerId, ClaimedJob, Vec<ClaimedJob>) {
    let me = worker(store, 1_000 + i64::from(n)).await;
    let first = n * 100;
    submit(store, &[job(first)]).await;
    let parent = claim_one(store, 0, me, 1).await;
    let children: Vec<NewJob> = jobs(first + 1, EACH);
    commit(store, 1, with_step(change(me, &parent, Outcome::Next), spawn_children(&children))).await;
    let children = claim(store, at(1), &claim_request(me, 2, 99)).await;
    assert_eq!(children.len(), EACH as usize);
    (me, after_step(&parent), children)
}

/// A parent parks while its children end, at the same time; answers what is ready then, which is the parent, once.
async fn parks_as_they_end(store: &Handle, n: u32, park: &Change, ends: &[Change]) -> Vec<ClaimedJob> {
    at_once(store, 4, |task, store| {
        let (park, ends) = (park.clone(), ends.to_vec());
        async move {
            let mine: Vec<Change> = match task {
                0 => vec![park],
                task => ends.into_iter().skip(task - 1).step_by(3).collect(),
            };
            for chunk in mine.chunks(1 + n as usize % 2) {
                let verdicts = store.commit(at(2), chunk).await.expect("commit");
                assert!(verdicts.iter().all(|verdict| *verdict == CommitOutcome::Committed));
            }
        }
    })
    .await;
    nobody_sleeps(store, n).await;
    let woken = drain(store, n).await;
    assert_eq!(ids(&woken), [park.job], "round {n}: it is ready once");
    woken
}

pub async fn ends_of_children_against_their_parents_park_wake_it(store: Handle) {
    for n in 0..ROUNDS {
        let (me, parent, children) = family(&store, n).await;
        let wait = Wait { condition: WaitCondition::Children { rev: Rev(1) }, timeout: None };
        let park = change(me, &parent, Outcome::Wait(wait));
        let ends: Vec<Change> = children.iter().map(|child| change(me, child, done("x"))).collect();
        let woken = parks_as_they_end(&store, n, &park, &ends).await;
        assert_eq!(woken[0].pending_children, 0);
    }
}

pub async fn a_child_that_is_cancelled_against_its_own_end_counts_once(store: Handle) {
    for n in 0..ROUNDS {
        let (me, parent, children) = family(&store, n).await;
        let wait = Wait { condition: WaitCondition::Children { rev: Rev(1) }, timeout: None };
        commit(&store, 2, change(me, &parent, Outcome::Wait(wait))).await;
        let ids_of: Vec<JobId> = children.iter().map(|child| child.id).collect();
        let told = store.control().act_on_jobs(at(2), &ids_of, cancel(0), &actor()).await.expect("act");
        assert!(told.iter().all(|did| *did == crate::ControlOutcome::CancelRequested));
        let ends: Vec<Change> = children.iter().map(|child| change(me, child, done("x"))).collect();
        let committer = async move |store: Handle| {
            for end in ends {
                store.commit(at(3), &[end]).await.expect("commit");
            }
        };
        let keeper = async move |store: Handle| {
            for _ in 0..EACH {
                store.fire_timers(at(3), 2).await.expect("due");
            }
        };
        both(&store, committer, keeper).await;
        fire_timers(&store, 3, 99).await;
        nobody_sleeps(&store, n).await;
        assert_eq!(view(&store, parent.id).await.pending, 0, "round {n}");
        assert_eq!(ids(&drain(&store, n).await), [parent.id], "round {n}: it is ready once");
    }
}

/// The same family with the children in a branch.
async fn clan(store: &Handle, n: u32) -> (WorkerId, ClaimedJob, Vec<ClaimedJob>) {
    let me = worker(store, 1_000 + i64::from(n)).await;
    let first = n * 100;
    submit(store, &[job(first)]).await;
    let parent = claim_one(store, 0, me, 1).await;
    let children: Vec<NewJob> = (first + 1..=first + EACH).map(|n| branch_child(n, BRANCH)).collect();
    let step = branch_writes(vec![open_branch(BRANCH, "all")], children);
    commit(store, 1, with_step(change(me, &parent, Outcome::Next), step)).await;
    let children = claim(store, at(1), &claim_request(me, 2, 99)).await;
    assert_eq!(children.len(), EACH as usize);
    (me, after_step(&parent), children)
}

pub async fn ends_in_a_branch_against_the_park_of_its_job_wake_it(store: Handle) {
    for n in 0..ROUNDS {
        let (me, parent, children) = clan(&store, n).await;
        let watch = BranchWatch { ended: Some(u64::from(EACH)), ..BranchWatch::default() };
        let watches =
            branch_writes(vec![BranchUpdate { watch: Some(watch), ..BranchUpdate::new(BRANCH) }], vec![]);
        let park = with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), watches);
        let how = |n: usize| if n.is_multiple_of(3) { failed(Reason::Stopped) } else { done("x") };
        let ends = children.iter().enumerate().map(|(n, child)| change(me, child, how(n)));
        let ends: Vec<Change> = ends.collect();
        let woken = parks_as_they_end(&store, n, &park, &ends).await;
        assert_eq!(texts(&woken[0].inbox), ["7"], "round {n}: it is told once");
        let each = i64::from(EACH);
        let counts = branch(&store, n * 100, BRANCH).await.counts;
        let failed = (each + 2) / 3;
        assert_eq!(
            counts,
            BranchCounts { started: each, done: each - failed, failed, cancelled: 0 },
            "round {n}"
        );
    }
}

pub async fn what_happens_to_a_child_at_once_is_counted_once(store: Handle) {
    for n in 0..ROUNDS {
        let (me, parent, children) = clan(&store, n).await;
        let ends: Vec<Change> = children.iter().map(|child| change(me, child, cancelled())).collect();
        let ids_of: Vec<JobId> = children.iter().map(|child| child.id).collect();
        // Two commit the same ends, one revives what has ended, and one cancels what lives again.
        at_once(&store, 4, |task, store| {
            let (ends, ids_of) = (ends.clone(), ids_of.clone());
            async move {
                for (end, id) in ends.into_iter().zip(ids_of) {
                    match task {
                        0 | 1 => _ = store.commit(at(2), &[end]).await.expect("commit"),
                        2 => {
                            let did =
                                store.control().act_on_jobs(at(2), &[id], JobAction::Retry, &actor()).await;
                            did.expect("act");
                        }
                        _ => {
                            let did = store.control().act_on_jobs(at(2), &[id], cancel(0), &actor()).await;
                            did.expect("act");
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
        let began = children.len() as i64;
        assert!((0..=began).contains(&counts.started), "round {n}: {counts:?}");
        commit(&store, 3, change(me, &parent, done("x"))).await;
        drain(&store, n).await;
        fire_timers(&store, 3, 99).await;
    }
}

pub async fn branches_are_looked_at_by_one_of_many(store: Handle) {
    let (me, mut job) = running_job(&store, 1).await;
    for number in 0..20 {
        let watch = Some(BranchWatch { ended: Some(1), ..BranchWatch::default() });
        let open = BranchUpdate { watch, ..open_branch(BranchNo(number), "some") };
        commit(&store, 1, with_step(change(me, &job, Outcome::Next), branch_writes(vec![open], vec![])))
            .await;
        job = after_step(&job);
    }
    for now in [10, 100, 1_000] {
        let looked = at_once(&store, 4, |_, store| async move {
            let mut looked = 0;
            loop {
                let polled = store.poll_branches(at(now), 3).await.expect("poll");
                looked += polled.polled;
                if polled.next_at.is_none_or(|at| at > t(now)) {
                    return looked;
                }
            }
        })
        .await;
        assert_eq!(looked.iter().sum::<usize>(), 20, "{looked:?}");
    }
    let all = store.inspect().branches(id(1)).await.expect("branches");
    assert!(all.iter().all(|branch| branch.poll.polls == 3));
}
