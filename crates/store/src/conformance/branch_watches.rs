//! Watches: a parent is told once that a branch has come to what it waits for.

use windlass_model::{
    BranchNo, BranchUpdate, BranchWatch, ClaimedJob, CommitOutcome, Outcome, Reason, State, StepWrites,
    WorkerId, branch::BRANCH_SIGNAL,
};

use super::{branches::*, kit::*};
use crate::{ControlOutcome, Error, JobAction, TIMER_GATE};

/// Watches the branch.
pub(super) fn watches(watch: BranchWatch) -> BranchUpdate {
    BranchUpdate { watch: Some(watch), ..BranchUpdate::new(NO) }
}

/// That so many children ended, however.
pub(super) fn ended(count: u64) -> BranchWatch {
    BranchWatch { ended: Some(count), ..BranchWatch::default() }
}

/// That so many ended well.
pub(super) fn well(count: u64) -> BranchWatch {
    BranchWatch { done: Some(count), ..BranchWatch::default() }
}

/// That so many did not.
pub(super) fn badly(count: u64) -> BranchWatch {
    BranchWatch { unsuccessful: Some(count), ..BranchWatch::default() }
}

/// Has a job that runs watch the branch and wait for that.
pub(super) async fn waits(store: &Handle, now: u64, (me, job): &(WorkerId, ClaimedJob), watch: BranchWatch) {
    let step = growing(vec![watches(watch)], vec![]);
    let change = with_step(change(*me, job, wait_for_signal(BRANCH_SIGNAL, None)), step);
    assert_eq!(commit(store, now, change).await, CommitOutcome::Committed);
}

/// Has the worker end a child.
async fn ends(store: &Handle, now: u64, me: WorkerId, child: &ClaimedJob, outcome: Outcome) {
    assert_eq!(commit(store, now, change(me, child, outcome)).await, CommitOutcome::Committed);
}

/// The parent after it was woken: one signal, whose payload is the number.
async fn woken(store: &Handle, now: u64, me: WorkerId, number: i64) -> ClaimedJob {
    let parent = claim_one(store, now, me, number).await;
    let [signal] = &parent.inbox[..] else { panic!("{:?}", parent.inbox) };
    assert_eq!((signal.name.as_str(), &signal.payload), (BRANCH_SIGNAL, &payload("7")));
    assert_eq!((parent.id, parent.pending_children), (id(1), 0));
    parent
}

pub async fn a_parked_parent_is_woken_when_its_watch_is_met(store: Handle) {
    for (n, watch, outcomes) in [
        (0, ended(3), [done("x"), failed(Reason::Stopped), cancelled()]),
        (1, well(2), [done("x"), cancelled(), done("x")]),
        (2, badly(2), [cancelled(), done("x"), failed(Reason::Stopped)]),
        (3, BranchWatch { unsuccessful: Some(9), ..well(1) }, [cancelled(), cancelled(), done("x")]),
    ] {
        let me = worker(&store, 10 + n).await;
        let first = 100 + 10 * n as u32;
        submit(&store, &[job(first)]).await;
        let job = claim_one(&store, 0, me, 1).await;
        let open = BranchUpdate { watch: Some(watch.clone()), ..opens(NO, "all") };
        let step = growing(vec![open], children(first + 1, 4));
        commit(&store, 1, with_step(change(me, &job, wait_for_signal(BRANCH_SIGNAL, None)), step)).await;
        assert_eq!(branch(&store, first, NO).await.watch, Some(watch), "{n}");
        let taken = take(&store, 2, me, 2).await;
        for (second, (child, outcome)) in taken.iter().zip(outcomes).enumerate() {
            assert_eq!(state(&store, id(first)).await, State::Waiting, "{n}");
            ends(&store, 3 + second as u64, me, child, outcome).await;
        }
        let seen = branch(&store, first, NO).await;
        assert_eq!((seen.watch, seen.poll.next_at), (None, None), "it is over");
        let parent = claim_one(&store, 6, me, 3).await;
        assert_eq!((parent.id, parent.due_at, texts(&parent.inbox)), (id(first), t(5), vec!["7".to_owned()]));
        ends(&store, 7, me, &taken[3], done("x")).await;
        assert_eq!(inbox(&store, first).await, ["7"], "told once");
        ends(&store, 8, me, &parent, done("x")).await;
    }
    assert_eq!(store.repair(at(9)).await.expect("sweep"), 0);
}

pub async fn what_was_met_before_the_watch_is_told_at_once(store: Handle) {
    let parent = opened(&store, children(2, 2)).await;
    let me = parent.0;
    for child in take(&store, 2, me, 2).await {
        ends(&store, 2, me, &child, done("x")).await;
    }
    assert_eq!(inbox(&store, 1).await, [] as [&str; 0], "nobody watches yet");
    waits(&store, 3, &parent, ended(2)).await;
    assert_eq!(branch(&store, 1, NO).await.watch, None);
    woken(&store, 3, me, 3).await;
    assert_eq!(poll(&store, 500).await.polled, 0);
}

pub async fn what_is_met_before_the_park_ends_the_wait_at_once(store: Handle) {
    let parent = opened(&store, children(2, 2)).await;
    let me = parent.0;
    let parent = grow(&store, 2, &parent, vec![watches(ended(2))], vec![]).await;
    for child in take(&store, 3, me, 2).await {
        ends(&store, 3, me, &child, done("x")).await;
    }
    assert_eq!(inbox(&store, 1).await, ["7"], "it runs, and is told");
    ends(&store, 4, me, &parent.1, wait_for_signal(BRANCH_SIGNAL, None)).await;
    woken(&store, 4, me, 3).await;
}

pub async fn a_batch_may_meet_a_watch_and_park_its_parent(store: Handle) {
    for (n, parent_first) in [(1, true), (21, false)] {
        let (me, job) = running_job(&store, n).await;
        let step = growing(vec![opens(NO, "all")], children(n + 1, 2));
        commit(&store, 1, with_step(change(me, &job, Outcome::Next), step)).await;
        let taken = take(&store, 1, me, 2).await;
        let step = growing(vec![watches(ended(2))], vec![]);
        let mut batch = vec![with_step(
            change(me, &after_step(&job), wait_for_signal(BRANCH_SIGNAL, Some(secs(99)))),
            step,
        )];
        batch.extend(taken.iter().map(|child| change(me, child, done("x"))));
        if !parent_first {
            batch.reverse();
        }
        let verdicts = store.commit(at(2), &batch).await.expect("commit");
        assert_eq!(verdicts, vec![CommitOutcome::Committed; 3]);
        assert_eq!(inbox(&store, n).await, ["7"]);
        assert_eq!(claim_one(&store, 2, me, 3).await.id, id(n));
    }
    assert_eq!(fire_timers(&store, 500, 9).await.woken, 0, "the waits are over");
}

pub async fn a_branch_without_children_is_met_by_none(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let open = BranchUpdate { seal: true, watch: Some(ended(0)), ..opens(NO, "all") };
    commit(
        &store,
        1,
        with_step(change(me, &job, wait_for_signal(BRANCH_SIGNAL, None)), growing(vec![open], vec![])),
    )
    .await;
    woken(&store, 1, me, 2).await;
}

pub async fn the_newest_watch_is_the_only_one(store: Handle) {
    let parent = opened(&store, children(2, 4)).await;
    let me = parent.0;
    let parent = grow(&store, 2, &parent, vec![watches(ended(1))], vec![]).await;
    waits(&store, 3, &parent, ended(3)).await;
    let taken = take(&store, 4, me, 2).await;
    for child in &taken[..2] {
        ends(&store, 4, me, child, done("x")).await;
    }
    assert_eq!(state(&store, id(1)).await, State::Waiting, "nobody wants to know of one");
    ends(&store, 5, me, &taken[2], done("x")).await;
    let parent = woken(&store, 5, me, 3).await;
    let again =
        StepWrites { consumed: consume(&parent).consumed, ..growing(vec![watches(ended(4))], vec![]) };
    commit(&store, 6, with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), again)).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    ends(&store, 7, me, &taken[3], done("x")).await;
    let parent = woken(&store, 7, me, 4).await;
    let again =
        StepWrites { consumed: consume(&parent).consumed, ..growing(vec![watches(ended(4))], vec![]) };
    commit(&store, 8, with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), again)).await;
    woken(&store, 8, me, 5).await;
}

pub async fn a_repeated_change_tells_nothing_twice(store: Handle) {
    let parent = opened(&store, children(2, 1)).await;
    let me = parent.0;
    waits(&store, 2, &parent, ended(1)).await;
    let child = claim_one(&store, 3, me, 2).await;
    let last = change(me, &child, done("x"));
    for _ in 0..2 {
        assert_eq!(commit(&store, 3, last.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!(inbox(&store, 1).await, ["7"]);
    woken(&store, 4, me, 3).await;
}

pub async fn a_child_that_comes_back_unmeets_nothing(store: Handle) {
    let parent = opened(&store, children(2, 2)).await;
    let me = parent.0;
    waits(&store, 2, &parent, ended(2)).await;
    let taken = take(&store, 3, me, 2).await;
    ends(&store, 3, me, &taken[0], failed(Reason::Stopped)).await;
    assert_eq!(act_on_job(&store, 4, 2, JobAction::Retry).await, ControlOutcome::Done);
    ends(&store, 5, me, &taken[1], done("x")).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting, "one has come back");
    let child = claim_one(&store, 6, me, 3).await;
    ends(&store, 6, me, &child, failed(Reason::Stopped)).await;
    let parent = woken(&store, 6, me, 4).await;
    assert_eq!(act_on_job(&store, 7, 2, JobAction::Retry).await, ControlOutcome::Done);
    let child = claim_one(&store, 7, me, 5).await;
    ends(&store, 8, me, &child, done("x")).await;
    assert_eq!((inbox(&store, 1).await, counts(&store).await), (vec!["7".to_owned()], [2, 2, 0, 0]));
    ends(&store, 9, me, &parent, done("x")).await;
}

pub async fn ends_from_outside_meet_a_watch(store: Handle) {
    let later = windlass_model::When::At(t(500));
    let mut all: Vec<_> =
        children(2, 3).into_iter().map(|child| windlass_model::NewJob { when: later, ..child }).collect();
    all[0].deadline_at = Some(t(5));
    let parent = opened(&store, all).await;
    let me = parent.0;
    waits(&store, 2, &parent, badly(1)).await;
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    let parent = woken(&store, 5, me, 2).await;
    let again =
        StepWrites { consumed: consume(&parent).consumed, ..growing(vec![watches(badly(2))], vec![]) };
    commit(&store, 6, with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), again)).await;
    assert_eq!(act_on_job(&store, 7, 3, cancel(0)).await, ControlOutcome::Done);
    let parent = woken(&store, 7, me, 3).await;
    assert_eq!(parent.due_at, t(7));
}

pub async fn two_branches_are_told_apart(store: Handle) {
    let parent = opened(&store, children(2, 1)).await;
    let me = parent.0;
    let second = BranchUpdate { watch: Some(ended(1)), ..opens(BranchNo(8), "more") };
    let step = growing(vec![second, watches(ended(1))], vec![child_of(3, BranchNo(8))]);
    let wait = wait_for_signals(&[&format!("{BRANCH_SIGNAL}*")], 1, None);
    commit(&store, 2, with_step(change(parent.0, &parent.1, wait), step)).await;
    let taken = take(&store, 3, me, 2).await;
    let batch: Vec<_> = taken.iter().rev().map(|child| change(me, child, done("x"))).collect();
    store.commit(at(3), &batch).await.expect("commit");
    let parent = claim_one(&store, 4, me, 3).await;
    let mut told = texts(&selected_signals(&parent));
    told.sort();
    assert_eq!(told, ["7", "8"]);
}

pub async fn an_ended_parent_watches_nothing(store: Handle) {
    let parent = opened(&store, children(2, 2)).await;
    let (me, job) = grow(&store, 2, &parent, vec![watches(ended(1))], vec![]).await;
    let taken = take(&store, 2, me, 2).await;
    let last = growing(vec![watches(ended(2))], vec![]);
    commit(&store, 3, with_step(change(me, &job, failed(Reason::Stopped)), last)).await;
    let seen = branch(&store, 1, NO).await;
    assert_eq!((seen.watch, seen.cancels_children, seen.poll.next_at), (None, false, None));
    for child in &taken {
        ends(&store, 4, me, child, done("x")).await;
    }
    assert_eq!((inbox(&store, 1).await.len(), counts(&store).await), (0, [2, 2, 0, 0]));
    assert_eq!(act_on_job(&store, 5, 1, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(branch(&store, 1, NO).await.watch, None, "it says itself what it wants to know");
    let parent = (me, claim_one(&store, 5, me, 3).await);
    waits(&store, 6, &parent, ended(2)).await;
    woken(&store, 6, me, 4).await;
}

pub async fn a_paused_parent_is_told_and_stays_aside(store: Handle) {
    let parent = opened(&store, children(2, 1)).await;
    let me = parent.0;
    waits(&store, 2, &parent, ended(1)).await;
    act_on_job(&store, 3, 1, JobAction::Pause).await;
    let child = claim_one(&store, 3, me, 2).await;
    ends(&store, 3, me, &child, done("x")).await;
    assert!(take(&store, 4, me, 3).await.is_empty());
    assert_eq!(act_on_job(&store, 5, 1, JobAction::Resume).await, ControlOutcome::Done);
    woken(&store, 5, me, 4).await;
}

pub async fn a_full_inbox_is_told_of_a_branch_all_the_same(store: Handle) {
    let parent = opened(&store, children(2, 1)).await;
    let me = parent.0;
    waits(&store, 2, &parent, ended(1)).await;
    let most = store.limits().inbox;
    let signals: Vec<_> = (0..most).map(|n| signal(id(1), "other", &n.to_string(), "x")).collect();
    send(&store, 2, &signals).await;
    let child = claim_one(&store, 3, me, 2).await;
    ends(&store, 3, me, &child, done("x")).await;
    woken(&store, 3, me, 3).await;
}

pub async fn nobody_else_tells_of_a_branch(store: Handle) {
    let parent = opened(&store, children(2, 1)).await;
    waits(&store, 2, &parent, ended(1)).await;
    let sent = store.signal(at(2), &[signal(id(1), BRANCH_SIGNAL, "7/1", "7")]).await;
    assert!(matches!(sent, Err(Error::Invalid(_))), "{sent:?}");
    assert_eq!(state(&store, id(1)).await, State::Waiting);
}

pub async fn a_watch_moves_the_timers_gate(store: Handle) {
    let parent = opened(&store, children(2, 1)).await;
    let before = gates(&store, &[TIMER_GATE]).await;
    waits(&store, 2, &parent, ended(1)).await;
    assert_ne!(gates(&store, &[TIMER_GATE]).await, before);
}
