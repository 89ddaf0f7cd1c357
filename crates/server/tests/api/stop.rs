//! A graceful stop.

use serde_json::json;
use tokio::net::TcpStream;

use crate::{
    client::Request,
    events::Stream,
    kit::{Database, Running},
    on_both,
};

on_both! {
    a_stop_ends_streams_and_waiting_requests_with_an_answer
}

async fn a_stop_ends_streams_and_waiting_requests_with_an_answer(database: Database) {
    let mut server = Running::with(database, |settings| settings.max_streams = 2).await;
    let id = server.echo("x").await;
    let mut stream = Stream::open(&server, Request::get("/v1/events?queue=default")).await;
    stream.next_named("gate").await;
    let idle = TcpStream::connect(server.address).await.expect("a connection");
    let (address, path) = (server.address, format!("/v1/jobs/{id}/result"));
    let wait = Request::get(&format!("{path}?wait=60s"));
    let waiting = tokio::spawn(async move {
        loop {
            // Both places may be taken for a moment: see below.
            let answer = wait.send(address).await;
            if answer.status != 503 {
                return answer;
            }
        }
    });
    // The request waits as soon as both places are taken.
    let probe = format!("{path}?wait=1us");
    while server.get(&probe).await.status != 503 {}
    server.request_stop();
    let last = stream.next_named("stop").await;
    assert!(last.data["why"].is_string());
    assert!(stream.next().await.is_none(), "the stream ends");
    let answer = waiting.await.expect("an answer");
    assert_eq!(answer.expect(202), json!({ "job": id, "state": "ready" }));
    server.stopped().await;
    drop(idle);
    assert!(TcpStream::connect(address).await.is_err(), "nothing listens");
    assert!(
        server.engine.inspect().job(id.parse().expect("an id")).await.expect("the store is open").is_some()
    );
}
