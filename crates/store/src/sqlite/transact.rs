//! Writes of the caller's own and a change, in one transaction.
//!
//! The work runs on the one connection that writes, between `begin immediate` and the commit. It can neither commit
//! by itself (a hook turns that into a rollback) nor block the file for long (a handler interrupts its statements),
//! and the settings it changes are restored.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, config::DbConfig};
use windlass_model::{Change, CommitOutcome};

use super::{Sqlite, commit, conn, errors::BUSY, pool::SMALL, tx::Tx};
use crate::{Error, Now, SqliteWork, Work};

/// After how many of its instructions SQLite checks whether a statement may continue: about 50 µs.
const CHECK_INTERVAL: i32 = 10_000;

pub(super) async fn transact(
    store: &Sqlite,
    now: Now,
    work: Work<'_>,
) -> Result<Option<CommitOutcome>, Error> {
    let Work::Sqlite(work) = work else {
        return Err(Error::Config(
            "the store is a SQLite file, and the transaction is written for PostgreSQL; use the form for SQLite"
                .into(),
        ));
    };
    let mut work = Some(work);
    let mut added_lanes = false;
    let result = store
        .retry_busy(SMALL + 1, |writer| {
            begin(store, writer)?;
            let work = work.take().expect("nothing is tried again once it has run");
            let result = run(store, now, writer, work, &mut added_lanes);
            result.map_err(final_error)
        })
        .await;
    if added_lanes && let Err(error) = store.read_lanes() {
        // The result is valid: lanes that are not cached are looked up where they are needed.
        tracing::warn!(%error, "the lanes of new jobs could not be read");
    }
    result
}

/// Begins the transaction. While another process writes, this fails before the work has run, and is tried again.
fn begin(store: &Sqlite, writer: &Connection) -> Result<(), Error> {
    let tx = Tx::new(writer, store);
    let begun = tx.execute("begin immediate", []);
    store.count(tx.statements.get());
    begun.map(|_| ())
}

/// An error that must not be retried: the work has run, and runs once.
fn final_error(error: Error) -> Error {
    match error {
        Error::Unavailable(why) if why == BUSY => {
            Error::Unavailable("the file was locked by another process at the end of the transaction".into())
        }
        error => error,
    }
}

/// Runs the work within the open transaction, and ends that.
fn run(
    store: &Sqlite,
    now: Now,
    writer: &mut Connection,
    work: SqliteWork<'_>,
    added_lanes: &mut bool,
) -> Result<Option<CommitOutcome>, Error> {
    let foreign_keys = writer.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY)?;
    let ran =
        catch_unwind(AssertUnwindSafe(|| run_with_hooks(writer, store.shared.options.transaction, work)));
    let tx = Tx::new(writer, store);
    let (result, panic) = match ran {
        Ok(Ok(Some(change))) => (finish(&tx, now, &change, added_lanes), None),
        Ok(Ok(None)) => (Ok(None), None),
        Ok(Err(error)) => (Err(error), None),
        Err(panic) => (Ok(None), Some(panic)),
    };
    if !writer.is_autocommit() {
        // The earlier result is returned; a rollback can only fail if there is nothing to undo.
        let _ = tx.execute("rollback", []);
    }
    store.count(tx.statements.get());
    if let Err(error) = restore_settings(writer, foreign_keys) {
        // The result is valid, whatever happens to the next transaction.
        tracing::warn!(%error, "the connection could not be set as it was before a transaction");
    }
    match panic {
        Some(panic) => resume_unwind(panic),
        None => result,
    }
}

/// Restores the settings that the work may have changed.
fn restore_settings(writer: &mut Connection, foreign_keys: bool) -> Result<(), Error> {
    writer.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, foreign_keys)?;
    conn::configure(writer)
}

/// Applies the change, and commits if it was applied.
fn finish(
    tx: &Tx<'_>,
    now: Now,
    change: &Change,
    added_lanes: &mut bool,
) -> Result<Option<CommitOutcome>, Error> {
    let verdict = match commit::commit_in(tx, tx.now(now), change, added_lanes) {
        Err(Error::Refused(why)) => CommitOutcome::Refused(why),
        verdict => verdict?,
    };
    if matches!(verdict, CommitOutcome::Committed | CommitOutcome::Halted) {
        tx.finish()?;
        tx.execute("commit", [])?;
    }
    Ok(Some(verdict))
}

/// What the hooks have seen the work do.
#[derive(Default)]
struct Seen {
    committed: AtomicBool,
    rolled_back: AtomicBool,
    took_too_long: AtomicBool,
}

/// The hooks on a connection while the work runs; removed when it ends, however it ends.
struct Hooks<'c>(&'c mut Connection);

impl Drop for Hooks<'_> {
    fn drop(&mut self) {
        // Removing hooks fails only on a connection of another thread.
        let _ = self.0.commit_hook(None::<fn() -> bool>);
        let _ = self.0.rollback_hook(None::<fn()>);
        let _ = self.0.progress_handler(0, None::<fn() -> bool>);
    }
}

/// Runs the work, and fails if it has committed, rolled back or run too long.
fn run_with_hooks(
    writer: &mut Connection,
    limit: Duration,
    work: SqliteWork<'_>,
) -> Result<Option<Change>, Error> {
    let seen = Arc::new(Seen::default());
    let started = Instant::now();
    let hooks = Hooks(writer);
    let progress = Arc::clone(&seen);
    hooks.0.progress_handler(
        CHECK_INTERVAL,
        Some(move || {
            let late = started.elapsed() > limit;
            progress.took_too_long.fetch_or(late, Ordering::Relaxed);
            late
        }),
    )?;
    let committing = Arc::clone(&seen);
    hooks.0.commit_hook(Some(move || {
        committing.committed.store(true, Ordering::Relaxed);
        true
    }))?;
    let rolling_back = Arc::clone(&seen);
    hooks.0.rollback_hook(Some(move || rolling_back.rolled_back.store(true, Ordering::Relaxed)))?;
    let change = work(hooks.0);
    if seen.took_too_long.load(Ordering::Relaxed) {
        return Err(Error::Fault(format!(
            "a statement of the transaction was still running after {limit:?}, while nobody else could write, and was \
             interrupted; nothing was written; do less in one transaction, or raise the limit"
        )));
    }
    if seen.committed.load(Ordering::Relaxed) {
        return Err(ended_by_work("committed by itself, which was undone"));
    }
    if change.is_some() && (hooks.0.is_autocommit() || seen.rolled_back.load(Ordering::Relaxed)) {
        return Err(ended_by_work("was rolled back, by its own SQL or an error in it"));
    }
    Ok(change)
}

fn ended_by_work(how: &str) -> Error {
    Error::Fault(format!(
        "the transaction {how}; nothing was written; leave commit and rollback to the store, which does them when the \
         work answers"
    ))
}
