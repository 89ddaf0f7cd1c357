//! Children: a job waits for those that its step submitted, whatever becomes of them.

use windlass_model::{
    ClaimedJob, CommitOutcome, JobId, NewJob, Outcome, Reason, Rev, State, StepWrites, SubmitOutcome, Unique,
    Wait, WorkerId,
};

use super::kit::*;
use crate::{ChildEnd, ControlOutcome, JobAction, JobEnd, ReapRequest};

/// Claims the first job, and has it submit children and wait for them.
async fn waits_for(store: &Handle, children: &[NewJob]) -> WorkerId {
    let (me, job) = running_job(store, 1).await;
    assert_eq!(
        commit(store, 1, with_step(change(me, &job, wait_for_children(&job)), spawn_children(children)))
            .await,
        CommitOutcome::Committed
    );
    me
}

/// How many children the first job waits for, and where it stands.
async fn left(store: &Handle) -> (u32, State) {
    let seen = view(store, id(1)).await;
    (seen.pending, seen.summary.state)
}

/// Claims all that is ready.
async fn take(store: &Handle, now: u64, me: WorkerId, number: i64) -> Vec<ClaimedJob> {
    claim(store, at(now), &claim_request(me, number, 99)).await
}

pub async fn children_that_are_too_large_together_are_refused(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 2)).await;
    let taken = claim(&store, at(0), &claim_request(me, 1, 2)).await;
    let large = || windlass_model::Payload::json(vec![b'1'; store.limits().payload]);
    let many = store.limits().step as u32 / store.limits().payload as u32 + 1;
    let children: Vec<_> = (10..10 + many).map(|n| NewJob { input: large(), ..job(n) }).collect();
    let batch = [
        with_step(change(me, &taken[0], Outcome::Next), spawn_children(&children)),
        change(me, &taken[1], done("the other is as it should be")),
    ];
    let verdicts = store.commit(at(1), &batch).await.expect("commit");
    let CommitOutcome::Refused(why) = &verdicts[0] else { panic!("{:?}", verdicts[0]) };
    assert!(why.contains("the payloads of one step have") && why.contains("spread them"), "{why}");
    assert_eq!(verdicts[1], CommitOutcome::Committed);
    let fewer = with_step(change(me, &taken[0], Outcome::Next), spawn_children(&children[..2]));
    assert_eq!(commit(&store, 2, fewer).await, CommitOutcome::Committed);
}

pub async fn a_job_goes_on_when_its_last_child_has_ended(store: Handle) {
    let me = waits_for(&store, &jobs(2, 3)).await;
    assert_eq!(left(&store).await, (3, State::Waiting));
    assert_eq!(holds(&store, 1).await.waiting.expect("it is parked").pending, 3);
    let children = take(&store, 2, me, 2).await;
    assert_eq!(ids(&children), [2, 3, 4].map(id));
    assert!(children.iter().all(|child| child.parent == Some(id(1))));
    for (child, left_over) in children.iter().zip([2, 1, 0]) {
        assert_eq!(left(&store).await.1, State::Waiting);
        assert_eq!(commit(&store, 3, change(me, child, done("x"))).await, CommitOutcome::Committed);
        assert_eq!(left(&store).await.0, left_over);
    }
    let parent = claim_one(&store, 4, me, 3).await;
    assert_eq!((parent.id, parent.due_at, parent.pending_children), (id(1), t(3), 0));
    assert_eq!(parent.wait, Some(windlass_model::WaitCondition::Children { rev: Rev(1) }));
    assert!(take(&store, 4, me, 4).await.is_empty(), "once");
}

pub async fn every_end_of_a_child_counts(store: Handle) {
    let mut children = jobs(2, 8);
    children[3].deadline_at = Some(t(5));
    children[4].when = windlass_model::When::At(t(500));
    let named = |mut job: NewJob| {
        job.settings.unique = Some(Box::new(Unique::new("name").or_replace()));
        job
    };
    children[6] = named(children[6].clone());
    let me = waits_for(&store, &children).await;
    let mut left_over = 8;
    let mut ended = async |what: &str| {
        left_over -= 1;
        let state = if left_over == 0 { State::Ready } else { State::Waiting };
        assert_eq!(left(&store).await, (left_over, state), "{what}");
    };
    // The last one is taken alone, twice.
    let (two, three) = (worker(&store, 2).await, worker(&store, 3).await);
    act_on_job(&store, 2, 9, JobAction::Priority(-50)).await;
    assert_eq!(claim_one(&store, 2, two, 1).await.id, id(9));
    let taken = take(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [2, 3, 4, 5, 7, 8].map(id));
    commit(&store, 3, change(me, &taken[0], done("x"))).await;
    ended("done").await;
    commit(&store, 3, change(me, &taken[1], failed(Reason::Stopped))).await;
    ended("failed").await;
    commit(&store, 3, change(me, &taken[2], cancelled())).await;
    ended("cancelled by itself").await;
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    ended("expired").await;
    assert_eq!(act_on_job(&store, 6, 6, cancel(9)).await, ControlOutcome::Done);
    ended("cancelled while scheduled").await;
    assert_eq!(act_on_job(&store, 6, 7, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(fire_timers(&store, 6, 9).await.cancelled, 1);
    ended("told to end, and ended").await;
    store.release(at(7), &[job_claim(me, &taken[5])]).await.expect("release");
    let told = store.submit(at(7), &[named(job(50))], None).await.expect("submit");
    assert_eq!(told, [SubmitOutcome::Replaced { id: id(8) }]);
    ended("replaced").await;
    reap(&store, 8, two).await;
    assert_eq!(claim(&store, at(8), &solo_claim_request(three, 1)).await[0].id, id(9));
    let sweep = ReapRequest { dead: vec![three], lapsed: false, limit: 9, crashes: 1 };
    assert_eq!(store.reap(at(9), &sweep).await.expect("reap").poisoned, 1);
    ended("poisoned").await;
    assert_eq!(store.repair(at(9)).await.expect("sweep"), 0);
}

pub async fn a_parent_may_end_in_the_batch_that_wakes_it(store: Handle) {
    let me = worker(&store, 1).await;
    let first = NewJob { deadline_at: Some(t(6)), ..job(1) };
    submit(&store, &[first, job(20)]).await;
    let taken = take(&store, 0, me, 1).await;
    let child = |n| NewJob { deadline_at: Some(t(5)), ..job(n) };
    let timeout = Some(secs(600));
    for (parent, n) in taken.iter().zip([2, 21]) {
        let Outcome::Wait(wait) = wait_for_children(parent) else { unreachable!("as made") };
        let wait = Outcome::Wait(windlass_model::Wait { timeout, ..wait });
        commit(&store, 1, with_step(change(me, parent, wait), spawn_children(&[child(n)]))).await;
    }
    assert_eq!(act_on_job(&store, 2, 20, JobAction::Priority(3)).await, ControlOutcome::Done);
    let fired = fire_timers(&store, 10, 99).await;
    assert_eq!((fired.expired, fired.woken), (3, 0), "both children, and the first parent");
    assert_eq!((left(&store).await, state(&store, id(20)).await), ((0, State::Failed), State::Ready));
    assert_eq!(ids(&take(&store, 11, me, 2).await), [id(20)], "what has ended is in no place");
    assert_eq!(fire_timers(&store, 5_000, 99).await.next_at, None);
}

pub async fn a_job_with_no_child_goes_on_at_once(store: Handle) {
    let me = waits_for(&store, &[]).await;
    assert_eq!(left(&store).await, (0, State::Ready));
    let parent = claim_one(&store, 2, me, 2).await;
    assert_eq!((parent.due_at, parent.rev), (t(1), Rev(1)));
    // The same if none of them is put in.
    let with_key = |n| NewJob { key: Some("k".into()), ..job(n) };
    submit(&store, &[with_key(20)]).await;
    let same = [with_key(21), job(20)];
    commit(&store, 3, with_step(change(me, &parent, wait_for_children(&parent)), spawn_children(&same)))
        .await;
    assert_eq!(left(&store).await, (0, State::Ready));
}

pub async fn children_that_are_not_put_in_do_not_count(store: Handle) {
    let with_key = |n: u32, key: &str| NewJob { key: Some(key.into()), ..job(n) };
    let named = |n: u32, unique: Unique| {
        let mut new = job(n);
        new.settings.unique = Some(Box::new(unique));
        new
    };
    submit(&store, &[with_key(10, "k"), named(11, Unique::new("a"))]).await;
    let children = [
        job(2),
        with_key(3, "k"),
        named(4, Unique::new("a").or_reject()),
        named(5, Unique::new("b")),
        named(6, Unique::new("b").or_replace()),
        job(2),
        with_key(7, "new"),
        with_key(8, "new"),
    ];
    let worker = worker(&store, 9).await;
    claim(&store, at(0), &claim_request(worker, 1, 9)).await;
    let me = waits_for(&store, &children).await;
    assert_eq!(left(&store).await, (3, State::Waiting), "2, 6 and 7; 5 was replaced by 6");
    assert_eq!(state(&store, id(5)).await, State::Cancelled);
    let taken = take(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [2, 6, 7].map(id));
    for child in &taken {
        commit(&store, 3, change(me, child, done("x"))).await;
    }
    assert_eq!(left(&store).await, (0, State::Ready));
    let joined = store.inspect().child_ends(id(1), Rev(1), None, 99).await.expect("joined");
    assert_eq!(joined.iter().map(|child| child.id).collect::<Vec<_>>(), [2, 5, 6, 7].map(id));
}

pub async fn a_child_does_not_take_the_name_of_its_parent(store: Handle) {
    let named = |n: u32| {
        let mut new = job(n);
        new.settings.unique = Some(Box::new(Unique::new("name").or_replace()));
        new
    };
    submit(&store, &[named(1)]).await;
    let me = worker(&store, 1).await;
    let first = claim_one(&store, 1, me, 1).await;
    commit(&store, 2, with_step(change(me, &first, retry(secs(0), &[])), spawn_children(&[named(2)]))).await;
    assert_eq!(state(&store, id(1)).await, State::Ready, "it ran when it submitted it");
    let again = claim_one(&store, 3, me, 2).await;
    commit(
        &store,
        4,
        with_step(change(me, &again, wait_for_signal("go", None)), spawn_children(&[named(3)])),
    )
    .await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    assert_eq!(list(&store, all_jobs()).await.len(), 1);
}

pub async fn a_fenced_step_submits_nothing(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    store.release(at(1), &[job_claim(me, &first)]).await.expect("release");
    let stale = with_step(change(me, &first, wait_for_children(&first)), spawn_children(&jobs(2, 3)));
    assert_eq!(commit(&store, 2, stale).await, CommitOutcome::Fenced);
    assert_eq!((left(&store).await, list(&store, all_jobs()).await.len()), ((0, State::Ready), 1));
    let second = claim_one(&store, 3, me, 2).await;
    let bears = with_step(change(me, &second, wait_for_children(&second)), spawn_children(&jobs(2, 3)));
    for _ in 0..3 {
        assert_eq!(commit(&store, 4, bears.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!((left(&store).await, list(&store, all_jobs()).await.len()), ((3, State::Waiting), 4), "once");
}

pub async fn a_wait_is_for_the_children_of_its_own_step(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    let wait = Outcome::Wait(Wait { timeout: Some(secs(10)), ..wait_of(wait_for_children(&first)) });
    commit(&store, 1, with_step(change(me, &first, wait), spawn_children(&jobs(2, 2)))).await;
    assert_eq!(left(&store).await, (2, State::Waiting));
    let stragglers = take(&store, 2, me, 2).await;
    assert_eq!(fire_timers(&store, 11, 9).await.woken, 1, "its time is over before they have ended");
    let second = claim_one(&store, 11, me, 3).await;
    assert_eq!(second.pending_children, 2);
    commit(
        &store,
        12,
        with_step(change(me, &second, wait_for_children(&second)), spawn_children(&jobs(4, 1))),
    )
    .await;
    assert_eq!(left(&store).await, (1, State::Waiting), "those of an earlier step are waited for no longer");
    commit(&store, 13, change(me, &stragglers[0], done("x"))).await;
    assert_eq!(left(&store).await, (1, State::Waiting));
    let last = claim_one(&store, 14, me, 4).await;
    commit(&store, 15, change(me, &last, done("x"))).await;
    assert_eq!(left(&store).await, (0, State::Ready));
    let third = claim_one(&store, 16, me, 5).await;
    commit(&store, 17, with_step(change(me, &third, wait_for_children(&third)), spawn_children(&[]))).await;
    assert_eq!(left(&store).await, (0, State::Ready), "none are not waited for, whoever else still runs");
    commit(&store, 18, change(me, &stragglers[1], failed(Reason::Stopped))).await;
    assert_eq!(left(&store).await, (0, State::Ready));
    assert_eq!(act_on_job(&store, 19, 3, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(left(&store).await, (0, State::Ready), "nor one that is tried again");
    let joined =
        async |round| store.inspect().child_ends(id(1), Rev(round), None, 9).await.expect("joined").len();
    assert_eq!((joined(1).await, joined(2).await, joined(3).await), (2, 1, 0));
}

fn wait_of(outcome: Outcome) -> Wait {
    match outcome {
        Outcome::Wait(wait) => wait,
        other => panic!("{other:?} is no wait"),
    }
}

pub async fn children_that_ended_before_the_wait_end_it_at_once(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    commit(&store, 1, with_step(change(me, &first, Outcome::Next), spawn_children(&jobs(2, 1)))).await;
    let child = claim_one(&store, 2, me, 2).await;
    commit(&store, 2, change(me, &child, done("x"))).await;
    commit(&store, 3, change(me, &after_step(&first), wait_for_children(&after_step(&first)))).await;
    assert_eq!(left(&store).await, (0, State::Ready));
}

pub async fn a_wait_for_children_has_an_end_too(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    let Outcome::Wait(wait) = wait_for_children(&first) else { unreachable!("as made") };
    let wait = Outcome::Wait(windlass_model::Wait { timeout: Some(secs(9)), ..wait });
    commit(&store, 1, with_step(change(me, &first, wait), spawn_children(&jobs(2, 1)))).await;
    let child = claim_one(&store, 2, me, 2).await;
    assert_eq!(fire_timers(&store, 10, 9).await.woken, 1);
    let parent = claim_one(&store, 10, me, 3).await;
    assert_eq!((parent.pending_children, parent.wait_until), (1, Some(t(10))));
    commit(&store, 11, change(me, &child, done("x"))).await;
    assert_eq!(left(&store).await, (0, State::Running), "its end is counted, and wakes nobody");
    assert_eq!(commit(&store, 12, change(me, &parent, done("x"))).await, CommitOutcome::Committed);
}

pub async fn a_child_that_is_tried_again_counts_again(store: Handle) {
    let me = waits_for(&store, &jobs(2, 2)).await;
    let children = take(&store, 2, me, 2).await;
    commit(&store, 3, change(me, &children[0], failed(Reason::Stopped))).await;
    assert_eq!(act_on_job(&store, 4, 2, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(left(&store).await, (2, State::Waiting));
    commit(&store, 5, change(me, &children[1], done("x"))).await;
    assert_eq!(left(&store).await, (1, State::Waiting));
    let again = claim_one(&store, 5, me, 3).await;
    assert_eq!((again.id, again.parent), (id(2), Some(id(1))));
    commit(&store, 6, change(me, &again, failed(Reason::Stopped))).await;
    assert_eq!(left(&store).await, (0, State::Ready));
    let parent = claim_one(&store, 6, me, 4).await;
    act_on_job(&store, 7, 2, JobAction::Retry).await;
    assert_eq!(left(&store).await, (1, State::Running));
    assert_eq!(commit(&store, 8, change(me, &parent, done("x"))).await, CommitOutcome::Committed);
    let last = claim_one(&store, 8, me, 5).await;
    assert_eq!(
        commit(&store, 9, change(me, &last, done("x"))).await,
        CommitOutcome::Committed,
        "nobody waits"
    );
}

pub async fn a_retried_child_is_not_an_ended_one(store: Handle) {
    let me = waits_for(&store, &jobs(2, 1)).await;
    let child = claim_one(&store, 2, me, 2).await;
    commit(&store, 3, change(me, &child, retry(secs(0), &[]))).await;
    let child = claim_one(&store, 3, me, 3).await;
    commit(&store, 4, change(me, &child, wait_for_signal("go", None))).await;
    assert_eq!(left(&store).await, (1, State::Waiting), "nor is a parked one");
    assert_eq!(act_on_job(&store, 5, 2, cancel(9)).await, ControlOutcome::Done);
    assert_eq!(left(&store).await, (0, State::Ready));
}

pub async fn grandchildren_wake_their_parents_one_after_the_other(store: Handle) {
    let me = waits_for(&store, &jobs(2, 1)).await;
    let child = claim_one(&store, 2, me, 2).await;
    commit(&store, 3, with_step(change(me, &child, wait_for_children(&child)), spawn_children(&jobs(3, 2))))
        .await;
    let grandchildren = take(&store, 4, me, 3).await;
    assert_eq!(ids(&grandchildren), [3, 4].map(id));
    for grandchild in &grandchildren {
        commit(&store, 5, change(me, grandchild, done("x"))).await;
    }
    assert_eq!(left(&store).await, (1, State::Waiting), "its own child has not ended");
    let child = claim_one(&store, 6, me, 4).await;
    assert_eq!((child.id, child.parent), (id(2), Some(id(1))));
    commit(&store, 7, change(me, &child, done("x"))).await;
    assert_eq!(claim_one(&store, 7, me, 5).await.id, id(1));
}

pub async fn one_batch_may_end_all_children_and_their_children(store: Handle) {
    let me = waits_for(&store, &jobs(2, 5)).await;
    let children = take(&store, 2, me, 2).await;
    let changes: Vec<_> = children.iter().map(|child| change(me, child, done("x"))).collect();
    assert_eq!(store.commit(at(3), &changes).await.expect("commit"), vec![CommitOutcome::Committed; 5]);
    assert_eq!(left(&store).await, (0, State::Ready));
    assert_eq!(store.commit(at(3), &changes).await.expect("commit"), vec![CommitOutcome::Committed; 5]);
    assert_eq!(left(&store).await, (0, State::Ready), "a lost answer counts for nothing");
    assert_eq!(ids(&take(&store, 4, me, 3).await), [id(1)]);
}

pub async fn how_children_ended_is_told(store: Handle) {
    let mut children = jobs(2, 4);
    children[1].key = Some("second".into());
    children[2].kind.kind = "other".into();
    let me = waits_for(&store, &children).await;
    let stranger = NewJob { parent: Some(id(1)), ..job(9) };
    store.submit(at(2), &[stranger], None).await.expect("submit");
    let other = claim(
        &store,
        at(1),
        &crate::ClaimRequest { kinds: [kind("other", 1)].into(), ..claim_request(me, 2, 9) },
    )
    .await;
    commit(&store, 2, change(me, &other[0], failed(Reason::Exhausted))).await;
    let taken = take(&store, 2, me, 3).await;
    let large = windlass_model::Payload { codec: 4, bytes: vec![7; 50_000] };
    commit(&store, 3, change(me, &taken[0], Outcome::Done(large.clone()))).await;
    commit(&store, 3, change(me, &taken[1], cancelled())).await;
    let joined = async |after: Option<JobId>, limit| {
        store.inspect().child_ends(id(1), Rev(1), after, limit).await.expect("joined")
    };
    let all = joined(None, 9).await;
    assert_eq!(
        all.iter().map(|child| child.id).collect::<Vec<_>>(),
        [2, 3, 4, 5].map(id),
        "9 is nobody's business"
    );
    let first = ChildEnd { id: id(2), kind: KIND.into(), key: None, ended: Some(JobEnd::Done(large)) };
    assert!(all[0] == first, "its output is told whole");
    assert_eq!(all[1].key.as_deref(), Some("second"));
    assert!(matches!(all[1].ended, Some(JobEnd::Cancelled(_))));
    assert_eq!(all[2].kind, "other");
    assert!(matches!(all[2].ended, Some(JobEnd::Failed { reason: Reason::Exhausted, .. })));
    assert_eq!(all[3].ended, None);
    assert_eq!(joined(Some(id(2)), 2).await, all[1..3]);
}

pub async fn children_are_kept_while_their_parent_lives(store: Handle) {
    let me = waits_for(&store, &jobs(2, 2)).await;
    for child in take(&store, 2, me, 2).await {
        commit(&store, 3, change(me, &child, done("x"))).await;
    }
    let prune = crate::Prune { state: State::Done, before: t(99), kind: None, after: None, limit: 99 };
    let pruned = async || {
        let pruned = store.prune(at(99), &prune).await.expect("prune");
        (pruned.jobs, pruned.kept)
    };
    assert_eq!(pruned().await, (0, 2));
    assert_eq!(store.inspect().child_ends(id(1), Rev(1), None, 9).await.expect("joined").len(), 2);
    let parent = claim_one(&store, 4, me, 3).await;
    commit(&store, 5, change(me, &parent, done("x"))).await;
    assert_eq!(pruned().await, (3, 0));
}

pub async fn children_of_an_ended_parent_end_alone(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    let end = with_step(change(me, &first, done("x")), spawn_children(&jobs(2, 2)));
    assert_eq!(commit(&store, 1, end).await, CommitOutcome::Committed);
    assert_eq!(left(&store).await, (0, State::Done), "nobody waits for them");
    let children = take(&store, 2, me, 2).await;
    commit(&store, 3, change(me, &children[0], done("x"))).await;
    assert_eq!(left(&store).await, (0, State::Done));
    let prune = crate::Prune { state: State::Done, before: t(99), kind: None, after: None, limit: 99 };
    assert_eq!(store.prune(at(99), &prune).await.expect("prune").jobs, 2);
    assert_eq!(
        commit(&store, 4, change(me, &children[1], done("x"))).await,
        CommitOutcome::Committed,
        "though it is gone"
    );
}

pub async fn children_take_their_places_like_others(store: Handle) {
    let later = NewJob { when: windlass_model::When::After(secs(30)), ..job(4) };
    let machine =
        NewJob { stage: Some("Begin".into()), signals: vec![signal(id(5), "go", "a", "a")], ..job(5) };
    let before = gates(&store, &[QUEUE]).await;
    let me = waits_for(&store, &[serial_job(2, "k"), serial_job(3, "k"), later, machine]).await;
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    let taken = take(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [2, 5].map(id), "3 is in line, 4 due later");
    assert_eq!((taken[1].stage.as_deref(), inbox(&store, 5).await), (Some("Begin"), vec!["a".to_owned()]));
    assert_eq!(view(&store, id(4)).await.summary.due_at, t(31), "from the step on");
    commit(&store, 3, change(me, &taken[0], done("x"))).await;
    assert_eq!(ids(&take(&store, 3, me, 3).await), [id(3)]);
    assert_eq!(fire_timers(&store, 31, 9).await.woken, 1);
    assert_eq!(left(&store).await, (3, State::Waiting));
}

pub async fn a_step_may_end_a_wait_and_bear_the_next_children(store: Handle) {
    let me = waits_for(&store, &jobs(2, 1)).await;
    let child = claim_one(&store, 2, me, 2).await;
    commit(&store, 3, change(me, &child, done("x"))).await;
    let parent = claim_one(&store, 3, me, 3).await;
    let next = StepWrites { from_stage: Some("Begin".into()), ..spawn_children(&jobs(3, 1)) };
    commit(&store, 4, with_step(change(me, &parent, wait_for_children(&parent)), next)).await;
    assert_eq!(left(&store).await, (1, State::Waiting));
    let child = claim_one(&store, 5, me, 4).await;
    commit(&store, 6, change(me, &child, done("x"))).await;
    let parent = claim_one(&store, 6, me, 5).await;
    assert_eq!(parent.wait, Some(windlass_model::WaitCondition::Children { rev: Rev(2) }));
}
