//! Metrics of an engine, and the HTTP server that serves them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Mutex,
    time::Instant,
};

use windlass::{
    Builder, Config,
    env::IdSource,
    model::{ClaimNo, Epoch, JobClaim},
    prelude::*,
    store::{ClaimRequest, NewWorker},
};
use windlass_testpg::Cluster;

use crate::common::{postgres_on, until};

crate::on_both_stores!(
    every_event_is_counted,
    the_metrics_show_the_jobs_of_each_queue,
    the_metrics_show_what_waits_for_keys_and_limits,
    a_dead_worker_is_counted,
    the_metrics_show_a_blocked_slot,
);

/// What a test task does.
#[derive(Serialize, Deserialize, Clone)]
enum Act {
    Return,
    FailOnce,
    Stop,
    Cancel,
    Sleep(u64),
    Block(u64),
    /// Blocks its thread until the test of this name unblocks it.
    BlockUntil(String),
}

/// The tests that have unblocked their attempts.
static UNBLOCKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

#[derive(Serialize, Deserialize, Clone)]
struct Do(Act);

impl Task for Do {
    const KIND: &'static str = "do";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        match self.0 {
            Act::FailOnce if cx.attempt() == 1 => Err(Failure::retry("not yet")),
            Act::Return | Act::FailOnce => Ok(()),
            Act::Stop => Err(Failure::stop("broken")),
            Act::Cancel => Err(Failure::cancel("no longer wanted")),
            Act::Sleep(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(())
            }
            Act::Block(ms) => {
                std::thread::sleep(Duration::from_millis(ms));
                Ok(())
            }
            Act::BlockUntil(test) => {
                while !UNBLOCKED.lock().expect("unpoisoned").contains(&test) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(())
            }
        }
    }

    fn retry() -> Retry {
        Retry::times(3).backoff(Duration::from_millis(1), Duration::from_millis(1))
    }
}

fn engine(url: &str) -> Builder {
    Engine::builder(url).task::<Do>()
}

/// A page of metrics, parsed as Prometheus does. Panics if it is not well-formed.
struct Page(BTreeMap<String, f64>);

impl Page {
    fn read(text: &str) -> Page {
        let (mut types, mut helped) = (BTreeMap::new(), BTreeSet::new());
        let mut samples = BTreeMap::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').expect("words");
                assert!(!words.is_empty() && helped.insert(name), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a type");
                assert!(helped.contains(name) && types.insert(name, kind).is_none(), "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let name = series.split('{').next().expect("a name");
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                    name.strip_suffix(end).filter(|family| types.get(family) == Some(&"histogram"))
                });
                assert!(types.contains_key(family.unwrap_or(name)), "{line}: no family");
                let value: f64 = value.parse().expect("a number");
                assert!(value.is_finite() && value >= 0.0, "{line}");
                assert!(samples.insert(series.to_owned(), value).is_none(), "{line}: twice");
            }
        }
        Page(samples).checked(&types)
    }

    /// Checks that buckets are cumulative and that the last one is the count.
    fn checked(self, types: &BTreeMap<&str, &str>) -> Page {
        for family in types.iter().filter(|(_, kind)| **kind == "histogram").map(|(name, _)| name) {
            let counts = self.0.iter().filter(|(series, _)| series.starts_with(&format!("{family}_count")));
            for (series, count) in counts {
                let labels = series[family.len() + "_count".len()..].trim_matches(['{', '}']);
                let prefix = if labels.is_empty() { String::new() } else { format!("{labels},") };
                let start = format!("{family}_bucket{{{prefix}le=\"");
                let bound = |series: &str| -> Option<f64> {
                    series.strip_prefix(&start)?.strip_suffix("\"}")?.replace("+Inf", "inf").parse().ok()
                };
                let mut buckets: Vec<(f64, f64)> =
                    self.0.iter().filter_map(|(series, count)| Some((bound(series)?, *count))).collect();
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(
                    buckets.len() > 5 && buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1),
                    "{series}"
                );
                assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{series}");
                assert!(self.0.contains_key(&series.replace("_count", "_sum")), "{series}");
            }
        }
        self
    }

    fn get(&self, series: &str) -> f64 {
        let series = format!("windlass_{series}");
        *self.0.get(&series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.0.keys()))
    }

    fn has(&self, start: &str) -> bool {
        self.0.keys().any(|series| series.starts_with(&format!("windlass_{start}")))
    }
}

async fn page(engine: &Engine) -> Page {
    Page::read(&engine.metrics().await)
}

async fn every_event_is_counted(url: &str) {
    let config = Config { drain: Duration::from_millis(50), name: "a \"name\"".into(), ..Config::default() };
    let engine = engine(url).queue("default", Pool::slots(4)).config(config).open().await.expect("opened");
    for act in [Act::Return, Act::Return, Act::FailOnce, Act::Stop, Act::Cancel] {
        engine.submit(Do(act)).await.expect("submitted");
    }
    engine.start().await.expect("started");
    until("all have ended", async || engine.counts().committed == 6).await;
    // Claimed at submit.
    let running = engine.submit(Do(Act::Sleep(60_000))).await.expect("submitted");
    until("it runs", async || engine.counts().started == 7).await;
    let running_page = page(&engine).await;
    assert_eq!(running_page.get("slots{queue=\"default\"}"), 4.0);
    assert_eq!(running_page.get("slots_running{queue=\"default\"}"), 1.0);
    assert_eq!(running_page.get("slots_lost{queue=\"default\"}"), 0.0);
    assert_eq!(running_page.get("buffered{queue=\"default\"}"), 0.0);
    assert_eq!((running_page.get("lease_held"), running_page.get("store_up")), (1.0, 1.0));
    let worker = engine.worker().await.expect("it works");
    let info = format!("worker_info{{worker=\"{worker}\",name=\"a \\\"name\\\"\",version=");
    assert!(running_page.has(&info), "{:?}", running_page.0.keys());

    // Released from outside while it runs: its outcome is too late.
    let taken = engine.submit(Do(Act::Sleep(300))).await.expect("submitted");
    until("it runs", async || engine.counts().started == 8).await;
    let (job, epoch) = (taken.id(), Epoch(0));
    let claims: Vec<_> = (1..100).map(|n| JobClaim { worker, claim: ClaimNo(n), job, epoch }).collect();
    assert_eq!(engine.store().release(None, &claims).await.expect("released"), 1);
    until("it is fenced", async || engine.counts().fenced == 1).await;
    engine.stop().await;

    let documented = include_str!("../../../../docs/telemetry.md");
    for name in
        engine.metrics().await.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
    {
        assert!(documented.contains(&format!("`{name}")), "{name} is not in docs/telemetry.md");
    }
    let end = page(&engine).await;
    let outcome = |word: &str| end.get(&format!("outcomes_total{{kind=\"do\",outcome=\"{word}\"}}"));
    assert_eq!((outcome("retry"), outcome("failed"), outcome("cancelled")), (1.0, 1.0, 1.0));
    assert!(outcome("done") >= 4.0 && outcome("given_up") >= 1.0, "{:?}", end.0);
    let all: f64 = ["done", "retry", "failed", "cancelled", "given_up"].into_iter().map(outcome).sum();
    assert_eq!(all, end.get("started_total"));
    assert_eq!(end.get("attempt_seconds_count{kind=\"do\"}"), all);
    assert!(end.get("claims_total") >= 1.0 && end.get("claimed_total") >= 8.0);
    assert_eq!(end.get("claim_seconds_count"), end.get("claims_total"));
    assert_eq!(end.get("queue_wait_seconds_count{queue=\"default\"}"), end.get("claimed_total"));
    assert!(end.get("commits_total") >= 1.0 && end.get("committed_total") >= 6.0);
    assert_eq!(end.get("commit_batch_size_sum"), end.get("committed_total") + end.get("fenced_total"));
    assert_eq!(end.get("commit_seconds_count"), end.get("commits_total"));
    assert_eq!((end.get("fenced_total"), end.get("refused_total")), (1.0, 0.0));
    assert!(end.get("released_total") >= 1.0, "attempts that were given up are released");
    assert_eq!(end.get("store_errors_total{verb=\"commit\"}"), 0.0);
    assert_eq!(end.get("lease_held"), 0.0, "it has stopped");
    let seen = engine.inspect().job(running.id()).await.expect("read").expect("the job exists");
    assert_eq!(seen.summary.state, windlass::State::Ready);
}

async fn the_metrics_show_what_waits_for_keys_and_limits(url: &str) {
    let engine = engine(url).open().await.expect("opened");
    let limit = windlass::RateLimit::per("api", 1, Duration::from_secs(3_600)).burst(5);
    engine.control("ada").set_limit(limit).await.expect("set");
    for n in 0..4 {
        engine.submit(Do(Act::Return)).serial("k").await.expect("submitted");
        engine.submit(Do(Act::Return)).serial(format!("free {n}")).await.expect("submitted");
        engine.submit(Do(Act::Return)).rate("api").await.expect("submitted");
    }
    let page = Page::read(&engine.metrics().await);
    assert_eq!((page.get("serial_keys_contended"), page.get("serial_waiting")), (1.0, 3.0));
    assert_eq!(page.get("limit_waiting{limit=\"api\"}"), 4.0);
    assert_eq!(page.get("limit_tokens{limit=\"api\"}"), 5.0);
}

async fn the_metrics_show_the_jobs_of_each_queue(url: &str) {
    let engine = engine(url).open().await.expect("opened");
    engine.submit(Do(Act::Return)).queue("no\"body").await.expect("submitted");
    engine.submit(Do(Act::Return)).delay(Duration::from_secs(600)).await.expect("submitted");
    tokio::time::sleep(Duration::from_millis(50)).await;
    // An engine that has not started has only metrics of the store.
    let submits = page(&engine).await;
    assert!(!submits.has("slots") && !submits.has("claims_total"));
    assert_eq!(submits.get("jobs{queue=\"no\\\"body\",state=\"ready\"}"), 1.0);
    assert!((0.05..60.0).contains(&submits.get("oldest_ready_seconds{queue=\"no\\\"body\"}")));
    assert_eq!(submits.get("jobs{queue=\"default\",state=\"scheduled\"}"), 1.0);
    assert_eq!(submits.get("oldest_ready_seconds{queue=\"default\"}"), 0.0);
    let before = engine.store().statements();
    for _ in 0..20 {
        page(&engine).await;
    }
    assert_eq!(engine.store().statements(), before, "a sample is kept for a while");

    let other = Engine::builder(url).task::<Do>().queue("idle", Pool::slots(3));
    let other = other.start().await.expect("started");
    let served = page(&other).await;
    assert_eq!(
        served.get("jobs{queue=\"idle\",state=\"running\"}"),
        0.0,
        "a queue without jobs is shown too"
    );
    assert_eq!(
        served.get("jobs{queue=\"no\\\"body\",state=\"ready\"}"),
        1.0,
        "and one that no worker serves"
    );
    other.stop().await;
}

async fn a_dead_worker_is_counted(url: &str) {
    let config = Config {
        lease: Duration::from_secs(2),
        renew_every: Duration::from_millis(200),
        ..Config::default()
    };
    let engine = engine(url).config(config).open().await.expect("opened");
    engine.submit(Do(Act::Return)).await.expect("submitted");
    // A worker that claims and does not renew its lease.
    let id = IdSource::default().worker();
    let dead = NewWorker {
        id,
        name: "dead".into(),
        liveness_file: None,
        lease: Duration::from_secs(1),
        serves: Vec::new(),
        token: None,
    };
    assert!(engine.store().register_worker(None, &dead).await.expect("registered"));
    let kinds = engine.kinds().into();
    let (number, queue) = (ClaimNo(1), "default".into());
    let request =
        ClaimRequest { worker: id, number, queue, kinds, limit: 1, solo: false, only: None, settled: vec![] };
    assert_eq!(engine.store().claim(None, &request).await.expect("claimed").jobs.len(), 1);
    engine.start().await.expect("started");
    until("it is reaped", async || engine.counts().reaped == 1).await;
    let page = page(&engine).await;
    assert_eq!((page.get("reaped_total"), page.get("dead_workers_total")), (1.0, 1.0));
    engine.stop().await;
}

async fn the_metrics_show_a_blocked_slot(url: &str) {
    let engine = engine(url).start().await.expect("started");
    let blocked = Do(Act::BlockUntil(url.into()));
    let job = engine.submit(blocked).timeout(Duration::from_millis(50)).retry(Retry::never());
    job.await.expect("submitted").result().await.expect_err("given up");
    assert_eq!(page(&engine).await.get("slots_lost{queue=\"default\"}"), 1.0);
    UNBLOCKED.lock().expect("unpoisoned").insert(url.into());
    let given_up = "outcomes_total{kind=\"do\",outcome=\"given_up\"}";
    until("it returns", async || page(&engine).await.get(given_up) == 1.0).await;
    assert_eq!(page(&engine).await.get("slots_lost{queue=\"default\"}"), 0.0);
    engine.stop().await;
}

/// Sends bytes to a server and returns its answer.
fn send(addr: SocketAddr, request: &[u8]) -> String {
    let mut client = TcpStream::connect(addr).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(15))).expect("set");
    client.write_all(request).expect("sent");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("answered");
    String::from_utf8(answer).expect("text")
}

async fn get(addr: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n");
    tokio::task::spawn_blocking(move || send(addr, request.as_bytes())).await.expect("sent")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_has_two_pages_and_survives_bad_clients() {
    let place = crate::common::sqlite();
    let engine = engine(&place.url).open().await.expect("opened");
    let addr = engine.serve_metrics("127.0.0.1:0").expect("served");
    assert!(get(addr, "/healthz").await.starts_with("HTTP/1.1 503 "), "nothing has started");
    engine.start().await.expect("started");
    assert!(get(addr, "/healthz").await.ends_with("\r\n\r\nok\n"));
    let metrics = get(addr, "/metrics?name=all").await;
    let (head, body) = metrics.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert_eq!(Page::read(body).get("lease_held"), 1.0);

    let big = [b"GET /metrics HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 100_000]].concat();
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(20_000));
    for (request, status) in [
        (&b"GET /other HTTP/1.1\r\n\r\n"[..], "404 "),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 "),
        (b"DELETE /healthz HTTP/1.1\r\n\r\n", "405 "),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "400 "),
        (b"\xff\xfe\xfd\r\n\r\n", "400 "),
        (b"GET\r\n\r\n", "400 "),
        (b"\r\n\r\n", "400 "),
        (b"GET http://elsewhere/metrics HTTP/1.1\r\n\r\n", "400 "),
    ] {
        let answer = send(addr, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer}");
    }
    for request in [big.as_slice(), many.as_bytes()] {
        // The answer may be lost on a client that still sends; what matters is that it ends soon.
        let mut client = TcpStream::connect(addr).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(15))).expect("set");
        let _ = client.write_all(request);
        let mut answer = [0; 12];
        if client.read_exact(&mut answer).is_ok() {
            assert_eq!(&answer, b"HTTP/1.1 400");
        }
    }
    // More than the server takes at once, and none sends a request: they are disconnected in time, and the next is answered.
    let idle: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(addr).expect("connected")).collect();
    let since = Instant::now();
    assert!(get(addr, "/metrics").await.starts_with("HTTP/1.1 200 "));
    assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
    drop(idle);

    let taken = engine.serve_metrics(&addr.to_string()).expect_err("taken").to_string();
    assert!(taken.contains("something else listens there"), "{taken}");
    for bad in ["nonsense", "127.0.0.1", "127.0.0.1:99999", ""] {
        let error = engine.serve_metrics(bad).expect_err("no address").to_string();
        assert!(error.contains("HOST:PORT, like 127.0.0.1:9464"), "{error}");
    }
    engine.stop().await;
    assert!(get(addr, "/healthz").await.starts_with("HTTP/1.1 503 "), "it has stopped");
    drop(engine);
    until("the server has ended", async || TcpStream::connect(addr).is_err()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_a_blocked_program_are_still_served() {
    let place = crate::common::sqlite();
    let engine = engine(&place.url).start().await.expect("started");
    let addr = engine.serve_metrics("127.0.0.1:0").expect("served");
    for _ in 0..4 {
        engine.submit(Do(Act::Block(3_000))).await.expect("submitted");
    }
    until("they run", async || engine.counts().started >= 2).await;
    // Every thread of the runtime is blocked; this thread does not need it.
    let (took, answer) = std::thread::spawn(move || {
        let since = Instant::now();
        (send(addr, b"GET /metrics HTTP/1.1\r\n\r\n"), since.elapsed())
    })
    .join()
    .map(|(answer, took)| (took, answer))
    .expect("sent");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(answer.contains("windlass_store_up 1\n"), "{answer}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_does_not_delay_a_scrape_on_postgres() {
    let cluster =
        tokio::task::spawn_blocking(Cluster::start).await.expect("ran").expect("PostgreSQL is needed");
    let place = postgres_on(&cluster);
    let engine = engine(&place.url).start().await.expect("started");
    let addr = engine.serve_metrics("127.0.0.1:0").expect("served");
    let mut cluster = tokio::task::spawn_blocking(move || {
        let mut cluster = cluster;
        cluster.kill().expect("killed");
        cluster
    })
    .await
    .expect("killed");
    let since = Instant::now();
    let answer = get(addr, "/metrics").await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let down = Page::read(answer.split_once("\r\n\r\n").expect("a head").1);
    assert_eq!((down.get("store_up"), down.has("jobs"), down.has("oldest")), (0.0, false, false));
    assert_eq!(down.get("slots{queue=\"default\"}"), 64.0, "the metrics of this process are shown");
    until("calls have failed", async || {
        let answer = get(addr, "/metrics").await;
        Page::read(answer.split_once("\r\n\r\n").expect("a head").1).get("store_errors_total{verb=\"gate\"}")
            > 0.0
    })
    .await;
    cluster = tokio::task::spawn_blocking(move || {
        cluster.restart().expect("restarted");
        cluster
    })
    .await
    .expect("restarted");
    until("it is up again", async || get(addr, "/metrics").await.contains("windlass_store_up 1\n")).await;
    engine.stop().await;
    drop(cluster);
}
