//! One session with the server: statements that are prepared once, and answers that are awaited for a limited time.
//!
//! A statement that is sent over a [`Conn`] gets a transaction of its own, in the same round trip. A transaction of several
//! statements is a [`Tx`](super::tx::Tx), which borrows the connection exclusively.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt, TryStreamExt,
    future::{join, join3},
};
use tokio::task::AbortHandle;
use tokio_postgres::{
    Client, Row, Statement,
    binary_copy::{BinaryCopyOutRow, BinaryCopyOutStream},
    types::{ToSql, Type},
};
use windlass_model::{ClaimNo, JobId, WorkerId};

use super::{
    autocommit::{self, Prepared},
    errors::PgError,
    settings::{BeginSql, Mode},
};

/// How often a transaction is run that the server rolls back to end a deadlock.
pub(super) const DEADLOCK_TRIES: u64 = 5;

/// Runs a call again if the server rolled its transaction back to end a deadlock. Its result has the store's own error.
macro_rules! retry_deadlock {
    ($call:expr) => {{
        let mut tries = 1;
        loop {
            match $call.await {
                Err($crate::postgres::errors::PgError {
                    class: $crate::postgres::errors::Class::Deadlock,
                    ..
                }) if tries < $crate::postgres::conn::DEADLOCK_TRIES => {
                    tokio::time::sleep(std::time::Duration::from_millis(fastrand::u64(1..20) * tries)).await;
                    tries += 1;
                }
                result => break result.map_err($crate::Error::from),
            }
        }
    }};
}
pub(super) use retry_deadlock;

/// The number of rows of a gate: few enough to read, many enough that two writers seldom share one.
const GATE_WRITERS: i64 = 64;

/// The number of rows of a lane's counts. Every commit writes one, so that more connections than of a gate must not share it.
const COUNT_WRITERS: i32 = 1_024;

/// What all connections of a pool have in common.
#[derive(Clone)]
pub(super) struct ConnConfig {
    /// How long an answer is awaited.
    pub(super) patience: Duration,
    pub(super) begin: Arc<BeginSql>,
    /// Counts the statements of the handle.
    pub(super) statements: Arc<AtomicU64>,
    /// Whether a worker was registered through this handle: see [`Conn::read`].
    pub(super) has_worker: Arc<AtomicBool>,
}

pub(super) struct Conn {
    /// Shared with a caller while its transaction is open, and with nobody otherwise.
    pub(super) client: Arc<Client>,
    /// The task that drives the connection.
    task: AbortHandle,
    prepared: Mutex<HashMap<&'static str, Statement>>,
    /// Statements that are sent without a transaction.
    autocommitted: Prepared,
    /// Whether they may be. Cleared once one had to be sent again with all settings.
    autocommits: AtomicBool,
    /// This connection's row in each gate and in the counts of each branch: two commits must not wait for each other's.
    pub(super) gate_writer: i64,
    /// Its row in the counts of each lane and branch.
    pub(super) count_writer: i32,
    /// How many transactions were begun that are not known to have ended. It is not in [`Tx`](super::tx::Tx), because it must
    /// survive the future that began them: a connection whose future is dropped in a transaction is not reused.
    unfinished: AtomicU32,
    /// Set by an error after which the session is useless.
    lost: AtomicBool,
    /// The claim whose step was the last that this connection wrote by itself.
    last_step: Mutex<Option<(JobId, WorkerId, ClaimNo)>>,
    /// Whether the cached lanes were compared with the database since this connection was opened.
    lanes_checked: AtomicBool,
    pub(super) opened_at: Instant,
    /// When it is replaced; `None` is never.
    expires_at: Option<Instant>,
    config: ConnConfig,
    /// Whether a transaction that may write was begun in this session, so that it is not one of a standby.
    is_primary: AtomicBool,
}

impl Conn {
    pub(super) fn new((client, task): (Client, AbortHandle), config: ConnConfig, life: Duration) -> Conn {
        let opened_at = Instant::now();
        Conn {
            client: Arc::new(client),
            task,
            prepared: Mutex::default(),
            autocommitted: Prepared::new(),
            autocommits: AtomicBool::new(true),
            gate_writer: fastrand::i64(..GATE_WRITERS),
            count_writer: fastrand::i32(..COUNT_WRITERS),
            unfinished: AtomicU32::new(0),
            lost: AtomicBool::new(false),
            last_step: Mutex::default(),
            lanes_checked: AtomicBool::new(false),
            opened_at,
            expires_at: opened_at.checked_add(life),
            config,
            is_primary: AtomicBool::new(false),
        }
    }

    /// Whether the last step that this connection wrote by itself was one of this claim.
    pub(super) fn wrote_last(&self, claim: (JobId, WorkerId, ClaimNo)) -> bool {
        *self.last_step.lock().unwrap_or_else(|e| e.into_inner()) == Some(claim)
    }

    pub(super) fn set_last_step(&self, claim: Option<(JobId, WorkerId, ClaimNo)>) {
        *self.last_step.lock().unwrap_or_else(|e| e.into_inner()) = claim;
    }

    /// Whether the cached lanes were not yet compared with the database.
    pub(super) fn is_new(&self) -> bool {
        !self.lanes_checked.load(Ordering::Relaxed)
    }

    pub(super) fn set_lanes_checked(&self) {
        self.lanes_checked.store(true, Ordering::Relaxed);
    }

    pub(super) fn patience(&self) -> Duration {
        self.config.patience
    }

    pub(super) fn begin_sql(&self) -> &BeginSql {
        &self.config.begin
    }

    /// Counts a statement.
    pub(super) fn count_statement(&self) {
        self.config.statements.fetch_add(1, Ordering::Relaxed);
    }

    /// How a transaction of a lone read begins.
    fn read_mode(&self) -> Mode {
        if self.config.has_worker.load(Ordering::Relaxed) { Mode::Write } else { Mode::Read }
    }

    /// Whether it may be reused, now that nobody uses it.
    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed()
            && self.unfinished.load(Ordering::Relaxed) == 0
            && !self.lost.load(Ordering::Relaxed)
            && self.expires_at.is_none_or(|at| Instant::now() < at)
    }

    /// The statement, if it is prepared.
    pub(super) fn prepared(&self, sql: &'static str) -> Option<Statement> {
        self.prepared.lock().unwrap_or_else(|e| e.into_inner()).get(sql).cloned()
    }

    pub(super) fn add_prepared(&self, sql: &'static str, statement: &Statement) {
        self.prepared.lock().unwrap_or_else(|e| e.into_inner()).insert(sql, statement.clone());
    }

    /// Prepares a statement unless it is prepared. Must be awaited before several statements are sent together: one that is
    /// still being prepared would be overtaken by the next.
    pub(super) async fn prepare(&self, sql: &'static str) -> Result<Statement, PgError> {
        if let Some(statement) = self.prepared(sql) {
            return Ok(statement);
        }
        // In a transaction, because names are resolved by its search path.
        let prepared = Box::pin(self.client.prepare(sql));
        let statement = Box::pin(self.send_alone(Mode::Read, prepared)).await?;
        self.add_prepared(sql, &statement);
        Ok(statement)
    }

    /// Waits for an answer for a limited time: a connection whose peer has vanished answers nothing.
    pub(super) async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgError> {
        self.within_patience(answer).await?.map_err(|error| self.failed(error.into()))
    }

    async fn within_patience<T>(&self, answer: impl Future<Output = T>) -> Result<T, PgError> {
        tokio::time::timeout(self.patience(), answer)
            .await
            .map_err(|_| self.failed(PgError::no_answer(self.patience())))
    }

    /// Notes whether the session is useless after an error.
    fn failed(&self, error: PgError) -> PgError {
        if error.class.ends_session() {
            self.lost.store(true, Ordering::Relaxed);
        }
        error
    }

    /// Notes that a transaction is about to begin: until [`Conn::send_end`] has ended it, the connection is not reused.
    pub(super) fn note_begin(&self) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a transaction has ended.
    fn note_end(&self) {
        let _ = self.unfinished.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }

    /// Sends the beginning of a transaction, which [`Conn::note_begin`] has announced.
    pub(super) async fn send_begin(&self, mode: Mode) -> Result<(), PgError> {
        let begin = self.client.batch_execute(self.begin_sql().of(mode));
        self.within_patience(begin).await?.map_err(|error| self.failed(PgError::at_begin(error)))
    }

    /// Sends the end of a transaction, `commit` or `rollback`.
    pub(super) async fn send_end(&self, sql: &'static str) -> Result<(), PgError> {
        self.wait(self.client.batch_execute(sql)).await?;
        self.note_end();
        Ok(())
    }

    /// Sends a request in a transaction of its own, whose beginning and end are sent together with it: one round trip, as
    /// without a transaction. If one of the three fails, those after it do nothing, and the end rolls back.
    async fn send_alone<T>(
        &self,
        mode: Mode,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgError> {
        self.note_begin();
        // Polled, and so sent, in this order. On the heap: the future of a caller with several statements would hold this for
        // each of them.
        let (begin, commit) =
            (self.client.batch_execute(self.begin_sql().of(mode)), self.client.batch_execute("commit"));
        let sent = Box::pin(join3(begin, request, commit));
        let (begun, answer, committed) = self.within_patience(sent).await?;
        if committed.is_ok() {
            self.note_end();
        }
        begun.map_err(|error| self.failed(PgError::at_begin(error)))?;
        if mode == Mode::Write {
            self.is_primary.store(true, Ordering::Relaxed);
        }
        let answer = answer.map_err(|error| self.failed(error.into()))?;
        committed.map_err(|error| self.failed(error.into()))?;
        Ok(answer)
    }

    async fn query_as(
        &self,
        mode: Mode,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        let statement = self.prepare(sql).await?;
        self.count_statement();
        self.send_alone(mode, Box::pin(self.client.query(&statement, params))).await
    }

    /// Sends a statement that may write, in a transaction of its own.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        self.query_as(Mode::Write, sql, params).await
    }

    /// The same for a statement that only reads. A standby accepts it, unless a worker is registered through this handle: a
    /// worker must see all that was committed, which a standby may lack.
    pub(super) async fn read(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        self.query_as(self.read_mode(), sql, params).await
    }

    /// Sends a statement that may write and returns no rows, in a transaction of its own. Returns how many rows it changed.
    pub(super) async fn execute(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, PgError> {
        let statement = self.prepare(sql).await?;
        self.count_statement();
        self.send_alone(Mode::Write, Box::pin(self.client.execute(&statement, params))).await
    }

    /// Sends a statement without a transaction: see [`autocommit`].
    pub(super) async fn query_autocommit(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        if !self.autocommits.load(Ordering::Relaxed) {
            return self.query(sql, params).await;
        }
        let sent = async {
            let now = Instant::now();
            let statement = match self.autocommitted.get(sql, now) {
                Some(statement) => statement,
                None => {
                    let full = autocommit::qualified(sql, self.begin_sql().schema());
                    let statement = self.client.prepare(&full).await?;
                    self.autocommitted.put(sql, statement.clone(), now);
                    statement
                }
            };
            self.count_statement();
            self.client.query(&statement, params).await
        };
        match self.within_patience(Box::pin(sent)).await?.map_err(PgError::from) {
            Err(error) if error.class.may_need_settings() => {
                let rows = self.query(sql, params).await?;
                self.autocommits.store(false, Ordering::Relaxed);
                Ok(rows)
            }
            answer => answer.map_err(|error| self.failed(error)),
        }
    }

    /// The same for a statement that only reads: see [`Conn::read`].
    pub(super) async fn read_autocommit(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        // A session of a primary never becomes one of a standby.
        if self.is_primary.load(Ordering::Relaxed) && self.config.has_worker.load(Ordering::Relaxed) {
            return self.query_autocommit(sql, params).await;
        }
        self.read(sql, params).await
    }

    /// Streams the rows of a `copy … to stdout (format binary)`, in a transaction of its own.
    pub(super) async fn copy(
        &mut self,
        sql: &str,
        types: &[Type],
        mut each: impl FnMut(&BinaryCopyOutRow) -> Result<(), PgError>,
    ) -> Result<(), PgError> {
        self.count_statement();
        self.note_begin();
        let (begun, rows) =
            join(self.send_begin(self.read_mode()), self.wait(self.client.copy_out(sql))).await;
        begun?;
        let rows = BinaryCopyOutStream::new(rows?, types);
        let mut rows = pin!(rows);
        loop {
            // Most rows have been received already.
            let row = match rows.try_next().now_or_never() {
                Some(row) => row.map_err(|error| self.failed(error.into()))?,
                None => self.wait(rows.try_next()).await?,
            };
            match row {
                Some(row) => each(&row)?,
                None => break,
            }
        }
        // If this is not reached, some rows have not been received, and the connection is not reused.
        self.send_end("commit").await
    }
}

impl Drop for Conn {
    /// Closes the connection, also if the caller of a transaction still has the client: nothing can be sent over it after the
    /// store has given it up.
    fn drop(&mut self) {
        if Arc::get_mut(&mut self.client).is_none() {
            self.task.abort();
        }
    }
}
