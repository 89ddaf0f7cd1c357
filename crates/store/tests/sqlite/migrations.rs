//! Migrations: up and down, failures, and files from before the first release.

use std::{path::Path, sync::Arc};

use rusqlite::Connection;
use windlass_store::{
    Error, Migration, SchemaState,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

fn open(path: &Path) -> Handle {
    Arc::new(Sqlite::open(Options::new(path)).expect("open"))
}

fn number(path: &Path, sql: &str) -> i64 {
    let conn = Connection::open(path).expect("open");
    conn.query_row(sql, [], |row| row.get(0)).expect(sql)
}

/// The tables and indexes of the schema with their columns, sorted.
fn schema(path: &Path) -> Vec<String> {
    let conn = Connection::open(path).expect("open");
    let mut tables = conn
        .prepare(
            "select s.type || ' ' || s.name || ' ' || coalesce(group_concat(c.name || ' ' || c.type || ' ' || c.\"notnull\"), '')
             from sqlite_schema s left join pragma_table_info(s.name) c
             where s.name not like 'sqlite_%' group by s.type, s.name order by 1",
        )
        .expect("prepare");
    let rows = tables.query_map([], |row| row.get(0)).expect("query");
    rows.collect::<Result<_, _>>().expect("rows")
}

/// The migrations of this build and one more, which older binaries support.
fn two_versions() -> Vec<Migration> {
    let mut all = Sqlite::MIGRATIONS.to_vec();
    let last = *all.last().expect("at least one");
    all.push(Migration {
        version: last.version + 1,
        oldest: last.oldest,
        name: "fixture",
        up: "alter table windlass_jobs add column fixture text",
        down: "alter table windlass_jobs drop column fixture",
    });
    all
}

#[test]
fn migrating_down_restores_the_earlier_schema() {
    let (_folder, path) = super::path();
    let (all, current) = (two_versions(), SchemaState::CURRENT);
    let empty = schema(&path);
    assert_eq!(Sqlite::migrate(&path, None).expect("up"), current);
    let baseline = schema(&path);
    let newer = Sqlite::migrate_with(&path, None, &all).expect("up");
    assert_eq!((newer.version, newer.oldest), (current.version + 1, current.oldest));
    assert_ne!(schema(&path), baseline);
    let down = Sqlite::migrate_with(&path, Some(current.version), &all).expect("down");
    assert_eq!((down.version, down.oldest), (current.version, current.oldest));
    assert_eq!(schema(&path), baseline);
    assert_eq!(Sqlite::migrate(&path, Some(0)).expect("down").version, 0);
    assert_eq!(schema(&path), empty);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_survive_a_migration_and_older_binaries_continue() {
    let (_folder, path) = super::path();
    let store = open(&path);
    submit(&store, &jobs(0, 3)).await;
    let me = worker(&store, 1).await;
    Sqlite::migrate_with(&path, None, &two_versions()).expect("up");
    let claimed = claim(&store, at(1), &claim_request(me, 1, 2)).await;
    assert_eq!(ids(&claimed), [0, 1].map(id), "the handle that was open uses the newer schema");
    drop(store);
    let store = open(&path);
    assert_eq!(
        ids(&claim(&store, at(1), &claim_request(me, 2, 9)).await),
        [2].map(id),
        "and so does one that is opened later"
    );
    drop(store);
    Sqlite::migrate_with(&path, Some(SchemaState::CURRENT.version), &two_versions()).expect("down");
    assert_eq!(number(&path, "select count(*) from windlass_jobs"), 3);
}

#[test]
fn a_migration_that_fails_changes_nothing() {
    let (_folder, path) = super::path();
    Sqlite::migrate(&path, None).expect("up");
    let before = schema(&path);
    let mut all = two_versions();
    all.last_mut().expect("at least one").up =
        "create table half (id integer); create table windlass_jobs (id integer)";
    assert!(Sqlite::migrate_with(&path, None, &all).is_err());
    assert_eq!(schema(&path), before);
    assert_eq!(Sqlite::schema_of(&path).expect("read"), SchemaState::CURRENT);
}

#[test]
fn a_file_from_before_the_first_release_is_refused() {
    let (_folder, path) = super::path();
    let conn = Connection::open(&path).expect("open");
    conn.execute_batch(
        "create table windlass_meta (one integer primary key, version integer not null, oldest integer not null);
         insert into windlass_meta values (1, 6, 6);",
    )
    .expect("an early schema");
    for error in [Sqlite::open(Options::new(&path)).err(), Sqlite::migrate(&path, None).err()] {
        let error = error.expect("refused");
        assert!(matches!(&error, Error::Schema(_)), "{error}");
        assert!(error.to_string().contains("before the first release"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_the_user_may_have_any_name() {
    let (_folder, path) = super::path();
    let conn = Connection::open(&path).expect("open");
    conn.execute_batch(
        "create table orders (id integer); create table jobs (id integer); create table meta (key text, value text);
         create table audit (what text); create table queues (name text); create index jobs_key on jobs (id);",
    )
    .expect("tables of the user");
    let store = open(&path);
    submit(&store, &[serial_job(1, "k")]).await;
    let me = worker(&store, 1).await;
    assert_eq!(claim(&store, at(0), &claim_request(me, 1, 9)).await.len(), 1);
    drop(store);
    Sqlite::migrate(&path, Some(0)).expect("down");
    assert_eq!(
        number(&path, "select count(*) from sqlite_schema where type = 'table'"),
        5,
        "tables of the user are kept"
    );
}
