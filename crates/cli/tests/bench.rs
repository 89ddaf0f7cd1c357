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

#[test]
fn on_sqlite() {
    all("sqlite");
}

#[test]
fn on_postgres() {
    all("postgres");
}
