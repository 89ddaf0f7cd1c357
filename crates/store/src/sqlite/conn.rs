//! Opening the file.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::errors::explain;
use crate::Error;

/// How many pages the log grows to before a commit copies it back into the file: 40 MB. At SQLite's default of 4 MB a
/// busy store spends a tenth of its time copying.
const CHECKPOINT_PAGES: i64 = 10_000;

/// How many statements a connection keeps prepared: more than there are.
const STATEMENTS: usize = 256;

/// File systems whose locks cannot be trusted, by their names in /proc/mounts.
const NETWORK: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs"];

pub(super) fn open_writer(path: &Path) -> Result<Connection, Error> {
    refuse_network(path)?;
    let mut conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    // A first writer may be switching to WAL at this moment, which needs the lock exclusively.
    conn.busy_timeout(std::time::Duration::from_secs(10))?;
    let mode = switch_to_wal(&conn).map_err(|e| explain(path, e))?;
    if mode != "wal" {
        return Err(Error::Config(format!(
            "{} cannot be used in WAL mode (SQLite reports {mode:?}); use a file on a local disk",
            path.display()
        )));
    }
    configure(&mut conn)?;
    Ok(conn)
}

/// Sets what every connection that writes needs.
pub(super) fn configure(conn: &mut Connection) -> Result<(), Error> {
    conn.execute_batch(&format!(
        "pragma synchronous = full;
         pragma temp_store = memory;
         pragma cache_size = -4096;
         pragma wal_autocheckpoint = {CHECKPOINT_PAGES};
         pragma query_only = off;"
    ))?;
    set_busy_handler(conn)
}

/// Has SQLite try again every 100 µs for a millisecond while another process writes: the gap between two of its
/// transactions is short. Callers make longer waits without blocking the thread.
pub(super) fn set_busy_handler(conn: &mut Connection) -> Result<(), Error> {
    conn.busy_handler(Some(|tries| {
        std::thread::sleep(std::time::Duration::from_micros(100));
        tries < 10
    }))?;
    Ok(())
}

/// Switches to WAL. Two first writers that switch at once would wait for each other, so SQLite refuses one of them
/// without waiting for its busy timeout: that one tries again.
fn switch_to_wal(conn: &Connection) -> rusqlite::Result<String> {
    let started = std::time::Instant::now();
    loop {
        match conn.query_row("pragma journal_mode = wal", [], |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && started.elapsed() < std::time::Duration::from_secs(10) =>
            {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

pub(super) fn open_reader(path: &Path) -> Result<Connection, Error> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.execute_batch("pragma query_only = on; pragma cache_size = -2048;")?;
    conn.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(conn)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|e| explain(path, e))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(conn)
}

/// Refuses a file on a network file system, if the mount table shows that it is on one.
fn refuse_network(path: &Path) -> Result<(), Error> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(folder), Ok(mounts)) = (folder.canonicalize(), std::fs::read_to_string("/proc/mounts")) else {
        return Ok(());
    };
    match file_system(&mounts, &folder) {
        Some(kind) if NETWORK.contains(&kind) => Err(Error::Config(format!(
            "{} is on a network file system ({kind}), where SQLite's locks cannot be trusted; use a local disk, or \
             PostgreSQL",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// The type of the file system that holds `folder`, according to a mount table.
fn file_system<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let mount = |line: &'a str| {
        let mut words = line.split(' ');
        Some((words.nth(1)?, words.next()?))
    };
    let holds = |(point, _): &(&str, &str)| folder.starts_with(point);
    mounts.lines().filter_map(mount).filter(holds).max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}

/// The folder for lock files of this file's workers.
pub(super) fn liveness_dir(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".workers");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_decides() {
        let mounts = "/dev/a / ext4 rw 0 0\nhost:/x /data nfs4 rw 0 0\n/dev/b /data/fast xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/data/jobs")), Some("nfs4"));
        assert_eq!(file_system(mounts, Path::new("/data/fast/jobs")), Some("xfs"));
        assert_eq!(file_system(mounts, Path::new("/database")), Some("ext4"));
    }
}
