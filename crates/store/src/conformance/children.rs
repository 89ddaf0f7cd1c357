//! Children that a step spawns: which are put in, how they are listed, and how long they are kept.

use windlass_model::{
    BranchNo, ClaimedJob, CommitOutcome, JobId, NewJob, Outcome, Reason, Rev, State, StepWrites, Unique,
    WorkerId,
};

use super::kit::*;
use crate::{ChildEnd, ChildGroup, JobEnd, PayloadsOf};

/// Claims job 1 and commits a step that spawns children and waits for them.
pub(super) async fn park_with_children(store: &Handle, children: &[NewJob]) -> WorkerId {
    let (me, job) = running_job(store, 1).await;
    assert_eq!(
        commit(store, 1, with_step(change(me, &job, wait_for_children(&job)), spawn_children(children)))
            .await,
        CommitOutcome::Committed
    );
    me
}

/// How many children job 1 waits for, and its state.
pub(super) async fn pending(store: &Handle) -> (u32, State) {
    let seen = view(store, id(1)).await;
    (seen.pending_children, seen.summary.state)
}

/// Claims every ready job.
pub(super) async fn claim_all(store: &Handle, now: u64, me: WorkerId, number: i64) -> Vec<ClaimedJob> {
    claim(store, at(now), &claim_request(me, number, 99)).await
}

pub async fn children_whose_inputs_together_exceed_the_limit_are_refused(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 2)).await;
    let taken = claim(&store, at(0), &claim_request(me, 1, 2)).await;
    let large = || windlass_model::Payload::json(vec![b'1'; store.limits().payload]);
    let many = store.limits().step as u32 / store.limits().payload as u32 + 1;
    let children: Vec<_> = (10..10 + many).map(|n| NewJob { input: large(), ..job(n) }).collect();
    let batch = [
        with_step(change(me, &taken[0], Outcome::Next), spawn_children(&children)),
        change(me, &taken[1], done("valid")),
    ];
    let outcomes = store.commit(at(1), &batch).await.expect("commit");
    let CommitOutcome::Refused(why) = &outcomes[0] else { panic!("{:?}", outcomes[0]) };
    assert!(why.contains("the payloads of one step have") && why.contains("spread them"), "{why}");
    assert_eq!(outcomes[1], CommitOutcome::Committed);
    let fewer = with_step(change(me, &taken[0], Outcome::Next), spawn_children(&children[..2]));
    assert_eq!(commit(&store, 2, fewer).await, CommitOutcome::Committed);
}

pub async fn children_that_are_not_put_in_are_not_waited_for(store: Handle) {
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
    let me = park_with_children(&store, &children).await;
    assert_eq!(pending(&store).await, (3, State::Waiting), "2, 6 and 7; 5 was replaced by 6");
    assert_eq!(state(&store, id(5)).await, State::Cancelled);
    let taken = claim_all(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [2, 6, 7].map(id));
    for child in &taken {
        apply(&store, 3, change(me, child, done("x"))).await;
    }
    assert_eq!(pending(&store).await, (0, State::Ready));
    let ends = store.inspect().child_ends(id(1), Rev(1), None, 99).await.expect("ends");
    assert_eq!(ends.iter().map(|child| child.id).collect::<Vec<_>>(), [2, 5, 6, 7].map(id));
}

pub async fn a_child_does_not_take_the_unique_name_of_its_parent(store: Handle) {
    let named = |n: u32| {
        let mut new = job(n);
        new.settings.unique = Some(Box::new(Unique::new("name").or_replace()));
        new
    };
    submit(&store, &[named(1)]).await;
    let me = worker(&store, 1).await;
    let first = claim_one(&store, 1, me, 1).await;
    apply(&store, 2, with_step(change(me, &first, retry(secs(0), &[])), spawn_children(&[named(2)]))).await;
    assert_eq!(state(&store, id(1)).await, State::Ready, "the parent still holds its unique name");
    let again = claim_one(&store, 3, me, 2).await;
    apply(&store, 4, with_step(change(me, &again, wait_for_signal("go", None)), spawn_children(&[named(3)])))
        .await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    assert_eq!(list(&store, all_jobs()).await.len(), 1);
}

pub async fn a_fenced_step_spawns_nothing(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    store.release(at(1), &[job_claim(me, &first)]).await.expect("release");
    let stale = with_step(change(me, &first, wait_for_children(&first)), spawn_children(&jobs(2, 3)));
    assert_eq!(commit(&store, 2, stale).await, CommitOutcome::Fenced);
    assert_eq!((pending(&store).await, list(&store, all_jobs()).await.len()), ((0, State::Ready), 1));
    let second = claim_one(&store, 3, me, 2).await;
    let spawn = with_step(change(me, &second, wait_for_children(&second)), spawn_children(&jobs(2, 3)));
    for _ in 0..3 {
        assert_eq!(commit(&store, 4, spawn.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!(
        (pending(&store).await, list(&store, all_jobs()).await.len()),
        ((3, State::Waiting), 4),
        "the children are spawned once"
    );
}

pub async fn the_ends_of_children_are_listed(store: Handle) {
    let mut children = jobs(2, 4);
    children[1].key = Some("second".into());
    children[2].kind.kind = "other".into();
    let me = park_with_children(&store, &children).await;
    let submitted_directly = NewJob { parent: Some(id(1)), ..job(9) };
    store.submit(at(2), &[submitted_directly], None).await.expect("submit");
    let other = claim(
        &store,
        at(1),
        &crate::ClaimRequest { kinds: [kind("other", 1)].into(), ..claim_request(me, 2, 9) },
    )
    .await;
    apply(&store, 2, change(me, &other[0], failed(Reason::Exhausted))).await;
    let taken = claim_all(&store, 2, me, 3).await;
    let large = windlass_model::Payload { codec: 4, bytes: vec![7; 50_000] };
    apply(&store, 3, change(me, &taken[0], Outcome::Done(large.clone()))).await;
    apply(&store, 3, change(me, &taken[1], cancelled())).await;
    let ends = async |after: Option<JobId>, limit| {
        store.inspect().child_ends(id(1), Rev(1), after, limit).await.expect("ends")
    };
    let all = ends(None, 9).await;
    assert_eq!(
        all.iter().map(|child| child.id).collect::<Vec<_>>(),
        [2, 3, 4, 5].map(id),
        "9 was not spawned by the step"
    );
    let first = ChildEnd { id: id(2), kind: KIND.into(), key: None, ended: Some(JobEnd::Done(large)) };
    assert!(all[0] == first, "with the complete output");
    assert_eq!(all[1].key.as_deref(), Some("second"));
    assert!(matches!(all[1].ended, Some(JobEnd::Cancelled(_))));
    assert_eq!(all[2].kind, "other");
    assert!(matches!(all[2].ended, Some(JobEnd::Failed { reason: Reason::Exhausted, .. })));
    assert_eq!(all[3].ended, None);
    assert_eq!(ends(Some(id(2)), 2).await, all[1..3]);
    let sizes = async |after, limit| {
        let of = PayloadsOf::ChildEnds { parent: id(1), parent_rev: Rev(1), after };
        store.inspect().payload_sizes(of, limit).await.expect("sizes")
    };
    assert_eq!(sizes(None, 9).await, [50_000, 0, 0, 0]);
    assert_eq!(sizes(Some(id(2)), 2).await, [0, 0]);
}

pub async fn ended_children_are_kept_until_their_parent_ends(store: Handle) {
    let me = park_with_children(&store, &jobs(2, 2)).await;
    for child in claim_all(&store, 2, me, 2).await {
        apply(&store, 3, change(me, &child, done("x"))).await;
    }
    let prune = crate::Prune { state: State::Done, before: t(99), kind: None, after: None, limit: 99 };
    let pruned = async || {
        let pruned = store.prune(at(99), &prune).await.expect("prune");
        (pruned.jobs, pruned.kept)
    };
    assert_eq!(pruned().await, (0, 2));
    assert_eq!(store.inspect().child_ends(id(1), Rev(1), None, 9).await.expect("ends").len(), 2);
    let parent = claim_one(&store, 4, me, 3).await;
    apply(&store, 5, change(me, &parent, done("x"))).await;
    assert_eq!(pruned().await, (3, 0));
}

pub async fn children_of_an_ended_parent_still_run(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    let end = with_step(change(me, &first, done("x")), spawn_children(&jobs(2, 2)));
    assert_eq!(commit(&store, 1, end).await, CommitOutcome::Committed);
    assert_eq!(pending(&store).await, (0, State::Done), "the parent does not wait for them");
    let children = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &children[0], done("x"))).await;
    assert_eq!(pending(&store).await, (0, State::Done));
    let prune = crate::Prune { state: State::Done, before: t(99), kind: None, after: None, limit: 99 };
    assert_eq!(store.prune(at(99), &prune).await.expect("prune").jobs, 2);
    assert_eq!(
        commit(&store, 4, change(me, &children[1], done("x"))).await,
        CommitOutcome::Committed,
        "although its parent is pruned"
    );
}

pub async fn delays_serial_keys_and_signals_apply_to_children(store: Handle) {
    let later = NewJob { when: windlass_model::When::After(secs(30)), ..job(4) };
    let machine =
        NewJob { stage: Some("Begin".into()), signals: vec![signal(id(5), "go", "a", "a")], ..job(5) };
    let before = gates(&store, &[QUEUE]).await;
    let me = park_with_children(&store, &[serial_job(2, "k"), serial_job(3, "k"), later, machine]).await;
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    let taken = claim_all(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [2, 5].map(id), "3 waits for its serial key, 4 is due later");
    assert_eq!((taken[1].stage.as_deref(), inbox(&store, 5).await), (Some("Begin"), vec!["a".to_owned()]));
    assert_eq!(
        view(&store, id(4)).await.summary.due_at,
        t(31),
        "the delay counts from the commit of the step"
    );
    apply(&store, 3, change(me, &taken[0], done("x"))).await;
    assert_eq!(ids(&claim_all(&store, 3, me, 3).await), [id(3)]);
    assert_eq!(fire_timers(&store, 31, 9).await.woken, 1);
    assert_eq!(pending(&store).await, (3, State::Waiting));
}

pub async fn a_step_may_end_a_wait_and_spawn_the_next_children(store: Handle) {
    let me = park_with_children(&store, &jobs(2, 1)).await;
    let child = claim_one(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &child, done("x"))).await;
    let parent = claim_one(&store, 3, me, 3).await;
    let next = StepWrites { from_stage: Some("Begin".into()), ..spawn_children(&jobs(3, 1)) };
    apply(&store, 4, with_step(change(me, &parent, wait_for_children(&parent)), next)).await;
    assert_eq!(pending(&store).await, (1, State::Waiting));
    let child = claim_one(&store, 5, me, 4).await;
    apply(&store, 6, change(me, &child, done("x"))).await;
    let parent = claim_one(&store, 6, me, 5).await;
    assert_eq!(parent.wait, Some(windlass_model::WaitCondition::Children { rev: Rev(2) }));
}

/// The ids of job 1's live children of a group, among the newest.
async fn live_children(store: &Handle, group: ChildGroup, among: usize) -> Vec<JobId> {
    let live = store.inspect().live_children(id(1), group, among).await.expect("live children");
    for child in &live {
        assert_eq!(*child, view(store, child.id).await.summary, "lists and reads of one job agree");
    }
    live.into_iter().map(|child| child.id).collect()
}

pub async fn live_children_of_a_wait_are_listed_newest_first(store: Handle) {
    let me = park_with_children(&store, &jobs(2, 4)).await;
    // A job that was submitted with a parent is not one that the parent waits for.
    submit(&store, &[NewJob { parent: Some(id(1)), ..job(9) }]).await;
    let wait = ChildGroup::Change(Rev(1));
    assert_eq!(live_children(&store, wait, 99).await, [5, 4, 3, 2].map(id));
    assert_eq!(live_children(&store, wait, 3).await, [5, 4].map(id), "9 is among the newest three");
    assert!(live_children(&store, ChildGroup::Change(Rev(2)), 99).await.is_empty());
    assert!(live_children(&store, ChildGroup::Change(Rev::SIGNALLED), 99).await.is_empty());
    assert!(live_children(&store, ChildGroup::Branch(BranchNo(0)), 99).await.is_empty());
    let mut claimed = claim_all(&store, 2, me, 2).await;
    claimed.sort_by_key(|child| child.id);
    for (child, outcome) in claimed.iter().zip([done("x"), failed(Reason::Stopped), cancelled()]) {
        apply(&store, 3, change(me, child, outcome)).await;
    }
    assert_eq!(live_children(&store, wait, 99).await, [id(5)]);
}
