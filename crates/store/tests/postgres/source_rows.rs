//! Rows of tables of the user, in the order of a key of any type.

use std::{sync::Arc, time::Duration};

use windlass_store::{
    Error, SourceRow, Store, TableSource,
    conformance::kit::*,
    postgres::{Options, Postgres},
};
use windlass_testpg::Proxy;

use super::{fresh, open_with_client};

fn rows(from: &str, key: &str) -> TableSource {
    TableSource { from: from.to_owned(), key: key.to_owned(), filter: None }
}

/// Reads all rows, page by page.
async fn pages(store: &dyn Store, rows: &TableSource, limit: usize) -> Vec<SourceRow> {
    let mut all: Vec<SourceRow> = Vec::new();
    loop {
        let after = all.last().map(|row| row.after.clone());
        let page = store.inspect().source_rows(rows, after.as_deref(), limit).await.expect("rows");
        let last = page.len() < limit;
        all.extend(page);
        if last {
            return all;
        }
    }
}

async fn refused(store: &Handle, rows: &TableSource, after: Option<&str>) -> String {
    match store.inspect().source_rows(rows, after, 10).await {
        Err(Error::Config(why)) => why,
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn rows_are_read_in_the_order_of_keys_of_any_type() {
    let (store, client) = open_with_client(&fresh()).await;
    let create =
        "create table public.user_orders as select n::int8 as id, 'name ' || lpad(n::text, 4, '0') as name,
             ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid as uid,
             timestamptz '2026-01-01 00:00:00+02' + n * interval '1.5 microseconds' as at,
             (n / 7.0)::numeric as share, n % 3 as part
         from generate_series(1, 25) n";
    client.batch_execute(create).await.expect("created");
    for key in ["id", "name", "uid", "at", "share"] {
        let all = pages(&*store, &rows("user_orders", key), 10).await;
        assert_eq!(all.len(), 25, "{key}");
        for (n, source) in all.iter().enumerate() {
            let row: serde_json::Value = serde_json::from_str(&source.row).expect("JSON");
            assert_eq!(row["id"], n + 1, "{key}");
        }
    }
    let all = pages(&*store, &rows("user_orders", "id"), 100).await;
    assert_eq!((all[9].key.as_str(), all[9].after.as_str()), ("10", "10"), "as numbers, not as text");
    let filtered =
        TableSource { filter: Some("part = 0 or part = 1 -- not 2".into()), ..rows("user_orders", "id") };
    assert_eq!(pages(&*store, &filtered, 5).await.len(), 17);
    let query = rows("(select id * 2 as double, name from user_orders where id < 10) as o", "double");
    let all = pages(&*store, &query, 4).await;
    assert_eq!(
        all.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(),
        ["2", "4", "6", "8", "10", "12", "14", "16", "18"]
    );
    assert_eq!(all[0].row, r#"{"double":2,"name":"name 0001"}"#);
    let named = TableSource { filter: Some("o.id > 20".into()), ..rows("public.user_orders o", "id") };
    assert_eq!(pages(&*store, &named, 2).await.len(), 5);
}

#[tokio::test]
async fn rows_that_cannot_be_read_in_order_are_refused_with_a_reason() {
    let (store, client) = open_with_client(&fresh()).await;
    let create = "create table public.user_odd as select * from
             (values (1::int8, 1::int8, 'a'), (2, null, 'b'), (3, 3, 'b'), (4, 4, 'c')) as v (id, gap, twice)";
    client.batch_execute(create).await.expect("created");
    let why = refused(&store, &rows("user_odd", "gap"), None).await;
    assert!(why.contains("gap") && why.contains("is null in some rows"), "{why}");
    let some = TableSource { filter: Some("gap is not null".into()), ..rows("user_odd", "gap") };
    assert_eq!(pages(&*store, &some, 2).await.len(), 3);
    let why = refused(&store, &rows("user_odd", "twice"), None).await;
    assert!(why.contains("is \"b\" in two rows"), "{why}");
    // Also if the two are on different pages.
    let page = store.inspect().source_rows(&rows("user_odd", "twice"), None, 2).await;
    assert!(page.expect_err("refused").to_string().contains("in two rows"));
    for (bad, what) in [
        (rows("no_such_table", "id"), "no_such_table"),
        (rows("user_odd", "no_such_column"), "no_such_column"),
        (TableSource { filter: Some("id >".into()), ..rows("user_odd", "id") }, "where id >"),
        (rows("(select 1 / 0 as id) as o", "id"), "division by zero"),
    ] {
        let why = refused(&store, &bad, None).await;
        assert!(why.contains(what) && why.contains("cannot be read"), "{why:?} lacks {what:?}");
    }
    let why = refused(&store, &rows("user_odd", "id"), Some("not a number")).await;
    assert!(why.contains("not a number"), "{why}");
    // A query that writes is refused.
    let writes = rows("(select setval('public.user_seq', 5) as id) as o", "id");
    client.batch_execute("create sequence public.user_seq").await.expect("created");
    assert!(refused(&store, &writes, None).await.contains("may only read"));
}

/// A peer that has vanished answers nothing, and no error is reported: the page is given up, with its connection.
#[tokio::test]
async fn rows_of_a_vanished_peer_are_given_up() {
    let proxy = Proxy::to(super::cluster().port()).expect("a proxy");
    let url = format!("postgres://windlass@127.0.0.1:{}/windlass?schema=vanished", proxy.port());
    let options = Options::parse(&url).expect("an address").patience(Duration::from_millis(100));
    let store: Handle = Arc::new(Postgres::open(options).await.expect("open"));
    let numbers = rows("(select generate_series(1, 30)::int8 as id) as numbers", "id");
    let page = async |after: Option<&'static str>| {
        let page = store.inspect().source_rows(&numbers, after, 10);
        tokio::time::timeout(Duration::from_secs(20), page).await.expect("the wait is limited")
    };
    assert_eq!(page(None).await.expect("rows").len(), 10);
    proxy.freeze();
    let error = page(Some("10")).await.expect_err("no answer");
    assert!(error.is_retryable(), "{error}");
    proxy.thaw();
    assert_eq!(page(Some("10")).await.expect("over another connection")[0].key, "11");
}
