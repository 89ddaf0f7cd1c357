//! A worker as those who watch it see it: `/metrics`, `/healthz`, and a trace that goes from job to job.

mod common;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use common::{Place, Worker, until};

const TRACE: &str = "00-11112222333344445555666677778888-aaaabbbbccccdddd-01";

/// Where a worker says that its metrics are.
fn metrics_of(worker: &Worker) -> String {
    let (_, rest) = worker.line.split_once("metrics http://").expect(&worker.line);
    rest.trim_end().strip_suffix("/metrics").expect(&worker.line).to_owned()
}

fn get(addr: &str, path: &str) -> String {
    let mut client = TcpStream::connect(addr).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    write!(client, "GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("answered");
    answer
}

#[test]
fn a_worker_serves_its_metrics() {
    let place = Place::new();
    let worker = place.worker(&["--metrics", "127.0.0.1:0", "--queue", "default=3"]);
    let addr = metrics_of(&worker);
    assert!(get(&addr, "/healthz").starts_with("HTTP/1.1 200 "));
    place.ok(&["submit", "noop", "--wait"]);
    let done = "windlass_outcomes_total{kind=\"noop\",outcome=\"done\"} 1\n";
    let page = until("it is counted", || Some(get(&addr, "/metrics")).filter(|page| page.contains(done)));
    assert!(page.contains("windlass_slots{queue=\"default\"} 3\n"), "{page}");
    assert!(page.contains("windlass_store_up 1\n"), "{page}");
    assert!(get(&addr, "/").starts_with("HTTP/1.1 404 "));
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended().0, 0);
    assert!(TcpStream::connect(&addr).is_err(), "it has ended");
}

#[test]
fn the_address_comes_from_the_file_or_the_environment_too() {
    let place = Place::new();
    place.write("windlass.toml", "metrics = '127.0.0.1:0'\n");
    assert!(get(&metrics_of(&place.worker(&[])), "/metrics").starts_with("HTTP/1.1 200 "));
    place.write("windlass.toml", "metrics = 'nonsense'\n");
    let mut command = place.command(&["worker"]);
    command.env("WINDLASS_METRICS", "127.0.0.1:0");
    assert!(get(&metrics_of(&place.start(command)), "/healthz").starts_with("HTTP/1.1 200 "));
    let error = place.bad(&["worker"]);
    assert!(error.contains("\"nonsense\"") && error.contains("like 127.0.0.1:9464"), "{error}");
}

#[test]
fn a_port_that_is_taken_is_an_error_that_says_so() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let error = place.bad(&["worker", "--metrics", &taken.local_addr().expect("bound").to_string()]);
    assert!(error.contains("something else listens there"), "{error}");
}

#[test]
fn a_trace_goes_from_job_to_job() {
    let place = Place::new();
    let _worker = place.worker(&[]);
    let binary = env!("CARGO_BIN_EXE_windlass");
    let exec = serde_json::json!({ "command": binary, "args": ["submit", "noop", "--key", "child"] });
    place.ok(&["submit", "exec", &exec.to_string(), "--trace", TRACE, "--wait"]);
    let child = place.ok(&["submit", "noop", "--key", "child"]);
    let child = child.strip_suffix(" existing\n").expect(&child);
    let told = place.json(&["show", child, "--json"]);
    assert_eq!(told["settings"]["trace"], TRACE, "{told}");
    assert!(place.ok(&["show", child]).contains(TRACE));

    // Not the worker's, nor what is none.
    let mut command = place.command(&["submit", "noop", "--json"]);
    command.env("TRACEPARENT", "garbage");
    let plain: serde_json::Value = serde_json::from_str(&place.end(command).out).expect("JSON");
    let told = place.json(&["show", plain["id"].as_str().expect("an id"), "--json"]);
    assert_eq!(told["settings"], serde_json::json!({}));
    let error = place.bad(&["submit", "noop", "--trace", "garbage"]);
    assert!(error.contains("\"garbage\" is not a traceparent") && error.contains("like 00-"), "{error}");
}
