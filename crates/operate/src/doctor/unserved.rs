//! Finds queues and kinds that no live worker serves.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use windlass_model::{State, Time};
use windlass_store::{OldestReady, StateCount, WorkerView};

use super::Finding;
use crate::{
    text,
    unserved::{advice, by_queue, is_served},
};

/// What was read, of a store with at least one live worker.
pub(super) struct Unserved<'a> {
    pub(super) workers: &'a [WorkerView],
    pub(super) state_counts: &'a [StateCount],
    pub(super) oldest_ready: &'a [OldestReady],
    /// The default queue of each kind that this program registers.
    pub(super) default_queues: &'a HashMap<String, &'static str>,
    pub(super) now: Time,
}

impl Unserved<'_> {
    /// A finding for each queue that nobody serves, though a kind of this program uses it or a job is ready in it, and one for each
    /// kind with ready jobs that nobody serves in a queue that somebody serves.
    pub(super) fn judge(&self) -> Vec<Finding> {
        let mut queues: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (queue, kinds) in by_queue(self.default_queues) {
            queues.entry(queue).or_default().extend(kinds);
        }
        for oldest in self.oldest_ready {
            queues.entry(&oldest.queue).or_default().insert(&oldest.kind);
        }
        queues.retain(|queue, _| !is_served(queue, self.workers, self.now));
        let mut findings: Vec<Finding> =
            queues.iter().map(|(queue, kinds)| self.queue(queue, kinds)).collect();
        findings.extend(self.kinds(|queue| queues.contains_key(queue)));
        findings
    }

    fn queue(&self, queue: &str, kinds: &BTreeSet<&str>) -> Finding {
        let waits = |count: &&StateCount| {
            count.queue == queue && matches!(count.state, State::Ready | State::Scheduled | State::Waiting)
        };
        let waiting: u64 = self.state_counts.iter().filter(waits).map(|count| count.jobs).sum();
        let names: Vec<&str> = kinds.iter().copied().collect();
        let jobs = match waiting {
            0 => "no job waits in it yet".to_owned(),
            _ => format!("{} in it", text::counted(waiting, "job waits", "jobs wait")),
        };
        let found = format!(
            "no live worker serves queue {queue}, which {} {} use{}; {jobs}",
            if names.len() == 1 { "kind" } else { "kinds" },
            names.join(", "),
            if names.len() == 1 { "s" } else { "" },
        );
        let list = match waiting {
            0 => String::new(),
            _ => format!("; `windlass jobs --queue {queue}` lists them"),
        };
        let finding = Finding::warn("unserved", found).advice(format!("{}{list}", advice(queue)));
        let finding = finding.number("waiting", waiting);
        let oldest = self.oldest_ready.iter().filter(|oldest| oldest.queue == queue);
        match oldest.map(|oldest| oldest.due_at).min() {
            Some(due) => finding.seconds("oldest_seconds", self.now - due),
            None => finding,
        }
    }

    /// A finding for each kind with ready jobs that no live worker serves, in queues other than those.
    fn kinds(&self, is_unserved: impl Fn(&str) -> bool) -> Vec<Finding> {
        let alive = || self.workers.iter().filter(|worker| worker.alive && worker.lease_until >= self.now);
        let serves = |oldest: &OldestReady| {
            let mut pools =
                alive().flat_map(|worker| &worker.serves).filter(|pool| pool.queue == oldest.queue);
            pools.any(|pool| {
                pool.kinds.iter().any(|kind| kind.kind == oldest.kind && kind.version == oldest.version)
            })
        };
        let mut stuck: BTreeMap<(&str, &str, i32), Time> = BTreeMap::new();
        for oldest in self.oldest_ready.iter().filter(|oldest| !is_unserved(&oldest.queue) && !serves(oldest))
        {
            let since = stuck.entry((&oldest.queue, &oldest.kind, oldest.version)).or_insert(oldest.due_at);
            *since = oldest.due_at.min(*since);
        }
        let finding = |((queue, kind, version), due): ((&str, &str, i32), Time)| {
            let waits = self.now - due;
            let version = if version == 1 { String::new() } else { format!(" v{version}") };
            let found = format!(
                "no live worker serves kind {kind}{version} in queue {queue}, and a job has waited for {}",
                text::duration(waits)
            );
            let list = format!("`windlass jobs --state ready --kind {kind} --queue {queue}` lists them");
            Finding::warn("unserved", found)
                .advice(format!("start one that serves it; {list}"))
                .seconds("oldest_seconds", waits)
        };
        stuck.into_iter().map(finding).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass_model::{KindVersion, WorkerId};
    use windlass_store::Serves;

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn worker(queue: &str, lease_until: Time) -> WorkerView {
        let kinds = vec![KindVersion { kind: "mail".into(), version: 1 }];
        WorkerView {
            id: WorkerId(1),
            name: "smith".into(),
            liveness_file: None,
            alive: true,
            lease_until,
            lost_at: None,
            claims: 0,
            serves: vec![Serves { queue: queue.into(), slots: 1, kinds }],
        }
    }

    fn judge(workers: &[WorkerView], ready: &[OldestReady]) -> Vec<(String, String)> {
        let default_queues = HashMap::from([("mail".to_owned(), "default"), ("speak".to_owned(), "voices")]);
        let count = |state, jobs| StateCount { queue: "voices".into(), kind: "speak".into(), state, jobs };
        let state_counts = [count(State::Ready, 2), count(State::Scheduled, 1), count(State::Done, 9)];
        let (oldest_ready, now) = (ready, NOW);
        let unserved = Unserved {
            workers,
            state_counts: &state_counts,
            oldest_ready,
            default_queues: &default_queues,
            now,
        };
        let text = |finding: Finding| (finding.found, finding.advice.unwrap_or_default());
        unserved.judge().into_iter().map(text).collect()
    }

    #[test]
    fn a_queue_that_a_registered_kind_uses_and_nobody_serves_is_named() {
        let live = |queue: &str| worker(queue, NOW + Duration::from_secs(9));
        let found = judge(&[live("default")], &[]);
        assert_eq!(
            found[0].0,
            "no live worker serves queue voices, which kind speak uses; 3 jobs wait in it"
        );
        assert!(
            found[0].1.starts_with("add `.queue(\"voices\", Pool::slots(4))` to the program"),
            "{found:?}"
        );
        assert!(
            found[0].1.contains("`--queue voices=4`; `windlass jobs --queue voices` lists them"),
            "{found:?}"
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(judge(&[live("default"), live("voices")], &[]), []);
        let lapsed = worker("voices", NOW - Duration::from_secs(1));
        assert_eq!(judge(&[live("default"), lapsed], &[]), found, "a dead worker serves nothing");
    }

    #[test]
    fn ready_jobs_of_one_unserved_queue_are_one_finding() {
        let live = worker("default", NOW + Duration::from_secs(9));
        let ready = |queue: &str, kind: &str| {
            let due_at = NOW - Duration::from_secs(300);
            OldestReady { queue: queue.into(), kind: kind.into(), version: 1, due_at }
        };
        let ready = [ready("voices", "sing"), ready("voices", "speak"), ready("default", "report")];
        let found: Vec<String> = judge(&[live], &ready).into_iter().map(|(found, _)| found).collect();
        let expected = [
            "no live worker serves queue voices, which kinds sing, speak use; 3 jobs wait in it",
            "no live worker serves kind report in queue default, and a job has waited for 5m",
        ];
        assert_eq!(found, expected);
    }
}
