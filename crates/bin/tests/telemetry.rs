//! The telemetry of a worker: `/metrics`, `/healthz`, and traces across jobs.

mod common;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use common::{Sandbox, Worker, until};

const TRACE: &str = "00-11112222333344445555666677778888-aaaabbbbccccdddd-01";

/// The address of a worker's metrics.
fn metrics_of(worker: &Worker) -> String {
    let (_, rest) = worker.greeting.split_once("metrics http://").expect(&worker.greeting);
    rest.trim_end().strip_suffix("/metrics").expect(&worker.greeting).to_owned()
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
    let sandbox = Sandbox::new();
    let worker = sandbox.worker(&["--metrics", "127.0.0.1:0", "--queue", "default=3"]);
    let addr = metrics_of(&worker);
    assert!(get(&addr, "/healthz").starts_with("HTTP/1.1 200 "));
    sandbox.ok(&["submit", "noop", "--wait"]);
    let done = "windlass_outcomes_total{kind=\"noop\",outcome=\"done\"} 1\n";
    let page = until("it is counted", || Some(get(&addr, "/metrics")).filter(|page| page.contains(done)));
    assert!(page.contains("windlass_slots{queue=\"default\"} 3\n"), "{page}");
    assert!(page.contains("windlass_store_up 1\n"), "{page}");
    assert!(get(&addr, "/").starts_with("HTTP/1.1 404 "));
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.wait().0, 0);
    assert!(TcpStream::connect(&addr).is_err(), "it has ended");
}

#[test]
fn the_address_can_be_set_in_the_file_and_in_the_environment() {
    let sandbox = Sandbox::new();
    sandbox.write("windlass.toml", "metrics = '127.0.0.1:0'\n");
    assert!(get(&metrics_of(&sandbox.worker(&[])), "/metrics").starts_with("HTTP/1.1 200 "));
    sandbox.write("windlass.toml", "metrics = 'nonsense'\n");
    let mut command = sandbox.command(&["worker"]);
    command.env("WINDLASS_METRICS", "127.0.0.1:0");
    assert!(get(&metrics_of(&sandbox.start_worker(command)), "/healthz").starts_with("HTTP/1.1 200 "));
    let error = sandbox.fails(&["worker"]);
    assert!(error.contains("\"nonsense\"") && error.contains("like 127.0.0.1:9464"), "{error}");
}

#[test]
fn a_port_that_is_in_use_is_an_error() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let error = sandbox.fails(&["worker", "--metrics", &taken.local_addr().expect("bound").to_string()]);
    assert!(error.contains("something else listens there"), "{error}");
}

#[test]
fn a_trace_continues_in_the_jobs_that_a_job_submits() {
    let sandbox = Sandbox::new();
    let _worker = sandbox.worker(&[]);
    let binary = env!("CARGO_BIN_EXE_windlass");
    let exec = serde_json::json!({ "command": binary, "args": ["submit", "noop", "--key", "child"] });
    sandbox.ok(&["submit", "exec", &exec.to_string(), "--trace", TRACE, "--wait"]);
    let child = sandbox.ok(&["submit", "noop", "--key", "child"]);
    let child = child.strip_suffix(" existing\n").expect(&child);
    let answer = sandbox.json(&["show", child, "--json"]);
    assert_eq!(answer["settings"]["trace"], TRACE, "{answer}");
    assert!(sandbox.ok(&["show", child]).contains(TRACE));

    // An invalid trace in the environment is ignored.
    let mut command = sandbox.command(&["submit", "noop", "--json"]);
    command.env("TRACEPARENT", "garbage");
    let plain: serde_json::Value = serde_json::from_str(&sandbox.finish(command).stdout).expect("JSON");
    let answer = sandbox.json(&["show", plain["id"].as_str().expect("an id"), "--json"]);
    assert_eq!(answer["settings"], serde_json::json!({}));
    let error = sandbox.fails(&["submit", "noop", "--trace", "garbage"]);
    assert!(error.contains("\"garbage\" is not a traceparent") && error.contains("like 00-"), "{error}");
}
