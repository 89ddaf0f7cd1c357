//! What recording ends and waits costs: rows, statements and plans.

use windlass_model::Change;
use windlass_store::{RollUpRequest, conformance::kit::*};

use super::plans::statement;

/// Counts the rows of a table.
async fn rows(client: &tokio_postgres::Client, table: &str) -> i64 {
    client.query_one(&format!("select count(*) from {table}"), &[]).await.expect("counted").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_appends_one_row_per_kind_and_sends_no_more_statements() {
    let (store, client) = super::open_with_client(&super::fresh()).await;
    let me = worker(&store, 1).await;
    submit(&store, &jobs(0, 1_000)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 1_000)).await;
    let ends = |from: usize, to: usize| -> Vec<Change> {
        claimed[from..to].iter().map(|job| change(me, job, done("x"))).collect()
    };
    store.commit(at(1), &ends(0, 1)).await.expect("committed");
    let (_, one) = count_statements!(store, store.commit(at(1), &ends(1, 2)));
    let before = rows(&client, "ended_batches").await;
    let (_, many) = count_statements!(store, store.commit(at(1), &ends(2, 502)));
    assert_eq!((before, one, many), (2, 1, 1), "one statement, whatever it records");
    assert_eq!(rows(&client, "ended_batches").await, 3);
    // Of several sorts of ends, each statement appends a row.
    let mut mixed = ends(502, 600);
    mixed
        .extend(claimed[600..700].iter().map(|job| change(me, job, failed(windlass_model::Reason::Stopped))));
    mixed.extend(claimed[700..800].iter().map(|job| change(me, job, retry(secs(9), &[]))));
    store.commit(at(1), &mixed).await.expect("committed");
    assert_eq!(rows(&client, "ended_batches").await, 6);
    let request = RollUpRequest { limit: 100, hours_before: None, delete_before: None };
    let report = store.roll_up(&request).await.expect("rolled up");
    assert_eq!((report.rows, report.more), (6, false));
    assert_eq!((rows(&client, "ended_batches").await, rows(&client, "ended_sums").await), (0, 1));
    let (_, idle) = count_statements!(store, store.roll_up(&request));
    assert_eq!(idle, 1, "it only looks");
    let sql = "select count(*) from pg_indexes where tablename in ('ended_batches', 'wait_batches') and schemaname = current_schema()";
    assert_eq!(
        client.query_one(sql, &[]).await.expect("read").get::<_, i64>(0),
        0,
        "appending writes no index"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_roll_up_runs_at_a_time_and_nobody_waits_for_it() {
    let (store, client) = super::open_with_client(&super::named("roll_up_lock")).await;
    let (me, job) = running_job(&store, 1).await;
    apply(&store, 1, change(me, &job, done("x"))).await;
    let lock = "select pg_advisory_lock(hashtextextended('windlass roll-up of roll_up_lock', 0))";
    client.batch_execute(lock).await.expect("locked");
    let request = RollUpRequest { limit: 100, hours_before: None, delete_before: None };
    assert_eq!(store.roll_up(&request).await.expect("it does not wait").rows, 0);
    let (me, job) = running_job(&store, 2).await;
    apply(&store, 1, change(me, &job, done("x"))).await;
    client.batch_execute(&lock.replace("pg_advisory_lock", "pg_advisory_unlock")).await.expect("unlocked");
    assert_eq!(store.roll_up(&request).await.expect("rolled up").rows, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_span_reads_few_of_many_sums() {
    let (_store, client) = super::open_with_client(&super::fresh()).await;
    let fill = "insert into ended_sums (minutes, starts, lane, done, failed, cancelled, retried, wait_times, run_times)
                select 1, n / 20, n % 20, 1, 0, 0, 0, ''::bytea, ''::bytea from generate_series(0, 57599) n
                union all select 60, n / 20 * 60, n % 20, 1, 0, 0, 0, ''::bytea, ''::bytea from generate_series(0, 28799) n;
                analyze ended_sums";
    client.batch_execute(fill).await.expect("filled");
    let (_, text) = statement("rollups.throughput");
    client.batch_execute(&format!("prepare throughput (int4, int4) as {text}")).await.expect("prepared");
    let sql = "explain (analyze, format json) execute throughput (2000, 2060)";
    let plan: serde_json::Value = client.query_one(sql, &[]).await.expect("explained").get(0);
    let text = plan.to_string();
    assert!(text.contains("ended_sums_pkey") && !text.contains(r#""Node Type":"Seq Scan","Parallel Aware":false,"Async Capable":false,"Relation Name":"ended_sums""#), "{plan:#}");
    let read = plan[0]["Plan"]["Actual Rows"].as_f64().expect("a number");
    assert_eq!(read, 60.0 * 20.0 + 20.0, "{plan:#}");
}
