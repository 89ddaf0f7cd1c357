//! Connections: statements prepared once for each, answers that are not waited for without end.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{FutureExt, TryStreamExt};
use tokio_postgres::{
    Client, Row, SimpleQueryMessage, Statement,
    binary_copy::{BinaryCopyOutRow, BinaryCopyOutStream},
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{
    branch::Counts,
    errors::{ends_session, sorted},
};
use crate::Error;

/// What every connection of the store is told. Tables here are reached by their indexes only; a plan made while a table was
/// empty must not come back as a scan when it is full.
pub(super) const SETTINGS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c enable_bitmapscan=off \
     -c enable_material=off -c plan_cache_mode=force_generic_plan -c jit=off -c client_min_messages=warning \
     -c statement_timeout=0 -c lock_timeout=8s -c idle_in_transaction_session_timeout=10s";

/// What the others are told.
pub(super) const QUIET: &str = "-c client_min_messages=warning";

/// How often a transaction that was chosen to give way in a deadlock is tried.
pub(super) const DEADLOCKS: u64 = 5;

/// Calls again what was chosen to give way because two met in opposite order.
macro_rules! giving_way {
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
pub(super) use giving_way;

/// How many rows a gate has: few enough to read, many enough that two writers seldom share one.
const GATE_WRITERS: i64 = 64;

pub(super) struct Conn {
    pub(super) client: Client,
    prepared: Mutex<HashMap<&'static str, Statement>>,
    /// This connection's row in each gate: two commits in flight must not wait for each other's.
    pub(super) gate_writer: i64,
    /// What the transaction that is open counts for branches.
    counts: Mutex<Counts>,
    /// Jobs whose serial keys the transaction that is open has touched.
    unsettled: Mutex<Vec<Uuid>>,
    /// Set while a transaction is open: a connection dropped in the middle is not used again.
    busy: AtomicBool,
    /// Set when an error says that the session is of no more use: see [`ends_session`].
    lost: AtomicBool,
    /// Until when it is used; `None` is for ever.
    until: Option<Instant>,
    statements: Arc<AtomicU64>,
    pub(super) patience: Duration,
}

impl Conn {
    pub(super) fn new(
        client: Client,
        until: Option<Instant>,
        patience: Duration,
        statements: Arc<AtomicU64>,
    ) -> Conn {
        Conn {
            client,
            prepared: Mutex::default(),
            gate_writer: fastrand::i64(..GATE_WRITERS),
            counts: Mutex::default(),
            unsettled: Mutex::default(),
            busy: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            until,
            statements,
            patience,
        }
    }

    /// Whether it may be used again, now that nobody uses it.
    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed()
            && !self.busy.load(Ordering::Relaxed)
            && !self.lost.load(Ordering::Relaxed)
            && self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Prepares a statement if it is not; needed only before several are sent together.
    pub(super) async fn prepare(&self, sql: &'static str) -> Result<Statement, Error> {
        let known = |conn: &Conn| conn.prepared.lock().unwrap_or_else(|e| e.into_inner()).get(sql).cloned();
        if let Some(statement) = known(self) {
            return Ok(statement);
        }
        let statement = self.wait(self.client.prepare(sql)).await?;
        self.prepared.lock().unwrap_or_else(|e| e.into_inner()).insert(sql, statement.clone());
        Ok(statement)
    }

    /// Waits for an answer, but not for ever: a connection whose peer has vanished answers nothing.
    async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.patience, answer).await {
            Ok(answer) => answer.map_err(|error| self.failed(error)),
            Err(_) => {
                self.lost.store(true, Ordering::Relaxed);
                Err(Error::Unavailable(format!("PostgreSQL did not answer within {:?}", self.patience)))
            }
        }
    }

    /// Sorts an error, and notes whether the session is of no more use.
    fn failed(&self, error: tokio_postgres::Error) -> Error {
        if error.code().is_none_or(|code| ends_session(code.code())) {
            self.lost.store(true, Ordering::Relaxed);
        }
        sorted(error)
    }

    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let statement = self.prepare(sql).await?;
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.wait(self.client.query(&statement, params)).await
    }

    pub(super) async fn execute(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let statement = self.prepare(sql).await?;
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.wait(self.client.execute(&statement, params)).await
    }

    /// Streams what a `copy … to stdout (format binary)` answers, row by row.
    pub(super) async fn copy(
        &self,
        sql: &str,
        types: &[Type],
        mut each: impl FnMut(&BinaryCopyOutRow) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        // Given up in the middle, the rest of its rows is still to come.
        self.opening();
        let rows = BinaryCopyOutStream::new(self.wait(self.client.copy_out(sql)).await?, types);
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
        self.busy.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn begin(&self) -> Result<(), Error> {
        self.opening();
        self.bracket("begin").await
    }

    /// The same for one that sees the store as it is at one moment, and only reads.
    pub(super) async fn begin_snapshot(&self) -> Result<(), Error> {
        self.opening();
        self.bracket("begin isolation level repeatable read read only").await
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
        self.busy.store(true, Ordering::Relaxed);
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
        self.bracket("commit").await?;
        self.busy.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn rollback(&self) {
        if self.bracket("rollback").await.is_ok() {
            self.busy.store(false, Ordering::Relaxed);
        }
    }

    async fn bracket(&self, sql: &'static str) -> Result<(), Error> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.wait(self.client.batch_execute(sql)).await
    }
}
