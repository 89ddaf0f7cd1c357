//! Deleting ended jobs: by state and age, in bounded calls, and never what is needed still.

use windlass_model::{JobId, NewJob, Reason, State, Submitted};

use super::kit::*;
use crate::{Ended, Filter, Prune, Pruned};

/// What ended so before this second.
fn ended(state: State, before: u64) -> Prune {
    Prune { state, before: t(before), kind: None, after: None, limit: 1_000 }
}

/// Prunes in calls of `limit` until all was looked at, and adds up.
async fn prune(store: &Handle, prune: Prune, limit: usize) -> Pruned {
    let mut sum = Pruned::default();
    let mut prune = Prune { limit, ..prune };
    loop {
        let pruned = store.control().prune(at(900), &prune).await.expect("prune");
        assert!(pruned.jobs + pruned.kept <= limit, "it looks at no more than it was told to");
        sum.jobs += pruned.jobs;
        sum.kept += pruned.kept;
        let Some(after) = pruned.after else { return sum };
        assert!(prune.after.is_none_or(|before| after > before), "it gets on");
        prune.after = Some(after);
    }
}

/// Thirty jobs: ten done, ten failed and ten cancelled, one of each in every second from the first.
async fn thirty(store: &Handle) {
    let worker = worker(store, 1).await;
    for second in 0..10 {
        let batch = jobs(second * 3, 3);
        submit(store, &batch).await;
        let taken = claim(store, at(0), &ask(worker, i64::from(second) + 1, 9)).await;
        let outcomes = [done("x"), failed(Reason::Stopped), cancelled()];
        for (job, outcome) in taken.iter().zip(outcomes) {
            commit(store, u64::from(second) + 1, change(worker, job, outcome)).await;
        }
    }
}

pub async fn jobs_go_by_state_and_age(store: Handle) {
    thirty(&store).await;
    submit(&store, &jobs(100, 5)).await;
    assert_eq!(prune(&store, ended(State::Done, 1), 1_000).await, Pruned::default(), "none is old enough");
    for (n, state) in [State::Done, State::Failed, State::Cancelled].into_iter().enumerate() {
        let pruned = prune(&store, ended(state, 5), 1_000).await;
        assert_eq!((pruned.jobs, pruned.kept), (4, 0), "{state}");
        assert_eq!(count(&store, state).await, 6, "{state}");
        assert_eq!(list(&store, all()).await.len(), 35 - 4 * (n + 1));
    }
    let left = list(&store, all()).await;
    assert!((12..30).chain(100..105).map(id).all(|id| left.contains(&id)));
    assert_eq!(count(&store, State::Ready).await, 5, "what has not ended is never touched");
}

pub async fn calls_are_bounded_and_go_on_where_the_last_stopped(store: Handle) {
    thirty(&store).await;
    submit(&store, &jobs(100, 20)).await;
    for (state, limit) in [(State::Done, 1), (State::Failed, 3), (State::Cancelled, 7)] {
        assert_eq!(prune(&store, ended(state, 99), limit).await.jobs, 10, "{state}");
        assert_eq!(count(&store, state).await, 0);
    }
    let one = Prune { limit: 0, ..ended(State::Done, 99) };
    assert_eq!(store.control().prune(at(900), &one).await.expect("prune").jobs, 0);
}

pub async fn only_the_kind_that_is_named_goes(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[job_in(1, "a", QUEUE), job_in(2, "b", QUEUE)]).await;
    let both = crate::Ask { kinds: [kind("a", 1), kind("b", 1)].into(), ..ask(worker, 1, 9) };
    for job in claim(&store, at(0), &both).await {
        commit(&store, 1, change(worker, &job, done("x"))).await;
    }
    let of = |kind: &str| Prune { kind: Some(kind.into()), ..ended(State::Done, 9) };
    assert_eq!(prune(&store, of("nobody"), 9).await.jobs, 0);
    assert_eq!(prune(&store, of("b"), 9).await.jobs, 1);
    assert_eq!(list(&store, all()).await, [id(1)]);
}

pub async fn nothing_is_left_of_a_pruned_job(store: Handle) {
    let worker = worker(&store, 1).await;
    let new = || NewJob { key: Some("k".into()), tags: vec!["red".into(), "blue".into()], ..job(1) };
    submit(&store, &[new()]).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    commit(&store, 1, change(worker, &claimed, failed(Reason::Stopped))).await;
    let settled = crate::Beat { settled: vec![windlass_model::ClaimNo(1)], ..beat(worker) };
    store.renew(at(1), &settled).await.expect("renew");
    assert_eq!(prune(&store, ended(State::Failed, 9), 9).await.jobs, 1);
    assert_eq!(store.inspect().job(id(1)).await.expect("job"), None);
    assert_eq!(store.ended(&[id(1)]).await.expect("ended"), [Some(Ended::Gone)]);
    assert!(history(&store, id(1)).await.is_empty());
    assert!(list(&store, Filter { tag: Some("red".into()), ..all() }).await.is_empty());
    assert!(store.inspect().census(9).await.expect("census").is_empty());
    let answer = store.submit(at(10), &[NewJob { id: id(2), ..new() }], None).await.expect("submit");
    assert_eq!(answer, [Submitted::New { claimed: None }], "its key is free");
    assert_eq!(list(&store, Filter { tag: Some("blue".into()), ..all() }).await, [id(2)]);
}

pub async fn a_child_of_a_live_parent_stays(store: Handle) {
    let worker = worker(&store, 1).await;
    let child = |n: u32, parent: JobId| NewJob { parent: Some(parent), ..job(n) };
    submit(&store, &[job(1), child(2, id(1)), child(3, id(99)), job(4)]).await;
    let taken = claim(&store, at(0), &ask(worker, 1, 9)).await;
    for job in &taken[1..] {
        commit(&store, 1, change(worker, job, done("x"))).await;
    }
    let first = prune(&store, ended(State::Done, 9), 9).await;
    assert_eq!((first.jobs, first.kept), (2, 1), "a parent that is not there needs nothing");
    assert_eq!(list(&store, all()).await, [2, 1].map(id));
    commit(&store, 2, change(worker, &taken[0], done("x"))).await;
    assert_eq!(prune(&store, ended(State::Done, 9), 9).await.jobs, 2, "both, once the parent has ended");
}
