//! Signals: whether a signal or the wait comes first, a job is woken once and gets each signal once.

use windlass_model::{
    ClaimedJob, CommitOutcome, NewJob, Outcome, Reason, State, SubmitOutcome, WaitCondition, WorkerId,
};

use super::kit::*;
use crate::{JobAction, SignalOutcome};

pub(super) const WOKE: SignalOutcome = SignalOutcome::Delivered { woke: true };
pub(super) const KEPT: SignalOutcome = SignalOutcome::Delivered { woke: false };

/// Submits and claims job `n`, and parks it at second 1.
pub(super) async fn parked(store: &Handle, n: u32, wait: Outcome) -> WorkerId {
    let (me, job) = running_job(store, n).await;
    assert_eq!(commit(store, 1, change(me, &job, wait)).await, CommitOutcome::Committed);
    assert_eq!(state(store, id(n)).await, State::Waiting);
    me
}

/// A signal to job 1, whose payload is its dedup id.
pub(super) fn to_first(name: &str, dedup: &str) -> windlass_model::NewSignal {
    signal(id(1), name, dedup, dedup)
}

/// Commits an outcome and consumes the signals that the step got.
pub(super) async fn commit_and_consume(
    store: &Handle,
    now: u64,
    me: WorkerId,
    job: &ClaimedJob,
    outcome: Outcome,
) -> CommitOutcome {
    commit(store, now, with_step(change(me, job, outcome), consume(job))).await
}

pub async fn a_signal_wakes_a_parked_job(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.epoch.0, seen.rev.0, seen.wait_until), (1, 1, None));
    assert!(claim(&store, at(2), &claim_request(me, 2, 9)).await.is_empty());
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(send(&store, 3, &[to_first("go", "a")]).await, [WOKE]);
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    assert_eq!(state(&store, id(1)).await, State::Ready);
    let job = claim_one(&store, 4, me, 3).await;
    assert_eq!((texts(&job.inbox), job.due_at, job.epoch.0), (vec!["a".to_owned()], t(3), 1));
    assert!(matches!(&job.wait, Some(WaitCondition::Signals { names, needs: 1 }) if names[0].name == "go"));
    assert_eq!(commit_and_consume(&store, 5, me, &job, done("x")).await, CommitOutcome::Committed);
    assert!(inbox(&store, 1).await.is_empty());
}

pub async fn a_signal_sent_before_the_wait_ends_it_at_once(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    assert_eq!(send(&store, 1, &[to_first("go", "a")]).await, [KEPT]);
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(
        commit(&store, 2, change(me, &job, wait_for_signal("go", None))).await,
        CommitOutcome::Committed
    );
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    assert_eq!(state(&store, id(1)).await, State::Ready);
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!((texts(&selected_signals(&job)), job.due_at), (vec!["a".to_owned()], t(2)));
}

pub async fn a_signal_is_delivered_once(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    let (go, stop) = (to_first("go", "a"), to_first("stop", "a"));
    assert_eq!(
        send(&store, 2, &[go.clone(), go.clone(), stop]).await,
        [WOKE, SignalOutcome::Duplicate, KEPT]
    );
    assert_eq!(send(&store, 3, std::slice::from_ref(&go)).await, [SignalOutcome::Duplicate]);
    let other = signal(id(1), "go", "a", "another text");
    assert_eq!(send(&store, 3, &[other]).await, [SignalOutcome::Duplicate], "only the dedup id is compared");
    let job = claim_one(&store, 4, me, 2).await;
    assert_eq!(texts(&job.inbox), ["a"]);
    let _ = commit_and_consume(&store, 5, me, &job, wait_for_signal("go", None)).await;
    assert_eq!(send(&store, 6, &[go]).await, [SignalOutcome::Duplicate], "although it was consumed");
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    assert_eq!(send(&store, 7, &[to_first("go", "b")]).await, [WOKE]);
}

pub async fn a_signal_of_another_name_stays_in_the_inbox(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    assert_eq!(send(&store, 2, &[to_first("stop", "a")]).await, [KEPT]);
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    let waiting = holds(&store, 1).await.waiting.expect("it is parked");
    assert_eq!(
        (waiting.arrived, waiting.pending_children, waiting.wait_until),
        (vec!["stop".to_owned()], 0, None)
    );
    assert_eq!(send(&store, 3, &[to_first("go", "b")]).await, [WOKE]);
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(texts(&job.inbox), ["b"], "a claim returns only signals that the job waits for");
    let _ = commit_and_consume(&store, 4, me, &job, wait_for_signal("stop", None)).await;
    let job = claim_one(&store, 4, me, 3).await;
    assert_eq!(texts(&job.inbox), ["a"]);
}

pub async fn a_wait_for_any_signal_ends_with_the_first(store: Handle) {
    let me = parked(&store, 1, wait_for_signals(&["go", "stop"], 1, None)).await;
    assert_eq!(send(&store, 2, &[to_first("stop", "a"), to_first("go", "b")]).await, [WOKE, KEPT]);
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(
        (texts(&job.inbox), texts(&selected_signals(&job))),
        (vec!["a".into(), "b".into()], vec!["a".to_owned()])
    );
    let _ = commit_and_consume(&store, 4, me, &job, wait_for_signals(&["go", "stop"], 1, None)).await;
    assert_eq!(texts(&selected_signals(&claim_one(&store, 4, me, 3).await)), ["b"]);
}

pub async fn a_wait_for_all_signals_ends_with_the_last(store: Handle) {
    let me = parked(&store, 1, wait_for_signals(&["a", "b", "c"], 3, None)).await;
    let signals = ["a", "a", "c"].iter().enumerate().map(|(n, name)| to_first(name, &n.to_string()));
    assert_eq!(send(&store, 2, &signals.collect::<Vec<_>>()).await, [KEPT; 3]);
    assert_eq!(send(&store, 3, &[to_first("b", "9")]).await, [WOKE]);
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(texts(&selected_signals(&job)), ["0", "2", "9"]);
    let _ = commit_and_consume(&store, 4, me, &job, wait_for_signals(&["a", "b"], 2, None)).await;
    assert_eq!((state(&store, id(1)).await, inbox(&store, 1).await), (State::Waiting, vec!["1".to_owned()]));
    assert_eq!(send(&store, 5, &[to_first("b", "10")]).await, [WOKE]);
}

pub async fn a_wait_may_select_every_signal_of_a_name(store: Handle) {
    let me = parked(&store, 1, wait_for_signals(&["go*", "stop"], 2, None)).await;
    let signals: Vec<_> = (0..5).map(|n| to_first("go", &n.to_string())).collect();
    send(&store, 2, &signals).await;
    send(&store, 2, &[to_first("stop", "7"), to_first("stop", "8")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(texts(&selected_signals(&job)), ["0", "1", "2", "3", "4", "7"]);
    let _ = commit_and_consume(&store, 4, me, &job, done("x")).await;
    assert_eq!(inbox(&store, 1).await, ["8"]);
}

pub async fn a_full_inbox_refuses_signals(store: Handle) {
    let limit = store.limits().inbox;
    let (me, job) = running_job(&store, 1).await;
    let signals: Vec<_> = (0..limit + 2).map(|n| to_first(&format!("s{}", n % 3), &n.to_string())).collect();
    let outcomes = send(&store, 1, &signals).await;
    assert!(outcomes[..limit].iter().all(|outcome| *outcome == KEPT));
    assert_eq!(outcomes[limit..], [SignalOutcome::Full, SignalOutcome::Full]);
    assert_eq!(
        send(&store, 2, &signals[..1]).await,
        [SignalOutcome::Duplicate],
        "a duplicate is recognised first"
    );
    assert_eq!(inbox(&store, 1).await.len(), limit);
    apply(&store, 2, change(me, &job, wait_for_signal("s1", None))).await;
    let job = claim_one(&store, 2, me, 2).await;
    let _ = commit_and_consume(&store, 3, me, &job, Outcome::Next).await;
    assert_eq!(
        send(&store, 3, &signals[limit..]).await,
        [KEPT, SignalOutcome::Full],
        "as many as were consumed"
    );
    let last = store.inspect().inbox(id(1), limit + 1).await.expect("inbox");
    assert!(last.windows(2).all(|pair| pair[0].number < pair[1].number), "in the order they came");
    assert_eq!(texts(&last).last(), Some(&limit.to_string()));
}

pub async fn ended_and_unknown_jobs_accept_no_signals(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 3)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    for (job, outcome) in claimed.iter().zip([done("x"), failed(Reason::Stopped), cancelled()]) {
        apply(&store, 1, change(me, job, outcome)).await;
    }
    let signals: Vec<_> = [1, 2, 3, 9].map(|n| signal(id(n), "go", "a", "a")).into();
    let outcomes = send(&store, 2, &signals).await;
    let ended = [State::Done, State::Failed, State::Cancelled].map(SignalOutcome::Ended);
    assert_eq!((&outcomes[..3], outcomes[3]), (ended.as_slice(), SignalOutcome::Unknown));
    must_act(&store, 3, 2, JobAction::Retry).await;
    assert_eq!(send(&store, 3, &signals[1..2]).await, [KEPT], "it was not delivered before");
    assert!(send(&store, 3, &[]).await.is_empty());
}

pub async fn an_invalid_signal_refuses_the_call(store: Handle) {
    submit(&store, &[job(1)]).await;
    let large = "x".repeat(store.limits().payload + 1);
    for bad in [to_first("", "a"), to_first("a b", "a"), to_first("go", ""), signal(id(1), "go", "a", &large)]
    {
        let refused = store.signal(at(1), &[to_first("go", "1"), bad]).await;
        assert!(matches!(refused, Err(crate::Error::Invalid(_))), "{refused:?}");
    }
    assert!(inbox(&store, 1).await.is_empty());
}

pub async fn a_signal_during_a_step_is_not_lost(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    send(&store, 2, &[to_first("go", "a")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(send(&store, 4, &[to_first("go", "b")]).await, [KEPT]);
    let _ = commit_and_consume(&store, 5, me, &job, Outcome::Next).await;
    assert_eq!(inbox(&store, 1).await, ["b"], "the step did not get it");
    apply(&store, 6, change(me, &after_step(&job), wait_for_signal("go", None))).await;
    assert_eq!(texts(&selected_signals(&claim_one(&store, 6, me, 3).await)), ["b"]);
}

pub async fn signals_are_consumed_only_by_committed_steps(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    send(&store, 2, &[to_first("go", "a"), to_first("go", "b")]).await;
    let first = claim_one(&store, 2, me, 2).await;
    // After a retry, a release and a reap, the next attempt gets the same signals.
    apply(&store, 3, change(me, &first, retry(secs(0), &[]))).await;
    let second = claim_one(&store, 3, me, 3).await;
    assert_eq!((&second.inbox, &second.wait), (&first.inbox, &first.wait));
    store.release(at(4), &[job_claim(me, &second)]).await.expect("release");
    let third = claim_one(&store, 4, me, 4).await;
    assert_eq!(third.inbox, first.inbox);
    reap(&store, 5, me).await;
    let two = worker(&store, 2).await;
    let fourth = claim(&store, at(5), &solo_claim_request(two, 1)).await.remove(0);
    assert_eq!(fourth.inbox, first.inbox);
    // A fenced change consumes nothing.
    assert_eq!(commit_and_consume(&store, 6, me, &third, Outcome::Next).await, CommitOutcome::Fenced);
    assert_eq!(inbox(&store, 1).await, ["a", "b"]);
    let next = with_step(change(two, &fourth, Outcome::Next), consume(&fourth));
    assert_eq!(commit(&store, 7, next.clone()).await, CommitOutcome::Committed);
    send(&store, 8, &[to_first("go", "c")]).await;
    assert_eq!(commit(&store, 9, next).await, CommitOutcome::Committed, "the same when repeated");
    assert_eq!(inbox(&store, 1).await, ["b", "c"], "the repeat consumes nothing more");
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.wait, seen.wait_until), (None, None), "it waits for nothing now");
}

pub async fn a_job_may_be_submitted_with_signals(store: Handle) {
    let me = worker(&store, 1).await;
    let signals = vec![to_first("go", "a"), to_first("go", "a"), to_first("stop", "b")];
    let new = NewJob { signals, ..job(1) };
    let outcomes =
        store.submit(at(0), std::slice::from_ref(&new), claim_on_submit(me, 1)).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::New { claimed: None }], "it is not claimed at submit");
    assert_eq!(inbox(&store, 1).await, ["a", "b"]);
    assert_eq!(store.submit(at(1), &[new], None).await.expect("submit"), [SubmitOutcome::Repeated]);
    assert_eq!(send(&store, 1, &[to_first("go", "a")]).await, [SignalOutcome::Duplicate]);
    let first = claim_one(&store, 1, me, 2).await;
    assert!(first.inbox.is_empty(), "it waits for none");
    apply(&store, 2, change(me, &first, wait_for_signal("go", None))).await;
    assert_eq!(texts(&selected_signals(&claim_one(&store, 2, me, 3).await)), ["a"]);
    // A refused submit delivers no signals.
    let other = NewJob { signals: vec![signal(id(2), "go", "z", "z")], digest: [7; 16], ..job(1) };
    assert_eq!(store.submit(at(3), &[other], None).await.expect("submit"), [SubmitOutcome::IdTaken]);
    assert_eq!(inbox(&store, 1).await, ["a", "b"]);
}

pub async fn pruning_a_job_deletes_its_signals(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    send(&store, 1, &[to_first("go", "a")]).await;
    apply(&store, 2, with_step(change(me, &first, done("x")), step("Begin", "End", "1"))).await;
    assert_eq!(inbox(&store, 1).await.len(), 1, "kept as long as the job");
    let prune = crate::Prune { state: State::Done, before: t(9), kind: None, after: None, limit: 9 };
    assert_eq!(store.prune(at(9), &prune).await.expect("prune").jobs, 1);
    assert!(inbox(&store, 1).await.is_empty() && transitions(&store, 1).await.is_empty());
    submit(&store, &[job(1)]).await;
    assert_eq!(send(&store, 10, &[to_first("go", "a")]).await, [KEPT], "its dedup id was deleted");
}
