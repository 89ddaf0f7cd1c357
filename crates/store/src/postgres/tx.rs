//! One transaction on a connection.
//!
//! Its settings are set by its `begin`, never on the session: see [`super::settings`].

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use tokio_postgres::{Client, Row, SimpleQueryMessage, Statement, types::ToSql};
use uuid::Uuid;

use super::{branch::Counts, conn::Conn, errors::PgError, settings::Mode};

/// One transaction. It borrows its connection exclusively: until it has ended, nothing else can be sent over that.
///
/// **End.** [`Tx::commit`] or [`Tx::rollback`]. A transaction that is dropped before either was answered is rolled back by the
/// server: the connection, which counts its unfinished transactions, does not return to the pool but is closed.
///
/// **Pipelining.** Statements that do not depend on each other's answers are sent together, often with the beginning and the
/// end: their futures are joined, and each is sent when it is first polled. They must be prepared before. If one fails, those
/// after it do nothing, and the end rolls back. That is why [`Tx::commit`] does not consume the transaction.
///
/// **Lock order.** Every transaction locks rows in this order, and rows of one table in the order given:
///
/// workers, timers, arrivals, schedules, unique_names, jobs (by id), branches (by job and number), serial_keys (by id),
/// serial_waiting and serial_holders, rate_limits (by id), ready, claims, gates, branch_counts (by job, branch and writer),
/// job_counts (by lane and writer). Rows of ended_batches and wait_batches are only added, and deleted by roll-ups, which take an advisory
/// lock first.
///
/// Transactions that all lock in one order cannot wait for each other in a circle, so they cannot deadlock. A statement that
/// writes many rows locks them in the order of its parameters, which are sorted. A transaction whose statements write several
/// sets of jobs locks all of these first ([`super::wait::lock_jobs`]), parents together with their children. Statements that
/// take any rows that are due (claims, timers, arrivals, schedules, polls) skip rows that others have locked. A few transactions
/// must lock against the order: a change whose child takes the unique name of its parent, or timers of children and of their
/// parents in one batch. If one of them meets another, the server ends the deadlock, and `retry_deadlock!` or the caller's next
/// call runs the transaction again.
pub(super) struct Tx<'c> {
    conn: &'c mut Conn,
    /// The connection's row in each gate.
    pub(super) gate_writer: i64,
    /// Its row in the counts of each lane and branch.
    pub(super) count_writer: i32,
    /// What the transaction counts for branches; [`super::branch::finish`] writes it.
    counts: Mutex<Counts>,
    /// Jobs whose serial keys the transaction has touched; [`super::serial::fill_slots`] takes them before the commit.
    unsettled: Mutex<Vec<Uuid>>,
    /// Whether its end was sent.
    ended: AtomicBool,
}

impl<'c> Tx<'c> {
    /// A transaction whose beginning is sent by [`Tx::begin`], together with other statements.
    pub(super) fn pipelined(conn: &'c mut Conn) -> Tx<'c> {
        conn.note_begin();
        Tx::adopt(conn)
    }

    /// The transaction that a caller's work has begun and left open, noted by [`Conn::note_begin`].
    pub(super) fn adopt(conn: &'c mut Conn) -> Tx<'c> {
        let (gate_writer, count_writer, ended) =
            (conn.gate_writer, conn.count_writer, AtomicBool::new(false));
        Tx { conn, gate_writer, count_writer, counts: Mutex::default(), unsettled: Mutex::default(), ended }
    }

    /// Begins a transaction that writes.
    pub(super) async fn write(conn: &'c mut Conn) -> Result<Tx<'c>, PgError> {
        Tx::begin_as(conn, Mode::Write).await
    }

    /// Begins a transaction that only reads, for a standby too.
    pub(super) async fn read(conn: &'c mut Conn) -> Result<Tx<'c>, PgError> {
        Tx::begin_as(conn, Mode::Read).await
    }

    /// Begins a transaction that only reads, and sees the store as it was at one moment.
    pub(super) async fn snapshot(conn: &'c mut Conn) -> Result<Tx<'c>, PgError> {
        Tx::begin_as(conn, Mode::Snapshot).await
    }

    /// Begins a transaction that changes the schema.
    pub(super) async fn migrate(conn: &'c mut Conn) -> Result<Tx<'c>, PgError> {
        Tx::begin_as(conn, Mode::Migrate).await
    }

    /// Begins a transaction that only reads tables of the user, with the settings that the user has by default.
    pub(super) async fn user_read(conn: &'c mut Conn) -> Result<Tx<'c>, PgError> {
        Tx::begin_as(conn, Mode::UserRead).await
    }

    async fn begin_as(conn: &'c mut Conn, mode: Mode) -> Result<Tx<'c>, PgError> {
        let tx = Tx::pipelined(conn);
        tx.send_begin(mode).await?;
        Ok(tx)
    }

    /// Sends the beginning of a pipelined transaction, which writes.
    pub(super) async fn begin(&self) -> Result<(), PgError> {
        self.send_begin(Mode::Write).await
    }

    async fn send_begin(&self, mode: Mode) -> Result<(), PgError> {
        self.conn.count_statement();
        self.conn.send_begin(mode).await
    }

    /// Commits. Free slots of serial keys and counts of branches must have been written before: see
    /// [`super::branch::finish`].
    pub(super) async fn commit(&self) -> Result<(), PgError> {
        debug_assert!(self.unsettled().is_empty(), "slots of serial keys are filled before the commit");
        debug_assert!(self.counts().is_empty(), "branches are counted before the commit");
        self.end("commit").await
    }

    /// Rolls back. If that fails, the connection is not reused.
    pub(super) async fn rollback(&self) {
        let _ = self.end("rollback").await;
    }

    /// Commits if the work in it succeeded, and rolls back if not.
    pub(super) async fn finish<T>(self, result: Result<T, PgError>) -> Result<T, PgError> {
        match result {
            Ok(value) => self.commit().await.map(|()| value),
            Err(error) => {
                self.rollback().await;
                Err(error)
            }
        }
    }

    async fn end(&self, sql: &'static str) -> Result<(), PgError> {
        self.ended.store(true, Ordering::Relaxed);
        self.conn.count_statement();
        self.conn.send_end(sql).await
    }

    /// The connection, for what is sent in the same flight after the end of the transaction.
    pub(super) fn after_end(&self) -> &Conn {
        self.conn
    }

    /// The connection, once the transaction has ended.
    pub(super) fn into_conn(self) -> &'c mut Conn {
        self.conn
    }

    /// The client, for statements of the user.
    pub(super) fn client(&self) -> &Client {
        &self.conn.client
    }

    /// What the transaction has counted for branches so far.
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Jobs whose serial keys may have free slots, which are filled before the commit.
    pub(super) fn unsettled(&self) -> MutexGuard<'_, Vec<Uuid>> {
        self.unsettled.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Prepares a statement unless it is prepared.
    pub(super) async fn prepare(&self, sql: &'static str) -> Result<Statement, PgError> {
        if let Some(statement) = self.conn.prepared(sql) {
            return Ok(statement);
        }
        let statement = self.conn.wait(Box::pin(self.conn.client.prepare(sql))).await?;
        self.conn.add_prepared(sql, &statement);
        Ok(statement)
    }

    /// Sends a statement.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        let statement = self.prepare(sql).await?;
        self.sending();
        self.conn.wait(Box::pin(self.conn.client.query(&statement, params))).await
    }

    /// Sends a statement that returns no rows. Returns how many rows it changed.
    pub(super) async fn execute(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, PgError> {
        let statement = self.prepare(sql).await?;
        self.sending();
        self.conn.wait(Box::pin(self.conn.client.execute(&statement, params))).await
    }

    /// Sends statements without parameters. Returns the first value of each row.
    pub(super) async fn simple_query(&self, sql: &str) -> Result<Vec<Option<String>>, PgError> {
        self.sending();
        let messages = self.conn.wait(self.conn.client.simple_query(sql)).await?;
        let value = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
            _ => None,
        };
        Ok(messages.into_iter().filter_map(value).collect())
    }

    /// Makes the rest of the transaction the store's: its search path and its settings. `first` is sent before that, in the
    /// same round trip; returns the first value of each of its rows.
    pub(super) async fn take_over(&self, first: &str) -> Result<Vec<Option<String>>, PgError> {
        let settings = self.conn.begin_sql().take_over();
        self.simple_query(&format!("{first}; {settings}")).await
    }

    fn sending(&self) {
        debug_assert!(!self.ended.load(Ordering::Relaxed), "nothing is sent in a transaction after its end");
        self.conn.count_statement();
    }
}

/// What a statement is sent over: a connection, which gives it a transaction of its own, or a transaction.
#[derive(Clone, Copy)]
pub(super) enum Executor<'a> {
    Conn(&'a Conn),
    Tx(&'a Tx<'a>),
}

impl<'a> Executor<'a> {
    pub(super) fn conn(self) -> &'a Conn {
        match self {
            Executor::Conn(conn) => conn,
            Executor::Tx(tx) => tx.conn,
        }
    }

    pub(super) fn gate_writer(self) -> i64 {
        self.conn().gate_writer
    }

    pub(super) fn count_writer(self) -> i32 {
        self.conn().count_writer
    }

    /// Prepares a statement unless it is prepared.
    pub(super) async fn prepare(self, sql: &'static str) -> Result<(), PgError> {
        match self {
            Executor::Conn(conn) => conn.prepare(sql).await.map(drop),
            Executor::Tx(tx) => tx.prepare(sql).await.map(drop),
        }
    }

    /// Sends a statement.
    pub(super) async fn query(
        self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        match self {
            Executor::Conn(conn) => conn.query(sql, params).await,
            Executor::Tx(tx) => tx.query(sql, params).await,
        }
    }

    /// Sends a statement that only reads: see [`Conn::read`].
    pub(super) async fn read(
        self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        match self {
            Executor::Conn(conn) => conn.read(sql, params).await,
            Executor::Tx(tx) => tx.query(sql, params).await,
        }
    }

    /// Sends a statement that returns no rows. Returns how many rows it changed.
    pub(super) async fn execute(
        self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, PgError> {
        match self {
            Executor::Conn(conn) => conn.execute(sql, params).await,
            Executor::Tx(tx) => tx.execute(sql, params).await,
        }
    }

    /// Sends a statement without a transaction, unless there is one: see [`super::autocommit`].
    pub(super) async fn query_autocommit(
        self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        match self {
            Executor::Conn(conn) => conn.query_autocommit(sql, params).await,
            Executor::Tx(tx) => tx.query(sql, params).await,
        }
    }
}
