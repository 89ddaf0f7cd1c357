//! The statements in files: the same files in both backends, every statement explained, used and accepted by its database.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use windlass_store::{postgres::Postgres, sqlite::Sqlite};

/// File, name and text.
type Statement = (&'static str, &'static str, &'static str);

const BACKENDS: [(&str, &[Statement]); 2] =
    [("sqlite", Sqlite::STATEMENTS), ("postgres", Postgres::STATEMENTS)];

fn source(backend: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(backend)
}

/// The files of a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|end| end == ending)).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("readable")
}

#[test]
fn both_backends_have_the_same_files() {
    let names = |backend: &str| -> BTreeSet<String> {
        let files = files(&source(backend).join("sql"), "sql");
        files.iter().map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names("sqlite"), names("postgres"));
}

#[test]
fn every_statement_is_used() {
    for (backend, statements) in BACKENDS {
        let code: String = files(&source(backend), "rs").iter().map(|path| read(path)).collect();
        for (file, name, _) in statements {
            let constant = format!("sql::{file}::{}", name.to_uppercase());
            assert!(code.contains(&constant), "{backend}: {constant} is used nowhere");
        }
    }
}

#[test]
fn every_statement_and_fragment_says_what_it_does() {
    for (backend, _) in BACKENDS {
        for path in files(&source(backend).join("sql"), "sql") {
            let text = read(&path);
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let begins = pair[0].starts_with("-- name:") || pair[0].starts_with("-- fragment:");
                assert!(!begins || pair[1].starts_with("-- "), "{}: {} has no head", path.display(), pair[0]);
            }
            let code = text.lines().map(|line| line.split("--").next().unwrap_or_default());
            assert!(!code.collect::<String>().contains(';'), "{} has a semicolon", path.display());
        }
    }
}

/// PostgreSQL's are prepared by `postgres/plans.rs`.
#[test]
fn sqlite_accepts_every_statement() {
    let conn = rusqlite::Connection::open_in_memory().expect("opened");
    for migration in Sqlite::MIGRATIONS {
        conn.execute_batch(migration.up).expect("migrated");
    }
    let refused = |(file, name, text): &Statement| {
        conn.prepare(text).err().map(|error| format!("{file}.{name}: {error}"))
    };
    let refused: Vec<String> = Sqlite::STATEMENTS.iter().filter_map(refused).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
