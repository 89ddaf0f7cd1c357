//! The connections of a file: one that writes, behind a fair lock, and two that read.

use std::{
    sync::{Arc, MutexGuard, atomic::Ordering},
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::OwnedMutexGuard;

use super::{Sqlite, conn, errors::BUSY, tx::Tx};
use crate::Error;

/// A batch with more writes than this runs with its thread marked as blocking: about 100 µs of work.
pub(super) const SMALL: usize = 16;

impl Sqlite {
    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.shared.reader.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Adds to the number of statements that were sent.
    pub(super) fn count(&self, statements: u64) {
        self.shared.statements.fetch_add(statements, Ordering::Relaxed);
    }

    /// Runs short reads, at the same time as the writer.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let reader = self.reader();
        let tx = Tx::new(&reader, self);
        let result = read(&tx);
        self.count(tx.statements.get());
        result
    }

    /// Runs reads that may take long, in one snapshot: neither the writer nor other reads wait for them.
    pub(super) fn read_snapshot<T>(
        &self,
        read: impl FnOnce(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        run_blocking(true, || {
            let mut snapshot_reader = self.shared.snapshot_reader.lock().unwrap_or_else(|e| e.into_inner());
            let snapshot_reader = match &mut *snapshot_reader {
                Some(snapshot_reader) => snapshot_reader,
                none => none.insert(conn::open_reader(&self.shared.options.path)?),
            };
            let snapshot = snapshot_reader.unchecked_transaction()?;
            let tx = Tx::new(&snapshot, self);
            let result = read(&tx);
            self.count(tx.statements.get());
            result
        })
    }

    /// Runs one verb in a write transaction. `size` is how many rows it writes, roughly.
    pub(super) async fn write<T>(
        &self,
        size: usize,
        verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.with_writer(size, true, verb).await
    }

    /// Runs one verb that is a single statement, without a transaction around it.
    pub(super) async fn write_one<T>(
        &self,
        verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.with_writer(1, false, verb).await
    }

    /// [`Sqlite::write`] for what need not survive a loss of power: it reaches the disk with the next synced write.
    /// The death of a process loses nothing.
    pub(super) async fn write_unsynced<T>(
        &self,
        size: usize,
        mut verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.retry_busy(size, |writer| {
            let writer = Unsynced::new(writer)?;
            self.transaction(writer.0, true, &mut verb)
        })
        .await
    }

    async fn with_writer<T>(
        &self,
        size: usize,
        in_transaction: bool,
        mut verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.retry_busy(size, |writer| self.transaction(writer, in_transaction, &mut verb)).await
    }

    /// Does something with the write connection, and repeats it while another process writes.
    pub(super) async fn retry_busy<T>(
        &self,
        size: usize,
        mut work: impl FnMut(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.retry_busy_owned(|mut writer| run_blocking(size > SMALL, || work(&mut writer))).await
    }

    /// The same with the write connection itself, which can be kept for as long as it is needed.
    pub(super) async fn retry_busy_owned<T>(
        &self,
        mut work: impl FnMut(OwnedMutexGuard<Connection>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        loop {
            let writer = Arc::clone(&self.shared.writer).lock_owned().await;
            match work(writer) {
                Err(Error::Unavailable(why))
                    if why == BUSY && started.elapsed() < self.shared.options.patience =>
                {
                    // Short, and never in step with the writer that blocks this one.
                    tokio::time::sleep(Duration::from_micros(500 + fastrand::u64(..1_500))).await;
                }
                outcome => return outcome,
            }
        }
    }

    fn transaction<T>(
        &self,
        writer: &Connection,
        in_transaction: bool,
        verb: &mut impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let tx = Tx::new(writer, self);
        let run = |tx: &Tx<'_>, verb: &mut dyn FnMut(&Tx<'_>) -> Result<T, Error>| {
            if !in_transaction {
                return verb(tx);
            }
            tx.execute("begin immediate", [])?;
            let _rollback = RollbackOnDrop(tx);
            let result = verb(tx)?;
            tx.finish()?;
            tx.execute("commit", [])?;
            Ok(result)
        };
        let result = run(&tx, verb);
        self.count(tx.statements.get());
        let (left, made_claim) = (tx.left.take(), tx.made_claim.take());
        if result.is_ok() {
            self.shared.open_claims.add(left, made_claim);
        }
        result
    }
}

/// Rolls back what is not committed when it is dropped: a verb has failed or panicked.
struct RollbackOnDrop<'a, 'b>(&'a Tx<'b>);

impl Drop for RollbackOnDrop<'_, '_> {
    fn drop(&mut self) {
        if !self.0.conn.is_autocommit() {
            // The error of the verb is returned; a rollback can only fail if there is nothing to undo.
            let _ = self.0.execute("rollback", []);
        }
    }
}

/// The write connection while its commits return before they are on disk.
struct Unsynced<'a>(&'a Connection);

impl Unsynced<'_> {
    fn new(writer: &Connection) -> Result<Unsynced<'_>, Error> {
        let sql = "pragma synchronous = normal";
        writer.execute_batch(sql).map_err(|error| Error::Fault(format!("{sql}: {error}")))?;
        Ok(Unsynced(writer))
    }
}

impl Drop for Unsynced<'_> {
    fn drop(&mut self) {
        // It fails only within a transaction, and none is open here.
        let _ = self.0.execute_batch("pragma synchronous = full");
    }
}

/// Runs `work`; if it may take long, the async runtime moves its other tasks to another thread first.
pub(super) fn run_blocking<T>(long: bool, work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current() {
        Ok(handle) if long && handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Options, *};

    #[tokio::test]
    async fn a_verb_that_panics_leaves_no_transaction_open_and_its_connection_synced() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options::new(folder.path().join("jobs.db"));
        let store = Sqlite::open(options.clone()).expect("opened");
        let other = Sqlite::open(options).expect("opened");
        for unsynced in [false, true] {
            let panicking = store.clone();
            let broken = tokio::spawn(async move {
                let verb = |_: &Tx<'_>| -> Result<(), Error> { panic!("a bug") };
                if unsynced {
                    panicking.write_unsynced(1, verb).await
                } else {
                    panicking.write(1, verb).await
                }
            });
            assert!(broken.await.expect_err("it panics").is_panic());
            for store in [&store, &other] {
                store
                    .write(1, |tx| tx.execute("delete from windlass_delivered_signals", []))
                    .await
                    .expect("no lock is left");
            }
        }
        let synced = store.write_one(|tx| {
            Ok(tx.conn.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0))?)
        });
        assert_eq!(synced.await.expect("read"), 2, "full");
    }
}
