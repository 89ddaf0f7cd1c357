//! Transactions of callers: their writes and the change are committed together, or not at all.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use futures_util::FutureExt;
use windlass_model::{
    Change, ClaimedJob, CommitOutcome, JobId, JournalEntry, Outcome, Payload, State, StepWrites, WorkerId,
    journal::{CallEvent, CallKind},
};
use windlass_store::{
    AsyncWork, Error, JobAction, Tx, Work,
    conformance::kit::*,
    postgres::{Options, Postgres, PostgresTx},
};

use super::{fresh, sql};

fn work<'a, Fut>(run: impl FnOnce(PostgresTx) -> Fut + Send + 'a) -> Work<'a>
where
    Fut: Future<Output = Option<Change>> + Send + 'a,
{
    Work::Postgres(AsyncWork::new(run))
}

/// A store, a table of the user in the default schema, and a claimed job.
struct Fixture {
    store: Handle,
    options: Options,
    table: String,
    holder: WorkerId,
    job: ClaimedJob,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture::with(fresh()).await
    }

    async fn with(options: Options) -> Fixture {
        let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("open"));
        let table = format!("user_{}", options.schema_name());
        sql(&format!("create table {table} (n int primary key)"));
        let (holder, job) = running_job(&store, 1).await;
        Fixture { store, options, table, holder, job }
    }

    /// A step that adds entry `seq`.
    fn step(&self, seq: i32) -> Change {
        step_of(self.holder, &self.job, seq)
    }

    /// A work that inserts row `n` and returns the change.
    fn insert(&self, n: i32, change: Option<Change>) -> Work<'static> {
        let insert = format!("insert into {} values ({n})", self.table);
        work(move |tx| {
            Box::pin(async move {
                tx.batch_execute(&insert).await.expect("inserted");
                change
            })
        })
    }

    async fn rows(&self) -> i64 {
        let client = Postgres::client(&self.options).await.expect("connected");
        let count = format!("select count(*) from public.{}", self.table);
        client.query_one(&count, &[]).await.expect("counted").get(0)
    }

    async fn entries(&self) -> usize {
        self.store.inspect().journal(id(1), None, usize::MAX).await.expect("journal").len()
    }

    /// The number of rows and of journal entries.
    async fn rows_and_entries(&self) -> (i64, usize) {
        (self.rows().await, self.entries().await)
    }
}

fn step_of(holder: WorkerId, job: &ClaimedJob, seq: i32) -> Change {
    let entry = JournalEntry {
        seq,
        call_kind: CallKind::Transaction,
        event: CallEvent::Done,
        name: "write".into(),
        key: None,
        line: None,
        at: t(1),
        payload: payload("1"),
    };
    let step = StepWrites { entries: vec![entry], ..StepWrites::default() };
    Change { writes: Some(Box::new(step)), ..change(holder, job, Outcome::Next) }
}

#[tokio::test]
async fn writes_and_change_are_committed_together_or_not_at_all() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    assert_eq!(store.transact(at(1), fixture.insert(1, None)).await.expect("rolled back"), None);
    assert_eq!(fixture.rows_and_entries().await, (0, 0), "rolled back because the work returned no change");
    let committed = store.transact(at(1), fixture.insert(1, Some(fixture.step(7)))).await.expect("done");
    assert_eq!((committed, fixture.rows_and_entries().await), (Some(CommitOutcome::Committed), (1, 1)));
    assert_eq!(view(store, id(1)).await.rev.0, 1);
    // The same revision again: its writes would be applied twice.
    let again = store.transact(at(1), fixture.insert(2, Some(fixture.step(7)))).await.expect("fenced");
    assert_eq!((again, fixture.rows_and_entries().await), (Some(CommitOutcome::Fenced), (1, 1)));
    let mut stale = fixture.step(8);
    stale.epoch.0 += 1;
    let fenced = store.transact(at(1), fixture.insert(2, Some(stale))).await.expect("fenced");
    assert_eq!((fenced, fixture.rows_and_entries().await), (Some(CommitOutcome::Fenced), (1, 1)));
    // An entry that exists, and a payload that is too long.
    let mut taken = fixture.step(7);
    taken.rev.0 += 1;
    let refused = store.transact(at(1), fixture.insert(2, Some(taken))).await.expect("refused");
    assert!(matches!(refused, Some(CommitOutcome::Refused(_))), "{refused:?}");
    let mut long = fixture.step(8);
    long.rev.0 += 1;
    let bytes = vec![0; store.limits().payload + 1];
    long.writes.as_mut().expect("has one").entries[0].payload = Payload { codec: 1, bytes };
    let refused = store.transact(at(1), fixture.insert(2, Some(long))).await.expect("refused");
    assert!(matches!(refused, Some(CommitOutcome::Refused(_))), "{refused:?}");
    assert_eq!(fixture.rows_and_entries().await, (1, 1));
}

#[tokio::test]
async fn a_panic_rolls_back_and_is_resumed() {
    let fixture = Fixture::new().await;
    for early in [true, false] {
        let insert = format!("insert into {} values (1)", fixture.table);
        let panics = work(move |tx| {
            assert!(!early, "at once");
            Box::pin(async move {
                tx.batch_execute(&insert).await.expect("inserted");
                panic!("in the middle")
            })
        });
        let caught = AssertUnwindSafe(fixture.store.transact(at(1), panics)).catch_unwind().await;
        let panic = caught.expect_err("panicked");
        let message = panic.downcast_ref::<&str>().copied().expect("text");
        assert_eq!(message, if early { "at once" } else { "in the middle" });
    }
    assert_eq!(fixture.rows_and_entries().await, (0, 0));
    let done = fixture.store.transact(at(1), fixture.insert(1, Some(fixture.step(1)))).await.expect("done");
    assert_eq!((done, fixture.rows_and_entries().await), (Some(CommitOutcome::Committed), (1, 1)));
}

#[tokio::test]
async fn a_failed_statement_rolls_everything_back() {
    let fixture = Fixture::new().await;
    for returns_change in [true, false] {
        let (change, insert) = (fixture.step(1), format!("insert into {} values (1)", fixture.table));
        let fails = work(move |tx| {
            Box::pin(async move {
                tx.batch_execute(&insert).await.expect("inserted");
                tx.batch_execute(&insert).await.expect_err("twice");
                returns_change.then_some(change)
            })
        });
        match fixture.store.transact(at(1), fails).await {
            Ok(answer) => assert_eq!((returns_change, answer), (false, None)),
            Err(Error::Fault(why)) => {
                assert!(returns_change && why.contains("a statement of the work failed"), "{why}")
            }
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(fixture.rows_and_entries().await, (0, 0));
    }
    // A deferred constraint is checked at the commit.
    sql(&format!(
        "alter table {0} add foreign key (n) references {0} (n) deferrable initially deferred;
         create table {0}_of (n int references {0} (n) deferrable initially deferred)",
        fixture.table
    ));
    let (change, insert) = (fixture.step(1), format!("insert into {}_of values (9)", fixture.table));
    let late = work(move |tx| {
        Box::pin(async move {
            tx.batch_execute(&insert).await.expect("inserted");
            Some(change)
        })
    });
    let refused = fixture.store.transact(at(1), late).await.expect("refused");
    assert!(
        matches!(&refused, Some(CommitOutcome::Refused(why)) if why.contains("foreign key")),
        "{refused:?}"
    );
    assert_eq!(fixture.entries().await, 0);
}

#[tokio::test]
async fn a_work_that_ends_its_transaction_gets_an_error() {
    let fixture = Fixture::new().await;
    for ends in ["commit", "rollback", "commit; begin", "rollback; begin"] {
        let change = fixture.step(1);
        let by_itself = work(move |tx| {
            Box::pin(async move {
                tx.batch_execute(ends).await.expect("ended");
                Some(change)
            })
        });
        let error = fixture.store.transact(at(1), by_itself).await.expect_err(ends);
        assert!(matches!(&error, Error::Fault(why) if why.contains("leave that to the store")), "{error}");
        assert_eq!(fixture.rows_and_entries().await, (0, 0), "{ends}: nothing of the change was written");
    }
    let done = fixture.store.transact(at(1), fixture.insert(1, Some(fixture.step(1)))).await.expect("done");
    assert_eq!(done, Some(CommitOutcome::Committed), "the next transaction works");
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing() {
    let fixture = Fixture::new().await;
    let (inserted, is_inserted) = tokio::sync::oneshot::channel::<()>();
    let insert = format!("insert into {} values (1)", fixture.table);
    let hangs = work(move |tx| {
        Box::pin(async move {
            tx.batch_execute(&insert).await.expect("inserted");
            inserted.send(()).expect("received");
            std::future::pending().await
        })
    });
    tokio::select! {
        _ = fixture.store.transact(at(1), hangs) => unreachable!("it hangs"),
        inserted = is_inserted => inserted.expect("sent"),
    }
    // The row is not locked, and no connection in a transaction is reused.
    let done = fixture.store.transact(at(1), fixture.insert(1, Some(fixture.step(1)))).await.expect("done");
    assert_eq!((done, fixture.rows_and_entries().await), (Some(CommitOutcome::Committed), (1, 1)));
}

/// Sends a transaction whose server process is terminated at the given time.
async fn transact_killed(fixture: &Fixture, when: &str) -> Result<Option<CommitOutcome>, Error> {
    let table = &fixture.table;
    match when {
        "in the middle" => {
            let (change, kill) = (
                fixture.step(1),
                format!("insert into {table} values (1); select pg_terminate_backend(pg_backend_pid())"),
            );
            let dies = work(move |tx| {
                Box::pin(async move {
                    tx.batch_execute(&kill).await.expect_err("killed");
                    Some(change)
                })
            });
            fixture.store.transact(at(1), dies).await
        }
        _ => {
            // The trigger fires while the server commits.
            sql(&format!(
                "create function {table}_die() returns trigger language plpgsql as
                 $$ begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(5); return null; end $$;
                 create constraint trigger die after insert on {table} deferrable initially deferred
                 for each row execute function {table}_die()"
            ));
            let answer = fixture.store.transact(at(1), fixture.insert(1, Some(fixture.step(1)))).await;
            sql(&format!("drop function {table}_die cascade"));
            answer
        }
    }
}

#[tokio::test]
async fn a_lost_connection_commits_both_or_neither() {
    for when in ["in the middle", "at the commit"] {
        let fixture = Fixture::new().await;
        let error = transact_killed(&fixture, when).await.expect_err(when);
        assert!(error.is_retryable(), "{when}: the outcome is unknown: {error:?}");
        assert_eq!(fixture.rows_and_entries().await, (0, 0), "{when}");
        // Another change with the same revision decides, and lost connections are replaced.
        assert_eq!(commit(&fixture.store, 2, fixture.step(1)).await, CommitOutcome::Committed);
        let late =
            fixture.store.transact(at(3), fixture.insert(2, Some(fixture.step(2)))).await.expect("fenced");
        assert_eq!((late, fixture.rows_and_entries().await), (Some(CommitOutcome::Fenced), (0, 1)), "{when}");
    }
}

#[tokio::test]
async fn idle_connections_that_were_lost_are_replaced() {
    let fixture = Fixture::new().await;
    for n in 0..3 {
        let mut change = fixture.step(n);
        change.rev.0 += n;
        let (insert, session) =
            (format!("insert into {} values ({n})", fixture.table), Arc::new(AtomicI32::new(0)));
        let noted = Arc::clone(&session);
        let writes = work(move |tx| {
            Box::pin(async move {
                tx.batch_execute(&insert).await.expect("inserted");
                let row = tx.query_one("select pg_backend_pid()", &[]).await.expect("read");
                noted.store(row.get(0), Ordering::Relaxed);
                Some(change)
            })
        });
        let done = fixture.store.transact(at(1), writes).await.expect("done");
        assert_eq!(done, Some(CommitOutcome::Committed));
        let killed = sql(&format!("select pg_terminate_backend({})", session.load(Ordering::Relaxed)));
        assert_eq!(killed, "t", "the idle connection");
    }
    assert_eq!(fixture.rows_and_entries().await, (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_open_transactions_block_no_commits() {
    let fixture = Fixture::new().await;
    submit(&fixture.store, &jobs(100, 60)).await;
    let held = claim(&fixture.store, at(0), &claim_request(fixture.holder, 2, 60)).await;
    let (open, _) = tokio::sync::watch::channel(false);
    let tasks: Vec<_> = held[..50]
        .iter()
        .enumerate()
        .map(|(n, job)| {
            let (store, mut opened) = (fixture.store.clone(), open.subscribe());
            let change = step_of(fixture.holder, job, 1);
            let insert = format!("insert into {} values ({n})", fixture.table);
            tokio::spawn(async move {
                let waits = work(move |tx| {
                    Box::pin(async move {
                        tx.batch_execute(&insert).await.expect("inserted");
                        opened.wait_for(|open| *open).await.expect("opened");
                        (n % 5 != 0).then_some(change)
                    })
                });
                store.transact(at(1), waits).await.expect("answered")
            })
        })
        .collect();
    // Others commit while they are open.
    for job in &held[50..] {
        let outcome = commit(&fixture.store, 1, change(fixture.holder, job, done("x"))).await;
        assert_eq!(outcome, CommitOutcome::Committed);
    }
    open.send_replace(true);
    let mut committed = 0;
    for (n, task) in tasks.into_iter().enumerate() {
        let answer = task.await.expect("a task");
        assert_eq!(answer, (n % 5 != 0).then_some(CommitOutcome::Committed), "{n}");
        committed += i64::from(answer.is_some());
    }
    assert_eq!((fixture.rows().await, committed), (40, 40));
    let mut entries = 0;
    for n in 100..150 {
        entries += fixture.store.inspect().journal(id(n), None, 9).await.expect("journal").len();
    }
    assert_eq!(entries, 40);
}

/// All parts of a change are written, and the settings of one work do not affect the next.
#[tokio::test]
async fn a_transaction_writes_all_parts_of_a_change() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut change = fixture.step(1);
    change.outcome = wait_for_signal("go", None);
    let step = change.writes.as_mut().expect("has one");
    (step.children, step.signal_child_ends, step.has_undo) = (jobs(10, 3), true, true);
    step.context = vec![("name".into(), payload("1"))];
    let sets = work(move |tx| {
        Box::pin(async move {
            tx.batch_execute("set search_path to nowhere; set work_mem to '3MB'").await.expect("set");
            Some(change)
        })
    });
    assert_eq!(store.transact(at(1), sets).await.expect("done"), Some(CommitOutcome::Committed));
    assert_eq!((state(store, id(1)).await, count(store, State::Ready).await), (State::Waiting, 3));
    assert_eq!(store.inspect().context(id(1)).await.expect("context").len(), 1);
    let reads = work(|tx| {
        Box::pin(async move {
            let row = tx.query_one("select current_setting('search_path'), current_setting('work_mem')", &[]);
            let row = row.await.expect("read");
            assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("\"$user\", public", "4MB"));
            let stricter = tx.batch_execute("set transaction isolation level serializable").await;
            stricter.expect_err("what the store writes relies on seeing what others committed");
            None
        })
    });
    assert_eq!(store.transact(at(1), reads).await.expect("rolled back"), None);
    // A paused job is halted, with everything written.
    let child = claim_one(store, 2, fixture.holder, 9).await;
    must_act(store, 3, 10, JobAction::Pause).await;
    let halted = store.transact(at(4), fixture.insert(1, Some(step_of(fixture.holder, &child, 1)))).await;
    assert_eq!((halted.expect("halted"), fixture.rows().await), (Some(CommitOutcome::Halted), 1));
    // The parent gets a signal of the end of its child.
    let child = claim(store, at(5), &claim_request(fixture.holder, 10, 1)).await.remove(0);
    let ends = self::change(fixture.holder, &child, done("x"));
    let ended = store.transact(at(6), fixture.insert(2, Some(ends))).await.expect("ended");
    assert_eq!((ended, state(store, child.id).await), (Some(CommitOutcome::Committed), State::Done));
    assert_eq!(inbox(store, 1).await, [child_signal(child.id)]);
}

/// The payload of the signal for a child.
fn child_signal(child: JobId) -> String {
    format!("\"{child}\"")
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_transaction_for_sqlite_is_refused() {
    let fixture = Fixture::new().await;
    let other = Work::Sqlite(Box::new(|_| unreachable!("not run")));
    let error = fixture.store.transact(at(1), other).await.expect_err("refused");
    assert!(matches!(&error, Error::Config(why) if why.contains("PostgreSQL")), "{error:?}");
}

#[tokio::test]
async fn a_client_that_is_kept_is_closed_and_everything_rolled_back() {
    let fixture = Fixture::new().await;
    let insert = format!("insert into {} values (1)", fixture.table);
    let (change, mut kept) = (fixture.step(1), None);
    let leaks = work(async |tx: PostgresTx| {
        tx.batch_execute(&insert).await.expect("inserted");
        kept = Some(tx);
        Some(change)
    });
    let error = fixture.store.transact(at(1), leaks).await.expect_err("it still exists");
    assert!(matches!(&error, Error::Misuse(why) if why.contains("was still in use")), "{error}");
    // Nothing can be sent over its connection, inside or outside of a transaction.
    let kept = kept.expect("kept");
    kept.batch_execute(&insert.replace('1', "2")).await.expect_err("the connection is closed");
    assert!(kept.is_closed());
    let done = fixture.store.transact(at(1), fixture.insert(1, Some(fixture.step(1)))).await.expect("done");
    assert_eq!((done, fixture.rows_and_entries().await), (Some(CommitOutcome::Committed), (1, 1)));
}

#[tokio::test]
async fn values_are_encoded_as_the_server_expects_them() {
    let fixture = Fixture::new().await;
    let table = format!("{}_types", fixture.table);
    sql(&format!(
        "create type {table}_mood as enum ('glad', 'sad'); create domain {table}_age as int4 check (value >= 0);
         create table {table} (i2 int2, i4 int4, f4 float4, n numeric, v varchar(3), c bpchar, name name, j json,
                               mood {table}_mood, age {table}_age, day date, list int4[])"
    ));
    let reads = Work::Tx(AsyncWork::new(async |tx: Tx| {
        let insert = format!(
            "insert into {table} (i2, i4, f4, n, v, c, name, j, mood, age) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
        );
        let json = serde_json::json!([1]);
        let params = (1, 2, 0.5, "12345678901234567890.50", "abc", "x", "y", &json, "glad", 40);
        assert_eq!(tx.execute(&insert, params).await, Ok(1));
        let row = tx.query_one(&format!("select * from {table}"), ()).await.expect("one row");
        assert_eq!((row.get("i2"), row.get("i4"), row.get("f4")), (Ok(1), Ok(2), Ok(0.5_f32)));
        assert_eq!(row.get("n"), Ok("12345678901234567890.50".to_owned()), "every digit");
        assert_eq!((row.get("v"), row.get("c")), (Ok("abc".to_owned()), Ok("x".to_owned())));
        assert_eq!((row.get("name"), row.get("mood")), (Ok("y".to_owned()), Ok("glad".to_owned())));
        assert_eq!((row.get("j"), row.get("age")), (Ok(json), Ok(40)));
        let day =
            "select cast($1 as date) as day, cast(cast($2 as text) as date) as cast_day, array[1] as list";
        let failure = tx.query(day, ("2026-11-18", "2026-11-18")).await.expect_err("no value for a date");
        assert!(failure.message.contains("$1") && failure.message.contains("date"), "{failure}");
        None
    }));
    assert_eq!(fixture.store.transact(at(1), reads).await.expect("rolled back"), None);
    let unreadable = Work::Tx(AsyncWork::new(async |tx: Tx| {
        let row = tx.query_one(
            "select current_date as day, cast(current_date as text) as text, array[1] as list",
            (),
        );
        let row = row.await.expect("one row");
        row.get::<String>("text").expect("text");
        for column in ["day", "list"] {
            let failure = row.get::<String>(column).expect_err("no value");
            assert!(
                failure.message.contains(column) && failure.message.contains("cast(… as text)"),
                "{failure}"
            );
        }
        None
    }));
    assert_eq!(fixture.store.transact(at(1), unreadable).await.expect("rolled back"), None);
    for (column, value, part) in [
        ("i2", 70_000_i64, "$1 does not fit: its type is int2, and 70000"),
        ("mood", 1, "_mood, and the integer 1"),
    ] {
        let wrong = Work::Tx(AsyncWork::new(async |tx: Tx| {
            let insert = format!("insert into {table} ({column}) values ($1)");
            let failure = tx.execute(&insert, (value,)).await.expect_err("it does not fit");
            assert!(failure.message.contains(part), "{failure}");
            None
        }));
        assert_eq!(fixture.store.transact(at(1), wrong).await.expect("rolled back"), None);
    }
}
