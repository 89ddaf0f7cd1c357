//! Pruning: ended jobs are deleted by state and age, in bounded calls, unless they are still needed.

use windlass_model::{JobId, NewJob, Reason, State, SubmitOutcome};

use super::{branch_kit, kit::*};
use crate::{ChildStates, ControlOutcome, Filter, JobAction, JobEnd, Prune, Pruned};

/// A prune of jobs that ended in this state before this second.
pub(super) fn watch_ended(state: State, before: u64) -> Prune {
    Prune { state, before: t(before), kind: None, after: None, limit: 1_000 }
}

/// Prunes in calls of `limit` until all jobs were visited. Returns the sums.
async fn prune(store: &Handle, prune: Prune, limit: usize) -> Pruned {
    let mut sum = Pruned::default();
    let mut prune = Prune { limit, ..prune };
    loop {
        let pruned = store.prune(at(900), &prune).await.expect("prune");
        assert!(pruned.jobs + pruned.kept <= limit, "it visits no more than the limit");
        sum.jobs += pruned.jobs;
        sum.kept += pruned.kept;
        let Some(after) = pruned.after else { return sum };
        assert!(prune.after.is_none_or(|before| after > before), "it advances");
        prune.after = Some(after);
    }
}

/// Thirty jobs: ten done, ten failed and ten cancelled, one of each in every second from the first.
async fn thirty_ended_jobs(store: &Handle) {
    let worker = worker(store, 1).await;
    for second in 0..10 {
        let batch = jobs(second * 3, 3);
        submit(store, &batch).await;
        let claimed = claim(store, at(0), &claim_request(worker, i64::from(second) + 1, 9)).await;
        let outcomes = [done("x"), failed(Reason::Stopped), cancelled()];
        for (job, outcome) in claimed.iter().zip(outcomes) {
            apply(store, u64::from(second) + 1, change(worker, job, outcome)).await;
        }
    }
}

pub async fn jobs_are_pruned_by_state_and_age(store: Handle) {
    thirty_ended_jobs(&store).await;
    submit(&store, &jobs(100, 5)).await;
    assert_eq!(
        prune(&store, watch_ended(State::Done, 1), 1_000).await,
        Pruned::default(),
        "none is old enough"
    );
    for (n, state) in [State::Done, State::Failed, State::Cancelled].into_iter().enumerate() {
        let pruned = prune(&store, watch_ended(state, 5), 1_000).await;
        assert_eq!((pruned.jobs, pruned.kept), (4, 0), "{state}");
        assert_eq!(count(&store, state).await, 6, "{state}");
        assert_eq!(list(&store, all_jobs()).await.len(), 35 - 4 * (n + 1));
    }
    let left = list(&store, all_jobs()).await;
    assert!((12..30).chain(100..105).map(id).all(|id| left.contains(&id)));
    assert_eq!(count(&store, State::Ready).await, 5, "live jobs are never pruned");
}

pub async fn a_prune_is_bounded_and_continues_where_the_last_one_stopped(store: Handle) {
    thirty_ended_jobs(&store).await;
    submit(&store, &jobs(100, 20)).await;
    for (state, limit) in [(State::Done, 1), (State::Failed, 3), (State::Cancelled, 7)] {
        assert_eq!(prune(&store, watch_ended(state, 99), limit).await.jobs, 10, "{state}");
        assert_eq!(count(&store, state).await, 0);
    }
    let none = Prune { limit: 0, ..watch_ended(State::Done, 99) };
    assert_eq!(store.prune(at(900), &none).await.expect("prune").jobs, 0);
}

pub async fn only_jobs_of_the_named_kind_are_pruned(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[job_in(1, "a", QUEUE), job_in(2, "b", QUEUE)]).await;
    let both =
        crate::ClaimRequest { kinds: [kind("a", 1), kind("b", 1)].into(), ..claim_request(worker, 1, 9) };
    for job in claim(&store, at(0), &both).await {
        apply(&store, 1, change(worker, &job, done("x"))).await;
    }
    let of_kind = |kind: &str| Prune { kind: Some(kind.into()), ..watch_ended(State::Done, 9) };
    assert_eq!(prune(&store, of_kind("unknown"), 9).await.jobs, 0);
    assert_eq!(prune(&store, of_kind("b"), 9).await.jobs, 1);
    assert_eq!(list(&store, all_jobs()).await, [id(1)]);
}

pub async fn nothing_is_left_of_a_pruned_job(store: Handle) {
    let worker = worker(&store, 1).await;
    let new = || NewJob { key: Some("k".into()), tags: vec!["red".into(), "blue".into()], ..job(1) };
    submit(&store, &[new()]).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    apply(&store, 1, change(worker, &claimed, failed(Reason::Stopped))).await;
    let settled = crate::RenewRequest { settled: vec![windlass_model::ClaimNo(1)], ..renew_request(worker) };
    store.renew(at(1), &settled).await.expect("renew");
    assert_eq!(prune(&store, watch_ended(State::Failed, 9), 9).await.jobs, 1);
    assert_eq!(store.inspect().job(id(1)).await.expect("job"), None);
    assert_eq!(store.job_ends(&[id(1)]).await.expect("ended"), [Some(JobEnd::Gone)]);
    assert!(history(&store, id(1)).await.is_empty());
    assert!(list(&store, Filter { tag: Some("red".into()), ..all_jobs() }).await.is_empty());
    assert!(store.inspect().state_counts().await.expect("state counts").is_empty());
    let outcomes = store.submit(at(10), &[NewJob { id: id(2), ..new() }], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::New { claimed: None }], "its key is free");
    assert_eq!(list(&store, Filter { tag: Some("blue".into()), ..all_jobs() }).await, [id(2)]);
}

pub async fn a_child_of_a_live_parent_is_kept(store: Handle) {
    let worker = worker(&store, 1).await;
    let child = |n: u32, parent: JobId| NewJob { parent: Some(parent), ..job(n) };
    submit(&store, &[job(1), child(2, id(1)), child(3, id(99)), job(4)]).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 9)).await;
    for job in &claimed[1..] {
        apply(&store, 1, change(worker, job, done("x"))).await;
    }
    let first = prune(&store, watch_ended(State::Done, 9), 9).await;
    assert_eq!((first.jobs, first.kept), (2, 1), "an unknown parent needs no children");
    assert_eq!(list(&store, all_jobs()).await, [2, 1].map(id));
    apply(&store, 2, change(worker, &claimed[0], done("x"))).await;
    assert_eq!(
        prune(&store, watch_ended(State::Done, 9), 9).await.jobs,
        2,
        "both, once the parent has ended"
    );
}

/// A failed or cancelled parent may be retried, and then reads the results of its children.
pub async fn a_child_of_a_parent_that_may_be_retried_is_kept(store: Handle) {
    let me = worker(&store, 1).await;
    for (n, outcome, state) in
        [(1, failed(Reason::Stopped), State::Failed), (20, cancelled(), State::Cancelled)]
    {
        submit(&store, &[job(n)]).await;
        let number = i64::from(n);
        let parent = claim_one(&store, 0, me, number).await;
        let step = branch_kit::branch_writes(
            vec![branch_kit::open_branch(branch_kit::BRANCH, "all")],
            branch_kit::children(n + 1, 3),
        );
        apply(&store, 1, with_step(change(me, &parent, windlass_model::Outcome::Next), step)).await;
        let plain = NewJob { parent: Some(id(n)), ..job(n + 10) };
        submit(&store, &[plain]).await;
        let claimed = branch_kit::claim_all(&store, 1, me, number + 1).await;
        assert_eq!(claimed.len(), 4);
        for job in &claimed {
            let ends = if job.id == id(n + 2) { failed(Reason::Stopped) } else { done("x") };
            apply(&store, 2, change(me, job, ends)).await;
        }
        apply(&store, 3, change(me, &after_step(&parent), outcome)).await;
        let prune_ended = async |state| prune(&store, watch_ended(state, 99), 9).await;
        assert_eq!(
            prune_ended(State::Done).await,
            Pruned { jobs: 0, kept: 3, after: None },
            "of a {state} parent"
        );
        if state == State::Cancelled {
            assert_eq!(prune_ended(State::Failed).await, Pruned { jobs: 0, kept: 1, after: None });
        }
        assert_eq!(act_on_job(&store, 4, n, JobAction::Retry).await, ControlOutcome::Done);
        let filter = crate::BranchChildFilter {
            job: id(n),
            branch: branch_kit::BRANCH,
            states: ChildStates::Ended,
            after: None,
            limit: 9,
        };
        assert_eq!(
            store.inspect().branch_children(&filter).await.expect("children").len(),
            3,
            "all can still be read"
        );
        let parent = claim_one(&store, 5, me, number + 2).await;
        apply(&store, 6, change(me, &parent, done("x"))).await;
        assert_eq!(prune_ended(State::Done).await.jobs, 4, "a parent that is done does not read them again");
        assert_eq!(prune_ended(State::Failed).await.jobs, 1);
    }
}

pub async fn children_are_pruned_after_their_parent(store: Handle) {
    let (me, parent) = branch_kit::parent_with_children(&store, branch_kit::children(2, 3)).await;
    for job in branch_kit::claim_all(&store, 1, me, 2).await {
        apply(&store, 2, change(me, &job, done("x"))).await;
    }
    apply(&store, 3, change(me, &parent, failed(Reason::Stopped))).await;
    assert_eq!(prune(&store, watch_ended(State::Done, 99), 9).await.kept, 3);
    assert_eq!(prune(&store, watch_ended(State::Failed, 99), 9).await.jobs, 1, "the parent");
    assert_eq!(prune(&store, watch_ended(State::Done, 99), 9).await.jobs, 3, "then its children");
    assert!(list(&store, all_jobs()).await.is_empty());
}
