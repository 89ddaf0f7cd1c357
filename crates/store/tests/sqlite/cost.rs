//! What a claim costs: the same few statements however many jobs there are, each along a primary key.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_store::{
    Ask, Store,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

use super::path;

/// Statements of a claim of 100 with so many jobs ready, of one kind and of two.
async fn statements(ready: u32) -> (u64, u64) {
    let (_folder, path) = path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(path)).expect("open"));
    for chunk in jobs(0, ready).chunks(5_000) {
        let mut chunk = chunk.to_vec();
        chunk.iter_mut().step_by(2).for_each(|job| job.kind.kind = "other".into());
        submit(&store, &chunk).await;
    }
    let worker = worker(&store, 1).await;
    let two = Ask { kinds: [kind(KIND, 1), kind("other", 1)].into(), ..ask(worker, 2, 100) };
    // The first claim also learns the lanes.
    claim(&store, at(0), &Ask { number: windlass_model::ClaimNo(9), limit: 1, ..two.clone() }).await;
    let before = store.statements();
    let expected = 100.min(ready as usize / 2);
    assert!(claim(&store, at(0), &ask(worker, 1, 100)).await.len() >= expected - 1);
    let between = store.statements();
    assert!(claim(&store, at(0), &two).await.len() >= expected - 1);
    (between - before, store.statements() - between)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_the_same_few_statements_however_many_jobs_there_are() {
    let (few, many) = (statements(400).await, statements(20_000).await);
    assert_eq!(few, many);
    assert!(few.0 <= 9 && few.1 <= 14, "{few:?}");
}

/// The plan of a statement, one step per line.
fn plan(conn: &Connection, sql: &str) -> String {
    let mut statement = conn.prepare(&format!("explain query plan {sql}")).expect("prepare");
    let count = statement.parameter_count();
    let nulls = vec![rusqlite::types::Null; count];
    let rows = statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3));
    rows.expect("plan").collect::<Result<Vec<_>, _>>().expect("plan").join("\n")
}

macro_rules! sql {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../src/sqlite/sql/", $name, ".sql")))),*]
    };
}

#[tokio::test]
async fn hot_statements_walk_a_key_and_sort_nothing() {
    let (_folder, path) = path();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    submit(&store, &jobs(0, 1_000)).await;
    let conn = Connection::open(&path).expect("open");
    let claim = sql!["claim_heads", "claim_jobs", "claim_take", "claim_suspects"];
    for (name, sql) in claim {
        let plan = plan(&conn, sql);
        let searched = plan.contains("SEARCH r USING PRIMARY KEY (lane=?")
            || plan.contains("SEARCH ready USING PRIMARY KEY (lane=?");
        assert!(searched, "{name}:\n{plan}");
    }
    let others = sql![
        "claim_job",
        "claim_repeat",
        "claim_settle",
        "claim_worker",
        "commit_done",
        "commit_failed",
        "commit_retry",
        "commit_seen",
        "commit_untimer",
        "due",
        "due_expire",
        "due_unready",
        "ended",
        "reap_job",
        "reap_return",
        "reap_poison",
        "release",
        "submit_by_id",
        "submit_by_key",
        "inspect_history",
    ];
    for (name, sql) in claim.iter().chain(&others) {
        let plan = plan(&conn, sql);
        assert!(!plan.contains("TEMP B-TREE"), "{name} sorts:\n{plan}");
        assert!(!plan.contains("SCAN jobs") && !plan.contains("SCAN j"), "{name} walks all jobs:\n{plan}");
        let scans = plan.lines().any(|line| line.starts_with("SCAN ") && !line.contains("CONSTANT ROW"));
        assert!(!scans, "{name} walks a whole table:\n{plan}");
    }
}

#[tokio::test]
async fn a_look_at_the_backlog_walks_keys_and_no_ended_jobs() {
    let (_folder, path) = path();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    submit(&store, &jobs(0, 1_000)).await;
    let conn = Connection::open(&path).expect("open");
    for (name, sql) in sql!["inspect_backlog", "inspect_running"] {
        let plan = plan(&conn, sql);
        assert!(!plan.contains("SCAN j") && !plan.contains("SCAN r"), "{name} walks a whole table:\n{plan}");
    }
}
