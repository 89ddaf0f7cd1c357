//! A parent waits for the children that its step spawned, however they end.

use windlass_model::{CommitOutcome, NewJob, Outcome, Reason, Rev, State, SubmitOutcome, Unique, Wait};

use super::{
    children::{claim_all, park_with_children, pending},
    kit::*,
};
use crate::{ControlOutcome, JobAction, ReapRequest};

pub async fn a_parent_is_woken_when_its_last_child_ends(store: Handle) {
    let me = park_with_children(&store, &jobs(2, 3)).await;
    assert_eq!(pending(&store).await, (3, State::Waiting));
    assert_eq!(holds(&store, 1).await.waiting.expect("the job is parked").pending_children, 3);
    let children = claim_all(&store, 2, me, 2).await;
    assert_eq!(ids(&children), [2, 3, 4].map(id));
    assert!(children.iter().all(|child| child.parent == Some(id(1))));
    for (child, remaining) in children.iter().zip([2, 1, 0]) {
        assert_eq!(pending(&store).await.1, State::Waiting);
        assert_eq!(commit(&store, 3, change(me, child, done("x"))).await, CommitOutcome::Committed);
        assert_eq!(pending(&store).await.0, remaining);
    }
    let parent = claim_one(&store, 4, me, 3).await;
    assert_eq!((parent.id, parent.due_at, parent.pending_children), (id(1), t(3), 0));
    assert_eq!(parent.wait, Some(windlass_model::WaitCondition::Children { rev: Rev(1) }));
    assert!(claim_all(&store, 4, me, 4).await.is_empty(), "the parent is woken once");
}

pub async fn a_child_counts_as_ended_however_it_ends(store: Handle) {
    let mut children = jobs(2, 8);
    children[3].deadline_at = Some(t(5));
    children[4].when = windlass_model::When::At(t(500));
    let named = |mut job: NewJob| {
        job.settings.unique = Some(Box::new(Unique::new("name").or_replace()));
        job
    };
    children[6] = named(children[6].clone());
    let me = park_with_children(&store, &children).await;
    let mut remaining = 8;
    let mut ended = async |what: &str| {
        remaining -= 1;
        let state = if remaining == 0 { State::Ready } else { State::Waiting };
        assert_eq!(pending(&store).await, (remaining, state), "{what}");
    };
    // The last child is claimed by a worker of its own, whose death makes it a suspect.
    let (two, three) = (worker(&store, 2).await, worker(&store, 3).await);
    must_act(&store, 2, 9, JobAction::Priority(-50)).await;
    assert_eq!(claim_one(&store, 2, two, 1).await.id, id(9));
    let taken = claim_all(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [2, 3, 4, 5, 7, 8].map(id));
    apply(&store, 3, change(me, &taken[0], done("x"))).await;
    ended("done").await;
    apply(&store, 3, change(me, &taken[1], failed(Reason::Stopped))).await;
    ended("failed").await;
    apply(&store, 3, change(me, &taken[2], cancelled())).await;
    ended("cancelled by its own attempt").await;
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    ended("expired").await;
    assert_eq!(act_on_job(&store, 6, 6, cancel(9)).await, ControlOutcome::Done);
    ended("cancelled while scheduled").await;
    assert_eq!(act_on_job(&store, 6, 7, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(fire_timers(&store, 6, 9).await.cancelled, 1);
    ended("cancelled when the grace period was over").await;
    store.release(at(7), &[job_claim(me, &taken[5])]).await.expect("release");
    let outcomes = store.submit(at(7), &[named(job(50))], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::Replaced { id: id(8) }]);
    ended("replaced").await;
    reap(&store, 8, two).await;
    assert_eq!(claim(&store, at(8), &solo_claim_request(three, 1)).await[0].id, id(9));
    let request = ReapRequest { dead: vec![three], lapsed: false, limit: 9, max_crashes: 1 };
    assert_eq!(store.reap(at(9), &request).await.expect("reap").poisoned, 1);
    ended("poisoned").await;
    assert_eq!(store.repair(at(9)).await.expect("repair"), 0);
}

pub async fn a_parent_may_end_in_the_batch_that_wakes_it(store: Handle) {
    let me = worker(&store, 1).await;
    let first = NewJob { deadline_at: Some(t(6)), ..job(1) };
    submit(&store, &[first, job(20)]).await;
    let taken = claim_all(&store, 0, me, 1).await;
    let child = |n| NewJob { deadline_at: Some(t(5)), ..job(n) };
    let timeout = Some(secs(600));
    for (parent, n) in taken.iter().zip([2, 21]) {
        let Outcome::Wait(wait) = wait_for_children(parent) else { unreachable!("it is a wait") };
        let wait = Outcome::Wait(windlass_model::Wait { timeout, ..wait });
        apply(&store, 1, with_step(change(me, parent, wait), spawn_children(&[child(n)]))).await;
    }
    assert_eq!(act_on_job(&store, 2, 20, JobAction::Priority(3)).await, ControlOutcome::Done);
    let fired = fire_timers(&store, 10, 99).await;
    assert_eq!((fired.expired, fired.woken), (3, 0), "both children, and the first parent");
    assert_eq!((pending(&store).await, state(&store, id(20)).await), ((0, State::Failed), State::Ready));
    assert_eq!(ids(&claim_all(&store, 11, me, 2).await), [id(20)], "an ended job is not claimed");
    assert_eq!(fire_timers(&store, 5_000, 99).await.next_at, None);
}

pub async fn a_wait_for_no_children_ends_at_once(store: Handle) {
    let me = park_with_children(&store, &[]).await;
    assert_eq!(pending(&store).await, (0, State::Ready));
    let parent = claim_one(&store, 2, me, 2).await;
    assert_eq!((parent.due_at, parent.rev), (t(1), Rev(1)));
    // The same if none of the children is put in.
    let with_key = |n| NewJob { key: Some("k".into()), ..job(n) };
    submit(&store, &[with_key(20)]).await;
    let same = [with_key(21), job(20)];
    apply(&store, 3, with_step(change(me, &parent, wait_for_children(&parent)), spawn_children(&same))).await;
    assert_eq!(pending(&store).await, (0, State::Ready));
}

pub async fn a_wait_is_for_the_children_of_its_own_step(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    let wait = Outcome::Wait(Wait { timeout: Some(secs(10)), ..wait_of(wait_for_children(&first)) });
    apply(&store, 1, with_step(change(me, &first, wait), spawn_children(&jobs(2, 2)))).await;
    assert_eq!(pending(&store).await, (2, State::Waiting));
    let late = claim_all(&store, 2, me, 2).await;
    assert_eq!(
        fire_timers(&store, 11, 9).await.woken,
        1,
        "the timeout passes before the children have ended"
    );
    let second = claim_one(&store, 11, me, 3).await;
    assert_eq!(second.pending_children, 2);
    apply(
        &store,
        12,
        with_step(change(me, &second, wait_for_children(&second)), spawn_children(&jobs(4, 1))),
    )
    .await;
    assert_eq!(
        pending(&store).await,
        (1, State::Waiting),
        "children of an earlier step are no longer waited for"
    );
    apply(&store, 13, change(me, &late[0], done("x"))).await;
    assert_eq!(pending(&store).await, (1, State::Waiting));
    let last = claim_one(&store, 14, me, 4).await;
    apply(&store, 15, change(me, &last, done("x"))).await;
    assert_eq!(pending(&store).await, (0, State::Ready));
    let third = claim_one(&store, 16, me, 5).await;
    apply(&store, 17, with_step(change(me, &third, wait_for_children(&third)), spawn_children(&[]))).await;
    assert_eq!(
        pending(&store).await,
        (0, State::Ready),
        "a wait for no children ends at once, although others run"
    );
    apply(&store, 18, change(me, &late[1], failed(Reason::Stopped))).await;
    assert_eq!(pending(&store).await, (0, State::Ready));
    assert_eq!(act_on_job(&store, 19, 3, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(pending(&store).await, (0, State::Ready), "a retried child of an earlier step does not count");
    let ends =
        async |round| store.inspect().child_ends(id(1), Rev(round), None, 9).await.expect("ends").len();
    assert_eq!((ends(1).await, ends(2).await, ends(3).await), (2, 1, 0));
}

fn wait_of(outcome: Outcome) -> Wait {
    match outcome {
        Outcome::Wait(wait) => wait,
        other => panic!("{other:?} is no wait"),
    }
}

pub async fn children_that_ended_before_the_wait_end_it_at_once(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    apply(&store, 1, with_step(change(me, &first, Outcome::Next), spawn_children(&jobs(2, 1)))).await;
    let child = claim_one(&store, 2, me, 2).await;
    apply(&store, 2, change(me, &child, done("x"))).await;
    apply(&store, 3, change(me, &after_step(&first), wait_for_children(&after_step(&first)))).await;
    assert_eq!(pending(&store).await, (0, State::Ready));
}

pub async fn a_wait_for_children_may_time_out(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    let Outcome::Wait(wait) = wait_for_children(&first) else { unreachable!("it is a wait") };
    let wait = Outcome::Wait(windlass_model::Wait { timeout: Some(secs(9)), ..wait });
    apply(&store, 1, with_step(change(me, &first, wait), spawn_children(&jobs(2, 1)))).await;
    let child = claim_one(&store, 2, me, 2).await;
    assert_eq!(fire_timers(&store, 10, 9).await.woken, 1);
    let parent = claim_one(&store, 10, me, 3).await;
    assert_eq!((parent.pending_children, parent.wait_until), (1, Some(t(10))));
    apply(&store, 11, change(me, &child, done("x"))).await;
    assert_eq!(pending(&store).await, (0, State::Running), "the end is counted and wakes nobody");
    assert_eq!(commit(&store, 12, change(me, &parent, done("x"))).await, CommitOutcome::Committed);
}

pub async fn a_retried_child_is_waited_for_again(store: Handle) {
    let me = park_with_children(&store, &jobs(2, 2)).await;
    let children = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &children[0], failed(Reason::Stopped))).await;
    assert_eq!(act_on_job(&store, 4, 2, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(pending(&store).await, (2, State::Waiting));
    apply(&store, 5, change(me, &children[1], done("x"))).await;
    assert_eq!(pending(&store).await, (1, State::Waiting));
    let again = claim_one(&store, 5, me, 3).await;
    assert_eq!((again.id, again.parent), (id(2), Some(id(1))));
    apply(&store, 6, change(me, &again, failed(Reason::Stopped))).await;
    assert_eq!(pending(&store).await, (0, State::Ready));
    let parent = claim_one(&store, 6, me, 4).await;
    must_act(&store, 7, 2, JobAction::Retry).await;
    assert_eq!(pending(&store).await, (1, State::Running));
    assert_eq!(commit(&store, 8, change(me, &parent, done("x"))).await, CommitOutcome::Committed);
    let last = claim_one(&store, 8, me, 5).await;
    assert_eq!(
        commit(&store, 9, change(me, &last, done("x"))).await,
        CommitOutcome::Committed,
        "no parent waits"
    );
}

pub async fn a_child_that_retries_or_parks_has_not_ended(store: Handle) {
    let me = park_with_children(&store, &jobs(2, 1)).await;
    let child = claim_one(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &child, retry(secs(0), &[]))).await;
    let child = claim_one(&store, 3, me, 3).await;
    apply(&store, 4, change(me, &child, wait_for_signal("go", None))).await;
    assert_eq!(pending(&store).await, (1, State::Waiting), "a parked child has not ended either");
    assert_eq!(act_on_job(&store, 5, 2, cancel(9)).await, ControlOutcome::Done);
    assert_eq!(pending(&store).await, (0, State::Ready));
}

pub async fn grandchildren_wake_only_their_own_parent(store: Handle) {
    let me = park_with_children(&store, &jobs(2, 1)).await;
    let child = claim_one(&store, 2, me, 2).await;
    apply(&store, 3, with_step(change(me, &child, wait_for_children(&child)), spawn_children(&jobs(3, 2))))
        .await;
    let grandchildren = claim_all(&store, 4, me, 3).await;
    assert_eq!(ids(&grandchildren), [3, 4].map(id));
    for grandchild in &grandchildren {
        apply(&store, 5, change(me, grandchild, done("x"))).await;
    }
    assert_eq!(pending(&store).await, (1, State::Waiting), "the child itself has not ended");
    let child = claim_one(&store, 6, me, 4).await;
    assert_eq!((child.id, child.parent), (id(2), Some(id(1))));
    apply(&store, 7, change(me, &child, done("x"))).await;
    assert_eq!(claim_one(&store, 7, me, 5).await.id, id(1));
}

pub async fn one_batch_may_end_all_children(store: Handle) {
    let me = park_with_children(&store, &jobs(2, 5)).await;
    let children = claim_all(&store, 2, me, 2).await;
    let changes: Vec<_> = children.iter().map(|child| change(me, child, done("x"))).collect();
    assert_eq!(store.commit(at(3), &changes).await.expect("commit"), vec![CommitOutcome::Committed; 5]);
    assert_eq!(pending(&store).await, (0, State::Ready));
    assert_eq!(store.commit(at(3), &changes).await.expect("commit"), vec![CommitOutcome::Committed; 5]);
    assert_eq!(pending(&store).await, (0, State::Ready), "a repeated commit counts nothing");
    assert_eq!(ids(&claim_all(&store, 4, me, 3).await), [id(1)]);
}
