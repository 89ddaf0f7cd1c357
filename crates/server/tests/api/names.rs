//! Names, kinds, diagrams, and the headers by which a client knows the server and its clock.

use serde_json::json;
use windlass::{Time, model::Role};

use crate::{
    client::Request,
    kit::{Database, Running},
    on_both,
};

on_both! {
    names_are_found_and_missing_jobs_differ_from_missing_paths
    kinds_and_diagrams_are_limited_to_the_scope
    every_answer_has_the_version_and_those_with_ages_the_clock
}

async fn names_are_found_and_missing_jobs_differ_from_missing_paths(database: Database) {
    let server = Running::new(database).await;
    let id = server.submit(json!({ "kind": "echo", "input": 1, "key": "a" })).await;
    let other = server.submit(json!({ "kind": "approval", "input": {}, "key": "a" })).await;
    let find = async |name: &str| server.get(&format!("/v1/find?name={name}")).await;
    assert_eq!(find("echo%2Fa").await.expect(200), json!({ "job": id }));
    assert_eq!(find("approval%2Fa").await.expect(200), json!({ "job": other }));
    let ambiguous = find("a").await.refused(409, "conflict");
    assert!(ambiguous["message"].as_str().expect("a text").contains("echo/a"), "{ambiguous}");
    assert_eq!(find("b").await.refused(404, "not_found")["subject"], json!(null));
    find("a%24b%24c").await.refused(404, "not_found");
    let unknown = "/v1/jobs/0199f0c2-6f7a-7000-8000-000000000000";
    assert_eq!(server.get(unknown).await.refused(404, "not_found")["subject"], "job");
    assert_eq!(
        server.post(&format!("{unknown}/pause"), json!({})).await.refused(404, "not_found")["subject"],
        "job"
    );
    assert_eq!(server.get("/v1/nothing").await.refused(404, "not_found")["subject"], "path");
}

async fn kinds_and_diagrams_are_limited_to_the_scope(database: Database) {
    let server = Running::working(database).await;
    let id = server.submit(json!({ "kind": "approval", "input": {} })).await;
    server.post(&format!("/v1/jobs/{id}/signals/approved"), json!({ "payload": "ada" })).await.expect(200);
    server.get(&format!("/v1/jobs/{id}/result?wait=60s")).await.expect(200);
    let kinds = server.get("/v1/kinds").await.expect(200);
    assert_eq!(kinds, json!([{ "kind": "approval", "version": 1 }, { "kind": "echo", "version": 1 }]));
    let diagram = server.get(&format!("/v1/jobs/{id}/diagram")).await.expect(200);
    assert_eq!((&diagram["kind"], &diagram["workflow"]["jobs"]), (&json!("approval"), &json!(1)));
    let of_kind = server.get("/v1/diagrams?kind=approval").await.expect(200);
    assert_eq!(of_kind["workflows"][0]["graph"], diagram["workflow"]);
    let echo = server.token("echo", Role::Viewer, &["echo"], &[]).await;
    let with = |path: &str| Request::get(path).token(&echo);
    assert_eq!(server.send(with("/v1/kinds")).await.expect(200), json!([{ "kind": "echo", "version": 1 }]));
    server.send(with("/v1/diagrams?kind=echo")).await.expect(200);
    server.send(with("/v1/diagrams?kind=approval")).await.refused(403, "forbidden");
    server.send(with(&format!("/v1/jobs/{id}/diagram"))).await.refused(404, "not_found");
    server.send(with(&format!("/v1/find?name={id}"))).await.refused(404, "not_found");
    let queue = server.token("queue", Role::Viewer, &[], &["bulk"]).await;
    server.send(Request::get("/v1/diagrams?kind=echo").token(&queue)).await.refused(403, "forbidden");
    server.engine.stop().await;
}

async fn every_answer_has_the_version_and_those_with_ages_the_clock(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    for path in
        ["/v1/jobs", "/v1/queues", "/v1/schedules", "/v1/audit", "/v1/tokens", &format!("/v1/jobs/{id}")]
    {
        let response = server.get(path).await;
        assert_eq!(response.header("windlass-version"), Some(env!("CARGO_PKG_VERSION")), "{path}");
        let now: Time = response.header("windlass-now").expect(path).parse().expect("a time");
        let clock = server.engine.inspect().clock().await.expect("a clock");
        assert!(now <= clock && clock - now < crate::kit::PATIENCE, "{path}: {now} and {clock}");
    }
    for refused in [server.get("/nothing").await, server.get("/v1/jobs/nobody").await] {
        assert_eq!(refused.header("windlass-version"), Some(env!("CARGO_PKG_VERSION")));
    }
    // The clock is no part of the answer: an unchanged list is not sent again.
    let first = server.get("/v1/queues").await;
    let same = Request::get("/v1/queues").header("if-none-match", first.header("etag").expect("a tag"));
    assert_eq!(server.send(same).await.status, 304);
}
