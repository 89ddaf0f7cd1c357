//! What idle streams of events cost a server: memory, and statements of its database.

#![cfg(target_os = "linux")]

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use common::{Sandbox, Worker};
use windlass_testpg::Cluster;

/// The most that a server may grow with 2,000 idle streams, in kilobytes.
const MOST: u64 = 100 << 10;
const STREAMS: u64 = 2_000;
/// The most statements that all streams together may cost in a second.
const MOST_STATEMENTS: f64 = 2.0;
/// How long statements are counted.
const WATCH: Duration = Duration::from_secs(6);

#[test]
fn a_few_hundred_idle_streams_cost_little_memory_and_few_statements() {
    idle_streams(300);
}

#[test]
#[ignore = "opens 2,000 connections; ./test full runs it"]
fn two_thousand_idle_streams_cost_less_than_100_mb_and_two_statements_a_second() {
    idle_streams(STREAMS);
}

/// Opens streams, and compares the memory and the statements of the server with those before.
fn idle_streams(count: u64) {
    allow_open_files(count + 500);
    let cluster =
        Cluster::builder().preload("pg_stat_statements").setting("pg_stat_statements.track_utility", "off");
    let cluster = cluster.start().expect("PostgreSQL");
    cluster.sql("windlass", "create extension pg_stat_statements").expect("created");
    let sandbox = Sandbox::on_postgres(&cluster);
    sandbox.ok(&["submit", "noop"]);
    let args = ["serve", "--listen", "127.0.0.1:0", "--no-work", "--rate", "0"];
    let server = sandbox.spawn_worker(sandbox.command(&args));
    let address = server.greeting.split("http://").nth(1).and_then(|rest| rest.split([',', '\n']).next());
    let address = address.unwrap_or_else(|| panic!("no address: {:?}", server.greeting)).to_owned();
    // What the server does without any stream: it renews its lease and reads gates.
    let alone = statements_per_second(&cluster);
    // What the first requests allocate is no cost of the others.
    let first: Vec<Stream> = (0..10).map(|_| Stream::open(&address)).collect();
    let before = memory(&server);
    let mut streams: Vec<Stream> = (0..count).map(|_| Stream::open(&address)).collect();
    let grown = memory(&server).saturating_sub(before);
    let statements = statements_per_second(&cluster) - alone;
    println!("{count} streams: {grown} kB, {statements:.2} statements a second beside {alone:.2}");
    assert!(grown < MOST * count / STREAMS, "{count} streams take {grown} kB");
    assert!(statements <= MOST_STATEMENTS, "{count} streams cost {statements} statements a second");
    // All of them live.
    sandbox.ok(&["submit", "noop"]);
    for stream in streams.iter_mut() {
        stream.until_gate();
    }
    drop((first, streams));
}

/// How many statements the database answers in a second. What is awaited is time itself: the rate of an idle server.
fn statements_per_second(cluster: &Cluster) -> f64 {
    let count = || -> f64 {
        let sql = "select sum(calls) from pg_stat_statements where query not like '%pg_stat_statements%'";
        cluster.sql("windlass", sql).expect("counted").trim().parse().expect("a number")
    };
    let (before, started) = (count(), Instant::now());
    std::thread::sleep(WATCH);
    (count() - before) / started.elapsed().as_secs_f64()
}

/// The memory of a process that is in use, in kilobytes.
fn memory(process: &Worker) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Lets this process open so many files, as far as it may.
fn allow_open_files(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).expect("more open files");
    }
}

/// An open stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    /// Opens one, and reads what is known at its start: the gate of the queue.
    fn open(address: &str) -> Stream {
        let mut stream = TcpStream::connect(address).expect("a connection");
        let request = format!("GET /v1/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("written");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("set");
        let mut stream = Stream(BufReader::with_capacity(512, stream));
        assert!(stream.line().starts_with("HTTP/1.1 200"), "the stream is open");
        stream.until_gate();
        stream
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).expect("a line");
        assert_ne!(read, 0, "the stream ended");
        line
    }

    /// Reads up to the next event of a gate.
    fn until_gate(&mut self) {
        while !self.line().starts_with("event: gate") {}
    }
}
