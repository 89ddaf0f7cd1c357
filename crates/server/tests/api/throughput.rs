//! What ended, and usual waits.

use serde_json::json;
use windlass::model::Role;
use windlass_server::Settings;

use crate::{
    client::Request,
    kit::{self, Database, Running, settings},
    on_both,
};

on_both! {
    throughput_is_answered_by_time_and_by_kind
    usual_waits_are_answered_by_kind_and_signal
    a_scoped_token_sees_the_throughput_of_its_jobs
}

async fn throughput_is_answered_by_time_and_by_kind(database: Database) {
    let server = Running::working(database).await;
    for n in 0..5 {
        let id = server.echo(&n.to_string()).await;
        server.get(&format!("/v1/jobs/{id}/result?wait=10s")).await.expect(200);
    }
    let by_time = server.get("/v1/throughput").await.expect(200);
    let total = &by_time["total"];
    assert_eq!((&total["done"], &total["failed"], &total["retried"]), (&json!(5), &json!(0), &json!(0)));
    assert_eq!((&total["wait"]["count"], &total["run"]["count"]), (&json!(5), &json!(5)));
    assert!(total["run"]["p95_seconds"].is_number(), "{by_time}");
    assert_eq!(by_time["rows"][0]["minutes"], 1);
    let by_kind = server.get("/v1/throughput?by=kind&kind=echo,other&since=2h").await.expect(200);
    let row = &by_kind["rows"][0];
    assert_eq!((&row["queue"], &row["kind"], &row["done"]), (&json!("default"), &json!("echo"), &json!(5)));
    assert_eq!(server.get("/v1/throughput?queue=other").await.expect(200)["rows"], json!([]));
    for bad in ["by=year", "since=0s", "since=400d", "since=soon", "what=1"] {
        server.get(&format!("/v1/throughput?{bad}")).await.refused(400, "invalid");
    }
    server.engine.stop().await;
}

async fn usual_waits_are_answered_by_kind_and_signal(database: Database) {
    let server = Running::working(database).await;
    let id = server.submit(json!({ "kind": "approval", "input": {} })).await;
    while server.get(&format!("/v1/jobs/{id}")).await.expect(200)["state"] != "waiting" {
        tokio::task::yield_now().await;
    }
    server.post(&format!("/v1/jobs/{id}/signals/approved"), json!({ "payload": "Ada" })).await.expect(200);
    let waits = server.get("/v1/signal-waits").await.expect(200);
    assert_eq!((&waits[0]["kind"], &waits[0]["signal"]), (&json!("approval"), &json!("approved")));
    assert_eq!((&waits[0]["arrived"]["count"], &waits[0]["timed_out"]), (&json!(1), &json!(0)));
    assert_eq!(server.get("/v1/signal-waits?kind=echo").await.expect(200), json!([]));
    assert_eq!(server.get("/v1/signal-waits?signal=other&since=1d").await.expect(200), json!([]));
    server.engine.stop().await;
}

async fn a_scoped_token_sees_the_throughput_of_its_jobs(database: Database) {
    let (dir, engine) = kit::engine(database).await;
    kit::token(&engine, "first", Role::Admin, &[], &[]).await;
    let server = Running::on(dir, engine, Settings { login: true, ..settings() }).await;
    let admin = server.token("admin", Role::Admin, &[], &[]).await;
    let [echoes, others] = [
        server.token("echoes", Role::Viewer, &["echo"], &[]).await,
        server.token("others", Role::Viewer, &[], &["other"]).await,
    ];
    let job = Request::post("/v1/jobs", &json!({ "kind": "echo", "input": 1 })).token(&admin);
    let id = server.send(job).await.expect(201)["id"].as_str().expect("an id").to_owned();
    let cancel = Request::post(&format!("/v1/jobs/{id}/cancel"), &json!({})).token(&admin);
    server.send(cancel).await.expect(200);
    let get = |path: &str, token: &str| server.send(Request::get(path).token(token));
    for (token, cancelled) in [(&admin, 1), (&echoes, 1), (&others, 0)] {
        let seen = get("/v1/throughput", token).await.expect(200);
        assert_eq!(seen["total"]["cancelled"], cancelled, "{seen}");
    }
    get("/v1/throughput?kind=other", &echoes).await.refused(403, "forbidden");
    get("/v1/throughput?queue=default", &others).await.refused(403, "forbidden");
    get("/v1/signal-waits", &others).await.refused(403, "forbidden");
    get("/v1/signal-waits", &echoes).await.expect(200);
}
