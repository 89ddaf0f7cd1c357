//! Requests that are wrong, too large, too slow or too many.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    client::{Request, read_response, send_raw},
    kit::{Database, Running},
};

#[tokio::test]
async fn malformed_bodies_and_unknown_fields_are_refused() {
    let server = Running::new(Database::Sqlite).await;
    for body in [
        "",
        "{",
        "[]",
        "null",
        "1",
        "\"kind\"",
        "{\"kind\":1}",
        "{\"kind\":\"echo\",}",
        "{\"kind\":\"echo\"} {}",
        "\u{0}",
    ] {
        let request = format!(
            "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            server.address,
            body.len()
        );
        send_raw(server.address, request.as_bytes()).await.refused(400, "invalid");
    }
    let wrong = [
        json!({ "kind": "echo", "colour": "red" }),
        json!({ "kind": "echo", "priority": "high" }),
        json!({ "kind": "echo", "priority": 40_000 }),
        json!({ "kind": "echo", "delay": 5 }),
        json!({ "kind": "echo", "attempts": 0 }),
        json!({ "kind": "echo", "delay": "soon" }),
        json!({ "kind": "echo", "id": "7" }),
        json!({ "kind": "echo", "at": "tomorrow" }),
        json!({ "kind": "echo", "serial": { "key": "k", "colour": 1 } }),
        json!({ "kind": "echo", "unique": { "name": "n", "on_conflict": "explode" } }),
        json!({ "kind": "nul\u{0}" }),
        json!({ "kind": "x".repeat(5_000) }),
        json!({ "kind": "approval", "input": [1] }),
    ];
    for job in wrong {
        server.post("/v1/jobs", job).await.refused(400, "invalid");
    }
    let not_utf8 = [b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n".as_slice(), &[0xff, 0xfe]].concat();
    send_raw(server.address, &not_utf8).await.refused(400, "invalid");
    assert_eq!(server.get("/v1/jobs").await.expect(200)["jobs"], json!([]));
}

#[tokio::test]
async fn unknown_and_repeated_parameters_are_refused() {
    let server = Running::new(Database::Sqlite).await;
    for path in [
        "/v1/jobs?colour=red",
        "/v1/jobs?state=blue",
        "/v1/jobs?limit=0",
        "/v1/jobs?limit=1001",
        "/v1/jobs?limit=-1",
        "/v1/jobs?limit=x",
        "/v1/jobs?limit=99999999999999999999",
        "/v1/jobs?kind=a&kind=b",
        "/v1/jobs?before=7",
        "/v1/queues?x=1",
        "/v1/audit?before=x",
        "/v1/gates?queue=a&x=1",
        "/v1/events?x=1",
        "/v1/jobs/%FF",
    ] {
        server.get(path).await.refused(400, "invalid");
    }
}

#[tokio::test]
async fn paths_that_are_tricks_lead_nowhere() {
    let server = Running::new(Database::Sqlite).await;
    for path in [
        "/v1",
        "/v1/",
        "/v1/jobs/",
        "//v1/jobs",
        "/v1//jobs",
        "/v1/jobs/../tokens",
        "/v1/jobs/..%2F..%2Ftokens",
        "/v1/jobs/%2e%2e/tokens",
        "/V1/jobs",
        "/v1/jobs/x/y/z",
        "/v1/jobs/%00",
        "/v1/schedules/..",
    ] {
        let response = server.get(path).await;
        assert!(matches!(response.status, 400 | 404), "{path}: {response:?}");
        assert!(response.json()["code"].is_string(), "{path}");
    }
    server.send(Request::new("DELETE", "/v1/jobs")).await.refused(405, "method_not_allowed");
    server.send(Request::new("TRACE", "/v1/jobs")).await.refused(405, "method_not_allowed");
    let injected = server.get("/v1/jobs/a%0d%0aSet-Cookie:%20x=1").await;
    assert_eq!(injected.header("set-cookie"), None);
    injected.refused(404, "not_found");
}

#[tokio::test]
async fn large_bodies_and_heads_are_refused() {
    let server = Running::with(Database::Sqlite, |settings| settings.body_limit = 1_000).await;
    server
        .post("/v1/jobs", json!({ "kind": "echo", "input": "x".repeat(2_000) }))
        .await
        .refused(413, "too_large");
    // Without a length: in chunks that never end.
    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).await.expect("written");
    for _ in 0..20 {
        if stream.write_all(format!("64\r\n{}\r\n", "x".repeat(100)).as_bytes()).await.is_err() {
            break;
        }
    }
    read_response(&mut BufReader::new(stream)).await.refused(413, "too_large");
    let long = Request::get("/v1/jobs").header("x-long", &"x".repeat(100_000));
    assert_eq!(server.send(long).await.status, 431);
    server.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn slow_bodies_and_heads_are_cut_off() {
    let server =
        Running::with(Database::Sqlite, |settings| settings.read_timeout = Duration::from_millis(50)).await;
    let mut body = TcpStream::connect(server.address).await.expect("a connection");
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        server.address
    );
    body.write_all(head.as_bytes()).await.expect("written");
    read_response(&mut BufReader::new(body)).await.refused(408, "slow_body");
    let mut head = TcpStream::connect(server.address).await.expect("a connection");
    head.write_all(b"GET /v1/jobs HT").await.expect("written");
    let mut rest = Vec::new();
    let closed = tokio::io::AsyncReadExt::read_to_end(&mut head, &mut rest);
    tokio::time::timeout(crate::kit::PATIENCE, closed).await.expect("it is closed").ok();
    assert!(!String::from_utf8_lossy(&rest).contains("200"), "{rest:?}");
    server.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn a_client_that_sends_too_much_is_refused() {
    let server = Running::with(Database::Sqlite, |settings| settings.rate = 1).await;
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(server.get("/v1/jobs").await.status);
    }
    assert_eq!(statuses[..2], [200, 200], "a burst is admitted");
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_order() {
    let server = Running::new(Database::Sqlite).await;
    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    let keep = |path: &str| Request::get(path).header("connection", "keep-alive").to_text(server.address);
    let both = keep("/v1/nothing") + &keep("/healthz");
    stream.write_all(both.as_bytes()).await.expect("written");
    let mut stream = BufReader::new(stream);
    read_response(&mut stream).await.refused(404, "not_found");
    read_response(&mut stream).await.expect(200);
}
