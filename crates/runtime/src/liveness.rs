//! Lock files by which workers on one machine notice at once that another died.
//!
//! A worker holds a lock on a file named after it for as long as its process lives. The operating system releases the
//! lock when the process ends, however it ends. So a process that can take the lock knows that the worker is dead, and
//! need not wait for its lease. A file is locked before it gets its name, so a named file without a lock is never new.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use windlass_model::WorkerId;

/// This worker's lock file. Dropping it removes the file and releases the lock.
pub(crate) struct LivenessFile {
    path: PathBuf,
    _locked: File,
}

impl LivenessFile {
    /// Creates and locks the file of `worker` in `dir`.
    pub(crate) fn create(dir: &Path, worker: WorkerId) -> io::Result<LivenessFile> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(format!("{worker}.lock"));
        let unnamed = dir.join(format!("{worker}.new"));
        let file = File::create(&unnamed)?;
        file.try_lock().map_err(io::Error::from)?;
        std::fs::rename(&unnamed, &path)?;
        Ok(LivenessFile { path, _locked: file })
    }

    /// Releases the lock and leaves the file, as the death of the process would.
    pub(crate) fn unlock(mut self) {
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

/// The workers whose files in `dir` are not locked: their processes are dead.
pub(crate) fn dead_workers(dir: &Path) -> Vec<WorkerId> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let dead_worker = |entry: io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let id = path.file_name()?.to_str()?.strip_prefix('w')?.strip_suffix(".lock")?;
        let id = WorkerId(i64::from_str_radix(id, 16).ok()?);
        let file = File::open(&path).ok()?;
        match file.try_lock() {
            Ok(()) => Some(id),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
        }
    };
    entries.filter_map(dead_worker).collect()
}

/// Removes the file of a worker that was reaped.
pub(crate) fn remove(dir: &Path, worker: WorkerId) {
    let _ = std::fs::remove_file(dir.join(format!("{worker}.lock")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_counts_as_dead_once_its_lock_is_released() {
        let dir = std::env::temp_dir().join(format!("windlass-liveness-{}", std::process::id()));
        let worker = WorkerId(77);
        let file = LivenessFile::create(&dir, worker).expect("created");
        assert_eq!(dead_workers(&dir), []);
        file.unlock();
        assert_eq!(dead_workers(&dir), [worker]);
        remove(&dir, worker);
        assert_eq!(dead_workers(&dir), []);
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
