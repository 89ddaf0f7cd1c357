//! Checks a SQLite file: durability, permission to write, disk space.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Findings;

/// Less free space than this is a warning.
const LOW: u64 = 1 << 30;
/// Less free space than this is a failure: writes will soon fail.
const FULL: u64 = 64 << 20;

pub(super) fn examine(findings: &mut Findings, path: &Path) {
    let file = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    );
    let checked = file
        .map_err(Into::into)
        .and_then(|file| durability(findings, &file).and_then(|()| write(findings, &file)));
    findings.add_error("file", checked);
    let checked = disk_space(findings, path);
    findings.add_error("disk", checked);
}

fn durability(findings: &mut Findings, file: &Connection) -> anyhow::Result<()> {
    let mode: String = file.query_row("pragma journal_mode", [], |row| row.get(0))?;
    if mode == "wal" {
        findings
            .ok("durability", "journal in WAL mode; every connection of the engine sets synchronous=FULL");
    } else {
        findings.warn(
            "durability",
            format!("the journal is in {mode} mode; the engine switches it to WAL when it opens the file"),
        );
    }
    Ok(())
}

/// Takes the write lock and releases it.
fn write(findings: &mut Findings, file: &Connection) -> anyhow::Result<()> {
    file.busy_timeout(Duration::from_secs(3))?;
    match file.execute_batch("begin immediate; rollback") {
        Ok(()) => findings.ok("write", "this user may write"),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => findings.fail(
            "write",
            "another process has held the write lock for 3 s; is one stopped (SIGSTOP, a debugger) inside a write?",
        ),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => {
            findings.fail("write", "this user may not write to the file or its folder; change their owner or mode");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn disk_space(findings: &mut Findings, path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(folder)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let used = size(path) + size(Path::new(&wal));
    let found = format!("{} free, {} used by the store", bytes(free), bytes(used));
    match free {
        ..FULL => findings.fail("disk", format!("{found}; free some space, or writes will fail")),
        FULL..LOW => findings.warn("disk", format!("{found}; free some space soon")),
        _ => findings.ok("disk", found),
    }
    Ok(())
}

/// A size for people.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}
