//! Long operations: their progress as events, their end when the client goes, and how they are continued.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    client::Request,
    events::{Event, Stream},
    kit::{Database, PATIENCE, Running},
    on_both,
};

on_both! {
    progress_is_sent_until_the_result
    an_operation_ends_when_its_client_has_gone
    an_interrupted_operation_is_continued_where_it_stopped
    many_jobs_are_forked_after_a_preview
}

fn with_events(path: &str, body: &Value) -> Request {
    Request::post(path, body).header("accept", "text/event-stream")
}

/// Reads events to the end. Returns them, the last one is the result.
async fn events(mut stream: Stream) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

async fn submit(server: &Running, count: usize) {
    let jobs: Vec<Value> = (0..count).map(|n| json!({ "kind": "echo", "input": n })).collect();
    server.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect(200);
}

async fn progress_is_sent_until_the_result(database: Database) {
    let server = Running::new(database).await;
    submit(&server, 250).await;
    let body = json!({ "action": "pause", "filter": { "kind": "echo" }, "rate": 250 });
    let events = events(Stream::open(&server, with_events("/v1/jobs/bulk", &body)).await).await;
    let (last, progress) = events.split_last().expect("a result");
    assert_eq!((last.name.as_str(), &last.data["done"]), ("done", &json!(250)), "{last:?}");
    assert_eq!(last.data["interrupted"], false);
    let seen: Vec<u64> =
        progress.iter().map(|event| event.data["seen"].as_u64().expect("a number")).collect();
    assert!(!seen.is_empty() && seen.is_sorted(), "{events:?}");
    assert!(progress.iter().all(|event| event.name == "progress"), "{events:?}");
    let prune = json!({ "state": "cancelled", "older_than": "0s" });
    let pruned = self::events(Stream::open(&server, with_events("/v1/prune", &prune)).await).await;
    assert_eq!(
        pruned.last().expect("a result").data,
        json!({ "pruned": 0, "kept": 0, "interrupted": false })
    );
    let refused =
        server.send(with_events("/v1/jobs/bulk", &json!({ "action": "pause", "filter": {} }))).await;
    refused.refused(400, "invalid");
    let unknown = "/v1/jobs/0199f0c2-6f7a-7000-8000-000000000000/redrive";
    server.send(with_events(unknown, &json!({}))).await.refused(404, "not_found");
}

async fn an_operation_ends_when_its_client_has_gone(database: Database) {
    let server = Running::new(database).await;
    submit(&server, 300).await;
    let body = json!({ "action": "cancel", "filter": { "kind": "echo" }, "rate": 10 });
    let mut stream = Stream::open(&server, with_events("/v1/jobs/bulk", &body)).await;
    stream.next_named("progress").await;
    drop(stream);
    let ended = async {
        loop {
            let audit = server.get("/v1/audit").await.expect(200);
            let mut entries = audit["entries"].as_array().expect("entries").iter();
            let is_end = |entry: &&Value| entry["action"].as_str().is_some_and(|text| text.contains("ended"));
            if entries.any(|entry| is_end(&entry)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends");
    let counts = server.get("/v1/jobs").await.expect(200)["counts"].clone();
    assert!(counts["ready"].as_u64().is_some_and(|left| left > 0), "{counts}");
}

async fn an_interrupted_operation_is_continued_where_it_stopped(database: Database) {
    let server =
        Running::with(database, |settings| settings.request_timeout = Duration::from_millis(400)).await;
    submit(&server, 300).await;
    // It takes three seconds, and a request a third of one.
    let mut body = json!({ "action": "priority", "priority": 5, "filter": { "kind": "echo" }, "rate": 100 });
    let (mut seen, mut rounds) = (0, 0);
    loop {
        let answer = server.post("/v1/jobs/bulk", body.clone()).await.expect(200);
        seen += answer["seen"].as_u64().expect("a number");
        rounds += 1;
        if answer["interrupted"] == false {
            break;
        }
        body["filter"]["before"] = answer["next_before"].clone();
    }
    assert_eq!(seen, 300, "each job is reordered once");
    assert!(rounds > 1, "{rounds}");
    let all =
        json!({ "action": "cancel", "filter": { "before": body["filter"]["before"] }, "dry_run": true });
    server.post("/v1/jobs/bulk", all.clone()).await.refused(400, "invalid");
    let mut meant = all;
    meant["all"] = true.into();
    let preview = server.post("/v1/jobs/bulk", meant).await.expect(200);
    assert!(preview["matching"].as_u64().is_some_and(|matching| matching < 300), "{preview}");
    assert!(preview["before"].is_string(), "{preview}");
}

async fn many_jobs_are_forked_after_a_preview(database: Database) {
    let server = Running::new(database).await;
    submit(&server, 3).await;
    let fork = async |body: Value| server.post("/v1/forks", body).await;
    fork(json!({ "filter": {} })).await.refused(400, "invalid");
    fork(json!({ "filter": { "kind": "echo" }, "before": "a", "from_beginning": true }))
        .await
        .refused(400, "invalid");
    let preview = fork(json!({ "filter": { "kind": "echo" }, "dry_run": true })).await.expect(200);
    assert_eq!((&preview["matching"], preview["sample"].as_array().map(Vec::len)), (&json!(3), Some(3)));
    let forked = fork(json!({ "filter": { "kind": "echo", "before": preview["before"] } })).await.expect(200);
    assert_eq!(forked["forked"].as_array().map(Vec::len), Some(3), "{forked}");
    assert_eq!((&forked["refused"], &forked["interrupted"]), (&json!([]), &json!(false)));
    assert_eq!(server.get("/v1/jobs?kind=echo").await.expect(200)["counts"]["ready"], 6);
}
