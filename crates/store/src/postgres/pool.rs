//! The pool: connections are opened as they are needed, and kept until they are useless or old.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::AbortHandle,
};
use tokio_postgres::{Client, NoTls};

use super::{
    Options,
    conn::{Conn, ConnConfig},
    errors::PgError,
    settings::BeginSql,
};
use crate::Error;

/// What the connections of a pool are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The store's statements.
    Store,
    /// Transactions that run the caller's own statements, with the settings that their user has by default.
    Caller,
}

/// How many transactions of callers run at once; more wait. They may take long, and must leave connections of the server for
/// its other clients.
const MAX_CALLER_CONNS: usize = 16;

/// How many connections for them are kept while they are idle.
pub(super) const IDLE_CALLER_CONNS: usize = 4;

pub(super) struct Pool {
    options: Options,
    role: Role,
    idle: Mutex<Vec<Conn>>,
    permits: Semaphore,
    config: ConnConfig,
    /// Drives the connections: a connection may outlive the runtime of the call that opened it.
    runtime: tokio::runtime::Handle,
}

/// A connection from the pool, which returns there when it is dropped.
pub(super) struct PooledConn<'a> {
    conn: Option<Conn>,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(options: Options, role: Role, statements: Arc<AtomicU64>) -> Pool {
        let permits =
            Semaphore::new(if role == Role::Caller { MAX_CALLER_CONNS } else { options.connections });
        let runtime = tokio::runtime::Handle::current();
        let begin = Arc::new(BeginSql::new(&options.schema));
        let config = ConnConfig { patience: options.patience, begin, statements, has_worker: Arc::default() };
        Pool { options, role, idle: Mutex::default(), permits, config, runtime }
    }

    /// Notes that a worker was registered: it must not rely on what a standby reports.
    pub(super) fn set_has_worker(&self) {
        self.config.has_worker.store(true, Ordering::Relaxed);
    }

    pub(super) async fn get(&self) -> Result<PooledConn<'_>, PgError> {
        match self.role {
            // How long the transactions of callers take is up to them.
            Role::Caller => self.get_within(Duration::MAX).await,
            Role::Store => self.get_within(self.options.patience).await,
        }
    }

    /// A connection, if one is free within some time.
    pub(super) async fn get_within(&self, patience: Duration) -> Result<PooledConn<'_>, PgError> {
        let permit = tokio::time::timeout(patience, self.permits.acquire()).await;
        let permit = permit
            .map_err(|_| Error::Unavailable(format!("no connection was free within {patience:?}")))?
            .expect("the pool is never closed");
        let kept = self.idle().pop();
        let conn = match kept {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        Ok(PooledConn { conn: Some(conn), pool: self, _permit: permit })
    }

    /// The idle connections, without those that have become useless. Every caller drops those, so that none is kept because
    /// it is never taken.
    fn idle(&self) -> MutexGuard<'_, Vec<Conn>> {
        let mut idle = self.idle.lock().unwrap_or_else(|e| e.into_inner());
        idle.retain(Conn::is_usable);
        idle
    }

    async fn connect(&self) -> Result<Conn, PgError> {
        let session = connect(&self.options, &self.runtime).await?;
        Ok(Conn::new(session, self.config.clone(), jittered(self.options.connection_life)))
    }
}

/// A duration, give or take a tenth: connections that were opened together are not closed together.
fn jittered(life: Duration) -> Duration {
    life.min(windlass_model::limits::MAX_DELAY).mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Connects to the database. Nothing is set for the session: see [`super::settings`]. Returns the task that drives the connection
/// as well.
pub(super) async fn connect(
    options: &Options,
    runtime: &tokio::runtime::Handle,
) -> Result<(Client, AbortHandle), PgError> {
    let mut config = options.config.clone();
    if config.get_application_name().is_none() {
        config.application_name("windlass");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.patience);
    }
    // Includes the handshake: a server may accept the connection and never answer.
    let connected = tokio::time::timeout(options.patience, config.connect(NoTls)).await;
    let (client, connection) = connected.map_err(|_| PgError::no_answer(options.patience))??;
    let task = runtime.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    Ok((client, task.abort_handle()))
}

/// Opens a connection that belongs to no pool, and whose answers are awaited without limit.
pub(super) async fn connect_unpooled(options: &Options) -> Result<Conn, PgError> {
    let session = connect(options, &tokio::runtime::Handle::current()).await?;
    let config = ConnConfig {
        patience: Duration::MAX,
        begin: Arc::new(BeginSql::new(&options.schema)),
        statements: Arc::default(),
        has_worker: Arc::default(),
    };
    Ok(Conn::new(session, config, Duration::MAX))
}

impl Deref for PooledConn<'_> {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        self.conn.as_ref().expect("taken by drop only")
    }
}

impl DerefMut for PooledConn<'_> {
    fn deref_mut(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("taken by drop only")
    }
}

impl Drop for PooledConn<'_> {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take().filter(Conn::is_usable) else { return };
        let mut idle = self.pool.idle();
        if self.pool.role != Role::Caller || idle.len() < IDLE_CALLER_CONNS {
            idle.push(conn);
        }
    }
}
