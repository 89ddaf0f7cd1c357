//! The suite on SQLite files, and what only a file can suffer.

mod arrive;

mod child;
mod cost;
mod file;
mod growth;
mod migrations;
mod payload;
mod rows;
mod separate;
mod syncs;
mod transact;
mod trouble;

use std::{path::PathBuf, sync::Arc};

use tempfile::TempDir;
use windlass_store::{
    Store,
    sqlite::{Options, Sqlite},
};

/// A folder in memory where there is one: the suite is about logic, not about the disk.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

/// A fresh folder, and the path of a file in it that is not there yet.
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

#[test]
fn random_sequences_agree_with_the_reference() {
    windlass_store::conformance::agree::random(256, open);
}

#[test]
fn random_sequences_with_branches_agree_with_the_reference() {
    windlass_store::conformance::agree::random_branches(128, open);
}
