//! Spans at a collector, from two worker processes and from two engines in a program: one trace, with each attempt under the span
//! that submitted it.

mod common;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, OnceLock},
};

use common::{Sandbox, until};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use tracing::Instrument;
use tracing_subscriber::{Layer, filter::LevelFilter, prelude::*};
use windlass::prelude::*;

const TRACE: &str = "00-11112222333344445555666677778888-aaaabbbbccccdddd-01";

/// A span as the collector received it.
#[derive(Clone, Debug)]
struct Span {
    trace_id: String,
    span_id: String,
    parent: String,
    name: String,
    attributes: BTreeMap<String, String>,
    error: bool,
    service: String,
}

/// A collector on this machine that keeps the spans it receives.
fn collector() -> (SocketAddr, Arc<Mutex<Vec<Span>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let (addr, spans) = (listener.local_addr().expect("bound"), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&spans);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || serve(&client.expect("accepted"), &kept));
        }
    });
    (addr, spans)
}

fn serve(client: &TcpStream, spans: &Mutex<Vec<Span>>) {
    let mut reader = BufReader::new(client);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).expect("a line") == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
            head += &line;
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body");
        spans.lock().expect("not poisoned").extend(read(&body));
        let mut writer = client;
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("answered");
    }
}

/// The fields of a protobuf message by number: length-delimited ones, and varints.
type Fields<'a> = (Vec<(u64, &'a [u8])>, Vec<(u64, u64)>);

fn fields(mut bytes: &[u8]) -> Fields<'_> {
    fn number(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = bytes.split_first().expect("a complete number");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let (mut texts, mut numbers) = (Vec::new(), Vec::new());
    while !bytes.is_empty() {
        let tag = number(&mut bytes);
        match tag & 7 {
            0 => numbers.push((tag >> 3, number(&mut bytes))),
            1 => bytes = &bytes[8..],
            2 => {
                let length = number(&mut bytes) as usize;
                texts.push((tag >> 3, &bytes[..length]));
                bytes = &bytes[length..];
            }
            5 => bytes = &bytes[4..],
            other => panic!("wire type {other}"),
        }
    }
    (texts, numbers)
}

fn all(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    fields(bytes).0.into_iter().filter(|(field, _)| *field == number).map(|(_, bytes)| bytes).collect()
}

fn first(bytes: &[u8], number: u64) -> &[u8] {
    all(bytes, number).first().copied().unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names and values of attributes; numbers as text.
fn attributes(pairs: Vec<&[u8]>) -> BTreeMap<String, String> {
    let value = |value: &[u8]| match fields(value) {
        (texts, _) if !texts.is_empty() => text(texts[0].1),
        (_, numbers) => numbers.first().map(|(_, number)| number.to_string()).unwrap_or_default(),
    };
    pairs.into_iter().map(|pair| (text(first(pair, 1)), value(first(pair, 2)))).collect()
}

/// The spans of an export request.
fn read(body: &[u8]) -> Vec<Span> {
    let mut spans = Vec::new();
    for resource in all(body, 1) {
        let service = attributes(all(first(resource, 1), 1)).remove("service.name").unwrap_or_default();
        for span in all(resource, 2).into_iter().flat_map(|scope| all(scope, 2)) {
            spans.push(Span {
                trace_id: hex(first(span, 1)),
                span_id: hex(first(span, 2)),
                parent: hex(first(span, 4)),
                name: text(first(span, 5)),
                attributes: attributes(all(span, 9)),
                error: fields(first(span, 15)).1.contains(&(3, 2)),
                service: service.clone(),
            });
        }
    }
    spans
}

#[test]
fn two_processes_send_one_trace() {
    let sandbox = Sandbox::new();
    let (addr, spans) = collector();
    let url = format!("http://{addr}");
    let parents = sandbox.worker(&["--queue", "default", "--otlp", &url, "--log", "error"]);
    let mut command = sandbox.command(&["worker", "--queue", "other"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    let children = sandbox.start_worker(command);
    let submit =
        ["submit", "exec", r#"{"command": "no such program"}"#, "--queue", "other", "--key", "child"];
    let exec = serde_json::json!({ "command": env!("CARGO_BIN_EXE_windlass"), "args": submit });
    sandbox.ok(&["submit", "exec", &exec.to_string(), "--trace", TRACE, "--wait"]);
    until("the child has failed", || (sandbox.count("failed") == 1).then_some(()));
    // No wait for the next export: a worker that stops sends its buffered spans.
    for worker in [parents, children] {
        worker.signal(rustix::process::Signal::TERM);
        let (code, log) = worker.wait();
        assert!(
            code == 0 && !log.contains("panicked") && !log.contains("spans did not reach"),
            "{code} {log}"
        );
    }

    let spans = spans.lock().expect("not poisoned").clone();
    let of = |queue: &str| {
        let found = spans.iter().filter(|span| span.attributes.get("queue").is_some_and(|q| q == queue));
        found.cloned().collect::<Vec<Span>>()
    };
    let ([parent], [child]) = (&of("default")[..], &of("other")[..]) else { panic!("{spans:#?}") };
    for span in [parent, child] {
        assert_eq!((span.name.as_str(), span.service.as_str()), ("attempt", "windlass"));
        assert_eq!(
            (&*span.trace_id, &*span.attributes["kind"]),
            ("11112222333344445555666677778888", "exec")
        );
    }
    assert_eq!(parent.parent, "aaaabbbbccccdddd", "under the trace that was submitted with the job");
    assert_eq!(child.parent, parent.span_id, "under the attempt that submitted it");
    assert_ne!(parent.attributes["worker"], child.attributes["worker"]);
    assert_eq!((&*parent.attributes["outcome"], parent.error), ("done", false));
    assert_eq!((&*child.attributes["outcome"], child.error), ("failed", true));
    assert!(child.attributes["error"].contains("was not found"), "{child:?}");
}

#[test]
fn an_unreachable_collector_does_not_affect_jobs() {
    let sandbox = Sandbox::new();
    let gone = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound");
    let worker = sandbox.worker(&["--otlp", &format!("http://{gone}")]);
    sandbox.ok(&["submit", "noop", "--wait"]);
    worker.signal(rustix::process::Signal::TERM);
    let (code, log) = worker.wait();
    assert!(code == 0 && !log.contains("panicked"), "{log}");
    let error = sandbox.fails(&["worker", "--otlp", "nonsense"]);
    assert!(error.contains("\"nonsense\"") && error.contains("use http://HOST:PORT"), "{error}");
}

static ENGINE: OnceLock<Engine> = OnceLock::new();

/// Submits a child, which another engine runs.
#[derive(Serialize, Deserialize)]
struct Parent;

impl Task for Parent {
    const KIND: &'static str = "parent";
    type Output = JobId;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<JobId, Failure> {
        Ok(ENGINE.get().expect("set").submit(Child).await?.id())
    }
}

#[derive(Serialize, Deserialize)]
struct Child;

impl Task for Child {
    const KIND: &'static str = "child";
    const QUEUE: &'static str = "other";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submit_carries_the_current_span() {
    let (addr, spans) = collector();
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_http();
    let exporter = exporter.with_endpoint(format!("http://{addr}/v1/traces")).build().expect("built");
    let provider =
        opentelemetry_sdk::trace::SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // The other tests here run processes of their own.
    tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO)).init();

    let sandbox = Sandbox::new();
    let url = format!("sqlite://{}", sandbox.path("work.db").display());
    let engine = Engine::builder(&url).task::<Parent>().start().await.expect("started");
    assert!(ENGINE.set(engine.clone()).is_ok());
    let other = Engine::builder(&url).task::<Child>().queue("other", Pool::slots(1));
    let other = other.start().await.expect("started");
    let request = tracing::info_span!("request");
    let job = async { engine.submit(Parent).await.expect("submitted") }.instrument(request).await;
    let child = job.result().await.expect("done");
    other.result::<()>(child).await.expect("done");
    engine.stop().await;
    other.stop().await;
    tokio::task::spawn_blocking(move || provider.shutdown().expect("sent")).await.expect("sent");

    let spans = spans.lock().expect("not poisoned").clone();
    let one = |matches: &dyn Fn(&Span) -> bool| {
        spans.iter().find(|span| matches(span)).unwrap_or_else(|| panic!("{spans:#?}"))
    };
    let attempt = |kind: &str| one(&|span| span.attributes.get("kind").is_some_and(|k| k == kind));
    let (request, parent, child) = (one(&|span| span.name == "request"), attempt("parent"), attempt("child"));
    assert_eq!((&parent.parent, &child.parent), (&request.span_id, &parent.span_id));
    assert_eq!((&parent.trace_id, &child.trace_id), (&request.trace_id, &request.trace_id));
    assert_eq!(child.attributes["trace"], request.trace_id);
}
