//! The store in a SQLite file.
//!
//! One connection writes, behind a fair lock; others read. Whoever calls a verb runs it: there is no writer
//! thread to wake, which is what makes a lone commit as fast as the disk. Batches large enough to hold up an
//! async thread are run with the thread marked as blocking. Several processes may share the file: a write
//! transaction begins `immediate`, and a locked database is waited for without blocking the thread.
//!
//! Durable: WAL with `synchronous=FULL`. A network file system is refused, as its locks cannot be trusted.

mod claim;
mod commit;
mod control;
mod file;
mod inspect;
mod lease;
mod migrate;
mod reap;
mod submit;
mod timers;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use rusqlite::{CachedStatement, Connection, ErrorCode};
use windlass_model::{
    Change, ClaimNo, Epoch, JobId, KindVersion, Limits, NewJob, Submitted, Time, Verdict, WorkerId,
};

use crate::{
    Ask, Beat, Born, Due, Ended, Error, Fut, Haul, Inspect, NewWorker, Now, Reaped, Renewal, Store, Sweep,
    intern::{Lane, Lanes},
};

/// How to open a file.
#[derive(Clone, Debug)]
pub struct Options {
    path: PathBuf,
    migrate: bool,
    limits: Limits,
    patience: Duration,
}

impl Options {
    /// The file at `path`, made if missing.
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options {
            path: path.into(),
            migrate: true,
            limits: Limits::default(),
            // Longer than any batch takes, shorter than a lease.
            patience: Duration::from_secs(5),
        }
    }

    /// Whether to bring the schema up to date.
    pub fn migrate(mut self, migrate: bool) -> Options {
        self.migrate = migrate;
        self
    }

    /// What may be submitted.
    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    /// How long to wait for another process's write before answering [`Error::Unavailable`].
    pub fn patience(mut self, patience: Duration) -> Options {
        self.patience = patience;
        self
    }
}

/// The store in a SQLite file; cloning shares it.
#[derive(Clone)]
pub struct Sqlite {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    writer: tokio::sync::Mutex<Connection>,
    reader: Mutex<Connection>,
    lanes: Lanes,
    /// This handle's row in each gate.
    gate_writer: i64,
    statements: Arc<AtomicU64>,
}

/// A batch with more writes than this is run with its thread marked as blocking: some 100 µs of work.
const SMALL: usize = 16;

/// What is waited for within a verb; whatever else makes the store unavailable is for the caller to wait out.
const BUSY: &str = "another process is writing to the file";

impl Sqlite {
    /// Opens a file, making it and its schema if needed.
    pub fn open(options: Options) -> Result<Sqlite, Error> {
        Sqlite::open_counting(options, Arc::default())
    }

    /// The same, counting its statements together with another handle's.
    fn open_counting(options: Options, statements: Arc<AtomicU64>) -> Result<Sqlite, Error> {
        let mut writer = file::open_writer(&options.path)?;
        migrate::prepare(&mut writer, options.migrate)?;
        let reader = file::open_reader(&options.path)?;
        let store = Sqlite {
            shared: Arc::new(Shared {
                writer: tokio::sync::Mutex::new(writer),
                reader: Mutex::new(reader),
                lanes: Lanes::default(),
                // There is one writer at a time, so one row will do.
                gate_writer: 0,
                statements,
                options,
            }),
        };
        store.read_lanes()?;
        Ok(store)
    }

    /// Takes the schema of the file at `path` to `target` (`None` is the newest), making the file if needed.
    pub fn migrate(path: &Path, target: Option<i32>) -> Result<crate::SchemaState, Error> {
        let mut writer = file::open_writer(path)?;
        migrate::to(&mut writer, target)
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

    /// Runs one verb in a write transaction of its own. `size` is how many rows it is about to write.
    async fn write<T>(&self, size: usize, verb: impl FnMut(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.locked(size, true, verb).await
    }

    /// Runs one verb that is a single statement, which needs no brackets.
    async fn write_one<T>(&self, verb: impl FnMut(&Tx<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.locked(1, false, verb).await
    }

    async fn locked<T>(
        &self,
        size: usize,
        brackets: bool,
        mut verb: impl FnMut(&Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        loop {
            let outcome = {
                let writer = self.shared.writer.lock().await;
                blocking(size > SMALL, || self.transaction(&writer, brackets, &mut verb))
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
            let answer = verb(tx).and_then(|answer| {
                tx.bump_gates()?;
                tx.run("commit", [])?;
                Ok(answer)
            });
            if answer.is_err() && !writer.is_autocommit() {
                // What made the verb fail is the answer; a rollback can only fail if there is nothing to undo.
                let _ = tx.run("rollback", []);
            }
            answer
        };
        let answer = run(&tx, verb);
        self.count(tx.statements.get());
        answer
    }

    /// Numbers for the lanes of some jobs; new names are committed before they are cached.
    async fn intern<'a>(&self, names: impl Iterator<Item = (&'a str, &'a KindVersion)>) -> Result<(), Error> {
        let unknown: BTreeSet<_> = names.filter(|(q, k)| self.shared.lanes.get(q, k).is_none()).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        self.write(1, |tx| {
            for (queue, kind) in &unknown {
                tx.run(include_str!("sql/intern_queue.sql"), [queue])?;
                tx.run(include_str!("sql/intern_kind.sql"), [&kind.kind])?;
                tx.run(
                    include_str!("sql/intern_lane.sql"),
                    rusqlite::params![queue, kind.kind, kind.version],
                )?;
            }
            Ok(())
        })
        .await?;
        self.read_lanes()
    }

    fn read_lanes(&self) -> Result<(), Error> {
        self.read(|tx| {
            let mut statement = tx.prepare(include_str!("sql/intern_read.sql"))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let kind = KindVersion { kind: row.get(4)?, version: row.get(5)? };
                let (id, queue_id, kind_id) = (row.get(0)?, row.get(1)?, row.get(2)?);
                self.shared.lanes.add(Lane { id, queue_id, kind_id, bucket: 0, queue: row.get(3)?, kind });
            }
            let mut statement = tx.prepare(include_str!("sql/intern_queues.sql"))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                self.shared.lanes.add_queue(&row.get::<_, String>(1)?, row.get(0)?);
            }
            Ok(())
        })
    }

    /// What a lane's number stands for, though another process may have made it.
    fn lane(&self, tx: &Tx<'_>, id: i32) -> Result<Lane, Error> {
        if let Some(lane) = self.shared.lanes.by_id(id) {
            return Ok(lane);
        }
        let mut statement = tx.prepare(include_str!("sql/intern_read.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if row.get::<_, i32>(0)? == id {
                let kind = KindVersion { kind: row.get(4)?, version: row.get(5)? };
                return Ok(Lane {
                    id,
                    queue_id: row.get(1)?,
                    kind_id: row.get(2)?,
                    bucket: 0,
                    queue: row.get(3)?,
                    kind,
                });
            }
        }
        Err(Error::Fault(format!("a job is in lane {id}, which is not in the lanes table")))
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

/// One transaction's view of a connection: counts statements and collects the gates to move.
struct Tx<'a> {
    conn: &'a Connection,
    store: &'a Sqlite,
    statements: std::cell::Cell<u64>,
    gates: std::cell::RefCell<BTreeMap<i32, ()>>,
}

impl<'a> Tx<'a> {
    fn new(conn: &'a Connection, store: &'a Sqlite) -> Tx<'a> {
        Tx { conn, store, statements: Default::default(), gates: Default::default() }
    }

    fn now(&self, now: Now) -> Time {
        // All processes that share the file are on one machine, so its clock is the store's clock.
        now.unwrap_or_else(|| Time::from_system(SystemTime::now()))
    }

    /// A prepared statement, counted as run once.
    fn prepare(&self, sql: &str) -> Result<CachedStatement<'a>, Error> {
        self.statements.set(self.statements.get() + 1);
        Ok(self.conn.prepare_cached(sql)?)
    }

    /// Runs a statement that returns nothing; answers how many rows it changed.
    fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, Error> {
        Ok(self.prepare(sql)?.execute(params)?)
    }

    /// Runs a statement that returns at most one row.
    fn one<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        let answer = rows.next()?.map(read).transpose()?;
        // Statements that write and return rows do their work as they are stepped: walk to the end.
        while rows.next()?.is_some() {}
        Ok(answer)
    }

    /// Puts a job into the ready set and notes that its queue's gate moves.
    fn make_ready(&self, lane: &Lane, suspect: bool, rank: i64, job: JobId) -> Result<(), Error> {
        let number = if suspect { -lane.id } else { lane.id };
        self.run(include_str!("sql/submit_ready.sql"), rusqlite::params![number, rank, job.as_bytes()])?;
        self.gates.borrow_mut().insert(lane.queue_id, ());
        Ok(())
    }

    /// Sets a timer and notes that the timers' gate moves.
    fn set_timer(&self, at: Time, job: JobId, what: i16) -> Result<(), Error> {
        self.run(include_str!("sql/submit_timer.sql"), rusqlite::params![at.micros(), job.as_bytes(), what])?;
        self.gates.borrow_mut().insert(0, ());
        Ok(())
    }

    fn bump_gates(&self) -> Result<(), Error> {
        for queue in self.gates.take().into_keys() {
            let params = rusqlite::params![queue, self.store.shared.gate_writer, fastrand::i64(1..1 << 40)];
            self.run(include_str!("sql/gate_bump.sql"), params)?;
        }
        Ok(())
    }
}

/// Reads a job id from a column.
fn job_id(bytes: &[u8]) -> Result<JobId, Error> {
    let bytes = bytes.try_into().map_err(|_| Error::Fault(format!("a job id of {} bytes", bytes.len())))?;
    Ok(JobId::from_bytes(bytes))
}

/// A claim's jobs as they are kept: 20 bytes each.
fn pack(pairs: &[(JobId, Epoch)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pairs.len() * 20);
    for (id, epoch) in pairs {
        bytes.extend_from_slice(id.as_bytes());
        bytes.extend_from_slice(&epoch.0.to_be_bytes());
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Result<Vec<(JobId, Epoch)>, Error> {
    if !bytes.len().is_multiple_of(20) {
        return Err(Error::Fault(format!("a claim of {} bytes", bytes.len())));
    }
    let pair = |chunk: &[u8]| {
        let epoch = i32::from_be_bytes(chunk[16..].try_into().expect("chunks are 20 bytes"));
        Ok((job_id(&chunk[..16])?, Epoch(epoch)))
    };
    bytes.chunks_exact(20).map(pair).collect()
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Unavailable(BUSY.into()),
            Some(ErrorCode::DiskFull) => Error::Unavailable("the disk is full; free some space".into()),
            Some(ErrorCode::ReadOnly) => Error::Unavailable(
                "the file or its folder is read-only; allow this user to write there".into(),
            ),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory) => {
                Error::Unavailable(error.to_string())
            }
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
                Error::Refused(error.to_string())
            }
            _ => Error::Fault(error.to_string()),
        }
    }
}

impl Store for Sqlite {
    fn enlist<'a>(&'a self, now: Now, worker: &'a NewWorker) -> Fut<'a, bool> {
        Box::pin(self.write(1, move |tx| lease::enlist(tx, now, worker)))
    }

    fn submit<'a>(&'a self, now: Now, jobs: &'a [NewJob], born: Option<Born>) -> Fut<'a, Vec<Submitted>> {
        Box::pin(async move {
            jobs.iter().try_for_each(|job| self.shared.options.limits.check(job))?;
            self.intern(jobs.iter().map(|job| (job.queue.as_str(), &job.kind))).await?;
            self.write(jobs.len(), |tx| submit::submit(tx, now, jobs, born)).await
        })
    }

    fn claim<'a>(&'a self, now: Now, ask: &'a Ask) -> Fut<'a, Haul> {
        Box::pin(async move {
            self.intern(ask.kinds.iter().map(|kind| (ask.queue.as_str(), kind))).await?;
            if self.read(|tx| claim::is_empty(tx, now, ask))? {
                return Ok(Haul { now: self.read(|tx| Ok(tx.now(now)))?, ..Haul::default() });
            }
            self.write(ask.limit, |tx| claim::claim(tx, now, ask)).await
        })
    }

    fn commit<'a>(&'a self, now: Now, changes: &'a [Change]) -> Fut<'a, Vec<Verdict>> {
        Box::pin(commit::commit(self, now, changes))
    }

    fn renew<'a>(&'a self, now: Now, beat: &'a Beat) -> Fut<'a, Renewal> {
        Box::pin(async move {
            if beat.settled.is_empty() && beat.joined.is_empty() {
                self.write_one(|tx| lease::renew(tx, now, beat)).await
            } else {
                self.write(beat.settled.len(), |tx| lease::renew(tx, now, beat)).await
            }
        })
    }

    fn reap<'a>(&'a self, now: Now, sweep: &'a Sweep) -> Fut<'a, Reaped> {
        Box::pin(self.write(sweep.limit, move |tx| reap::reap(tx, now, sweep)))
    }

    fn release<'a>(&'a self, _now: Now, jobs: &'a [(JobId, Epoch)]) -> Fut<'a, usize> {
        Box::pin(self.write(jobs.len(), move |tx| lease::release(tx, jobs)))
    }

    fn disown<'a>(&'a self, _now: Now, worker: WorkerId, numbers: &'a [ClaimNo]) -> Fut<'a, usize> {
        Box::pin(
            self.write(numbers.len(), move |tx| {
                lease::disown(tx, worker, |number| numbers.contains(&number))
            }),
        )
    }

    fn retire<'a>(&'a self, _now: Now, worker: WorkerId) -> Fut<'a, usize> {
        Box::pin(self.write(SMALL + 1, move |tx| lease::retire(tx, worker)))
    }

    fn due(&self, now: Now, limit: usize) -> Fut<'_, Due> {
        Box::pin(timers::due(self, now, limit))
    }

    fn gate<'a>(&'a self, queues: &'a [String]) -> Fut<'a, Vec<u64>> {
        Box::pin(std::future::ready(timers::gate(self, queues)))
    }

    fn ended<'a>(&'a self, ids: &'a [JobId]) -> Fut<'a, Vec<Option<Ended>>> {
        Box::pin(std::future::ready(self.read(|tx| inspect::ended(tx, ids))))
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

    fn orders(&self, _worker: WorkerId) -> Fut<'_, Vec<crate::Order>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn sweep(&self, _now: Now) -> Fut<'_, usize> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn control(&self) -> &dyn crate::Control {
        self
    }

    fn limits(&self) -> &Limits {
        &self.shared.options.limits
    }

    fn beacon_dir(&self) -> Option<PathBuf> {
        Some(file::beacon_dir(&self.shared.options.path))
    }

    fn statements(&self) -> u64 {
        self.shared.statements.load(Ordering::Relaxed)
    }
}
