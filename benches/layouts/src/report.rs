//! Samples, their medians, the printed tables and the JSON lines.

use std::io::Write;

use serde::Serialize;

/// One run of one layout: all numbers are per job.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) store: &'static str,
    pub(crate) layout: String,
    pub(crate) repeat: usize,
    pub(crate) jobs: usize,
    pub(crate) lanes: i32,
    /// Microseconds to submit.
    pub(crate) submit_us: f64,
    /// Microseconds to claim and commit.
    pub(crate) drain_us: f64,
    /// CPU microseconds of the session that claims (SQLite: of the whole drain), where the system tells.
    pub(crate) claim_cpu: Option<f64>,
    /// CPU microseconds of the session that commits.
    pub(crate) commit_cpu: Option<f64>,
    /// Bytes of write-ahead log while submitting.
    pub(crate) submit_wal: f64,
    /// Bytes of write-ahead log while draining, full-page images included.
    pub(crate) drain_wal: f64,
    /// The full-page images in `drain_wal` (PostgreSQL).
    pub(crate) drain_fpi: Option<f64>,
    /// Dead rows left after the drain (PostgreSQL).
    pub(crate) dead: Option<f64>,
    /// Updates (PostgreSQL).
    pub(crate) updates: Option<f64>,
    /// Updates that were heap-only (PostgreSQL).
    pub(crate) hot: Option<f64>,
    /// Bytes of tables and indexes after the drain.
    pub(crate) bytes: f64,
    /// Microseconds of the vacuum that clears the index that claims walk; for A of the rotation (PostgreSQL).
    pub(crate) vacuum_us: Option<f64>,
    /// One-minute load average of the machine after the run.
    pub(crate) load: f64,
}

/// Claim latency of one state of the store.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) store: &'static str,
    pub(crate) layout: String,
    pub(crate) claims: usize,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    /// CPU microseconds of the server per claim, on average, where the system tells.
    pub(crate) cpu_us: Option<f64>,
    pub(crate) load: f64,
}

/// The one-minute load average, or NaN where the system does not tell.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(f64::NAN)
}

/// The CPU time a process has used, in microseconds; `None` if it does not run on this machine.
pub(crate) fn cpu(pid: i32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').next()?.parse::<f64>().ok().map(|ns| ns / 1e3)
}

/// The value at `share` (0 to 1) of the sorted values.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// The median sample of each layout, column by column, in the order of first appearance.
pub(crate) fn medians(samples: &[Sample]) -> Vec<Sample> {
    let mut out: Vec<Sample> = Vec::new();
    for sample in samples {
        if out.iter().any(|s| s.store == sample.store && s.layout == sample.layout) {
            continue;
        }
        let same: Vec<&Sample> =
            samples.iter().filter(|s| s.store == sample.store && s.layout == sample.layout).collect();
        let median =
            |f: &dyn Fn(&Sample) -> f64| quantile(&mut same.iter().map(|s| f(s)).collect::<Vec<_>>(), 0.5);
        let maybe = |f: &dyn Fn(&Sample) -> Option<f64>| {
            let mut values: Vec<f64> = same.iter().filter_map(|s| f(s)).collect();
            (!values.is_empty()).then(|| quantile(&mut values, 0.5))
        };
        out.push(Sample {
            repeat: same.len(),
            submit_us: median(&|s| s.submit_us),
            drain_us: median(&|s| s.drain_us),
            claim_cpu: maybe(&|s| s.claim_cpu),
            commit_cpu: maybe(&|s| s.commit_cpu),
            submit_wal: median(&|s| s.submit_wal),
            drain_wal: median(&|s| s.drain_wal),
            drain_fpi: maybe(&|s| s.drain_fpi),
            dead: maybe(&|s| s.dead),
            updates: maybe(&|s| s.updates),
            hot: maybe(&|s| s.hot),
            bytes: median(&|s| s.bytes),
            vacuum_us: maybe(&|s| s.vacuum_us),
            load: median(&|s| s.load),
            ..sample.clone()
        });
    }
    out
}

/// Prints the medians as a Markdown table; the range is the fastest and slowest drain of the repeats.
pub(crate) fn print(samples: &[Sample]) {
    println!(
        "| store | layout | submit µs | drain µs | drain range | CPU claim | CPU commit | jobs/s (both) | \
         WAL submit | WAL drain | of it images | dead rows | updates | HOT | bytes | vacuum µs |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let show = |v: Option<f64>, digits: usize| v.map_or("–".to_owned(), |v| format!("{v:.digits$}"));
    for m in medians(samples) {
        let mut drains: Vec<f64> = samples
            .iter()
            .filter(|s| s.store == m.store && s.layout == m.layout)
            .map(|s| s.drain_us)
            .collect();
        println!(
            "| {} | {} | {:.2} | {:.2} | {:.1}–{:.1} | {} | {} | {:.0} | {:.0} | {:.0} | {} | {} | {} | {} | {:.0} | {} |",
            m.store,
            m.layout,
            m.submit_us,
            m.drain_us,
            quantile(&mut drains, 0.0),
            quantile(&mut drains, 1.0),
            show(m.claim_cpu, 2),
            show(m.commit_cpu, 2),
            1e6 / (m.submit_us + m.drain_us),
            m.submit_wal,
            m.drain_wal,
            show(m.drain_fpi, 0),
            show(m.dead, 2),
            show(m.updates, 2),
            show(m.hot, 2),
            m.bytes,
            show(m.vacuum_us, 2),
        );
    }
}

/// Prints the claim latencies as a Markdown table.
pub(crate) fn print_latencies(latencies: &[Latency]) {
    println!("| store | state | claims | p50 µs | p99 µs | max µs | CPU µs |\n|---|---|--:|--:|--:|--:|--:|");
    let show = |v: Option<f64>| v.map_or("–".to_owned(), |v| format!("{v:.0}"));
    for l in latencies {
        println!(
            "| {} | {} | {} | {:.0} | {:.0} | {:.0} | {} |",
            l.store,
            l.layout,
            l.claims,
            l.p50_us,
            l.p99_us,
            l.max_us,
            show(l.cpu_us)
        );
    }
}

/// Appends one value as a JSON line.
pub(crate) fn append<T: Serialize>(file: Option<&mut std::fs::File>, value: &T) -> anyhow::Result<()> {
    if let Some(file) = file {
        writeln!(file, "{}", serde_json::to_string(value)?)?;
    }
    Ok(())
}
