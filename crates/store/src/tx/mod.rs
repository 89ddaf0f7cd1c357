//! Transactions of callers whose code is the same on every database.
//!
//! A [`Tx`] is handed to the work of [`crate::Execution::transact`]. It owns its part of the transaction, so that an async
//! closure can take it, and it cannot outlive the transaction: a work that returns while its [`Tx`] still exists is rolled back,
//! and afterwards every statement of that [`Tx`] fails.
//!
//! One rule is the same on every database, although SQLite would allow more: once a statement has failed, the transaction is
//! rolled back, whatever the work returns.

mod params;
mod row;
mod value;

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use windlass_model::{Failure, failure::class};

#[cfg(feature = "postgres")]
pub use crate::postgres::PostgresTx;
pub use params::Params;
pub use row::{Column, Row};
pub use value::{FromValue, ToValue, Value};

/// The answer to a statement.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// The open transaction of a database, as a [`Tx`] uses it.
pub(crate) trait Statements: Send + Sync {
    /// Runs a statement and returns how many rows it changed.
    fn execute<'a>(&'a self, sql: &'a str, params: Vec<Value>) -> Answer<'a, u64>;

    /// Runs a statement and returns its rows.
    fn query<'a>(&'a self, sql: &'a str, params: Vec<Value>) -> Answer<'a, Vec<Row>>;
}

/// A transaction on the store's database, for statements on tables of your own.
///
/// ```
/// # use windlass_model::Failure;
/// # use windlass_store::Tx;
/// async fn book(tx: &Tx, id: i64, guest: &str) -> Result<i64, Failure> {
///     tx.execute("insert into bookings (id, guest) values ($1, $2)", (id, guest)).await?;
///     let row = tx.query_one("select count(*) as total from bookings", ()).await?;
///     row.get("total")
/// }
/// ```
///
/// A workflow makes one: `flow.transaction("book", async |tx| book(&tx, id, &guest).await)`.
///
/// Placeholders are `$1`, `$2`, … on every database. It is committed or rolled back when the closure returns; after a statement
/// has failed it is always rolled back. It cannot be kept: if it still exists then, because a task that the closure has spawned
/// owns it, the transaction is rolled back, and that task gets errors.
pub struct Tx {
    statements: Box<dyn Statements>,
    status: TxStatus,
}

impl Tx {
    /// A transaction that is open, and the guard that ends it.
    pub(crate) fn new(statements: impl Statements + 'static) -> (Tx, TxGuard) {
        let status = TxStatus(Arc::default());
        (Tx { statements: Box::new(statements), status: status.clone() }, TxGuard(status))
    }

    /// Runs a statement and returns the number of rows that it inserted, updated or deleted.
    pub async fn execute(&self, sql: &str, params: impl Params) -> Result<u64, Failure> {
        let params = self.status.check(sql, params)?;
        self.status.note(self.statements.execute(sql, params).await)
    }

    /// Runs a statement and returns its rows.
    pub async fn query(&self, sql: &str, params: impl Params) -> Result<Vec<Row>, Failure> {
        let params = self.status.check(sql, params)?;
        self.status.note(self.statements.query(sql, params).await)
    }

    /// Runs a statement that returns exactly one row. Fails if it returns none or several.
    pub async fn query_one(&self, sql: &str, params: impl Params) -> Result<Row, Failure> {
        match self.query_opt(sql, params).await? {
            Some(row) => Ok(row),
            None => Err(wrong_row_count("query_one", "one row", 0)),
        }
    }

    /// Runs a statement that returns at most one row. Fails if it returns several.
    pub async fn query_opt(&self, sql: &str, params: impl Params) -> Result<Option<Row>, Failure> {
        let mut rows = self.query(sql, params).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            several => Err(wrong_row_count("query_opt", "at most one", several)),
        }
    }

    /// What becomes of its statements; outlives it.
    pub fn status(&self) -> TxStatus {
        self.status.clone()
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tx").field(&self.status).finish()
    }
}

fn wrong_row_count(call: &str, expected: &str, found: usize) -> Failure {
    let text = format!(
        "the statement returned {found} rows, and `{call}` expects {expected}; use `query` for any number"
    );
    Failure::stop(text).class(class::DATA)
}

/// What became of the statements of a [`Tx`].
#[derive(Clone, Debug)]
pub struct TxStatus(Arc<State>);

#[derive(Default, Debug)]
struct State {
    ended: AtomicBool,
    first_failure: Mutex<Option<Failure>>,
}

impl TxStatus {
    /// The error of the first statement that failed: the transaction is rolled back because of it.
    pub fn first_failure(&self) -> Option<Failure> {
        self.failure().clone()
    }

    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.0.first_failure.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Checks that a statement may be sent. Returns its parameters.
    fn check(&self, sql: &str, params: impl Params) -> Result<Vec<Value>, Failure> {
        if self.0.ended.load(Ordering::Acquire) {
            return Err(ended());
        }
        if let Some(first) = &*self.failure() {
            let text = format!(
                "an earlier statement of the transaction failed ({}); return its error",
                first.message
            );
            return Err(Failure { message: text, ..first.clone() });
        }
        self.note(refuse_control(sql).and_then(|()| params.into_values()))
    }

    /// Notes whether a statement failed.
    fn note<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        answer.map_err(|failure| {
            if self.0.ended.load(Ordering::Acquire) {
                return ended();
            }
            self.failure().get_or_insert(failure).clone()
        })
    }
}

/// Ends a [`Tx`] when it is dropped: statements that are sent later fail.
pub(crate) struct TxGuard(TxStatus);

impl TxGuard {
    /// Fails if a statement has failed although the work returned a change.
    pub(crate) fn check(&self) -> Result<(), crate::Error> {
        match self.0.first_failure() {
            Some(failure) => Err(crate::Error::Fault(format!(
                "a statement of the work failed ({failure}), and with it the whole transaction, but the work returned a \
                 change; let it return none when a statement fails"
            ))),
            None => Ok(()),
        }
    }
}

impl Drop for TxGuard {
    fn drop(&mut self) {
        self.0.0.ended.store(true, Ordering::Release);
    }
}

/// The error for a statement after the end of its transaction.
pub(crate) fn ended() -> Failure {
    let text = "the transaction has ended, so nothing can be sent in it; await all of its statements before its closure \
                returns, and do not give it to a task that outlives the closure";
    Failure::stop(text).class(class::REFUSED)
}

/// The error for a work that returned while its transaction was still in use.
pub(crate) fn leaked() -> crate::Error {
    crate::Error::Misuse(
        "the closure of the transaction returned while its `tx` was still in use, by a task that it has spawned or a place \
         where it has put it, so everything was rolled back; await what uses the `tx` in the closure itself"
            .into(),
    )
}

/// Refuses statements that begin or end transactions.
fn refuse_control(sql: &str) -> Result<(), Failure> {
    let words = skip_comments(sql).to_ascii_lowercase();
    let mut words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let refused = match (words.next().unwrap_or_default(), words.next()) {
        ("begin" | "start" | "commit" | "end" | "abort", _) => true,
        // To a savepoint, `rollback to a` or `rollback transaction to a`, it ends nothing.
        ("rollback", Some("to")) => false,
        ("rollback", Some("transaction" | "work")) => words.next() != Some("to"),
        ("rollback", _) => true,
        _ => false,
    };
    if !refused {
        return Ok(());
    }
    let text = "a statement of the transaction would begin or end a transaction; leave that to the engine, which commits when \
                the closure returns `Ok` and rolls back when it returns an error";
    Err(Failure::stop(text).class(class::REFUSED))
}

/// The statement without the blanks and comments before its first word.
fn skip_comments(sql: &str) -> &str {
    let sql = sql.trim_start();
    let after = if sql.starts_with("--") {
        sql.split_once('\n').map_or("", |(_, rest)| rest)
    } else if sql.starts_with("/*") {
        sql.split_once("*/").map_or("", |(_, rest)| rest)
    } else {
        return sql;
    };
    skip_comments(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_end_transactions_are_refused() {
        for sql in [
            "commit",
            " Begin immediate",
            "-- done\n/* really */ COMMIT;",
            "rollback",
            "rollback transaction",
            "end",
            "start transaction",
        ] {
            refuse_control(sql).expect_err(sql);
        }
        for sql in [
            "select 1",
            "update commits set n = 1",
            "rollback to a",
            "rollback transaction to savepoint a",
            "savepoint a",
            "",
            "-- commit",
        ] {
            refuse_control(sql).expect(sql);
        }
    }

    /// Statements that fail until a test lets them succeed.
    struct Fails;

    impl Statements for Fails {
        fn execute<'a>(&'a self, _sql: &'a str, _params: Vec<Value>) -> Answer<'a, u64> {
            Box::pin(std::future::ready(Err(Failure::stop("the row exists").class(class::CONSTRAINT))))
        }

        fn query<'a>(&'a self, _sql: &'a str, params: Vec<Value>) -> Answer<'a, Vec<Row>> {
            let columns = ["n".to_owned()].into();
            Box::pin(std::future::ready(Ok(params
                .into_iter()
                .map(|n| Row::new(&columns, vec![Ok(n)]))
                .collect())))
        }
    }

    #[tokio::test]
    async fn after_a_failed_statement_all_others_fail() {
        let (tx, guard) = Tx::new(Fails);
        assert_eq!(tx.query("select $1", (7,)).await.expect("works")[0].get("n"), Ok(7));
        guard.check().expect("nothing has failed");
        let first = tx.execute("insert", ()).await.expect_err("fails");
        assert_eq!(&*first.class, class::CONSTRAINT);
        let later = tx.query("select $1", (7,)).await.expect_err("the transaction is lost");
        assert_eq!(&*later.class, class::CONSTRAINT);
        assert!(
            later.message.contains("an earlier statement of the transaction failed (the row exists)"),
            "{later}"
        );
        assert_eq!(tx.status().first_failure(), Some(first));
        assert!(guard.check().is_err(), "a change must not be committed");
    }

    #[tokio::test]
    async fn after_its_end_all_statements_fail() {
        let (tx, guard) = Tx::new(Fails);
        drop(guard);
        let failure = tx.query("select $1", (7,)).await.expect_err("it has ended");
        assert!(failure.message.contains("the transaction has ended"), "{failure}");
        assert_eq!(tx.status().first_failure(), None);
    }

    #[tokio::test]
    async fn the_number_of_rows_is_checked() {
        let (tx, _guard) = Tx::new(Fails);
        assert!(tx.query_opt("select", ()).await.expect("none").is_none());
        let failure = tx.query_one("select", ()).await.expect_err("none");
        assert!(failure.message.contains("returned 0 rows"), "{failure}");
        let failure = tx.query_opt("select", (1, 2)).await.expect_err("two");
        assert!(failure.message.contains("returned 2 rows"), "{failure}");
    }
}
