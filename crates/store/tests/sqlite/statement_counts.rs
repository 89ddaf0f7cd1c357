//! How many statements calls take: claims, commits, steps, signals and ends of children.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_model::{CommitOutcome, Outcome, RateCharge, RateLimit, StepWrites};
use windlass_store::{
    AdminAction, ClaimRequest,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

use super::path;

/// How many statements a claim of 100 jobs takes when `ready` jobs are ready: for one kind, and for two.
async fn claim_statements(ready: u32) -> (u64, u64) {
    let (_folder, path) = path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(path)).expect("open"));
    for chunk in jobs(0, ready).chunks(5_000) {
        let mut chunk = chunk.to_vec();
        chunk.iter_mut().step_by(2).for_each(|job| job.kind.kind = "other".into());
        submit(&store, &chunk).await;
    }
    let worker = worker(&store, 1).await;
    let two =
        ClaimRequest { kinds: [kind(KIND, 1), kind("other", 1)].into(), ..claim_request(worker, 2, 100) };
    // The first claim also reads the lanes.
    claim(&store, at(0), &ClaimRequest { number: windlass_model::ClaimNo(9), limit: 1, ..two.clone() }).await;
    let before = store.statements();
    let expected = 100.min(ready as usize / 2);
    assert!(claim(&store, at(0), &claim_request(worker, 1, 100)).await.len() >= expected - 1);
    let between = store.statements();
    assert!(claim(&store, at(0), &two).await.len() >= expected - 1);
    (between - before, store.statements() - between)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_takes_the_same_few_statements_however_many_jobs_are_ready() {
    let (few, many) = (claim_statements(400).await, claim_statements(20_000).await);
    assert_eq!(few, many);
    assert!(few.0 <= 9 && few.1 <= 14, "{few:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_timers_and_repairs_that_find_nothing_take_no_write_lock() {
    let (_folder, path) = path();
    let options = Options::new(&path).patience(std::time::Duration::from_millis(50));
    let store: Handle = Arc::new(Sqlite::open(options).expect("open"));
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(RateLimit::per("api", 1, secs(10)))).await;
    let charged = |n, queue| {
        let mut new = job_in(n, KIND, queue);
        new.settings.rate = Some(Box::new(RateCharge { limit: "api".into(), weight: 1 }));
        new
    };
    submit(&store, &[charged(1, QUEUE), charged(2, QUEUE), charged(3, "paused"), job_in(4, KIND, "paused")])
        .await;
    administer(&store, 0, AdminAction::PauseQueue("paused".into())).await;
    assert_eq!(claim(&store, at(0), &claim_request(worker, 1, 9)).await.len(), 1);
    let request =
        |queue: &str, number| ClaimRequest { queue: queue.into(), ..claim_request(worker, number, 9) };
    for (number, queue) in [(2, "paused"), (3, "empty")] {
        claim(&store, at(0), &request(queue, number)).await;
    }
    let conn = Connection::open(&path).expect("open");
    conn.execute_batch("begin immediate").expect("begin");
    for (number, queue, waits) in [(4, QUEUE, true), (5, "paused", false), (6, "empty", false)] {
        let batch = store.claim(at(1), &request(queue, number)).await.expect("claim");
        assert!(batch.jobs.is_empty() && batch.refill_at.is_some() == waits, "{queue}: {batch:?}");
    }
    assert_eq!(store.repair(at(1)).await.expect("repair.free_serial_keys"), 0);
    assert_eq!(store.fire_timers(at(1), 9).await.expect("timers.read_due").woken, 0);
    assert!(
        store.claim(at(10), &request(QUEUE, 7)).await.is_err(),
        "the bucket has tokens again: there is a job to claim"
    );
    conn.execute_batch("rollback").expect("rollback");
    assert_eq!(claim(&store, at(10), &request(QUEUE, 8)).await.len(), 1);
}

/// How many statements a submit, a claim and a commit of `count` plain jobs take.
async fn plain_job_statements(count: u32) -> [u64; 3] {
    let (_folder, path) = path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(path)).expect("open"));
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(RateLimit::per_second("api", 1))).await;
    submit(&store, &[serial_job(9_000, "k"), job_in(9_001, KIND, "bulk")]).await;
    claim(&store, at(0), &claim_request(worker, 1, 9)).await;
    let mut last = store.statements();
    let mut statements_sent = || {
        let before = std::mem::replace(&mut last, store.statements());
        last - before
    };
    submit(&store, &jobs(0, count)).await;
    let submitted = statements_sent();
    let claimed_jobs = claim(&store, at(0), &claim_request(worker, 2, count as usize)).await;
    let claimed = statements_sent();
    let changes: Vec<_> = claimed_jobs.iter().map(|job| change(worker, job, done("x"))).collect();
    store.commit(at(1), &changes).await.expect("commit");
    [submitted, claimed, statements_sent()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_jobs_take_no_statements_for_features_of_other_jobs() {
    let (one, hundred) = (plain_job_statements(1).await, plain_job_statements(100).await);
    assert_eq!(
        one,
        [7, 9, 6],
        "begin, insert, ready, counts, period, gate, commit; begin to commit; begin, claim, update, counts, what ended, commit"
    );
    assert_eq!(
        hundred,
        [7, 9, 6 + 99],
        "the claim is read once, and counts, periods and ends are written once"
    );
}

/// How many statements a commit of one change takes.
async fn commit_statements(store: &Handle, change: windlass_model::Change) -> u64 {
    let before = store.statements();
    assert_eq!(commit(store, 1, change).await, CommitOutcome::Committed);
    store.statements() - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_machine_takes_few_statements() {
    let (_folder, path) = path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(path)).expect("open"));
    let me = worker(&store, 1).await;
    submit(&store, &[machine(1, "Begin")]).await;
    let job = claim_one(&store, 0, me, 1).await;
    let next = |job, step| with_step(change(me, job, Outcome::Next), step);
    assert_eq!(
        commit_statements(&store, next(&job, step("Begin", "Charge", "1"))).await,
        5,
        "begin, claim, update, insert, commit"
    );
    let job = after_step(&job);
    let park = with_step(change(me, &job, wait_for_signal("go", None)), step("Charge", "Ship", "2"));
    assert_eq!(commit_statements(&store, park).await, 7, "the same, a read of the inbox and the counts");
    let before = store.statements();
    send(&store, 2, &[signal(id(1), "go", "1", "x")]).await;
    assert_eq!(
        store.statements() - before,
        11,
        "begin, recipient, delivery, insert, number, wake, ready, counts, the wait, gate, commit"
    );
    let before = store.statements();
    let job = claim_one(&store, 2, me, 2).await;
    let with_inbox = store.statements() - before;
    assert_eq!(selected_signals(&job).len(), 1);
    submit(&store, &[serial_job(2, "other")]).await;
    let before = store.statements();
    claim_one(&store, 2, me, 3).await;
    assert_eq!(
        with_inbox,
        store.statements() - before + 1,
        "an inbox is read only for jobs that wait for signals"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_workflow_takes_as_many_statements_as_one_of_a_machine() {
    let (_folder, path) = path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(path)).expect("open"));
    let me = worker(&store, 1).await;
    submit(&store, &[machine(1, "Begin"), machine(2, "Begin")]).await;
    let jobs = claim(&store, at(0), &claim_request(me, 1, 2)).await;
    let of_machine = with_step(change(me, &jobs[0], Outcome::Next), step("Begin", "Charge", "1"));
    let first = with_step(change(me, &jobs[1], Outcome::Next), journal_writes(vec![entry(0, "charge", "1")]));
    let machine = commit_statements(&store, of_machine).await;
    assert_eq!(
        (machine, commit_statements(&store, first).await),
        (5, 5),
        "begin, claim, update, insert, commit"
    );
    let job = after_step(&jobs[1]);
    let undoable = StepWrites { has_undo: true, ..journal_writes(vec![entry(1, "charge", "2")]) };
    assert_eq!(commit_statements(&store, with_step(change(me, &job, Outcome::Next), undoable)).await, 5);
    let job = after_step(&job);
    let parks =
        with_step(change(me, &job, wait_for_signal("go", None)), journal_writes(vec![entry(2, "wait", "3")]));
    assert_eq!(commit_statements(&store, parks).await, 7, "the same, a read of the inbox and the counts");
    let before = store.statements();
    assert_eq!(journal(&store, 2).await.len(), 3);
    assert_eq!(store.statements() - before, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_child_is_signalled_in_few_statements() {
    let (_folder, path) = path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(path)).expect("open"));
    let (me, parent) = running_job(&store, 1).await;
    let spawns = StepWrites { signal_child_ends: true, children: jobs(2, 1), ..StepWrites::default() };
    let parks =
        with_step(change(me, &parent, wait_for_signal(windlass_model::wait::CHILD_SIGNAL, None)), spawns);
    assert_eq!(commit(&store, 1, parks).await, CommitOutcome::Committed);
    let child = claim_one(&store, 1, me, 2).await;
    let sent = commit_statements(&store, change(me, &child, done("x"))).await;
    assert_eq!(
        sent, 13,
        "begin, claim, read, update, read the parent, insert, number, wake, ready, counts, what ended, gate, commit"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_journal_is_read_quickly() {
    let (_folder, path) = path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(path)).expect("open"));
    let (me, job) = running_job(&store, 1).await;
    let entries = (0..10_000).map(|seq| entry(seq, "charge a card", "{\"amount\":100}")).collect();
    apply(&store, 1, with_step(change(me, &job, Outcome::Next), journal_writes(entries))).await;
    assert_eq!(journal(&store, 1).await.len(), 10_000);
    let reads = (0..5).map(|_| async {
        let started = std::time::Instant::now();
        journal(&store, 1).await;
        started.elapsed()
    });
    let mut best = std::time::Duration::MAX;
    for read in reads {
        best = best.min(read.await);
    }
    // About 4 ms in an optimised build; this may be an unoptimised one on a busy machine.
    assert!(best < std::time::Duration::from_millis(500), "{best:?}");
    println!("10,000 entries are read in {best:?}");
}
