//! Runs every workload of `windlass bench` with few jobs, so that none breaks unnoticed.

mod common;

use common::Sandbox;

/// The workloads that the tests below run. [`every_workload_is_run`] fails if one is missing.
const WORKLOADS: [&str; 17] = [
    "floor",
    "drain",
    "remote",
    "enqueue",
    "latency",
    "idle",
    "serial",
    "rate",
    "schedule",
    "machine",
    "chain",
    "signal",
    "flow",
    "flowchain",
    "replay",
    "fanout",
    "pages",
];

/// Runs a workload on a store. Returns its report.
fn bench(workload: &str, store: &str, n: &str) -> serde_json::Value {
    bench_with(workload, store, n, &[])
}

fn bench_with(workload: &str, store: &str, n: &str, more: &[&str]) -> serde_json::Value {
    assert!(WORKLOADS.contains(&workload), "{workload} is not in WORKLOADS");
    let sandbox = Sandbox::new();
    let mut args = vec!["bench", workload, "--store", store, "--n", n, "--quick", "--json"];
    args.extend(more);
    let report = sandbox.json(&args);
    for key in
        ["workload", "store", "n", "seconds", "per_second", "peak_rss_mb", "lost", "duplicated", "commit"]
    {
        assert!(report.get(key).is_some(), "{workload} lacks {key}: {report}");
    }
    assert_eq!((&report["lost"], &report["duplicated"]), (&0.into(), &0.into()), "{report}");
    report
}

#[test]
fn pages_on_sqlite() {
    let report = bench("pages", "sqlite", "2000");
    let kb = report["html_kb"].as_f64().expect("a number");
    assert!(kb < 60.0, "a page is larger than 60 kB: {report}");
}

fn basic(store: &str) {
    for workload in ["floor", "drain", "remote", "enqueue"] {
        let report = bench(workload, store, "3000");
        assert!(report["per_second"].as_f64().expect("a rate") > 0.0, "{report}");
        assert!(report["floor_per_second"].as_f64().expect("a floor") > 0.0, "{report}");
    }
    let latency = bench("latency", store, "5");
    for key in ["started_p50_ms", "committed_p50_ms", "other_idle_p50_ms", "other_busy_p50_ms"] {
        assert!(latency[key].as_f64().expect(key) > 0.0, "{latency}");
    }
    let idle = bench("idle", store, "0");
    assert!(idle["statements_per_minute"].is_number() && idle["cpu_percent"].is_number(), "{idle}");
}

/// Blocked jobs run in order and one at a time.
fn serial(store: &str) {
    let serial = bench("serial", store, "1000");
    assert_eq!((&serial["fifo"], &serial["at_once"]), (&true.into(), &1.into()), "{serial}");
    assert!(serial["ratio"].is_number() && serial["blocked_per_second"].is_number(), "{serial}");
    if store == "postgres" {
        let ratio = serial["pages_ratio"].as_f64().expect("pages");
        assert!((0.95..=1.05).contains(&ratio), "claims read blocked jobs: {serial}");
    }
}

/// No rate limit is exceeded under load.
fn rate(store: &str) {
    let rate = bench("rate", store, "0");
    assert_eq!(rate["over"], 0, "{rate}");
    assert!((1..=50).contains(&rate["burst_after_stop"].as_u64().expect("a burst")), "{rate}");
    assert!(rate["ratio"].is_number() && rate["ratio_5000"].is_number(), "{rate}");
}

/// Every tick fires once although processes are killed.
fn schedule(store: &str) {
    let schedule = bench("schedule", store, "100");
    assert_eq!(schedule["fired"], schedule["ticks"], "{schedule}");
    assert!(schedule["ticks"].as_u64().expect("ticks") >= 200, "{schedule}");
    assert!(schedule["late_p50_ms"].is_number() && schedule["late_p99_ms"].is_number(), "{schedule}");
}

/// Machines run their steps, and signals reach them.
fn machines(store: &str) {
    let machine = bench_with("machine", store, "50", &["--steps", "3"]);
    assert!(machine["commits_per_step"].as_f64().expect("commits") > 0.0, "{machine}");
    assert_eq!(machine["steps"], 3, "{machine}");
    let chain = bench("chain", store, "100");
    assert!(chain["ratio"].as_f64().expect("a ratio") > 0.0, "{chain}");
    let signal = bench("signal", store, "200");
    assert!(signal["p50_ms"].is_number() && signal["delivered_per_second"].is_number(), "{signal}");
}

/// Workflows run, continue from a journal, and are replayed.
fn workflows(store: &str) {
    let flow = bench("flow", store, "300");
    assert!(flow["answered_per_second"].as_f64().expect("a rate") > 0.0, "{flow}");
    let chain = bench("flowchain", store, "100");
    assert!(chain["floor_ratio"].as_f64().expect("a ratio") > 0.0, "{chain}");
    let replay = bench("replay", store, "200");
    assert!(replay["p50_ms"].is_number() && replay["sleeping_rss_mb"].is_number(), "{replay}");
}

/// Children are merged: as tasks, as workflows, in blocks, with failures, and while workers and the server are killed. A record
/// outside the store shows that each child is executed and counted once by the parent.
fn fanout(store: &str) {
    for more in [
        &[][..],
        &["--child", "flow"],
        &["--failing"],
        &["--packed"],
        &["--packed", "--failing"],
        &["--chaos"],
        &["--chaos", "--packed"],
    ] {
        let fanout = bench_with("fanout", store, "3000", more);
        assert!(fanout["rows"].as_u64().expect("rows") > 0, "{more:?}: {fanout}");
        if more.contains(&"--chaos") {
            assert!(fanout["rerun"].is_u64() && fanout["killed"].is_u64(), "{fanout}");
        }
    }
}

#[test]
fn every_workload_is_run() {
    let help = Sandbox::new().ok(&["bench", "--help"]);
    let listed = help
        .split("Possible values:")
        .nth(1)
        .expect("the workloads")
        .split("Options:")
        .next()
        .expect("a part");
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(':').next()).collect();
    assert_eq!(names, WORKLOADS, "the workloads in the help and in the tests");
}

#[test]
fn machines_on_sqlite() {
    machines("sqlite");
}

#[test]
fn machines_on_postgres() {
    machines("postgres");
}

#[test]
fn workflows_on_sqlite() {
    workflows("sqlite");
}

#[test]
fn workflows_on_postgres() {
    workflows("postgres");
}

#[test]
fn fanout_on_sqlite() {
    fanout("sqlite");
}

#[test]
fn fanout_on_postgres() {
    fanout("postgres");
}

#[test]
fn flow_control_on_sqlite() {
    serial("sqlite");
    rate("sqlite");
    schedule("sqlite");
}

#[test]
fn flow_control_on_postgres() {
    serial("postgres");
    rate("postgres");
    schedule("postgres");
}

#[test]
fn basic_on_sqlite() {
    basic("sqlite");
}

#[test]
fn basic_on_postgres() {
    basic("postgres");
}
