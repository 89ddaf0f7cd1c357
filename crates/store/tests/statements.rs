//! The statements in files: every one is used, explained, paired with the other backend's, and understood by its
//! database.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The statements of a backend by name.
fn statements(backend: &str) -> BTreeMap<String, String> {
    let folder = source(backend).join("sql");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_str().expect("plain text").to_owned();
        (name, std::fs::read_to_string(&path).expect("readable"))
    };
    std::fs::read_dir(folder).expect("the folder").map(read).collect()
}

fn source(backend: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(backend)
}

/// All Rust of a backend.
fn code(backend: &str) -> String {
    let files =
        std::fs::read_dir(source(backend)).expect("the folder").map(|entry| entry.expect("an entry").path());
    let rust = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    rust.map(|path| std::fs::read_to_string(path).expect("readable")).collect()
}

#[test]
fn every_file_is_used_and_every_use_has_a_file() {
    for backend in ["sqlite", "postgres"] {
        let code = code(backend);
        for name in statements(backend).keys() {
            assert!(
                code.contains(&format!("\"sql/{name}.sql\"")),
                "{backend}/sql/{name}.sql is used nowhere"
            );
        }
    }
}

#[test]
fn every_statement_says_what_it_does() {
    for backend in ["sqlite", "postgres"] {
        for (name, text) in statements(backend) {
            assert!(text.starts_with("-- "), "{backend}/sql/{name}.sql has no head");
            assert!(
                !text.contains(';') || text.lines().all(|l| !l.contains(';') || l.starts_with("--")),
                "{name}"
            );
        }
    }
}

/// Both backends have the same verbs; a verb may take several statements in one and one in the other.
#[test]
fn both_backends_have_the_same_verbs() {
    let verbs = |backend: &str| -> BTreeSet<String> {
        let verb = |name: &String| name.split('_').next().expect("at least one").to_owned();
        statements(backend).keys().map(verb).collect()
    };
    assert_eq!(verbs("sqlite"), verbs("postgres"));
}

#[test]
fn sqlite_understands_every_statement() {
    let conn = rusqlite::Connection::open_in_memory().expect("opened");
    conn.execute_batch(include_str!("../src/sqlite/migrations/0001_core.up.sql")).expect("migrated");
    conn.execute_batch(include_str!("../src/sqlite/migrations/0002_jobs.up.sql")).expect("migrated");
    conn.execute_batch(include_str!("../src/sqlite/migrations/0003_machines.up.sql")).expect("migrated");
    conn.execute_batch(include_str!("../src/sqlite/migrations/0004_workflows.up.sql")).expect("migrated");
    conn.execute_batch(include_str!("../src/sqlite/migrations/0005_branches.up.sql")).expect("migrated");
    conn.execute_batch(include_str!("../src/sqlite/migrations/0006_promises.up.sql")).expect("migrated");
    for (name, text) in statements("sqlite") {
        conn.prepare(&text).unwrap_or_else(|error| panic!("sqlite/sql/{name}.sql: {error}"));
    }
}
