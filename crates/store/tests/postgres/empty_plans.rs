//! The plans of statements that were prepared when the tables were empty, as they are in a store that has just been made. Such a plan is
//! kept until the planner's statistics are renewed, and by then the tables may be large: so it must reach each of them by a key.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_store::postgres::Postgres;

/// Tables that have a row per job, or several.
const LARGE: &[&str] = &[
    "branch_counts",
    "branches",
    "attempts",
    "context",
    "delivered_signals",
    "jobs",
    "journal",
    "parked_jobs",
    "ready",
    "serial_holders",
    "serial_keys",
    "serial_waiting",
    "sessions",
    "signals",
    "tags",
    "timers",
    "transitions",
    "unique_names",
];

/// Statements that read a table whole because that is what they are asked for.
const READ_ALL: &[&str] = &["counts.recount", "views.serial_keys"];

/// Collects the scans that have no condition on an index. One below a limit that is reached in the order of an index reads a page only.
fn unbounded<'a>(plan: &'a Value, limited: bool, into: &mut Vec<&'a Value>) {
    let node = plan["Node Type"].as_str().unwrap_or_default();
    let limited = match node {
        "Limit" => true,
        // These read all of their input before the first row.
        "Sort" | "Aggregate" | "Hash" => false,
        _ => limited,
    };
    let scans_large = plan["Relation Name"].as_str().is_some_and(|table| LARGE.contains(&table));
    let has_key = !plan["Index Cond"].is_null() || !plan["TID Cond"].is_null();
    if scans_large && node.ends_with("Scan") && !has_key && !limited {
        into.push(plan);
    }
    for child in plan["Plans"].as_array().into_iter().flatten() {
        unbounded(child, limited, into);
    }
}

#[tokio::test]
async fn plans_made_for_empty_tables_reach_large_tables_by_a_key() {
    let options = super::fresh();
    Postgres::migrate(&options, None).await.expect("migrated");
    let client = Postgres::client(&options).await.expect("connected");
    let sql =
        "select indexname from pg_indexes where schemaname = current_schema() and indexdef like '% WHERE %'";
    let partial: BTreeSet<String> =
        client.query(sql, &[]).await.expect("read").iter().map(|row| row.get(0)).collect();
    let mut found = Vec::new();
    for (file, name, text) in Postgres::STATEMENTS {
        let path = format!("{file}.{name}");
        let parameters = client.prepare(text).await.expect(&path).params().len();
        client.batch_execute(&format!("prepare planned as {text}")).await.expect(&path);
        let nulls = vec!["null"; parameters].join(", ");
        let call = if nulls.is_empty() { String::new() } else { format!("({nulls})") };
        let explain = format!("explain (format json) execute planned{call}");
        let explained = client.query_one(&explain, &[]).await;
        client.batch_execute("deallocate planned").await.expect(&path);
        let plan: Value = explained.unwrap_or_else(|error| panic!("{path}: {error:?}")).get(0);
        let mut scans = Vec::new();
        unbounded(&plan[0]["Plan"], false, &mut scans);
        // A partial index has the few rows that the statement is about.
        scans.retain(|scan| !scan["Index Name"].as_str().is_some_and(|index| partial.contains(index)));
        if !scans.is_empty() && !READ_ALL.contains(&path.as_str()) {
            let tables: Vec<_> =
                scans.iter().map(|scan| scan["Relation Name"].as_str().unwrap_or_default()).collect();
            found.push(format!("{path}: {} ({})", tables.join(", "), scans[0]));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
