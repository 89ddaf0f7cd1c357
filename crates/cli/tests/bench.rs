//! Every workload of `windlass bench`, small, so that none of them rots.

mod common;

use common::Place;

/// Runs a workload on a store and answers its report.
fn bench(workload: &str, store: &str, n: &str) -> serde_json::Value {
    let place = Place::new();
    let report = place.json(&["bench", workload, "--store", store, "--n", n, "--quick", "--json"]);
    for key in
        ["workload", "store", "n", "seconds", "per_second", "peak_rss_mb", "lost", "duplicated", "commit"]
    {
        assert!(report.get(key).is_some(), "{workload} lacks {key}: {report}");
    }
    assert_eq!((&report["lost"], &report["duplicated"]), (&0.into(), &0.into()), "{report}");
    report
}

fn all(store: &str) {
    for workload in ["floor", "drain", "enqueue"] {
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
        assert!((0.95..=1.05).contains(&ratio), "what is blocked is walked by claims: {serial}");
    }
}

/// No limit is exceeded, whatever is asked of it.
fn rate(store: &str) {
    let rate = bench("rate", store, "0");
    assert_eq!(rate["over"], 0, "{rate}");
    assert!((1..=50).contains(&rate["burst_after_stop"].as_u64().expect("a burst")), "{rate}");
    assert!(rate["ratio"].is_number() && rate["ratio_5000"].is_number(), "{rate}");
}

/// Every tick fires once though processes are killed.
fn schedule(store: &str) {
    let schedule = bench("schedule", store, "100");
    assert_eq!(schedule["fired"], schedule["ticks"], "{schedule}");
    assert!(schedule["ticks"].as_u64().expect("ticks") >= 200, "{schedule}");
    assert!(schedule["late_p50_ms"].is_number() && schedule["late_p99_ms"].is_number(), "{schedule}");
}

/// Whatever is killed, each child is executed and its end is told to the parent once, as a record outside the store says.
fn fanout(store: &str) {
    let place = Place::new();
    for packed in [&[][..], &["--packed"]] {
        let mut args = vec!["bench", "fanout", "--store", store, "--n", "3000", "--chaos", "--json"];
        args.extend(packed);
        let report = place.json(&args);
        assert_eq!((&report["lost"], &report["duplicated"]), (&0.into(), &0.into()), "{report}");
        assert!(report["rerun"].is_u64() && report["killed"].is_u64(), "{report}");
    }
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
fn flow_on_sqlite() {
    serial("sqlite");
    rate("sqlite");
    schedule("sqlite");
}

#[test]
fn flow_on_postgres() {
    serial("postgres");
    rate("postgres");
    schedule("postgres");
}

#[test]
fn on_sqlite() {
    all("sqlite");
}

#[test]
fn on_postgres() {
    all("postgres");
}
