//! Submitting jobs, reading them and acting on them.

use serde_json::{Value, json};

use crate::{
    client::Request,
    kit::{Database, Running},
    on_both,
};

on_both! {
    a_job_is_submitted_once_however_often_it_is_sent
    many_jobs_have_an_answer_each
    a_result_is_waited_for
    a_failed_job_says_why
    lists_are_pages_and_unchanged_ones_are_not_sent_again
    one_job_is_shown_with_everything
    actions_change_jobs_and_are_in_the_audit_log
    bulk_operations_count_before_they_act
    signals_wake_jobs_and_journals_are_pages
}

async fn a_job_is_submitted_once_however_often_it_is_sent(database: Database) {
    let server = Running::new(database).await;
    let id = server.engine.new_id();
    let job = json!({ "kind": "echo", "input": { "a": 1 }, "id": id, "key": "k/1", "tags": ["red"], "priority": -3 });
    let first = server.post("/v1/jobs", job.clone()).await.expect(201);
    assert_eq!(first, json!({ "id": id, "new": true, "differs": false }));
    let again = server.post("/v1/jobs", job.clone()).await.expect(200);
    assert_eq!(again["id"], json!(id));
    let mut other = job.clone();
    other["input"] = json!(2);
    other["key"] = json!(null);
    server.post("/v1/jobs", other).await.refused(409, "conflict");
    let by_key =
        server.post("/v1/jobs", json!({ "kind": "echo", "input": 3, "key": "k/1" })).await.expect(200);
    assert_eq!(by_key, json!({ "id": id, "new": false, "differs": true }));
    for name in [id.to_string(), "echo%2Fk%2F1".into(), "k%2F1".into()] {
        let shown = server.get(&format!("/v1/jobs/{name}")).await.expect(200);
        assert_eq!(
            (&shown["id"], &shown["priority"], &shown["tags"]),
            (&json!(id), &json!(-3), &json!(["red"]))
        );
    }
}

async fn many_jobs_have_an_answer_each(database: Database) {
    let server = Running::new(database).await;
    let mut jobs: Vec<Value> = (0..50).map(|n| json!({ "kind": "echo", "input": n })).collect();
    jobs.insert(7, json!({ "kind": "", "input": 1 }));
    let answers = server.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect(200);
    let answers = answers["jobs"].as_array().expect("answers");
    assert_eq!(answers.len(), 51);
    assert_eq!(answers[7]["error"]["code"], "invalid");
    assert_eq!(answers.iter().filter(|answer| answer["new"] == true).count(), 50);
    assert_eq!(server.get("/v1/jobs").await.expect(200)["counts"]["ready"], 50);
    let many: Vec<Value> = (0..1_001).map(|n| json!({ "kind": "echo", "input": n })).collect();
    server.post("/v1/jobs/batch", json!({ "jobs": many })).await.refused(400, "invalid");
}

async fn a_result_is_waited_for(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("hello").await;
    let path = format!("/v1/jobs/{id}/result");
    assert_eq!(server.get(&path).await.expect(202), json!({ "job": id, "state": "ready" }));
    let waiting = Request::get(&format!("{path}?wait=60s"));
    let (ended, started) = tokio::join!(server.send(waiting), server.engine.start());
    started.expect("a worker");
    let expected = json!({ "job": id, "state": "done", "output": "hello" });
    assert_eq!(ended.expect(200), expected);
    assert_eq!(server.get(&path).await.expect(200), expected);
    server.get(&format!("{path}?wait=2h")).await.refused(400, "invalid");
    server.engine.stop().await;
}

async fn a_failed_job_says_why(database: Database) {
    let server = Running::working(database).await;
    let id = server.echo("fail").await;
    let ended = server.get(&format!("/v1/jobs/{id}/result?wait=60s")).await.expect(200);
    assert_eq!(
        (&ended["state"], &ended["failure"]["message"]),
        (&json!("failed"), &json!("it was asked to"))
    );
    let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
    assert_eq!(history.as_array().expect("attempts").len(), 1);
    let why = server.get(&format!("/v1/jobs/{id}/why")).await.expect(200);
    assert_eq!(why["state"], "failed");
    server.engine.stop().await;
}

async fn lists_are_pages_and_unchanged_ones_are_not_sent_again(database: Database) {
    let server = Running::new(database).await;
    for n in 0..5 {
        server
            .submit(json!({ "kind": "echo", "input": n, "queue": if n == 0 { "bulk" } else { "default" } }))
            .await;
    }
    let first = server.get("/v1/jobs?limit=2&queue=default").await;
    let etag = first.header("etag").expect("a tag").to_owned();
    let first = first.expect(200);
    assert_eq!(first["jobs"].as_array().expect("jobs").len(), 2);
    assert_eq!(first["counts"]["ready"], 4);
    let before = first["next_before"].as_str().expect("more");
    let second = server.get(&format!("/v1/jobs?limit=2&queue=default&before={before}")).await.expect(200);
    assert_eq!(second["jobs"].as_array().expect("jobs").len(), 2);
    assert_eq!(second["next_before"], json!(null));
    let same = Request::get("/v1/jobs?limit=2&queue=default").header("if-none-match", &etag);
    assert_eq!(server.send(same.clone()).await.expect(304), Value::Null);
    server.echo("new").await;
    server.send(same).await.expect(200);
}

async fn one_job_is_shown_with_everything(database: Database) {
    let server = Running::new(database).await;
    let parent = server.echo("parent").await;
    let child = server.submit(json!({ "kind": "echo", "input": 1, "parent": parent })).await;
    let children = server.get(&format!("/v1/jobs/{parent}/children")).await.expect(200);
    assert_eq!(children["jobs"][0]["id"], json!(child));
    for part in ["why", "history", "transitions", "journal", "children", "branches", "items", "result"] {
        let response = server.get(&format!("/v1/jobs/{parent}/{part}")).await;
        assert!(matches!(response.status, 200 | 202), "{part}: {response:?}");
        let unknown = "/v1/jobs/0199f0c2-6f7a-7000-8000-000000000000";
        server.get(&format!("{unknown}/{part}")).await.refused(404, "not_found");
    }
    let cancelled =
        server.post(&format!("/v1/jobs/{parent}/cancel"), json!({ "children": true })).await.expect(200);
    assert_eq!(cancelled["children"], 1);
    assert_eq!(server.get(&format!("/v1/jobs/{child}")).await.expect(200)["state"], "cancelled");
}

async fn actions_change_jobs_and_are_in_the_audit_log(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    let act = async |verb: &str, body: Value| server.post(&format!("/v1/jobs/{id}/{verb}"), body).await;
    assert_eq!(
        act("pause", json!({ "note": "wait" })).await.expect(200),
        json!({ "outcome": "done", "job": id, "achieved": true })
    );
    assert_eq!(act("pause", json!({})).await.expect(200)["outcome"], "already");
    let resumed = server.send(Request::new("POST", &format!("/v1/jobs/{id}/resume"))).await;
    assert_eq!(resumed.expect(200)["outcome"], "done", "a body may be left out");
    assert_eq!(act("priority", json!({ "priority": 9 })).await.expect(200)["outcome"], "done");
    act("priority", json!({ "priority": 1_000 })).await.refused(400, "invalid");
    assert_eq!(act("cancel", json!({})).await.expect(200)["outcome"], "done");
    act("priority", json!({ "priority": 1 })).await.refused(409, "conflict");
    assert_eq!(act("retry", json!({})).await.expect(200)["outcome"], "done");
    act("fork", json!({ "before": "a", "from_beginning": true })).await.refused(400, "invalid");
    let forked = act("fork", json!({ "from_beginning": true })).await.expect(200);
    assert_eq!(forked["from"], json!(id));
    let audit = server.get(&format!("/v1/audit?subject={id}&limit=1")).await.expect(200);
    let before = &audit["next_before"];
    let older = server.get(&format!("/v1/audit?subject={id}&before={before}")).await.expect(200);
    let entries = older["entries"].as_array().expect("entries");
    let [.., first, submit] = entries.as_slice() else { panic!("two entries: {entries:?}") };
    assert_eq!(
        (&first["author"], &first["action"], &first["note"]),
        (&json!("loopback"), &json!("pause"), &json!("wait"))
    );
    assert_eq!((&submit["author"], &submit["action"]), (&json!("loopback"), &json!("submit")));
}

async fn bulk_operations_count_before_they_act(database: Database) {
    let server = Running::new(database).await;
    for n in 0..120 {
        server.echo(&format!("{n}")).await;
    }
    let bulk = async |body: Value| server.post("/v1/jobs/bulk", body).await;
    bulk(json!({ "action": "cancel", "filter": {} })).await.refused(400, "invalid");
    bulk(json!({ "action": "cancel", "filter": { "kind": "echo" }, "all": true }))
        .await
        .refused(400, "invalid");
    bulk(json!({ "action": "cancel", "filter": { "kind": "echo" }, "priority": 1 }))
        .await
        .refused(400, "invalid");
    let dry =
        bulk(json!({ "action": "cancel", "filter": { "kind": "echo" }, "dry_run": true })).await.expect(200);
    assert_eq!((&dry["matching"], dry["sample"].as_array().map(Vec::len)), (&json!(120), Some(10)));
    assert_eq!(server.get("/v1/jobs").await.expect(200)["counts"]["ready"], 120, "nothing was done");
    let done = bulk(json!({ "action": "cancel", "filter": {}, "all": true })).await.expect(200);
    assert_eq!((&done["done"], &done["interrupted"]), (&json!(120), &json!(false)));
    let pruned =
        server.post("/v1/prune", json!({ "state": "cancelled", "older_than": "0s" })).await.expect(200);
    assert_eq!(pruned["pruned"], 120);
    server.post("/v1/prune", json!({ "state": "ready", "older_than": "0s" })).await.refused(400, "invalid");
}

async fn signals_wake_jobs_and_journals_are_pages(database: Database) {
    let server = Running::working(database).await;
    let id = server.submit(json!({ "kind": "approval", "input": {} })).await;
    let signal = json!({ "payload": "ada", "dedup": "1" });
    let sent = server.post(&format!("/v1/jobs/{id}/signals/approved"), signal.clone()).await.expect(200);
    assert_eq!(sent["delivery"], "delivered");
    let ended = server.get(&format!("/v1/jobs/{id}/result?wait=60s")).await.expect(200);
    assert_eq!(ended["output"], "ada");
    server
        .post(&format!("/v1/jobs/{id}/signals/approved"), json!({ "payload": 1 }))
        .await
        .refused(409, "conflict");
    let first = server.get(&format!("/v1/jobs/{id}/journal?limit=1")).await.expect(200);
    assert_eq!(first["journal"].as_array().map(Vec::len), Some(1));
    let rest = server.get(&format!("/v1/jobs/{id}/journal?after={}", first["next_after"])).await.expect(200);
    assert!(!rest["journal"].as_array().expect("entries").is_empty());
    server.engine.stop().await;
}
