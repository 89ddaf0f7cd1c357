//! Where durable work is kept.
//!
//! [`Store`] is what programs pass around. It has one trait per caller: [`Execution`] (workers submit, claim and commit),
//! [`Maintenance`] (leases, lost workers, timers), [`Replay`] (what running code reads), [`Inspect`] (what people read),
//! [`Control`] (what people do), [`Diagnose`] (what `windlass doctor` reads), [`Tokens`] and [`Users`] (who may send requests over the
//! network), [`Operations`] (records of what servers do to many jobs) and [`Backend`] (connections and properties of the database).
//! Three backends implement them:
//! [`sqlite`] (a file), [`postgres`] (a server) and [`memory`] (plain maps: the oracle that the other two must agree with).
//! `conformance` is the suite that all of them pass.
//!
//! What always holds, on every backend:
//! - An attempt writes only through [`Execution::commit`], with the epoch of its claim and the revision it
//!   follows. Everything else may only raise the epoch, so that the attempt is fenced, or write what no attempt owns.
//! - A job is in exactly one place: in the ready set, in line for its serial key, among the timers, in a claim, parked, held, or
//!   ended.
//! - What a call has returned is durable.

// With one backend alone, some of what both share is unused.
#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(dead_code, unused_imports, irrefutable_let_patterns)
)]

mod address;
mod alerts;
mod arrival;
mod backend;
mod columns;
mod control;
mod diagnose;
mod error;
mod execution;
mod failure_text;
mod inspect;
mod intern;
// Only databases have indexes.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod list;
mod maintenance;
pub mod memory;
mod operations;
#[cfg(feature = "postgres")]
pub mod postgres;
mod replay;
mod rollup;
mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod store;
mod tokens;
pub mod tx;
mod users;
mod wrapper;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use address::{sqlite_path, with_limits, without_password};
pub use alerts::{
    ALERT_KIND, ALERT_QUEUE, Alert, AlertChange, AlertMute, AlertState, AlertTarget, Alerts, MISSES_READ,
    NewAlertMute, Severity,
};
pub use backend::Backend;
pub use control::{
    Actor, AdminAction, AuditRecord, Control, ControlOutcome, Fork, JobAction, NotAccepted, StageUpdate,
};
pub use diagnose::{
    BranchHealth, Database, Diagnose, Miscount, OldestReady, PostgresHealth, SqliteHealth, TableHealth,
    WriteAccess, database, schema_state,
};
pub use error::Error;
#[cfg(feature = "postgres")]
pub use execution::PostgresWork;
#[cfg(feature = "sqlite")]
pub use execution::SqliteWork;
pub use execution::{
    AsyncWork, CANCEL_GATE, CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Execution, JobEnd,
    NewWorker, Serves, SignalOutcome, TIMER_GATE, TxWork, Work,
};
pub use inspect::{
    Attempt, AuditEntry, AuditFilter, Backlog, BranchChildPage, BranchItems, BranchRanges, BranchTimes,
    CancelHold, ChildBounds, ChildGroup, ChildPosition, ChildRange, FailureText, Filter, Firing, Holds,
    Inspect, ItemChild, Job, JobDetails, JobPage, JobPulse, JournalEnd, JournalHead, LastCall, LimitView,
    MAX_PULSE_JOBS, MAX_SIGNAL_NAMES, MatchCount, Miss, OTHER_SIGNALS, OpenBranch, ParkedJob, Pause,
    PayloadsOf, Pulse, QueueView, RangeChild, RateHold, RunningDetails, ScheduleView, SerialHold, SerialView,
    SignalWaitFilter, SignalWaits, StateCount, Summary, Throughput, ThroughputBy, ThroughputFilter,
    Transition, TransitionCount, UnreadableSignalView, Unsuccessful, UnsuccessfulFilter, UnsuccessfulJob,
    WaitDetails, Waiting, WorkerView,
};
pub use maintenance::{
    CANCEL_AGAIN, Maintenance, PollReport, Prune, Pruned, ReapReport, ReapRequest, RenewRequest, Renewal,
    RollUpReport, RollUpRequest, TimerReport,
};
pub use operations::{
    INTERRUPTED_AFTER, MAX_REFUSALS, NewOperation, Operation, OperationEnd, OperationId, OperationProgress,
    OperationState, Operations, Refusal,
};
pub use replay::{
    Branch, BranchChild, BranchChildFilter, ChildEnd, ChildStates, Replay, SourceRow, TableSource,
};
pub use schema::{Migration, SchemaState};
pub use store::{Fut, Now, Store};
pub use tokens::{NewToken, Registrant, StoredToken, Token, Tokens};
pub use tx::Tx;
pub use users::{
    NewSession, NewUser, PasswordHash, Session, SessionUse, StoredUser, User, UserChange, Users,
};
pub use wrapper::Wrapper;

#[cfg(feature = "sqlite")]
pub use rusqlite;
#[cfg(feature = "postgres")]
pub use tokio_postgres;

use std::sync::Arc;

/// Opens the store at `url`: `sqlite://path`, `postgres://…` or `memory:`. The schema is brought up to date
/// first unless `migrate` is false, in which case an outdated one is an error that says so. Each of the [`Limits`] can be
/// set by a parameter: `sqlite://path?limit_payload=4MiB&limit_inbox=5000`.
///
/// [`Limits`]: windlass_model::Limits
pub async fn open(url: &str, migrate: bool) -> Result<Arc<dyn Store>, Error> {
    if is_postgres(url) {
        return open_postgres(url, migrate).await;
    }
    let (rest, limits) = address::take_limits(url)?;
    if let Some((_, unknown)) = rest.split_once('?').filter(|_| rest.starts_with("sqlite:")) {
        return Err(Error::Config(format!(
            "{unknown:?} in {url:?} is no parameter of a SQLite store; use sqlite://PATH?limit_payload=BYTES"
        )));
    }
    if let Some(path) = sqlite_path(&rest) {
        return open_sqlite(path, migrate, limits);
    }
    if rest == "memory:" {
        return Ok(Arc::new(memory::Memory::with_limits(limits)));
    }
    Err(Error::Config(format!(
        "{url:?} is not a store; use sqlite://PATH, postgres://USER@HOST/DATABASE or memory:"
    )))
}

/// Whether this is the address of a PostgreSQL database.
pub fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str, migrate: bool) -> Result<Arc<dyn Store>, Error> {
    let options = postgres::Options::parse(url)?.migrate(migrate);
    Ok(Arc::new(postgres::Postgres::open(options).await?))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_url: &str, _migrate: bool) -> Result<Arc<dyn Store>, Error> {
    Err(without("PostgreSQL", "postgres"))
}

#[cfg(feature = "sqlite")]
fn open_sqlite(
    path: std::path::PathBuf,
    migrate: bool,
    limits: windlass_model::Limits,
) -> Result<Arc<dyn Store>, Error> {
    let options = sqlite::Options::new(path).migrate(migrate).limits(limits);
    Ok(Arc::new(sqlite::Sqlite::open(options)?))
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(
    _path: std::path::PathBuf,
    _migrate: bool,
    _limits: windlass_model::Limits,
) -> Result<Arc<dyn Store>, Error> {
    Err(without("SQLite", "sqlite"))
}

#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
fn without(database: &str, feature: &str) -> Error {
    Error::Config(format!(
        "this program was built without {database}; enable the feature {feature:?} of the crate `windlass`, or use another store"
    ))
}
