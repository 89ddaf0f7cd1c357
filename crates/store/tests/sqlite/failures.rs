//! Failures that a file can have: refused changes, a full disk, a file that stays locked, rows changed by hand.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use windlass_model::{CommitOutcome, NewJob, Payload, State, SubmitOutcome};
use windlass_store::{
    Error, Store,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

use super::{child_process, path};

fn open(path: &Path) -> Handle {
    Arc::new(Sqlite::open(Options::new(path)).expect("open"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_the_database_refuses_fails_alone() {
    let (_folder, path) = path();
    let store = open(&path);
    let conn = rusqlite::Connection::open(&path).expect("open");
    conn.execute_batch(
        "create trigger poison before update on windlass_jobs when new.output = x'706f69736f6e'
         begin select raise(abort, 'poison'); end;
         create trigger poison_attempt before insert on windlass_attempts when new.failure like '%poison%'
         begin select raise(abort, 'poison'); end;",
    )
    .expect("triggers");
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(0, 500)).await;
    let claimed = claim(&store, at(0), &claim_request(worker, 1, 500)).await;
    let outcome = |n: usize| match n {
        // The first is refused at once, the second only after its row was updated: neither writes anything.
        123 => done("poison"),
        321 => windlass_model::Outcome::Retry {
            after: secs(0),
            retry_counts: vec![],
            failure: Some(windlass_model::Failure::retry("poison")),
        },
        _ if n.is_multiple_of(2) => retry(secs(0), &[]),
        _ => done("x"),
    };
    let batch: Vec<_> = claimed.iter().enumerate().map(|(n, job)| change(worker, job, outcome(n))).collect();
    let outcomes = store.commit(at(1), &batch).await.expect("commit");
    for (n, outcome) in outcomes.iter().enumerate() {
        if n == 123 || n == 321 {
            assert!(
                matches!(outcome, CommitOutcome::Refused(why) if why.contains("poison")),
                "{n}: {outcome:?}"
            );
            let kept = view(&store, id(n as u32)).await;
            assert_eq!((kept.summary.state, kept.rev.0, kept.epoch.0), (State::Running, 0, 0), "{n}");
        } else {
            assert_eq!(*outcome, CommitOutcome::Committed, "{n}");
        }
    }
    assert_eq!((count(&store, State::Ready).await, count(&store, State::Done).await), (250, 248));
    assert_eq!(store.commit(at(2), &batch).await.expect("commit"), outcomes, "the same when repeated");
    let minimal = change(worker, &claimed[123], failed(windlass_model::Reason::Refused));
    assert_eq!(commit(&store, 3, minimal).await, CommitOutcome::Committed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_unavailable_and_the_store_works_again_once_there_is_space() {
    let (_folder, path) = path();
    drop(open(&path));
    // A limit on the size of the child's files simulates a full disk: writes fail in the middle.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\""]).arg(child_process::binary());
    child_process::arguments(&mut command, "failures::child_fills_the_disk", &path);
    let text = child_process::expect_passed(&command.output().expect("a child"));
    let number = |name: &str| -> u32 {
        let line = text.lines().find_map(|line| line.split_once(name)).unwrap_or_else(|| panic!("{text}"));
        line.1.trim().parse().expect("a number")
    };
    let acknowledged = number("acknowledged:");
    assert!((10..2_000).contains(&acknowledged), "{text}");
    let store = open(&path);
    let kept = list(&store, all_jobs()).await;
    assert_eq!(
        kept,
        (0..acknowledged).rev().map(id).collect::<Vec<_>>(),
        "what was acknowledged, and nothing more"
    );
    let outcomes = store.submit(at(0), &large(acknowledged), None).await.expect("there is space again");
    assert_eq!(outcomes, vec![SubmitOutcome::New { claimed: None }; 10]);
    let worker = worker(&store, 2).await;
    assert_eq!(claim(&store, at(0), &claim_request(worker, 1, 10_000)).await.len() as u32, acknowledged + 10);
}

/// Ten jobs with inputs of 10 kB.
fn large(from: u32) -> Vec<NewJob> {
    let with = |n| NewJob { input: Payload::json(vec![b'1'; 10_000]), ..job(n) };
    (from..from + 10).map(with).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a child by a_full_disk_is_unavailable_and_the_store_works_again_once_there_is_space"]
async fn child_fills_the_disk() {
    let Some(path) = child_process::file() else { return };
    let options = Options::new(path).patience(Duration::from_millis(200));
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(options).expect("open"));
    let mut acknowledged = 0;
    let error = loop {
        match store.submit(at(0), &large(acknowledged), None).await {
            Ok(outcomes) => acknowledged += outcomes.len() as u32,
            Err(error) => break error,
        }
        assert!(acknowledged < 100_000, "the limit applies");
    };
    assert!(matches!(error, Error::Unavailable(_)) && error.is_retryable(), "{error:?}");
    // Writes continue to fail the same way, reads continue, and no transaction stays open.
    for _ in 0..3 {
        let again = store.submit(at(0), &large(acknowledged), None).await.expect_err("still full");
        assert!(again.is_retryable(), "{again:?}");
        assert_eq!(list(&store, all_jobs()).await.len() as u32, acknowledged);
    }
    println!("\nacknowledged: {acknowledged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_file_is_waited_for_until_the_patience_ends() {
    let (_folder, path) = path();
    let options = Options::new(&path).patience(Duration::from_millis(100));
    let store: Handle = Arc::new(Sqlite::open(options).expect("open"));
    submit(&store, &[job(1)]).await;
    let conn = rusqlite::Connection::open(&path).expect("open");
    conn.execute_batch("begin immediate").expect("begin");
    let error = store.submit(at(0), &[job(2)], None).await.expect_err("the file is locked");
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(list(&store, all_jobs()).await, [id(1)], "reads continue meanwhile");
    assert_eq!(gates(&store, &[QUEUE]).await.len(), 1);
    let waiting = {
        let store = open(&path);
        tokio::spawn(async move { store.submit(at(0), &[job(3)], None).await })
    };
    tokio::task::yield_now().await;
    conn.execute_batch("rollback").expect("rollback");
    waiting.await.expect("a task").expect("written once the lock is released");
    submit(&store, &[job(2)]).await;
    assert_eq!(list(&store, all_jobs()).await, [3, 2, 1].map(id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_frees_serial_keys_whose_rows_were_changed_by_hand() {
    let (_folder, path) = path();
    let store = open(&path);
    let conn = rusqlite::Connection::open(&path).expect("open");
    let worker = worker(&store, 1).await;
    submit(
        &store,
        &[
            serial_job(1, "a"),
            serial_job(2, "a"),
            serial_job(3, "b"),
            serial_job(4, "b"),
            serial_job(5, "c"),
            serial_job(6, "c"),
        ],
    )
    .await;
    assert_eq!(claim(&store, at(0), &claim_request(worker, 1, 9)).await.len(), 3);
    // One holder has ended, one was deleted, one lost its slot.
    conn.execute("update windlass_jobs set state = 1 where id = ?1", [id(1).as_bytes()]).expect("update");
    conn.execute("delete from windlass_jobs where id = ?1", [id(3).as_bytes()]).expect("delete");
    conn.execute("delete from windlass_serial_holders where job = ?1", [id(5).as_bytes()]).expect("delete");
    assert!(claim(&store, at(1), &claim_request(worker, 2, 9)).await.is_empty());
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(store.repair(at(1)).await.expect("repair"), 3);
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    assert_eq!(ids(&claim(&store, at(1), &claim_request(worker, 3, 9)).await), [2, 4, 6].map(id));
    assert_eq!(store.repair(at(1)).await.expect("repair"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_wakes_jobs_whose_wait_was_met_by_hand() {
    let (_folder, path) = path();
    let store = open(&path);
    let me = worker(&store, 1).await;
    let mut new = jobs(1, 4);
    new.push(serial_job(5, "k"));
    submit(&store, &new).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    let waits = |n: usize| match n {
        0 => wait_for_signal("go", Some(secs(50))),
        1 => wait_for_signals(&["go", "stop"], 2, None),
        2 => wait_for_children(&claimed[2]),
        _ => wait_for_signal("go", None),
    };
    for (n, job) in claimed.iter().enumerate() {
        let children = if n == 2 { jobs(20, 1) } else { Vec::new() };
        apply(&store, 1, with_step(change(me, job, waits(n)), spawn_children(&children))).await;
    }
    claim(&store, at(1), &claim_request(me, 2, 9)).await;
    let conn = rusqlite::Connection::open(&path).expect("open");
    for n in [1, 2, 4, 5] {
        let sql = "insert into windlass_signals (job, number, name, at, codec, payload) values (?1, 7, ?2, 0, 0, x'31')";
        let name = if n == 4 { "other" } else { "go" };
        conn.execute(sql, rusqlite::params![id(n).as_bytes(), name]).expect("insert");
    }
    conn.execute("update windlass_jobs set pending_children = 0 where id = ?1", [id(3).as_bytes()])
        .expect("update");
    assert_eq!(store.repair(at(5)).await.expect("repair"), 3);
    assert_eq!(store.repair(at(5)).await.expect("repair"), 0);
    let woken = claim(&store, at(5), &claim_request(me, 3, 9)).await;
    assert_eq!(ids(&woken), [1, 3, 5].map(id), "the waits of 2 and 4 are not met");
    assert!(woken.iter().all(|job| job.due_at == t(5)));
    assert_eq!(fire_timers(&store, 99, 9).await.woken, 0, "its timer was removed");
}
