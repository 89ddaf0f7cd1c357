//! Transactions of callers through a [`Tx`]: the same statements on every database, committed with a change or not at all. Each
//! case has tables of its own, because cases run at the same time in one database.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use uuid::Uuid;
use windlass_model::{
    Change, ClaimedJob, CommitOutcome, Failure, JobId, Outcome, Time, WorkerId,
    failure::{OnFailure, class},
};

use super::kit::*;
use crate::{AsyncWork, Error, Tx, Work};

/// What a case works with: a claimed job, and a table `(n bigint primary key, what text)`.
struct Fixture {
    store: Handle,
    holder: WorkerId,
    job: ClaimedJob,
    table: &'static str,
}

impl Fixture {
    /// `None` on a store without transactions, which says so.
    async fn new(store: Handle, table: &'static str) -> Option<Fixture> {
        let (holder, job) = running_job(&store, 1).await;
        let fixture = Fixture { store, holder, job, table };
        let create = format!("create table {table} (n bigint primary key, what text)");
        let step = fixture.step(0);
        let created = fixture.transact(async move |tx| {
            assert_eq!(tx.execute(&create, ()).await, Ok(0));
            Some(step)
        });
        match created.await {
            Err(Error::Config(why)) => {
                assert!(why.contains("use SQLite or PostgreSQL"), "{why}");
                None
            }
            created => {
                assert_eq!(created.expect("created"), Some(CommitOutcome::Committed));
                Some(Fixture { job: after_step(&fixture.job), ..fixture })
            }
        }
    }

    /// The next step of the job, with an entry of this number.
    fn step(&self, seq: i32) -> Change {
        with_step(
            change(self.holder, &self.job, Outcome::Next),
            journal_writes(vec![entry(seq, "write", "x")]),
        )
    }

    async fn transact<F, Fut>(&self, run: F) -> Result<Option<CommitOutcome>, Error>
    where
        F: FnOnce(Tx) -> Fut + Send,
        Fut: Future<Output = Option<Change>> + Send,
    {
        self.store.transact(at(1), Work::Tx(AsyncWork::new(run))).await
    }

    fn insert(&self) -> String {
        format!("insert into {} (n, what) values ($1, $2)", self.table)
    }

    /// The numbers in the table, and how many entries the journal has besides that of the table's creation.
    async fn written(&self) -> (Vec<i64>, usize) {
        let mut numbers = Vec::new();
        let select = format!("select n from {} order by n", self.table);
        let read = self.transact(async |tx| {
            let rows = tx.query(&select, ()).await.expect("read");
            numbers = rows.iter().map(|row| row.get("n").expect("a number")).collect();
            None
        });
        assert_eq!(read.await.expect("rolled back"), None);
        (numbers, journal(&self.store, 1).await.len() - 1)
    }
}

macro_rules! fixture {
    ($store:expr, $table:expr) => {
        match Fixture::new($store, $table).await {
            Some(fixture) => fixture,
            None => return,
        }
    };
}

pub async fn a_transaction_is_committed_with_its_change_or_not_at_all(store: Handle) {
    let mut fixture = fixture!(store, "case_committed");
    let insert = fixture.insert();
    let rolled_back = fixture.transact(async |tx| {
        assert_eq!(tx.execute(&insert, (1, "a")).await, Ok(1));
        None
    });
    assert_eq!(rolled_back.await.expect("rolled back"), None);
    assert_eq!(fixture.written().await, (vec![], 0));
    let step = fixture.step(1);
    for (outcome, rows) in [(CommitOutcome::Committed, vec![1]), (CommitOutcome::Fenced, vec![1])] {
        let (step, n) = (step.clone(), rows.len() as i64 + i64::from(outcome == CommitOutcome::Fenced));
        let answer = fixture.transact(async |tx| {
            tx.execute(&insert, (n, "b")).await.expect("inserted");
            Some(step)
        });
        assert_eq!(answer.await.expect("answered"), Some(outcome));
        assert_eq!(fixture.written().await, (rows, 1));
    }
    fixture.job = after_step(&fixture.job);
    let mut refused = fixture.step(1);
    refused.epoch.0 += 1;
    let fenced = fixture.transact(async |tx| {
        tx.execute(&insert, (3, "c")).await.expect("inserted");
        Some(refused)
    });
    assert_eq!(fenced.await.expect("answered"), Some(CommitOutcome::Fenced), "the epoch of another claim");
    assert_eq!(fixture.written().await, (vec![1], 1));
}

pub async fn every_type_returns_as_it_was(store: Handle) {
    let fixture = fixture!(store, "case_types");
    let json = serde_json::json!({"list": [1, null, "é"], "deep": {"x": 0.5}});
    let answer = fixture.transact(async |tx| {
        let create = "create table case_all_types (b boolean, i bigint, s smallint, f double precision, t text, d bytea, \
                      at timestamptz, at_micros bigint, j jsonb, j_text text, id uuid, job text, missing text)";
        tx.execute(create, ()).await.expect("created");
        let insert = "insert into case_all_types values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
        let (time, id) = (Time(1_763_000_000_123_456), Uuid::from_u128(0x1e5));
        let bytes: &[u8] = &[0, 255, 36];
        let params = (true, i64::MIN, -7_i16, 0.1_f64, "it's $1 – 'é'", bytes, time, time, &json, &json, id, self::id(7), None::<i32>);
        assert_eq!(tx.execute(insert, params).await, Ok(1));
        let row = tx.query_one("select * from case_all_types", ()).await.expect("one row");
        assert_eq!((row.get("b"), row.get("i"), row.get("s")), (Ok(true), Ok(i64::MIN), Ok(-7_i8)));
        assert_eq!((row.get("f"), row.get("t")), (Ok(0.1), Ok("it's $1 – 'é'".to_owned())));
        assert_eq!((row.get("d"), row.get("at"), row.get("at_micros")), (Ok(bytes.to_vec()), Ok(time), Ok(time)));
        assert_eq!((row.get("j"), row.get("j_text")), (Ok(json.clone()), Ok(json.clone())));
        assert_eq!((row.get("id"), row.get::<JobId>("job")), (Ok(id), Ok(self::id(7))));
        assert_eq!(row.get("missing"), Ok(None::<String>));
        let null = row.get::<String>("missing").expect_err("null is not text");
        assert!(null.message.contains("\"missing\"") && null.message.contains("Option"), "{null}");
        // All columns null.
        tx.execute("delete from case_all_types", ()).await.expect("deleted");
        let nulls = vec![crate::tx::Value::Null; 13];
        assert_eq!(tx.execute(insert, nulls).await, Ok(1));
        let row = tx.query_one("select * from case_all_types", ()).await.expect("one row");
        for column in row.columns() {
            assert_eq!(row.get(column.as_str()), Ok(crate::tx::Value::Null), "{column}");
        }
        let sum = tx.query_one("select sum(n) as total, count(*) as count from case_types", ()).await.expect("one row");
        assert_eq!((sum.get("total"), sum.get("count")), (Ok(None::<i64>), Ok(0_u8)));
        tx.execute(&fixture.insert(), (i64::MAX, "a")).await.expect("inserted");
        let sum = tx.query_one("select sum(n) as total from case_types", ()).await.expect("one row");
        assert_eq!(sum.get("total"), Ok(i64::MAX), "a sum of integers is an integer");
        None
    });
    assert_eq!(answer.await.expect("rolled back"), None);
}

pub async fn placeholders_are_found_by_their_numbers(store: Handle) {
    let fixture = fixture!(store, "case_placeholders");
    let answer = fixture.transact(async |tx| {
        let sql = "select cast($2 as text) as \"a$1\", cast($1 as bigint) as b, '$3' as c, cast($2 as text) as d \
                   /* $4 */ -- $5\n where '$6 ''$7' <> \"case_placeholders\".\"what\"";
        let sql = sql.replace(" where", " from case_placeholders where");
        tx.execute(&fixture.insert(), (1, "w")).await.expect("inserted");
        let row = tx.query_one(&sql, (7, "x")).await.expect("one row");
        assert_eq!(row.columns(), ["a$1", "b", "c", "d"]);
        assert_eq!((row.get("a$1"), row.get("b")), (Ok("x".to_owned()), Ok(7)));
        assert_eq!((row.get("c"), row.get(3)), (Ok("$3".to_owned()), Ok("x".to_owned())));
        None
    });
    assert_eq!(answer.await.expect("rolled back"), None);
}

pub async fn parameters_that_do_not_fit_are_refused(store: Handle) {
    let fixture = fixture!(store, "case_params");
    for (values, part) in [
        (vec![1], "has 2 parameters, and 1 were given"),
        (vec![1, 2, 3], "has 2 parameters, and 3 were given"),
        (vec![], "has 2 parameters, and 0 were given"),
    ] {
        let answer = fixture.transact(async |tx| {
            let sql = "select cast($1 as bigint) + cast($2 as bigint) as n";
            let failure = tx.query(sql, &values).await.expect_err("wrong");
            assert_eq!((&*failure.class, failure.then), (class::DATA, OnFailure::Stop));
            assert!(failure.message.contains(part), "{failure}");
            None
        });
        assert_eq!(answer.await.expect("rolled back"), None);
    }
    let answer = fixture.transact(async |tx| {
        let failure = tx.execute(&fixture.insert(), (u64::MAX, "x")).await.expect_err("too large");
        assert!(
            failure.message.contains("$1") && failure.message.contains("18446744073709551615"),
            "{failure}"
        );
        None
    });
    assert_eq!(answer.await.expect("rolled back"), None);
}

pub async fn execute_returns_how_many_rows_were_changed(store: Handle) {
    let fixture = fixture!(store, "case_counts");
    let answer = fixture.transact(async |tx| {
        for n in 0..3 {
            assert_eq!(tx.execute(&fixture.insert(), (n, "a")).await, Ok(1));
        }
        assert_eq!(tx.execute("update case_counts set what = 'b' where n > $1", (0,)).await, Ok(2));
        assert_eq!(tx.execute("create table case_counts_too (n bigint)", ()).await, Ok(0));
        assert_eq!(tx.execute("update case_counts set what = 'c' where n > $1", (9,)).await, Ok(0));
        let returned =
            tx.query("delete from case_counts where n < $1 returning n, what", (2,)).await.expect("deleted");
        assert_eq!(returned.len(), 2);
        assert_eq!(tx.execute("delete from case_counts returning n", ()).await, Ok(1));
        None
    });
    assert_eq!(answer.await.expect("rolled back"), None);
    assert_eq!(fixture.written().await, (vec![], 0));
}

pub async fn a_failed_statement_loses_the_whole_transaction(store: Handle) {
    let fixture = fixture!(store, "case_failed");
    let (insert, step) = (fixture.insert(), fixture.step(1));
    let answer = fixture.transact(async |tx| {
        tx.execute(&insert, (1, "a")).await.expect("inserted");
        let failure = tx.execute(&insert, (1, "b")).await.expect_err("the key exists");
        assert_eq!((&*failure.class, failure.then), (class::CONSTRAINT, OnFailure::Stop), "{failure}");
        let later = tx.execute(&insert, (2, "c")).await.expect_err("the transaction is lost");
        assert_eq!(&*later.class, class::CONSTRAINT);
        assert_eq!(tx.status().first_failure(), Some(failure));
        Some(step)
    });
    let error = answer.await.expect_err("a change after a failed statement");
    assert!(matches!(&error, Error::Fault(why) if why.contains("a statement of the work failed")), "{error}");
    assert_eq!(fixture.written().await, (vec![], 0));
    let missing = fixture.transact(async |tx| {
        let failure = tx.query("select * from case_no_such_table", ()).await.expect_err("no such table");
        assert_eq!((&*failure.class, failure.then), (class::DATABASE, OnFailure::Retry), "{failure}");
        None
    });
    assert_eq!(missing.await.expect("rolled back"), None);
}

pub async fn a_transaction_cannot_be_ended_by_its_statements(store: Handle) {
    let fixture = fixture!(store, "case_ended");
    for sql in ["commit", "rollback", "-- now\n end"] {
        let (insert, step) = (fixture.insert(), fixture.step(1));
        let answer = fixture.transact(async |tx| {
            tx.execute(&insert, (1, "a")).await.expect("inserted");
            let failure = tx.execute(sql, ()).await.expect_err(sql);
            assert!(failure.message.contains("leave that to the engine"), "{failure}");
            Some(step)
        });
        answer.await.expect_err("nothing is committed");
        assert_eq!(fixture.written().await, (vec![], 0), "{sql}");
    }
}

pub async fn a_panic_of_a_transaction_rolls_back_and_is_resumed(store: Handle) {
    let fixture = fixture!(store, "case_panic");
    let insert = fixture.insert();
    let panics = fixture.transact(async |tx| {
        tx.execute(&insert, (1, "a")).await.expect("inserted");
        panic!("in the middle")
    });
    let panic = AssertUnwindSafe(panics).catch_unwind().await.expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the middle"));
    assert_eq!(fixture.written().await, (vec![], 0));
}

/// Sends a statement from another task, once it may go on. Returns what lets it go on, and the answer.
fn keep(tx: Tx, insert: String) -> (oneshot::Sender<()>, tokio::task::JoinHandle<Result<u64, Failure>>) {
    let (go_on, may_go_on) = oneshot::channel();
    let task = tokio::spawn(async move {
        may_go_on.await.expect("the sender");
        tx.execute(&insert, (9, "late")).await
    });
    (go_on, task)
}

pub async fn a_transaction_that_is_kept_is_rolled_back_and_useless(store: Handle) {
    let fixture = fixture!(store, "case_kept");
    let (insert, step) = (fixture.insert(), fixture.step(1));
    for answer in [Some(step.clone()), None] {
        let mut kept = None;
        let leaks = fixture.transact(async |tx| {
            tx.execute(&insert, (1, "a")).await.expect("inserted");
            kept = Some(keep(tx, insert.clone()));
            answer
        });
        let error = leaks.await.expect_err("it still exists");
        assert!(matches!(&error, Error::Misuse(why) if why.contains("was still in use")), "{error}");
        let (go_on, task) = kept.expect("kept");
        go_on.send(()).expect("it waits");
        let late = task.await.expect("a task").expect_err("the transaction has ended");
        assert!(late.message.contains("the transaction has ended"), "{late}");
        assert_eq!(fixture.written().await, (vec![], 0));
    }
    let done = fixture.transact(async |tx| {
        tx.execute(&insert, (1, "a")).await.expect("nothing is locked");
        Some(step)
    });
    assert_eq!(done.await.expect("done"), Some(CommitOutcome::Committed));
    assert_eq!(fixture.written().await, (vec![1], 1));
}

pub async fn a_transaction_whose_call_is_dropped_leaves_nothing(store: Handle) {
    let fixture = fixture!(store, "case_dropped");
    let (insert, step) = (fixture.insert(), fixture.step(1));
    let (inserted, is_inserted) = oneshot::channel();
    let hangs = fixture.transact(async |tx| {
        tx.execute(&insert, (1, "a")).await.expect("inserted");
        inserted.send(keep(tx, insert.clone())).expect("received");
        std::future::pending().await
    });
    let (go_on, task) = tokio::select! {
        _ = hangs => unreachable!("it hangs"),
        kept = is_inserted => kept.expect("sent"),
    };
    go_on.send(()).expect("it waits");
    let late = task.await.expect("a task").expect_err("the transaction has ended");
    assert!(late.message.contains("the transaction has ended"), "{late}");
    let done = fixture.transact(async |tx| {
        tx.execute(&insert, (1, "a")).await.expect("nothing is locked");
        Some(step)
    });
    assert_eq!(done.await.expect("done"), Some(CommitOutcome::Committed));
    assert_eq!(fixture.written().await, (vec![1], 1));
}
