//! Streams of events.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    client::{Request, read_chunk, read_head},
    kit::{Database, PATIENCE, Running},
    on_both,
};

on_both! {
    changes_of_gates_and_ends_of_jobs_are_sent
    a_stream_resumes_after_the_last_event_that_it_saw
    many_idle_streams_share_one_poller
    idle_streams_cost_two_statements_a_second
}

/// An open stream.
pub(crate) struct Stream {
    stream: BufReader<TcpStream>,
    text: String,
}

/// An event as a client sees it.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Stream {
    pub(crate) async fn open(server: &Running, request: Request) -> Stream {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        stream.write_all(request.to_text(server.address).as_bytes()).await.expect("written");
        let mut stream = BufReader::new(stream);
        let head = read_head(&mut stream).await;
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")), "{head:?}");
        Stream { stream, text: String::new() }
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let read = async {
            loop {
                while let Some((event, rest)) = self.text.split_once("\n\n") {
                    let field = |name: &str| {
                        let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                        line.unwrap_or_default().to_owned()
                    };
                    let (id, name, data) = (field("id"), field("event"), field("data"));
                    self.text = rest.to_owned();
                    if !name.is_empty() {
                        return Some(Event { id, name, data: serde_json::from_str(&data).expect("JSON") });
                    }
                }
                let chunk = read_chunk(&mut self.stream).await?;
                self.text += &String::from_utf8(chunk).expect("UTF-8");
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("an event")
    }

    /// The next event of this name.
    pub(crate) async fn next_named(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await.expect("not the end");
            if event.name == name {
                return event;
            }
        }
    }
}

async fn changes_of_gates_and_ends_of_jobs_are_sent(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    let request = Request::get(&format!("/v1/events?queue=default&job={id}"));
    let mut stream = Stream::open(&server, request).await;
    let first = stream.next_named("gate").await;
    assert_eq!(first.data["queue"], "default");
    server.echo("y").await;
    let second = stream.next_named("gate").await;
    assert_ne!(first.data["version"], second.data["version"]);
    server.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.expect(200);
    let ended = stream.next_named("job").await;
    assert_eq!(ended.data, json!({ "job": id, "state": "cancelled" }));
}

async fn a_stream_resumes_after_the_last_event_that_it_saw(database: Database) {
    let server = Running::new(database).await;
    server.echo("x").await;
    let path = "/v1/events?queue=default";
    let mut keeper = Stream::open(&server, Request::get(path)).await;
    let first = keeper.next_named("gate").await;
    // A second client disconnects here, and misses what follows.
    server.echo("y").await;
    let second = keeper.next_named("gate").await;
    let resume = |id: &str| Request::get(path).header("last-event-id", id);
    let mut resumed = Stream::open(&server, resume(&first.id)).await;
    let missed = resumed.next().await.expect("an event");
    assert_eq!((&missed.id, &missed.data), (&second.id, &second.data));
    for unknown in ["0-1", "x", "", &format!("{}0", second.id)] {
        let mut reset = Stream::open(&server, resume(unknown)).await;
        assert_eq!(reset.next().await.expect("an event").name, "reset", "{unknown:?}");
        assert_eq!(reset.next().await.expect("an event").data, second.data, "the gates as they are");
    }
}

async fn many_idle_streams_share_one_poller(database: Database) {
    let server = Running::new(database).await;
    server.echo("x").await;
    let mut streams = Vec::new();
    for _ in 0..200 {
        streams.push(Stream::open(&server, Request::get("/v1/events")).await);
    }
    for stream in &mut streams {
        stream.next_named("gate").await;
    }
    let before = server.engine.store().statements();
    let started = std::time::Instant::now();
    // Three rounds of polls: a new queue is found by its name, and its gate is read after that.
    for n in 0..3 {
        server.submit(json!({ "kind": "echo", "input": n })).await;
        streams[0].next_named("gate").await;
    }
    let polls = started.elapsed().as_secs() + 2;
    let statements = server.engine.store().statements() - before;
    // A submit is a few statements, the same for any number of streams.
    assert!(statements <= 2 * polls + 3 * 12, "{statements} statements in about {polls} seconds");
    for stream in &mut streams[1..] {
        for _ in 0..3 {
            stream.next_named("gate").await;
        }
    }
}

async fn idle_streams_cost_two_statements_a_second(database: Database) {
    let server = Running::new(database).await;
    let job = server.echo("x").await;
    let mut streams = Vec::new();
    // Also of queues in which no job has ever been.
    for path in ["?queue=default", "?queue=default,nobody", &format!("?queue=nowhere&job={job}")] {
        for _ in 0..30 {
            streams.push(Stream::open(&server, Request::get(&format!("/v1/events{path}"))).await);
        }
    }
    streams[0].next_named("gate").await;
    let before = server.engine.store().statements();
    // What is awaited is time itself: the rate of an idle server.
    let started = std::time::Instant::now();
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    let statements = server.engine.store().statements() - before;
    let polls = started.elapsed().as_secs() + 1;
    assert!(statements <= 2 * polls, "{statements} statements in {polls} polls");
    // They are not asleep: each hears of the end of its job, or of the next one in its queue.
    server.post(&format!("/v1/jobs/{job}/cancel"), json!({})).await.expect(200);
    server.echo("y").await;
    for stream in &mut streams[60..] {
        assert_eq!(stream.next_named("job").await.data["state"], "cancelled");
    }
    for stream in &mut streams[..60] {
        stream.next_named("gate").await;
    }
}
