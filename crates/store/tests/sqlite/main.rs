//! The conformance suite on SQLite, and tests of what is specific to a file.

mod arrivals;
mod branch_counts;
mod child_process;
mod external_payloads;
mod failures;
mod list_times;
mod migrations;
mod opening;
mod plans;
mod separate_handles;
mod source_rows;
mod statement_counts;
mod syncs;
mod transact;
mod undecodable;

use std::{path::PathBuf, sync::Arc};

use tempfile::TempDir;
use windlass_store::{
    Store,
    sqlite::{Options, Sqlite},
};

/// A new folder, in memory if possible: the suite tests logic, not the disk.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

/// A new folder, and the path of a file in it that does not exist yet.
fn path() -> (TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join("work.db");
    (folder, path)
}

async fn open() -> (TempDir, Arc<dyn Store>) {
    let (folder, path) = path();
    (folder, Arc::new(Sqlite::open(Options::new(path)).expect("open")))
}

windlass_store::conformance!(open);
windlass_store::conformance_of_transactions!(open);

#[test]
fn random_sequences_agree_with_the_reference() {
    windlass_store::conformance::random_sequences::run(256, open);
}

#[test]
fn random_sequences_with_branches_agree_with_the_reference() {
    windlass_store::conformance::random_sequences::run_with_branches(128, open);
}
