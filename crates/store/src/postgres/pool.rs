//! The pool: sessions are opened as they are needed and kept, unless they are of no more use or have lived long enough.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Client, NoTls};

use super::{Options, conn::Conn, errors::sorted, settings::Openings};
use crate::Error;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The store's statements.
    Store,
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
    /// Whether a worker was enlisted by this handle.
    serves: Arc<AtomicBool>,
    openings: Arc<Openings>,
    /// Drives the connections: whoever's call opens one may be gone before it is.
    runtime: tokio::runtime::Handle,
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
        let openings = Arc::new(Openings::new(&options.schema));
        let (idle, serves) = (Mutex::default(), Arc::default());
        Pool { options, role, idle, places, statements, serves, openings, runtime }
    }

    /// A worker is enlisted: it must not go by what a standby says.
    pub(super) fn serve(&self) {
        self.serves.store(true, Ordering::Relaxed);
    }

    pub(super) async fn get(&self) -> Result<Guard<'_>, Error> {
        match self.role {
            // How long others take is theirs to say.
            Role::Guest => self.get_within(Duration::MAX).await,
            Role::Store => self.get_within(self.options.patience).await,
        }
    }

    /// A connection, if one is free within some time.
    pub(super) async fn get_within(&self, patience: Duration) -> Result<Guard<'_>, Error> {
        let place = tokio::time::timeout(patience, self.places.acquire()).await;
        let place = place
            .map_err(|_| Error::Unavailable(format!("no connection was free within {patience:?}")))?
            .expect("the pool is never closed");
        let kept = self.idle().pop();
        let conn = match kept {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        Ok(Guard { conn: Some(conn), pool: self, _place: place })
    }

    /// The connections that are kept, without those that are of no more use: whoever takes one or gives one back has the
    /// others looked at too, so that none is kept because it is never taken.
    fn idle(&self) -> MutexGuard<'_, Vec<Conn>> {
        let mut idle = self.idle.lock().unwrap_or_else(|e| e.into_inner());
        idle.retain(Conn::is_usable);
        idle
    }

    async fn connect(&self) -> Result<Conn, Error> {
        let client = connect(&self.options, &self.runtime).await?;
        let opened_at = Instant::now();
        let until = opened_at.checked_add(jittered(self.options.connection_life));
        let shared = (Arc::clone(&self.statements), Arc::clone(&self.serves));
        Ok(Conn::new(client, (opened_at, until), self.options.patience, Arc::clone(&self.openings), shared))
    }
}

/// A span, give or take a tenth: what was opened together is not closed together.
fn jittered(life: Duration) -> Duration {
    life.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Connects to the database. Nothing is set for the session: see [`Openings`].
pub(super) async fn connect(options: &Options, runtime: &tokio::runtime::Handle) -> Result<Client, Error> {
    let mut config = options.config.clone();
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
        let Some(conn) = self.conn.take().filter(Conn::is_usable) else { return };
        let mut idle = self.pool.idle();
        if self.pool.role != Role::Guest || idle.len() < GUESTS_KEPT {
            idle.push(conn);
        }
    }
}
