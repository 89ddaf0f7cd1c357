//! Transactions of callers: their writes and the change are committed together, or not at all.

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
    AsyncWork, ControlOutcome, Error, JobAction, Tx, Work,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

use super::child_process;

fn options(path: &Path) -> Options {
    Options::new(path).patience(Duration::from_millis(300)).transaction(Duration::from_millis(300))
}

/// A store with tables of the user in its file, and job 1, which is claimed.
async fn fixture(path: &Path) -> (Handle, WorkerId, ClaimedJob) {
    let store: Handle = Arc::new(Sqlite::open(options(path)).expect("open"));
    let conn = Connection::open(path).expect("open");
    conn.execute_batch(
        "create table accounts (id integer primary key, balance integer not null check (balance >= 0));
         create table notes (account integer references accounts (id) deferrable initially deferred);
         insert into accounts values (1, 10);",
    )
    .expect("tables of the user");
    let (me, job) = running_job(&store, 1).await;
    (store, me, job)
}

fn balance(path: &Path) -> i64 {
    let conn = Connection::open(path).expect("open");
    conn.query_row("select balance from accounts where id = 1", [], |row| row.get(0)).expect("a row")
}

fn pay(conn: &Connection) {
    conn.execute("update accounts set balance = balance - 1 where id = 1", []).expect("update");
}

/// A work that pays and returns the change.
fn pay_and_commit(change: Change) -> impl FnOnce(&Connection) -> Option<Change> + Send {
    |conn| {
        pay(conn);
        Some(change)
    }
}

/// A step that adds one journal entry, numbered by the revision.
fn payment_step(me: WorkerId, job: &ClaimedJob) -> Change {
    with_step(change(me, job, Outcome::Next), journal_writes(vec![entry(job.rev.0, "pay", "x")]))
}

async fn transact(
    store: &Handle,
    work: impl FnOnce(&Connection) -> Option<Change> + Send,
) -> Result<Option<CommitOutcome>, Error> {
    store.transact(at(2), Work::Sqlite(Box::new(work))).await
}

/// Expects so many payments and as many journal entries, and that the store can still write.
async fn expect_payments(store: &Handle, path: &Path, times: i64) {
    assert_eq!((10 - balance(path), journal(store, 1).await.len() as i64), (times, times));
    assert_eq!(
        act_on_job(store, 3, 1, JobAction::Priority(1 + view(store, id(1)).await.summary.priority)).await,
        ControlOutcome::Done
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_and_change_are_committed_together() {
    let (_folder, path) = super::path();
    let (store, me, mut job) = fixture(&path).await;
    for times in 1..=3 {
        let step = payment_step(me, &job);
        let result = transact(&store, pay_and_commit(step)).await;
        assert_eq!(result.expect("transact"), Some(CommitOutcome::Committed));
        expect_payments(&store, &path, times).await;
        job = after_step(&job);
    }
    assert_eq!(view(&store, id(1)).await.rev, Rev(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_writes_all_parts_of_a_change() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    let children = vec![job_in(2, "never-seen", "nor-this-queue")];
    let step = StepWrites { signal_child_ends: true, children, ..journal_writes(vec![entry(0, "pay", "x")]) };
    let parks = with_step(change(me, &job, wait_for_signal(CHILD_SIGNAL, Some(secs(50)))), step);
    let result = transact(&store, pay_and_commit(parks)).await;
    assert_eq!(result.expect("transact"), Some(CommitOutcome::Committed));
    expect_payments(&store, &path, 1).await;
    assert_eq!(state(&store, id(1)).await, windlass_model::State::Waiting);
    assert_eq!(fire_timers(&store, 3, 9).await.next_at, Some(t(52)));
    let request = windlass_store::ClaimRequest {
        queue: "nor-this-queue".into(),
        kinds: [kind("never-seen", 1)].into(),
        ..claim_request(me, 2, 9)
    };
    assert_eq!(ids(&claim(&store, at(3), &request).await), [id(2)]);
    let sibling = store.sibling().await.expect("sibling");
    assert_eq!(view(&sibling, id(2)).await.summary.kind, "never-seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_job_is_halted_with_everything_written() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    must_act(&store, 1, 1, JobAction::Pause).await;
    let step = payment_step(me, &job);
    let result = transact(&store, pay_and_commit(step)).await;
    assert_eq!(result.expect("transact"), Some(CommitOutcome::Halted));
    expect_payments(&store, &path, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_rolled_back_if_the_work_returns_no_change() {
    let (_folder, path) = super::path();
    let (store, ..) = fixture(&path).await;
    let result = transact(&store, |conn| {
        pay(conn);
        None
    });
    assert_eq!(result.await.expect("transact"), None);
    expect_payments(&store, &path, 0).await;
    let result = transact(&store, |conn| {
        let sql = "insert or rollback into accounts values (1, 5)";
        conn.execute(sql, []).expect_err("the row exists, so SQLite rolls everything back");
        None
    });
    assert_eq!(result.await.expect("transact"), None, "the work wants a rollback anyway");
    expect_payments(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_rolled_back_if_the_change_is_fenced_or_refused() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    assert_eq!(commit(&store, 1, payment_step(me, &job)).await, CommitOutcome::Committed);
    let next = after_step(&job);
    let fenced = [
        ("committed already", payment_step(me, &job)),
        ("of another revision", payment_step(me, &ClaimedJob { rev: Rev(9), ..job.clone() })),
        (
            "of another epoch",
            payment_step(me, &ClaimedJob { epoch: windlass_model::Epoch(4), ..next.clone() }),
        ),
        ("of no job", payment_step(me, &ClaimedJob { id: id(44), ..next.clone() })),
    ];
    for (what, step) in fenced {
        let result = transact(&store, pay_and_commit(step)).await;
        assert_eq!(result.expect("transact"), Some(CommitOutcome::Fenced), "{what}");
    }
    let refused = [
        with_step(payment_step(me, &next), journal_writes(vec![entry(0, "taken", "x")])),
        with_step(payment_step(me, &next), journal_writes(vec![entry(7, &"n".repeat(999), "x")])),
    ];
    for step in refused {
        let result = transact(&store, pay_and_commit(step)).await;
        assert!(matches!(result.expect("transact"), Some(CommitOutcome::Refused(_))));
    }
    assert_eq!((balance(&path), journal(&store, 1).await.len()), (10, 1));
    assert_eq!(
        commit(&store, 3, payment_step(me, &next)).await,
        CommitOutcome::Committed,
        "the job continues"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_rolled_back_if_the_commit_is_refused() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    let step = payment_step(me, &job);
    let result = transact(&store, |conn| {
        pay(conn);
        conn.execute("insert into notes values (77)", []).expect("checked at the commit");
        Some(step)
    });
    let error = result.await.expect_err("there is no such account");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    expect_payments(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_rolls_back_and_is_resumed() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
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
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the middle"), "the panic of the work");
    expect_payments(&store, &path, 0).await;
    let step = payment_step(me, &job);
    let result = transact(&store, pay_and_commit(step)).await;
    assert_eq!(result.expect("transact"), Some(CommitOutcome::Committed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_work_that_ends_its_transaction_gets_an_error() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    let statements = [
        "commit",
        "end",
        "commit; begin",
        "commit; begin immediate; update accounts set balance = 3",
        "rollback",
        "rollback; begin immediate",
        "rollback; update accounts set balance = 3",
        "rollback; pragma foreign_keys = off; pragma synchronous = off; begin",
    ];
    for sql in statements {
        let step = payment_step(me, &job);
        let result = transact(&store, |conn| {
            pay(conn);
            // One after the other, even if one fails.
            for part in sql.split("; ") {
                let _ = conn.execute_batch(part);
            }
            Some(step)
        });
        let error = result.await.expect_err(sql);
        assert!(matches!(&error, Error::Fault(why) if why.contains("nothing was written")), "{sql}: {error}");
        expect_payments(&store, &path, 0).await;
    }
    let result = transact(&store, |conn| {
        pay(conn);
        let _ = conn.execute_batch("commit");
        None
    });
    assert!(result.await.is_err(), "a work that commits learns that it was undone");
    expect_payments(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_work_may_use_savepoints() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    let step = payment_step(me, &job);
    let result = transact(&store, |conn| {
        conn.execute_batch("savepoint a; update accounts set balance = 0; rollback to a; release a")
            .expect("ok");
        pay(conn);
        conn.execute_batch("savepoint b").expect("left open");
        Some(step)
    });
    assert_eq!(result.await.expect("transact"), Some(CommitOutcome::Committed));
    expect_payments(&store, &path, 1).await;
}

/// Settings of the connection that writes.
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
async fn settings_that_a_work_changes_are_restored() {
    let (_folder, path) = super::path();
    let (store, ..) = fixture(&path).await;
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
    let result = transact(&store, |conn| {
        after = settings(conn);
        None
    });
    assert_eq!(result.await.expect("transact"), None);
    assert_eq!(before, after);
    expect_payments(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_statement_is_interrupted() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    let endless = "with recursive n (i) as (select 1 union all select i + 1 from n) ";
    let statements =
        [format!("{endless} select count(*) from n"), format!("{endless} insert into notes select i from n")];
    for sql in statements {
        let (started, step) = (Instant::now(), payment_step(me, &job));
        let result = transact(&store, |conn| {
            pay(conn);
            let _ = conn.prepare(&sql).expect("prepare").query([]).map(|mut rows| rows.next().map(|_| ()));
            Some(step)
        });
        let error = result.await.expect_err("it took too long");
        assert!(matches!(&error, Error::Fault(why) if why.contains("300ms")), "{error}");
        assert!(started.elapsed() < secs(20), "{:?}", started.elapsed());
        expect_payments(&store, &path, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_work_keeps_others_from_writing_for_a_limited_time() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    let (opened, is_open) = tokio::sync::oneshot::channel();
    let waits = AsyncWork::new(async move |tx: Tx| {
        tx.execute("update accounts set balance = balance - 1", ()).await.expect("updated");
        opened.send(()).expect("received");
        // What it waits for needs the writer itself, as a submit would.
        std::future::pending().await
    });
    let other = async {
        is_open.await.expect("open");
        commit(&store, 3, payment_step(me, &job)).await
    };
    let (waited, committed) = tokio::join!(store.transact(at(2), Work::Tx(waits)), other);
    let error = waited.expect_err("it took too long");
    assert!(matches!(&error, Error::Fault(why) if why.contains("still open after 300ms")), "{error}");
    assert_eq!(committed, CommitOutcome::Committed, "after the transaction was rolled back");
    assert_eq!(balance(&path), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_statement_of_an_async_work_is_interrupted() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    let (step, mut failure) = (payment_step(me, &job), None);
    let endless = "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n";
    let work = AsyncWork::new(async |tx: Tx| {
        failure = tx.query(endless, ()).await.err();
        Some(step)
    });
    store.transact(at(2), Work::Tx(work)).await.expect_err("it took too long");
    let failure = failure.expect("interrupted");
    assert!(failure.message.contains("300ms"), "{failure}");
    expect_payments(&store, &path, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placeholders_of_sqlites_own_are_refused_with_what_to_write() {
    let (_folder, path) = super::path();
    let (store, ..) = fixture(&path).await;
    for (sql, part) in [
        ("select ?1", "`?1` is not a placeholder of a transaction; write `$1`"),
        ("select ?", "`?` is not a placeholder"),
        ("select :id", "`:id` is not a placeholder"),
        ("select $0", "`$0` is not a placeholder"),
        ("select $1::bigint", "write `cast($1 as bigint)`"),
        ("select 1; select 2", "ultiple statements"),
    ] {
        let work = AsyncWork::new(async |tx: Tx| {
            let failure = tx.query(sql, (1,)).await.expect_err(sql);
            assert!(failure.message.contains(part), "{sql}: {failure}");
            None
        });
        assert_eq!(store.transact(at(2), Work::Tx(work)).await.expect("rolled back"), None);
    }
    let nan = AsyncWork::new(async |tx: Tx| {
        let failure = tx.query("select $1", (f64::NAN,)).await.expect_err("SQLite would store null");
        assert!(failure.message.contains("$1"), "{failure}");
        None
    });
    assert_eq!(store.transact(at(2), Work::Tx(nan)).await.expect("rolled back"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_file_is_waited_for_before_the_work_runs() {
    let (_folder, path) = super::path();
    let (store, me, job) = fixture(&path).await;
    let other = Connection::open(&path).expect("open");
    other.execute_batch("begin immediate").expect("begin");
    let ran = AtomicUsize::new(0);
    let work = |conn: &Connection| {
        ran.fetch_add(1, Ordering::Relaxed);
        pay(conn);
        Some(payment_step(me, &job))
    };
    let error = transact(&store, work).await.expect_err("it is locked for longer than the patience");
    assert!(error.is_retryable(), "{error}");
    assert_eq!(ran.load(Ordering::Relaxed), 0, "it may be repeated: the work never ran");
    let (result, ()) = tokio::join!(transact(&store, work), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        other.execute_batch("rollback").expect("rollback");
    });
    assert_eq!(result.expect("transact"), Some(CommitOutcome::Committed));
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    expect_payments(&store, &path, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_transactions_run_one_after_the_other() {
    let (_folder, path) = super::path();
    let (store, me, first) = fixture(&path).await;
    submit(&store, &jobs(2, 7)).await;
    let mut claimed = claim(&store, at(0), &claim_request(me, 2, 9)).await;
    claimed.push(first);
    let all = claimed.iter().map(|job| {
        let step = payment_step(me, job);
        transact(&store, pay_and_commit(step))
    });
    let results = futures_util::future::join_all(all).await;
    assert!(results.into_iter().all(|result| result.expect("transact") == Some(CommitOutcome::Committed)));
    assert_eq!(balance(&path), 2);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_for_postgres_is_refused() {
    let (_folder, path) = super::path();
    let (store, ..) = fixture(&path).await;
    let work = Work::Postgres(windlass_store::PostgresWork::new(async |_| None));
    let error = store.transact(at(1), work).await.expect_err("refused");
    assert!(matches!(&error, Error::Config(why) if why.contains("SQLite")), "{error}");
}

#[test]
fn a_store_dropped_in_the_middle_leaves_nothing() {
    let (_folder, path) = super::path();
    let same_path = path.clone();
    let gone = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (store, ..) = fixture(&same_path).await;
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
        expect_payments(&store, &path, 0).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_in_the_middle_leaves_nothing() {
    let (_folder, path) = super::path();
    let mut command = Command::new(child_process::binary());
    child_process::arguments(&mut command, "transact::child_dies_in_the_middle", &path);
    let output = command.output().expect("started");
    assert!(!output.status.success(), "it aborts itself");
    assert!(String::from_utf8_lossy(&output.stdout).contains("it has paid"), "{output:?}");
    let store: Handle = Arc::new(Sqlite::open(options(&path)).expect("open"));
    expect_payments(&store, &path, 0).await;
}

#[test]
#[ignore = "run as a child by a_process_that_dies_in_the_middle_leaves_nothing"]
fn child_dies_in_the_middle() {
    let Some(path) = child_process::file() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (store, ..) = fixture(&path).await;
        let _ = transact(&store, |conn| {
            pay(conn);
            println!("it has paid");
            std::process::abort()
        })
        .await;
    });
}
