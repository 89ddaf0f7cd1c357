//! Machines on a server: how many statements steps, waits and signals send, and races for the lock of a row.

use windlass_model::{
    Change, ClaimedJob, CommitOutcome, JobId, NewJob, Outcome, State, StepWrites, Wait, WaitCondition,
    WorkerId,
};
use windlass_store::{SignalOutcome, conformance::kit::*};

use super::open_fresh;

/// A step of a machine to another stage.
fn step(holder: WorkerId, job: &ClaimedJob, outcome: Outcome) -> Change {
    let stage = Some(("After".to_owned(), payload("1")));
    let step = StepWrites { from_stage: Some("Before".into()), stage, ..StepWrites::default() };
    Change { writes: Some(Box::new(step)), ..change(holder, job, outcome) }
}

/// A step that spawns children and waits for their ends.
fn spawn(holder: WorkerId, job: &ClaimedJob, children: Vec<NewJob>) -> Change {
    let condition = WaitCondition::Children { rev: windlass_model::Rev(job.rev.0 + 1) };
    let mut change = step(holder, job, Outcome::Wait(Wait { condition, timeout: None }));
    change.writes.as_mut().expect("it has one").children = children;
    change
}

#[tokio::test]
async fn steps_waits_and_signals_send_few_statements() {
    let store = open_fresh().await;
    let holder = worker(&store, 1).await;
    submit(&store, &jobs(1, 100)).await;
    let mut held = claim(&store, at(0), &claim_request(holder, 1, 100)).await;
    let changes = |held: &[ClaimedJob], outcome: fn() -> Outcome| -> Vec<Change> {
        held.iter().map(|job| step(holder, job, outcome())).collect()
    };
    for batch in [1, 100] {
        let (outcomes, sent) =
            count_statements!(store, store.commit(at(1), &changes(&held[..batch], || Outcome::Next)));
        assert_eq!((outcomes, sent), (vec![CommitOutcome::Committed; batch], 1), "a step is one statement");
        held[..batch].iter_mut().for_each(|job| job.rev.0 += 1);
    }
    let (_, sent) = count_statements!(
        store,
        store.commit(at(2), &changes(&held, || wait_for_signal("go", Some(secs(9)))))
    );
    assert_eq!(sent, 4, "begin, park, wake, commit");
    for batch in [1..2, 2..100] {
        let signals: Vec<_> = batch.map(|n| signal(id(n), "go", "1", "x")).collect();
        let (outcomes, sent) = count_statements!(store, store.signal(at(3), &signals));
        assert_eq!(outcomes, vec![SignalOutcome::Delivered { woke: true }; signals.len()]);
        assert_eq!(sent, 5, "begin, lock, deliver, wake, commit");
    }
    let (batch, sent) = count_statements!(store, store.claim(at(4), &claim_request(holder, 2, 100)));
    assert_eq!((batch.jobs.len(), sent), (99, 1), "the jobs with their inboxes");
    assert!(batch.jobs.iter().all(|job| job.inbox.len() == 1));
    let (_, sent) = count_statements!(
        store,
        store.commit(at(5), &changes(&batch.jobs[..50], || Outcome::Wait(Wait::YIELD)))
    );
    assert_eq!(sent, 1, "a yield");
    let (_, sent) = count_statements!(store, store.commit(at(5), &changes(&batch.jobs[50..], || done("x"))));
    assert_eq!(sent, 1, "an end is one statement");
    // Tasks send no more because of it.
    submit(&store, &jobs(200, 100)).await;
    let (batch, sent) = count_statements!(store, store.claim(at(6), &claim_request(holder, 3, 200)));
    assert_eq!((batch.jobs.len(), sent), (150, 1));
    let plain: Vec<Change> =
        batch.jobs.iter().filter(|job| job.id >= id(200)).map(|job| change(holder, job, done("x"))).collect();
    let (_, sent) = count_statements!(store, store.commit(at(7), &plain));
    assert_eq!((plain.len(), sent), (100, 1));
}

#[tokio::test]
async fn children_are_spawned_and_counted_in_one_transaction_each() {
    let store = open_fresh().await;
    let (holder, parent) = running_job(&store, 1).await;
    let (_, sent) = count_statements!(store, store.commit(at(1), &[spawn(holder, &parent, jobs(10, 100))]));
    assert!(sent <= 8, "begin, park, insert, count, enter, wake, commit; not {sent}");
    assert_eq!(
        (state(&store, id(1)).await, view(&store, id(1)).await.pending_children),
        (State::Waiting, 100)
    );
    let children = claim(&store, at(2), &claim_request(holder, 2, 100)).await;
    let ends = |part: &[ClaimedJob]| -> Vec<Change> {
        part.iter().map(|job| change(holder, job, done("x"))).collect()
    };
    let (_, sent) = count_statements!(store, store.commit(at(3), &ends(&children[..99])));
    assert_eq!(sent, 6, "begin, lock, end, count, wake, commit");
    assert_eq!((state(&store, id(1)).await, view(&store, id(1)).await.pending_children), (State::Waiting, 1));
    store.commit(at(4), &ends(&children[98..])).await.expect("commit");
    assert_eq!((state(&store, id(1)).await, view(&store, id(1)).await.pending_children), (State::Ready, 0));
}

/// The second of the two sees what the first has written: no job is parked while the signal it waits for is in its inbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_and_the_wait_it_meets_never_miss_each_other() {
    let store = open_fresh().await;
    let holder = worker(&store, 1).await;
    submit(&store, &jobs(1, 100)).await;
    let held = claim(&store, at(0), &claim_request(holder, 1, 100)).await;
    let tasks: Vec<_> = held
        .into_iter()
        .flat_map(|job| {
            let (one, other, id) = (store.clone(), store.clone(), job.id);
            let parks = async move {
                let change = step(holder, &job, wait_for_signal("go", Some(secs(5))));
                assert_eq!(one.commit(at(1), &[change]).await.expect("commit"), [CommitOutcome::Committed]);
            };
            let signals = async move {
                other.signal(at(1), &[signal(id, "go", "1", "x")]).await.expect("signal");
                other.fire_timers(at(6), 100).await.expect("timers");
            };
            [tokio::spawn(parks), tokio::spawn(signals)]
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    assert_eq!(store.repair(at(7)).await.expect("repair"), 0);
    assert_eq!(count(&store, State::Ready).await, 100);
    assert_eq!(claim(&store, at(7), &claim_request(holder, 2, 200)).await.len(), 100);
    assert_eq!(claim(&store, at(7), &claim_request(holder, 3, 200)).await.len(), 0, "none is claimed twice");
}

/// Commits, cancels and deadlines end children at once: the parent is woken once, when the last has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_is_woken_once_by_children_that_end_at_once() {
    let store = open_fresh().await;
    let (holder, parent) = running_job(&store, 1).await;
    let child = |n: u32| NewJob { deadline_at: n.is_multiple_of(3).then(|| t(50)), ..job(n) };
    assert_eq!(
        commit(&store, 1, spawn(holder, &parent, (10..210).map(child).collect())).await,
        CommitOutcome::Committed
    );
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
    assert_eq!((state(&store, id(1)).await, view(&store, id(1)).await.pending_children), (State::Ready, 0));
    assert_eq!(claim(&store, at(61), &claim_request(holder, 3, 200)).await.len(), 1);
}
