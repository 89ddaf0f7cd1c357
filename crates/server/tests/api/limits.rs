//! How much one client takes from the others: bodies that arrive slowly, tokens that are guessed, streams.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::TcpStream,
};
use windlass::model::Role;
use windlass_server::Settings;

use crate::{
    client::{Request, read_response},
    events::Stream,
    kit::{self, Database, Running, settings},
};

#[tokio::test]
async fn slow_bodies_take_no_place_of_requests_that_run() {
    let server = Running::with(Database::Sqlite, |settings| {
        (settings.max_requests, settings.request_timeout) = (1, Duration::from_secs(2));
    })
    .await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        let head = format!(
            "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 27\r\n\r\n{{\"kind\":",
            server.address
        );
        stream.write_all(head.as_bytes()).await.expect("written");
        slow.push(stream);
    }
    for _ in 0..3 {
        server.get("/v1/jobs").await.expect(200);
    }
    for mut stream in slow {
        stream.write_all(b"\"echo\",\"input\":1}  ").await.expect("written");
        read_response(&mut BufReader::new(stream)).await.expect(201);
    }
}

#[tokio::test]
async fn tokens_that_are_guessed_are_not_looked_up_for_long() {
    let (dir, engine) = kit::engine(Database::Sqlite).await;
    let [admin, other] = [("admin", Role::Admin), ("other", Role::Viewer)];
    let admin = kit::token(&engine, admin.0, admin.1, &[], &[]).await;
    let other = kit::token(&engine, other.0, other.1, &[], &[]).await;
    let server = Running::on(dir, engine, Settings { login: true, failed_tokens: 1, ..settings() }).await;
    server.send(Request::get("/v1/jobs").token(&admin)).await.expect(200);
    let guess = "windlass_0123456789abcdef_00";
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(server.send(Request::get("/v1/jobs").token(guess)).await.status);
    }
    assert_eq!(statuses[..2], [401, 401], "a burst is looked up");
    assert!(statuses.contains(&429), "{statuses:?}");
    let before = server.engine.store().statements();
    let error = server.send(Request::get("/v1/jobs").token(guess)).await.refused(429, "too_many_requests");
    assert_eq!(server.engine.store().statements(), before, "{error}");
    server.send(Request::get("/v1/jobs").token(&admin)).await.expect(200);
    server.send(Request::get("/v1/jobs").token(&other)).await.refused(429, "too_many_requests");
}

#[tokio::test]
async fn a_client_has_a_limited_number_of_streams() {
    let (dir, engine) = kit::engine(Database::Sqlite).await;
    let token = kit::token(&engine, "viewer", Role::Viewer, &[], &[]).await;
    let trusted_proxies = vec!["127.0.0.1".parse().expect("an address")];
    let settings = Settings { trusted_proxies, max_client_streams: 2, ..settings() };
    let server = Running::on(dir, engine, settings).await;
    let request =
        |path: &str, client: &str| Request::get(path).token(&token).header("x-forwarded-for", client);
    let events = |client: &str| request("/v1/events?queue=default", client);
    let first = Stream::open(&server, events("10.0.0.9")).await;
    let _second = Stream::open(&server, events("10.0.0.9")).await;
    server.send(events("10.0.0.9")).await.refused(429, "too_many_requests");
    let _other = Stream::open(&server, events("10.0.0.10")).await;
    server.send(request("/v1/jobs", "10.0.0.9")).await.expect(200);
    drop(first);
    // The server notices that the connection is closed when it sends something next.
    let id = server.engine.submit(kit::Echo(json!("x"))).await.expect("submitted").id();
    let ended = async {
        loop {
            server.engine.submit(kit::Echo(json!("gate"))).await.expect("submitted");
            let again = request(&format!("/v1/jobs/{id}/result?wait=1ms"), "10.0.0.9");
            if server.send(again).await.status != 429 {
                return;
            }
        }
    };
    tokio::time::timeout(kit::PATIENCE, ended).await.expect("its place is free");
}
