//! Writes of the caller's own and a change, in one transaction.
//!
//! The work runs on the one connection that writes, between `begin immediate` and the commit. It can neither commit
//! by itself (a hook turns that into a rollback) nor block the file for long (a handler interrupts its statements, and a timer
//! ends an async work), and the settings it changes are restored. An async work has the connection through a [`LentWriter`], which
//! is taken from it when the transaction ends.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use rusqlite::{Connection, config::DbConfig};
use tokio::sync::OwnedMutexGuard;
use windlass_model::{Change, CommitOutcome};

use super::{
    Sqlite,
    caller_tx::{CallerTx, LentWriter},
    commit, conn,
    errors::BUSY,
    pool::run_blocking,
    tx::Tx,
};
use crate::{Error, Now, SqliteWork, TxWork, Work, tx};

/// After how many of its instructions SQLite checks whether a statement may continue: about 50 µs.
const CHECK_INTERVAL: i32 = 10_000;

pub(super) async fn transact(
    store: &Sqlite,
    now: Now,
    work: Work<'_>,
) -> Result<Option<CommitOutcome>, Error> {
    let mut added_lanes = false;
    let result = match work {
        Work::Tx(work) => {
            let mut open = OpenTransaction::begin(store).await?;
            let answer = open.run_async(work).await?;
            open.end(now, answer, &mut added_lanes)
        }
        Work::Sqlite(work) => {
            let open = OpenTransaction::begin(store).await?;
            let answer = open.run(work);
            open.end(now, answer, &mut added_lanes)
        }
        #[cfg(feature = "postgres")]
        Work::Postgres(_) => {
            return Err(Error::Config(
                "the store is a SQLite file, and the transaction is written for PostgreSQL; use the form for SQLite, or the \
                 one for both"
                    .into(),
            ));
        }
    };
    if added_lanes && let Err(error) = store.read_lanes() {
        // The result is valid: lanes that are not cached are looked up where they are needed.
        tracing::warn!(%error, "the lanes of new jobs could not be read");
    }
    result
}

/// What a work returns, or its panic.
type Answer = Result<Option<Change>, Box<dyn Any + Send>>;

/// What the hooks have seen the work do.
#[derive(Default)]
pub(super) struct Seen {
    committed: AtomicBool,
    rolled_back: AtomicBool,
    pub(super) took_too_long: AtomicBool,
    /// The transaction is over, and so is a statement that still runs in it.
    ended: AtomicBool,
}

/// A transaction of the caller's own that is open on the connection that writes. Nobody else writes meanwhile.
///
/// When it is dropped, the transaction is rolled back unless it was committed, and the connection is as it was before.
struct OpenTransaction<'s> {
    store: &'s Sqlite,
    writer: Arc<LentWriter>,
    seen: Arc<Seen>,
    started: Instant,
    /// A setting that no `pragma` restores.
    foreign_keys: bool,
}

impl<'s> OpenTransaction<'s> {
    /// Begins it. While another process writes, this is tried again, for a limited time.
    async fn begin(store: &'s Sqlite) -> Result<OpenTransaction<'s>, Error> {
        store.retry_busy_owned(|writer| OpenTransaction::begin_on(store, writer)).await
    }

    fn begin_on(
        store: &'s Sqlite,
        writer: OwnedMutexGuard<Connection>,
    ) -> Result<OpenTransaction<'s>, Error> {
        let foreign_keys = writer.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY)?;
        let tx = Tx::new(&writer, store);
        let begun = run_blocking(true, || tx.execute("begin immediate", []));
        store.count(tx.statements.get());
        begun?;
        let (seen, started) = (Arc::default(), Instant::now());
        let limit = store.shared.options.transaction;
        let writer = Arc::new(LentWriter::new(writer, Arc::clone(&seen), limit));
        let open = OpenTransaction { store, writer, seen, started, foreign_keys };
        open.with_writer(|writer| set_hooks(writer, &open.seen, started, limit))?;
        Ok(open)
    }

    /// Uses the connection.
    fn with_writer<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> T {
        work(self.writer.lock().as_mut().expect("it is taken when the transaction is dropped"))
    }

    /// Runs a work that uses the connection itself.
    fn run(&self, work: SqliteWork<'_>) -> Answer {
        run_blocking(true, || catch_unwind(AssertUnwindSafe(|| self.with_writer(|writer| work(writer)))))
    }

    /// Runs an async work, for a limited time.
    async fn run_async(&mut self, work: TxWork<'_>) -> Result<Answer, Error> {
        let (lent, guard) = tx::Tx::new(CallerTx::new(Arc::clone(&self.writer)));
        let limit = self.store.shared.options.transaction;
        let run = AssertUnwindSafe(async { work.run(lent).await }).catch_unwind();
        let answer = tokio::time::timeout(limit.saturating_sub(self.started.elapsed()), run).await;
        let answer = answer.map_err(|_| Error::Fault(too_long(limit)))?;
        if Arc::get_mut(&mut self.writer).is_none() && answer.is_ok() {
            return Err(tx::leaked());
        }
        if let Ok(Some(_)) = &answer {
            guard.check()?;
        }
        Ok(answer)
    }

    /// Commits the writes with the change, or rolls them back. Resumes the panic of the work.
    fn end(self, now: Now, answer: Answer, added_lanes: &mut bool) -> Result<Option<CommitOutcome>, Error> {
        let change = match answer {
            Ok(change) => change,
            Err(panic) => {
                drop(self);
                resume_unwind(panic)
            }
        };
        let in_transaction = self.with_writer(|writer| {
            remove_hooks(writer);
            !writer.is_autocommit()
        });
        self.seen.check(change.is_some(), in_transaction, self.store.shared.options.transaction)?;
        let Some(change) = change else { return Ok(None) };
        let finished = run_blocking(true, || {
            self.with_writer(|writer| {
                let tx = Tx::new(writer, self.store);
                let finished = finish(&tx, now, &change, added_lanes);
                self.store.count(tx.statements.get());
                finished
            })
        });
        finished.map_err(at_the_end)
    }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        // A task that has kept its part of the transaction may be running a statement: that is interrupted.
        self.seen.ended.store(true, Ordering::Relaxed);
        let Some(mut writer) = self.writer.lock().take() else { return };
        remove_hooks(&mut writer);
        if !writer.is_autocommit() {
            // The earlier result is returned; a rollback can only fail if there is nothing to undo.
            let _ = writer.execute_batch("rollback");
            self.store.count(1);
        }
        if let Err(error) = restore_settings(&mut writer, self.foreign_keys) {
            // The result is valid, whatever happens to the next transaction.
            tracing::warn!(%error, "the connection could not be set as it was before a transaction");
        }
    }
}

/// Restores the settings that the work may have changed.
fn restore_settings(writer: &mut Connection, foreign_keys: bool) -> Result<(), Error> {
    writer.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, foreign_keys)?;
    conn::configure(writer)
}

/// Says when a locked file was found: the work has run, and runs once.
fn at_the_end(error: Error) -> Error {
    match error {
        Error::Unavailable(why) if why == BUSY => {
            Error::Unavailable("the file was locked by another process at the end of the transaction".into())
        }
        error => error,
    }
}

/// Applies the change, and commits if it was applied.
fn finish(
    tx: &Tx<'_>,
    now: Now,
    change: &Change,
    added_lanes: &mut bool,
) -> Result<Option<CommitOutcome>, Error> {
    let outcome = match commit::commit_in(tx, tx.now(now), change, added_lanes) {
        Err(Error::Refused(why)) => CommitOutcome::Refused(why),
        outcome => outcome?,
    };
    if matches!(outcome, CommitOutcome::Committed | CommitOutcome::Halted) {
        tx.finish()?;
        tx.execute("commit", [])?;
    }
    Ok(Some(outcome))
}

/// Watches what the work does on the connection.
fn set_hooks(
    writer: &mut Connection,
    seen: &Arc<Seen>,
    started: Instant,
    limit: Duration,
) -> Result<(), Error> {
    let progress = Arc::clone(seen);
    writer.progress_handler(
        CHECK_INTERVAL,
        Some(move || {
            let late = started.elapsed() > limit;
            progress.took_too_long.fetch_or(late, Ordering::Relaxed);
            late || progress.ended.load(Ordering::Relaxed)
        }),
    )?;
    let committing = Arc::clone(seen);
    writer.commit_hook(Some(move || {
        committing.committed.store(true, Ordering::Relaxed);
        true
    }))?;
    let rolling_back = Arc::clone(seen);
    writer.rollback_hook(Some(move || rolling_back.rolled_back.store(true, Ordering::Relaxed)))?;
    Ok(())
}

fn remove_hooks(writer: &mut Connection) {
    // Removing hooks fails only on a connection of another thread.
    let _ = writer.commit_hook(None::<fn() -> bool>);
    let _ = writer.rollback_hook(None::<fn()>);
    let _ = writer.progress_handler(0, None::<fn() -> bool>);
}

impl Seen {
    /// Fails if the work has committed, rolled back or run too long.
    fn check(&self, has_change: bool, in_transaction: bool, limit: Duration) -> Result<(), Error> {
        if self.took_too_long.load(Ordering::Relaxed) {
            return Err(Error::Fault(statement_too_long(limit)));
        }
        if self.committed.load(Ordering::Relaxed) {
            return Err(ended_by_work("committed by itself, which was undone"));
        }
        if has_change && (!in_transaction || self.rolled_back.load(Ordering::Relaxed)) {
            return Err(ended_by_work("was rolled back, by its own SQL or an error in it"));
        }
        Ok(())
    }
}

/// The error for a statement that was interrupted.
pub(super) fn statement_too_long(limit: Duration) -> String {
    format!(
        "a statement of the transaction was still running after {limit:?}, while nobody else could write, and was \
         interrupted; nothing was written; do less in one transaction, or raise the limit"
    )
}

/// The error for an async work that did not return.
fn too_long(limit: Duration) -> String {
    format!(
        "the transaction was still open after {limit:?}, while nobody else could write; nothing was written; await nothing \
         but its own statements in it, do less in one transaction, or raise the limit"
    )
}

fn ended_by_work(how: &str) -> Error {
    Error::Fault(format!(
        "the transaction {how}; nothing was written; leave commit and rollback to the store, which does them when the \
         work answers"
    ))
}
