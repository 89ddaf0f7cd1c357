//! Children whose ends send their parent a signal.

use windlass_model::{
    ClaimedJob, CommitOutcome, NewJob, Outcome, Reason, State, StepWrites, SubmitOutcome, Unique, Wait,
    WaitCondition, WorkerId, wait::CHILD_SIGNAL,
};

use super::kit::*;
use crate::{ControlOutcome, Error, JobAction, ReapRequest};

/// A step that spawns children whose ends send a signal.
fn spawn_signalling(children: &[NewJob]) -> StepWrites {
    StepWrites { signal_child_ends: true, children: children.to_vec(), ..StepWrites::default() }
}

/// Claims job 1 and commits a step that spawns such children; job 1 runs on.
async fn running_parent(store: &Handle, children: &[NewJob]) -> (WorkerId, ClaimedJob) {
    let (me, job) = running_job(store, 1).await;
    let step = with_step(change(me, &job, Outcome::Next), spawn_signalling(children));
    assert_eq!(commit(store, 1, step).await, CommitOutcome::Committed);
    (me, after_step(&job))
}

/// The same, and parks job 1 until one of them has ended.
async fn parked_parent(store: &Handle, children: &[NewJob]) -> WorkerId {
    let (me, job) = running_parent(store, children).await;
    assert_eq!(
        commit(store, 1, change(me, &job, wait_for_signal(CHILD_SIGNAL, None))).await,
        CommitOutcome::Committed
    );
    me
}

/// The payload of the signal about the `n`th job.
fn child_payload(n: u32) -> String {
    format!("\"{}\"", id(n))
}

/// Claims every ready job.
async fn claim_all(store: &Handle, now: u64, me: WorkerId, number: i64) -> Vec<ClaimedJob> {
    claim(store, at(now), &claim_request(me, number, 99)).await
}

pub async fn a_parked_parent_is_woken_by_the_end_of_a_child(store: Handle) {
    let me = parked_parent(&store, &jobs(2, 2)).await;
    let children = claim_all(&store, 2, me, 2).await;
    assert!(children.iter().all(|child| child.parent == Some(id(1))));
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    apply(&store, 3, change(me, &children[1], done("x"))).await;
    let parent = claim_one(&store, 4, me, 3).await;
    assert_eq!((parent.id, parent.due_at, parent.pending_children), (id(1), t(3), 0));
    let [signal] = &parent.inbox[..] else { panic!("{:?}", parent.inbox) };
    assert_eq!((signal.name.as_str(), signal.at), (CHILD_SIGNAL, t(3)));
    assert_eq!(signal.payload, payload(&child_payload(3)));
    let step = with_step(change(me, &parent, wait_for_signal(CHILD_SIGNAL, None)), consume(&parent));
    apply(&store, 5, step).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting, "the first signal was consumed");
    apply(&store, 6, change(me, &children[0], failed(Reason::Stopped))).await;
    let parent = claim_one(&store, 6, me, 4).await;
    assert_eq!(texts(&parent.inbox), [child_payload(2)]);
    assert_eq!(store.repair(at(7)).await.expect("repair"), 0);
}

pub async fn a_signal_sent_before_the_wait_is_not_lost(store: Handle) {
    let (me, job) = running_parent(&store, &jobs(2, 2)).await;
    for child in claim_all(&store, 2, me, 2).await {
        apply(&store, 2, change(me, &child, done("x"))).await;
    }
    assert_eq!(
        inbox(&store, 1).await,
        [child_payload(2), child_payload(3)],
        "a running parent gets the signals too"
    );
    apply(&store, 3, change(me, &job, wait_for_signals(&[&format!("{CHILD_SIGNAL}*")], 1, None))).await;
    let parent = claim_one(&store, 3, me, 3).await;
    assert_eq!(texts(&selected_signals(&parent)), [child_payload(2), child_payload(3)]);
}

pub async fn one_batch_may_end_a_child_and_park_its_parent(store: Handle) {
    for (n, parent_first) in [(1, true), (11, false)] {
        let (me, job) = running_job(&store, n).await;
        apply(&store, 1, with_step(change(me, &job, Outcome::Next), spawn_signalling(&[self::job(n + 1)])))
            .await;
        let child = claim_one(&store, 1, me, 2).await;
        let mut batch = vec![
            change(me, &after_step(&job), wait_for_signal(CHILD_SIGNAL, Some(secs(99)))),
            change(me, &child, done("x")),
        ];
        if !parent_first {
            batch.reverse();
        }
        let outcomes = store.commit(at(2), &batch).await.expect("commit");
        assert_eq!(outcomes, [CommitOutcome::Committed, CommitOutcome::Committed]);
        assert_eq!(state(&store, id(n)).await, State::Ready);
        assert_eq!(claim_one(&store, 2, me, 3).await.id, id(n));
    }
    assert_eq!(fire_timers(&store, 500, 9).await.woken, 0, "the waits are over");
}

pub async fn one_batch_may_end_a_child_and_its_parent(store: Handle) {
    for (n, child_first) in [(1, true), (11, false)] {
        let (me, job) = running_job(&store, n).await;
        apply(&store, 1, with_step(change(me, &job, Outcome::Next), spawn_signalling(&[self::job(n + 1)])))
            .await;
        let child = claim_one(&store, 1, me, 2).await;
        let mut batch = vec![change(me, &child, done("x")), change(me, &after_step(&job), done("y"))];
        if !child_first {
            batch.reverse();
        }
        let outcomes = store.commit(at(2), &batch).await.expect("commit");
        assert_eq!(outcomes, [CommitOutcome::Committed, CommitOutcome::Committed]);
        let signals = if child_first { vec![child_payload(n + 1)] } else { Vec::new() };
        assert_eq!(inbox(&store, n).await, signals, "an ended parent gets no signal");
    }
}

pub async fn a_child_sends_a_signal_however_it_ends(store: Handle) {
    let mut children = jobs(2, 8);
    children[3].deadline_at = Some(t(5));
    children[4].when = windlass_model::When::At(t(500));
    let named = |mut job: NewJob| {
        job.settings.unique = Some(Box::new(Unique::new("name").or_replace()));
        job
    };
    children[6] = named(children[6].clone());
    let (me, _) = running_parent(&store, &children).await;
    let mut signals = Vec::new();
    let mut ended = async |n: u32, what: &str| {
        signals.push(child_payload(n));
        assert_eq!(inbox(&store, 1).await, signals, "{what}");
    };
    // The last child is claimed by a worker of its own, whose death makes it a suspect.
    let (two, three) = (worker(&store, 2).await, worker(&store, 3).await);
    must_act(&store, 2, 9, JobAction::Priority(-50)).await;
    assert_eq!(claim_one(&store, 2, two, 1).await.id, id(9));
    let taken = claim_all(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [2, 3, 4, 5, 7, 8].map(id));
    apply(&store, 3, change(me, &taken[0], done("x"))).await;
    ended(2, "done").await;
    apply(&store, 3, change(me, &taken[1], failed(Reason::Stopped))).await;
    ended(3, "failed").await;
    apply(&store, 3, change(me, &taken[2], cancelled())).await;
    ended(4, "cancelled by its own attempt").await;
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    ended(5, "expired").await;
    assert_eq!(act_on_job(&store, 6, 6, cancel(9)).await, ControlOutcome::Done);
    ended(6, "cancelled while scheduled").await;
    assert_eq!(act_on_job(&store, 6, 7, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(fire_timers(&store, 6, 9).await.cancelled, 1);
    ended(7, "cancelled when the grace period was over").await;
    store.release(at(7), &[job_claim(me, &taken[5])]).await.expect("release");
    let outcomes = store.submit(at(7), &[named(job(50))], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::Replaced { id: id(8) }]);
    ended(8, "replaced").await;
    reap(&store, 8, two).await;
    assert_eq!(claim(&store, at(8), &solo_claim_request(three, 1)).await[0].id, id(9));
    let request = ReapRequest { dead: vec![three], lapsed: false, limit: 9, max_crashes: 1 };
    assert_eq!(store.reap(at(9), &request).await.expect("reap").poisoned, 1);
    ended(9, "poisoned").await;
}

pub async fn a_child_that_retries_parks_or_is_released_sends_no_signal(store: Handle) {
    let (me, _) = running_parent(&store, &[job(2)]).await;
    let child = claim_one(&store, 2, me, 2).await;
    apply(&store, 2, change(me, &child, retry(secs(0), &[]))).await;
    let child = claim_one(&store, 3, me, 3).await;
    apply(&store, 3, change(me, &child, wait_for_signal("go", None))).await;
    send(&store, 4, &[signal(id(2), "go", "1", "x")]).await;
    let child = claim_one(&store, 4, me, 4).await;
    store.release(at(5), &[job_claim(me, &child)]).await.expect("release");
    assert_eq!(inbox(&store, 1).await, [] as [&str; 0]);
    let child = claim_one(&store, 5, me, 5).await;
    let last = change(me, &child, done("x"));
    for _ in 0..2 {
        assert_eq!(commit(&store, 6, last.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!(inbox(&store, 1).await, [child_payload(2)], "one signal, although the commit was repeated");
}

pub async fn a_retried_child_sends_a_signal_again(store: Handle) {
    let me = parked_parent(&store, &[job(2)]).await;
    let child = claim_one(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &child, failed(Reason::Stopped))).await;
    let parent = claim_one(&store, 3, me, 3).await;
    apply(&store, 4, with_step(change(me, &parent, wait_for_signal(CHILD_SIGNAL, None)), consume(&parent)))
        .await;
    assert_eq!(act_on_job(&store, 5, 2, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(view(&store, id(1)).await.pending_children, 0, "the parent does not wait for it by count");
    let child = claim_one(&store, 5, me, 4).await;
    apply(&store, 6, change(me, &child, done("x"))).await;
    let parent = claim_one(&store, 6, me, 5).await;
    assert_eq!(texts(&parent.inbox), [child_payload(2)]);
}

pub async fn an_ended_parent_gets_no_signal(store: Handle) {
    let (me, job) = running_parent(&store, &jobs(2, 2)).await;
    apply(&store, 2, change(me, &job, failed(Reason::Stopped))).await;
    let children = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &children[0], done("x"))).await;
    assert_eq!(inbox(&store, 1).await, [] as [&str; 0]);
    assert_eq!(state(&store, id(1)).await, State::Failed);
    assert_eq!(act_on_job(&store, 4, 1, JobAction::Retry).await, ControlOutcome::Done);
    apply(&store, 5, change(me, &children[1], done("x"))).await;
    assert_eq!(inbox(&store, 1).await, [child_payload(3)], "a retried parent gets signals again");
}

pub async fn a_full_inbox_still_takes_the_signals_of_children(store: Handle) {
    let (me, job) = running_parent(&store, &jobs(2, 2)).await;
    let most = store.limits().inbox;
    let signals: Vec<_> = (0..most).map(|n| signal(id(1), "other", &n.to_string(), "x")).collect();
    send(&store, 1, &signals).await;
    for child in claim_all(&store, 2, me, 2).await {
        apply(&store, 2, change(me, &child, done("x"))).await;
    }
    assert_eq!(inbox(&store, 1).await.len(), most + 2);
    apply(&store, 3, change(me, &job, wait_for_signals(&[&format!("{CHILD_SIGNAL}*")], 1, None))).await;
    assert_eq!(claim_one(&store, 3, me, 3).await.inbox.len(), 2);
}

pub async fn nobody_else_may_send_the_signal_of_a_child(store: Handle) {
    let me = parked_parent(&store, &[job(2)]).await;
    let sent = store.signal(at(2), &[signal(id(1), CHILD_SIGNAL, "1", &child_payload(2))]).await;
    assert!(matches!(sent, Err(Error::Invalid(_))), "{sent:?}");
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    let mut with_signal = job(5);
    with_signal.signals = vec![signal(id(5), CHILD_SIGNAL, "1", &child_payload(2))];
    assert!(matches!(store.submit(at(2), &[with_signal], None).await, Err(Error::Invalid(_))));
    assert_eq!(ids(&claim_all(&store, 3, me, 2).await), [id(2)]);
}

pub async fn children_that_send_signals_are_not_counted_by_a_wait(store: Handle) {
    let (me, job) = running_parent(&store, &[job(2)]).await;
    let counted = with_step(change(me, &job, wait_for_children(&job)), spawn_children(&[self::job(3)]));
    apply(&store, 2, counted).await;
    assert_eq!(view(&store, id(1)).await.pending_children, 1);
    let children = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &children[0], done("x"))).await;
    assert_eq!(
        (state(&store, id(1)).await, inbox(&store, 1).await),
        (State::Waiting, vec![child_payload(2)])
    );
    apply(&store, 4, change(me, &children[1], done("x"))).await;
    assert_eq!(state(&store, id(1)).await, State::Ready);
    assert_eq!(
        inbox(&store, 1).await,
        [child_payload(2)],
        "children that are waited for by count send no signal"
    );
    let ends = store.inspect().child_ends(id(1), windlass_model::Rev(1), None, 9).await.expect("ends");
    assert_eq!(ends, [], "children that send signals are not listed by step");
}

pub async fn a_parent_that_waits_for_another_signal_too_stays_parked(store: Handle) {
    let (me, job) = running_parent(&store, &jobs(2, 1)).await;
    let both = wait_for_signals(&[CHILD_SIGNAL, "go"], 2, Some(secs(100)));
    apply(&store, 2, change(me, &job, both)).await;
    let child = claim_one(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &child, done("x"))).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    send(&store, 4, &[signal(id(1), "go", "1", "x")]).await;
    let parent = claim_one(&store, 4, me, 3).await;
    assert_eq!(parent.inbox.len(), 2);
    assert!(matches!(parent.wait, Some(WaitCondition::Signals { needs: 2, .. })));
    assert_eq!(fire_timers(&store, 500, 9).await.woken, 0);
}

pub async fn a_paused_parent_is_not_claimed_when_a_child_ends(store: Handle) {
    let me = parked_parent(&store, &[job(2)]).await;
    must_act(&store, 2, 1, JobAction::Pause).await;
    let child = claim_one(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &child, done("x"))).await;
    assert!(claim_all(&store, 3, me, 3).await.is_empty());
    assert_eq!(act_on_job(&store, 4, 1, JobAction::Resume).await, ControlOutcome::Done);
    assert_eq!(claim_one(&store, 4, me, 4).await.id, id(1));
}

pub async fn children_that_are_not_put_in_send_no_signal(store: Handle) {
    let me = worker(&store, 9).await;
    submit(&store, &[NewJob { key: Some("k".into()), ..job_in(40, KIND, "bulk") }]).await;
    let (first, parent) = running_parent(&store, &[NewJob { key: Some("k".into()), ..job(2) }]).await;
    let request = crate::ClaimRequest { queue: "bulk".into(), ..claim_request(me, 1, 9) };
    let other = claim(&store, at(2), &request).await.remove(0);
    assert_eq!((other.id, other.parent), (id(40), None));
    apply(&store, 3, change(me, &other, done("x"))).await;
    assert_eq!(inbox(&store, 1).await, [] as [&str; 0]);
    assert_eq!(
        commit(&store, 4, change(first, &parent, Outcome::Wait(Wait::YIELD))).await,
        CommitOutcome::Committed
    );
}
