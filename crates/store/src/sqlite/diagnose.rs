//! A diagnosis of the file, and of the work in it.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, params};
use windlass_model::{BranchCounts, Time};

use super::{Sqlite, counts, pool::run_blocking, sql, tx::read_id, views::row_limit};
use crate::{
    BranchHealth, Database, Diagnose, Error, Fut, Miscount, OldestReady, SqliteHealth, WriteAccess,
    diagnose::merge,
};

/// How long to wait for the write lock: a worker holds it for milliseconds, a stopped process for ever.
const LOCK_WAIT: Duration = Duration::from_secs(3);

impl Sqlite {
    /// Reads the settings and health of the file at `path`, which must exist, over a connection of its own: it takes and releases the
    /// write lock, and writes nothing.
    pub fn database_of(path: &Path) -> Result<Database, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut conn = Connection::open_with_flags(path, flags)?;
        let journal_mode = conn.query_row(sql::diagnose::JOURNAL_MODE, [], |row| row.get(0))?;
        let write = run_blocking(true, || write_access(&mut conn))?;
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let used_bytes = size(path) + size(Path::new(&log));
        Ok(Database::Sqlite(SqliteHealth { journal_mode, write, used_bytes, free_bytes: free_bytes(path) }))
    }

    fn branch_health(&self, sql: &str, limit: usize) -> Result<Vec<BranchHealth>, Error> {
        self.read_snapshot(|tx| {
            tx.query_all(sql, [row_limit(limit)], |row| {
                let (done, failed, cancelled) = (row.get(4)?, row.get(5)?, row.get(6)?);
                Ok(BranchHealth {
                    job: read_id(row, 0)?,
                    name: row.get(1)?,
                    merge: merge(row.get::<_, Option<String>>(2)?.as_deref()),
                    spawned: row.get(3)?,
                    counts: BranchCounts { started: 0, done, failed, cancelled },
                    poll_at: row.get::<_, Option<i64>>(7)?.map(Time),
                })
            })
        })
    }
}

fn write_access(conn: &mut Connection) -> Result<WriteAccess, Error> {
    conn.busy_timeout(LOCK_WAIT)?;
    match conn.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|lock| lock.rollback()) {
        Ok(()) => Ok(WriteAccess::Allowed),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) => Ok(WriteAccess::Locked),
            Some(ErrorCode::ReadOnly) => Ok(WriteAccess::Denied),
            _ => Err(error.into()),
        },
    }
}

/// The space that this user may still take on the disk of a file.
fn free_bytes(path: &Path) -> Option<u64> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

impl Diagnose for Sqlite {
    fn database(&self) -> Fut<'_, Database> {
        Box::pin(std::future::ready(Sqlite::database_of(&self.shared.options.path)))
    }

    fn oldest_ready(&self) -> Fut<'_, Vec<OldestReady>> {
        Box::pin(std::future::ready(self.read(|tx| {
            tx.query_all(sql::diagnose::OLDEST_READY, [], |row| {
                let (queue, kind, version) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(OldestReady { queue, kind, version, due_at: Time(row.get(3)?) })
            })
        })))
    }

    fn suspects(&self, cap: u64) -> Fut<'_, u64> {
        let cap = i64::try_from(cap).unwrap_or(i64::MAX);
        let count = self.read_snapshot(|tx| {
            tx.query_one(sql::diagnose::SUSPECTS, params![cap], |row| row.get::<_, i64>(0))
        });
        Box::pin(std::future::ready(count.map(|count| count.unwrap_or(0).unsigned_abs())))
    }

    fn unhandled_failures(&self, cap: u64) -> Fut<'_, u64> {
        let cap = i64::try_from(cap).unwrap_or(i64::MAX);
        let count = self.read_snapshot(|tx| {
            tx.query_one(sql::diagnose::UNHANDLED_FAILURES, params![cap], |row| row.get::<_, i64>(0))
        });
        Box::pin(std::future::ready(count.map(|count| count.unwrap_or(0).unsigned_abs())))
    }

    fn awaited_branches(&self, limit: usize) -> Fut<'_, Vec<BranchHealth>> {
        Box::pin(std::future::ready(self.branch_health(sql::diagnose::AWAITED_BRANCHES, limit)))
    }

    fn orphaned_branches(&self, limit: usize) -> Fut<'_, Vec<BranchHealth>> {
        Box::pin(std::future::ready(self.branch_health(sql::diagnose::ORPHANED_BRANCHES, limit)))
    }

    fn miscounts(&self) -> Fut<'_, Vec<Miscount>> {
        Box::pin(std::future::ready(self.read_snapshot(counts::find_miscounts)))
    }
}
