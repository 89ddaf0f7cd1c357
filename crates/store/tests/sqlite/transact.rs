//! Writes of a program's own, committed with a change: both are there, or neither.

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::Connection;
use windlass_model::{
    Change, ClaimedJob, CommitOutcome, Outcome, Rev, StepWrites, WorkerId, wait::CHILD_SIGNAL,
};
use windlass_store::{
    ControlOutcome, Error, JobAction, Work,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

use super::child;

fn options(path: &Path) -> Options {
    Options::new(path).patience(Duration::from_millis(300)).transaction(Duration::from_millis(300))
}

/// A store with a table of the program's own, and the first job, which runs.
async fn begun(path: &Path) -> (Handle, WorkerId, ClaimedJob) {
    let store: Handle = Arc::new(Sqlite::open(options(path)).expect("open"));
    let conn = Connection::open(path).expect("open");
    conn.execute_batch(
        "create table accounts (id integer primary key, balance integer not null check (balance >= 0));
         create table notes (account integer references accounts (id) deferrable initially deferred);
         insert into accounts values (1, 10);",
    )
    .expect("a program's own");
    let (me, job) = running(&store, 1).await;
    (store, me, job)
}

fn balance(path: &Path) -> i64 {
    let conn = Connection::open(path).expect("open");
    conn.query_row("select balance from accounts where id = 1", [], |row| row.get(0)).expect("a row")
}

fn pay(conn: &Connection) {
    conn.execute("update accounts set balance = balance - 1 where id = 1", []).expect("update");
}

/// Work that pays, and goes on with a change.
fn paying(change: Change) -> impl FnOnce(&Connection) -> Option<Change> + Send {
    |conn| {
        pay(conn);
        Some(change)
    }
}

/// A step that adds one entry, at the place of its revision.
fn paid(me: WorkerId, job: &ClaimedJob) -> Change {
    with(change(me, job, Outcome::Next), noted(vec![entry(job.rev.0, "pay", "x")]))
}

async fn transact(
    store: &Handle,
    work: impl FnOnce(&Connection) -> Option<Change> + Send,
) -> Result<Option<CommitOutcome>, Error> {
    store.transact(at(2), Work::Sqlite(Box::new(work))).await
}

/// Expects that so much was paid and that as many entries are there; and that the store can be written to.
async fn so_far(store: &Handle, path: &Path, times: i64) {
    assert_eq!((10 - balance(path), journal(store, 1).await.len() as i64), (times, times));
    assert_eq!(
        act(store, 3, 1, JobAction::Priority(1 + view(store, id(1)).await.summary.priority)).await,
        ControlOutcome::Done
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_are_there() {
    let (_folder, path) = super::path();
    let (store, me, mut job) = begun(&path).await;
    for times in 1..=3 {
        let step = paid(me, &job);
        let answer = transact(&store, paying(step)).await;
        assert_eq!(answer.expect("transact"), Some(CommitOutcome::Committed));
        so_far(&store, &path, times).await;
        job = further(&job);
    }
    assert_eq!(view(&store, id(1)).await.rev, Rev(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_change_may_do_is_done_with_it() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    let children = vec![job_in(2, "never-seen", "nor-this-queue")];
    let step = StepWrites { signal_child_ends: true, children, ..noted(vec![entry(0, "pay", "x")]) };
    let parks = with(change(me, &job, wait_for(CHILD_SIGNAL, Some(secs(50)))), step);
    let answer = transact(&store, paying(parks)).await;
    assert_eq!(answer.expect("transact"), Some(CommitOutcome::Committed));
    so_far(&store, &path, 1).await;
    assert_eq!(state(&store, id(1)).await, windlass_model::State::Waiting);
    assert_eq!(due(&store, 3, 9).await.next_at, Some(t(52)));
    let asked = windlass_store::ClaimRequest {
        queue: "nor-this-queue".into(),
        kinds: [kind("never-seen", 1)].into(),
        ..ask(me, 2, 9)
    };
    assert_eq!(ids(&claim(&store, at(3), &asked).await), [id(2)]);
    let sibling = store.sibling().await.expect("sibling");
    assert_eq!(view(&sibling, id(2)).await.summary.kind, "never-seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_to_halt_halts_with_both() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    act(&store, 1, 1, JobAction::Pause).await;
    let step = paid(me, &job);
    let answer = transact(&store, paying(step)).await;
    assert_eq!(answer.expect("transact"), Some(CommitOutcome::Halted));
    so_far(&store, &path, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_is_there_when_the_work_says_so() {
    let (_folder, path) = super::path();
    let (store, ..) = begun(&path).await;
    let answer = transact(&store, |conn| {
        pay(conn);
        None
    });
    assert_eq!(answer.await.expect("transact"), None);
    so_far(&store, &path, 0).await;
    let answer = transact(&store, |conn| {
        let sql = "insert or rollback into accounts values (1, 5)";
        conn.execute(sql, []).expect_err("the row is there, so all is rolled back");
        None
    });
    assert_eq!(answer.await.expect("transact"), None, "a rollback is what it wants");
    so_far(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_is_there_when_the_change_is_not_taken() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    assert_eq!(commit(&store, 1, paid(me, &job)).await, CommitOutcome::Committed);
    let next = further(&job);
    let fenced = [
        ("there already", paid(me, &job)),
        ("of another revision", paid(me, &ClaimedJob { rev: Rev(9), ..job.clone() })),
        ("of another epoch", paid(me, &ClaimedJob { epoch: windlass_model::Epoch(4), ..next.clone() })),
        ("of no job", paid(me, &ClaimedJob { id: id(44), ..next.clone() })),
    ];
    for (what, step) in fenced {
        let answer = transact(&store, paying(step)).await;
        assert_eq!(answer.expect("transact"), Some(CommitOutcome::Fenced), "{what}");
    }
    let refused = [
        with(paid(me, &next), noted(vec![entry(0, "taken", "x")])),
        with(paid(me, &next), noted(vec![entry(7, &"n".repeat(999), "x")])),
    ];
    for step in refused {
        let answer = transact(&store, paying(step)).await;
        assert!(matches!(answer.expect("transact"), Some(CommitOutcome::Refused(_))));
    }
    assert_eq!((balance(&path), journal(&store, 1).await.len()), (10, 1));
    assert_eq!(commit(&store, 3, paid(me, &next)).await, CommitOutcome::Committed, "it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_is_there_when_the_commit_is_refused() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    let step = paid(me, &job);
    let answer = transact(&store, |conn| {
        pay(conn);
        conn.execute("insert into notes values (77)", []).expect("looked at when it is committed");
        Some(step)
    });
    let error = answer.await.expect_err("there is no such account");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    so_far(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_is_there_when_the_work_panics() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    let task = {
        let store = store.clone();
        tokio::spawn(async move {
            transact(&store, |conn| {
                pay(conn);
                panic!("in the middle")
            })
            .await
        })
    };
    let panic = task.await.expect_err("it panics").into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the middle"), "it is the work's own");
    so_far(&store, &path, 0).await;
    let step = paid(me, &job);
    let answer = transact(&store, paying(step)).await;
    assert_eq!(answer.expect("transact"), Some(CommitOutcome::Committed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_cannot_leave_its_transaction() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    let leaving = [
        "commit",
        "end",
        "commit; begin",
        "commit; begin immediate; update accounts set balance = 3",
        "rollback",
        "rollback; begin immediate",
        "rollback; update accounts set balance = 3",
        "rollback; pragma foreign_keys = off; pragma synchronous = off; begin",
    ];
    for sql in leaving {
        let step = paid(me, &job);
        let answer = transact(&store, |conn| {
            pay(conn);
            // One after the other, whatever becomes of each.
            for part in sql.split("; ") {
                let _ = conn.execute_batch(part);
            }
            Some(step)
        });
        let error = answer.await.expect_err(sql);
        assert!(matches!(&error, Error::Fault(why) if why.contains("nothing was written")), "{sql}: {error}");
        so_far(&store, &path, 0).await;
    }
    let answer = transact(&store, |conn| {
        pay(conn);
        let _ = conn.execute_batch("commit");
        None
    });
    assert!(answer.await.is_err(), "whoever commits learns that it was undone");
    so_far(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn savepoints_are_the_works_own() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    let step = paid(me, &job);
    let answer = transact(&store, |conn| {
        conn.execute_batch("savepoint a; update accounts set balance = 0; rollback to a; release a")
            .expect("ok");
        pay(conn);
        conn.execute_batch("savepoint b").expect("left open");
        Some(step)
    });
    assert_eq!(answer.await.expect("transact"), Some(CommitOutcome::Committed));
    so_far(&store, &path, 1).await;
}

/// What is set on the connection that writes.
fn settings(conn: &Connection) -> Vec<i64> {
    let number = |name: &str| {
        conn.query_row(&format!("pragma {name}"), [], |row| row.get(0))
            .unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    ["foreign_keys", "query_only", "synchronous", "temp_store", "cache_size", "wal_autocheckpoint"]
        .map(number)
        .to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_work_sets_is_put_right() {
    let (_folder, path) = super::path();
    let (store, ..) = begun(&path).await;
    let mut before = Vec::new();
    let _ = transact(&store, |conn| {
        before = settings(conn);
        let set = "rollback; pragma foreign_keys = off; pragma synchronous = off; pragma temp_store = file; \
                   pragma cache_size = 10; pragma wal_autocheckpoint = 1; pragma query_only = on; pragma busy_timeout = 0";
        conn.execute_batch(set).expect("set");
        None
    })
    .await;
    let mut after = Vec::new();
    let answer = transact(&store, |conn| {
        after = settings(conn);
        None
    });
    assert_eq!(answer.await.expect("transact"), None);
    assert_eq!(before, after);
    so_far(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_without_an_end_is_ended() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    let endless = "with recursive n (i) as (select 1 union all select i + 1 from n) ";
    let statements =
        [format!("{endless} select count(*) from n"), format!("{endless} insert into notes select i from n")];
    for sql in statements {
        let (started, step) = (Instant::now(), paid(me, &job));
        let answer = transact(&store, |conn| {
            pay(conn);
            let _ = conn.prepare(&sql).expect("prepare").query([]).map(|mut rows| rows.next().map(|_| ()));
            Some(step)
        });
        let error = answer.await.expect_err("it took too long");
        assert!(matches!(&error, Error::Fault(why) if why.contains("300ms")), "{error}");
        assert!(started.elapsed() < secs(20), "{:?}", started.elapsed());
        so_far(&store, &path, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_writes_to_is_waited_for_before_the_work_runs() {
    let (_folder, path) = super::path();
    let (store, me, job) = begun(&path).await;
    let other = Connection::open(&path).expect("open");
    other.execute_batch("begin immediate").expect("begin");
    let ran = AtomicUsize::new(0);
    let work = |conn: &Connection| {
        ran.fetch_add(1, Ordering::Relaxed);
        pay(conn);
        Some(paid(me, &job))
    };
    let error = transact(&store, work).await.expect_err("it is busy for longer than anyone waits");
    assert!(error.is_retryable(), "{error}");
    assert_eq!(ran.load(Ordering::Relaxed), 0, "it may be sent again: the work never ran");
    let (answer, ()) = tokio::join!(transact(&store, work), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        other.execute_batch("rollback").expect("rollback");
    });
    assert_eq!(answer.expect("transact"), Some(CommitOutcome::Committed));
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    so_far(&store, &path, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_follow_each_other() {
    let (_folder, path) = super::path();
    let (store, me, first) = begun(&path).await;
    submit(&store, &jobs(2, 7)).await;
    let mut taken = claim(&store, at(0), &ask(me, 2, 9)).await;
    taken.push(first);
    let all = taken.iter().map(|job| {
        let step = paid(me, job);
        transact(&store, paying(step))
    });
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.into_iter().all(|answer| answer.expect("transact") == Some(CommitOutcome::Committed)));
    assert_eq!(balance(&path), 2);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_for_another_store_is_an_error_that_says_so() {
    let (_folder, path) = super::path();
    let (store, ..) = begun(&path).await;
    let work = Work::Postgres(Box::new(|_| Box::pin(std::future::ready(None))));
    let error = store.transact(at(1), work).await.expect_err("refused");
    assert!(matches!(&error, Error::Config(why) if why.contains("SQLite")), "{error}");
}

#[test]
fn a_store_that_goes_in_the_middle_leaves_neither() {
    let (_folder, path) = super::path();
    let there = path.clone();
    let gone = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (store, ..) = begun(&there).await;
            transact(&store, |conn| {
                pay(conn);
                panic!("gone")
            })
            .await
        })
    });
    assert!(gone.join().is_err());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store: Handle = Arc::new(Sqlite::open(options(&path)).expect("open"));
        so_far(&store, &path, 0).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_in_the_middle_leaves_neither() {
    let (_folder, path) = super::path();
    let mut command = Command::new(child::binary());
    child::arguments(&mut command, "transact::child_dies_in_the_middle", &path);
    let output = command.output().expect("started");
    assert!(!output.status.success(), "it was to die");
    assert!(String::from_utf8_lossy(&output.stdout).contains("it has paid"), "{output:?}");
    let store: Handle = Arc::new(Sqlite::open(options(&path)).expect("open"));
    so_far(&store, &path, 0).await;
}

#[test]
#[ignore = "run as a child by a_process_that_dies_in_the_middle_leaves_neither"]
fn child_dies_in_the_middle() {
    let Some(path) = child::file() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (store, ..) = begun(&path).await;
        let _ = transact(&store, |conn| {
            pay(conn);
            println!("it has paid");
            std::process::abort()
        })
        .await;
    });
}
