//! Trouble in the middle of work: a change the database refuses, a disk that gives out, a writer that stays.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use windlass_model::{CommitOutcome, NewJob, Payload, State, SubmitOutcome};
use windlass_store::{
    Error, Store,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

use super::{child, path};

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
    let taken = claim(&store, at(0), &ask(worker, 1, 500)).await;
    let outcome = |n: usize| match n {
        // The first is refused at once, the second only after its row was updated: both leave nothing.
        123 => done("poison"),
        321 => windlass_model::Outcome::Retry {
            after: secs(0),
            retry_counts: vec![],
            failure: Some(windlass_model::Failure::retry("poison")),
        },
        _ if n.is_multiple_of(2) => retry(secs(0), &[]),
        _ => done("x"),
    };
    let batch: Vec<_> = taken.iter().enumerate().map(|(n, job)| change(worker, job, outcome(n))).collect();
    let verdicts = store.commit(at(1), &batch).await.expect("commit");
    for (n, verdict) in verdicts.iter().enumerate() {
        if n == 123 || n == 321 {
            assert!(
                matches!(verdict, CommitOutcome::Refused(why) if why.contains("poison")),
                "{n}: {verdict:?}"
            );
            let kept = view(&store, id(n as u32)).await;
            assert_eq!((kept.summary.state, kept.rev.0, kept.epoch.0), (State::Running, 0, 0), "{n}");
        } else {
            assert_eq!(*verdict, CommitOutcome::Committed, "{n}");
        }
    }
    assert_eq!((count(&store, State::Ready).await, count(&store, State::Done).await), (250, 248));
    assert_eq!(store.commit(at(2), &batch).await.expect("commit"), verdicts, "and the same again");
    let minimal = change(worker, &taken[123], failed(windlass_model::Reason::Refused));
    assert_eq!(commit(&store, 3, minimal).await, CommitOutcome::Committed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_gives_out_is_waited_out() {
    let (_folder, path) = path();
    drop(open(&path));
    // A limit on the size of the child's files stands for a full disk: writes fail in the middle.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\""]).arg(child::binary());
    child::arguments(&mut command, "trouble::child_fills_the_disk", &path);
    let text = child::passed(&command.output().expect("a child"));
    let number = |name: &str| -> u32 {
        let line = text.lines().find_map(|line| line.split_once(name)).unwrap_or_else(|| panic!("{text}"));
        line.1.trim().parse().expect("a number")
    };
    let taken = number("acknowledged:");
    assert!((10..2_000).contains(&taken), "{text}");
    let store = open(&path);
    let there = list(&store, all()).await;
    assert_eq!(
        there,
        (0..taken).rev().map(id).collect::<Vec<_>>(),
        "what was acknowledged, and nothing else"
    );
    let answers = store.submit(at(0), &large(taken), None).await.expect("there is room again");
    assert_eq!(answers, vec![SubmitOutcome::New { claimed: None }; 10]);
    let worker = worker(&store, 2).await;
    assert_eq!(claim(&store, at(0), &ask(worker, 1, 10_000)).await.len() as u32, taken + 10);
}

/// Ten jobs with 10 kB each.
fn large(from: u32) -> Vec<NewJob> {
    let with = |n| NewJob { input: Payload::json(vec![b'1'; 10_000]), ..job(n) };
    (from..from + 10).map(with).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a child by a_disk_that_gives_out_is_waited_out"]
async fn child_fills_the_disk() {
    let Some(path) = child::file() else { return };
    let options = Options::new(path).patience(Duration::from_millis(200));
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(options).expect("open"));
    let mut acknowledged = 0;
    let error = loop {
        match store.submit(at(0), &large(acknowledged), None).await {
            Ok(answers) => acknowledged += answers.len() as u32,
            Err(error) => break error,
        }
        assert!(acknowledged < 100_000, "the limit holds");
    };
    assert!(matches!(error, Error::Unavailable(_)) && error.is_retryable(), "{error:?}");
    // It goes on failing the same way, reads go on, and nothing is stuck in a broken transaction.
    for _ in 0..3 {
        let again = store.submit(at(0), &large(acknowledged), None).await.expect_err("still full");
        assert!(again.is_retryable(), "{again:?}");
        assert_eq!(list(&store, all()).await.len() as u32, acknowledged);
    }
    println!("\nacknowledged: {acknowledged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_stays_is_waited_for_and_then_told() {
    let (_folder, path) = path();
    let options = Options::new(&path).patience(Duration::from_millis(100));
    let store: Handle = Arc::new(Sqlite::open(options).expect("open"));
    submit(&store, &[job(1)]).await;
    let conn = rusqlite::Connection::open(&path).expect("open");
    conn.execute_batch("begin immediate").expect("begin");
    let error = store.submit(at(0), &[job(2)], None).await.expect_err("locked out");
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(list(&store, all()).await, [id(1)], "reads go on meanwhile");
    assert_eq!(gates(&store, &[QUEUE]).await.len(), 1);
    let waiting = {
        let store = open(&path);
        tokio::spawn(async move { store.submit(at(0), &[job(3)], None).await })
    };
    tokio::task::yield_now().await;
    conn.execute_batch("rollback").expect("rollback");
    waiting.await.expect("a task").expect("the patient one gets through");
    submit(&store, &[job(2)]).await;
    assert_eq!(list(&store, all()).await, [3, 2, 1].map(id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_mends_what_a_hand_in_the_database_left() {
    let (_folder, path) = path();
    let store = open(&path);
    let conn = rusqlite::Connection::open(&path).expect("open");
    let worker = worker(&store, 1).await;
    submit(
        &store,
        &[keyed(1, "a"), keyed(2, "a"), keyed(3, "b"), keyed(4, "b"), keyed(5, "c"), keyed(6, "c")],
    )
    .await;
    assert_eq!(claim(&store, at(0), &ask(worker, 1, 9)).await.len(), 3);
    // One holder has ended, one is gone, one lost its slot.
    conn.execute("update windlass_jobs set state = 1 where id = ?1", [id(1).as_bytes()]).expect("update");
    conn.execute("delete from windlass_jobs where id = ?1", [id(3).as_bytes()]).expect("delete");
    conn.execute("delete from windlass_serial_holders where job = ?1", [id(5).as_bytes()]).expect("delete");
    assert!(claim(&store, at(1), &ask(worker, 2, 9)).await.is_empty());
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(store.repair(at(1)).await.expect("sweep"), 3);
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    assert_eq!(ids(&claim(&store, at(1), &ask(worker, 3, 9)).await), [2, 4, 6].map(id));
    assert_eq!(store.repair(at(1)).await.expect("sweep"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_wakes_what_a_hand_in_the_file_left_parked() {
    let (_folder, path) = path();
    let store = open(&path);
    let me = worker(&store, 1).await;
    let mut parks = jobs(1, 4);
    parks.push(keyed(5, "k"));
    submit(&store, &parks).await;
    let taken = claim(&store, at(0), &ask(me, 1, 9)).await;
    let waits = |n: usize| match n {
        0 => wait_for("go", Some(secs(50))),
        1 => wait_for_some(&["go", "stop"], 2, None),
        2 => join(&taken[2]),
        _ => wait_for("go", None),
    };
    for (n, job) in taken.iter().enumerate() {
        let children = if n == 2 { jobs(20, 1) } else { Vec::new() };
        commit(&store, 1, with(change(me, job, waits(n)), bear(&children))).await;
    }
    claim(&store, at(1), &ask(me, 2, 9)).await;
    let conn = rusqlite::Connection::open(&path).expect("open");
    for n in [1, 2, 4, 5] {
        let sql = "insert into windlass_signals (job, number, name, at, codec, payload) values (?1, 7, ?2, 0, 0, x'31')";
        let name = if n == 4 { "other" } else { "go" };
        conn.execute(sql, rusqlite::params![id(n).as_bytes(), name]).expect("insert");
    }
    conn.execute("update windlass_jobs set pending_children = 0 where id = ?1", [id(3).as_bytes()])
        .expect("update");
    assert_eq!(store.repair(at(5)).await.expect("sweep"), 3);
    assert_eq!(store.repair(at(5)).await.expect("sweep"), 0);
    let woken = claim(&store, at(5), &ask(me, 3, 9)).await;
    assert_eq!(ids(&woken), [1, 3, 5].map(id), "2 and 4 have not all they wait for");
    assert!(woken.iter().all(|job| job.due_at == t(5)));
    assert_eq!(due(&store, 99, 9).await.woken, 0, "its timer went with it");
}
