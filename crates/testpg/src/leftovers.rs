//! Shared memory that a killed server leaves behind.
//!
//! A server that ends in any orderly way frees its shared memory, and one that is restarted after a kill
//! frees what its forerunner left. Only a server that is killed and never restarted leaves some for good:
//! a small System V segment and files under /dev/shm. They are noted at the kill and removed when the
//! cluster is dropped; as this is mere housekeeping, failures are passed over.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a killed server would leave behind.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// The number of the System V segment.
    segment: Option<u64>,
    /// Files of POSIX shared memory.
    files: BTreeSet<PathBuf>,
}

impl Leftovers {
    /// Notes what the living processes of a server hold.
    pub(crate) fn of(data: &Path, pids: &[u32]) -> Self {
        let lock = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let mut files = BTreeSet::new();
        for pid in pids {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            files.extend(shared_files(&maps));
        }
        Self { segment: segment(&lock), files }
    }

    /// Removes it all.
    pub(crate) fn remove(self) {
        for file in self.files {
            let _ = fs::remove_file(file);
        }
        if let Some(segment) = self.segment {
            let mut command = Command::new("ipcrm");
            command.args(["-m", &segment.to_string()]);
            let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

/// The number of the System V segment, from the seventh line of the postmaster's lock file.
fn segment(lock: &str) -> Option<u64> {
    lock.lines().nth(6)?.split_whitespace().nth(1)?.parse().ok()
}

/// PostgreSQL's shared memory files in a process's memory map.
fn shared_files(maps: &str) -> impl Iterator<Item = PathBuf> {
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.filter(|path| path.starts_with("/dev/shm/PostgreSQL.")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_is_read_from_the_lock_file() {
        let lock = "77\n/tmp/x/data\n1700000000\n5432\n\n127.0.0.1\n  1234567     65538\nready   \n";
        assert_eq!(segment(lock), Some(65538));
        assert_eq!(segment("77\n/tmp/x/data\n"), None);
    }

    #[test]
    fn only_files_of_postgresql_are_taken_from_a_memory_map() {
        let maps = "7f00-7f01 rw-s 00000000 00:17 3    /dev/shm/PostgreSQL.42\n\
                    7f02-7f03 rw-s 00000000 00:17 4    /dev/shm/other\n\
                    7f04-7f05 rw-p 00000000 00:00 0\n";
        assert_eq!(shared_files(maps).collect::<Vec<_>>(), [PathBuf::from("/dev/shm/PostgreSQL.42")]);
    }
}
