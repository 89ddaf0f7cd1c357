//! What the cases about branches share: a parent with a branch, its children, and watches.

use windlass_model::{
    BranchCounts, BranchNo, BranchPosition, BranchUpdate, BranchWatch, ClaimedJob, CommitOutcome, NewJob,
    Outcome, StepWrites, WorkerId, branch::BRANCH_SIGNAL,
};

use super::kit::*;
use crate::{Branch, BranchChild, BranchChildFilter, ChildStates, PollReport};

/// The number of the branch that most cases use.
pub(super) const BRANCH: BranchNo = BranchNo(7);

/// The `n`th job as a child in a branch.
pub(super) fn branch_child(n: u32, branch: BranchNo) -> NewJob {
    let position = BranchPosition { branch, spawn: 0, item: n.to_string(), items: 1 };
    NewJob { branch_position: Some(Box::new(position)), ..job(n) }
}

/// `count` children in [`BRANCH`], numbered from `from`.
pub(super) fn children(from: u32, count: u32) -> Vec<NewJob> {
    (from..from + count).map(|n| branch_child(n, BRANCH)).collect()
}

/// The `n`th job as a block of this many items in [`BRANCH`].
pub(super) fn block(n: u32, items: u32) -> NewJob {
    let position = BranchPosition { branch: BRANCH, spawn: 0, item: format!("{n}.."), items };
    NewJob { branch_position: Some(Box::new(position)), ..job(n) }
}

/// Opens a branch.
pub(super) fn open_branch(number: BranchNo, name: &str) -> BranchUpdate {
    let spawns = Some(vec!["each".to_owned()]);
    BranchUpdate { opened_as: Some(name.to_owned()), spawns, ..BranchUpdate::new(number) }
}

/// A step that updates branches and spawns children.
pub(super) fn branch_writes(branches: Vec<BranchUpdate>, children: Vec<NewJob>) -> StepWrites {
    StepWrites { branches, children, ..StepWrites::default() }
}

/// Commits a step of a running job that updates branches and spawns children, and continues with the next step.
pub(super) async fn update_branches(
    store: &Handle,
    now: u64,
    (me, job): &(WorkerId, ClaimedJob),
    branches: Vec<BranchUpdate>,
    children: Vec<NewJob>,
) -> (WorkerId, ClaimedJob) {
    let change = with_step(change(*me, job, Outcome::Next), branch_writes(branches, children));
    assert_eq!(commit(store, now, change).await, CommitOutcome::Committed);
    (*me, after_step(job))
}

/// Job 1, running, with [`BRANCH`] open and these children spawned in it.
pub(super) async fn parent_with_children(store: &Handle, children: Vec<NewJob>) -> (WorkerId, ClaimedJob) {
    let parent = running_job(store, 1).await;
    update_branches(store, 1, &parent, vec![open_branch(BRANCH, "all")], children).await
}

/// A branch of the `n`th job.
pub(super) async fn branch(store: &Handle, n: u32, number: BranchNo) -> Branch {
    let all = store.inspect().branches(id(n)).await.expect("branches");
    all.into_iter().find(|branch| branch.number == number).expect("the branch exists")
}

/// The counts of job 1's branch: started, done, failed, cancelled.
pub(super) async fn counts(store: &Handle) -> [i64; 4] {
    let BranchCounts { started, done, failed, cancelled } = branch(store, 1, BRANCH).await.counts;
    [started, done, failed, cancelled]
}

/// Claims every ready job.
pub(super) async fn claim_all(store: &Handle, now: u64, me: WorkerId, number: i64) -> Vec<ClaimedJob> {
    claim(store, at(now), &claim_request(me, number, 2_000)).await
}

/// Polls all branches that are due.
pub(super) async fn poll_branches(store: &Handle, now: u64) -> PollReport {
    store.poll_branches(at(now), 100).await.expect("poll")
}

/// The children of job 1's branch in these states.
pub(super) async fn list_children(store: &Handle, states: ChildStates) -> Vec<BranchChild> {
    let filter = BranchChildFilter { job: id(1), branch: BRANCH, states, after: None, limit: 10_000 };
    store.inspect().branch_children(&filter).await.expect("children")
}

/// Why a change was refused.
pub(super) fn refusal(outcome: CommitOutcome) -> String {
    match outcome {
        CommitOutcome::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

/// Sets the watch of [`BRANCH`].
pub(super) fn watch_branch(watch: BranchWatch) -> BranchUpdate {
    BranchUpdate { watch: Some(watch), ..BranchUpdate::new(BRANCH) }
}

/// A watch for this many ended children.
pub(super) fn watch_ended(count: u64) -> BranchWatch {
    BranchWatch { ended: Some(count), ..BranchWatch::default() }
}

/// A watch for this many children that are done.
pub(super) fn watch_done(count: u64) -> BranchWatch {
    BranchWatch { done: Some(count), ..BranchWatch::default() }
}

/// A watch for this many failed or cancelled children.
pub(super) fn watch_unsuccessful(count: u64) -> BranchWatch {
    BranchWatch { unsuccessful: Some(count), ..BranchWatch::default() }
}

/// Commits a step of a running job that sets the watch of [`BRANCH`] and waits until it is met.
pub(super) async fn wait_for_watch(
    store: &Handle,
    now: u64,
    (me, job): &(WorkerId, ClaimedJob),
    watch: BranchWatch,
) {
    let step = branch_writes(vec![watch_branch(watch)], vec![]);
    let change = with_step(change(*me, job, wait_for_signal(BRANCH_SIGNAL, None)), step);
    assert_eq!(commit(store, now, change).await, CommitOutcome::Committed);
}
