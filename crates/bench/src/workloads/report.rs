//! The results of a workload, as JSON and as text.

use serde_json::{Map, Value, json};

use super::record::Account;

/// The figures of one run.
pub(super) struct Report {
    figures: Map<String, Value>,
    account: Account,
    /// Whether all other checks passed.
    passed: bool,
}

/// The keys of every report, in order.
const KEYS: [&str; 14] = [
    "workload",
    "store",
    "n",
    "seconds",
    "per_second",
    "floor_per_second",
    "p50_ms",
    "p99_ms",
    "peak_rss_mb",
    "db_bytes_per_job",
    "commits_per_job",
    "lost",
    "duplicated",
    "commit",
];

impl Report {
    pub(super) fn new(workload: &str, store: &str, n: usize) -> Report {
        let mut figures: Map<String, Value> =
            KEYS.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
        figures.insert("workload".into(), json!(workload));
        figures.insert("store".into(), json!(store));
        figures.insert("n".into(), json!(n));
        figures.insert("peak_rss_mb".into(), json!(peak_rss_mb()));
        figures.insert("commit".into(), json!(source_commit()));
        let account = Account::default();
        Report { figures, account, passed: true }.account(account)
    }

    /// Adds a figure.
    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Report {
        self.figures.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a figure, rounded to its significant digits.
    pub(super) fn figure(self, key: &str, value: f64) -> Report {
        let digits = if value.abs() >= 1_000.0 { 1.0 } else { 1_000.0 };
        self.with(key, json!((value * digits).round() / digits))
    }

    pub(super) fn rate(self, n: usize, seconds: f64) -> Report {
        self.figure("seconds", seconds).figure("per_second", n as f64 / seconds)
    }

    pub(super) fn account(mut self, account: Account) -> Report {
        self.account = account;
        self.with("lost", account.lost).with("duplicated", account.duplicated)
    }

    /// Adds a check; the bench fails if it did not pass.
    pub(super) fn must(mut self, passed: bool) -> Report {
        self.passed &= passed;
        self
    }

    pub(super) fn adds_up(&self) -> bool {
        self.passed && self.account.lost == 0 && self.account.duplicated == 0
    }

    pub(super) fn print(&self, as_json: bool) {
        if as_json {
            println!("{}", Value::Object(self.figures.clone()));
            return;
        }
        let known = KEYS.iter().filter_map(|key| Some((*key, self.figures.get(*key)?)));
        let own = self.figures.iter().filter(|(key, _)| !KEYS.contains(&key.as_str()));
        for (key, value) in known.chain(own.map(|(key, value)| (key.as_str(), value))) {
            if !value.is_null() {
                println!("{key:>24}  {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
        }
    }
}

/// The median of some figures.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = |n: usize| figures.get(n).copied().unwrap_or(f64::NAN);
    (middle(figures.len().saturating_sub(1) / 2) + middle(figures.len() / 2)) / 2.0
}

/// The peak resident memory of this process.
pub(super) fn peak_rss_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

/// The commit of the source tree the program is run in.
fn source_commit() -> Option<String> {
    let output = std::process::Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
