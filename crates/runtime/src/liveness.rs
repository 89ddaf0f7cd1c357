//! Lock files by which workers on one machine see at once that another died.
//!
//! A worker holds a lock on a file named after it for as long as its process lives; the system lets go of the lock
//! when the process ends, however it ends. Whoever can take the lock knows that the worker is dead, and need not
//! wait for its lease. A file is locked before it gets its name, so a named file without a lock is never young.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use windlass_model::WorkerId;

/// This worker's lock, held until it is dropped.
pub(crate) struct LivenessFile {
    path: PathBuf,
    _locked: File,
}

impl LivenessFile {
    /// Lights the beacon of `worker` in `dir`.
    pub(crate) fn create(dir: &Path, worker: WorkerId) -> io::Result<LivenessFile> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(format!("{worker}.lock"));
        let unnamed = dir.join(format!("{worker}.new"));
        let file = File::create(&unnamed)?;
        file.try_lock().map_err(io::Error::from)?;
        std::fs::rename(&unnamed, &path)?;
        Ok(LivenessFile { path, _locked: file })
    }

    /// Lets the beacon go out, as the death of the process would: the lock is let go, the file stays.
    pub(crate) fn abandon(mut self) {
        self.path = PathBuf::new();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LivenessFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Workers whose beacons in `dir` have gone out: their processes are dead.
pub(crate) fn is_released(dir: &Path) -> Vec<WorkerId> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let dead = |entry: io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let id = path.file_name()?.to_str()?.strip_prefix('w')?.strip_suffix(".lock")?;
        let id = WorkerId(i64::from_str_radix(id, 16).ok()?);
        let file = File::open(&path).ok()?;
        match file.try_lock() {
            Ok(()) => Some(id),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
        }
    };
    entries.filter_map(dead).collect()
}

/// Removes the file of a worker that was reaped.
pub(crate) fn remove(dir: &Path, worker: WorkerId) {
    let _ = std::fs::remove_file(dir.join(format!("{worker}.lock")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beacon_goes_out_with_its_holder_and_not_before() {
        let dir = std::env::temp_dir().join(format!("windlass-beacon-{}", std::process::id()));
        let worker = WorkerId(77);
        let beacon = LivenessFile::create(&dir, worker).expect("lit");
        assert_eq!(is_released(&dir), []);
        beacon.abandon();
        assert_eq!(is_released(&dir), [worker]);
        remove(&dir, worker);
        assert_eq!(is_released(&dir), []);
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
