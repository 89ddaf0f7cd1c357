//! SQLite: one connection in WAL mode with `synchronous=FULL`, and one whole run of a layout.

mod append;
mod schema;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, TransactionBehavior, params};

pub(crate) use schema::{Keys, Layout, Shape};

use crate::job::{self, CLAIM_BATCH, Claimed, Job, SUBMIT_BATCH, WORKER};
use crate::report::{self, Sample};
use schema::Key;

/// The write-ahead log is moved into the database when it is this large (4,000 pages).
const WAL_LIMIT: u64 = 4_000 * 4_120;

/// A database file, with a count of the log bytes written to it.
pub(crate) struct Database {
    connection: Connection,
    wal: std::path::PathBuf,
    written: u64,
}

impl Database {
    /// Makes a new, empty database in the place of an older one.
    fn create(path: &Path) -> Result<Self> {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            if Path::new(&name).exists() {
                std::fs::remove_file(&name)?;
            }
        }
        let connection = Connection::open(path).context("cannot open the SQLite file")?;
        connection.execute_batch(
            "pragma page_size = 4096; pragma journal_mode = wal; pragma synchronous = full;
             pragma wal_autocheckpoint = 0; pragma cache_size = -65536; pragma temp_store = memory",
        )?;
        connection.set_prepared_statement_cache_capacity(64);
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        Ok(Database { connection, wal: wal.into(), written: 0 })
    }

    /// Runs one write transaction and then moves the log into the database if it has grown enough.
    fn write<T>(&mut self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        if std::fs::metadata(&self.wal)?.len() >= WAL_LIMIT {
            self.checkpoint()?;
        }
        Ok(value)
    }

    /// Counts the log, moves it into the database and empties it.
    fn checkpoint(&mut self) -> Result<()> {
        self.written += std::fs::metadata(&self.wal)?.len();
        let busy: i64 = self.connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0))?;
        ensure!(busy == 0, "the checkpoint was blocked");
        Ok(())
    }
}

/// One run: a fresh file, submit all jobs, drain them all. Checkpoints are part of the time.
pub(crate) fn run(path: &Path, shape: Shape, n: usize, lanes: i32) -> Result<Sample> {
    let mut database = Database::create(path)?;
    let append = shape.layout == Layout::A;
    database.connection.execute_batch(&if append { append::ddl() } else { shape.ddl() })?;
    database.checkpoint()?;
    database.written = 0;
    let jobs = job::make(n, lanes, shape.ids());

    let started = Instant::now();
    if append {
        append::submit(&mut database, &jobs)?
    } else {
        submit(&mut database, shape, &jobs)?
    }
    database.checkpoint()?;
    let submit_us = started.elapsed().as_secs_f64() * 1e6 / n as f64;
    let submit_wal = std::mem::take(&mut database.written) as f64 / n as f64;

    let (started, cpu) = (Instant::now(), report::cpu(std::process::id() as i32));
    let done =
        if append { append::drain(&mut database, lanes)? } else { drain(&mut database, shape, lanes)? };
    database.checkpoint()?;
    let cpu = cpu.zip(report::cpu(std::process::id() as i32)).map(|(from, to)| (to - from) / n as f64);
    let drain_us = started.elapsed().as_secs_f64() * 1e6 / n as f64;
    ensure!(done == n, "{done} of {n} jobs were drained");
    if append {
        append::rotate_timed(&mut database)?;
    }
    Ok(Sample {
        store: "SQLite",
        layout: String::new(),
        repeat: 0,
        jobs: n,
        lanes,
        submit_us,
        drain_us,
        claim_cpu: cpu,
        commit_cpu: None,
        submit_wal,
        drain_wal: database.written as f64 / n as f64,
        drain_fpi: None,
        dead: None,
        updates: None,
        hot: None,
        bytes: std::fs::metadata(path)?.len() as f64 / n as f64,
        vacuum_us: None,
        load: report::load(),
    })
}

/// Submits the jobs in batches, one transaction each.
fn submit(database: &mut Database, shape: Shape, jobs: &[Job]) -> Result<()> {
    for batch in jobs.chunks(SUBMIT_BATCH) {
        database.write(|connection| {
            let now = job::now();
            let mut insert = connection.prepare_cached(shape.insert_job())?;
            let mut ready =
                match shape.layout {
                    Layout::W => None,
                    _ => Some(connection.prepare_cached(
                        "insert into ready (lane, epoch, rank, job) values (?1, 0, ?2, ?3)",
                    )?),
                };
            for job in batch {
                let id = Key::new(job.id, shape.ids());
                insert.execute(params![id, job.rank, now, job.lane, job.digest, job.input])?;
                if let Some(ready) = &mut ready {
                    let key = match shape.keys {
                        Keys::Pair => Key::Integer(connection.last_insert_rowid()),
                        _ => id,
                    };
                    ready.execute(params![job.lane, job.rank, key])?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Claims and commits by turns until no job is ready; returns how many were committed.
fn drain(database: &mut Database, shape: Shape, lanes: i32) -> Result<usize> {
    let (peek, take, commit) = (shape.peek(), shape.take(), shape.commit());
    let (mut total, mut number, mut finished) = (0, 0i64, None);
    loop {
        number += 1;
        let jobs = database.write(|connection| {
            let jobs = claim(connection, &peek, &take, lanes)?;
            if shape.layout == Layout::R3 && !jobs.is_empty() {
                note_claim(connection, shape, number, &jobs, finished)?;
            }
            Ok(jobs)
        })?;
        if jobs.is_empty() {
            return Ok(total);
        }
        database.write(|connection| {
            let now = job::now();
            let mut fence = match shape.layout {
                Layout::R2 => {
                    Some(connection.prepare_cached("delete from running where job = ?1 and epoch = ?2")?)
                }
                _ => None,
            };
            let mut update = connection.prepare_cached(&commit)?;
            for job in &jobs {
                let key = Key::new(job.id, shape.refers());
                if let Some(fence) = &mut fence {
                    ensure!(fence.execute(params![key, job.epoch])? == 1, "a job is not held");
                }
                let changed = update.execute(params![key, job.epoch, job.rev, job.result(), now])?;
                ensure!(changed == 1, "a job was not committed");
            }
            Ok(())
        })?;
        finished = Some(number);
        total += jobs.len();
    }
}

/// Reads and takes up to a batch of jobs, lane after lane.
fn claim(connection: &Connection, peek: &str, take: &[String], lanes: i32) -> Result<Vec<Claimed>> {
    let mut jobs: Vec<Claimed> = Vec::with_capacity(CLAIM_BATCH);
    for lane in 1..=lanes {
        let (had, limit) = (jobs.len(), CLAIM_BATCH - jobs.len());
        if limit == 0 {
            break;
        }
        let mut statement = connection.prepare_cached(peek)?;
        let mut rows = statement.query(params![lane, limit as i64])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let key: Key = row.get(0)?;
            last = Some(key);
            jobs.push(Claimed {
                id: key.id(),
                lane,
                rank: row.get(1)?,
                epoch: row.get(2)?,
                rev: row.get(3)?,
                attempts: row.get(4)?,
                input: row.get(5)?,
            });
        }
        let (Some(key), Some(job)) = (last, jobs.last()) else { continue };
        for sql in take {
            let mut statement = connection.prepare_cached(sql)?;
            let changed = match statement.parameter_count() {
                3 => statement.execute(params![lane, job.rank, key])?,
                _ => statement.execute(params![lane, job.rank, key, WORKER])?,
            };
            ensure!(changed == jobs.len() - had, "a claim took other jobs than it read");
        }
    }
    Ok(jobs)
}

/// Writes the claim's row (ids and epochs in one blob) and drops the row of the claim that was finished last.
fn note_claim(
    connection: &Connection,
    shape: Shape,
    number: i64,
    jobs: &[Claimed],
    finished: Option<i64>,
) -> Result<()> {
    let mut blob = Vec::with_capacity(jobs.len() * 20);
    for job in jobs {
        match Key::new(job.id, shape.refers()) {
            Key::Blob(bytes) => blob.extend_from_slice(&bytes),
            Key::Integer(number) => blob.extend_from_slice(&number.to_be_bytes()),
        }
        blob.extend_from_slice(&job.epoch.to_be_bytes());
    }
    connection
        .prepare_cached("insert into claims (worker, number, jobs) values (?1, ?2, ?3)")?
        .execute(params![WORKER, number, blob])?;
    if let Some(finished) = finished {
        connection
            .prepare_cached("delete from claims where worker = ?1 and number = ?2")?
            .execute(params![WORKER, finished])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_drains_all_jobs() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let layouts = [Layout::W, Layout::R1, Layout::R2, Layout::R3, Layout::A];
        let keys = [Keys::Integer, Keys::Indexed, Keys::Pair];
        let shapes = layouts.map(|layout| Shape { layout, keys: Keys::Blob });
        let variants = keys.map(|keys| Shape { layout: Layout::R3, keys });
        for shape in shapes.into_iter().chain(variants) {
            let sample = run(&folder.path().join("jobs.db"), shape, 2_600, 3)?;
            assert!(sample.submit_wal > 0.0 && sample.drain_wal > 0.0, "{shape:?}");
        }
        Ok(())
    }
}
