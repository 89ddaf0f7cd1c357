//! The store in a SQLite file.
//!
//! One connection writes, behind a fair lock; others read. Whoever calls a verb runs it: there is no writer
//! thread to wake, which is what makes a lone commit as fast as the disk. Batches large enough to hold up an
//! async thread are run with the thread marked as blocking. Several processes may share the file: a write
//! transaction begins `immediate`, and a locked database is waited for without blocking the thread.
//!
//! Durable: WAL with `synchronous=FULL`; claims alone are on disk only with the next other write, since a loss of power that
//! takes one takes the worker too. A network file system is refused, as its locks cannot be trusted.

mod act;
mod admin;
mod arrivals;
mod branch;
mod children;
mod claim;
mod commit;
mod conn;
mod control;
mod inspect;
mod journal;
mod lease;
mod machine;
mod migrate;
mod names;
mod options;
mod poll;
mod prune;
mod rate;
mod reap;
mod rows;
mod schedule;
mod serial;
mod signal;
mod step;
mod submit;
mod timers;
mod transact;
mod tx;
mod unique;
mod views;
mod wait;

/// The statements of `sql/*.sql`: see `build.rs`.
mod sql {
    include!(concat!(env!("OUT_DIR"), "/sqlite_sql.rs"));
}

pub use arrivals::submit_in;
pub use options::Options;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::Connection;
use windlass_model::{
    Change, ClaimNo, JobClaim, JobId, Limits, NewJob, NewSignal, SubmitOutcome, Verdict, WorkerId,
};

use self::tx::{BUSY, Tx};
use crate::{
    CancelRequest, ClaimBatch, ClaimOnSubmit, ClaimRequest, Control, Error, Fut, Inspect, JobEnd, Migration,
    NewWorker, Now, PollReport, ReapReport, ReapRequest, RenewRequest, Renewal, SignalOutcome, Store,
    TimerReport, Work, intern::Lanes,
};

/// The store in a SQLite file; cloning shares it.
#[derive(Clone)]
pub struct Sqlite {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    writer: tokio::sync::Mutex<Connection>,
    reader: Mutex<Connection>,
    /// For reads that may take long; opened when the first of them comes.
    walker: Mutex<Option<Connection>>,
    lanes: Lanes,
    /// How many jobs have left each claim by commits of this handle.
    left: Mutex<HashMap<(WorkerId, ClaimNo), usize>>,
    /// This handle's row in each gate.
    gate_writer: i64,
    statements: Arc<AtomicU64>,
}

/// For how many claims it is counted; beyond, and of others, it is looked up.
const COUNTED: usize = 10_000;

/// A batch with more writes than this is run with its thread marked as blocking: some 100 µs of work.
const SMALL: usize = 16;

impl Sqlite {
    /// Opens a file, making it and its schema if needed.
    pub fn open(options: Options) -> Result<Sqlite, Error> {
        Sqlite::open_counting(options, Arc::default())
    }

    /// The same, counting its statements together with another handle's.
    fn open_counting(options: Options, statements: Arc<AtomicU64>) -> Result<Sqlite, Error> {
        let mut writer = conn::open_writer(&options.path)?;
        migrate::prepare(&mut writer, options.migrate)?;
        let reader = conn::open_reader(&options.path)?;
        let store = Sqlite {
            shared: Arc::new(Shared {
                writer: tokio::sync::Mutex::new(writer),
                reader: Mutex::new(reader),
                walker: Mutex::default(),
                lanes: Lanes::default(),
                left: Mutex::default(),
                // There is one writer at a time, so one row will do.
                gate_writer: 0,
                statements,
                options,
            }),
        };
        store.read_lanes()?;
        Ok(store)
    }

    /// Where the schema of the file at `path` stands, which must be there. Only looks.
    pub fn schema_of(path: &Path) -> Result<crate::SchemaState, Error> {
        let conn = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        migrate::state(&conn, migrate::MIGRATIONS)
    }

    /// Takes the schema of the file at `path` to `target` (`None` is the newest), making the file if needed.
    pub fn migrate(path: &Path, target: Option<i32>) -> Result<crate::SchemaState, Error> {
        Sqlite::migrate_with(path, target, Sqlite::MIGRATIONS)
    }

    /// All statements of `sql/*.sql`: file, name and text.
    #[cfg(feature = "conformance")]
    pub const STATEMENTS: &[(&str, &str, &str)] = sql::ALL;

    /// The migrations of this build.
    pub const MIGRATIONS: &[Migration] = migrate::MIGRATIONS;

    /// [`Sqlite::migrate`] with other migrations: for tests of migrating itself.
    pub fn migrate_with(
        path: &Path,
        target: Option<i32>,
        migrations: &[Migration],
    ) -> Result<crate::SchemaState, Error> {
        let mut writer = conn::open_writer(path)?;
        migrate::to(&mut writer, target, migrations)
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.shared.reader.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn count(&self, statements: u64) {
        self.shared.statements.fetch_add(statements, Ordering::Relaxed);
    }

    /// Runs reads for people or waiters, beside the writer.
    fn read<T>(&self, read: impl FnOnce(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let reader = self.reader();
        let tx = Tx::new(&reader, self);
        let answer = read(&tx);
        self.count(tx.statements.get());
        answer
    }

    /// Runs reads that may take long, in one snapshot: neither the writer nor other reads wait for them.
    fn walk<T>(&self, read: impl FnOnce(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
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
    async fn write<T>(&self, size: usize, verb: impl FnMut(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.locked(size, true, verb).await
    }

    /// Runs one verb that is a single statement, which needs no brackets.
    async fn write_one<T>(&self, verb: impl FnMut(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.locked(1, false, verb).await
    }

    /// The same as [`Sqlite::write`] for what need not outlive a loss of power: it is on disk with the next write that
    /// must be. The death of a process loses nothing.
    async fn write_soft<T>(
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
    async fn hold<T>(
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
        if answer.is_ok() && !left.is_empty() {
            let mut counts = self.left();
            if counts.len() > COUNTED {
                counts.clear();
            }
            left.into_iter().for_each(|(claim, count)| *counts.entry(claim).or_default() += count);
        }
        answer
    }

    fn left(&self) -> MutexGuard<'_, HashMap<(WorkerId, ClaimNo), usize>> {
        self.shared.left.lock().unwrap_or_else(|e| e.into_inner())
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

impl Store for Sqlite {
    fn register_worker<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        Box::pin(self.write(1, move |tx| lease::enlist(tx, now, worker)))
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        Box::pin(submit::submit(self, now, jobs, born))
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            self.intern(ask.kinds.iter().map(|kind| (ask.queue.as_str(), kind, 0))).await?;
            if let Some(nothing) = self.read(|tx| claim::idle(tx, now, ask))? {
                return Ok(nothing);
            }
            // What a claim takes need not outlive a loss of power, which takes the worker too; what it charges must.
            if let Some(haul) = self.write_soft(ask.limit, |tx| claim::claim(tx, now, ask, false)).await? {
                return Ok(haul);
            }
            let haul = self.write(ask.limit, |tx| claim::claim(tx, now, ask, true)).await?;
            haul.ok_or_else(|| Error::Fault("a claim that waits for the disk may charge".into()))
        })
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<Verdict>> {
        Box::pin(commit::commit(self, now, changes))
    }

    fn transact<'a>(&'a self, now: Now, work: Work<'a>) -> Fut<'a, Option<Verdict>> {
        Box::pin(transact::transact(self, now, work))
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        Box::pin(signal::signal(self, now, signals))
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(async move {
            if beat.settled.is_empty() && beat.to_confirm.is_empty() {
                self.write_one(|tx| lease::renew(tx, now, beat)).await
            } else {
                self.write(beat.settled.len(), |tx| lease::renew(tx, now, beat)).await
            }
        })
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a ReapRequest) -> Fut<'a, ReapReport> {
        Box::pin(self.write(sweep.limit, move |tx| reap::reap(tx, now, sweep)))
    }

    fn release<'a>(&'a self, _now: Now, jobs: &'a [JobClaim]) -> Fut<'a, usize> {
        Box::pin(self.write(jobs.len(), move |tx| lease::release(tx, jobs)))
    }

    fn release_claims<'a>(&'a self, _now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        Box::pin(
            self.write(numbers.len(), move |tx| {
                lease::disown(tx, worker, |number| numbers.contains(&number))
            }),
        )
    }

    fn retire_worker<'a>(&'a self, _now: Now, worker: WorkerId) -> Fut<'a, usize> {
        Box::pin(self.write(SMALL + 1, move |tx| lease::retire(tx, worker)))
    }

    fn fire_timers(&self, now: Now, limit: usize) -> Fut<'_, TimerReport> {
        Box::pin(timers::due(self, now, limit))
    }

    fn cancel_requests(&self, worker: WorkerId) -> Fut<'_, Vec<CancelRequest>> {
        Box::pin(std::future::ready(self.read(|tx| lease::orders(tx, worker))))
    }

    fn repair(&self, now: Now) -> Fut<'_, usize> {
        Box::pin(serial::sweep(self, now))
    }

    fn gates<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        Box::pin(std::future::ready(timers::gate(self, queues)))
    }

    fn job_ends<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<JobEnd>>> {
        Box::pin(std::future::ready(self.read(|tx| inspect::ended(tx, ids))))
    }

    fn poll_branches(&self, now: Now, limit: usize) -> Fut<'_, PollReport> {
        Box::pin(poll::poll(self, now, limit))
    }

    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        // A connection of its own: this handle's lock may be promised to a task whose thread somebody blocks.
        let options = self.shared.options.clone().migrate(false);
        let statements = Arc::clone(&self.shared.statements);
        let other = Sqlite::open_counting(options, statements).map(|store| Arc::new(store) as Arc<dyn Store>);
        Box::pin(std::future::ready(other))
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn control(&self) -> &dyn Control {
        self
    }

    fn limits(&self) -> &Limits {
        &self.shared.options.limits
    }

    fn liveness_dir(&self) -> Option<PathBuf> {
        Some(conn::beacon_dir(&self.shared.options.path))
    }

    fn statements(&self) -> u64 {
        self.shared.statements.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
