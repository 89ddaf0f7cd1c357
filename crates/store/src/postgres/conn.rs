//! Connections: statements prepared once for each, answers that are not waited for without end.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt, TryStreamExt,
    future::{join, join3},
};
use tokio_postgres::{
    Client, Row, SimpleQueryMessage, Statement,
    binary_copy::{BinaryCopyOutRow, BinaryCopyOutStream},
    error::SqlState,
    types::{ToSql, Type},
};
use uuid::Uuid;
use windlass_model::{ClaimNo, JobId, WorkerId};

use super::{
    autocommit::{self, Prepared},
    branch::Counts,
    errors::{ends_session, read_only, sorted},
    settings::Openings,
};
use crate::Error;

/// How often a transaction that was chosen to give way in a deadlock is tried.
pub(super) const DEADLOCKS: u64 = 5;

/// Calls again what was chosen to give way because two met in opposite order.
macro_rules! retry_deadlock {
    ($call:expr) => {{
        let mut tries = 1;
        loop {
            match $call.await {
                Err($crate::Error::Unavailable(why))
                    if why.ends_with("(40P01)") && tries < $crate::postgres::conn::DEADLOCKS =>
                {
                    tokio::time::sleep(std::time::Duration::from_millis(fastrand::u64(1..20) * tries)).await;
                    tries += 1;
                }
                answer => break answer,
            }
        }
    }};
}
pub(super) use retry_deadlock;

/// How many rows a gate has: few enough to read, many enough that two writers seldom share one.
const GATE_WRITERS: i64 = 64;

pub(super) struct Conn {
    pub(super) client: Client,
    prepared: Mutex<HashMap<&'static str, Statement>>,
    /// Statements that are sent without a transaction of their own.
    autocommitted: Prepared,
    /// Whether they may be: not once one had to be sent again with all settings.
    autocommits: AtomicBool,
    /// This connection's row in each gate: two commits in flight must not wait for each other's.
    pub(super) gate_writer: i64,
    /// What the transaction that is open counts for branches.
    counts: Mutex<Counts>,
    /// Jobs whose serial keys the transaction that is open has touched.
    unsettled: Mutex<Vec<Uuid>>,
    /// Whether a transaction is open, as of the last request that was sent.
    is_open: AtomicBool,
    /// How many transactions were begun of which it is not known that they are over: a connection dropped in the middle of one
    /// is not used again.
    pending: AtomicU32,
    /// Set when an error says that the session is of no more use: see [`ends_session`].
    lost: AtomicBool,
    /// The job whose step was last written by itself, and under which claim.
    wrote: Mutex<Option<(JobId, WorkerId, ClaimNo)>>,
    /// Whether the names that are known were compared with those of the database since it was opened.
    known: AtomicBool,
    /// When it was opened.
    pub(super) opened_at: Instant,
    /// Until when it is used; `None` is for ever.
    until: Option<Instant>,
    statements: Arc<AtomicU64>,
    pub(super) patience: Duration,
    openings: Arc<Openings>,
    /// Whether a transaction that may write was begun in this session.
    is_primary: AtomicBool,
    /// Whether a worker goes by what is read: see [`Conn::read`].
    serves: Arc<AtomicBool>,
}

impl Conn {
    pub(super) fn new(
        client: Client,
        (opened_at, until): (Instant, Option<Instant>),
        patience: Duration,
        openings: Arc<Openings>,
        (statements, serves): (Arc<AtomicU64>, Arc<AtomicBool>),
    ) -> Conn {
        Conn {
            client,
            prepared: Mutex::default(),
            autocommitted: Prepared::new(),
            autocommits: AtomicBool::new(true),
            is_primary: AtomicBool::new(false),
            gate_writer: fastrand::i64(..GATE_WRITERS),
            counts: Mutex::default(),
            unsettled: Mutex::default(),
            is_open: AtomicBool::new(false),
            pending: AtomicU32::new(0),
            lost: AtomicBool::new(false),
            wrote: Mutex::default(),
            known: AtomicBool::new(false),
            opened_at,
            until,
            statements,
            patience,
            openings,
            serves,
        }
    }

    /// Whether a transaction is open.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Whether the step that was last written by itself over this connection was one of this claim.
    pub(super) fn wrote_last(&self, claim: (JobId, WorkerId, ClaimNo)) -> bool {
        *self.wrote.lock().unwrap_or_else(|e| e.into_inner()) == Some(claim)
    }

    /// Notes which step was written by itself.
    pub(super) fn set_wrote(&self, claim: Option<(JobId, WorkerId, ClaimNo)>) {
        *self.wrote.lock().unwrap_or_else(|e| e.into_inner()) = claim;
    }

    /// Whether nobody has compared the names that are known with those of the database yet.
    pub(super) fn is_new(&self) -> bool {
        !self.known.load(Ordering::Relaxed)
    }

    /// Notes that it was done.
    pub(super) fn set_known(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// How its transactions begin.
    pub(super) fn openings(&self) -> &Openings {
        &self.openings
    }

    /// How transactions begin that only read.
    fn reading(&self) -> &str {
        let serves = self.serves.load(Ordering::Relaxed);
        if serves { &self.openings.write } else { &self.openings.read }
    }

    /// Whether it may be used again, now that nobody uses it.
    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed()
            && self.pending.load(Ordering::Relaxed) == 0
            && !self.lost.load(Ordering::Relaxed)
            && self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Prepares a statement if it is not; needed only before several are sent together.
    pub(super) async fn prepare(&self, sql: &'static str) -> Result<Statement, Error> {
        let known = |conn: &Conn| conn.prepared.lock().unwrap_or_else(|e| e.into_inner()).get(sql).cloned();
        if let Some(statement) = known(self) {
            return Ok(statement);
        }
        let prepared = Box::pin(self.client.prepare(sql));
        let statement = Box::pin(self.within(&self.openings.read, prepared)).await?;
        self.prepared.lock().unwrap_or_else(|e| e.into_inner()).insert(sql, statement.clone());
        Ok(statement)
    }

    /// Waits for an answer, but not for ever: a connection whose peer has vanished answers nothing.
    pub(super) async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        self.within_patience(answer).await?.map_err(|error| self.failed(error))
    }

    /// Waits for whatever comes, but not for ever.
    pub(super) async fn within_patience<T>(&self, answer: impl Future<Output = T>) -> Result<T, Error> {
        tokio::time::timeout(self.patience, answer).await.map_err(|_| {
            self.lost.store(true, Ordering::Relaxed);
            Error::Unavailable(format!("PostgreSQL did not answer within {:?}", self.patience))
        })
    }

    /// Sorts an error, and notes whether the session is of no more use.
    fn failed(&self, error: tokio_postgres::Error) -> Error {
        if error.code().is_none_or(|code| ends_session(code.code())) {
            self.lost.store(true, Ordering::Relaxed);
        }
        sorted(error)
    }

    /// The same for what begins a transaction. A standby has no transactions that write, and says that of them.
    fn not_begun(&self, error: tokio_postgres::Error) -> Error {
        let standby = error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED);
        match self.failed(error) {
            Error::Unavailable(why) if standby => read_only(&why),
            error => error,
        }
    }

    /// Sends a request within a transaction: the one that is open, or one of its own, whose beginning and end are sent together
    /// with it. That is one round trip, as without a transaction. After something that fails, the rest does nothing, and the
    /// end rolls back.
    async fn within<T>(
        &self,
        opening: &str,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        if self.is_open() {
            return self.wait(request).await;
        }
        self.pending.fetch_add(1, Ordering::Relaxed);
        // Polled, and so sent, in this order. On the heap: whoever sends several statements would carry this for each.
        let (begin, commit) = (self.client.batch_execute(opening), self.client.batch_execute("commit"));
        let sent = Box::pin(join3(begin, request, commit));
        let (begun, answer, committed) = self.within_patience(sent).await?;
        if committed.is_ok() {
            self.ended();
        }
        begun.map_err(|error| self.not_begun(error))?;
        if std::ptr::eq(opening, self.openings.write.as_str()) {
            self.is_primary.store(true, Ordering::Relaxed);
        }
        let answer = answer.map_err(|error| self.failed(error))?;
        committed.map_err(|error| self.failed(error))?;
        Ok(answer)
    }

    async fn send(
        &self,
        opening: &str,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let statement = self.prepare(sql).await?;
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.within(opening, Box::pin(self.client.query(&statement, params))).await
    }

    /// Sends a statement that may write, in the transaction that is open or in one of its own.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        self.send(&self.openings.write, sql, params).await
    }

    /// Sends a statement without a transaction of its own, unless one is open: see [`autocommit`].
    pub(super) async fn query_autocommit(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        if self.is_open() || !self.autocommits.load(Ordering::Relaxed) {
            return self.query(sql, params).await;
        }
        let sent = async {
            let now = Instant::now();
            let statement = match self.autocommitted.get(sql, now) {
                Some(statement) => statement,
                None => {
                    let full = autocommit::qualified(sql, self.openings.schema());
                    let statement = self.client.prepare(&full).await?;
                    self.autocommitted.put(sql, statement.clone(), now);
                    statement
                }
            };
            self.statements.fetch_add(1, Ordering::Relaxed);
            self.client.query(&statement, params).await
        };
        match self.within_patience(Box::pin(sent)).await? {
            Err(error) if autocommit::needs_settings(error.code()) => {
                let rows = self.query(sql, params).await?;
                self.autocommits.store(false, Ordering::Relaxed);
                Ok(rows)
            }
            answer => answer.map_err(|error| self.failed(error)),
        }
    }

    /// The same for one that only reads, by which a worker goes: see [`Conn::read`].
    pub(super) async fn read_autocommit(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        // A session of a primary never becomes one of a standby.
        if self.is_primary.load(Ordering::Relaxed) && self.serves.load(Ordering::Relaxed) {
            return self.query_autocommit(sql, params).await;
        }
        self.read(sql, params).await
    }

    /// The same for one that only reads. A standby answers it, unless a worker is enlisted by this handle: what a worker goes by
    /// must be all that was committed, and a standby may not have it yet.
    pub(super) async fn read(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        self.send(self.reading(), sql, params).await
    }

    pub(super) async fn execute(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let statement = self.prepare(sql).await?;
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.within(&self.openings.write, Box::pin(self.client.execute(&statement, params))).await
    }

    /// Streams what a `copy … to stdout (format binary)` answers, row by row, in a transaction of its own.
    pub(super) async fn copy(
        &self,
        sql: &str,
        types: &[Type],
        mut each: impl FnMut(&BinaryCopyOutRow) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        let rows = self.wait(self.client.copy_out(sql));
        let (begun, rows) = join(self.open(self.reading()), rows).await;
        begun?;
        let rows = BinaryCopyOutStream::new(rows?, types);
        let mut rows = pin!(rows);
        loop {
            // Most rows are there already.
            let row = match rows.try_next().now_or_never() {
                Some(row) => row.map_err(|error| self.failed(error))?,
                None => self.wait(rows.try_next()).await?,
            };
            match row {
                Some(row) => each(&row)?,
                None => break,
            }
        }
        // Given up before, the rest of its rows is still to come, and the connection is not used again.
        self.close("commit").await
    }

    pub(super) async fn begin(&self) -> Result<(), Error> {
        self.begin_with(&self.openings.write).await
    }

    /// The same for one that sees the store as it is at one moment, and only reads.
    pub(super) async fn begin_snapshot(&self) -> Result<(), Error> {
        self.begin_with(&self.openings.snapshot).await
    }

    /// The same for one that only reads what is not the store's, with what its user sets by default.
    pub(super) async fn begin_guest_read(&self) -> Result<(), Error> {
        let opening =
            "begin; set transaction isolation level read committed, read only, not deferrable; reset all";
        self.begin_with(opening).await
    }

    async fn begin_with(&self, opening: &str) -> Result<(), Error> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.open(opening).await
    }

    async fn open(&self, opening: &str) -> Result<(), Error> {
        self.opening();
        self.within_patience(self.client.batch_execute(opening)).await?.map_err(|error| self.not_begun(error))
    }

    /// What the transaction that is open counts for branches; written by [`super::branch::commit`].
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Jobs of whose serial keys free slots are to be handed over at the end of the transaction that is open; see
    /// [`super::serial::hand_over`].
    pub(super) fn unsettled(&self) -> MutexGuard<'_, Vec<Uuid>> {
        self.unsettled.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// This connection's row in each branch's tallies.
    pub(super) fn lane(&self) -> i32 {
        self.gate_writer as i32
    }

    /// A transaction is about to be opened: unless [`Conn::commit`] or [`Conn::rollback`] end it, the connection is not used
    /// again.
    pub(super) fn opening(&self) {
        *self.counts() = Counts::default();
        self.unsettled().clear();
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// A transaction is known to be over.
    fn ended(&self) {
        let _ = self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }

    /// Runs statements that take no parameters, and answers the first value of each row.
    pub(super) async fn run(&self, sql: &str) -> Result<Vec<Option<String>>, Error> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        let messages = self.wait(self.client.simple_query(sql)).await?;
        let value = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
            _ => None,
        };
        Ok(messages.into_iter().filter_map(value).collect())
    }

    pub(super) async fn commit(&self) -> Result<(), Error> {
        debug_assert!(self.unsettled().is_empty(), "slots of serial keys are handed over before the commit");
        self.end("commit").await
    }

    pub(super) async fn rollback(&self) {
        // If that fails too, the connection is not used again.
        let _ = self.end("rollback").await;
    }

    async fn end(&self, sql: &'static str) -> Result<(), Error> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.close(sql).await
    }

    async fn close(&self, sql: &'static str) -> Result<(), Error> {
        self.is_open.store(false, Ordering::Relaxed);
        self.wait(self.client.batch_execute(sql)).await?;
        self.ended();
        Ok(())
    }
}
