//! Transactions of others: their row and the entry of the journal are both there, or neither is.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use futures_util::FutureExt;
use tokio_postgres::Transaction;
use windlass_model::{
    Change, ClaimedJob, CommitOutcome, JobId, JournalEntry, Outcome, Payload, State, StepWrites, WorkerId,
    journal::{CallEvent, CallKind},
};
use windlass_store::{
    Error, JobAction, Work,
    conformance::kit::*,
    postgres::{Options, Postgres},
};

use super::{cluster, fresh};

/// What a work answers.
type Answer<'t> = Pin<Box<dyn Future<Output = Option<Change>> + Send + 't>>;

fn work<'a>(run: impl for<'t> FnOnce(&'t Transaction<'t>) -> Answer<'t> + Send + 'a) -> Work<'a> {
    Work::Postgres(Box::new(run))
}

/// A store, a table of the user's own in the schema that is theirs by default, and whoever holds a job.
struct Bench {
    store: Handle,
    options: Options,
    table: String,
    holder: WorkerId,
    job: ClaimedJob,
}

impl Bench {
    async fn new() -> Bench {
        Bench::with(fresh()).await
    }

    async fn with(options: Options) -> Bench {
        let store: Handle = Arc::new(Postgres::open(options.clone()).await.expect("open"));
        let table = format!("mine_{}", options.schema_name());
        sql(&format!("create table {table} (n int primary key)"));
        let (holder, job) = running(&store, 1).await;
        Bench { store, options, table, holder, job }
    }

    /// A step that adds entry `seq`.
    fn step(&self, seq: i32) -> Change {
        step_of(self.holder, &self.job, seq)
    }

    /// Writes row `n`, and answers the change.
    fn writes(&self, n: i32, change: Option<Change>) -> Work<'static> {
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

    /// How many rows and entries there are.
    async fn both(&self) -> (i64, usize) {
        (self.rows().await, self.entries().await)
    }
}

fn step_of(holder: WorkerId, job: &ClaimedJob, seq: i32) -> Change {
    let entry = JournalEntry {
        seq,
        op: CallKind::Transaction,
        mark: CallEvent::Done,
        name: "write".into(),
        key: None,
        line: None,
        at: t(1),
        payload: payload("1"),
    };
    let step = StepWrites { entries: vec![entry], ..StepWrites::default() };
    Change { step: Some(Box::new(step)), ..change(holder, job, Outcome::Next) }
}

fn sql(statements: &str) -> String {
    cluster().sql("windlass", statements).expect("sql")
}

#[tokio::test]
async fn both_are_there_or_neither() {
    let bench = Bench::new().await;
    let store = &bench.store;
    assert_eq!(store.transact(at(1), bench.writes(1, None)).await.expect("undone"), None);
    assert_eq!(bench.both().await, (0, 0), "undone because the work said so");
    let committed = store.transact(at(1), bench.writes(1, Some(bench.step(7)))).await.expect("done");
    assert_eq!((committed, bench.both().await), (Some(CommitOutcome::Committed), (1, 1)));
    assert_eq!(view(store, id(1)).await.rev.0, 1);
    // The same revision again: its writes would be made twice.
    let again = store.transact(at(1), bench.writes(2, Some(bench.step(7)))).await.expect("fenced");
    assert_eq!((again, bench.both().await), (Some(CommitOutcome::Fenced), (1, 1)));
    let mut stale = bench.step(8);
    stale.epoch.0 += 1;
    let fenced = store.transact(at(1), bench.writes(2, Some(stale))).await.expect("fenced");
    assert_eq!((fenced, bench.both().await), (Some(CommitOutcome::Fenced), (1, 1)));
    // A place that is taken, and a payload that is too long.
    let mut taken = bench.step(7);
    taken.rev.0 += 1;
    let refused = store.transact(at(1), bench.writes(2, Some(taken))).await.expect("refused");
    assert!(matches!(refused, Some(CommitOutcome::Refused(_))), "{refused:?}");
    let mut long = bench.step(8);
    long.rev.0 += 1;
    let bytes = vec![0; store.limits().payload + 1];
    long.step.as_mut().expect("has one").entries[0].payload = Payload { codec: 1, bytes };
    let refused = store.transact(at(1), bench.writes(2, Some(long))).await.expect("refused");
    assert!(matches!(refused, Some(CommitOutcome::Refused(_))), "{refused:?}");
    assert_eq!(bench.both().await, (1, 1));
}

#[tokio::test]
async fn a_panic_undoes_it_and_goes_on() {
    let bench = Bench::new().await;
    for early in [true, false] {
        let insert = format!("insert into {} values (1)", bench.table);
        let panics = work(move |tx| {
            assert!(!early, "at once");
            Box::pin(async move {
                tx.batch_execute(&insert).await.expect("inserted");
                panic!("in the middle")
            })
        });
        let caught = AssertUnwindSafe(bench.store.transact(at(1), panics)).catch_unwind().await;
        let said = caught.expect_err("panicked");
        let said = said.downcast_ref::<&str>().copied().expect("text");
        assert_eq!(said, if early { "at once" } else { "in the middle" });
    }
    assert_eq!(bench.both().await, (0, 0));
    let done = bench.store.transact(at(1), bench.writes(1, Some(bench.step(1)))).await.expect("done");
    assert_eq!((done, bench.both().await), (Some(CommitOutcome::Committed), (1, 1)));
}

#[tokio::test]
async fn a_statement_that_fails_takes_everything_with_it() {
    let bench = Bench::new().await;
    for goes_on in [true, false] {
        let (change, insert) = (bench.step(1), format!("insert into {} values (1)", bench.table));
        let fails = work(move |tx| {
            Box::pin(async move {
                tx.batch_execute(&insert).await.expect("inserted");
                tx.batch_execute(&insert).await.expect_err("twice");
                goes_on.then_some(change)
            })
        });
        match bench.store.transact(at(1), fails).await {
            Ok(answer) => assert_eq!((goes_on, answer), (false, None)),
            Err(Error::Fault(why)) => {
                assert!(goes_on && why.contains("a statement of the work failed"), "{why}")
            }
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(bench.both().await, (0, 0));
    }
    // What is checked only at the end is refused then.
    sql(&format!(
        "alter table {0} add foreign key (n) references {0} (n) deferrable initially deferred;
         create table {0}_of (n int references {0} (n) deferrable initially deferred)",
        bench.table
    ));
    let (change, insert) = (bench.step(1), format!("insert into {}_of values (9)", bench.table));
    let late = work(move |tx| {
        Box::pin(async move {
            tx.batch_execute(&insert).await.expect("inserted");
            Some(change)
        })
    });
    let refused = bench.store.transact(at(1), late).await.expect("refused");
    assert!(
        matches!(&refused, Some(CommitOutcome::Refused(why)) if why.contains("foreign key")),
        "{refused:?}"
    );
    assert_eq!(bench.entries().await, 0);
}

#[tokio::test]
async fn whoever_ends_the_transaction_is_told() {
    let bench = Bench::new().await;
    for ends in ["commit", "rollback", "commit; begin", "rollback; begin"] {
        let change = bench.step(1);
        let by_itself = work(move |tx| {
            Box::pin(async move {
                tx.batch_execute(ends).await.expect("ended");
                Some(change)
            })
        });
        let error = bench.store.transact(at(1), by_itself).await.expect_err(ends);
        assert!(matches!(&error, Error::Fault(why) if why.contains("leave that to the store")), "{error}");
        assert_eq!(bench.both().await, (0, 0), "{ends}: nothing of the change is there");
    }
    let done = bench.store.transact(at(1), bench.writes(1, Some(bench.step(1)))).await.expect("done");
    assert_eq!(done, Some(CommitOutcome::Committed), "and the next one finds nothing of it");
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing() {
    let bench = Bench::new().await;
    let (told, hears) = tokio::sync::oneshot::channel::<()>();
    let insert = format!("insert into {} values (1)", bench.table);
    let hangs = work(move |tx| {
        Box::pin(async move {
            tx.batch_execute(&insert).await.expect("inserted");
            told.send(()).expect("heard");
            std::future::pending().await
        })
    });
    tokio::select! {
        _ = bench.store.transact(at(1), hangs) => unreachable!("it hangs"),
        heard = hears => heard.expect("told"),
    }
    // The row is free again, and nobody finds an open transaction.
    let done = bench.store.transact(at(1), bench.writes(1, Some(bench.step(1)))).await.expect("done");
    assert_eq!((done, bench.both().await), (Some(CommitOutcome::Committed), (1, 1)));
}

/// A change that parks the server's process that writes it: then it can be ended at exactly this moment.
async fn killed(bench: &Bench, when: &str) -> Result<Option<CommitOutcome>, Error> {
    let table = &bench.table;
    match when {
        "in the middle" => {
            let (change, kill) = (
                bench.step(1),
                format!("insert into {table} values (1); select pg_terminate_backend(pg_backend_pid())"),
            );
            let dies = work(move |tx| {
                Box::pin(async move {
                    tx.batch_execute(&kill).await.expect_err("killed");
                    Some(change)
                })
            });
            bench.store.transact(at(1), dies).await
        }
        _ => {
            // Fires while the server commits.
            sql(&format!(
                "create function {table}_die() returns trigger language plpgsql as
                 $$ begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(5); return null; end $$;
                 create constraint trigger die after insert on {table} deferrable initially deferred
                 for each row execute function {table}_die()"
            ));
            let answer = bench.store.transact(at(1), bench.writes(1, Some(bench.step(1)))).await;
            sql(&format!("drop function {table}_die cascade"));
            answer
        }
    }
}

#[tokio::test]
async fn a_lost_connection_leaves_both_or_neither() {
    for when in ["in the middle", "at the commit"] {
        let bench = Bench::new().await;
        let error = killed(&bench, when).await.expect_err(when);
        assert!(error.is_retryable(), "{when}: nobody knows: {error:?}");
        assert_eq!(bench.both().await, (0, 0), "{when}");
        // Something else under the same revision settles it, and connections that were lost are replaced.
        assert_eq!(commit(&bench.store, 2, bench.step(1)).await, CommitOutcome::Committed);
        let late = bench.store.transact(at(3), bench.writes(2, Some(bench.step(2)))).await.expect("fenced");
        assert_eq!((late, bench.both().await), (Some(CommitOutcome::Fenced), (0, 1)), "{when}");
    }
}

#[tokio::test]
async fn idle_connections_that_were_lost_are_replaced() {
    let bench = Bench::new().await;
    for n in 0..3 {
        let mut change = bench.step(n);
        change.rev.0 += n;
        let (insert, session) =
            (format!("insert into {} values ({n})", bench.table), Arc::new(AtomicI32::new(0)));
        let noted = Arc::clone(&session);
        let writes = work(move |tx| {
            Box::pin(async move {
                tx.batch_execute(&insert).await.expect("inserted");
                let row = tx.query_one("select pg_backend_pid()", &[]).await.expect("read");
                noted.store(row.get(0), Ordering::Relaxed);
                Some(change)
            })
        });
        let done = bench.store.transact(at(1), writes).await.expect("done");
        assert_eq!(done, Some(CommitOutcome::Committed));
        let killed = sql(&format!("select pg_terminate_backend({})", session.load(Ordering::Relaxed)));
        assert_eq!(killed, "t", "the one that was kept");
    }
    assert_eq!(bench.both().await, (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_at_once_hold_up_nobody() {
    let bench = Bench::new().await;
    submit(&bench.store, &jobs(100, 60)).await;
    let held = claim(&bench.store, at(0), &ask(bench.holder, 2, 60)).await;
    let (open, _) = tokio::sync::watch::channel(false);
    let tasks: Vec<_> = held[..50]
        .iter()
        .enumerate()
        .map(|(n, job)| {
            let (store, mut opened) = (bench.store.clone(), open.subscribe());
            let change = step_of(bench.holder, job, 1);
            let insert = format!("insert into {} values ({n})", bench.table);
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
    // While they are open, everyone else commits.
    for job in &held[50..] {
        let verdict = commit(&bench.store, 1, change(bench.holder, job, done("x"))).await;
        assert_eq!(verdict, CommitOutcome::Committed);
    }
    open.send_replace(true);
    let mut committed = 0;
    for (n, task) in tasks.into_iter().enumerate() {
        let answer = task.await.expect("a task");
        assert_eq!(answer, (n % 5 != 0).then_some(CommitOutcome::Committed), "{n}");
        committed += i64::from(answer.is_some());
    }
    assert_eq!((bench.rows().await, committed), (40, 40));
    let mut entries = 0;
    for n in 100..150 {
        entries += bench.store.inspect().journal(id(n), None, 9).await.expect("journal").len();
    }
    assert_eq!(entries, 40);
}

/// All that a change may ask for is written with it, and what is left set by one work is unknown to the next.
#[tokio::test]
async fn a_transaction_writes_whole_changes() {
    let bench = Bench::new().await;
    let store = &bench.store;
    let mut change = bench.step(1);
    change.outcome = wait_for("go", None);
    let step = change.step.as_mut().expect("has one");
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
    let looks = work(|tx| {
        Box::pin(async move {
            let row = tx.query_one("select current_setting('search_path'), current_setting('work_mem')", &[]);
            let row = row.await.expect("read");
            assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("\"$user\", public", "4MB"));
            let stricter = tx.batch_execute("set transaction isolation level serializable").await;
            stricter.expect_err("what the store writes relies on seeing what others committed");
            None
        })
    });
    assert_eq!(store.transact(at(1), looks).await.expect("undone"), None);
    // A job that is told to end is halted, with everything written.
    let child = claim_one(store, 2, bench.holder, 9).await;
    act(store, 3, 10, JobAction::Pause).await;
    let halted = store.transact(at(4), bench.writes(1, Some(step_of(bench.holder, &child, 1)))).await;
    assert_eq!((halted.expect("halted"), bench.rows().await), (Some(CommitOutcome::Halted), 1));
    // An end is told to the parent.
    let child = claim(store, at(5), &ask(bench.holder, 10, 1)).await.remove(0);
    let ends = self::change(bench.holder, &child, done("x"));
    let ended = store.transact(at(6), bench.writes(2, Some(ends))).await.expect("ended");
    assert_eq!((ended, state(store, child.id).await), (Some(CommitOutcome::Committed), State::Done));
    assert_eq!(inbox(store, 1).await, [told(child.id)]);
}

/// What the inbox of a parent says of a child.
fn told(child: JobId) -> String {
    format!("\"{child}\"")
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_transaction_for_sqlite_is_refused() {
    let bench = Bench::new().await;
    let other = Work::Sqlite(Box::new(|_| unreachable!("not run")));
    let error = bench.store.transact(at(1), other).await.expect_err("refused");
    assert!(matches!(&error, Error::Config(why) if why.contains("PostgreSQL")), "{error:?}");
}
