//! Requests that are repeated after a lost answer, and what the audit log has of them.

use serde_json::{Value, json};
use windlass::model::{Outcome, Reason, Role, StepWrites};

use crate::{
    client::Request,
    kit::{Database, Running},
    on_both,
    written::{Claimed, echo},
};

on_both! {
    a_fork_or_a_trigger_with_an_id_is_done_once
    submits_and_signals_have_one_entry_each_in_the_audit_log
}

async fn a_fork_or_a_trigger_with_an_id_is_done_once(database: Database) {
    let server = Running::new(database).await;
    let engine = &server.engine;
    let mut originals = Vec::new();
    for _ in 0..3 {
        let mut job = Claimed::submit(engine, echo(engine)).await;
        job.add_entries(engine, 0, 2, 10).await;
        let failure = windlass::Failure::stop("it was asked to");
        let failed = Outcome::Failed { reason: Reason::Stopped, failure };
        job.commit(engine, StepWrites::default(), failed).await;
        originals.push(job.id());
    }
    let count = async || server.get("/v1/jobs").await.expect(200)["jobs"].as_array().expect("jobs").len();
    let fork = async |body: Value| {
        let forked = server.post(&format!("/v1/jobs/{}/fork", originals[0]), body).await.expect(200);
        forked["job"].as_str().expect("an id").to_owned()
    };
    let one = json!({ "id": engine.new_id(), "before_entry": 1 });
    let first = fork(one.clone()).await;
    assert_eq!(fork(one).await, first);
    assert_eq!(count().await, 4, "a repeat makes no other fork");
    assert_ne!(fork(json!({ "id": engine.new_id(), "before_entry": 1 })).await, first, "another id does");
    assert_ne!(fork(json!({})).await, fork(json!({})).await, "as each request without one");
    assert_eq!(count().await, 7);

    let many = json!({ "id": engine.new_id(), "filter": { "kind": "echo", "state": "failed" } });
    let forks = async || {
        let mut forked = server.post("/v1/forks", many.clone()).await.expect(200)["forked"].clone();
        forked.as_array_mut().expect("forks").sort_by_key(Value::to_string);
        forked
    };
    let first = forks().await;
    assert_eq!((first.as_array().expect("forks").len(), count().await), (3, 10));
    assert_eq!((forks().await, count().await), (first, 10));
    // Without a state, the forks themselves match too: they were made after the id was drawn.
    let all = json!({ "id": many["id"], "filter": { "kind": "echo" } });
    server.post("/v1/forks", all).await.expect(200);
    let after_all = count().await;
    assert_eq!(after_all, 10 + 4, "the four single forks, and not those of this request");

    server
        .send(
            Request::new("PUT", "/v1/schedules/nightly")
                .json(&json!({ "calendar": "@daily", "kind": "echo" })),
        )
        .await
        .expect(200);
    let trigger = async |body: Value| {
        let outcome = server.post("/v1/schedules/nightly/trigger", body).await;
        if outcome.status == 200 { outcome.json()["why"].clone() } else { outcome.refused(409, "conflict") }
    };
    let once = json!({ "id": engine.new_id() });
    let job = trigger(once.clone()).await;
    assert!(job.is_string(), "{job}");
    assert_eq!(trigger(once).await, job, "although its job is live, and its overlap policy is skip");
    assert_eq!(count().await, after_all + 1);
    let other = trigger(json!({})).await;
    assert!(other["message"].as_str().expect("refused").contains("has not ended"), "{other}");
}

async fn submits_and_signals_have_one_entry_each_in_the_audit_log(database: Database) {
    let server = Running::new(database).await;
    let audit = async || {
        let page = server.get("/v1/audit").await.expect(200);
        let entries = page["entries"].as_array().expect("entries").clone();
        let entry = |entry: &Value| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            (text("author"), text("action"), text("subject"))
        };
        entries.iter().rev().map(entry).collect::<Vec<_>>()
    };
    let loopback =
        |action: &str, subject: &str| ("loopback".to_owned(), action.to_owned(), subject.to_owned());
    let id = server.engine.new_id().to_string();
    let job = json!({ "kind": "echo", "input": 1, "id": id });
    server.post("/v1/jobs", job.clone()).await.expect(201);
    server.post("/v1/jobs", job).await.expect(200);
    server.post("/v1/jobs", json!({ "kind": "echo", "priority": 1_000 })).await.refused(400, "invalid");
    assert_eq!(audit().await, [loopback("submit", &id)], "a repeat and a refusal did nothing");

    let jobs = json!({ "jobs": [{ "kind": "echo" }, { "kind": "" }, { "kind": "echo" }] });
    let submitted = server.post("/v1/jobs/batch", jobs).await.expect(200);
    let first = submitted["jobs"][0]["id"].as_str().expect("an id").to_owned();
    let of_batch = loopback("submit 2 jobs, of which this is the first", &first);
    assert_eq!(audit().await[1..], *std::slice::from_ref(&of_batch));

    let approval = server.submit(json!({ "kind": "approval", "input": {} })).await;
    let token = server.token("ada", Role::Operator, &[], &[]).await;
    let before = audit().await.len();
    let signal = json!({ "payload": 7, "dedup": "once" });
    for _ in 0..2 {
        let request = Request::post(&format!("/v1/jobs/{approval}/signals/approved"), &signal);
        server.send(request.token(&token)).await.expect(200);
    }
    let signalled = ("ada@127.0.0.1".to_owned(), "signal approved".to_owned(), approval.clone());
    assert_eq!(audit().await[before..], [signalled], "a duplicate is not delivered");

    // What workers submit and send is part of their work.
    let job =
        json!({ "id": server.engine.new_id(), "kind": "echo", "queue": "default", "input": { "json": 1 } });
    server.post("/worker/v1/submit", json!({ "jobs": [job] })).await.expect(200);
    let signal = json!({ "job": approval, "name": "approved", "dedup": "2", "payload": { "json": 1 } });
    server.post("/worker/v1/signal", json!({ "signals": [signal] })).await.expect(200);
    assert_eq!(audit().await.len(), before + 1);
}
