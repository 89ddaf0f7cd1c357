//! Rows of the user's tables, read page by page in the order of a key.

use std::{path::Path, sync::Arc};

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_store::{
    SourceRow, TableSource,
    conformance::kit::Handle,
    sqlite::{Options, Sqlite},
};

/// A store in whose file these statements have created tables.
fn with_tables(sql: &str) -> (TempDir, Handle) {
    let (folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    execute(&path, sql);
    (folder, store)
}

fn execute(path: &Path, sql: &str) {
    Connection::open(path).expect("open").execute_batch(sql).expect("tables");
}

fn rows(from: &str, key: &str, filter: Option<&str>) -> TableSource {
    TableSource { from: from.into(), key: key.into(), filter: filter.map(str::to_owned) }
}

/// All rows, read in pages of `limit`.
async fn all_rows(store: &Handle, source: &TableSource, limit: usize) -> Vec<SourceRow> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.inspect().source_rows(source, after.as_deref(), limit).await.expect("rows");
        assert!(page.len() <= limit);
        let Some(last) = page.last() else { return all };
        after = Some(last.after.clone());
        all.extend(page);
    }
}

fn keys(rows: &[SourceRow]) -> Vec<&str> {
    rows.iter().map(|row| row.key.as_str()).collect()
}

async fn refused(store: &Handle, source: &TableSource) -> String {
    let read = store.inspect().source_rows(source, None, 9).await;
    read.expect_err("it cannot be read").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_every_type_are_read_in_order() {
    let (_folder, store) = with_tables(
        "create table numbers (id integer primary key, name text, price real, raw blob);
         insert into numbers values (2, 'b', 0.5, x'00ff'), (-7, null, 2, null), (10, 'c\"d', null, x''), (9, 'x', 1, null);
         create table words (word text primary key);
         insert into words values ('b'), ('a'), ('Z'), ('it''s'), ('10'), ('9'), ('');
         create table uuids (id blob primary key);
         insert into uuids values (x'000102030405060708090a0b0c0d0e0f'), (x'ff0102030405060708090a0b0c0d0e0f'), (x'0a');
         create table reals (at real primary key);
         insert into reals values (1.5), (0.1), (-3.25), (1e100);
         create table texts (id text primary key);
         insert into texts values ('0191b3a1-0000-7000-8000-000000000002'), ('0191b3a1-0000-7000-8000-000000000001');",
    );
    for limit in [1, 2, 3, 99] {
        let numbers = all_rows(&store, &rows("numbers", "id", None), limit).await;
        assert_eq!(keys(&numbers), ["-7", "2", "9", "10"]);
        let expected = r#"{"id":2,"name":"b","price":0.5,"raw":"\\x00ff"}"#;
        assert_eq!(numbers[1].row, expected);
        assert_eq!(numbers[3].row, r#"{"id":10,"name":"c\"d","price":null,"raw":"\\x"}"#);
        let words = all_rows(&store, &rows("words", "word", None), limit).await;
        assert_eq!(keys(&words), ["", "10", "9", "Z", "a", "b", "it's"]);
        let uuids = all_rows(&store, &rows("uuids", "id", None), limit).await;
        let first = "00010203-0405-0607-0809-0a0b0c0d0e0f";
        assert_eq!(keys(&uuids), [first, "0a", "ff010203-0405-0607-0809-0a0b0c0d0e0f"]);
        let reals = all_rows(&store, &rows("reals", "at", None), limit).await;
        assert_eq!(keys(&reals)[..3], ["-3.25", "0.1", "1.5"]);
        assert_eq!(reals.len(), 4);
        let texts = all_rows(&store, &rows("texts", "id", None), limit).await;
        assert!(texts[0].key.ends_with('1') && texts[1].key.ends_with('2'), "{texts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_and_queries_select_rows() {
    let (_folder, store) = with_tables(
        "create table orders (id integer primary key, customer text, paid integer);
         insert into orders values (1, 'ann', 0), (2, 'bob', 1), (3, 'ann', 1), (4, 'cid', 0), (5, 'ann', 0);",
    );
    let open = rows("orders", "id", Some("paid = 0 or customer = 'bob' -- a note"));
    assert_eq!(keys(&all_rows(&store, &open, 2).await), ["1", "2", "4", "5"]);
    let sums =
        rows("(select customer, count(*) as orders from orders group by customer) as c", "customer", None);
    let counted = all_rows(&store, &sums, 2).await;
    assert_eq!(keys(&counted), ["ann", "bob", "cid"]);
    assert_eq!(counted[0].row, r#"{"customer":"ann","orders":3}"#);
    let named = rows("orders o", "o.id", Some("o.paid"));
    assert_eq!(keys(&all_rows(&store, &named, 9).await), ["2", "3"]);
    assert_eq!(all_rows(&store, &rows("orders", "id", Some("customer = 'eve'")), 9).await, []);
    assert_eq!(store.inspect().source_rows(&open, None, 0).await.expect("rows"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_cannot_be_read_in_order_are_refused_with_a_reason() {
    let (folder, store) = with_tables(
        "create table visits (person text, day integer);
         insert into visits values ('ann', 1), ('bob', 2), ('ann', 3), (null, 4);",
    );
    let why = refused(&store, &rows("nowhere", "id", None)).await;
    assert!(why.contains("no such table: nowhere") && why.contains("the rows of nowhere"), "{why}");
    let why = refused(&store, &rows("visits", "hour", None)).await;
    assert!(why.contains("no such column: hour"), "{why}");
    let why = refused(&store, &rows("visits", "day", Some("day >"))).await;
    assert!(why.contains("syntax error") && why.contains("where day >"), "{why}");
    let why = refused(&store, &rows("visits", "person", None)).await;
    assert!(why.contains("key is null"), "{why}");
    let present = rows("visits", "person", Some("person is not null"));
    let why = refused(&store, &present).await;
    assert!(why.contains("the key ann occurs twice"), "{why}");
    let one = store.inspect().source_rows(&present, None, 1).await;
    assert!(one.is_err(), "also if the two are on different pages: {one:?}");
    let unknown = store.inspect().source_rows(&rows("visits", "day", None), Some("what"), 9).await;
    assert!(unknown.expect_err("refused").to_string().contains("no key that was returned before"));
    let why = refused(&store, &rows("visits; delete from visits", "day", None)).await;
    assert!(!why.is_empty());
    let left: i64 = Connection::open(folder.path().join("work.db"))
        .expect("open")
        .query_row("select count(*) from visits", [], |row| row.get(0))
        .expect("count");
    assert_eq!(left, 4, "nothing was written");
    assert_eq!(all_rows(&store, &rows("visits", "day", None), 3).await.len(), 4, "the next read works");
}
