//! Watches: a parent gets one signal when its branch reaches the counts it watches for.

use windlass_model::{
    BranchNo, BranchUpdate, BranchWatch, ClaimedJob, CommitOutcome, Outcome, Reason, State, StepWrites,
    WorkerId, branch::BRANCH_SIGNAL,
};

use super::{branch_kit::*, kit::*};
use crate::{ControlOutcome, Error, JobAction, TIMER_GATE};

/// Commits an outcome.
async fn commit_outcome(store: &Handle, now: u64, me: WorkerId, job: &ClaimedJob, outcome: Outcome) {
    assert_eq!(commit(store, now, change(me, job, outcome)).await, CommitOutcome::Committed);
}

/// Claims the parent after its watch was met: its inbox holds one signal, whose payload is the branch's number.
async fn claim_woken_parent(store: &Handle, now: u64, me: WorkerId, number: i64) -> ClaimedJob {
    let parent = claim_one(store, now, me, number).await;
    let [signal] = &parent.inbox[..] else { panic!("{:?}", parent.inbox) };
    assert_eq!((signal.name.as_str(), &signal.payload), (BRANCH_SIGNAL, &payload("7")));
    assert_eq!((parent.id, parent.pending_children), (id(1), 0));
    parent
}

pub async fn a_parked_parent_is_woken_when_its_watch_is_met(store: Handle) {
    for (n, watch, outcomes) in [
        (0, watch_ended(3), [done("x"), failed(Reason::Stopped), cancelled()]),
        (1, watch_done(2), [done("x"), cancelled(), done("x")]),
        (2, watch_unsuccessful(2), [cancelled(), done("x"), failed(Reason::Stopped)]),
        (3, BranchWatch { unsuccessful: Some(9), ..watch_done(1) }, [cancelled(), cancelled(), done("x")]),
    ] {
        let me = worker(&store, 10 + n).await;
        let first = 100 + 10 * n as u32;
        submit(&store, &[job(first)]).await;
        let job = claim_one(&store, 0, me, 1).await;
        let open = BranchUpdate { watch: Some(watch.clone()), ..open_branch(BRANCH, "all") };
        let step = branch_writes(vec![open], children(first + 1, 4));
        apply(&store, 1, with_step(change(me, &job, wait_for_signal(BRANCH_SIGNAL, None)), step)).await;
        assert_eq!(branch(&store, first, BRANCH).await.watch, Some(watch), "{n}");
        let taken = claim_all(&store, 2, me, 2).await;
        for (second, (child, outcome)) in taken.iter().zip(outcomes).enumerate() {
            assert_eq!(state(&store, id(first)).await, State::Waiting, "{n}");
            commit_outcome(&store, 3 + second as u64, me, child, outcome).await;
        }
        let seen = branch(&store, first, BRANCH).await;
        assert_eq!((seen.watch, seen.poll.next_at), (None, None), "a watch that was met is deleted");
        let parent = claim_one(&store, 6, me, 3).await;
        assert_eq!((parent.id, parent.due_at, texts(&parent.inbox)), (id(first), t(5), vec!["7".to_owned()]));
        commit_outcome(&store, 7, me, &taken[3], done("x")).await;
        assert_eq!(inbox(&store, first).await, ["7"], "one signal");
        commit_outcome(&store, 8, me, &parent, done("x")).await;
    }
    assert_eq!(store.repair(at(9)).await.expect("repair"), 0);
}

pub async fn a_watch_that_is_already_met_sends_its_signal_at_once(store: Handle) {
    let parent = parent_with_children(&store, children(2, 2)).await;
    let me = parent.0;
    for child in claim_all(&store, 2, me, 2).await {
        commit_outcome(&store, 2, me, &child, done("x")).await;
    }
    assert_eq!(inbox(&store, 1).await, [] as [&str; 0], "the branch has no watch yet");
    wait_for_watch(&store, 3, &parent, watch_ended(2)).await;
    assert_eq!(branch(&store, 1, BRANCH).await.watch, None);
    claim_woken_parent(&store, 3, me, 3).await;
    assert_eq!(poll_branches(&store, 500).await.polled, 0);
}

pub async fn a_watch_that_is_met_before_the_park_ends_the_wait_at_once(store: Handle) {
    let parent = parent_with_children(&store, children(2, 2)).await;
    let me = parent.0;
    let parent = update_branches(&store, 2, &parent, vec![watch_branch(watch_ended(2))], vec![]).await;
    for child in claim_all(&store, 3, me, 2).await {
        commit_outcome(&store, 3, me, &child, done("x")).await;
    }
    assert_eq!(inbox(&store, 1).await, ["7"], "a running parent gets the signal too");
    commit_outcome(&store, 4, me, &parent.1, wait_for_signal(BRANCH_SIGNAL, None)).await;
    claim_woken_parent(&store, 4, me, 3).await;
}

pub async fn one_batch_may_meet_a_watch_and_park_the_parent(store: Handle) {
    for (n, parent_first) in [(1, true), (21, false)] {
        let (me, job) = running_job(&store, n).await;
        let step = branch_writes(vec![open_branch(BRANCH, "all")], children(n + 1, 2));
        apply(&store, 1, with_step(change(me, &job, Outcome::Next), step)).await;
        let taken = claim_all(&store, 1, me, 2).await;
        let step = branch_writes(vec![watch_branch(watch_ended(2))], vec![]);
        let mut batch = vec![with_step(
            change(me, &after_step(&job), wait_for_signal(BRANCH_SIGNAL, Some(secs(99)))),
            step,
        )];
        batch.extend(taken.iter().map(|child| change(me, child, done("x"))));
        if !parent_first {
            batch.reverse();
        }
        let outcomes = store.commit(at(2), &batch).await.expect("commit");
        assert_eq!(outcomes, vec![CommitOutcome::Committed; 3]);
        assert_eq!(inbox(&store, n).await, ["7"]);
        assert_eq!(claim_one(&store, 2, me, 3).await.id, id(n));
    }
    assert_eq!(fire_timers(&store, 500, 9).await.woken, 0, "the waits are over");
}

pub async fn a_watch_for_no_children_is_met_at_once(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let open = BranchUpdate { seal: true, watch: Some(watch_ended(0)), ..open_branch(BRANCH, "all") };
    apply(
        &store,
        1,
        with_step(change(me, &job, wait_for_signal(BRANCH_SIGNAL, None)), branch_writes(vec![open], vec![])),
    )
    .await;
    claim_woken_parent(&store, 1, me, 2).await;
}

pub async fn a_new_watch_replaces_the_one_before(store: Handle) {
    let parent = parent_with_children(&store, children(2, 4)).await;
    let me = parent.0;
    let parent = update_branches(&store, 2, &parent, vec![watch_branch(watch_ended(1))], vec![]).await;
    wait_for_watch(&store, 3, &parent, watch_ended(3)).await;
    let taken = claim_all(&store, 4, me, 2).await;
    for child in &taken[..2] {
        commit_outcome(&store, 4, me, child, done("x")).await;
    }
    assert_eq!(state(&store, id(1)).await, State::Waiting, "the first watch was replaced");
    commit_outcome(&store, 5, me, &taken[2], done("x")).await;
    let parent = claim_woken_parent(&store, 5, me, 3).await;
    let again = StepWrites {
        consumed: consume(&parent).consumed,
        ..branch_writes(vec![watch_branch(watch_ended(4))], vec![])
    };
    apply(&store, 6, with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), again)).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    commit_outcome(&store, 7, me, &taken[3], done("x")).await;
    let parent = claim_woken_parent(&store, 7, me, 4).await;
    let again = StepWrites {
        consumed: consume(&parent).consumed,
        ..branch_writes(vec![watch_branch(watch_ended(4))], vec![])
    };
    apply(&store, 8, with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), again)).await;
    claim_woken_parent(&store, 8, me, 5).await;
}

pub async fn a_repeated_commit_sends_no_second_signal(store: Handle) {
    let parent = parent_with_children(&store, children(2, 1)).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_ended(1)).await;
    let child = claim_one(&store, 3, me, 2).await;
    let last = change(me, &child, done("x"));
    for _ in 0..2 {
        assert_eq!(commit(&store, 3, last.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!(inbox(&store, 1).await, ["7"]);
    claim_woken_parent(&store, 4, me, 3).await;
}

pub async fn a_retried_child_does_not_undo_a_watch_that_was_met(store: Handle) {
    let parent = parent_with_children(&store, children(2, 2)).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_ended(2)).await;
    let taken = claim_all(&store, 3, me, 2).await;
    commit_outcome(&store, 3, me, &taken[0], failed(Reason::Stopped)).await;
    assert_eq!(act_on_job(&store, 4, 2, JobAction::Retry).await, ControlOutcome::Done);
    commit_outcome(&store, 5, me, &taken[1], done("x")).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting, "a retried child has not ended");
    let child = claim_one(&store, 6, me, 3).await;
    commit_outcome(&store, 6, me, &child, failed(Reason::Stopped)).await;
    let parent = claim_woken_parent(&store, 6, me, 4).await;
    assert_eq!(act_on_job(&store, 7, 2, JobAction::Retry).await, ControlOutcome::Done);
    let child = claim_one(&store, 7, me, 5).await;
    commit_outcome(&store, 8, me, &child, done("x")).await;
    assert_eq!((inbox(&store, 1).await, counts(&store).await), (vec!["7".to_owned()], [2, 2, 0, 0]));
    commit_outcome(&store, 9, me, &parent, done("x")).await;
}

pub async fn expired_and_cancelled_children_meet_a_watch(store: Handle) {
    let later = windlass_model::When::At(t(500));
    let mut all: Vec<_> =
        children(2, 3).into_iter().map(|child| windlass_model::NewJob { when: later, ..child }).collect();
    all[0].deadline_at = Some(t(5));
    let parent = parent_with_children(&store, all).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_unsuccessful(1)).await;
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    let parent = claim_woken_parent(&store, 5, me, 2).await;
    let again = StepWrites {
        consumed: consume(&parent).consumed,
        ..branch_writes(vec![watch_branch(watch_unsuccessful(2))], vec![])
    };
    apply(&store, 6, with_step(change(me, &parent, wait_for_signal(BRANCH_SIGNAL, None)), again)).await;
    assert_eq!(act_on_job(&store, 7, 3, cancel(0)).await, ControlOutcome::Done);
    let parent = claim_woken_parent(&store, 7, me, 3).await;
    assert_eq!(parent.due_at, t(7));
}

pub async fn the_signals_of_two_branches_name_their_branches(store: Handle) {
    let parent = parent_with_children(&store, children(2, 1)).await;
    let me = parent.0;
    let second = BranchUpdate { watch: Some(watch_ended(1)), ..open_branch(BranchNo(8), "more") };
    let step = branch_writes(vec![second, watch_branch(watch_ended(1))], vec![branch_child(3, BranchNo(8))]);
    let wait = wait_for_signals(&[&format!("{BRANCH_SIGNAL}*")], 1, None);
    apply(&store, 2, with_step(change(parent.0, &parent.1, wait), step)).await;
    let taken = claim_all(&store, 3, me, 2).await;
    let batch: Vec<_> = taken.iter().rev().map(|child| change(me, child, done("x"))).collect();
    store.commit(at(3), &batch).await.expect("commit");
    let parent = claim_one(&store, 4, me, 3).await;
    let mut signals = texts(&selected_signals(&parent));
    signals.sort();
    assert_eq!(signals, ["7", "8"]);
}

pub async fn the_watches_of_an_ended_parent_are_deleted(store: Handle) {
    let parent = parent_with_children(&store, children(2, 2)).await;
    let (me, job) = update_branches(&store, 2, &parent, vec![watch_branch(watch_ended(1))], vec![]).await;
    let taken = claim_all(&store, 2, me, 2).await;
    let last = branch_writes(vec![watch_branch(watch_ended(2))], vec![]);
    apply(&store, 3, with_step(change(me, &job, failed(Reason::Stopped)), last)).await;
    let seen = branch(&store, 1, BRANCH).await;
    assert_eq!((seen.watch, seen.cancels_children, seen.poll.next_at), (None, false, None));
    for child in &taken {
        commit_outcome(&store, 4, me, child, done("x")).await;
    }
    assert_eq!((inbox(&store, 1).await.len(), counts(&store).await), (0, [2, 2, 0, 0]));
    assert_eq!(act_on_job(&store, 5, 1, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(branch(&store, 1, BRANCH).await.watch, None, "a retried parent sets its own watch");
    let parent = (me, claim_one(&store, 5, me, 3).await);
    wait_for_watch(&store, 6, &parent, watch_ended(2)).await;
    claim_woken_parent(&store, 6, me, 4).await;
}

pub async fn a_paused_parent_gets_the_signal_and_stays_paused(store: Handle) {
    let parent = parent_with_children(&store, children(2, 1)).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_ended(1)).await;
    must_act(&store, 3, 1, JobAction::Pause).await;
    let child = claim_one(&store, 3, me, 2).await;
    commit_outcome(&store, 3, me, &child, done("x")).await;
    assert!(claim_all(&store, 4, me, 3).await.is_empty());
    assert_eq!(act_on_job(&store, 5, 1, JobAction::Resume).await, ControlOutcome::Done);
    claim_woken_parent(&store, 5, me, 4).await;
}

pub async fn a_full_inbox_still_takes_the_signal_of_a_branch(store: Handle) {
    let parent = parent_with_children(&store, children(2, 1)).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_ended(1)).await;
    let most = store.limits().inbox;
    let signals: Vec<_> = (0..most).map(|n| signal(id(1), "other", &n.to_string(), "x")).collect();
    send(&store, 2, &signals).await;
    let child = claim_one(&store, 3, me, 2).await;
    commit_outcome(&store, 3, me, &child, done("x")).await;
    claim_woken_parent(&store, 3, me, 3).await;
}

pub async fn nobody_else_may_send_the_signal_of_a_branch(store: Handle) {
    let parent = parent_with_children(&store, children(2, 1)).await;
    wait_for_watch(&store, 2, &parent, watch_ended(1)).await;
    let sent = store.signal(at(2), &[signal(id(1), BRANCH_SIGNAL, "7/1", "7")]).await;
    assert!(matches!(sent, Err(Error::Invalid(_))), "{sent:?}");
    assert_eq!(state(&store, id(1)).await, State::Waiting);
}

pub async fn a_watch_moves_the_timer_gate(store: Handle) {
    let parent = parent_with_children(&store, children(2, 1)).await;
    let before = gates(&store, &[TIMER_GATE]).await;
    wait_for_watch(&store, 2, &parent, watch_ended(1)).await;
    assert_ne!(gates(&store, &[TIMER_GATE]).await, before);
}
