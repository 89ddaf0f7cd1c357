//! The record that the demo's workers keep outside the store: one file per process, one line per event, each written
//! with one append, so that it survives a SIGKILL right after it.
//!
//! Three events are recorded. `start` and `end` by the task itself, around its work. `answer` by the wrapper around the
//! store, after the store has answered a commit and before anyone acts on it: which outcome of which claim, following
//! which revision, and the store's answer. An answer that a worker received before it died is recorded. A commit whose
//! answer nobody received, because the worker died waiting for it, shows as a revision in the store without an answer
//! here.

use std::{
    collections::HashMap,
    fs::File,
    io::Write,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Context;
use windlass::{
    JobId,
    model::{Change, CommitOutcome, Outcome},
};

/// The record of one process.
pub(super) struct Record {
    file: File,
    serial: u32,
    runs: AtomicU32,
}

impl Record {
    pub(super) fn open(dir: &Path, serial: u32) -> anyhow::Result<Record> {
        let path = dir.join(format!("worker-{serial}.record"));
        let file = File::options().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("the record {} cannot be opened", path.display()))?;
        Ok(Record { file, serial, runs: AtomicU32::new(0) })
    }

    fn append(&self, text: &str) {
        if let Err(error) = (&self.file).write_all(text.as_bytes()) {
            // A record with a hole proves nothing: the process ends, and the account will not add up.
            panic!("the record cannot be written: {error}");
        }
    }

    /// Records that a task starts. Returns the name of this execution.
    pub(super) fn start(&self, job: JobId, number: u32, fence: i32) -> String {
        let run = format!("{}-{}", self.serial, self.runs.fetch_add(1, Ordering::Relaxed));
        self.append(&format!("start {job} {number} {fence} {run}\n"));
        run
    }

    /// It is about to return.
    pub(super) fn end(&self, job: JobId, number: u32, fence: i32, run: &str, outcome: &str) {
        self.append(&format!("end {job} {number} {fence} {run} {outcome}\n"));
    }

    /// The store has answered a commit.
    pub(super) fn answers(&self, changes: &[Change], outcomes: &[CommitOutcome]) {
        let mut lines = String::new();
        for (change, outcome) in changes.iter().zip(outcomes) {
            let then = if matches!(change.outcome, Outcome::Retry { .. }) { "retry" } else { "final" };
            let answer = match outcome {
                CommitOutcome::Halted => unreachable!("no job of the demo has steps"),
                CommitOutcome::Committed => "committed",
                CommitOutcome::Fenced => "fenced",
                CommitOutcome::Refused(_) => "refused",
            };
            lines += &format!("answer {} {} {} {then} {answer}\n", change.job, change.epoch.0, change.rev.0);
        }
        self.append(&lines);
    }
}

/// All records, read back.
#[derive(Default)]
pub(super) struct Records {
    /// Executions begun.
    pub(super) starts: u64,
    /// Which job each finished execution that succeeded was of, by the execution's name.
    pub(super) succeeded: HashMap<String, JobId>,
    /// For each job, the revisions whose outcome was acknowledged, and whether that outcome was final.
    pub(super) committed: HashMap<JobId, Vec<(i32, bool)>>,
    /// Writes that were refused because the claim was outdated, by worker process.
    pub(super) fenced: HashMap<u32, u64>,
    /// Answers that should not occur.
    pub(super) refused: u64,
}

impl Records {
    /// Reads the records of the workers with numbers from 1 to `last`.
    pub(super) fn read(dir: &Path, last: u32) -> anyhow::Result<Records> {
        let mut records = Records::default();
        for serial in 1..=last {
            let path = dir.join(format!("worker-{serial}.record"));
            // A worker that was killed before it began has none.
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
                let read = records.line(serial, line);
                read.with_context(|| {
                    format!("{} has a line that no worker writes: {line:?}", path.display())
                })?;
            }
        }
        Ok(records)
    }

    fn line(&mut self, serial: u32, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let (event, job) = (words.next()?, words.next()?.parse::<JobId>().ok()?);
        let rest: Vec<&str> = words.collect();
        match (event, rest.as_slice()) {
            ("start", [_, _, _]) => self.starts += 1,
            ("end", [_, _, run, outcome]) => {
                if *outcome == "done" {
                    self.succeeded.insert((*run).to_owned(), job);
                }
            }
            ("answer", [_, rev, outcome, "committed"]) => {
                let rev: i32 = rev.parse().ok()?;
                self.committed.entry(job).or_default().push((rev, *outcome == "final"));
            }
            ("answer", [_, _, _, "fenced"]) => *self.fenced.entry(serial).or_default() += 1,
            ("answer", [_, _, _, "refused"]) => self.refused += 1,
            _ => return None,
        }
        Some(())
    }
}
