//! Checks workers and the jobs that wait for them.

use std::{collections::HashMap, time::Duration};

use windlass_model::{State, Time};
use windlass_store::{Error, OldestReady, StateCount, WorkerView};

use super::{Finding, unserved::Unserved};
use crate::{Operator, text};

/// A ready job that waits longer than this is worth a warning.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// Counting stops here: a diagnosis needs no exact number of many.
const CAP: u64 = 10_000;
/// How many workers a finding names.
const NAMED: usize = 5;

/// What was read.
pub(super) struct Backlog {
    workers: Vec<WorkerView>,
    state_counts: Vec<StateCount>,
    oldest_ready: Vec<OldestReady>,
    suspects: u64,
    /// Failed jobs that no merge has counted.
    unhandled_failures: u64,
    /// The default queue of each kind that this program registers.
    default_queues: HashMap<String, &'static str>,
    now: Time,
}

pub(super) async fn read(operator: &Operator) -> Result<Backlog, Error> {
    let (inspect, diagnose) = (operator.inspect(), operator.store().diagnose());
    Ok(Backlog {
        workers: inspect.workers().await?,
        state_counts: inspect.state_counts().await?,
        oldest_ready: diagnose.oldest_ready().await?,
        suspects: diagnose.suspects(CAP).await?,
        unhandled_failures: diagnose.unhandled_failures(CAP).await?,
        default_queues: operator.default_queues().clone(),
        now: inspect.clock().await?,
    })
}

impl Backlog {
    pub(super) fn judge(&self) -> Vec<Finding> {
        let mut findings = self.workers();
        findings.push(self.ready());
        findings.extend(self.parked());
        findings.extend(self.unserved());
        findings.extend(self.suspects());
        findings.extend(self.failed());
        findings
    }

    fn count(&self, state: State) -> u64 {
        self.state_counts.iter().filter(|count| count.state == state).map(|count| count.jobs).sum()
    }

    fn alive(&self) -> impl Iterator<Item = &WorkerView> {
        self.workers.iter().filter(|worker| worker.alive && worker.lease_until >= self.now)
    }

    fn workers(&self) -> Vec<Finding> {
        let alive: Vec<&WorkerView> = self.alive().collect();
        let lapsed: Vec<&WorkerView> =
            self.workers.iter().filter(|worker| worker.alive && worker.lease_until < self.now).collect();
        let mut findings = Vec::new();
        if !lapsed.is_empty() {
            let found = format!("{} stopped renewing ({})", lapsed.len(), names(&lapsed));
            let finding = Finding::warn("workers", found).advice("other workers take over their jobs");
            findings.push(finding.number("lapsed", lapsed.len() as u64));
        }
        // Parked jobs need a worker too: for their timeouts, and once their waits are over.
        let waiting = self.count(State::Ready) + self.count(State::Scheduled) + self.count(State::Waiting);
        let finding = match (alive.len(), waiting) {
            (0, 0) => Finding::ok("workers", "none is alive, and no job waits"),
            (0, _) => {
                let jobs = text::counted(waiting, "job waits", "jobs wait");
                Finding::warn("workers", format!("none is alive, and {jobs}"))
                    .advice("start one with `windlass worker`")
            }
            (count, _) => Finding::ok("workers", format!("{count} alive ({})", names(&alive))),
        };
        findings.push(finding.number("alive", alive.len() as u64));
        findings
    }

    fn ready(&self) -> Finding {
        let Some(due) = self.oldest_ready.iter().map(|oldest| oldest.due_at).min() else {
            return Finding::ok("backlog", "no job is ready");
        };
        let (ready, waits) = (self.count(State::Ready), self.now - due);
        let found = format!("{} ready, the oldest for {}", text::thousands(ready), text::duration(waits));
        let finding = match waits < LONG_WAIT {
            true => Finding::ok("backlog", found),
            false => Finding::warn("backlog", found).advice("`windlass jobs --state ready` lists them"),
        };
        finding.number("ready", ready).seconds("oldest_seconds", waits)
    }

    fn parked(&self) -> Option<Finding> {
        let parked = self.count(State::Waiting);
        let found = format!("{}, waiting for signals, children or a time", text::jobs(parked));
        let finding = Finding::ok("parked", found).advice("`windlass jobs --state waiting` lists them");
        (parked > 0).then(|| finding.number("parked", parked))
    }

    /// Queues and kinds that no live worker serves. Without any worker there is one finding for all.
    fn unserved(&self) -> Vec<Finding> {
        if self.alive().next().is_none() {
            return Vec::new();
        }
        let Backlog { workers, state_counts, oldest_ready, default_queues, now, .. } = self;
        Unserved { workers, state_counts, oldest_ready, default_queues, now: *now }.judge()
    }

    fn suspects(&self) -> Option<Finding> {
        let or_more = if self.suspects >= CAP { " or more" } else { "" };
        let found = "ready jobs are suspects: a worker died while running them; each runs alone next";
        let found = format!("{}{or_more} {found}", text::thousands(self.suspects));
        (self.suspects > 0).then(|| Finding::warn("suspects", found).number("suspects", self.suspects))
    }

    /// Failed jobs. Those that a merge has counted need nobody: its rule tolerates them, or its job deals with them. Of very many, which
    /// these are is read of the newest alone.
    fn failed(&self) -> Option<Finding> {
        let (unhandled, failed) = (self.unhandled_failures, self.count(State::Failed));
        if failed > CAP {
            return Some(self.many_failed(failed));
        }
        let merged = failed.saturating_sub(unhandled);
        let tolerated = text::counted(merged, "child of a merged branch", "children of merged branches");
        let finding = match (unhandled, merged) {
            (0, 0) => return None,
            (0, _) => Finding::ok("failed", format!("{tolerated} failed, which the merges have counted")),
            (_, 0) => Finding::warn("failed", format!("{} failed", text::jobs(unhandled))),
            (..) => Finding::warn("failed", format!("{} failed, besides {tolerated}", text::jobs(unhandled))),
        };
        let finding = finding.advice("`windlass jobs --state failed` lists them");
        Some(finding.number("failed", unhandled).number("merged", merged))
    }

    /// More failed jobs than are read.
    fn many_failed(&self, failed: u64) -> Finding {
        let merged = CAP.saturating_sub(self.unhandled_failures);
        let newest = match merged {
            0 => String::new(),
            CAP => format!("; the newest {} are children of merged branches", text::thousands(CAP)),
            merged => format!(
                "; of the newest {}, {} are children of merged branches",
                text::thousands(CAP),
                text::thousands(merged)
            ),
        };
        let found = format!("{} failed{newest}", text::jobs(failed));
        let finding = match self.unhandled_failures {
            0 => Finding::ok("failed", found),
            _ => Finding::warn("failed", found),
        };
        let finding = finding.advice("`windlass jobs --state failed` lists them");
        // Those that are not known to be merged.
        finding.number("failed", failed - merged).number("merged", merged)
    }
}

fn names(workers: &[&WorkerView]) -> String {
    let names: Vec<&str> = workers.iter().take(NAMED).map(|worker| worker.name.as_str()).collect();
    names.join(", ") + if workers.len() > NAMED { ", …" } else { "" }
}

#[cfg(test)]
mod tests {
    use windlass_model::{KindVersion, WorkerId};
    use windlass_store::Serves;

    use super::*;
    use crate::doctor::Verdict;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn worker(name: &str, lease_until: Time, kinds: &[(&str, i32)]) -> WorkerView {
        let kinds = kinds
            .iter()
            .map(|(kind, version)| KindVersion { kind: (*kind).into(), version: *version })
            .collect();
        WorkerView {
            id: WorkerId(1),
            name: name.into(),
            liveness_file: None,
            alive: true,
            lease_until,
            lost_at: None,
            claims: 0,
            serves: vec![Serves { queue: "default".into(), slots: 1, kinds }],
        }
    }

    fn count(state: State, jobs: u64) -> StateCount {
        StateCount { queue: "default".into(), kind: "mail".into(), state, jobs }
    }

    fn oldest(kind: &str, seconds: u64) -> OldestReady {
        let due_at = NOW - Duration::from_secs(seconds);
        OldestReady { queue: "default".into(), kind: kind.into(), version: 1, due_at }
    }

    fn empty() -> Backlog {
        Backlog {
            workers: Vec::new(),
            state_counts: Vec::new(),
            oldest_ready: Vec::new(),
            suspects: 0,
            unhandled_failures: 0,
            default_queues: HashMap::new(),
            now: NOW,
        }
    }

    fn found(backlog: &Backlog) -> Vec<(Verdict, &'static str, String)> {
        let found = |finding: Finding| (finding.verdict, finding.known_what(), finding.found);
        backlog.judge().into_iter().map(found).collect()
    }

    #[test]
    fn jobs_without_a_live_worker_are_a_warning() {
        assert!(found(&empty()).iter().all(|(verdict, ..)| *verdict == Verdict::Ok));
        let parked = Backlog { state_counts: vec![count(State::Waiting, 2)], ..empty() };
        assert_eq!(
            found(&parked)[0],
            (Verdict::Warn, "workers", "none is alive, and 2 jobs wait".to_owned())
        );
        let lapsed = Backlog { workers: vec![worker("smith", NOW - LONG_WAIT, &[])], ..parked };
        assert_eq!(found(&lapsed)[0].2, "1 stopped renewing (smith)");
    }

    #[test]
    fn an_old_backlog_and_kinds_that_nobody_serves_are_warnings() {
        let backlog = Backlog {
            workers: vec![worker("smith", NOW + LONG_WAIT, &[("mail", 1)])],
            state_counts: vec![count(State::Ready, 2_000), count(State::Failed, 1)],
            oldest_ready: vec![oldest("mail", 5), oldest("report", 300)],
            suspects: 3,
            unhandled_failures: 1,
            ..empty()
        };
        let expected = [
            (Verdict::Ok, "workers", "1 alive (smith)"),
            (Verdict::Warn, "backlog", "2,000 ready, the oldest for 5m"),
            (
                Verdict::Warn,
                "unserved",
                "no live worker serves kind report in queue default, and a job has waited for 5m",
            ),
            (
                Verdict::Warn,
                "suspects",
                "3 ready jobs are suspects: a worker died while running them; each runs alone next",
            ),
            (Verdict::Warn, "failed", "1 job failed"),
        ];
        let expected: Vec<_> =
            expected.map(|(verdict, what, found)| (verdict, what, found.to_owned())).into();
        assert_eq!(found(&backlog), expected);
    }

    #[test]
    fn failures_that_a_merge_has_counted_are_no_warning() {
        let failures = |unhandled_failures| {
            let state_counts = vec![count(State::Failed, 5)];
            let found = found(&Backlog { state_counts, unhandled_failures, ..empty() });
            found.into_iter().find(|(_, what, _)| *what == "failed").expect("a finding")
        };
        let (verdict, _, text) = failures(0);
        assert_eq!(text, "5 children of merged branches failed, which the merges have counted");
        assert_eq!(verdict, Verdict::Ok);
        let (verdict, _, text) = failures(4);
        assert_eq!(text, "4 jobs failed, besides 1 child of a merged branch");
        assert_eq!(verdict, Verdict::Warn);
        assert_eq!(failures(5).2, "5 jobs failed");
    }

    #[test]
    fn more_than_are_read_are_reported_with_their_number() {
        let failures = |failed, unhandled_failures| {
            let state_counts = vec![count(State::Failed, failed)];
            let findings = Backlog { state_counts, unhandled_failures, ..empty() }.judge();
            findings.into_iter().find(|finding| finding.known_what() == "failed").expect("a finding")
        };
        let found = failures(25_000, CAP);
        assert_eq!((found.verdict, found.found.as_str()), (Verdict::Warn, "25,000 jobs failed"));
        assert_eq!((found.numbers["failed"], found.numbers["merged"]), (25_000, 0));
        let found = failures(25_000, 9_700);
        let text = "25,000 jobs failed; of the newest 10,000, 300 are children of merged branches";
        assert_eq!((found.verdict, found.found.as_str()), (Verdict::Warn, text));
        assert_eq!((found.numbers["failed"], found.numbers["merged"]), (24_700, 300));
        let found = failures(25_000, 0);
        let text = "25,000 jobs failed; the newest 10,000 are children of merged branches";
        assert_eq!((found.verdict, found.found.as_str()), (Verdict::Ok, text));
        assert_eq!(failures(10_000, 10_000).found, "10,000 jobs failed");

        let suspects = |suspects| {
            let findings = Backlog { suspects, ..empty() }.judge();
            findings.into_iter().find(|finding| finding.what == "suspects").expect("a finding").found
        };
        assert!(suspects(9_999).starts_with("9,999 ready jobs are suspects"), "{}", suspects(9_999));
        assert!(suspects(CAP).starts_with("10,000 or more ready jobs are suspects"), "{}", suspects(CAP));
    }
}
