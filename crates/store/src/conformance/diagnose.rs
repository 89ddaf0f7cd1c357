//! What the doctor reads: the oldest ready jobs, suspects, and branches that do not progress.

use windlass_model::{BranchCounts, BranchUpdate, CommitOutcome, Reason, When};

use super::{branch_kit::*, kit::*};
use crate::{BranchHealth, OldestReady};

async fn oldest_ready(store: &Handle) -> Vec<OldestReady> {
    let mut oldest = store.diagnose().oldest_ready().await.expect("oldest ready jobs");
    oldest.sort_by(|a, b| (&a.queue, &a.kind, a.due_at).cmp(&(&b.queue, &b.kind, b.due_at)));
    oldest
}

fn ready_since(queue: &str, kind: &str, seconds: u64) -> OldestReady {
    OldestReady { queue: queue.into(), kind: kind.into(), version: 1, due_at: t(seconds) }
}

pub async fn the_first_ready_job_of_each_queue_and_kind_is_reported(store: Handle) {
    assert_eq!(oldest_ready(&store).await, []);
    let mut later = job(1);
    later.when = When::At(t(50));
    for (now, job) in [(5, job(2)), (6, job(3)), (7, job_in(4, "other", QUEUE)), (8, job_in(5, KIND, "bulk"))]
    {
        store.submit(at(now), &[job, later.clone()], None).await.expect("submit");
    }
    let expected =
        [ready_since("bulk", KIND, 8), ready_since(QUEUE, "other", 7), ready_since(QUEUE, KIND, 5)];
    assert_eq!(oldest_ready(&store).await, expected, "a scheduled job is not ready");
    let worker = worker(&store, 1).await;
    claim(&store, at(9), &claim_request(worker, 1, 1)).await;
    assert_eq!(oldest_ready(&store).await[2], ready_since(QUEUE, KIND, 6), "the next one");
}

pub async fn ready_suspects_are_counted_up_to_a_cap(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 3)).await;
    claim(&store, at(0), &claim_request(worker, 1, 2)).await;
    assert_eq!(store.diagnose().suspects(9).await.expect("suspects"), 0);
    reap(&store, 1, worker).await;
    assert_eq!(store.diagnose().suspects(9).await.expect("suspects"), 2);
    assert_eq!(store.diagnose().suspects(1).await.expect("suspects"), 1);
    let both = [ready_since(QUEUE, KIND, 0), ready_since(QUEUE, KIND, 0)];
    assert_eq!(oldest_ready(&store).await, both, "suspects wait in a lane of their own");
}

pub async fn a_branch_is_reported_while_its_job_waits_for_it(store: Handle) {
    let awaited = async |limit| store.diagnose().awaited_branches(limit).await.expect("branches");
    let parent = parent_with_children(&store, children(2, 3)).await;
    let me = parent.0;
    assert_eq!(awaited(9).await, []);
    wait_for_watch(&store, 2, &parent, watch_ended(3)).await;
    let running = claim_all(&store, 3, me, 2).await;
    apply(&store, 3, change(me, &running[0], done("x"))).await;
    apply(&store, 3, change(me, &running[1], cancelled())).await;
    let counts = BranchCounts { started: 0, done: 1, failed: 0, cancelled: 1 };
    let [branch] = &awaited(9).await[..] else { panic!("one branch is awaited") };
    assert!(branch.poll_at.is_some());
    let expected = BranchHealth {
        job: id(1),
        name: "all".into(),
        merge: None,
        spawned: 3,
        counts,
        poll_at: branch.poll_at,
    };
    assert_eq!(*branch, expected);
    assert_eq!(awaited(0).await, []);
    apply(&store, 4, change(me, &running[2], done("x"))).await;
    assert_eq!(awaited(9).await, [], "its watch is met");
}

pub async fn a_branch_with_live_children_of_an_ended_job_is_orphaned(store: Handle) {
    let orphaned = async |limit| store.diagnose().orphaned_branches(limit).await.expect("branches");
    let (me, parent) = parent_with_children(&store, children(2, 2)).await;
    assert_eq!(orphaned(9).await, []);
    assert_eq!(commit(&store, 2, change(me, &parent, done("x"))).await, CommitOutcome::Committed);
    let [branch] = &orphaned(9).await[..] else { panic!("one branch is orphaned") };
    assert_eq!((branch.job, branch.name.as_str(), branch.spawned), (id(1), "all", 2));
    assert_eq!(orphaned(0).await, []);
    for child in claim_all(&store, 3, me, 2).await {
        apply(&store, 3, change(me, &child, done("x"))).await;
    }
    assert_eq!(orphaned(9).await, [], "all children have ended");
}

pub async fn failures_of_children_are_handled_once_their_branch_is_merged(store: Handle) {
    let unhandled = async |cap| store.diagnose().unhandled_failures(cap).await.expect("failures");
    let (me, parent) = parent_with_children(&store, children(2, 3)).await;
    submit(&store, &jobs(20, 2)).await;
    assert_eq!(unhandled(9).await, 0);
    let mut claimed = claim_all(&store, 3, me, 2).await;
    claimed.sort_by_key(|job| job.id);
    for (job, outcome) in claimed.iter().zip([
        failed(Reason::Stopped),
        failed(Reason::Exhausted),
        cancelled(),
        failed(Reason::Stopped),
        done("x"),
    ]) {
        apply(&store, 3, change(me, job, outcome)).await;
    }
    assert_eq!(unhandled(9).await, 3, "two children and one other job");
    assert_eq!(unhandled(1).await, 1, "only the newest is read");
    let merged = BranchUpdate { merged: true, ..BranchUpdate::new(BRANCH) };
    update_branches(&store, 4, &(me, parent), vec![merged], vec![]).await;
    assert_eq!(unhandled(9).await, 1, "the merge has counted the children");
    assert_eq!(unhandled(1).await, 1);
    assert_eq!(unhandled(0).await, 0);
}
