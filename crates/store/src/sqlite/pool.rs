//! The connections of a file: one that writes, behind a fair lock, and others that read.

use std::{
    sync::{MutexGuard, atomic::Ordering},
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{Sqlite, conn, errors::BUSY, tx::Tx};
use crate::Error;

/// A batch with more writes than this is run with its thread marked as blocking: some 100 µs of work.
pub(super) const SMALL: usize = 16;

impl Sqlite {
    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.shared.reader.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn count(&self, statements: u64) {
        self.shared.statements.fetch_add(statements, Ordering::Relaxed);
    }

    /// Runs reads for people or waiters, beside the writer.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let reader = self.reader();
        let tx = Tx::new(&reader, self);
        let answer = read(&tx);
        self.count(tx.statements.get());
        answer
    }

    /// Runs reads that may take long, in one snapshot: neither the writer nor other reads wait for them.
    pub(super) fn walk<T>(&self, read: impl FnOnce(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
        blocking(true, || {
            let mut walker = self.shared.walker.lock().unwrap_or_else(|e| e.into_inner());
            let walker = match &mut *walker {
                Some(walker) => walker,
                none => none.insert(conn::open_reader(&self.shared.options.path)?),
            };
            let snapshot = walker.unchecked_transaction()?;
            let tx = Tx::new(&snapshot, self);
            let answer = read(&tx);
            self.count(tx.statements.get());
            answer
        })
    }

    /// Runs one verb in a write transaction of its own. `size` is how many rows it is about to write.
    pub(super) async fn write<T>(
        &self,
        size: usize,
        verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.locked(size, true, verb).await
    }

    /// Runs one verb that is a single statement, which needs no brackets.
    pub(super) async fn write_one<T>(
        &self,
        verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.locked(1, false, verb).await
    }

    /// The same as [`Sqlite::write`] for what need not outlive a loss of power: it is on disk with the next write that
    /// must be. The death of a process loses nothing.
    pub(super) async fn write_soft<T>(
        &self,
        size: usize,
        mut verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.hold(size, |writer| {
            let writer = Unsynced::new(writer)?;
            self.transaction(writer.0, true, &mut verb)
        })
        .await
    }

    async fn locked<T>(
        &self,
        size: usize,
        brackets: bool,
        mut verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.hold(size, |writer| self.transaction(writer, brackets, &mut verb)).await
    }

    /// Does something with the write connection; waits while another process writes.
    pub(super) async fn hold<T>(
        &self,
        size: usize,
        mut work: impl FnMut(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        loop {
            let outcome = {
                let mut writer = self.shared.writer.lock().await;
                blocking(size > SMALL, || work(&mut writer))
            };
            match outcome {
                Err(Error::Unavailable(why))
                    if why == BUSY && started.elapsed() < self.shared.options.patience =>
                {
                    // Short, and never in step with the writer that is in the way.
                    tokio::time::sleep(Duration::from_micros(500 + fastrand::u64(..1_500))).await;
                }
                outcome => return outcome,
            }
        }
    }

    fn transaction<T>(
        &self,
        writer: &Connection,
        brackets: bool,
        verb: &mut impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let tx = Tx::new(writer, self);
        let run = |tx: &Tx<'_>, verb: &mut dyn FnMut(&Tx<'_>) -> Result<T, Error>| {
            if !brackets {
                return verb(tx);
            }
            tx.run("begin immediate", [])?;
            let _undone = Undone(tx);
            let answer = verb(tx)?;
            tx.finish()?;
            tx.run("commit", [])?;
            Ok(answer)
        };
        let answer = run(&tx, verb);
        self.count(tx.statements.get());
        let left = tx.left.take();
        if answer.is_ok() {
            self.shared.open_claims.left(left);
        }
        answer
    }
}

/// Undoes what is not committed when it is dropped: a verb has failed, or has panicked.
struct Undone<'a, 'b>(&'a Tx<'b>);

impl Drop for Undone<'_, '_> {
    fn drop(&mut self) {
        if !self.0.conn.is_autocommit() {
            // What made the verb fail is the answer; a rollback can only fail if there is nothing to undo.
            let _ = self.0.run("rollback", []);
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
        // It fails only within a transaction, and none is open any more.
        let _ = self.0.execute_batch("pragma synchronous = full");
    }
}

/// Runs `work`, telling the async runtime to move its other tasks away first if it may take long.
fn blocking<T>(long: bool, work: impl FnOnce() -> T) -> T {
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
        for soft in [false, true] {
            let mine = store.clone();
            let broken = tokio::spawn(async move {
                let verb = |_: &Tx<'_>| -> Result<(), Error> { panic!("a bug") };
                if soft { mine.write_soft(1, verb).await } else { mine.write(1, verb).await }
            });
            assert!(broken.await.expect_err("it panics").is_panic());
            for store in [&store, &other] {
                store
                    .write(1, |tx| tx.run("delete from windlass_delivered_signals", []))
                    .await
                    .expect("nobody is in its way");
            }
        }
        let synced = store.write_one(|tx| {
            Ok(tx.conn.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0))?)
        });
        assert_eq!(synced.await.expect("read"), 2, "full");
    }
}
