//! Opening files: concurrent openers, schemas that are too old or too new, and files that are not databases.

use std::{path::Path, process::Command, sync::Arc, thread};

use windlass_store::{
    Error, SchemaState, Store,
    conformance::kit::{all_jobs, job, jobs, list, submit},
    sqlite::{Options, Sqlite},
};

use super::{child_process, folder, path};

fn open(path: &Path) -> Result<Sqlite, Error> {
    Sqlite::open(Options::new(path))
}

/// Expects an error that names the file and contains `text`.
fn expect_refused(path: &Path, text: &str) {
    let error = open(path).err().unwrap_or_else(|| panic!("{} was opened", path.display()));
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    let message = error.to_string();
    assert!(message.contains(text) && message.contains(&path.display().to_string()), "{message}");
}

fn change_meta(path: &Path, version: i32, oldest: i32) {
    let conn = rusqlite::Connection::open(path).expect("open");
    conn.execute("update windlass_meta set version = ?1, oldest = ?2", [version, oldest]).expect("update");
}

#[tokio::test]
async fn a_new_file_is_migrated_once_by_concurrent_threads() {
    for _ in 0..10 {
        let (_folder, path) = path();
        let stores: Vec<Sqlite> = thread::scope(|scope| {
            let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&path).expect("open"))).collect();
            opening.into_iter().map(|thread| thread.join().expect("a thread")).collect()
        });
        for (n, store) in stores.into_iter().enumerate() {
            let store: Arc<dyn Store> = Arc::new(store);
            assert_eq!(store.inspect().schema().await.expect("schema"), SchemaState::CURRENT);
            submit(&store, &[job(n as u32)]).await;
            assert_eq!(list(&store, all_jobs()).await.len(), n + 1);
        }
    }
}

#[tokio::test]
async fn a_new_file_is_migrated_once_by_concurrent_processes() {
    let (_folder, path) = path();
    let start = |n: usize| {
        let mut command = Command::new(child_process::binary());
        child_process::arguments(&mut command, "opening::child_opens_and_submits", &path);
        command.env("WINDLASS_TEST_CHILD", n.to_string());
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("a child")
    };
    let children: Vec<_> = (0..4).map(start).collect();
    for child in children {
        child_process::expect_passed(&child.wait_with_output().expect("a child"));
    }
    let store: Arc<dyn Store> = Arc::new(open(&path).expect("open"));
    assert_eq!(list(&store, all_jobs()).await.len(), 4 * 200);
}

#[tokio::test]
#[ignore = "run as a child by a_new_file_is_migrated_once_by_concurrent_processes"]
async fn child_opens_and_submits() {
    let Some(path) = child_process::file() else { return };
    let n: u32 = std::env::var("WINDLASS_TEST_CHILD").expect("a number").parse().expect("a number");
    let store: Arc<dyn Store> = Arc::new(open(&path).expect("open"));
    for chunk in jobs(n * 1_000, 200).chunks(10) {
        submit(&store, chunk).await;
    }
}

#[tokio::test]
async fn the_schema_goes_down_and_up_again() {
    let (_folder, path) = path();
    drop(open(&path).expect("open"));
    let down = Sqlite::migrate(&path, Some(0)).expect("down");
    assert_eq!((down.version, down.latest), (0, SchemaState::CURRENT.latest));
    let conn = rusqlite::Connection::open(&path).expect("open");
    let tables: i64 =
        conn.query_row("select count(*) from sqlite_schema", [], |row| row.get(0)).expect("count");
    assert_eq!(tables, 0, "no tables are left");
    drop(conn);
    let error = Sqlite::open(Options::new(&path).migrate(false)).err().expect("refused");
    assert!(matches!(error, Error::Schema(_)) && error.to_string().contains("windlass migrate"), "{error}");
    assert_eq!(Sqlite::migrate(&path, None).expect("up"), SchemaState::CURRENT);
    assert_eq!(
        Sqlite::migrate(&path, None).expect("up"),
        SchemaState::CURRENT,
        "a second run changes nothing"
    );
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(Options::new(&path).migrate(false)).expect("open"));
    submit(&store, &[job(1)]).await;
    let error = Sqlite::migrate(&path, Some(99)).expect_err("refused");
    assert!(matches!(error, Error::Schema(_)), "{error}");
}

#[tokio::test]
async fn a_newer_schema_is_used_while_it_supports_this_binary() {
    let (_folder, path) = path();
    drop(open(&path).expect("open"));
    let latest = SchemaState::CURRENT.latest;
    change_meta(&path, latest + 1, latest);
    let store: Arc<dyn Store> = Arc::new(open(&path).expect("it supports this binary"));
    submit(&store, &[job(1)]).await;
    drop(store);
    change_meta(&path, latest + 2, latest + 1);
    for migrate in [true, false] {
        let error = Sqlite::open(Options::new(&path).migrate(migrate)).err().expect("refused");
        assert!(
            matches!(error, Error::Schema(_)) && error.to_string().contains("use a newer one"),
            "{error}"
        );
    }
    let error = Sqlite::migrate(&path, None).expect_err("refused");
    assert!(matches!(error, Error::Schema(_)) && error.to_string().contains("newer"), "{error}");
}

#[test]
fn a_file_that_is_not_a_database_is_refused_with_a_reason() {
    let folder = folder();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "dear diary, ".repeat(1_000)).expect("write");
    expect_refused(&text, "not a SQLite database");
    assert!(std::fs::read_to_string(&text).expect("read").starts_with("dear diary"), "it was not changed");
    expect_refused(&folder.path().join("no/such/folder/work.db"), "folder exists");
    expect_refused(folder.path(), "cannot be opened");
}

#[test]
fn a_read_only_file_is_refused_with_a_reason() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    // On disk, with a copy of the binary, so that another account can run it.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, binary) = (folder.path().join("work.db"), folder.path().join("child"));
    drop(open(&path).expect("open"));
    allow(&path, 0o444);
    allow(folder.path(), 0o555);
    let mut command = Command::new(child_process::binary());
    if std::fs::OpenOptions::new().write(true).open(&path).is_ok() {
        // The superuser may write anyway: run the child as another user.
        std::fs::copy(child_process::binary(), &binary).expect("copy");
        allow(&binary, 0o755);
        command = Command::new(&binary);
        command.uid(65_534).gid(65_534);
    }
    child_process::arguments(&mut command, "opening::child_may_not_write", &path);
    let output = command.current_dir(folder.path()).output().expect("a child");
    allow(folder.path(), 0o755);
    child_process::expect_passed(&output);
}

#[test]
#[ignore = "run as a child by a_read_only_file_is_refused_with_a_reason"]
fn child_may_not_write() {
    let Some(path) = child_process::file() else { return };
    let error = open(&path).err().expect("refused");
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    assert!(error.to_string().contains("write"), "{error}");
    let new_file = path.with_file_name("new.db");
    expect_refused(&new_file, "cannot be opened");
}
