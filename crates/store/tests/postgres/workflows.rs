//! Workflows on a server: how many statements their steps send, and races for the lock of a row.

use windlass_model::{
    Change, ClaimedJob, CommitOutcome, JobId, JournalEntry, NewJob, Outcome, Payload, Reason, State,
    StepWrites, Unwind, WorkerId,
    journal::{CallEvent, CallKind},
    wait::CHILD_SIGNAL,
};
use windlass_store::{ControlOutcome, JobAction, conformance::kit::*};

use super::open_fresh;

fn entry(seq: i32) -> JournalEntry {
    JournalEntry {
        seq,
        call_kind: CallKind::Step,
        event: CallEvent::Done,
        name: "call".into(),
        key: Some("key".into()),
        line: Some("main.rs:7".into()),
        at: t(1),
        payload: Payload { codec: 1, bytes: vec![7; 100] },
    }
}

fn entry_step(seq: i32) -> StepWrites {
    StepWrites { entries: vec![entry(seq)], ..StepWrites::default() }
}

fn entry_change(holder: WorkerId, job: &ClaimedJob, outcome: Outcome) -> Change {
    with_step(change(holder, job, outcome), entry_step(job.rev.0))
}

#[tokio::test]
async fn steps_of_workflows_send_as_few_statements_as_those_of_machines() {
    let store = open_fresh().await;
    let holder = worker(&store, 1).await;
    submit(&store, &jobs(1, 100)).await;
    let mut held = claim(&store, at(0), &claim_request(holder, 1, 100)).await;
    let changes = |held: &[ClaimedJob], outcome: fn() -> Outcome| -> Vec<Change> {
        held.iter().map(|job| entry_change(holder, job, outcome())).collect()
    };
    for batch in [1, 100] {
        let (outcomes, sent) =
            count_statements!(store, store.commit(at(1), &changes(&held[..batch], || Outcome::Next)));
        assert_eq!((outcomes, sent), (vec![CommitOutcome::Committed; batch], 1), "a step is one statement");
        held[..batch].iter_mut().for_each(|job| job.rev.0 += 1);
    }
    let mut mixed = changes(&held[..40], || Outcome::Next);
    mixed.extend(changes(&held[40..60], || done("x")));
    mixed.extend(changes(&held[60..], || wait_for_signal("go", None)));
    let (outcomes, sent) = count_statements!(store, store.commit(at(2), &mixed));
    assert_eq!(
        (outcomes, sent),
        (vec![CommitOutcome::Committed; 100], 7),
        "begin, lock, three kinds, wake, commit"
    );
    held[..40].iter_mut().for_each(|job| job.rev.0 += 1);
    let (_, sent) = count_statements!(store, store.commit(at(3), &changes(&held[..10], || done("x"))));
    assert_eq!(sent, 1, "an end with an entry is one statement");
    let empty: Vec<Change> = held[10..20]
        .iter()
        .map(|job| with_step(change(holder, job, done("x")), StepWrites::default()))
        .collect();
    let (_, sent) = count_statements!(store, store.commit(at(3), &empty));
    assert_eq!(sent, 1, "an end with an empty step is written like that of a task");
    let context = StepWrites { context: vec![("name".into(), payload("1"))], ..entry_step(9) };
    let (_, sent) = count_statements!(
        store,
        store.commit(at(3), &[with_step(change(holder, &held[20], Outcome::Next), context)])
    );
    assert_eq!(sent, 5, "begin, lock, context, step, commit");
    let journal = store.inspect().journal(id(1), None, usize::MAX).await.expect("journal");
    assert_eq!(journal, [entry(0), entry(1), entry(2), entry(3)]);
    let (part, sent) = count_statements!(store, store.inspect().journal(id(1), Some(0), 2));
    assert_eq!((part, sent), (vec![entry(1), entry(2)], 1));
}

#[tokio::test]
async fn a_long_journal_is_read_by_two_statements() {
    let store = open_fresh().await;
    let (holder, job) = running_job(&store, 1).await;
    let step = StepWrites { entries: (0..10_000).map(entry).collect(), ..StepWrites::default() };
    assert_eq!(
        commit(&store, 1, with_step(change(holder, &job, Outcome::Next), step)).await,
        CommitOutcome::Committed
    );
    let (read, sent) = count_statements!(store, store.inspect().journal(id(1), None, usize::MAX));
    assert_eq!((read.len(), sent), (10_000, 2), "its beginning, and a stream of the rest");
    let (read, sent) = count_statements!(store, store.inspect().journal(id(1), None, 200));
    assert_eq!((read.len(), sent), (200, 1), "a short one");
}

/// A fenced change writes nothing, whatever it contains.
#[tokio::test]
async fn fenced_changes_write_nothing() {
    let store = open_fresh().await;
    let (holder, job) = running_job(&store, 1).await;
    assert_eq!(commit(&store, 1, entry_change(holder, &job, Outcome::Next)).await, CommitOutcome::Committed);
    let unwind = Unwind { reason: Some(Reason::Stopped), failure: windlass_model::Failure::stop("no") };
    let all = StepWrites {
        entries: vec![entry(5)],
        forget_entries: vec![0],
        context: vec![("name".into(), payload("1"))],
        continue_as_new: true,
        has_undo: true,
        unwind: Some(Box::new(unwind)),
        ..StepWrites::default()
    };
    let mut stale = after_step(&job);
    stale.epoch.0 += 1;
    for outcome in
        [Outcome::Next, done("x"), failed(Reason::Stopped), retry(secs(0), &[]), wait_for_signal("go", None)]
    {
        let change = with_step(change(holder, &stale, outcome), all.clone());
        assert_eq!(commit(&store, 2, change).await, CommitOutcome::Fenced);
    }
    assert_eq!(store.inspect().journal(id(1), None, 9).await.expect("journal"), [entry(0)]);
    assert_eq!(store.inspect().context(id(1)).await.expect("context"), []);
    assert_eq!(view(&store, id(1)).await.unwind, None);
    // A change that is not fenced writes everything, whatever its outcome.
    let outcomes =
        [Outcome::Next, retry(secs(0), &[]), wait_for_signal("go", None), done("x"), failed(Reason::Stopped)];
    submit(&store, &jobs(10, 5)).await;
    let held = claim(&store, at(3), &claim_request(holder, 2, 5)).await;
    for (n, (job, outcome)) in held.iter().zip(outcomes).enumerate() {
        assert_eq!(
            commit(&store, 4, with_step(change(holder, job, outcome), all.clone())).await,
            CommitOutcome::Committed
        );
        let id = id(10 + n as u32);
        assert_eq!(store.inspect().journal(id, None, 9).await.expect("journal"), [entry(5)], "{n}");
        assert_eq!(store.inspect().context(id).await.expect("context").len(), 1, "{n}");
        assert_eq!(view(&store, id).await.unwind.expect("unwound").reason, Some(Reason::Stopped), "{n}");
    }
}

/// Spawns children of job 1, which is parked until it gets signals of their ends.
async fn signalled_parent(store: &Handle, children: Vec<NewJob>) -> WorkerId {
    let (holder, parent) = running_job(store, 1).await;
    let names = vec![windlass_model::wait::SignalName { name: CHILD_SIGNAL.into(), every: true }];
    let condition = windlass_model::WaitCondition::Signals { names, needs: 1 };
    let waits = Outcome::Wait(windlass_model::Wait { condition, timeout: None });
    let step = StepWrites { children, signal_child_ends: true, ..entry_step(0) };
    assert_eq!(
        commit(store, 1, with_step(change(holder, &parent, waits), step)).await,
        CommitOutcome::Committed
    );
    assert_eq!((state(store, id(1)).await, view(store, id(1)).await.pending_children), (State::Waiting, 0));
    holder
}

/// The payloads of the signals for these children.
fn child_signals(ids: &[u32]) -> Vec<String> {
    ids.iter().map(|n| format!("\"{}\"", id(*n))).collect()
}

/// Commits, cancels and deadlines end children at once: each is signalled once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_that_end_at_once_are_signalled_once_each() {
    let store = open_fresh().await;
    let child = |n: u32| NewJob { deadline_at: n.is_multiple_of(3).then(|| t(50)), ..job(n) };
    let holder = signalled_parent(&store, (10..210).map(child).collect()).await;
    let children = claim(&store, at(2), &claim_request(holder, 2, 150)).await;
    let mut tasks = Vec::new();
    for part in children.chunks(10) {
        let (store, changes) = (store.clone(), part.to_vec());
        tasks.push(tokio::spawn(async move {
            let changes: Vec<Change> = changes.iter().map(|job| change(holder, job, done("x"))).collect();
            store.commit(at(3), &changes).await.expect("commit");
        }));
    }
    for part in 0..10u32 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let ids: Vec<JobId> = (160 + part * 5..165 + part * 5).map(id).collect();
            store.control().act_on_jobs(at(3), &ids, cancel(0), &actor()).await.expect("act");
            store.fire_timers(at(60), 50).await.expect("timers");
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    let mut inbox = inbox(&store, 1).await;
    inbox.sort_unstable();
    assert_eq!(inbox, child_signals(&(10..210).collect::<Vec<_>>()));
    assert_eq!(claim(&store, at(61), &claim_request(holder, 3, 200)).await.len(), 1, "woken once");
}

#[tokio::test]
async fn signalled_children_send_as_few_statements_as_counted_ones() {
    let store = open_fresh().await;
    let holder = signalled_parent(&store, jobs(10, 100)).await;
    let children = claim(&store, at(2), &claim_request(holder, 2, 100)).await;
    let ends: Vec<Change> = children.iter().rev().map(|job| change(holder, job, done("x"))).collect();
    let (_, sent) = count_statements!(store, store.commit(at(3), &ends));
    assert_eq!(sent, 6, "begin, lock, end, signal, wake, commit");
    assert_eq!(
        inbox(&store, 1).await,
        child_signals(&(10..110).rev().collect::<Vec<_>>()),
        "in the order of the call"
    );
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

/// A job with something to undo is ready after both, and its serial key admits the next job once it has ended.
#[tokio::test]
async fn a_deadline_and_a_cancel_that_meet_unwind_once() {
    for run in 0..10 {
        let store = open_fresh().await;
        let holder = worker(&store, 1).await;
        submit(&store, &[NewJob { deadline_at: Some(t(50)), ..serial_job(1, "k") }, serial_job(2, "k")])
            .await;
        let job = claim_one(&store, 1, holder, 1).await;
        let step = StepWrites { has_undo: true, ..entry_step(0) };
        apply(&store, 2, with_step(change(holder, &job, wait_for_signal("go", Some(secs(48)))), step)).await;
        let fired = async {
            if run % 2 == 0 {
                tokio::task::yield_now().await;
            }
            store.fire_timers(at(60), 100).await.expect("timers")
        };
        let (outcome, _) = tokio::join!(act_on_job(&store, 60, 1, cancel(0)), fired);
        let seen = view(&store, id(1)).await;
        // Either it is being unwound, or both have ended it.
        match seen.unwind {
            Some(_) if !seen.summary.state.is_final() => {
                assert_eq!((outcome, seen.summary.state), (ControlOutcome::CancelRequested, State::Ready));
                let mut number = 10;
                let unwound = loop {
                    number += 1;
                    let job = claim_one(&store, 61, holder, number).await;
                    if job.id == id(1) {
                        break job;
                    }
                    apply(&store, 61, change(holder, &job, done("x"))).await;
                };
                assert!(unwound.unwind.is_some());
                assert_eq!(fire_timers(&store, 500, 100).await.expired, 0, "its deadline is void");
                assert_eq!(
                    commit(&store, 62, change(holder, &unwound, cancelled())).await,
                    CommitOutcome::Committed
                );
            }
            Some(_) => assert_eq!((outcome, seen.summary.state), (ControlOutcome::Done, State::Cancelled)),
            None => panic!("ended without an undo: {seen:?}"),
        }
        must_act(&store, 70, 1, JobAction::Retry).await;
        assert_eq!(view(&store, id(1)).await.unwind, None);
    }
}
