//! Queues, gates, limits, serial keys, schedules, workers, the doctor, probes.

use serde_json::json;

use crate::{
    client::Request,
    kit::{Database, Running},
    on_both,
};

on_both! {
    queues_are_paused_and_their_gates_have_versions
    limits_and_serial_keys_are_set_and_listed
    schedules_are_set_paused_triggered_and_deleted
    the_server_reports_about_itself
}

async fn queues_are_paused_and_their_gates_have_versions(database: Database) {
    let server = Running::new(database).await;
    let gates = async || server.get("/v1/gates?queue=default,other").await.expect(200)["gates"].clone();
    let before = gates().await;
    server.echo("x").await;
    let after = gates().await;
    assert_ne!(before["default"], after["default"], "a ready job moves the gate");
    assert_eq!(before["other"], after["other"]);
    assert_eq!(
        server.post("/v1/queues/default/pause", json!({ "note": "n" })).await.expect(200)["outcome"],
        "done"
    );
    let queues = server.get("/v1/queues").await.expect(200);
    assert_eq!((&queues[0]["name"], &queues[0]["ready"]), (&json!("default"), &json!(1)));
    assert_eq!(queues[0]["paused"]["author"], "loopback");
    assert_eq!(server.post("/v1/queues/default/resume", json!({})).await.expect(200)["outcome"], "done");
    server.get("/v1/gates").await.refused(400, "invalid");
    server.get("/v1/gates?queue=").await.refused(400, "invalid");
}

async fn limits_and_serial_keys_are_set_and_listed(database: Database) {
    let server = Running::new(database).await;
    let put = async |path: &str, body| server.send(Request::new("PUT", path).json(&body)).await;
    assert_eq!(put("/v1/limits/api", json!({ "rate": 5, "per": "1m" })).await.expect(200)["outcome"], "done");
    assert_eq!(
        put("/v1/limits/api", json!({ "rate": 5, "per": "1m" })).await.expect(200)["outcome"],
        "already"
    );
    put("/v1/limits/api", json!({ "rate": 0 })).await.refused(400, "invalid");
    let limits = server.get("/v1/limits").await.expect(200);
    assert_eq!((&limits[0]["name"], &limits[0]["rate"]), (&json!("api"), &json!(5)));
    server.post("/v1/limits/nothing/lift", json!({})).await.refused(404, "not_found");
    assert_eq!(server.post("/v1/limits/api/lift", json!({})).await.expect(200)["outcome"], "done");
    for n in 0..2 {
        server.submit(json!({ "kind": "echo", "input": n, "serial": { "key": "door" } })).await;
    }
    let keys = server.get("/v1/serial-keys").await.expect(200);
    assert_eq!((&keys["keys"][0]["key"], &keys["keys"][0]["waiting"]), (&json!("door"), &json!(1)));
    assert_eq!(put("/v1/serial-keys/door", json!({ "slots": 2 })).await.expect(200)["outcome"], "done");
    assert_eq!(server.get("/v1/serial-keys?key=door").await.expect(200)["keys"][0]["slots"], 2);
}

async fn schedules_are_set_paused_triggered_and_deleted(database: Database) {
    let server = Running::new(database).await;
    let path = "/v1/schedules/nightly";
    let schedule = json!({ "calendar": "every 1 day", "kind": "echo", "input": "x", "overlap": "allow" });
    let set = Request::new("PUT", path).json(&schedule);
    assert_eq!(server.send(set.clone()).await.expect(200)["outcome"], "done");
    assert_eq!(server.send(set).await.expect(200)["outcome"], "already");
    let wrong = json!({ "calendar": "when I say so", "kind": "echo" });
    server.send(Request::new("PUT", path).json(&wrong)).await.refused(400, "invalid");
    assert_eq!(server.get("/v1/schedules").await.expect(200)[0]["name"], "nightly");
    assert_eq!(server.post(&format!("{path}/pause"), json!({})).await.expect(200)["outcome"], "done");
    assert_eq!(server.post(&format!("{path}/resume"), json!({})).await.expect(200)["outcome"], "done");
    let triggered = server.post(&format!("{path}/trigger"), json!({})).await.expect(200);
    assert_eq!(triggered["outcome"], "created");
    assert_eq!(server.get(path).await.expect(200)["firings"][0]["job"], triggered["why"]);
    assert_eq!(server.send(Request::new("DELETE", path)).await.expect(200)["outcome"], "done");
    server.get(path).await.refused(404, "not_found");
    server.post(&format!("{path}/trigger"), json!({})).await.refused(404, "not_found");
}

async fn the_server_reports_about_itself(database: Database) {
    let server = Running::working(database).await;
    assert_eq!(server.get("/healthz").await.expect(200)["status"], "ok");
    assert_eq!(server.get("/readyz").await.expect(200)["status"], "ok");
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.body.contains("windlass_store_up 1"), "{}", metrics.body);
    assert_eq!(server.get("/v1/workers").await.expect(200)[0]["alive"], true);
    let findings = server.get("/v1/doctor").await.expect(200);
    let of =
        |what: &str| findings.as_array()?.iter().find(|finding| finding["what"] == what)?["verdict"].as_str();
    assert_eq!(
        (of("store"), of("schema"), of("workers")),
        (Some("ok"), Some("ok"), Some("ok")),
        "{findings}"
    );
    server.engine.stop().await;
}
