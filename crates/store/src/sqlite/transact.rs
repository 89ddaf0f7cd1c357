//! Writes of the caller's own and a change, in one transaction.
//!
//! The work runs on the one connection that writes, between a `begin immediate` and the commit. Whatever it does, it can
//! neither commit by itself (a hook turns that into a rollback) nor keep the file to itself for long (a handler interrupts
//! its statements), and what it leaves set is put right.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, config::DbConfig};
use windlass_model::{Change, Verdict};

use super::{Sqlite, commit, conn, errors::BUSY, pool::SMALL, tx::Tx};
use crate::{Error, Now, SqliteWork, Work};

/// After how many of its instructions SQLite asks whether a statement may go on: some 50 µs.
const CHECK_INTERVAL: i32 = 10_000;

pub(super) async fn transact(store: &Sqlite, now: Now, work: Work<'_>) -> Result<Option<Verdict>, Error> {
    let Work::Sqlite(work) = work else {
        return Err(Error::Config(
            "the store is a SQLite file, and the transaction is written for PostgreSQL; use the form for SQLite"
                .into(),
        ));
    };
    let mut work = Some(work);
    let mut added_lanes = false;
    let answer = store
        .retry_busy(SMALL + 1, |writer| {
            begin(store, writer)?;
            let work = work.take().expect("nothing is tried again once it has run");
            let answer = run(store, now, writer, work, &mut added_lanes);
            answer.map_err(final_error)
        })
        .await;
    if added_lanes && let Err(error) = store.read_lanes() {
        // The answer stands: lanes that are not known are looked up where they are needed.
        tracing::warn!(%error, "the lanes of new jobs could not be read");
    }
    answer
}

/// While another process writes, this fails before the work has run: it is tried again.
fn begin(store: &Sqlite, writer: &Connection) -> Result<(), Error> {
    let tx = Tx::new(writer, store);
    let begun = tx.execute("begin immediate", []);
    store.count(tx.statements.get());
    begun.map(|_| ())
}

/// An error that is not waited out: the work has run, and runs once.
fn final_error(error: Error) -> Error {
    match error {
        Error::Unavailable(why) if why == BUSY => {
            Error::Unavailable("the file was locked by another process at the end of the transaction".into())
        }
        error => error,
    }
}

/// Runs the work within the transaction that was begun, and ends it.
fn run(
    store: &Sqlite,
    now: Now,
    writer: &mut Connection,
    work: SqliteWork<'_>,
    added_lanes: &mut bool,
) -> Result<Option<Verdict>, Error> {
    let foreign_keys = writer.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY)?;
    let ran =
        catch_unwind(AssertUnwindSafe(|| run_with_hooks(writer, store.shared.options.transaction, work)));
    let tx = Tx::new(writer, store);
    let (answer, panic) = match ran {
        Ok(Ok(Some(change))) => (finish(&tx, now, &change, added_lanes), None),
        Ok(Ok(None)) => (Ok(None), None),
        Ok(Err(error)) => (Err(error), None),
        Err(panic) => (Ok(None), Some(panic)),
    };
    if !writer.is_autocommit() {
        // What was found before is the answer; a rollback can only fail if there is nothing to undo.
        let _ = tx.execute("rollback", []);
    }
    store.count(tx.statements.get());
    if let Err(error) = restore_settings(writer, foreign_keys) {
        // The answer stands, whatever the next one finds.
        tracing::warn!(%error, "the connection could not be set as it was before a transaction");
    }
    match panic {
        Some(panic) => resume_unwind(panic),
        None => answer,
    }
}

/// Sets what the work may have set as it was.
fn restore_settings(writer: &mut Connection, foreign_keys: bool) -> Result<(), Error> {
    writer.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, foreign_keys)?;
    conn::configure(writer)
}

/// Applies the change and commits, if that is what becomes of it.
fn finish(tx: &Tx<'_>, now: Now, change: &Change, added_lanes: &mut bool) -> Result<Option<Verdict>, Error> {
    let verdict = match commit::commit_in(tx, tx.now(now), change, added_lanes) {
        Err(Error::Refused(why)) => Verdict::Refused(why),
        verdict => verdict?,
    };
    if matches!(verdict, Verdict::Committed | Verdict::Halted) {
        tx.finish()?;
        tx.execute("commit", [])?;
    }
    Ok(Some(verdict))
}

/// What the work was seen to do.
#[derive(Default)]
struct Seen {
    committed: AtomicBool,
    rolled_back: AtomicBool,
    took_too_long: AtomicBool,
}

/// The hooks on a connection while the work runs; they are gone with it, however it ends.
struct Hooks<'c>(&'c mut Connection);

impl Drop for Hooks<'_> {
    fn drop(&mut self) {
        // Taking hooks away fails only on a connection that is not this thread's.
        let _ = self.0.commit_hook(None::<fn() -> bool>);
        let _ = self.0.rollback_hook(None::<fn()>);
        let _ = self.0.progress_handler(0, None::<fn() -> bool>);
    }
}

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
            "a statement of the transaction was still running after {limit:?}, in which nobody else can write, and was \
             ended; nothing was written; do less in one transaction, or raise the limit"
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
