//! Connections: a small pool, statements prepared once per connection, errors sorted.

use std::{
    collections::HashMap,
    ops::{Deref, DerefMut},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, TryStreamExt};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{
    Client, NoTls, Row, SimpleQueryMessage, Statement,
    binary_copy::{BinaryCopyOutRow, BinaryCopyOutStream},
    error::SqlState,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{Options, branch::Counts};
use crate::Error;

/// What every connection of the store is told. Tables here are reached by their indexes only; a plan made while a table was
/// empty must not come back as a scan when it is full.
pub(super) const SETTINGS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c enable_bitmapscan=off \
     -c enable_material=off -c plan_cache_mode=force_generic_plan -c jit=off -c client_min_messages=warning \
     -c statement_timeout=0 -c lock_timeout=8s -c idle_in_transaction_session_timeout=10s";

/// What the others are told.
const QUIET: &str = "-c client_min_messages=warning";

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

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The store's statements.
    Store,
    /// Migrations, which are planned as usual.
    Plain,
    /// Transactions of others, with what their user sets by default.
    Guest,
}

/// How many transactions of others run at once; more wait. They may take long, and must leave the server connections for
/// whatever else it serves.
const GUESTS: usize = 16;

/// How many connections for them are kept while they are idle.
pub(super) const GUESTS_KEPT: usize = 4;

pub(super) struct Pool {
    options: Options,
    role: Role,
    idle: Mutex<Vec<Conn>>,
    places: Semaphore,
    statements: Arc<AtomicU64>,
    /// Drives the connections: whoever's call opens one may be gone before it is.
    runtime: tokio::runtime::Handle,
}

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
    statements: Arc<AtomicU64>,
    pub(super) patience: Duration,
}

/// A connection taken from the pool, given back when dropped.
pub(super) struct Guard<'a> {
    conn: Option<Conn>,
    pool: &'a Pool,
    _place: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(options: Options, role: Role, statements: Arc<AtomicU64>) -> Pool {
        let places = Semaphore::new(if role == Role::Guest { GUESTS } else { options.connections });
        let runtime = tokio::runtime::Handle::current();
        Pool { options, role, idle: Mutex::new(Vec::new()), places, statements, runtime }
    }

    pub(super) async fn get(&self) -> Result<Guard<'_>, Error> {
        let patience = match self.role {
            // How long others take is theirs to say.
            Role::Guest => Duration::MAX,
            _ => self.options.patience,
        };
        let place = tokio::time::timeout(patience, self.places.acquire()).await;
        let place = place
            .map_err(|_| Error::Unavailable(format!("no connection was free within {patience:?}")))?
            .expect("the pool is never closed");
        let idle = || self.idle.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let conn = loop {
            match idle() {
                Some(conn) if conn.client.is_closed() => continue,
                Some(conn) => break conn,
                None => break self.connect().await?,
            }
        };
        Ok(Guard { conn: Some(conn), pool: self, _place: place })
    }

    async fn connect(&self) -> Result<Conn, Error> {
        let client = connect(&self.options, self.role, &self.runtime).await?;
        Ok(Conn {
            client,
            prepared: Mutex::default(),
            gate_writer: fastrand::i64(..GATE_WRITERS),
            counts: Mutex::default(),
            unsettled: Mutex::default(),
            busy: AtomicBool::new(false),
            statements: Arc::clone(&self.statements),
            patience: self.options.patience,
        })
    }
}

/// Connects to the database, with the settings that its use asks for.
pub(super) async fn connect(
    options: &Options,
    role: Role,
    runtime: &tokio::runtime::Handle,
) -> Result<Client, Error> {
    let mut config = options.config.clone();
    let theirs = config.get_options().unwrap_or_default().to_owned();
    let path = format!("-c search_path={}", options.schema);
    config.options(match role {
        Role::Store => format!("{theirs} {path} {SETTINGS}"),
        Role::Plain => format!("{theirs} {path} {QUIET}"),
        Role::Guest => format!("{theirs} {QUIET}"),
    });
    if config.get_application_name().is_none() {
        config.application_name("windlass");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.patience);
    }
    // The handshake too: a server that takes the connection and says nothing must not be waited for.
    let connected = tokio::time::timeout(options.patience, config.connect(NoTls)).await;
    let late = |_| Error::Unavailable(format!("PostgreSQL did not answer within {:?}", options.patience));
    let (client, connection) = connected.map_err(late)?.map_err(sorted)?;
    runtime.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

impl Conn {
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
            Ok(Err(error)) => {
                let error = sorted(error);
                // A statement that was prepared against another schema, perhaps: the next one gets a new connection.
                if matches!(error, Error::Fault(_)) {
                    self.busy.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
            Ok(answer) => answer.map_err(sorted),
            Err(_) => {
                self.busy.store(true, Ordering::Relaxed);
                Err(Error::Unavailable(format!("PostgreSQL did not answer within {:?}", self.patience)))
            }
        }
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
                Some(row) => row.map_err(sorted)?,
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

impl Deref for Guard<'_> {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        self.conn.as_ref().expect("there until dropped")
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("there until dropped")
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take()
            && !conn.client.is_closed()
            && !conn.busy.load(Ordering::Relaxed)
        {
            let mut idle = self.pool.idle.lock().unwrap_or_else(|e| e.into_inner());
            if self.pool.role != Role::Guest || idle.len() < GUESTS_KEPT {
                idle.push(conn);
            }
        }
    }
}

/// Sorts an error by what is to be done next.
pub(super) fn sorted(error: tokio_postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        // Not from the server: the connection could not be made or was lost, or a value does not fit its type.
        let text = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        return if error.to_string().contains("serializing") || error.to_string().contains("deserializing") {
            Error::Fault(text)
        } else {
            Error::Unavailable(text)
        };
    };
    let text = format!("{} ({})", db.message(), db.code().code());
    match db.code().code().get(..2).unwrap_or_default() {
        // Data exceptions, constraint violations, and what triggers raise.
        "22" | "23" | "P0" => Error::Refused(text),
        // Lost connections, rollbacks to be tried again, missing resources, shutdown, broken files.
        "08" | "40" | "53" | "57" | "58" => Error::Unavailable(text),
        _ if *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION => {
            Error::Unavailable(format!("the database is read-only: {text}; connect to the primary"))
        }
        _ if *db.code() == SqlState::LOCK_NOT_AVAILABLE => Error::Unavailable(text),
        "28" | "3D" => Error::Config(format!("PostgreSQL refused the connection: {text}")),
        _ => Error::Fault(text),
    }
}
